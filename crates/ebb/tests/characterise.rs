//! `ebb characterise` end to end, and its curve in `ebb sim`.

use crate::common::{fails, json, prints, valid};

mod here;

const SHORT: [&str; 4] = ["--pause", "20 s", "--step", "20%"];

#[test]
fn fans_slow_the_disks_of_the_characterised_server_and_the_curve_says_from_where() {
    let args = [&["characterise"], &SHORT[..], &["--json"]].concat();
    let report = json(&args);
    valid("characterise-1", &report);
    let steps = report["steps"].as_array().unwrap();
    let throughput: Vec<_> = steps.iter().map(|s| s["throughput"].as_f64().unwrap()).collect();
    let (slow, full) = (throughput[0], *throughput.last().unwrap());
    assert!(slow > 0.95 && (0.3..0.5).contains(&full), "{throughput:?}");
    let knee = report["knee"].as_f64().unwrap();
    assert!((0.2..=0.6).contains(&knee), "{knee}");
    assert_eq!(prints(&args), prints(&[&args[..], &["--threads", "1"]].concat()));
}

#[test]
fn a_curve_from_a_file_steers_eadc() {
    let folder = tempfile::tempdir().unwrap();
    let curve = folder.path().join("e6.toml");
    let path = curve.to_str().unwrap();
    prints(&[&["characterise"], &SHORT[..], &["--out", path]].concat());
    let run = ["sim", "--profile", "eadc-e6", "--workload", "eadc-io", "--policy", "eadc"];
    let with = prints(&[&run[..], &["--duration", "5 s", "--curve", path]].concat());
    let without = prints(&[&run[..], &["--duration", "5 s"]].concat());
    assert!(without.contains("Note: eadc was given no --curve") && !with.contains("Note:"));
    let (code, error) =
        fails(&[&run[..], &["--duration", "5 s", "--curve", "no-such.toml"]].concat());
    assert!(code == 2 && error.contains("no-such.toml"), "{error}");
}

#[test]
fn a_server_without_fans_is_refused_with_what_to_do() {
    let (code, error) = fails(&["characterise", "--profile", "asg-1115s"]);
    assert!(code == 2 && error.contains("has no [fans]"), "{error}");
}

/// `eadc-e6` as a file with texts replaced.
fn changed(folder: &std::path::Path, changes: &[(&str, &str)]) -> String {
    let base = "base = \"eadc-e6\"\nname = \"hot\"\nsummary = \"a hot one\"\n".to_owned();
    let text = changes.iter().fold(base, |text, (table, key)| format!("{text}[{table}]\n{key}\n"));
    let path = folder.join("hot.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_duty_that_the_guard_does_not_leave_in_force_is_no_point_of_the_curve() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("curve.toml");
    let hot = [
        ("thermal", "inlet = \"58 C\""),
        ("thermal.drive", "start = \"58 C\""),
        ("thermal.socket", "start = \"91 C\""),
    ];
    let hot = changed(folder.path(), &[&hot[..], &[("cpu", "uncore = \"120 W\"")]].concat());
    let sweep =
        ["characterise", "--profile", &hot, "--step", "40%", "--out", out.to_str().unwrap()];
    let (code, error) = fails(&sweep);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("profile 'hot', fans at 20 %") && error.contains("in force on average"),
        "{error}"
    );
    assert!(error.contains("(guard:") && error.contains("cooler inlet"), "{error}");
    assert!(!out.exists());
}

#[test]
fn fans_that_slow_down_for_too_long_are_told_from_heat() {
    let folder = tempfile::tempdir().unwrap();
    let fast = "firmware = [[20.0, 1.0]]\ninertia = \"0.1 s\"";
    let fast = changed(folder.path(), &[("fans", fast)]);
    let sweep = ["characterise", "--profile", &fast, "--step", "40%", "--pause"];
    let (code, error) = fails(&[&sweep[..], &["4 s"]].concat());
    assert!(code == 2 && error.contains("guard:fan-rate"), "{error}");
    assert!(error.contains("longer --pause"), "{error}");
    prints(&[&sweep[..], &["40 s"]].concat());
}

#[test]
fn nonsense_is_refused_with_the_option_it_is_in() {
    for (option, value) in
        [("--step", "0"), ("--step", "90%"), ("--pause", "0 s"), ("--pause", "8 s")]
    {
        let (code, error) = fails(&["characterise", option, value]);
        assert!(code == 2 && error.contains(option), "{error}");
    }
}
