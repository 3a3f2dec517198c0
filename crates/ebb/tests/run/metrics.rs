//! What a run shows of itself over HTTP.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ebb_policy::Control;
use ebb_policy::table::SIGNALS;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Copy, worker};
use crate::common::{fails, json, prints, valid};

/// A run that shows its metrics; ended when dropped.
pub struct Run {
    child: Child,
    pub metrics: String,
}

impl Run {
    pub fn start(copy: &Copy, more: &[&str]) -> Self {
        let args = copy.args(&[&["run", "--metrics", "127.0.0.1:0", "--json"], more].concat());
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let metrics = lines.find_map(|line| {
            let event: Value = serde_json::from_str(&line).unwrap();
            valid("run-1", &event);
            let address = event["text"].as_str()?.strip_prefix("metrics on http://")?;
            Some(address.strip_suffix("/metrics")?.to_owned())
        });
        // Its reader goes on reading: an observer ends with it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, metrics: metrics.unwrap() }
    }

    fn get(&self, path: &str, accept: &str) -> (String, String) {
        self.ask("GET", path, accept)
    }

    pub fn ask(&self, method: &str, path: &str, accept: &str) -> (String, String) {
        self.ask_by("localhost", method, path, accept)
    }

    fn ask_by(&self, host: &str, method: &str, path: &str, accept: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn scrape(&self) -> String {
        self.get("/metrics", "*/*").1
    }

    pub fn samples(&self) -> BTreeMap<String, f64> {
        let text = self.scrape();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.trim_end_matches("{}").to_owned(), value.parse().unwrap())
        };
        lines.map(sample).collect()
    }

    /// The samples once there are such.
    pub fn until(&self, is: impl Fn(&BTreeMap<String, f64>) -> bool) -> BTreeMap<String, f64> {
        let begun = Instant::now();
        loop {
            let samples = self.samples();
            if is(&samples) {
                return samples;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{samples:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

const CYCLES: &str = "ebb_run_cycles_total";

pub fn cycles(samples: &BTreeMap<String, f64>) -> f64 {
    samples.get(CYCLES).copied().unwrap_or_default()
}

#[test]
fn names_and_help_are_those_of_the_table() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc"]);
    let asked = "ebb_control_fan_duty_ratio{fan=\"fan0\",value=\"asked\"}";
    let samples = run.until(|samples| samples.contains_key(asked));
    assert_eq!(samples["ebb_run_state{state=\"observing\"}"], 1.0);
    assert_eq!(samples["ebb_run_state{state=\"acting\"}"], 0.0);
    let heat = "ebb_signal_socket_temperature_celsius{socket=\"socket0\",source=\"measured\"}";
    assert_eq!(samples[heat], 55.0);
    // Nothing was tried, and nobody knows what the cores save.
    assert!(samples[asked] > 0.0, "{samples:#?}");
    for none in ["\"applied\"", "outcome=", "saving"] {
        assert!(!samples.keys().any(|series| series.contains(none)), "{none}: {samples:#?}");
    }
    let late = |end: &str| samples[&format!("ebb_run_lateness_seconds_bucket{{le=\"{end}\"}}")];
    assert_eq!(late("+Inf"), cycles(&samples));
    let (head, open) = run.get("/metrics", "application/openmetrics-text");
    assert!(head.contains("openmetrics-text") && open.ends_with("# EOF\n"), "{head}");
    let (head, older) = run.get("/metrics", "text/plain;version=0.0.4");
    assert!(head.contains("text/plain; version=0.0.4") && !older.contains("# EOF"), "{head}");
    assert!(older.contains("# TYPE ebb_run_cycles_total counter\n"), "{older}");
    // Of the table, or of the page.
    let page = include_str!("../../../../docs/run.md");
    let signals = SIGNALS.iter().map(|row| (format!("ebb_signal_{}", row.name), row.text));
    let of_control = |control: &Control| (control.row().name, control.row().text);
    let controls = Control::ALL.iter().map(of_control);
    let controls = controls.map(|(name, text)| (format!("ebb_control_{name}"), text));
    let table: Vec<_> = signals.chain(controls).collect();
    for line in open.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').unwrap();
        let of_table = table.iter().any(|(row, text)| {
            let row = row.trim_end_matches("_hz").trim_end_matches("_seconds");
            name.starts_with(row) && help.trim_end_matches('.') == text.trim_end_matches('.')
        });
        let counted = format!("`{name}_total`");
        let is_told = page.contains(&format!("`{name}`")) || page.contains(&counted);
        assert!(of_table || is_told || name.ends_with("_outcome"), "{name} is not in docs/run.md");
    }
}

/// A range where the load of cores is sensed, and a loss where requests are.
#[test]
fn a_saving_has_a_range_and_its_price() {
    let copy = Copy::new();
    let file = |path: &str| fs::File::create(copy.folder.path().join("root").join(path)).unwrap();
    let (stat, disks) = (file("proc/stat"), file("proc/diskstats"));
    let mut at = 0;
    let mut work = || {
        at += 1;
        let line = |cpu| format!("cpu{cpu} {at:09} 0 0 {:09} 0 0 0 0\n", 9 * at);
        stat.write_all_at((0..4).map(line).collect::<String>().as_bytes(), 0).unwrap();
        let disk = format!("8 0 sda {at:09} 0 {:09} {at:09} 0 0 0 0 0 {at:09} {at:09}\n", 8 * at);
        disks.write_all_at(disk.as_bytes(), 0).unwrap();
    };
    work();
    let run = Run::start(&copy, &["--policy", "constant(cores=0.5)"]);
    let bound = |bound: &str| {
        format!("ebb_run_saving_possible_watts{{bound=\"{bound}\",source=\"modelled\"}}")
    };
    let begun = Instant::now();
    loop {
        work();
        let samples = run.samples();
        let bounds = ["least", "most"].map(|of| samples.get(&bound(of)).copied());
        let status: Value = serde_json::from_str(&run.get("/status", "*/*").1).unwrap();
        valid("run-status-1", &status);
        if let ([Some(least), Some(most)], Some(loss)) = (bounds, status["would_lose"].as_f64())
            && least < most
            && loss > 0.0
        {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{samples:#?} {status:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_is_applied_has_an_outcome() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc", "--apply"]);
    let applied = "ebb_control_fan_duty_ratio{fan=\"fan0\",value=\"applied\"}";
    let samples = run.until(|samples| samples.contains_key(applied));
    assert_eq!(samples[applied], samples[&applied.replace("applied", "given")]);
    assert_eq!(samples["ebb_control_fan_duty_outcome{fan=\"fan0\",outcome=\"done\"}"], 1.0);
    assert!(samples.keys().any(|series| series.starts_with("ebb_run_decisions_total{")));
    assert_eq!(copy.fan(), "1");
}

/// Ebb takes cores from what then runs on the others: control must not wait behind that. Who is
/// asked comes last.
#[test]
fn who_acts_comes_first() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc", "--apply"]);
    run.until(|samples| cycles(samples) > 0.0);
    let nice = |stat: String| -> i32 {
        let fields = stat.rsplit_once(") ").unwrap().1;
        fields.split(' ').nth(16).unwrap().parse().unwrap()
    };
    let of = |task: &str| nice(fs::read_to_string(format!("/proc/{task}/stat")).unwrap());
    let own = of("self");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    // CAP_SYS_NICE (`include/uapi/linux/capability.h`).
    let may = u64::from_str_radix(held.trim(), 16).unwrap() & 1 << 23 != 0;
    let supervisor = run.child.id();
    let worker = worker(&run.child).as_raw_nonzero();
    let first = if may { -20 } else { own };
    assert_eq!([of(&supervisor.to_string()), of(&worker.to_string())], [first; 2]);
    let tasks = fs::read_dir(format!("/proc/{worker}/task")).unwrap();
    let tasks = tasks.map(|task| task.unwrap().path());
    let asked = |task: &PathBuf| fs::read_to_string(task.join("comm")).unwrap() == "ebb-metrics\n";
    let asked: Vec<_> = tasks.filter(asked).collect();
    assert_eq!(asked.len(), 1);
    assert_eq!(nice(fs::read_to_string(asked[0].join("stat")).unwrap()), 10);
}

/// A page of another site may have its name stand for this address.
#[test]
fn a_name_that_was_not_allowed_is_told_nothing() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc", "--metrics-name", "storage7.example"]);
    for path in ["/", "/events", "/metrics", "/status", "/none"] {
        let (head, body) = run.ask_by("attacker.example:9421", "GET", path, "*/*");
        assert!(head.starts_with("HTTP/1.1 421 ") && !head.contains("policy"), "{path}: {head}");
        assert!(body.contains("--metrics-name") && body.lines().count() == 1, "{path}: {body}");
    }
    for host in ["storage7.example:9421", &run.metrics] {
        let (head, _) = run.ask_by(host, "GET", "/status", "*/*");
        assert!(head.starts_with("HTTP/1.1 200 "), "{host}: {head}");
    }
    for command in [&["run"][..], &["serve", "--namespace", "ram:1MiB"]] {
        let (code, error) = fails(&[command, &["--metrics-name", "a"]].concat());
        assert!(code == 2 && error.contains("without metrics"), "{error}");
    }
    let (code, error) = fails(&["run", "--metrics", "127.0.0.1:0", "--metrics-name", "a:1"]);
    assert!(code == 2 && error.contains("without a port"), "{error}");
}

/// Who asks and never reads the answer, or says nothing, delays no cycle.
#[test]
fn scrapers_that_do_not_read_delay_nothing() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc"]);
    let mut silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&run.metrics).unwrap()).collect();
    for stream in silent.iter_mut().step_by(2) {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    let before = cycles(&run.until(|samples| cycles(samples) > 0.0));
    let samples = run.until(|samples| cycles(samples) > before + 3.0);
    assert_eq!(samples["ebb_run_events_lost_total"], 0.0);
    drop(silent);
}

#[test]
fn the_status_says_what_is_in_force_why_and_what_is_missing() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc"]);
    run.until(|samples| samples.keys().any(|series| series.contains("value=\"given\"")));
    let status = json(&["status", &run.metrics, "--json"]);
    valid("run-status-1", &status);
    assert_eq!(status["state"], "observing");
    let fan = status["controls"].as_array().unwrap().iter().find(|one| one["of"] == "fan0");
    let fan = fan.unwrap_or_else(|| panic!("{status:#}"));
    assert!(fan["given"].is_number() && fan["since_s"].is_number(), "{fan}");
    assert!(fan["reason"].as_str().unwrap().contains(':') && fan["applied"].is_null(), "{fan}");
    assert!(status["absent"].as_array().unwrap().contains(&"power".into()), "{status:#}");
    assert!(status["saving"].is_null(), "{status:#}");
    let text = prints(&["status", &run.metrics]);
    for words in ["ebb run: observing", "fan_duty", "saving not known", "not sensed here: "] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
