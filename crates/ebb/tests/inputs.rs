//! Inputs that are odd, endless, empty or never come: each ends by itself or when asked to, and
//! what is told of it is right.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::common::{ebb, fails, json, path, prints};
use crate::interrupt::interrupt;

const HEADING: &str = "at_ns,op,offset,bytes,device,stream,latency_ns\n";

fn trace(folder: &Path, name: &str, rows: &[&str]) -> String {
    let file = path(folder, name);
    fs::write(&file, HEADING.to_owned() + &rows.concat()).unwrap();
    file
}

/// Asserts that this is refused as wrong input, in these words.
fn refused(args: &[&str], words: &[&str]) {
    let (code, error) = fails(args);
    assert_eq!(code, 2, "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{args:?}: '{word}' is not in: {error}");
    }
}

fn sim<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["sim", "--profile", "generic-1u", "--policy", "native"], more].concat()
}

/// `ebb` with a standard input that stays open.
fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn very_low_rates_give_no_request_and_say_so() {
    for workload in ["rand-rw", "poisson", "on-off"] {
        let low = ["--workload", workload, "--rate", "1e-8 IOPS", "--duration", "1 s"];
        let printed = prints(&sim(&low));
        assert!(printed.contains("no request was counted"), "{printed}");
        for rate in ["0 IOPS", "1e-300 IOPS", "1e300 IOPS"] {
            let args = ["--workload", workload, "--rate", rate];
            refused(&sim(&args), &[rate, "a rate is above 0", "1e-9 to 1e9 IOPS"]);
        }
    }
    let args = ["--workload", "rand-rw", "--pressure", "1e-300", "--duration", "1 s"];
    refused(&sim(&args), &["rand-rw.rate", "1e-9 to 1e9 IOPS"]);
}

#[test]
fn times_that_cannot_be_are_refused_and_no_request_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let far = ["0,R,0,4096,0,0,\n", "18446744073709551615,R,0,4096,0,0,\n"];
    let far = trace(folder.path(), "far.csv", &far);
    let near = ["0,R,0,4096,0,0,\n", "1000000000,R,0,4096,0,0,\n"];
    let near = trace(folder.path(), "near.csv", &near);
    refused(&["trace", "info", &far], &["far.csv:3: ", "585 years", "100 years"]);
    refused(&sim(&["--trace", &far, "--fold"]), &["far.csv:3: ", "585 years"]);
    let slow = ["--trace", &near, "--fold", "--rate-scale", "1e-18"];
    refused(&sim(&slow), &["at 1e-18 times its rate", "100 years"]);
    let all = json(&sim(&["--trace", &near, "--fold", "--json"]));
    assert_eq!(all["runs"][0]["requests"], 2);
}

#[test]
fn waiting_for_what_never_comes_ends_when_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = path(folder.path(), "pipe");
    mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
    let profile = path(folder.path(), "profile.toml");
    fs::write(&profile, "name = 'p'\nsummary = 's'\nbase = 'pipe'\n").unwrap();
    let workload = path(folder.path(), "workload.toml");
    let text = "name = 'w'\n[[arrivals]]\nname = 'a'\nrate = 10\naccess = { block = '8 KiB', \
                read = 1 }\nshape.file = { path = 'pipe', workload = 'd' }\n";
    fs::write(&workload, text).unwrap();
    for args in [
        &["trace", "info", &pipe][..],
        &["trace", "info", "-"],
        &["trace", "info", "--lenient", "--format", "msr", "/dev/zero"],
        &["sim", "--trace", "-"],
        &["sim", "--trace", &pipe],
        &["sim", "--workload", "rand-r", "--profile", &profile],
        &["sim", "--workload", &workload],
    ] {
        let (code, printed, error) = interrupt(start(args));
        assert_eq!((code, &*printed), (Some(130), ""), "{args:?}: {error}");
        assert!(error.ends_with("interrupted\n"), "{args:?}: {error}");
    }
}

/// A simulation that copies endless lines into `folder`; its copy has begun.
fn copying(folder: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    // It is read more than once, which needs a copy.
    command.args([
        "sim",
        "--trace",
        "-",
        "--format",
        "mqsim",
        "--policy",
        "native",
        "--policy",
        "clairvoyant-cores",
    ]);
    command.env("TMPDIR", folder).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let (begun, has_begun) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for at in 0_u64.. {
            if at == 200_000 {
                let _ = begun.send(());
            }
            if writeln!(to, "{at} 0 {} 8 1", at + 1).is_err() {
                return;
            }
        }
    });
    has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
    child
}

#[test]
fn a_copy_of_a_pipe_ends_with_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = || assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let child = copying(folder.path());
    nothing();
    let (code, _, error) = interrupt(child);
    assert_eq!((code, error.ends_with("interrupted\n")), (Some(130), true), "{error}");
    let mut child = copying(folder.path());
    child.kill().unwrap();
    child.wait().unwrap();
    nothing();
}

#[test]
fn a_pipe_is_looked_at_before_it_is_copied_and_the_copy_has_its_own_errors() {
    let zero = ["--trace", "/dev/zero", "--fold"];
    refused(&sim(&zero), &["/dev/zero: binary data of a kind"]);
    let zero = sim(&[&zero[..], &["--format", "msr"]].concat());
    refused(&zero, &["/dev/zero:1: the line is longer than 64 KiB"]);
    refused(&["trace", "info", "--format", "msr", "/dev/zero"], &["/dev/zero:1: "]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_ebb"));
    let foretold = ["--trace", "-", "--fold", "--policy", "clairvoyant-cores"];
    child.args(sim(&foretold)).env("TMPDIR", "/nowhere");
    child.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    to.write_all(format!("{HEADING}0,R,0,4096,0,0,\n").as_bytes()).unwrap();
    drop(to);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    for word in ["a copy of standard input", "/nowhere", "set TMPDIR"] {
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn small_files_have_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let long = path(folder.path(), "long.toml");
    File::create(&long).unwrap().set_len(1 << 36).unwrap();
    let profile = path(folder.path(), "profile.toml");
    let shape = path(folder.path(), "shape.toml");
    for file in ["/dev/zero", &long] {
        fs::write(&profile, format!("name = 'p'\nsummary = 's'\nbase = '{file}'\n")).unwrap();
        for args in [
            &["sim", "--workload", "rand-r", "--profile", file][..],
            &["sim", "--workload", "rand-r", "--profile", &profile],
            &["sim", "--workload", file],
            &["sim", "--experiment", file],
            &["serve", "--config", file],
            &["config", "check", file],
        ] {
            refused(args, &[file, "longer than 16 MiB"]);
        }
    }
    let text = "name = 'w'\n[[arrivals]]\nname = 'a'\nrate = 10\naccess = { block = '8 KiB', \
                read = 1 }\nshape.file = { path = '/dev/zero', workload = 'd' }\n";
    fs::write(&shape, text).unwrap();
    refused(&["sim", "--workload", &shape], &["/dev/zero:1: the line is longer than 64 KiB"]);
}

#[test]
fn names_and_lines_that_are_quoted_are_printable_and_short() {
    let folder = tempfile::tempdir().unwrap();
    let odd = trace(folder.path(), "a\n\u{1b}[31m.csv", &["x\n"]);
    refused(&["trace", "info", &odd], &["a\\n\\u{1b}[31m.csv:2: "]);
    let long = path(folder.path(), "\u{1b}[31m.toml");
    fs::write(&long, format!("name = '{}'\nseed = 1\n", "x".repeat(100_000))).unwrap();
    let (_, error) = fails(&["sim", "--workload", &long]);
    assert!(error.contains("\\u{1b}[31m.toml") && error.len() < 1_000, "{error}");
}

#[test]
fn trims_move_no_data() {
    let folder = tempfile::tempdir().unwrap();
    let read = |number: u64| format!("{},R,{},4096,0,0,\n", number * 100_000, number * 4096);
    let reads: Vec<String> = (0..5_000).map(read).collect();
    let mut with = reads.clone();
    for place in (0..5_000).step_by(100) {
        with[place].push_str(&format!("{},T,0,1073741824,0,0,\n", place * 100_000));
    }
    let run = |name: &str, rows: &[String]| {
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let file = trace(folder.path(), name, &rows);
        json(&sim(&["--trace", &file, "--fold", "--json"]))["runs"][0].clone()
    };
    let (plain, trimmed) = (run("plain.csv", &reads), run("trimmed.csv", &with));
    assert_eq!((&plain["requests"], &trimmed["requests"]), (&5_000.into(), &5_050.into()));
    assert_eq!(plain["bytes"], 5_000 * 4096);
    assert_eq!(plain["bytes"], trimmed["bytes"]);
    let power = |run: &serde_json::Value| run["mean_watts"].as_f64().unwrap();
    let ratio = power(&trimmed) / power(&plain);
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}: {trimmed}");
}

#[test]
fn a_trace_without_requests_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let empty = trace(folder.path(), "empty.csv", &[]);
    for args in [&["trace", "info", &empty][..], &sim(&["--trace", &empty, "--fold"])] {
        refused(args, &["empty.csv: there is no request in it"]);
    }
    let bad = trace(folder.path(), "bad.csv", &["x\n", "y\n"]);
    let said = ["no request in it; 2 are malformed, the first at 2: at_ns is not a whole number"];
    refused(&["trace", "info", "--lenient", &bad], &said);
}

#[test]
fn few_blocks_are_counted_and_many_are_estimated() {
    let folder = tempfile::tempdir().unwrap();
    let row = |number: u64| format!("{number},R,{},4096,0,0,\n", number * 4096);
    let file = |count: u64| {
        let rows: Vec<String> = (0..count).map(row).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        trace(folder.path(), "blocks.csv", &rows)
    };
    assert!(prints(&["trace", "info", &file(100)]).contains("written, 400 KiB touched"));
    assert!(prints(&["trace", "info", &file(20_000)]).contains("written, about "));
    assert!(ebb(&["trace", "info", &file(1)]).status.success());
}
