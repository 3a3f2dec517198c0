//! What `ebb sim` tells of a year, and when: the same however long the run is, or nothing.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{json, path, prints};

/// A load by the clock that is on and off by turns.
fn in_turns(folder: &Path, rate: &str, [on, off, floor, spread]: [&str; 4]) -> String {
    let file = path(folder, "turns.toml");
    let text = format!(
        "name = 'turns'\n[[arrivals]]\nname = 'a'\nrate = '{rate}'\ngaps = 'exponential'\n\
         streams = 8\naccess = {{ block = '8 KiB', read = 0.7 }}\n[arrivals.shape.on-off]\n\
         on = '{on}'\noff = '{off}'\nfloor = '{floor}'\nspread = '{spread}'"
    );
    fs::write(&file, text).unwrap();
    file
}

/// A polled server of two cores whose schedulers look ten times a second.
fn small_polled(folder: &Path, cores: u32) -> String {
    let file = path(folder, "polled.toml");
    let text = format!(
        "name = 'small'\nsummary = ''\nbase = 'all-flash'\nphysical_cores = {cores}\n\
         threads = 8\ncoarse = '100 ms'"
    );
    fs::write(&file, text).unwrap();
    file
}

fn verdict(args: &[&str], duration: &str) -> Value {
    json(&[args, &["--json", "--duration", duration]].concat())["verdicts"][0].clone()
}

/// The figures of runs of these lengths, W; each is near all others, or there is none.
fn told(args: &[&str], durations: &[&str]) -> Vec<f64> {
    let figure = |duration: &&str| {
        let verdict = verdict(args, duration);
        let year = verdict["saved_kwh_per_year"].as_f64()?;
        let (watts, share) =
            (verdict["saved_watts"].as_f64().unwrap(), verdict["saved_share"].as_f64().unwrap());
        assert!((year - 8.76 * watts).abs() < 1e-6, "{verdict}");
        Some((watts, 0.005 * (watts / share).abs()))
    };
    let found: Vec<_> = durations.iter().filter_map(figure).collect();
    for ((a, near), (b, _)) in found.iter().flat_map(|a| found.iter().map(move |b| (a, b))) {
        assert!((a - b).abs() <= (0.05 * a.abs()).max(*near), "{args:?}: {found:?}");
    }
    found.into_iter().map(|(watts, _)| watts).collect()
}

/// Follows the hint of a run of this length: then it is told, or the reason is another.
fn followed(args: &[&str], duration: &str) {
    let why = |duration: &str| verdict(args, duration)["unsettled"].as_str().map(str::to_owned);
    let first = why(duration).unwrap();
    let hint = first.rsplit("--duration ").next().unwrap().strip_suffix(" shows it").unwrap();
    assert_eq!(why(hint), None, "{args:?} for {duration}: {first}");
}

#[test]
fn no_policy_settles_at_once() {
    let load = ["sim", "--profile", "dorado-6000", "--workload", "poisson", "--rate", "5k"];
    for policy in ["constant(ghz=0.8, cores=0.1)", "ondemand"] {
        let args = [&load[..], &["--policy", "native", "--policy", policy]].concat();
        assert_eq!(told(&args, &["0.5s", "1s", "2s", "10s", "20s"]).len(), 2, "{policy}");
        followed(&args, "1s");
    }
}

#[test]
fn a_load_in_turns_is_counted_in_whole_ones() {
    let folder = tempfile::tempdir().unwrap();
    for spread in ["0%", "30%"] {
        let load = in_turns(folder.path(), "60k", ["4 s", "16 s", "2%", spread]);
        let args = ["sim", "--profile", "dorado-6000", "--workload", &load];
        let args = [&args[..], &["--policy", "native", "--policy", "ondemand"]].concat();
        let told = told(&args, &["3s", "10s", "24s", "61s", "101s"]);
        assert!((1..=3).contains(&told.len()), "{spread}: {told:?}");
        followed(&args, "10s");
    }
}

/// Of a trace nobody knows the turns: its parts tell whether there are any.
#[test]
fn a_trace_that_changes_amid_tells_nothing_of_a_year() {
    let folder = tempfile::tempdir().unwrap();
    let trace = path(folder.path(), "falls.csv");
    let mut rows = String::from("at_ns,op,offset,bytes,device,stream,latency_ns\n");
    let gaps = [(0..5_000_000_000_u64, 25_000), (5_000_000_000..10_000_000_000, 10_000_000)];
    for (span, gap) in gaps {
        for at in span.step_by(gap) {
            rows.push_str(&format!("{at},R,{},8192,0,{},\n", at % 1_000_000 * 4096, at % 16));
        }
    }
    fs::write(&trace, rows).unwrap();
    let server = ["sim", "--profile", "generic-1u", "--trace", &trace, "--fold", "--json"];
    let policies = ["--policy", "native", "--policy", "ondemand"];
    let verdict = json(&[&server[..], &policies].concat())["verdicts"][0].clone();
    let why = verdict["unsettled"].as_str().unwrap_or_default();
    assert!(why.contains("differs from part to part"), "{verdict}");
}

/// Played again and again it comes round, and whole rounds of it are alike.
#[test]
fn a_short_trace_that_is_played_again_is_counted_in_whole_rounds() {
    let office = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/office.csv.gz");
    let server = ["sim", "--profile", "generic-1u", "--trace", office, "--fold", "--to", "2 s"];
    let policies = ["--policy", "native", "--policy", "ondemand", "--loop", "--json"];
    let result = json(&[&server[..], &policies].concat());
    let seconds = result["runs"][1]["seconds"].as_f64().unwrap();
    assert!((4.0..=6.5).contains(&seconds), "{seconds}");
    assert!(result["verdicts"][0]["saved_kwh_per_year"].is_number(), "{}", result["verdicts"][0]);
}

/// A scheduler that learns of bursts saves at first what it then gives up.
#[test]
fn what_a_polled_server_saves_at_first_is_told_for_no_year() {
    let folder = tempfile::tempdir().unwrap();
    let server = small_polled(folder.path(), 2);
    let load = in_turns(folder.path(), "250k", ["1 ms", "49 ms", "1%", "0%"]);
    let args = ["sim", "--profile", &server, "--workload", &load, "--seed", "3"];
    let args = [&args[..], &["--policy", "static", "--policy", "sandman-plus"]].concat();
    let early = verdict(&args, "8s");
    assert!(early["saved_share"].as_f64().unwrap() > 0.02, "{early}");
    let told = told(&args, &["4s", "8s", "20s", "60s", "120s"]);
    assert_eq!(told.len(), 2, "{told:?}");
    followed(&args, "8s");
}

#[test]
fn an_overloaded_polled_server_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = small_polled(folder.path(), 1);
    let load = ["sim", "--profile", &server, "--workload", "poisson", "--rate", "900k"];
    let more = ["--duration", "6 s", "--policy", "static", "--policy", "hybrid", "--json"];
    let found = json(&[&load[..], &more].concat());
    let notes = found["notes"].to_string();
    assert!(notes.contains("under static the server fell behind"), "{notes}");
    let verdict = &found["verdicts"][0];
    assert_eq!(verdict["saved_kwh_per_year"], Value::Null, "{verdict}");
    let why = verdict["unsettled"].as_str().unwrap();
    assert!(why.contains("more comes than is served"), "{why}");
}

/// More of a load that is more than the server serves shows nothing else, so no option is named.
#[test]
fn an_overload_leads_to_no_longer_run() {
    let load = ["sim", "--profile", "cm5-nvme", "--workload", "poisson", "--rate", "200k"];
    for length in ["3 s", "30 s"] {
        let more = ["--duration", length, "--policy", "native", "--policy", "pacer", "--json"];
        let found = json(&[&load[..], &more].concat());
        let why = found["verdicts"][0]["unsettled"].as_str().unwrap();
        assert!(why.contains("more comes than is served"), "{length}: {why}");
        assert!(!why.contains("--duration"), "{length}: {why}");
    }
}

#[test]
fn a_policy_without_a_lever_says_so_and_more_load_is_not_advised() {
    for (server, policy, says) in [
        ("hp-mbwu", "pacer-plus", "idle ones draw what parked ones do"),
        ("rocksdb-2288h", "pacer-plus", "they have one frequency"),
        ("silver-980pro", "pacer-plus", "none of them can be parked"),
        ("silver-980pro", "constant(ghz=1)", "has no effect on silver-980pro's cores"),
        ("silver-980pro", "ondemand", "has no effect on silver-980pro's cores"),
        ("pc-i5-4460", "apst", "has no effect on pc-i5-4460's drives: none has an idle state"),
    ] {
        let load = ["sim", "--profile", server, "--workload", "poisson", "--rate", "20"];
        let more = ["--duration", "12 s", "--policy", "native", "--policy", policy];
        let text = prints(&[&load[..], &more].concat()).replace("\n  ", " ");
        assert!(text.contains(says) && !text.contains("--pressure 30%"), "{server}: {text}");
    }
    let load = ["sim", "--profile", "generic-1u", "--workload", "poisson", "--rate", "20"];
    let more = ["--duration", "12 s", "--policy", "native", "--policy", "constant(ghz=1)"];
    let text = prints(&[&load[..], &more].concat());
    assert!(!text.contains("has no effect") && text.contains("--pressure 30%"), "{text}");
}

#[test]
fn a_job_whose_threads_are_too_few_is_told() {
    let load = ["sim", "--profile", "dorado-6000", "--workload", "rand-rw", "--jobs", "1"];
    let text = prints(&[&load[..], &["--rate", "10k", "--duration", "2 s"]].concat());
    let text = text.replace("\n  ", " ");
    assert!(text.contains("the job's threads are the limit"), "{text}");
    assert!(!text.contains("server fell behind"), "{text}");
}
