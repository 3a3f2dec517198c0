//! `ebb trace` end to end.

use std::fs;
use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::{data, fails, json, path, prints, small_trace, valid};

#[test]
fn info_tells_a_trace_in_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let info = json(&["trace", "info", &trace, "--json"]);
    valid("trace-info-1", &info);
    assert_eq!(info["requests"], 1000);
    assert_eq!(info["read_share"], 0.75);
    assert_eq!(info["devices"], 2);
    assert_eq!(info["files"][0]["format"], "ebb-csv");
    let text = prints(&["trace", "info", &trace]);
    assert!(text.contains("750 reads (75.0%), 250 writes") && text.contains("4 KiB"), "{text}");
}

#[test]
fn head_shows_the_first_requests() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let head = json(&["trace", "head", &trace, "-n", "3", "--json"]);
    valid("trace-head-1", &head);
    let requests = head["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 3);
    assert_eq!((&requests[0]["op"], &requests[1]["op"]), (&"write".into(), &"read".into()));
    assert_eq!(requests[2]["at_ns"], 2_000_000);
    let text = prints(&["trace", "head", &trace, "-n", "3"]);
    assert_eq!(text.lines().count(), 4);
}

#[test]
fn conversion_to_every_form_and_back_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let first = json(&["trace", "head", &trace, "-n", "1000", "--json"])["requests"].clone();
    for (name, more) in [
        ("t.parquet", &[][..]),
        ("t.csv", &[]),
        ("t.trace", &["--output-format", "mqsim"]),
        ("m.trace", &["--output-format", "msr-cut"]),
    ] {
        let to = path(folder.path(), name);
        let told = json(&[&["trace", "convert", &trace, "-o", &to, "--json"], more].concat());
        valid("trace-convert-1", &told);
        assert_eq!(told["requests"], 1000);
        let format = told["format"].as_str().unwrap();
        let head = ["trace", "head", &to, "-n", "1000", "--format", format, "--json"];
        let again = json(&head)["requests"].clone();
        for (one, other) in first.as_array().unwrap().iter().zip(again.as_array().unwrap()) {
            for field in ["at_ns", "op", "offset", "bytes", "device"] {
                assert_eq!(one[field], other[field], "{name}: {field}");
            }
        }
    }
}

/// Runs `ebb` with this on standard input, of which it may leave the rest unread.
fn fed(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    match child.stdin.take().unwrap().write_all(input) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{error}"),
        _ => {}
    }
    child.wait_with_output().unwrap()
}

#[test]
fn standard_input_and_output_are_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let bytes = fs::read(&trace).unwrap();
    let converted = fed(&["trace", "convert", "-", "-o", "-", "--to", "10 ms"], &bytes);
    let told = String::from_utf8(converted.stderr).unwrap();
    assert!(told.contains("standard output: 10 requests written as ebb-csv"), "{told}");
    assert_eq!(String::from_utf8(converted.stdout).unwrap().lines().count(), 11);
    // The policies read it together, whatever the number of threads.
    let both = ["--policy", "native", "--policy", "pacer", "--threads", "1", "--json"];
    let sim = [&["sim", "--trace", "-", "--fold"], &both[..]].concat();
    let result: Value = serde_json::from_slice(&fed(&sim, &bytes).stdout).unwrap();
    assert_eq!(result["workload"], "standard input");
    for run in result["runs"].as_array().unwrap() {
        assert_eq!(run["requests"], 1000);
    }
    let twice = fed(&["trace", "info", "-", "-"], &bytes);
    assert_eq!(twice.status.code(), Some(2));
}

#[test]
fn units_are_said_by_columns_and_told_where_they_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let trace = path(folder.path(), "seconds.trace");
    fs::write(&trace, "242.504709548 0 1000 8 1\n242.604709548 0 2000 8 0\n").unwrap();
    let (code, error) = fails(&["trace", "info", &trace]);
    assert!(code == 2 && error.contains("--columns time:s,device,offset:sectors"), "{error}");
    let columns = ["--columns", "time:s,device,offset:sectors,size:sectors,op:1=read", "--json"];
    let info = json(&[&["trace", "info", &trace], &columns[..]].concat());
    valid("trace-info-1", &info);
    assert_eq!((&info["seconds"], &info["files"][0]["format"]), (&0.1.into(), &"columns".into()));
    fs::write(&trace, "7 0.5 8 8 R\n7 0.6 16 8 W\n").unwrap();
    let columns = "-,time:s,offset:sectors,size:sectors,op";
    let info = json(&["trace", "info", &trace, "--columns", columns, "--json"]);
    assert_eq!((&info["requests"], &info["reads"]), (&2.into(), &1.into()));
    let (code, error) = fails(&["trace", "info", &trace, "--columns", "time,offset,size,op"]);
    assert!(code == 2 && error.contains("'time' has no unit"), "{error}");
    let disksim = path(folder.path(), "ssd.trace");
    fs::write(&disksim, "0.000 0 303567 7 0\n1.130 0 303574 8 1\n").unwrap();
    let info = json(&["trace", "info", &disksim, "--json"]);
    valid("trace-info-1", &info);
    let note = info["files"][0]["notes"][0].as_str().unwrap();
    assert!(note.starts_with("read as disksim: times in ms"), "{note}");
    let text = prints(&["trace", "info", &disksim]);
    assert!(text.contains(note), "{text}");
    let sim = prints(&["sim", "--trace", &disksim, "--fold", "--policy", "native"]);
    let words: Vec<&str> = sim.split_whitespace().collect();
    assert!(words.join(" ").contains("read as disksim"), "{sim}");
}

#[test]
fn conversion_cuts_scales_and_merges() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let to = path(folder.path(), "t.parquet");
    let text = prints(&["trace", "convert", &trace, &trace, "-o", &to, "--to", "100 ms"]);
    assert!(text.contains("200 requests written as parquet"), "{text}");
    assert_eq!(json(&["trace", "info", &to, "--json"])["devices"], 4);
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "nothing but the trace and what it was converted to");
}

#[test]
fn pressure_is_the_share_of_what_the_server_could_do() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let args = ["trace", "pressure", &trace, "--profile", "generic-1u", "--run", "200 ms"];
    let more = ["--segment", "250 ms"];
    let told = json(&[&args[..], &more, &["--json"]].concat());
    valid("trace-pressure-1", &told);
    let segments = told["segments"].as_array().unwrap();
    assert_eq!(segments.len(), 4);
    for segment in segments {
        let number = |name: &str| segment[name].as_f64().unwrap();
        // 1,000 a second, which the server keeps up with; Poisson arrivals vary by a few percent.
        assert!((900.0..1100.0).contains(&number("limited_iops")), "{segment}");
        let share = 100.0 * number("limited_iops") / number("unlimited_iops");
        assert!((number("pressure_percent") / share - 1.0).abs() < 1e-9);
        assert!(share < 10.0);
    }
    let all = told["pressure_percent"].as_f64().unwrap();
    let cdf: Vec<f64> =
        told["cdf"].as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap()).collect();
    assert!(cdf.windows(2).all(|pair| pair[0] <= pair[1]));
    assert!(cdf[0] <= all && all <= cdf[cdf.len() - 1]);
    let text = prints(&[&args[..], &more].concat());
    assert!(text.contains("pressure of the whole trace") && text.contains("50% of the time"));
    let threads = |number: &str| prints(&[&args[..], &more, &["--threads", number]].concat());
    assert_eq!(threads("1"), threads("2"));
}

#[test]
fn real_traces_are_told() {
    let Some(data) = data() else { return };
    let vscsi = path(&data, "traces/cloudphysics_vscsi/cloudPhysicsIO.vscsi.gz");
    let info = json(&["trace", "info", &vscsi, "--json"]);
    valid("trace-info-1", &info);
    assert_eq!((&info["requests"], &info["reads"]), (&113_872.into(), &46_974.into()));
    let replayed =
        path(&data, "traces/tencent_nvme_latency/tencent.cut.per_50k.rw_65_35.211.trace.gz");
    let info = json(&["trace", "info", &replayed, "--json"]);
    valid("trace-info-1", &info);
    assert_eq!(info["recorded_latency"]["count"], 50_000);
    // A virtual disk of 16 requests a second is far below what the Dorado can do (Observation 3).
    let args = ["trace", "pressure", &vscsi, "--to", "30 min", "--run", "100 ms", "--json"];
    let told = json(&args);
    valid("trace-pressure-1", &told);
    assert!(told["pressure_percent"].as_f64().unwrap() < 1.0);
}
