//! Ctrl-C: what is complete is kept and marked, what is under way is dropped.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{path, valid};

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends SIGINT once it is watched for, and tells how that ended: exit code, standard output,
/// standard error.
pub fn interrupt(mut child: Child) -> (Option<i32>, String, String) {
    let watched = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap() >> (Signal::INT.as_raw() - 1) & 1 == 1
    };
    while !watched() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(child.try_wait().unwrap().is_none(), "it has ended");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

#[test]
fn a_simulation_without_any_complete_run_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let series = path(folder.path(), "s.csv");
    let args = ["sim", "--profile", "generic-1u", "--workload", "rand-r", "--rate", "2000"];
    let more = ["--duration", "300 d", "--policy", "native", "--timeseries", &series];
    let (code, printed, error) = interrupt(start(&[&args[..], &more].concat()));
    assert_eq!((code, &*printed), (Some(130), ""), "{error}");
    assert!(error.ends_with("interrupted\n"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_papers_evaluation_prints_what_it_has_and_marks_it() {
    let args = ["paper", "pacman", "--figure", "6", "--duration", "100 d", "--quiet"];
    let (code, printed, error) = interrupt(start(&[&args[..], &["--json"]].concat()));
    assert_eq!(code, Some(130), "{error}");
    let report: Value = serde_json::from_str(&printed).unwrap();
    valid("paper-6", &report);
    assert_eq!(report["interrupted"], true);
    let (code, printed, _) = interrupt(start(&args));
    assert_eq!(code, Some(130));
    assert!(printed.contains("INTERRUPTED: partial results."), "{printed}");
}

#[test]
fn reading_a_trace_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["trace", "info", "-", "--format", "mqsim"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let endless = std::thread::spawn(move || {
        let mut at = 0_u64;
        while writeln!(to, "{at} 0 {} 8 1", at + 1).is_ok() {
            at += 1;
        }
    });
    let (code, printed, error) = interrupt(child);
    assert_eq!((code, &*printed), (Some(130), ""), "{error}");
    endless.join().unwrap();
}
