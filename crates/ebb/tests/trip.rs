//! A server that switches itself off for heat under one policy does not end the comparison.

use crate::common::{ebb, path, valid};
use serde_json::Value;

/// Firmware that keeps the fans slow whatever happens, and packages that need more.
const SERVER: &str = r#"
name = "stubborn"
summary = "thermal-1u whose own fan control does nothing"
base = "thermal-1u"
[cpu]
uncore = "260 W"
[thermal.emergency]
trip = "91 C"
[fans]
firmware = [[45.0, 0.2], [80.0, 0.2]]
firmware_drives = [[45.0, 0.2], [65.0, 0.2]]
"#;

fn server(folder: &std::path::Path) -> String {
    let file = path(folder, "server.toml");
    std::fs::write(&file, SERVER).unwrap();
    file
}

#[test]
fn a_trip_is_an_outcome_of_its_policy_and_the_others_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let args = ["sim", "--profile", &server, "--workload", "rand-rw", "--rate", "200 IOPS"];
    let policies = ["--policy", "dlb", "--policy", "native", "--policy", "jetc"];
    let args = [&args[..], &policies, &["--duration", "400 s"]].concat();
    let (rows, page) = (path(folder.path(), "rows.csv"), path(folder.path(), "page"));
    let files = ["--timeseries", &rows, "--report", &page];

    let output = ebb(&[&args[..], &files, &["--json"]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: native: thermal trip: socket "), "{error}");
    assert!(error.contains("airflow") && error.lines().count() == 1, "{error}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("sim-1", &result);
    let [dlb, native, jetc] = &result["runs"].as_array().unwrap()[..] else { unreachable!() };
    for whole in [dlb, jetc] {
        assert!(whole.get("trip").is_none(), "{}", whole["policy"]);
        assert_eq!(whole["seconds"], 400.0);
    }
    let trip = &native["trip"];
    assert!(trip["celsius"].as_f64().unwrap() >= 91.0, "{trip}");
    let (at, end) = (trip["at_s"].as_f64().unwrap(), native["seconds"].as_f64().unwrap());
    assert!(at > 10.0 && (at..at + 0.5).contains(&end) && end < 400.0, "{at} {end}");
    assert_eq!(native["sla_kept"], false, "a server that is off keeps nothing");

    let text = std::fs::read_to_string(rows).unwrap();
    let of = |policy: &str| text.lines().filter(|line| line.starts_with(policy)).count();
    assert_eq!((of("dlb,"), of("native,")), (800, (end * 2.0) as usize));
    let page = std::fs::read_to_string(path(folder.path(), "page/index.html")).unwrap();
    assert!(page.contains("\"trip\":{\"at_s\":"));

    let output = ebb(&args);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["tripped at, s", "native: thermal trip: socket", "cooler"] {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
    let sla = text.lines().find(|line| line.starts_with("mean to SLA limit")).unwrap();
    assert!(sla.contains("tripped") && sla.contains("reference"), "{sla}");
}

#[test]
fn a_first_policy_that_tripped_judges_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let args = ["sim", "--profile", &server, "--workload", "rand-rw", "--rate", "200 IOPS"];
    let args = [&args[..], &["--policy", "native", "--policy", "dlb", "--duration", "400 s"]];
    let args = args.concat();

    let output = ebb(&[&args[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("sim-1", &result);
    let [native, dlb] = &result["runs"].as_array().unwrap()[..] else { unreachable!() };
    assert!(native.get("trip").is_some() && dlb.get("trip").is_none());
    assert!(dlb["latency_us"]["mean"].is_number());
    for run in [native, dlb] {
        for key in ["sla_kept", "sla_limit_us", "sla_excess"] {
            assert!(run[key].is_null(), "{} {key}: {}", run["policy"], run[key]);
        }
    }

    let text = String::from_utf8(ebb(&args).stdout).unwrap();
    let sla = text.lines().find(|line| line.starts_with("mean to SLA limit")).unwrap();
    assert!(sla.contains("tripped") && sla.contains('–'), "{sla}");
    assert!(!text.contains("mean latency at most"), "{text}");
}
