//! `ebb sim` on a polled server.

use std::fs;

use crate::common::{fails, json, path, prints, small_trace, valid};

const QUICK: [&str; 11] = [
    "sim",
    "--profile",
    "all-flash",
    "--workload",
    "poisson",
    "--rate",
    "20k",
    "--duration",
    "2 s",
    "--warmup",
    "1 s",
];

fn run(more: &[&str]) -> serde_json::Value {
    let found = json(&[&QUICK[..], &["--json"], more].concat());
    valid("sim-1", &found);
    found
}

#[test]
fn schedulers_stand_side_by_side_and_keep_the_contract() {
    let found = run(&["--policy", "static", "--policy", "sandman(burst_depth=16)"]);
    assert_eq!((&found["profile"], &found["simulated"]), (&"all-flash".into(), &true.into()));
    let runs = found["runs"].as_array().unwrap();
    assert_eq!(runs[1]["policy"], "sandman(burst_depth=16)");
    // The same requests under both but for those under way at the end, and less power.
    let requests = [0, 1].map(|run: usize| runs[run]["requests"].as_f64().unwrap());
    assert!((requests[0] / requests[1] - 1.0).abs() < 1e-3, "{requests:?}");
    assert!(found["verdicts"][0]["saved_share"].as_f64().unwrap() > 0.1, "{found}");
    for run in runs {
        let number = |name: &str| run[name].as_f64().unwrap();
        // 20,000 a second for one second, 70 % reads of 8 KiB.
        assert!((19_000.0..21_000.0).contains(&number("requests")), "{run}");
        assert!((number("reads") / number("requests") - 0.7).abs() < 0.05, "{run}");
        assert_eq!(number("bytes"), 8192.0 * number("requests"));
        assert!(number("peak_watts") >= number("mean_watts"));
        let joules = |part: &str| run["energy_joules"][part].as_f64().unwrap();
        assert!((joules("cpu") + joules("ssd") + joules("other") - joules("total")).abs() < 1e-6);
        let cores: f64 =
            run["core_seconds"].as_object().unwrap().values().filter_map(|s| s.as_f64()).sum();
        assert!((cores - 32.0).abs() < 0.1, "{run}");
    }
    // Who knows the future saves more.
    let found = run(&["--policy", "sandman", "--policy", "clairvoyant"]);
    assert!(found["verdicts"][0]["saved_share"].as_f64().unwrap() > 0.1, "{found}");
    let text = prints(&[&QUICK[..], &["--policy", "static", "--policy", "sandman"]].concat());
    assert!(text.starts_with("Simulated: sandman would save "), "{text}");
}

#[test]
fn a_profile_of_ones_own_and_a_trace_do_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let mine = path(folder.path(), "mine.toml");
    let text = "name = 'mine'\nsummary = ''\nbase = 'all-flash'\n[power]\ncore_doze = '0 W'";
    fs::write(&mine, text).unwrap();
    let policies = ["--policy", "static", "--policy", "sandman"];
    let saved = |profile: &str| {
        let words = [&QUICK[..], &["--json"], &policies].concat();
        let own = |word: &&'static str| if *word == "all-flash" { profile } else { *word };
        json(&words.iter().map(own).collect::<Vec<_>>())["verdicts"][0]["saved_share"]
            .as_f64()
            .unwrap()
    };
    assert!(saved(&mine) > saved("all-flash") + 0.1);
    let trace = small_trace(folder.path());
    let args = ["sim", "--profile", "all-flash-raid5", "--trace", &trace, "--duration", "2 s"];
    let found = json(&[&args[..], &["--json"]].concat());
    valid("sim-1", &found);
    let run = &found["runs"][0];
    assert_eq!((&run["policy"], &run["requests"]), (&"static".into(), &1000.into()));
}

#[test]
fn what_a_polled_server_has_nothing_for_is_refused() {
    for (more, says) in [
        (&["--ssd-budget", "224 W"][..], "--ssd-budget is not for polled servers"),
        (&["--policy", "pacer"], "unknown scheduler 'pacer'; choose from: static"),
        (&["--policy", "sandman(burst_depth=0)"], "burst_depth = 0 is out of range"),
        (&["--warmup", "3 s"], "--warmup 3 s leaves nothing"),
    ] {
        let (code, error) = fails(&[&QUICK[..9], more].concat());
        assert!(code == 2 && error.contains(says), "{error}");
    }
    let of = |workload| ["sim", "--profile", "all-flash", "--workload", workload];
    for (workload, says) in
        [("rand-rw", "requests of a polled server come by the clock"), ("on-off", "state --rate")]
    {
        let (code, error) = fails(&of(workload));
        assert!(code == 2 && error.contains(says), "{error}");
    }
}

#[test]
fn negative_numbers_of_a_polled_profile_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let profile = path(folder.path(), "server.toml");
    let shipped = fs::read_to_string("../twin/profiles/reactor/all-flash.toml").unwrap();
    let shipped: toml::Table = shipped.parse().unwrap();
    let parts = shipped.iter().filter_map(|(name, part)| Some((name, part.as_table()?)));
    let mut tried = 0;
    for (name, key, value) in parts.flat_map(|(n, part)| part.iter().map(move |(k, v)| (n, k, v))) {
        let negative = match value.as_str().and_then(|text| text.split_once(' ')) {
            Some((_, unit)) => format!("'-1 {unit}'"),
            None if value.is_bool() => continue,
            None => "-1".to_owned(),
        };
        let text = format!("base = 'all-flash'\nname = ''\n[{name}]\n{key} = {negative}");
        fs::write(&profile, text).unwrap();
        let (code, error) = fails(&["sim", "--profile", &profile, "--duration", "1 s"]);
        assert!(code != 101 && error.contains(key), "{name}.{key} = {negative}: {error}");
        tried += 1;
    }
    assert!(tried > 30, "only {tried} were tried");
}
