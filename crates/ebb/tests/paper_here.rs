//! `ebb paper sandman --here` end to end, for moments: its shape, not how fast anything is.

use crate::common::{fails, json, path, prints, small_trace, valid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

const SCHEDULERS: [&str; 6] =
    ["static", "interrupt", "dynamic", "hybrid", "sandman", "sandman-plus"];
const MOMENT: [&str; 7] = ["paper", "sandman", "--here", "--rounds", "1", "--duration", "100 ms"];

/// Whether there is a CPU for the target and one for the load.
fn two_cpus() -> bool {
    let enough = sched_getaffinity(None).unwrap().count() >= 2;
    if !enough {
        println!("skipped: this takes two CPUs");
    }
    enough
}

fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().unwrap()
}

fn number(value: &Value, name: &str) -> f64 {
    value.pointer(name).and_then(Value::as_f64).unwrap()
}

#[test]
fn every_scheduler_is_measured_at_every_load() {
    if !two_cpus() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let nothing = path(folder.path(), "no-powercap");
    let of = ["--figure", "idle", "--figure", "bursts", "--figure", "cloud"];
    let more = ["--trace", &trace, "--powercap", &nothing, "--json"];
    let report = json(&[&MOMENT[..], &of, &more].concat());
    valid("paper-here-1", &report);
    let loads = ["connected", "all requests", "first 10 ms of bursts", "small.csv"];
    let mut expected = Vec::new();
    for load in loads {
        expected.extend(SCHEDULERS.map(|scheduler| (load, scheduler)));
    }
    let name = |row: &'_ Value, name: &str| row[name].as_str().unwrap().to_owned();
    let found: Vec<_> =
        rows(&report).iter().map(|row| (name(row, "load"), name(row, "scheduler"))).collect();
    assert!(found.iter().map(|(load, by)| (&**load, &**by)).eq(expected), "{found:?}");
    for row in rows(&report) {
        assert_eq!(
            (&row["kind"], &row["energy_source"]),
            (&"measured here".into(), &"modelled".into())
        );
        let share = |state: &str| number(row, &format!("/cores/{state}"));
        let asleep = share("dozing") + share("blocked") + share("napping");
        let all = share("busy") + share("wasted") + asleep;
        // On a machine that stalls no core may tell anything in its time.
        assert!((all - 1.0).abs() < 1e-6 || all == 0.0, "{row}");
        let (idle, by) = (row["load"] == "connected", row["scheduler"].as_str().unwrap());
        // On a machine that stalls a load may do nothing in its time; then it must say so.
        let of_all = !row["load"].as_str().unwrap().starts_with("first 10 ms");
        assert_eq!(row["iops"].is_null(), idle || !of_all, "{row}");
        if of_all {
            assert_eq!(row["latency_us"].is_null(), row["iops"].as_f64().unwrap_or(0.0) == 0.0);
        }
        if !row["latency_us"].is_null() {
            let [p50, p99, p999] =
                ["p50", "p99", "p99.9"].map(|p| number(row, &format!("/latency_us/{p}")));
            assert!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{row}");
        }
        match by {
            "static" => {
                assert_eq!(asleep, 0.0, "{row}");
                // Cores that told nothing have no power either.
                if let Some(power) = row.pointer("/over_static/power").and_then(Value::as_f64) {
                    assert_eq!(power, 1.0, "against itself");
                }
            }
            "interrupt" if idle => assert!(share("blocked") > 0.0, "{row}"),
            _ => {}
        }
    }
}

#[test]
fn raid_5_is_read_and_written_and_energy_is_measured_where_it_can_be() {
    if !two_cpus() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let zone = folder.path().join("intel-rapl:0");
    std::fs::create_dir(&zone).unwrap();
    for (file, text) in
        [("name", "package-0"), ("energy_uj", "1000"), ("max_energy_range_uj", "9999")]
    {
        std::fs::write(zone.join(file), text).unwrap();
    }
    let powercap = folder.path().to_str().unwrap();
    let text = prints(&[&MOMENT[..], &["--figure", "raid-5", "--powercap", powercap]].concat());
    for words in ["MEASURED HERE", "50 % of the maximum (measured here)", "MEASURED by RAPL"] {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
    for words in ["calibrated", "as stated", "MODELLED"] {
        assert!(!text.contains(words), "'{words}' is in:\n{text}");
    }
}

#[test]
fn one_cpu_is_refused_and_so_is_nonsense() {
    let first = {
        let allowed = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap()
    };
    let (code, error) = std::thread::spawn(move || {
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one).unwrap();
        fails(&["paper", "sandman", "--here"])
    })
    .join()
    .unwrap();
    assert_eq!(code, 2);
    assert!(error.contains("two CPUs") && error.contains("in the twin"), "{error}");
    let here = |more: &[&str]| fails(&[&["paper", "sandman", "--here"], more].concat());
    for (more, words) in [
        (&["--duration", "1 ms"][..], "at least 50 ms"),
        (&["--figure", "power"], "choose from: bursts, cloud, idle, raid-5, stable"),
        (&["--threads", "2"], "--cores"),
        (&["--trace", "/nowhere", "--figure", "cloud", "--duration", "50 ms"], "/nowhere"),
    ] {
        if more.contains(&"--trace") && !two_cpus() {
            continue;
        }
        let (code, error) = here(more);
        assert_eq!(code, 2, "{more:?}: {error}");
        assert!(error.contains(words), "{more:?}: {error}");
    }
    let (code, error) = fails(&["paper", "pacer", "--here"]);
    assert!(code == 2 && error.contains("sandman"), "{error}");
    let (code, error) = fails(&["paper", "sandman", "--rounds", "2"]);
    assert!(code == 2 && error.contains("--here"), "{error}");
}
