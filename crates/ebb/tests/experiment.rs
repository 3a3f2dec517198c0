//! `ebb sim --experiment` end to end.

use std::fs;
use std::path::Path;

use crate::common::{fails, json, prints, valid};
use serde_json::Value;

/// A file with this text.
fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("x.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const SMALL: &str = "profile = \"asg-1115s\"\nworkload = \"rand-rw\"\nrate = 2000\n\
                     policy = [\"native\", \"pacman\"]\nssd-budget = \"200 W\"\n\
                     duration = \"4 s\"\n";

fn runs(result: &Value) -> Vec<&Value> {
    result["runs"].as_array().unwrap().iter().collect()
}

#[test]
fn the_example_is_what_its_options_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = root.join("examples/night.toml");
    let example = example.to_str().unwrap();
    let short = ["--duration", "10 s", "--json"];
    let by_file = json(&[&["sim", "--experiment", example][..], &short].concat());
    valid("sim-1", &by_file);
    let options = [
        "sim",
        "--profile=asg-1115s",
        "--workload=fio-servers",
        "--read=0%",
        "--block=2 MiB",
        "--policy=native",
        "--policy=sspc",
        "--policy=pacman",
        "--ssd-budget=224 W",
        "--change=4 s: ssd-budget 170 W",
        "--change=8 s: ssd-budget 224 W, plf 50%",
        "--warmup=2 s",
        "--seed=7",
    ];
    let mut by_options = json(&[&options[..], &short].concat());
    assert_eq!(by_file["experiment"]["file"], example);
    let taken = by_file["experiment"]["options"].as_object().unwrap();
    assert_eq!(taken["policy"], serde_json::json!(["native", "sspc", "pacman"]));
    assert!(!taken.contains_key("duration"), "the command line said it: {taken:?}");
    by_options["experiment"] = by_file["experiment"].clone();
    assert_eq!(by_file, by_options);
    let changes = by_file["changes"].as_array().unwrap();
    let of = |name: &str| -> Vec<_> {
        changes.iter().map(|change| change[name].as_f64().unwrap()).collect()
    };
    assert_eq!(of("at_s"), [4.0, 8.0]);
    assert_eq!(of("ssd_budget_watts"), [170.0, 224.0]);
    assert_eq!(of("plf"), [0.2, 0.5]);
}

#[test]
fn a_budget_changes_while_the_policies_run_and_native_stays_uncapped() {
    let folder = tempfile::tempdir().unwrap();
    let load = "profile = \"asg-1115s\"\nworkload = \"fio-servers\"\nread = \"0%\"\n\
                block = \"2 MiB\"\npolicy = [\"native\", \"pacman\"]\n\
                ssd-budget = \"400 W\"\nduration = \"8 s\"\n";
    let path = file(folder.path(), &format!("{load}change = [\"4 s: ssd-budget 150 W\"]\n"));
    let changed = json(&["sim", "--experiment", &path, "--json"]);
    let path = file(folder.path(), load);
    let fixed = json(&["sim", "--experiment", &path, "--json"]);
    assert_eq!(fixed.get("changes"), None);
    let ssd = |result, run: usize| runs(result)[run]["energy_joules"]["ssd"].as_f64().unwrap();
    assert_eq!(ssd(&changed, 0), ssd(&fixed, 0), "native");
    assert!(ssd(&changed, 1) < 0.9 * ssd(&fixed, 1), "pacman");
    // Held against the new budget both.
    let over = |result, run: usize| runs(result)[run]["seconds_over_budget"].as_f64().unwrap();
    assert_eq!((over(&fixed, 0), over(&changed, 1)), (0.0, 0.0));
    assert!(over(&changed, 0) > 3.0, "{}", over(&changed, 0));
}

#[test]
fn the_command_line_goes_before_the_file_and_before_what_contradicts_it() {
    let folder = tempfile::tempdir().unwrap();
    // The maximum would be measured for it, if the command line did not state a rate.
    let text = SMALL.replace("rate = 2000", "pressure = \"1%\"");
    let path = file(folder.path(), &format!("{text}lenient = false\n"));
    let sim = |more: &[&str]| json(&[&["sim", "--experiment", &path, "--json"][..], more].concat());
    let other = sim(&["--policy", "sspc", "--seed", "9", "--rate", "2000"]);
    assert_eq!(other["ssd_budget_watts"], 200.0);
    assert_eq!(runs(&other).len(), 1);
    assert_eq!(
        (runs(&other)[0]["policy"].as_str(), other["seed"].as_u64()),
        (Some("sspc"), Some(9))
    );
    // Which contradicts the pressure of the file.
    assert_eq!(other["pressure"], Value::Null);
    let taken = other["experiment"]["options"].as_object().unwrap();
    assert!(!taken.contains_key("pressure") && taken.contains_key("workload"), "{taken:?}");
    let office = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/office.csv.gz");
    let traced = sim(&["--trace", office.to_str().unwrap(), "--fold"]);
    assert!(traced["workload"].as_str().unwrap().contains("office"), "{}", traced["workload"]);
    // Text for people, too.
    let path = file(folder.path(), SMALL);
    assert!(prints(&["sim", "--experiment", &path, "--quiet"]).contains("pacman"));
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (text, told) in [
        (
            "# x\nprofil = \"e\"\n",
            &["x.toml:2:", "no option 'profil'", "did you mean 'profile'?"][..],
        ),
        ("json = true\n", &["x.toml:1:", "no option 'json'"]),
        ("experiment = \"y\"\n", &["x.toml:1:", "no option 'experiment'"]),
        ("seed = 1\n\nplf = \"much\"\n", &["x.toml:3:", "'much'", "--plf"]),
        ("fold = 3\n", &["x.toml:1:", "'fold' is true or false"]),
        ("seed = { a = 1 }\n", &["x.toml:1:", "'seed' is a text"]),
        ("seed = [1, 2]\n", &["x.toml:1:", "--seed"]),
        ("seed = 1\nseed = 2\n", &["x.toml:2:", "duplicate key"]),
        ("policy = [\"native\"\n", &["x.toml:"]),
        ("change = [\"3 s: seed 2\"]\n", &["x.toml:1:", "'seed' cannot change in a run"]),
        ("policy = [\"pacmann\"]\nworkload = \"rand-rw\"", &["did you mean 'pacman'?"]),
        ("workload = \"rand-rw\"\nduration = \"4 s\"\nchange = [\"5 s: plf 1%\"]", &["--change"]),
    ] {
        let path = file(folder.path(), text);
        let (code, error) = fails(&["sim", "--experiment", &path]);
        assert_eq!(code, 2, "{text}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{text}: {error}");
        for part in told {
            assert!(error.contains(part), "{text}: {error} lacks {part}");
        }
    }
    let (code, error) = fails(&["sim", "--experiment", "no-such.toml"]);
    assert!(code == 2 && error.contains("no-such.toml"), "{error}");
}
