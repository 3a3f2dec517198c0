//! The ledger of a run, and what `ebb report` makes of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use serde_json::Value;

use super::{Copy, str};
use crate::common::{fails, json, path, prints, valid};

/// A machine with a meter at the wall.
fn metered() -> Copy {
    let copy = Copy::new();
    copy.put("sys/class/hwmon/hwmon5/name", "power_meter");
    copy.put("sys/class/hwmon/hwmon5/power1_average", 412_000_000);
    copy
}

#[test]
fn a_run_that_ends_has_its_energy_in_the_ledger() {
    let copy = metered();
    let ledger = path(copy.folder.path(), "ledger");
    for _ in 0..2 {
        prints(&str(&copy.run(&["--quiet", "--ledger", &ledger, "--duration", "1 s"])));
    }
    let report = json(&["report", "--since", "1 h", "--ledger", &ledger, "--json"]);
    valid("report-1", &report);
    let energy = report["energy"].as_array().unwrap();
    let wall: Vec<&Value> = energy.iter().filter(|one| one["of"] == "power").collect();
    let [wall] = wall[..] else { panic!("{report:#}") };
    assert_eq!(wall["kind"], "measured");
    let hours = wall["hours"].as_f64().unwrap();
    assert!(hours * 3600.0 > 1.0, "{report:#}");
    for bound in [0, 1] {
        let kwh = wall["kwh"][bound].as_f64().unwrap();
        assert!((kwh - 0.412 * hours).abs() < 0.01 * kwh, "{report:#}");
    }
    let months =
        json(&["report", "--since", "1 h", "--by", "month", "--ledger", &ledger, "--json"]);
    valid("report-1", &months);
    assert_eq!((&months["by"], &months["energy"]), (&"month".into(), &report["energy"]));
    assert_eq!(months["parts"][0]["of"].as_str().unwrap().len(), "2026-11".len());
    let told = prints(&["report", "--since", "today", "--ledger", &ledger]);
    assert!(told.starts_with("From ") && told.contains(" kWh (measured, "), "{told}");
    let before = prints(&["report", "--since", "3 d", "--until", "2 d", "--ledger", &ledger]);
    assert!(before.contains("nothing was recorded;"), "{before}");
}

#[test]
fn a_report_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let none = path(folder.path(), "none");
    let (code, error) = fails(&["report", "--ledger", &none]);
    assert!(code == 1 && error.contains("ebb run --ledger keeps one"), "{error}");
    assert!(!folder.path().join("none").exists());
    for (since, until, told) in [
        ("someday", "today", "--since: \"someday\": write such as monday"),
        ("today", "2 d", "nothing lies between"),
    ] {
        let args = ["report", "--since", since, "--until", until, "--ledger", &none];
        let (code, error) = fails(&args);
        assert!(code == 2 && error.contains(told), "{error}");
    }
}

/// A limit on the size of files stands for the disk; who ignores the signal gets an error.
#[test]
fn a_full_disk_costs_the_ledger_and_nothing_else() {
    let copy = metered();
    let ledger = path(copy.folder.path(), "ledger");
    let args = copy.run(&["--apply", "--quiet", "--ledger", &ledger, "--duration", "1 s"]);
    let before = copy.all();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ebb")])
        .args(args)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains(&format!("the ledger {ledger} cannot be written")), "{error}");
    assert_eq!(copy.all(), before);
}

/// systemd names the file that its journal reads; where it has a socket too, lines have fields.
#[test]
fn decisions_have_fields_in_the_journal() {
    let copy = Copy::new();
    copy.put("run/systemd/journal/none", "");
    let socket = copy.folder.path().join("root/run/systemd/journal/socket");
    let journal = UnixDatagram::bind(&socket).unwrap();
    journal.set_nonblocking(true).unwrap();
    let log = fs::File::create(copy.folder.path().join("log")).unwrap();
    let (device, inode) = (log.metadata().unwrap().dev(), log.metadata().unwrap().ino());
    let done = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(copy.run(&["--duration", "2 s", "--config", "/dev/null"]))
        .env("JOURNAL_STREAM", format!("{device}:{inode}"))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .status();
    assert!(done.unwrap().success());
    let (mut data, mut lines) = ([0; 65_536], Vec::new());
    while let Ok(count) = journal.recv(&mut data) {
        lines.push(String::from_utf8(data[..count].to_vec()).unwrap());
    }
    let has = |fields: &[&str]| {
        let is = |line: &&String| fields.iter().all(|field| line.lines().any(|is| is == *field));
        lines.iter().find(is).unwrap_or_else(|| panic!("{fields:?}: {lines:#?}"))
    };
    has(&["MESSAGE=observing", "PRIORITY=5", "EBB_STATE=observing", "SYSLOG_IDENTIFIER=ebb"]);
    let fans = ["EBB_CONTROL=fan_duty", "EBB_OF=fan0", "EBB_OF=fan1", "PRIORITY=6"];
    let fans = has(&fans);
    for field in ["MESSAGE=would set ", "EBB_REASON=", "EBB_ASKED=", "EBB_TO=", "EBB_POLICY=eadc"] {
        assert!(fans.lines().any(|line| line.starts_with(field)), "{field}: {fans}");
    }
    assert!(!fans.contains("EBB_APPLIED"), "{fans}");
    let printed = fs::read_to_string(copy.folder.path().join("log")).unwrap();
    assert!(!printed.contains("observing") && !printed.contains("would set"), "{printed}");
}

/// systemd names the file that its journal reads.
#[test]
fn lines_for_the_journal_have_a_priority() {
    let copy = Copy::new();
    let log = copy.folder.path().join("log");
    let file = fs::File::create(&log).unwrap();
    let (device, inode) = (file.metadata().unwrap().dev(), file.metadata().unwrap().ino());
    for (stream, marked) in [(format!("{device}:{inode}"), true), ("1:2".to_owned(), false)] {
        file.set_len(0).unwrap();
        let append = || fs::File::options().append(true).open(&log).unwrap();
        let done = Command::new(env!("CARGO_BIN_EXE_ebb"))
            .args(copy.run(&["--duration", "0.1 s", "--config", "/dev/null"]))
            .env("JOURNAL_STREAM", stream)
            .stdout(append())
            .stderr(append())
            .status();
        assert!(done.unwrap().success());
        let told = fs::read_to_string(&log).unwrap();
        let has = |priority: &str, what: &str| {
            let line = told.lines().find(|line| line.contains(what));
            let line = line.unwrap_or_else(|| panic!("{what}: {told}"));
            assert_eq!(line.starts_with(priority), marked, "{line}");
        };
        has("<5>", "  observing");
        has("<6>", "  found");
        assert_eq!(told.lines().all(|line| line.starts_with('<')), marked, "{told}");
    }
}
