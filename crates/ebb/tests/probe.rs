//! `ebb probe` and `ebb probe wake` on the machine that runs the tests.

use std::fs;

use crate::common::{ebb, fails, json, path, prints, put, valid};

fn two_cpus() -> bool {
    let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if !two {
        println!("skipped: this takes two CPUs");
    }
    two
}

#[test]
fn it_lists_every_strategy_measured_or_with_the_reason() {
    if !two_cpus() {
        return;
    }
    let report = json(&["probe", "wake", "--samples", "20", "--json"]);
    valid("probe-wake-1", &report);
    let ways = report["ways"].as_array().unwrap();
    let names: Vec<_> = ways.iter().map(|way| way["name"].as_str().unwrap()).collect();
    for name in ["umwait-c0.1", "umwait-c0.2", "mwaitx", "wfe", "futex", "spin", "epoll"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for way in ways {
        let reason = way["unavailable"].as_str();
        match way.get("wake") {
            Some(wake) => assert_eq!(wake["samples"], 20),
            None => assert!(reason.is_some_and(|reason| !reason.is_empty())),
        }
    }
    let text = prints(&["probe", "wake", "--samples", "20"]);
    assert!(text.starts_with("Measured on this machine"));
    assert!(text.contains("move of a thread") && text.contains("epoll"));
}

#[test]
fn wrong_cpus_are_wrong_usage() {
    let (code, text) = fails(&["probe", "wake", "--cpus", "0"]);
    assert_eq!(code, 2);
    assert!(text.contains("two different CPUs"), "{text}");
    let (code, text) = fails(&["probe", "wake", "--cpus", "0,9999"]);
    assert_eq!(code, 2);
    assert!(text.contains("cpu 9999"), "{text}");
}

/// Every row of the table, whatever this machine is.
#[test]
fn the_machine_is_said_in_the_terms_of_the_table() {
    let report = json(&["probe", "--json"]);
    valid("probe-1", &report);
    assert!(report["cpus"].as_u64() >= report["cores"].as_u64());
    let names = |list: &str| -> Vec<_> {
        let found = report[list].as_array().unwrap();
        found.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    for row in ebb_policy::table::SIGNALS {
        assert!(names("signals").contains(&row.name.to_owned()), "{}", row.name);
    }
    for control in ebb_policy::Control::ALL {
        assert!(names("controls").contains(&control.row().name.to_owned()), "{control}");
    }
    let text = prints(&["probe"]);
    assert!(text.contains("Nothing was changed") && text.contains("native       could run"));
}

#[test]
fn a_folder_without_a_machine_is_wrong_usage() {
    let (code, text) = fails(&["probe", "--root", "/proc/self"]);
    assert_eq!(code, 2);
    assert!(text.contains("sys/devices/system/cpu/online: not there; --root"), "{text}");
    let (code, _) = fails(&["probe", "--root", "/", "wake"]);
    assert_eq!(code, 2);
}

#[test]
fn a_machine_becomes_a_profile_that_the_twin_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "here.toml");
    let output = ebb(&["probe", "--profile", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let cores = json(&["probe", "--json"])["cores"].as_u64().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let profile: toml::Table = toml::from_str(&text).unwrap();
    let stages = profile["stage"].as_array().unwrap();
    let sum: i64 = stages.iter().map(|stage| stage["cores"].as_integer().unwrap()).sum();
    assert_eq!(sum, cores as i64);
    let sim = ["sim", "--profile", &file, "--workload", "rand-r", "--rate", "100"];
    let told = json(&[&sim[..], &["--duration", "2 s", "--policy", "native", "--json"]].concat());
    assert_eq!(told["runs"][0]["policy"], "native");
    let (code, error) = fails(&["probe", "--measure"]);
    assert!(code == 2 && error.contains("--profile"), "{error}");
}

/// What drivers say of processors: one fixed frequency, idle states that pay as soon as a deeper
/// one, that do not say when, or never.
#[test]
fn whatever_a_processor_says_the_draft_is_a_profile() {
    let root = tempfile::tempdir().unwrap();
    let cpus = root.path().join("sys/devices/system/cpu");
    let put = |file: &str, text: &str| put(&cpus, file, text);
    put("online", "0-3");
    put("cpufreq/policy0/related_cpus", "0 1 2 3");
    for end in ["min", "max"] {
        put(&format!("cpufreq/policy0/cpuinfo_{end}_freq"), "2000000");
    }
    for (number, (name, exit, residency)) in [
        ("POLL", "0", Some("0")),
        ("C1", "1", None),
        ("C1E", "10", Some("40")),
        ("C6", "40", Some("40")),
        ("NEVER", "50", Some("4294967295")),
    ]
    .into_iter()
    .enumerate()
    {
        let put = |file: &str, text| put(&format!("cpu0/cpuidle/state{number}/{file}"), text);
        put("name", name);
        put("latency", exit);
        residency.into_iter().for_each(|residency| put("residency", residency));
    }
    let file = path(root.path(), "here.toml");
    let output = ebb(&["probe", "--root", root.path().to_str().unwrap(), "--profile", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let profile: toml::Table = toml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(profile["cpu"]["frequencies"], toml::Value::from(vec!["2000 MHz"]));
    let states = profile["cpu"]["idle_states"].as_array().unwrap().iter();
    let states: Vec<_> = states
        .map(|state| ["name", "after"].map(|key| state[key].as_str().unwrap()).join(" "))
        .collect();
    assert_eq!(states, ["C1 1 us", "C6 40 us"]);
}

/// A model is not for the terminal to act on.
#[test]
fn what_a_drive_calls_itself_is_escaped() {
    let root = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| put(root.path(), file, text);
    put("sys/devices/system/cpu/online", "0-3");
    put("sys/block/nvme0n1/device/model", "EVIL\u{1b}[31mRED");
    put("sys/block/nvme0n1/device/serial", "1");
    put("sys/block/nvme0n1/queue/rotational", "0");
    put("sys/block/nvme0n1/size", "8");
    put("sys/block/nvme0n1/stat", "1 0 8 1 1 0 8 1 0 2 2");
    let text = prints(&["probe", "--root", root.path().to_str().unwrap()]);
    assert!(text.contains("EVIL\\u{1b}[31mRED") && !text.contains('\u{1b}'), "{text}");
}

/// What is proposed is what the configuration takes, and a card's fan is steered if it is asked
/// for.
#[test]
fn fans_are_proposed_to_be_pasted() {
    let root = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| put(root.path(), file, text);
    put("sys/devices/system/cpu/online", "0-3");
    for (chip, name) in [("hwmon1", "nct6798"), ("hwmon2", "amdgpu")] {
        put(&format!("sys/class/hwmon/{chip}/name"), name);
        put(&format!("sys/class/hwmon/{chip}/pwm1"), "102");
        put(&format!("sys/class/hwmon/{chip}/pwm1_enable"), "2");
        put(&format!("sys/class/hwmon/{chip}/fan1_input"), "900");
        put(&format!("sys/class/hwmon/{chip}/fan1_label"), "Front");
    }
    let folder = root.path().to_str().unwrap();
    let text = prints(&["probe", "--fans", "--root", folder]);
    assert!(text.contains("# 900 rpm at 40 %\n[[machine.fans]]\nchip = \"nct6798\"\n"), "{text}");
    assert!(text.contains("# 900 rpm at 40 %: a graphics card's"), "{text}");
    assert!(text.contains("# [[machine.fans]]\n# chip = \"amdgpu\"\n"), "{text}");
    let keys = ["[[machine.fans]]", "chip", "pwm", "tachometer", "label"];
    let all = keys.iter().fold(text, |text, key| text.replace(&format!("# {key}"), key));
    put("ebb.toml", &all);
    let config = path(root.path(), "ebb.toml");
    let report = json(&["probe", "--json", "--root", folder, "--config", &config]);
    let fans = report["controls"].as_array().unwrap().iter();
    let fans: Vec<_> = fans.filter(|row| row["name"] == "fan_duty").collect();
    assert_eq!(fans.len(), 2);
    assert!(fans.iter().all(|row| row["missing"].is_null()), "{fans:?}");
    let (code, error) = fails(&["probe", "--fans", "--sweep", "--root", folder]);
    assert!(code == 2 && error.contains("--yes"), "{error}");
}

/// One PWM may drive several fans: with more tachometers than PWMs nobody knows which.
#[test]
fn a_wall_of_fans_is_named_by_a_list() {
    let root = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| put(root.path(), file, text);
    put("sys/devices/system/cpu/online", "0-3");
    let chip = "sys/class/hwmon/hwmon1";
    put(&format!("{chip}/name"), "w83795g");
    put(&format!("{chip}/pwm1"), "102");
    put(&format!("{chip}/pwm1_enable"), "2");
    for (fan, rpm) in [(1, "5400"), (2, "5100"), (3, "5300")] {
        put(&format!("{chip}/fan{fan}_input"), rpm);
    }
    let folder = root.path().to_str().unwrap();
    let text = prints(&["probe", "--fans", "--root", folder]);
    assert!(text.contains("# 5400 rpm at 40 %\n# it may drive fan2, fan3 as well"), "{text}");
    let list = "tachometer = [\"fan1\", \"fan2\", \"fan3\"]";
    put("ebb.toml", &text.replace("tachometer = \"fan1\"", list));
    let config = path(root.path(), "ebb.toml");
    let report = json(&["probe", "--json", "--root", folder, "--config", &config]);
    let speeds = report["signals"].as_array().unwrap().iter();
    let speeds: Vec<_> = speeds.filter(|row| row["name"] == "fan_speed").collect();
    assert_eq!(
        (speeds.len(), &speeds[0]["of"], &speeds[0]["value"]),
        (1, &"fan0".into(), &5100.0.into())
    );
    for (wrong, says) in [
        ("[\"fan1\", \"fan1\"]", "fan1 of pwm1 is there twice"),
        ("[\"fan0\"]", "write such as \"fan2\""),
        ("1", "write such as \"fan2\" or [\"fan1\", \"fan2\"]"),
    ] {
        put("ebb.toml", &text.replace("\"fan1\"", wrong));
        let (code, error) = fails(&["config", "check", &config]);
        assert!(code == 2 && error.contains(says), "{error}");
    }
}

/// `isolcpus=`: one number, and why.
#[test]
fn probe_and_run_count_the_same_cores() {
    let root = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| put(root.path(), file, text);
    put("sys/devices/system/cpu/online", "0-7");
    put("sys/devices/system/cpu/isolated", "4-5");
    put("sys/fs/cgroup/cpuset.cpus.effective", "0-6");
    put("proc/stat", "cpu  1 2 3 4 5 6 7 8");
    let folder = root.path().to_str().unwrap();
    let why = "CPUs 4-5 are isolated (isolcpus=), CPU 7 is of a cpuset partition: their cores";
    let text = prints(&["probe", "--root", folder]);
    assert!(text.starts_with("CPUs 8, cores 5, sockets 1."), "{text}");
    assert!(text.contains(&format!("\n{why}")), "{text}");
    let report = json(&["probe", "--json", "--root", folder]);
    valid("probe-1", &report);
    assert_eq!(report["cores"], 5);
    assert!(report["apart"].as_str().unwrap().starts_with(why));
    let run = ["run", "--root", folder, "--policy", "pacer", "--duration", "100 ms"];
    let done = ebb(&run);
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("found 5 cores") && said.contains(why), "{said}");
}
