//! `ebb load` as a whole command, against a peer that behaves, and one that does not.

use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ebb_nvme::Status;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{data, ebb, fails, json, prints, spawn, valid};
use crate::peer::{Config, Fault, Peer, disks};
use crate::serve::Serve;

/// Arguments against `peer`, and more.
fn against<'a>(address: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["load", "--connect", address, "--wait"], more].concat()
}

fn address(peer: &Peer) -> String {
    peer.address().to_string()
}

fn count(value: &Value, name: &str) -> u64 {
    value.pointer(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("{name} in {value}"))
}

/// The requests a run makes come to the peer, and the report says so.
#[test]
fn a_closed_loop_counts_what_it_did() {
    let peer = Peer::start(Config { reorder: true, ..Config::default() });
    let address = address(&peer);
    let args = against(
        &address,
        &["--namespace", "1", "--rw", "randrw", "--mix", "70", "--duration", "1 s", "--json"],
    );
    let more = ["--queue-depth", "8", "--connections", "3", "--digest", "header,data"];
    let report = json(&[&args[..], &more].concat());
    valid("load-1", &report);
    assert_eq!(report["completed"], true);
    let requests = count(&report, "/total/requests");
    assert_eq!(requests, peer.served());
    assert_eq!(count(&report, "/total/bytes"), requests * 4096);
    assert_eq!(count(&report, "/total/latency_ns/count"), requests);
    let latency = &report["total"]["latency_ns"];
    let order = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let values: Vec<u64> = order.iter().map(|name| latency[name].as_u64().unwrap()).collect();
    assert!(values.is_sorted(), "{latency}");
    let of = |op: &str| count(&report, &format!("/by_op/{op}/requests"));
    assert_eq!(of("read") + of("write"), requests);
    assert!(requests < 100 || of("read") > of("write"));
    let disconnects = peer.shared.disconnects.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(disconnects, 3, "each I/O queue ends in order");
}

#[test]
fn both_namespaces_and_sequential_writes() {
    let peer = Peer::start(Config::default());
    let address = address(&peer);
    let more = ["--rw", "write", "--duration", "200 ms", "--block-size", "16 KiB", "--json"];
    let report = json(&against(&address, &more));
    assert_eq!(report["target"]["namespaces"].as_array().unwrap().len(), 2);
    assert_eq!(count(&report, "/by_op/write/requests"), peer.served());
    let disks = peer.shared.disks.lock().unwrap();
    assert!(disks.values().all(|disk| disk.data[..16384].iter().any(|byte| *byte != 0)));
}

/// An open loop counts from the intended start: what waits behind a slow answer is slow too.
#[test]
fn an_open_loop_follows_its_schedule() {
    let peer = Peer::start(Config::default());
    let address = address(&peer);
    let more = ["--rate", "200", "--burst", "100 ms every 500 ms at 2k", "--duration", "1 s"];
    let report =
        json(&against(&address, &[&more[..], &["--arrival", "constant", "--json"]].concat()));
    valid("load-1", &report);
    // 2 × (0.4 s × 200 + 0.1 s × 2000); a machine under load sends late, but sends.
    let all = count(&report, "/total/requests") + count(&report, "/unsent");
    assert!((550..=570).contains(&all), "{all}");
    let part = |name: &str| {
        report.pointer(&format!("/bursts/{name}/count")).and_then(Value::as_u64).unwrap_or(0)
    };
    assert_eq!(report["load"]["burst"]["rate"], 2000.0);
    assert_eq!(part("between") + part("onset") + part("rest"), count(&report, "/total/requests"));
    assert_eq!(count(&report, "/send_delay_ns/count"), count(&report, "/total/requests"));
}

#[test]
fn verify_proves_every_kind_of_load() {
    for (digest, success) in [("header", true), ("data", false)] {
        let config =
            Config { success, reorder: true, piece: 3000, in_capsule: 512, ..Config::default() };
        let peer = Peer::start(config);
        let address = address(&peer);
        let more = ["--rw", "randrw", "--queue-depth", "16", "--connections", "2", "--verify"];
        let time = ["--duration", "400 ms", "--digest", digest, "--json", "--size", "256 KiB"];
        let report = json(&against(&address, &[&more[..], &time].concat()));
        valid("load-1", &report);
        assert_eq!(count(&report, "/verify/wrong_blocks"), 0);
        assert_eq!(report["verify"]["read_back"], true);
        assert!(count(&report, "/verify/right_blocks") > 0);
    }
}

#[test]
fn after_a_fill_nothing_is_unknown() {
    let peer = Peer::start(Config::default());
    let address = address(&peer);
    let more = ["--verify", "--fill", "--duration", "200 ms", "--json", "--rw", "randread"];
    let report = json(&against(&address, &more));
    assert_eq!(count(&report, "/verify/unknown_blocks"), 0);
    // The read-back alone reads all of both namespaces.
    assert!(count(&report, "/verify/right_blocks") >= 1024 + 2048);
    assert_eq!(count(&report, "/verify/wrong_blocks"), 0);
}

/// Each lie about data is found, with the place, and ends with exit code 1.
#[test]
fn verify_finds_what_a_target_damages() {
    let cases = [
        // The fill writes 4 MiB in 32 pieces: what nothing overwrites stays lost.
        (Fault::LoseWrite, 3, "lost write"),
        (Fault::Misdirect, 3, "astray"),
        (Fault::FlipBit, 32 + 2, "1 of 4096 bytes differ"),
    ];
    for (fault, after, words) in cases {
        let peer = Peer::start(Config { fault: Some((fault, after)), ..Config::default() });
        let address = address(&peer);
        let more = ["--verify", "--fill", "--duration", "300 ms", "--namespace", "1"];
        let output = ebb(&against(&address, &more));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{fault:?}: {text}{error}");
        assert!(error.contains("differ from what was written"), "{error}");
        assert!(text.contains(words), "{fault:?}: {text}");
        assert!(text.contains("namespace 1, LBA "), "{text}");
    }
}

#[test]
fn a_trace_is_replayed_folded_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let trace = crate::common::small_trace(folder.path());
    let peer = Peer::start(Config::default());
    let address = address(&peer);
    let more = ["--trace", &trace, "--verify", "--speed", "10", "--json"];
    let report = json(&against(&address, &more));
    valid("load-1", &report);
    assert_eq!(count(&report, "/trace/requests"), 1000);
    assert_eq!(count(&report, "/total/requests"), 1000);
    assert!(count(&report, "/trace/folded") > 900);
    assert_eq!(count(&report, "/by_op/write/requests"), 250);
    assert_eq!(count(&report, "/verify/wrong_blocks"), 0);
    let text = prints(&against(&address, &["--trace", &trace, "--speed", "20"]));
    assert!(text.contains("1000 requests") && text.contains("folded onto"), "{text}");
}

/// The real trace of the issue, as fast as it goes.
#[test]
fn the_web_search_trace_is_kept() {
    let Some(data) = data() else { return };
    let file = data.join("traces/mqsim_oltp_websearch/wsrch-small.trace.gz");
    let peer = Peer::start(Config::default());
    let address = address(&peer);
    let file = file.to_str().unwrap();
    let more = ["--trace", file, "--verify", "--speed", "1000", "--duration", "2 s", "--json"];
    let report = json(&against(&address, &more));
    assert_eq!(count(&report, "/verify/wrong_blocks"), 0);
    assert!(count(&report, "/trace/folded") > 0);
}

#[test]
fn wrong_usage_says_what_would_be_right() {
    let peer = Peer::start(Config::default());
    let address = address(&peer);
    let cases: &[(&[&str], &str)] = &[
        (&["--namespace", "7"], "the target has 1, 2"),
        (&["--namespace", "1,1"], "twice"),
        (&["--block-size", "1000 B"], "not a multiple"),
        (&["--block-size", "256 KiB"], "takes at most 128 KiB"),
        (&["--connections", "9"], "grants 8"),
        (&["--queue-depth", "100"], "more than the 127"),
        (&["--queue-depth", "200", "--namespace", "1"], "more than the 127"),
        (&["--offset", "1 MiB"], "leave nothing of namespace 2"),
        (&["--size", "5000 B"], "multiples of namespace 1's blocks"),
        (&["--mix", "70"], "--mix is the share"),
        (&["--cores", "4000"], "may not run on core 4000"),
        (&["--duration", "1 s", "--warmup", "1 s"], "longer than --warmup"),
        (&["--rate", "fast"], "is not a rate"),
        (&["--verify"], "add --fill"),
        (&["--verify", "--rw", "randrw", "--mix", "100"], "add --fill"),
        (&["--burst", "often"], "is not a burst"),
        (&["--trace", "/nowhere"], "/nowhere"),
        (&["--lenient"], "--trace"),
    ];
    for (more, words) in cases {
        let (code, error) = fails(&against(&address, more));
        assert_eq!(code, 2, "{more:?}: {error}");
        assert!(error.contains(words), "{more:?}: {error}");
    }
    let (code, error) = fails(&["load", "--connect", "nonsense"]);
    assert_eq!(code, 2, "{error}");
}

#[test]
fn a_target_that_is_not_there_or_not_ours_is_an_error() {
    let peer = Peer::start(Config::default());
    let address = address(&peer);
    let wrong = against(&address, &["--nqn", "nqn.2014-08.org:nobody"]);
    let (code, error) = fails(&wrong);
    assert!(code == 1 && error.contains("no subsystem nqn.2014-08.org:nobody"), "{error}");
    let unwelcome = against(&address, &["--host-nqn", "nqn.2014-08.org:unwelcome"]);
    let (code, error) = fails(&unwelcome);
    assert!(code == 1 && error.contains("allow-list"), "{error}");
    drop(peer);
    let (code, error) = fails(&against(&address, &[]));
    assert!(code == 1 && error.contains("is a target listening there?"), "{error}");
}

#[test]
fn failed_requests_are_counted_by_status() {
    let fault = Some((Fault::Status(Status::WRITE_FAULT), 5));
    let peer = Peer::start(Config { fault, ..Config::default() });
    let address = address(&peer);
    let output = ebb(&against(&address, &["--rw", "randwrite", "--duration", "200 ms", "--json"]));
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("load-1", &report);
    assert_eq!(report["errors"][0]["what"], "write fault (type 0x2, code 0x80)");
    assert_eq!(count(&report, "/errors/0/count"), 1);
    assert_eq!(count(&report, "/total/requests"), peer.served());
}

/// A connection that ends, breaks the protocol or falls silent: what was done is reported.
#[test]
fn a_lost_connection_ends_the_run_with_a_report() {
    let cases = [
        (Fault::Close, ""),
        (Fault::CloseInside, "closed the connection"),
        (Fault::DataDigest, "data digest"),
        (Fault::Stall, "no answer"),
    ];
    for (fault, words) in cases {
        let peer = Peer::start(Config { fault: Some((fault, 50)), ..Config::default() });
        let address = address(&peer);
        let more = ["--duration", "60 s", "--json", "--digest", "data", "--timeout", "1 s"];
        let output = ebb(&against(&address, &[&more[..], &["--queue-depth", "4"]].concat()));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{fault:?}: {error}");
        assert!(error.contains(words), "{fault:?}: {error}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        valid("load-1", &report);
        assert_eq!(report["completed"], false);
        assert!(count(&report, "/total/requests") >= 40, "{report}");
        assert!(count(&report, "/interrupted") >= 1);
    }
}

/// The target goes away and comes back with its data: the run goes on, and all is verified.
#[test]
fn reconnecting_goes_on_and_loses_nothing() {
    let disks = disks();
    let first = Peer::start_with(Config::default(), disks.clone(), "127.0.0.1:0".parse().unwrap());
    let at = first.address();
    let address = at.to_string();
    let args = against(
        &address,
        &["--verify", "--rw", "randrw", "--queue-depth", "8", "--duration", "4 s", "--json"],
    );
    let mut child = spawn([&args[..], &["--reconnect", "60"]].concat(), Stdio::piped());
    while first.served() < 20 {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(first);
    std::thread::sleep(Duration::from_millis(300));
    let second = Peer::start_with(Config::default(), Arc::clone(&disks), at);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("load-1", &report);
    assert_eq!(report["outages"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(count(&report, "/verify/wrong_blocks"), 0);
    assert_eq!(count(&report, "/interrupted"), 0);
    assert!(second.served() > 0);
}

#[test]
fn text_is_for_people() {
    let peer = Peer::start(Config::default());
    let address = address(&peer);
    let text = prints(&against(&address, &["--duration", "100 ms", "--namespace", "1"]));
    for words in ["randread of 4 KiB", "p99.99", "client CPU", "closed loop", "Peer"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = crate::common::small_trace(folder.path());
    for (speed, words) in [("20", "at 20 times its speed"), ("1", "in real time")] {
        let replay = ["--trace", &trace, "--speed", speed, "--duration", "100 ms"];
        let text = prints(&against(&address, &replay));
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// The real target keeps what it is given, whatever the load and the digests.
#[test]
fn the_target_keeps_data() {
    let folder = tempfile::tempdir().unwrap();
    let disk = format!("file:{}", crate::common::path(folder.path(), "disk.img"));
    std::fs::File::create(folder.path().join("disk.img")).unwrap().set_len(4 << 20).unwrap();
    let serve = Serve::at("127.0.0.1:0", &["ram:8MiB", &disk]);
    let trace = crate::common::small_trace(folder.path());
    let loads: [&[&str]; 5] = [
        &["--fill", "--rw", "randrw", "--queue-depth", "16", "--connections", "3"],
        &["--rw", "randwrite", "--block-size", "64 KiB", "--digest", "header,data"],
        &["--rw", "rw", "--block-size", "16 KiB", "--digest", "data", "--queue-depth", "4"],
        &["--rate", "2k", "--rw", "randrw", "--digest", "header", "--poll"],
        &["--trace", &trace, "--speed", "5"],
    ];
    for load in loads {
        let fixed = ["load", "--connect", &serve.address, "--verify", "--json"];
        let report = json(&[&fixed[..], load, &["--duration", "500 ms"]].concat());
        valid("load-1", &report);
        assert_eq!(report["completed"], true);
        assert_eq!(report["verify"]["read_back"], true);
        assert_eq!(count(&report, "/verify/wrong_blocks"), 0, "{load:?}");
        assert!(count(&report, "/verify/right_blocks") > 0, "{load:?}");
    }
    let (code, error) = fails(&["load", "--connect", &serve.address, "--namespace", "3"]);
    assert!(code == 2 && error.contains("the target has 1, 2"), "{error}");
}

/// Waits until `seen`, which must be while `load` runs.
fn until<T>(load: &mut Child, what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(seen) = seen() {
            return seen;
        }
        let ended = load.try_wait().unwrap();
        assert!(ended.is_none(), "the load ended before {what}: {ended:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A target that is killed and started again on the same file has lost nothing it answered.
#[test]
fn a_killed_target_comes_back_with_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let disk = format!("file:{}", path.to_str().unwrap());
    std::fs::File::create(&path).unwrap().set_len(2 << 20).unwrap();
    let first = Serve::at("127.0.0.1:0", &[&disk]);
    let address = first.address.clone();
    let what = ["load", "--connect", &address, "--verify", "--fill", "--rw", "randrw", "--json"];
    let how = ["--queue-depth", "8", "--duration", "5 s", "--reconnect", "120"];
    let mut load = spawn([&what[..], &how].concat(), Stdio::piped());
    // Everything was written once, and something again.
    let filled = until(&mut load, "the fill", || {
        let data = std::fs::read(&path).unwrap();
        data.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)).then_some(data)
    });
    until(&mut load, "a write", || (std::fs::read(&path).unwrap() != filled).then_some(()));
    drop(first);
    // The target is away until the load has come back for it.
    let listener = TcpListener::bind(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    until(&mut load, "its outage", || listener.accept().ok());
    drop(listener);
    let second = Serve::at(&address, &[&disk]);
    let output = load.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!report["outages"].as_array().unwrap().is_empty(), "{report}");
    assert_eq!(count(&report, "/verify/wrong_blocks"), 0);
    assert_eq!(report["verify"]["read_back"], true);
    drop(second);
}

/// Ctrl-C ends a load with a report of what it did until then, whatever kind it is.
#[test]
fn an_interrupted_load_reports_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let trace = crate::common::small_trace(folder.path());
    let loads: [&[&str]; 4] = [
        &["--rw", "randrw", "--queue-depth", "4", "--verify"],
        &["--rate", "2k", "--connections", "2", "--poll"],
        &["--trace", &trace, "--speed", "0.001"],
        &["--wait", "--burst", "1 s every 2 s at 1k", "--warmup", "1 ms"],
    ];
    for more in loads {
        let peer = Peer::start(Config::default());
        let address = address(&peer);
        let fixed = ["load", "--connect", &address, "--json", "--duration", "1 h"];
        let mut load = spawn([&fixed[..], more].concat(), Stdio::piped());
        until(&mut load, "its requests", || (peer.served() >= 2).then_some(()));
        kill_process(Pid::from_child(&load), Signal::INT).unwrap();
        let output = load.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{more:?}: {error}");
        assert!(error.contains("interrupted"), "{more:?}: {error}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        valid("load-1", &report);
        assert_eq!(
            (&report["completed"], &report["ended"]),
            (&false.into(), &"interrupted".into())
        );
        assert!(count(&report, "/total/requests") > 0, "{more:?}: {report}");
        assert!(report["seconds"].as_f64().unwrap() < 3000.0, "{report}");
    }
}
