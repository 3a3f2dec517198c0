//! Classes of jobs on the backup server, whole command: in air too hot for its fans the critical
//! class keeps its promise, and lower ones wait.

use crate::common::{json, prints, valid};
use serde_json::Value;

/// The backup server in the hottest air that ASHRAE's class A4 allows, two of seven fans taken out.
const SERVER: &str = r#"
name = "backup-hot"
summary = "backup-36 in air of 45 C with five of its seven fans"
base = "backup-36"
[thermal]
inlet = "45 C"
[thermal.socket]
start = "60 C"
[thermal.drive]
start = "50 C"
[fans]
count = 5
"#;

/// What `ebb characterise` finds for it, rounded.
const CURVE: &str = r#"
source = "simulated: ebb characterise --profile backup-hot.toml"
points = [
  [0.2, 1.0], [0.4, 1.0], [0.5, 0.998], [0.6, 0.983], [0.7, 0.928], [0.8, 0.825], [0.9, 0.685],
  [1.0, 0.534],
]
"#;

/// Cores that compute for ten minutes; into that come restores of each class.
fn workload() -> String {
    let mut text = r#"
name = "restores"
[[batch]]
name = "index"
class = "noncritical"
instances = 24
cpu = "10 min"
objective = "7 d"
"#
    .to_owned();
    // The recovery times of EADC Table I.
    let classes =
        [("critical", "30 min"), ("vital", "2 h"), ("sensitive", "24 h"), ("noncritical", "7 d")];
    for (class, objective) in classes {
        text += &format!(
            "[[batch]]\nname = \"restore-{class}\"\nclass = \"{class}\"\nstart = \"150 s\"\n\
             cpu = \"60 s\"\nactivity = 0.7\nobjective = \"{objective}\"\n\
             io = {{ read = \"60 GB\", request = \"1 MiB\", depth = 16 }}\n"
        );
    }
    text
}

/// The restore of `class` in a run.
fn restore<'a>(run: &'a Value, class: &str) -> &'a Value {
    let jobs = run["jobs"].as_array().unwrap();
    jobs.iter().find(|job| job["name"] == format!("restore-{class}")).unwrap()
}

#[test]
fn in_hot_air_critical_restores_come_first_and_every_promise_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let server = file("server.toml", SERVER);
    let (curve, work) = (file("curve.toml", CURVE), file("work.toml", &workload()));
    let args = ["sim", "--profile", &server, "--workload", &work, "--curve", &curve];
    let policies = ["--policy", "dlb", "--policy", "eadc", "--duration", "1300 s"];
    let result = json(&[&args[..], &policies, &["--json"]].concat());
    valid("sim-1", &result);
    let (dlb, eadc) = (&result["runs"][0], &result["runs"][1]);
    let seconds = |run, class, what: &str| restore(run, class)[what].as_f64().unwrap();
    for class in ["critical", "vital", "sensitive", "noncritical"] {
        assert_eq!(restore(eadc, class)["met"], true, "{class}");
        assert_eq!(seconds(dlb, class, "admission_seconds"), 0.0, "{class}");
    }
    for class in ["critical", "vital"] {
        assert_eq!(seconds(eadc, class, "admission_seconds"), 0.0, "{class}");
        let (default, aware) =
            (seconds(dlb, class, "delay_seconds"), seconds(eadc, class, "delay_seconds"));
        assert!(aware <= default, "{class}: {aware} s, under dlb {default} s");
    }
    for class in ["sensitive", "noncritical"] {
        assert!(seconds(eadc, class, "admission_seconds") > 30.0, "{class} does not wait");
    }
    let classes = eadc["classes"].as_array().unwrap();
    assert!(classes.iter().all(|class| class["missed"] == 0), "{classes:?}");

    let table = prints(&[&args[..], &policies[2..]].concat());
    for row in ["critical in time", "sensitive let in after, s", "noncritical delay, s"] {
        assert!(table.contains(row), "{row}: {table}");
    }
}

#[test]
fn without_the_thermal_guard_a_policy_meets_the_hardware_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [server, load] = ["server.toml", "load.toml"].map(|name| {
        let path = folder.path().join(name);
        path.to_str().unwrap().to_owned()
    });
    std::fs::write(&server, SERVER).unwrap();
    let batch = |name: &str, instances: u32, cpu: u32| {
        format!("[[batch]]\nname = \"{name}\"\ninstances = {instances}\ncpu = \"{cpu} s\"\n")
    };
    std::fs::write(
        &load,
        format!("name = \"hot\"\n{}{}", batch("short", 1, 20), batch("long", 30, 90)),
    )
    .unwrap();
    let still = "fixed-fans(duty=0.2)";
    let args =
        ["sim", "--profile", &server, "--workload", &load, "--policy", still, "--quiet", "--json"];
    let guarded = json(&args);
    let alone = json(&[&args[..], &["--no-thermal-guard"]].concat());
    valid("sim-1", &alone);
    assert_eq!((&guarded["thermal_guard"], &alone["thermal_guard"]), (&Value::Null, &false.into()));
    assert!(alone["notes"].to_string().contains("--no-thermal-guard"));
    let run = |result: &Value| result["runs"][0].clone();
    let duty = |result: &Value| run(result)["thermal"]["mean_fan_duty"].as_f64().unwrap();
    assert!(duty(&alone) < 0.21 && duty(&guarded) > 0.25, "{} {}", duty(&alone), duty(&guarded));
    // What the server drew by each job's end: of the last one, all of it.
    let jobs = run(&alone)["jobs"].as_array().unwrap().clone();
    let by = |job: &Value| job["energy_joules"].as_f64().unwrap();
    let total = run(&alone)["energy_joules"]["total"].as_f64().unwrap();
    let last = jobs.iter().map(by).fold(0.0, f64::max);
    assert!((last / total - 1.0).abs() < 1e-9, "{last} of {total}");
    let (short, seconds) = (&jobs[0], run(&alone)["seconds"].as_f64().unwrap());
    let share = short["delay_seconds"].as_f64().unwrap() / seconds;
    assert!((by(short) / total / share - 1.0).abs() < 0.2, "{} of {total}, {share}", by(short));
}
