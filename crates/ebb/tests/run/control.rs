//! `ebb ctl`, `ebb status` and `ebb verify` with `ebb run`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{CHIP, Copy, ends, kill_both};
use crate::common::{ebb, fails, path, prints, valid};

/// A run with a control socket that acts.
struct Bench {
    copy: Copy,
    child: Child,
    socket: String,
}

impl Bench {
    fn start(more: &[&str]) -> Self {
        let copy = Copy::new();
        let socket = path(copy.folder.path(), "run.sock");
        let child = copy.start(&[&["--control", &socket], more].concat());
        let bench = Self { copy, child, socket };
        bench.until(|status| status["state"] == "acting");
        bench
    }

    fn ctl(&self, args: &[&str]) -> Value {
        let text = prints(&[&["ctl", "--json", "--socket", &self.socket], args].concat());
        let reply = serde_json::from_str(&text).unwrap();
        valid(if args == ["status"] { "run-status-1" } else { "ctl-1" }, &reply);
        reply
    }

    fn done(&self, args: &[&str]) -> String {
        self.ctl(args)["done"].as_str().unwrap().to_owned()
    }

    fn refuses(&self, args: &[&str]) -> (i32, String) {
        let before = self.ctl(&["status"]);
        let failed = fails(&[&["ctl", "--socket", &self.socket], args].concat());
        let after = self.ctl(&["status"]);
        for unchanged in ["orders", "policy", "plf", "ssd_budget_w"] {
            assert_eq!(before[unchanged], after[unchanged], "{args:?}");
        }
        failed
    }

    fn verify(&self) -> (Option<i32>, Value) {
        let args = self.copy.args(&["verify", "--json", "--socket", &self.socket]);
        let done = ebb(&super::str(&args));
        let report = serde_json::from_slice(&done.stdout).unwrap();
        valid("verify-1", &report);
        (done.status.code(), report)
    }

    /// The status once it is such.
    fn until(&self, is: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let done = ebb(&["status", "--json", "--socket", &self.socket]);
            let status = serde_json::from_slice(&done.stdout).unwrap_or_default();
            if is(&status) {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{status:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn end(self) -> Copy {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let (code, told) = ends(self.child);
        assert_eq!(code, Some(0), "{told}");
        self.copy
    }
}

#[test]
fn a_pause_gives_everything_back_and_a_run_that_resumes_acts() {
    let bench = Bench::start(&[]);
    let mode = fs::metadata(&bench.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its user's and root's");
    assert!(bench.done(&["pause"]).contains("as it was found"));
    // All of it was set back when the answer came.
    assert_eq!(bench.copy.fan(), "5");
    let status = bench.until(|status| status["state"] == "paused");
    assert_eq!(status["orders"][0]["what"], "pause");
    let (code, error) = bench.refuses(&["pause"]);
    assert!(code == 1 && error.contains("paused already"), "{error}");
    let (code, report) = bench.verify();
    assert_eq!((code, &report["with"]), (Some(0), &"found".into()));
    bench.done(&["resume"]);
    bench.until(|status| status["state"] == "acting" && bench.copy.fan() == "1");
    // It ends by itself.
    bench.done(&["pause", "--for", "6 s"]);
    assert_eq!(bench.copy.fan(), "5");
    bench.until(|status| status["state"] == "acting" && bench.copy.fan() == "1");
    assert_eq!(bench.ctl(&["status"])["orders"].as_array().map(Vec::len), Some(0));
    let socket = bench.socket.clone();
    let copy = bench.end();
    assert_eq!(copy.fan(), "5");
    assert!(!std::path::Path::new(&socket).exists());
}

#[test]
fn an_order_stands_over_the_configuration_until_it_ends() {
    let bench = Bench::start(&[]);
    let said = bench.done(&["tolerance", "set", "50%", "--for", "8 h"]);
    assert!(said.contains("50.0 %"), "{said}");
    let status = bench.until(|status| status["plf"] == 0.5);
    assert_eq!(status["orders"][0]["what"], "tolerance 50.0 %");
    assert!(status["orders"][0]["ends_s"].as_f64() > status["uptime_s"].as_f64(), "{status:#}");
    let text = prints(&["status", "--socket", &bench.socket]);
    assert!(text.contains("by ebb ctl: tolerance 50.0 %"), "{text}");
    bench.done(&["tolerance", "set", "40%", "--for", "1 s"]);
    bench.until(|status| status["plf"] == 0.2);
    bench.done(&["policy", "set", "eadc(cap_gain=0.02)"]);
    bench.until(|status| status["policy"] == "eadc(cap_gain=0.02)" && status["state"] == "acting");
    bench.done(&["--run", "log-level", "set", "warning"]);
    // What an order comes to shows with the next cycle.
    bench.until(|status| status["orders"].as_array().is_some_and(|orders| orders.len() == 2));
    for (wrong, code, says) in [
        (&["policy", "set", "pacer"][..], 2, "steers other controls than eadc"),
        (&["policy", "set", "eadcc"], 2, "did you mean"),
        (&["tolerance", "set", "2000%"], 2, "more than 1000%"),
        (&["budget", "set", "90 W"], 2, "does not keep it; eadc(cap_gain=0.02)+pacman does"),
        (&["pause", "--for", "10000 h"], 2, "up to 366 days"),
        (&["namespace", "list"], 1, "there is no 'namespace.list'; there are status"),
    ] {
        let (ended, error) = bench.refuses(wrong);
        assert!(ended == code && error.contains(says), "{wrong:?}: {ended} {error}");
    }
    bench.done(&["policy", "clear"]);
    bench.until(|status| status["policy"] == "eadc");
    bench.end();
}

#[test]
fn a_budget_is_ordered_where_the_policy_keeps_one() {
    let copy = Copy::new();
    let [socket, file] = ["run.sock", "ebb.toml"].map(|name| path(copy.folder.path(), name));
    fs::write(&file, "ssd_budget = \"60 W\"").unwrap();
    // The budget is for the policy of the command line, whatever the file's would be.
    let args = ["--policy", "eadc+pacman", "--config", &file, "--control", &socket, "--apply"];
    let run = copy.args(&[&["run"], &args[..]].concat());
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ebb"));
    let quiet = std::process::Stdio::null;
    let child = command.args(run).stdout(quiet()).stderr(quiet()).spawn().unwrap();
    let bench = Bench { copy, child, socket };
    bench.until(|status| status["ssd_budget_w"] == 60.0);
    bench.done(&["budget", "set", "90 W"]);
    bench.until(|status| status["ssd_budget_w"] == 90.0);
    bench.done(&["budget", "clear"]);
    bench.until(|status| status["ssd_budget_w"] == 60.0);
    bench.end();
}

#[test]
fn verify_finds_what_is_not_as_set_or_as_found() {
    // Nothing is set once more behind the back of the test.
    let bench = {
        let copy = Copy::new();
        let (socket, config) =
            (path(copy.folder.path(), "run.sock"), path(copy.folder.path(), "ebb.toml"));
        fs::write(&config, "period = \"10 s\"").unwrap();
        let child = copy.start(&["--control", &socket, "--config", &config]);
        Bench { copy, child, socket }
    };
    bench.until(|status| status["state"] == "acting");
    let (code, report) = bench.verify();
    assert_eq!((code, &report["with"]), (Some(0), &"set".into()), "{report}");
    assert!(report["compared"].as_u64() > Some(1), "{report}");
    bench.copy.put(&format!("{CHIP}/pwm2_enable"), 5);
    let (code, report) = bench.verify();
    assert_eq!(code, Some(1), "{report}");
    let differing = &report["differing"][0];
    assert!(differing["place"].as_str().unwrap().contains("pwm2_enable"), "{report}");
    assert!(differing["text"].as_str().unwrap().contains("set to '1', is '5'"), "{report}");
    let Bench { copy, child, socket } = bench;
    kill_both(child);
    let args = copy.args(&["verify", "--socket", &socket]);
    let (code, error) = fails(&super::str(&args));
    assert!(code == 1 && error.contains("not as they were found"), "{error}");
    prints(&super::str(&copy.args(&["restore"])));
    let text = prints(&super::str(&args));
    assert!(text.contains("everything is as it was found"), "{text}");
}

#[test]
fn who_only_observes_has_nothing_to_pause() {
    let copy = Copy::new();
    let socket = path(copy.folder.path(), "run.sock");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(copy.run(&["--control", &socket])).stdout(std::process::Stdio::null());
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let bench = Bench { copy, child, socket };
    bench.until(|status| status["state"] == "observing");
    let (code, error) = bench.refuses(&["pause"]);
    assert!(code == 1 && error.contains("only observes"), "{error}");
    bench.end();
}
