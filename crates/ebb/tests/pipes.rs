//! Nobody reads what is printed any more: everything else happens as if somebody did.

use std::fs::{self, OpenOptions};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{QUICK, path, small_trace};

/// The writing end of a pipe whose reader has gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn ebb(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(args).stdout(closed()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Output {
    ebb(args).output().unwrap()
}

#[test]
fn what_works_still_works_and_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let [series, decisions, converted, curve] =
        ["series.csv", "decisions.jsonl", "converted.csv", "curve.toml"]
            .map(|name| path(folder.path(), name));
    let sim = [QUICK, &["--timeseries", &series, "--decisions", &decisions]].concat();
    let commands: [&[&str]; 14] = [
        &["sim", "--list"],
        &["sim", "--list", "--json"],
        &sim,
        &[&sim[..], &["--json"]].concat(),
        &["trace", "info", &trace],
        &["trace", "head", &trace, "--lines", "1000"],
        &["trace", "head", &trace, "--json"],
        &["trace", "convert", &trace, "-o", &converted],
        &["characterise", "--pause", "20 s", "--step", "50%", "--out", &curve],
        &["serve", "--scheduler", "list"],
        &["paper", "pacman", "--figure", "1", "--json", "--quiet", "--duration", "10 s"],
        &["trace", "convert", &trace, "-o", "-", "--quiet"],
        &["completions", "bash"],
        &["--help"],
    ];
    for args in commands {
        let output = run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*error), (Some(0), ""), "{args:?}");
    }
    for file in [series, decisions, converted, curve] {
        assert!(fs::metadata(&file).unwrap().len() > 0, "{file}");
    }
}

#[test]
fn what_fails_still_tells_why_and_with_which_code() {
    let output = run(&["sim", "--policy", "nope"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nope"));
    // Not even the reason is read.
    let status = ebb(&["sim", "--policy", "nope"]).stderr(closed()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

/// Another reason than a reader that has gone is an error.
#[test]
fn output_that_is_lost_is_told() {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else {
        return println!("skipped: no /dev/full");
    };
    for args in [&["sim", "--list"][..], &["serve", "--scheduler", "list"]] {
        let output = ebb(args).stdout(full.try_clone().unwrap()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.starts_with("error: cannot write standard output: No space"), "{error}");
    }
}

/// Ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server whose banner nobody reads serves on, and so does the load on it to its end.
#[test]
fn a_server_and_its_load_do_their_work() {
    // An address of this test's own: nobody else listens on 127.x.y.z.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let target = format!("127.{}.{b}.{c}:4420", a | 0x80);
    let metrics = format!("127.{}.{b}.{c}:9420", a | 0x80);
    let args = ["serve", "--namespace", "ram:4MiB", "--listen", &target, "--metrics", &metrics];
    let mut serve = Running(ebb(&args).stderr(closed()).spawn().unwrap());
    // It listens for hosts last.
    while TcpStream::connect(&target).is_err() {
        assert!(serve.0.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    let load = ["load", "--connect", &target, "--duration", "100 ms", "--rw", "randrw", "--verify"];
    for args in [
        &load[..],
        &[&load[..], &["--json"]].concat(),
        &["status", &metrics],
        &["status", &metrics, "--json"],
    ] {
        let output = run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*error), (Some(0), ""), "{args:?}");
    }
    kill_process(Pid::from_child(&serve.0), Signal::TERM).unwrap();
    assert_eq!(serve.0.wait().unwrap().code(), Some(0));
}
