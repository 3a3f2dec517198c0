//! What a run records is decided again by `ebb sim --recorded`, bit for bit.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ebb_policy::registry::{self, Settings};
use ebb_policy::units::{Bytes, Hertz, Nanos};
use ebb_policy::{
    Applied, CoreRole, Cycle, GroupSpec, InForce, Limits, PERIOD, Plant, Signals, Topology,
};
use ebb_record::recording::{Begun, Header, Made, Writer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Copy, ends, kill_both, str, worker};
use crate::common::{ebb, fails, json, path, prints, valid};

/// A machine, a recording of it and ten cycles a second.
struct Bench {
    copy: Copy,
    record: String,
    config: String,
}

impl Bench {
    fn new(config: &str) -> Self {
        let copy = Copy::new();
        let [record, file] = ["record", "ebb.toml"].map(|name| path(copy.folder.path(), name));
        fs::write(&file, format!("period = \"100 ms\"\n{config}")).unwrap();
        Self { copy, record, config: file }
    }

    fn options<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["--config", &self.config, "--record", &self.record], more].concat()
    }

    fn again(&self) -> Value {
        let again = json(&["sim", "--recorded", &self.record, "--json"]);
        valid("recorded-1", &again);
        again
    }

    fn files(&self) -> Vec<std::path::PathBuf> {
        let mut all: Vec<_> =
            fs::read_dir(&self.record).unwrap().map(|file| file.unwrap().path()).collect();
        all.sort();
        all
    }
}

fn is_all_same(again: &Value, at_least: u64) {
    let of = |key: &str| again[key].as_u64().unwrap();
    assert!(of("same") >= at_least, "{again:#}");
    assert_eq!(of("same"), of("cycles"), "{again:#}");
    assert_eq!((of("gaps"), of("unreadable")), (0, 0), "{again:#}");
}

/// Fans that leave and come back, a new one for which the run begins anew, orders that end by
/// themselves, a pause, a configuration that is read again.
#[test]
fn a_run_with_orders_and_parts_that_change_is_decided_again_alike() {
    let bench = Bench::new("");
    let socket = path(bench.copy.folder.path(), "run.sock");
    let child = bench.copy.start(&bench.options(&["--control", &socket]));
    let ctl = |args: &[&str]| {
        let begun = Instant::now();
        let args = [&["ctl", "--socket", &socket], args].concat();
        while ebb(&args).status.code() != Some(0) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{args:?}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    ctl(&["tolerance", "set", "50%", "--for", "1 s"]);
    ctl(&["policy", "set", "eadc(cap_gain=0.02)"]);
    let hwmon = bench.copy.folder.path().join("root/sys/class/hwmon");
    let away = bench.copy.folder.path().join("away");
    fs::rename(hwmon.join("hwmon3"), &away).unwrap();
    thread::sleep(Duration::from_millis(600));
    fs::rename(&away, hwmon.join("hwmon3")).unwrap();
    bench.copy.put("sys/class/hwmon/hwmon0/temp1_input", 91_000);
    ctl(&["pause"]);
    ctl(&["resume"]);
    fs::write(&bench.config, "period = \"100 ms\"\nplf = \"30%\"").unwrap();
    kill_process(worker(&child), Signal::HUP).unwrap();
    for (file, text) in
        [("name", "nct6683"), ("pwm1", "90"), ("pwm1_enable", "2"), ("fan1_input", "4000")]
    {
        bench.copy.put(&format!("sys/class/hwmon/hwmon7/{file}"), text);
    }
    let begun = Instant::now();
    while bench.copy.get("sys/class/hwmon/hwmon7/pwm1_enable").trim() != "1" {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let (code, told) = ends(child);
    assert_eq!(code, Some(0), "{told}");
    // Another run goes on in the same folder, with cores.
    let more = ["run", "--policy", "pacer-plus", "--duration", "1 s", "--quiet"];
    prints_or_notes(&bench.copy.args(&[&more[..], &bench.options(&[])].concat()));
    let again = bench.again();
    is_all_same(&again, 30);
    assert_eq!(again["runs"], 5, "start, pause, resume, new fan, another run: {again:#}");
    let policies = again["policies"].as_array().unwrap();
    assert!(policies.contains(&"eadc".into()) && policies.contains(&"eadc(cap_gain=0.02)".into()));
    // No latency shows its cores on this machine: it runs with a bound.
    assert!(policies.contains(&"pacer-plus(max_utilisation=0.45)".into()), "{again:#}");
    assert_eq!(bench.files().len(), 2);
    let text = prints(&["sim", "--recorded", &bench.record]);
    assert!(text.contains("cycles are the same, bit for bit."), "{text}");
}

fn prints_or_notes(args: &[String]) {
    let done = ebb(&str(args));
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{told}");
}

/// Drives that leave and come back under another name, watched only.
#[test]
fn drives_that_leave_are_decided_again_alike() {
    let bench = Bench::new("ssd_budget = \"60 W\"");
    let copy = &bench.copy;
    copy.add_disk();
    let args = ["run", "--policy", "pacer+pacman+eadc", "--duration", "4 s", "--quiet"];
    let args = copy.args(&[&args[..], &bench.options(&[])].concat());
    let mut child = Command::new(env!("CARGO_BIN_EXE_ebb")).args(args).spawn().unwrap();
    let blocks = copy.folder.path().join("root/sys/block");
    for round in 0..3 {
        thread::sleep(Duration::from_millis(400));
        fs::rename(blocks.join("sdb"), copy.folder.path().join("sdb")).unwrap();
        copy.disks(&["sda"], 2 + 90 * round);
        thread::sleep(Duration::from_millis(400));
        fs::rename(copy.folder.path().join("sdb"), blocks.join("sdb")).unwrap();
        copy.disks(&["sda", "sdb"], 60 + 90 * round);
    }
    assert!(child.wait().unwrap().success());
    is_all_same(&bench.again(), 30);
}

/// What is not on the disk yet is lost with the process, and no more; what follows is whole.
#[test]
fn a_recording_goes_on_after_a_crash() {
    let bench = Bench::new("");
    kill_both(bench.copy.start(&bench.options(&[])));
    prints_or_notes(&bench.copy.run(&bench.options(&["--duration", "1 s", "--quiet"])));
    is_all_same(&bench.again(), 8);
}

#[test]
fn what_is_cut_is_said_and_a_recording_of_nothing_is_no_success() {
    let bench = Bench::new("");
    prints_or_notes(&bench.copy.run(&bench.options(&["--duration", "1 s", "--quiet"])));
    prints_or_notes(&bench.copy.run(&bench.options(&["--duration", "1 s", "--quiet"])));
    let files = bench.files();
    let bytes = fs::read(&files[0]).unwrap();
    fs::write(&files[0], &bytes[..bytes.len() / 2]).unwrap();
    let again = bench.again();
    assert_eq!((&again["unreadable"], &again["runs"]), (&1.into(), &1.into()), "{again:#}");
    assert_eq!(again["first_unreadable"][0]["at_byte"], 0);
    let text = prints(&["sim", "--recorded", &bench.record]);
    assert!(text.contains("00000001.ebb.zst from byte 0: "), "{text}");
    fs::remove_file(&files[1]).unwrap();
    let (code, error) = fails(&["sim", "--recorded", &bench.record]);
    assert!(code == 1 && error.contains("no cycle could be decided again"), "{error}");
}

#[test]
fn what_cannot_be_decided_again_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (none, empty) = (path(folder.path(), "none"), path(folder.path(), ""));
    let (code, error) = fails(&["sim", "--recorded", &none]);
    assert!(code == 1 && error.contains("none"), "{error}");
    let (code, error) = fails(&["sim", "--recorded", &empty]);
    assert!(code == 2 && error.contains("ebb run --record"), "{error}");
    let (code, error) = fails(&["sim", "--recorded", &empty, "--plf", "10%"]);
    assert!(code == 2 && error.contains("leave --plf out"), "{error}");
    let config = path(folder.path(), "ebb.toml");
    fs::write(&config, "policy = \"pacer\"\nrecord_keep = \"1 MiB\"").unwrap();
    let (code, error) = fails(&["config", "check", &config]);
    assert!(code == 2 && error.contains("line 2: record_keep = 1 MiB: write 16 MiB"), "{error}");
}

/// Cores that are always at the speed that is asked for.
struct Idle;

impl Plant for Idle {
    fn sense(&mut self, signals: &mut Signals) {
        signals.period = PERIOD;
        signals.now += PERIOD;
        signals.io.completed = Some(10);
        signals.groups[0].utilisation = Some(0.5);
    }

    fn apply(&mut self, _: &InForce, _: &mut Applied) {}
}

/// It says that one policy decided, and it was another.
#[test]
fn a_decision_that_is_another_one_is_found() {
    let group = GroupSpec { role: CoreRole::FrontEnd, cores: 4, min_cores: 1, socket: None };
    let topology = Topology {
        groups: vec![group],
        frequencies: [1e9, 2e9, 3e9].map(Hertz).to_vec(),
        ..Topology::default()
    };
    let settings = Settings::default();
    let [claimed, decided] = ["constant(ghz=1)", "constant(ghz=2)"];
    let policy = registry::make(decided, &topology, &settings).unwrap();
    let mut cycle = Cycle::new(&topology, policy, Limits::default());
    let folder = tempfile::tempdir().unwrap();
    let header = Header::new("0.0.9\u{1b}[31m", Some("0123456789abcdef"));
    let mut writer = Writer::new(folder.path(), Bytes(1 << 30), header).unwrap();
    let begun = Begun {
        at: Nanos::ZERO,
        unix_s: 1e9,
        topology,
        would: true,
        profile: String::new(),
        missing: Vec::new(),
        config: String::new(),
        governed: vec![None],
        unseen: None,
    };
    writer.begun(begun).unwrap();
    writer.made(Made::new(0, claimed, &settings, Vec::new())).unwrap();
    for number in 0..10 {
        writer.frame(number, 1e9, Nanos::ZERO, &cycle.step(&mut Idle), None).unwrap();
    }
    drop(writer);
    let folder = path(folder.path(), "");
    let output = ebb(&["sim", "--recorded", &folder, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("10 of 10 cycles are decided otherwise"), "{error}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("recorded-1", &told);
    let first = &told["difference"];
    assert_eq!((&first["cycle"], &first["control"]), (&0.into(), &"frequency_hz".into()));
    assert_eq!((&first["recorded"]["given"], &first["again"]["given"]), (&2e9.into(), &1e9.into()));
    let text = ebb(&["sim", "--recorded", &folder]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("by Ebb 0.0.9\\u{1b}[31m (0123456789ab)"), "{text}");
    assert!(
        text.contains("cycle 0: core frequency of front_end\n  recorded  2000000000 ("),
        "{text}"
    );
}

/// Records for 2 s with four cores at work; what the run itself says that it saves.
fn at_work(bench: &Bench, policy: &str, more: &[&str]) -> String {
    let args = [&["run", "--policy", policy, "--duration", "2 s"], more].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(bench.copy.args(&[&args[..], &bench.options(&[])].concat()));
    let text = bench.copy.works(command.stdout(Stdio::piped()).spawn().unwrap());
    let told = text.lines().rev().find_map(|line| line.split_once("the governor found: "));
    told.map(|(_, told)| told.to_owned()).unwrap_or_default()
}

/// What the run has said of the policy that it watched is what the recording says of it, whatever
/// policy was watched meanwhile.
#[test]
fn what_another_policy_would_have_saved_is_what_a_run_of_it_would_have_said() {
    let slow = "constant(ghz=2, cores=0.5)";
    let bench = Bench::new("");
    let told = at_work(&bench, slow, &[]);
    is_all_same(&bench.again(), 10);
    let of = |policy: &str| {
        let told = json(&["sim", "--recorded", &bench.record, "--policy", policy, "--json"]);
        valid("what-if-1", &told);
        [0, 1].map(|bound| told["saved_watts"][bound].as_f64().unwrap())
    };
    let [least, most] = of(slow);
    assert_eq!(told.split(" of ").next(), Some(&*format!("would save {least:.1} to {most:.1} W")));
    assert!(0.1 < least && least < most, "{told}");
    // Of the load as it was, not as it would have been on half of the cores.
    assert_eq!(of("native"), [0.0; 2]);
    let text = prints(&["sim", "--recorded", &bench.record, "--policy", "native"]);
    assert!(text.starts_with("native would have saved 0.0 to 0.0 W of the cores' power"), "{text}");
    assert!(text.contains("modelled, not measured") && text.contains("generic-1u"), "{text}");
    let natively = Bench::new("");
    at_work(&natively, "native", &[]);
    let args = ["sim", "--recorded", &natively.record, "--policy", slow, "--json"];
    assert!(json(&args)["saved_watts"][0].as_f64() > Some(0.1));
}

#[test]
fn what_does_not_show_the_load_is_refused_with_what_to_do() {
    let bench = Bench::new("");
    bench.copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
    at_work(&bench, "constant(ghz=2, cores=1)", &["--apply", "--quiet"]);
    is_all_same(&bench.again(), 10);
    for (more, says) in [
        (&["--policy", "pacer"][..], "record while it only observes (ebb run without --apply)"),
        (&["--policy", "pacer", "--profile", "nonesuch"], "ebb probe --profile FILE writes it"),
        (&["--policy", "pacr"], "did you mean 'pacer'"),
        (&["--policy", "tide"], "shares a budget of the whole server"),
        (&["--policy", "pacer", "--policy", "eadc"], "one --policy at a time"),
        (&["--profile", "generic-1u"], "--profile is for --policy"),
    ] {
        let (code, error) = fails(&[&["sim", "--recorded", &bench.record], more].concat());
        assert!(code == 2 && error.contains(says), "{more:?}: {error}");
    }
}

/// A limit on the size of files stands for the disk; who ignores the signal gets an error.
#[test]
fn a_full_disk_costs_the_recording_and_nothing_else() {
    let bench = Bench::new("");
    let more = bench.options(&["--quiet", "--duration", "1 s"]);
    let before = bench.copy.all();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ebb")])
        .args(bench.copy.run(&more))
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let told = format!("the recording {} cannot be written", bench.record);
    assert!(error.contains(&told), "{error}");
    assert_eq!(bench.copy.all(), before);
}
