//! `ebb replay` against files in a folder: what it issues, what it writes, what it refuses, what a
//! meter comes to.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use ebb_trace::{Op, OpenOptions, Request, Source, open};

use crate::common::{fails, json, path, prints, small_trace, valid};

const MIB: u64 = 1 << 20;

/// What a replay prints as JSON, whatever else it says.
fn replay(args: &[&str]) -> Value {
    let report = json(&[&["replay", "--json", "--meter", "none"], args].concat());
    valid("replay-1", &report);
    report
}

fn count(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {report}"))
}

fn requests(file: &str) -> Vec<Request> {
    let mut source = open(file, &OpenOptions::default()).unwrap();
    let (mut all, mut last) = (Vec::new(), usize::MAX);
    while all.len() != last {
        last = all.len();
        source.fill(&mut all).unwrap();
    }
    all
}

/// The offset in the stamp of a block, if it has one.
fn stamp(block: &[u8]) -> Option<u64> {
    let offset = block.strip_prefix(b"EBBREPLY")?.first_chunk()?;
    Some(u64::from_le_bytes(*offset))
}

#[test]
fn strided_writes_cover_the_file_as_in_the_paper() {
    let folder = tempfile::tempdir().unwrap();
    let (target, run) = (path(folder.path(), "data"), path(folder.path(), "run"));
    fs::write(&target, "").unwrap();
    let pattern = ["--pattern", "strided", "--rw", "write", "--request", "128KiB"];
    let sizes = ["--size", "1MiB", "--repeats", "2", "-o", &run, &target];
    let report = replay(&[&pattern[..], &sizes].concat());
    assert_eq!(
        (count(&report, "/requests/write_bytes"), report["completed"].as_bool()),
        (2 * MIB, Some(true))
    );
    for repeat in 0..2 {
        assert_eq!(count(&report, &format!("/repeats/{repeat}/by_op/write/requests")), 16);
    }
    let data = fs::read(&target).unwrap();
    assert_eq!(data.len() as u64, 2 * MIB);
    for (index, block) in data.chunks(4096).enumerate() {
        assert_eq!(stamp(block), Some(index as u64 * 4096));
        assert!(block[16..].iter().any(|byte| *byte != 0), "block {index} could be compressed");
    }
    // Two processes take turns with requests of 128 KiB.
    let issued = requests(&format!("{run}/issued-2.parquet"));
    for stream in 0..2_u64 {
        let own = issued.iter().filter(|request| u64::from(request.stream) == stream);
        let offsets: Vec<u64> = own.clone().map(|request| request.offset).collect();
        let wanted: Vec<u64> = (0..8).map(|index| (index * 2 + stream) * (128 << 10)).collect();
        assert_eq!(offsets, wanted);
        assert!(own.clone().all(|r| r.op == Op::Write && r.recorded_latency.is_some()));
    }
    let lines = fs::read_to_string(format!("{run}/repeats.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(&lines, report["repeats"].as_array().unwrap());
    let config: Value =
        serde_json::from_slice(&fs::read(format!("{run}/config.json")).unwrap()).unwrap();
    assert_eq!((&config["replay"], &config["machine"]), (&report["replay"], &report["machine"]));
    assert!(config["command"].as_str().unwrap().contains("--pattern strided"));
}

#[test]
fn a_trace_keeps_its_times_its_order_and_its_places() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, run) = (path(folder.path(), "t.csv"), path(folder.path(), "run"));
    let mut text = String::from("at_ns,op,offset,bytes,device,stream,latency_ns\n");
    for number in 0_u64..40 {
        let op = ['W', 'R', 'R', 'F'][number as usize % 4];
        let (at, bytes) = (number * 5_000_000, if op == 'F' { 0 } else { 4096 });
        text += &format!("{at},{op},{},{bytes},0,{},\n", number * 8192, number % 3);
    }
    fs::write(&trace, text).unwrap();
    let work = path(folder.path(), "work");
    fs::create_dir(&work).unwrap();
    let report = replay(&["--streams", "2", "--rate-scale", "2", "-o", &run, &trace, &work]);
    let repeat = &report["repeats"][0];
    assert_eq!(count(&report, "/repeats/0/total/requests"), 40);
    assert_eq!(count(&report, "/repeats/0/by_op/flush/requests"), 10);
    // The last is due after 195 ms at twice the speed.
    assert!(repeat["seconds"].as_f64().unwrap() >= 0.0975, "{repeat}");
    assert_eq!(count(&report, "/repeats/0/deviation_ns/count"), 40);
    let (planned, issued) =
        (requests(&format!("{run}/planned.parquet")), requests(&format!("{run}/issued-1.parquet")));
    assert_eq!(planned.len(), 40);
    let of = |all: &[Request], stream| -> Vec<(u64, u64)> {
        let own = all.iter().filter(|request| request.stream == stream);
        own.map(|request| (request.at.0, request.offset)).collect()
    };
    let mut deviations = Vec::new();
    for stream in 0..2 {
        for ((due, place), (at, was)) in of(&planned, stream).into_iter().zip(of(&issued, stream)) {
            assert_eq!(place, was, "in order");
            deviations.push(at as i64 - due as i64);
        }
    }
    // What is told follows from what is kept; readers count from the first request.
    let told = |name: &str| count(&report, &format!("/repeats/0/deviation_ns/{name}")) as i64;
    let range = deviations.iter().max().unwrap() - deviations.iter().min().unwrap();
    assert_eq!(range, told("max") - told("min"));
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "the file made is gone");
}

#[test]
fn several_traces_are_a_stream_each_and_other_formats_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let one = small_trace(folder.path());
    let other = path(folder.path(), "other.parquet");
    prints(&["trace", "convert", &one, "-o", &other, "--to", "500 ms"]);
    let wrap = ["--beyond", "wrap", "--size", "8MiB", "--pace", "max", "--queue-depth", "8"];
    let report = replay(&[&wrap[..], &[&one, &other, folder.path().to_str().unwrap()]].concat());
    assert_eq!(count(&report, "/replay/streams"), 2);
    assert_eq!(count(&report, "/requests/devices"), 2);
    assert_eq!(count(&report, "/repeats/0/total/requests"), 1500);
    assert!(count(&report, "/requests/wrapped") > 1000, "{report}");
    assert_eq!(report["requests"]["files"][1]["format"], "parquet");
    let (code, error) = fails(&["replay", &one, folder.path().to_str().unwrap(), "--size", "8MiB"]);
    assert!(code == 2 && error.contains("--beyond wrap"), "{error}");
}

#[test]
fn generated_workloads_and_rates_come_by_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().to_str().unwrap();
    let report = replay(&[
        "--pattern",
        "random",
        "--rw",
        "rw",
        "--request",
        "4KiB",
        "--size",
        "256KiB",
        "--pace",
        "500",
        "--warmup",
        "50 ms",
        "--buffered",
        target,
    ]);
    let total = count(&report, "/repeats/0/total/requests");
    assert!((90..=110).contains(&total), "128 in 256 ms, of which 50 ms are not counted: {total}");
    assert_eq!(
        (report["target"]["direct"].as_bool(), &report["replay"]["pace"]),
        (Some(false), &"rate".into())
    );
    let (code, error) = fails(&["replay", "--workload", "rand-r", target]);
    assert!(code == 2, "{error}");
}

#[test]
fn an_external_meter_is_integrated_with_its_accuracy() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, csv) = (small_trace(folder.path()), path(folder.path(), "watts.csv"));
    // 40 W and 10 W more each second, four samples a second, from now on for two minutes.
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let watts = |at: f64| 40.0 + 10.0 * (at - now);
    let mut text = String::from("unix_s,watts\n# a comment\nnonsense\n");
    for number in -8..480 {
        let at = now + f64::from(number) * 0.25;
        text += &format!(
            "{at:.3},{:.6}\n{}",
            watts((at * 1e3).round() / 1e3),
            match number {
                0 => "1,2\nNaN,NaN\n9e99,-5\n",
                _ => "",
            }
        );
    }
    fs::write(&csv, text).unwrap();
    let run = path(folder.path(), "run");
    let report = replay(&[
        "--meter-csv",
        &csv,
        "--meter-accuracy",
        "0.5 % + 2 W",
        "--beyond",
        "wrap",
        "--size",
        "8MiB",
        "-o",
        &run,
        &trace,
        folder.path().to_str().unwrap(),
    ]);
    let (repeat, energy) = (&report["repeats"][0], &report["repeats"][0]["energy"][0]);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{report}"));
    let start = number(&repeat["start_unix_s"]);
    let seconds = number(&repeat["seconds"]);
    let (from, to) = (start, start + seconds);
    let wanted = (watts(from) + watts(to)) / 2.0 * seconds;
    let joules = number(&energy["joules"]);
    assert!((joules / wanted - 1.0).abs() < 1e-3, "{joules} instead of {wanted}");
    let off = 0.005 * joules + 2.0 * seconds;
    assert!((number(&energy["joules_interval"][1]) - joules - off).abs() < 1e-6 * joules);
    let bytes = number(&repeat["total"]["bytes"]);
    assert!((number(&energy["bytes_per_joule"]) / (bytes / joules) - 1.0).abs() < 1e-9);
    let low = number(&energy["bytes_per_joule_interval"][0]);
    assert!((low / (bytes / (joules + off)) - 1.0).abs() < 1e-9);
    let skipped: u64 =
        energy["skipped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!((skipped, energy["origin"].as_str()), (4, Some("measured")), "{energy}");
    // The same from the raw samples.
    let samples = fs::read_to_string(format!("{run}/samples.csv")).unwrap();
    assert_eq!(samples.lines().next(), Some("meter,t_s,unix_s,watts,joules"));
    assert_eq!(samples.lines().count(), 489);
}

#[test]
fn a_command_meters_and_one_that_says_nothing_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, target) = (small_trace(folder.path()), folder.path().to_str().unwrap());
    let wrap = ["--beyond", "wrap", "--size", "8MiB", "--sample", "200 ms", &trace, target];
    for command in ["echo 50", "while :; do echo 50 W; sleep 0.2; done"] {
        let slowly = ["--meter-command", command, "--rate-scale", "0.1"];
        let report = replay(&[&slowly, &wrap[..]].concat());
        let watts = report["repeats"][0]["energy"][0]["watts"].as_f64().unwrap();
        assert!((watts - 50.0).abs() < 1e-6, "{command}: {report}");
    }
    // A decimal comma is read where a semicolon divides, and refused where a comma may divide.
    let comma = "while :; do echo \"$(date +%s,%N);35,4\"; sleep 0.2; done";
    let slowly = ["--meter-command", comma, "--rate-scale", "0.1"];
    let report = replay(&[&slowly, &wrap[..]].concat());
    let watts = report["repeats"][0]["energy"][0]["watts"].as_f64().unwrap();
    assert!((watts - 35.4).abs() < 1e-6, "{report}");
    for (command, key, said) in [
        (
            "while :; do echo \"$(($(date +%s) + 3600)),5\"; sleep 0.2; done",
            "of",
            "s after (is its",
        ),
        ("echo outlet,power_w; echo 1,50; echo 2,60", "failure", "told apart by outlet"),
        ("echo 50", "of", "power without a unit taken in W"),
    ] {
        let report = replay(&[&["--meter-command", command], &slowly[2..], &wrap[..]].concat());
        let told = report["repeats"][0]["energy"][0][key].as_str().unwrap();
        assert!(told.contains(said), "{command}: {report}");
    }
    for (command, why) in [
        ("echo $(date +%s),35,4", "more than a time and watts"),
        ("echo -5; echo huge; echo 1e30", "only lines that are no watts"),
        ("exit 3", "failed 5 times"),
    ] {
        let args = [&["replay", "--meter-command", command], &wrap[..]].concat();
        let (code, error) = fails(&args);
        assert!(code == 2 && error.contains(why), "{command}: {error}");
    }
}

#[test]
fn meters_say_what_they_take_and_why_they_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, target) = (small_trace(folder.path()), folder.path().to_str().unwrap());
    let wrap = ["--beyond", "wrap", "--size", "8MiB", "--sample", "200 ms", &trace, target];
    let meter = |heading: &str, line: &str| {
        format!("printf '{heading}\\n'; while :; do echo \"{line}\"; sleep 0.2; done")
    };
    let date = "$(date -u +%Y/%m/%d), $(date -u +%H:%M:%S.%N)Z";
    for command in [
        meter("date, time, power.draw [W], power.limit [W]", &format!("{date}, 61.50 W, 350 W")),
        meter("Time,Power\\ns,mW", "$(date +%s.%N),61500"),
        meter("time,power,unit", "$(date +%s.%N),0.0615,kW"),
    ] {
        let slowly = ["--meter-command", &command, "--rate-scale", "0.1"];
        let report = replay(&[&slowly, &wrap[..]].concat());
        let watts = report["repeats"][0]["energy"][0]["watts"].as_f64().unwrap();
        assert!((watts - 61.5).abs() < 1e-6, "{command}: {report}");
    }
    let nothing = meter("unix_s,power_w", "$(date +%s.%N),0");
    let nothing = ["replay", "--meter-command", &nothing, "--rate-scale", "0.1"];
    let told = prints(&[&nothing[..], &wrap[..]].concat());
    let words: Vec<&str> = told.split_whitespace().collect();
    assert!(words.join(" ").contains("which says 0 W all the time"), "{told}");
    for (command, why) in [
        (meter("time,power.limit [W]", "$(date +%s),350"), "not measured power"),
        (meter("time,ssj_ops/watt", "$(date +%s),41.2"), "not measured power"),
        (meter("timestamp,power_w", "$(date +%s%3N),41.2"), "as in timestamp_ms"),
        (meter("#d,-,18", "#d,-,18,1230"), "the first line is '#d,-,18'"),
    ] {
        let args = [&["replay", "--meter-command", command.as_str()], &wrap[..]].concat();
        let (code, error) = fails(&args);
        let words: Vec<&str> = error.split_whitespace().collect();
        assert!(code == 2 && words.join(" ").contains(why), "{command}: {error}");
    }
}

#[test]
fn a_shape_of_a_report_says_what_it_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let report = |(time, rate): (&str, &str)| {
        format!("2026-11-25T{time}Z\nDevice r/s w/s %util\nsda {rate} 0 1\n\n")
    };
    let reports = [("10:00:00", "99"), ("10:00:10", "10"), ("10:00:20", "30")].map(report);
    let cut = "2026-11-25T10:00:30Z\nDevice r/s w/s %util\nsda 3";
    fs::write(folder.path().join("io.txt"), reports.concat() + cut).unwrap();
    let workload = path(folder.path(), "w.toml");
    let text = "name = 'w'\n[[arrivals]]\nname = 'a'\nrate = 1000\n\
                access = { block = '4 KiB', read = 1 }\n\
                shape.file = { path = 'io.txt', workload = 'sda', length = '200 ms' }\n";
    fs::write(&workload, text).unwrap();
    let target = folder.path().to_str().unwrap();
    let args = ["replay", "--workload", &workload, "--duration", "200 ms", "--size", "1MiB"];
    let told = prints(&[&args[..], &["--meter", "none", target]].concat());
    let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["the first report (99 r/s, 0 w/s) is not counted", "is cut off and left out"] {
        assert!(words.contains(said), "{told}");
    }
    let sim = prints(&["sim", "--workload", &workload, "--duration", "1 s", "--policy", "native"]);
    let words = sim.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the first report (99 r/s"), "{sim}");
}

#[test]
fn a_replay_keeps_the_recorded_rate_and_says_what_it_widened() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, target) = (path(folder.path(), "cbr.log"), folder.path().to_str().unwrap());
    let line = |at: u64| format!("{} a write {} 4096\n", at * 4_000, at % 16 * 4096);
    let lines: String = (0..250).map(line).collect();
    fs::write(&trace, format!("fio version 3 iolog\n0 a add\n0 a open\n{lines}")).unwrap();
    let info = json(&["trace", "info", &trace, "--json"]);
    assert_eq!(info["requests"], 250);
    assert!((info["seconds"].as_f64().unwrap() - 0.996).abs() < 1e-9);
    let repeat = &replay(&["--size", "1MiB", &trace, target])["repeats"][0];
    let seconds = repeat["seconds"].as_f64().unwrap();
    assert!((0.99..3.0).contains(&seconds), "{repeat}");
    fs::write(&trace, "fio version 3 iolog\n100 /dev/nvme0n1 read 1000 4096\n").unwrap();
    let text = prints(&["replay", "--size", "64KiB", &trace, target]);
    assert!(text.contains("1 requests were widened to whole blocks"), "{text}");
}

#[test]
fn a_simulated_server_is_marked_as_modelled() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, target) = (small_trace(folder.path()), folder.path().to_str().unwrap());
    let wrap = ["--beyond", "wrap", "--size", "8MiB", &trace, target];
    let report = replay(&[&["--meter-profile", "generic-1u"], &wrap[..]].concat());
    let energy = &report["repeats"][0]["energy"][0];
    assert_eq!((&energy["origin"], &energy["meter"]), (&"modelled".into(), &"profile".into()));
    let watts = energy["watts"].as_f64().unwrap();
    let seconds = report["repeats"][0]["seconds"].as_f64().unwrap();
    assert!(watts > 10.0, "{energy}");
    assert!((energy["joules"].as_f64().unwrap() / (watts * seconds) - 1.0).abs() < 1e-9);
    let (code, error) =
        fails(&["replay", "--meter-profile", "generic-1", &trace, target, "--beyond", "wrap"]);
    assert!(code == 2 && error.contains("did you mean 'generic-1u'?"), "{error}");
}

#[test]
fn what_must_not_be_overwritten_is_refused_before_anything_happens() {
    let folder = tempfile::tempdir().unwrap();
    let (precious, run) = (path(folder.path(), "precious"), path(folder.path(), "run"));
    fs::write(&precious, vec![7; 1 << 20]).unwrap();
    let write = ["replay", "--pattern", "contiguous", "--rw", "write", "--size", "512KiB"];
    let (code, error) = fails(&[&write[..], &["-o", &run, &precious]].concat());
    assert!(code == 2 && error.contains("--destroy precious"), "{error}");
    assert!(fs::read(&precious).unwrap().iter().all(|byte| *byte == 7));
    assert!(!Path::new(&run).exists());
    // Reading is always allowed, and with the word so is writing.
    replay(&["--pattern", "contiguous", "--size", "512KiB", &precious]);
    let report = replay(&[&write[1..], &["--destroy", "precious", &precious]].concat());
    assert_eq!(report["target"]["filled"], false);
    assert_eq!(stamp(&fs::read(&precious).unwrap()), Some(0));
    // From now on it is a replay's own.
    replay(&[&write[1..], &[precious.as_str()]].concat());
    for (args, why) in [
        (vec!["/dev/null"], "neither a file, a block device nor a folder"),
        (vec!["/no/such/place"], "name a file, a block device or a folder"),
        (vec!["-o", folder.path().to_str().unwrap(), &precious], "is not empty"),
        (vec!["trace.csv", &precious], "not from both"),
        (vec!["--pace", "recorded", &precious], "a pattern has no times"),
        (vec!["--request", "1000B", &precious], "a multiple of 512 B"),
        (vec!["--meter-accuracy", "1 %", &precious], "there is none"),
    ] {
        let (code, error) = fails(&[&write[..], &args].concat());
        assert!(code == 2 && error.contains(why), "{args:?}: {error}");
    }
}

#[test]
fn an_interrupted_replay_keeps_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, run) = (small_trace(folder.path()), path(folder.path(), "run"));
    let child = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["replay", "--json", "--rate-scale", "0.0001", "--beyond", "wrap", "--size", "4MiB"])
        .args(["-o", &run, &trace, folder.path().to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The folder is there when the first repeat is about to begin.
    while !Path::new(&run).join("planned.parquet").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("replay-1", &report);
    let repeat = &report["repeats"][0];
    assert_eq!((&report["completed"], &repeat["complete"]), (&false.into(), &false.into()));
    assert_eq!(
        count(&report, "/repeats/0/unsent") + count(&report, "/repeats/0/total/requests"),
        1000
    );
    assert!(fs::read_to_string(format!("{run}/repeats.jsonl")).unwrap().lines().count() == 1);
}

#[test]
fn people_see_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().to_str().unwrap();
    let text = prints(&[
        "replay",
        "--pattern",
        "contiguous",
        "--size",
        "1MiB",
        "--repeats",
        "2",
        "--keep",
        target,
    ]);
    for word in ["2 streams", "io_uring", "p99", "Repeat 2", "Median of 2", "kept: "] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let kept = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap();
    assert_eq!(kept.metadata().unwrap().len(), 2 * MIB);
    let mut file = fs::OpenOptions::new().write(true).open(kept.path()).unwrap();
    file.write_all(b"changed by its owner").unwrap();
    let write = ["replay", "--pattern", "contiguous", "--size", "1MiB", "--rw", "write"];
    let (_, error) = fails(&[&write[..], &[kept.path().to_str().unwrap()]].concat());
    assert!(error.contains("not a replay's"), "{error}");
}
