//! The live page of a run, and the events that it reads.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Copy;
use super::metrics::{Run, cycles};
use crate::common::{path, valid};

/// As many pages as may read at once.
const READERS: usize = 16;

/// A page that reads events.
struct Reader(Lines<BufReader<TcpStream>>);

impl Reader {
    fn new(run: &Run) -> Self {
        let mut stream = TcpStream::connect(&run.metrics).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // Chunks would need taking apart; HTTP/1.0 has none.
        stream.write_all(b"GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        let head: Vec<_> =
            (&mut lines).map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
        assert!(head[0].contains("200 OK"), "{head:?}");
        assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
        assert!(head.iter().any(|line| line == "cache-control: no-store"), "{head:?}");
        Self(lines)
    }

    /// The next event, if there is one more: its name and what it says.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut line = || self.0.next()?.ok();
        let name = line()?.strip_prefix("event: ").unwrap().to_owned();
        let data = line()?;
        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(line()?, "");
        Some((name, data))
    }

    /// The status after the next change.
    fn status(&mut self) -> Value {
        let (name, status) = self.next().unwrap();
        assert_eq!(name, "status");
        valid("run-status-1", &status);
        status
    }
}

#[test]
fn the_page_is_one_document_that_may_load_nothing() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc"]);
    let (head, page) = run.ask("GET", "/", "text/html");
    for header in [
        "200 OK",
        "content-type: text/html; charset=utf-8",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "content-security-policy: default-src 'none'; script-src 'sha256-",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    assert!(!head.contains("unsafe"), "{head}");
    // But for the licence of what draws its charts.
    let outside = page.replace("https://github.com/leeoniya/uPlot", "");
    assert!(!outside.contains("://"), "it needs nothing else");
    for (method, path, code) in [
        ("HEAD", "/", "200 OK"),
        ("HEAD", "/events", "200 OK"),
        ("POST", "/", "405 Method Not Allowed"),
        ("DELETE", "/events", "405 Method Not Allowed"),
        ("GET", "/index.html", "404 Not Found"),
        ("GET", "//", "404 Not Found"),
    ] {
        let (head, body) = run.ask(method, path, "*/*");
        assert!(head.contains(code), "{method} {path}: {head}");
        assert!(body.is_empty() || !code.contains("200"), "{method} {path}: {body}");
    }
}

/// A socket of its own, for root alone, where there is no address.
#[test]
fn the_page_is_on_a_socket_as_well() {
    let copy = Copy::new();
    let [socket, config] = ["page.sock", "ebb.toml"].map(|name| path(copy.folder.path(), name));
    fs::write(&config, format!("page = {socket:?}\n")).unwrap();
    let args = copy.run(&["--config", &config, "--quiet"]);
    let mut run = Command::new(env!("CARGO_BIN_EXE_ebb")).args(args).spawn().unwrap();
    let ask = |path: &str| {
        let mut stream = UnixStream::connect(&socket).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost:9421\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    let begun = Instant::now();
    while !ask("/").is_some_and(|page| page.contains("200 OK") && page.contains("</html>")) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let status = ask("/status").unwrap();
    valid("run-status-1", &serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap());
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert!(run.wait().unwrap().success());
    assert!(!fs::exists(&socket).unwrap());
}

#[test]
fn events_are_the_past_and_then_each_status() {
    let copy = Copy::new();
    copy.put("sys/class/hwmon/hwmon1/name", "power_meter");
    copy.put("sys/class/hwmon/hwmon1/power1_average", 212_000_000);
    let run = Run::start(&copy, &["--policy", "eadc"]);
    run.until(|samples| cycles(samples) >= 3.0);
    let mut reader = Reader::new(&run);
    let (name, past) = reader.next().unwrap();
    assert_eq!(name, "history");
    valid("run-history-1", &past);
    let at = past["at_s"].as_array().unwrap();
    let wall = past["series"].as_array().unwrap().iter().find(|one| one["signal"] == "power");
    let wall = wall.unwrap_or_else(|| panic!("{past:#}"));
    assert_eq!(
        (&wall["source"], wall["values"].as_array().unwrap().len()),
        (&"measured".into(), at.len())
    );
    assert_eq!(wall["values"][at.len() - 1], 212.0);
    let first = reader.status();
    let next = reader.status();
    assert_eq!(next["cycles"].as_u64(), first["cycles"].as_u64().map(|before| before + 1));
    assert!(next["unix_s"].as_f64() > first["unix_s"].as_f64());
    let sensor = |name: &str| {
        let all = next["sensors"].as_array().unwrap();
        all.iter().find(|one| one["signal"] == name).unwrap_or_else(|| panic!("{next:#}")).clone()
    };
    let heat = sensor("socket_temperature");
    assert_eq!(
        (&heat["known"], &heat["least"], &heat["modelled"]),
        (&1.into(), &55.0.into(), &0.into())
    );
    let inlet = sensor("inlet_temperature");
    assert_eq!((&inlet["known"], &inlet["least"]), (&0.into(), &Value::Null));
    let tail = sensor("latency_p99");
    let remedy = tail["reasons"][0].as_str().unwrap();
    assert!(remedy.contains("set `serve` in the configuration"), "{tail:#}");
    let decided = next["decided"].as_u64().unwrap();
    assert!(decided > 0 && decided >= next["changes"].as_array().unwrap().len() as u64);
}

/// Makers of drives write what they like.
#[test]
fn a_name_stays_text() {
    let name = "</script><img src=x onerror=alert(1)>\"\\";
    let copy = Copy::new();
    let page = {
        let plain = Run::start(&copy, &["--policy", "eadc"]);
        plain.ask("GET", "/", "*/*").1
    };
    copy.put("sys/block/sda/device/wwid", name);
    let run = Run::start(&copy, &["--policy", "eadc+pacman", "--ssd-budget", "50 W"]);
    assert_eq!(run.ask("GET", "/", "*/*").1, page, "nothing of the machine stands in the page");
    run.until(|samples| cycles(samples) >= 2.0);
    let mut reader = Reader::new(&run);
    valid("run-history-1", &reader.next().unwrap().1);
    // One line each, whatever is in it.
    let status = reader.status();
    assert!(status.to_string().contains("onerror"), "{status:#}");
}

#[test]
fn a_reader_that_stalls_loses_events_that_are_counted_and_stops_nothing() {
    let copy = Copy::new();
    let config = copy.folder.path().join("ebb.toml");
    std::fs::write(&config, "period = \"100 ms\"\n").unwrap();
    let run = Run::start(&copy, &["--policy", "eadc", "--config", config.to_str().unwrap()]);
    let mut stalled = TcpStream::connect(&run.metrics).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&stalled, 4096).unwrap();
    stalled.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut reader = Reader::new(&run);
    reader.next().unwrap();
    let unread = "ebb_run_events_unread_total";
    let begun = Instant::now();
    let first = reader.status()["cycles"].as_u64().unwrap();
    loop {
        // The others go on.
        let now = reader.status()["cycles"].as_u64().unwrap();
        if now > first && now.is_multiple_of(10) && run.samples()[unread] > 0.0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it was never found to be slow");
    }
    // The daemon itself has lost none.
    assert_eq!(run.samples()["ebb_run_events_lost_total"], 0.0);
}

#[test]
fn pages_beyond_the_bound_displace_the_oldest() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc"]);
    let mut oldest = Reader::new(&run);
    oldest.next().unwrap();
    let mut others: Vec<_> = (0..READERS).map(|_| Reader::new(&run)).collect();
    others.iter_mut().for_each(|reader| assert!(reader.next().is_some()));
    while oldest.next().is_some() {}
    others.iter_mut().for_each(|reader| drop((reader.status(), reader.status())));
}
