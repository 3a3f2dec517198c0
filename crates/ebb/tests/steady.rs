//! What `ebb sim` counts, and when it tells a figure for a year.

use serde_json::Value;

use crate::common::{json, valid};

fn pacer(more: &[&str]) -> Value {
    let server = ["sim", "--profile", "generic-1u", "--policy", "native", "--policy", "pacer"];
    json(&[&server[..], more, &["--json"]].concat())
}

fn generated(more: &[&str]) -> Value {
    pacer(&[&["--workload", "rand-rw", "--rate", "600 IOPS"], more].concat())
}

/// A year's figure does not follow the length of the run: it is the same, or there is none.
#[test]
fn a_figure_for_a_year_is_the_same_however_long_the_run_is() {
    let mut told = Vec::new();
    for (duration, warmup) in [(6.0, 0.0), (60.0, 28.0), (148.0, 28.0), (290.0, 50.0)] {
        let result = generated(&["--duration", &format!("{duration} s")]);
        valid("sim-1", &result);
        assert_eq!(result["warmup_seconds"], warmup);
        let (verdict, run) = (&result["verdicts"][0], &result["runs"][1]);
        assert_eq!(run["startup_watts"].is_number(), warmup > 0.0);
        match verdict["saved_kwh_per_year"].as_f64() {
            Some(kwh) => told.push(kwh),
            None => {
                let why = verdict["unsettled"].as_str().unwrap();
                assert!(why.contains("up to 28 s to settle"), "{why}");
                assert!(why.contains("--duration 148s shows it"), "{why}");
                assert!(!verdict["text"].as_str().unwrap().contains("kWh"), "{verdict}");
            }
        }
    }
    assert_eq!(told.len(), 2, "of the runs that are long enough: {told:?}");
    assert!((told[0] / told[1] - 1.0).abs() < 0.01, "{told:?}");
    // What is stated counts; from the start it is no year's.
    let start = generated(&["--duration", "150 s", "--warmup", "0s"]);
    assert_eq!(start["warmup_seconds"], 0.0);
    assert_eq!(start["verdicts"][0]["saved_kwh_per_year"], Value::Null);
}

#[test]
fn a_trace_that_is_too_short_is_played_again() {
    let office = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/office.csv.gz");
    let trace = ["--trace", office, "--fold"];
    let once = pacer(&trace);
    let why = once["verdicts"][0]["unsettled"].as_str().unwrap();
    assert!(why.ends_with("--loop shows it"), "{why}");
    let again = pacer(&[&trace[..], &["--loop"]].concat());
    assert_eq!(again["warmup_seconds"].as_f64(), Some(28.0));
    let counted = again["runs"][1]["seconds"].as_f64().unwrap();
    assert!((counted - 120.0).abs() < 0.01, "{counted}");
    let rate = |result: &Value| result["runs"][0]["iops"].as_f64().unwrap();
    assert!((rate(&again) / rate(&once) - 1.0).abs() < 0.02, "{} {}", rate(&again), rate(&once));
    assert!(again["verdicts"][0]["saved_kwh_per_year"].is_number(), "{again}");
    // What is stated stays, and what is missing is told.
    let lacks = |more: &[&str]| {
        let result = pacer(&[&trace[..], more].concat());
        result["verdicts"][0]["unsettled"].as_str().unwrap_or_default().to_owned()
    };
    assert!(lacks(&["--duration", "20 s"]).ends_with("; --loop --duration 148s shows it"));
    assert!(lacks(&["--loop", "--warmup", "0s"]).ends_with("; no --warmup shows it"));
    assert_eq!(lacks(&["--loop", "--warmup", "200 s"]), "", "it is played for longer");
    // Of policies that settle within seconds, once is enough.
    let server = ["sim", "--profile", "generic-1u", "--policy", "native", "--loop", "--json"];
    let constant = json(&[&server[..], &["--policy", "constant(cores=0.5)"], &trace].concat());
    assert_eq!((&constant["warmup_seconds"], &once["warmup_seconds"]), (&5.0.into(), &0.0.into()));
    let counted = [&constant, &once].map(|all| all["runs"][0]["requests"].as_f64().unwrap());
    assert!(counted[0] < counted[1], "{counted:?}");
    assert!(constant["verdicts"][0]["saved_kwh_per_year"].is_number(), "{constant}");
}

/// What the hint says is what shows it: the same rule finds it and decides.
#[test]
fn a_hint_that_is_followed_is_not_given_again() {
    for (policy, rate, start) in [
        ("pacer-plus", "600 IOPS", "--duration 30s"),
        ("pacer-plus", "600 IOPS", "--duration 150s"),
        ("pacer-plus", "20 IOPS", "--duration 60s"),
        ("pacer", "20 IOPS", "--duration 100s --warmup 5s"),
        ("pacer", "20 IOPS", "--duration 20s --warmup 0s"),
    ] {
        let told = |options: &str| {
            let server = ["sim", "--profile", "generic-1u", "--workload", "rand-rw", "--json"];
            let policies = ["--policy", "native", "--policy", policy, "--rate", rate];
            let options: Vec<&str> = options.split(' ').collect();
            let result = json(&[&server[..], &policies, &options].concat());
            let why = result["verdicts"][0]["unsettled"].as_str().unwrap_or_default().to_owned();
            why.contains("to settle").then_some(why)
        };
        let Some(why) = told(start) else { continue };
        let hint = why.rsplit("; ").next().unwrap().strip_suffix(" shows it").unwrap();
        let followed = match (hint, start.split_once(" --warmup")) {
            ("no --warmup", Some((duration, _))) => duration,
            (hint, _) => hint.trim_end_matches(" without --warmup"),
        };
        assert_eq!(told(followed), None, "{policy} at {rate}: {why}");
    }
}

/// What is overloaded draws and serves the same whatever is left out, and has no figure for a year.
#[test]
fn a_backlog_does_not_change_what_a_request_takes() {
    let told = |warmup| {
        let server = ["sim", "--profile", "generic-1u", "--workload", "rand-rw", "--json"];
        let load = ["--rate", "3M IOPS", "--duration", "3s", "--warmup", warmup];
        let policies = ["--policy", "native", "--policy", "constant(cores=0.5)"];
        let result = json(&[&server[..], &load, &policies].concat());
        let (run, verdict) = (&result["runs"][0], &result["verdicts"][0]);
        assert_eq!(verdict["saved_kwh_per_year"], Value::Null, "{verdict}");
        let number = |value: &Value| value.as_f64().unwrap();
        [number(&run["iops_per_watt"]), number(&verdict["energy_per_request_change"]) + 1.0]
    };
    let (all, later) = (told("0s"), told("2s"));
    for (all, later) in all.iter().zip(later) {
        assert!((later / all - 1.0).abs() < 0.05, "{later} and {all}");
    }
}
