//! Alerts and dashboard in a real Prometheus, where there is one (Debian's package `prometheus`).

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::Copy;
use super::metrics::Run;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success())
}

#[test]
fn alerts_fire_when_they_should() {
    if !is_there("promtool") {
        println!("skipped: no promtool");
        return;
    }
    for args in [["check", "rules", "ebb-alerts.yml"], ["test", "rules", "ebb-alerts-test.yml"]] {
        let mut command = Command::new("promtool");
        let done = command.args(args).current_dir(folder().join("prometheus")).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stdout));
    }
}

/// One that asks a run each second; ended when dropped.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(own: &Path, target: &str) -> Self {
        // Free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let rules = folder().join("prometheus/ebb-alerts.yml").canonicalize().unwrap();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\n\
             scrape_configs: [{{job_name: ebb, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        fs::write(own.join("prometheus.yml"), config).unwrap();
        let mut command = Command::new("prometheus");
        command.current_dir(own).arg("--config.file=prometheus.yml");
        command.args(["--storage.tsdb.path=data", &format!("--web.listen-address={address}")]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, address }
    }

    /// What it answers, if it does.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// What an expression gives now.
    fn query(&self, expression: &str) -> Option<Value> {
        let plain = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        let query: String = expression.bytes().map(plain).collect();
        self.ask(&format!("/api/v1/query?query={query}"))
    }
}

/// The expressions of the dashboard, as Grafana asks.
fn expressions() -> Vec<String> {
    let text = fs::read_to_string(folder().join("grafana/ebb.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let of = |target: &Value| target["expr"].as_str().unwrap().to_owned();
    let asked = |text: String| text.replace("$instance", ".*").replace("$__rate_interval", "20s");
    targets.map(of).map(asked).collect()
}

#[test]
fn each_expression_tells_what_a_run_shows() {
    if !is_there("prometheus") {
        println!("skipped: no prometheus");
        return;
    }
    let own = tempfile::tempdir().unwrap();
    let copy = Copy::new();
    copy.put("sys/class/hwmon/hwmon1/name", "power_meter");
    copy.put("sys/class/hwmon/hwmon1/power1_average", 212_000_000);
    let run = Run::start(&copy, &["--policy", "eadc"]);
    let prometheus = Prometheus::start(own.path(), &run.metrics);
    let (_, shown) = run.ask("GET", "/metrics", "text/plain");
    let samples = shown.lines().filter(|line| !line.starts_with('#'));
    let shown: BTreeSet<_> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    // Rates need two looks.
    let count = "min(count_over_time(ebb_signal_power_watts[1m]))";
    let seen = || Some(prometheus.query(count)?["data"]["result"][0]["value"][1].as_str()? >= "3");
    while seen() != Some(true) {
        thread::sleep(Duration::from_millis(200));
    }
    let mut with_data = 0;
    for expression in expressions() {
        let answer = prometheus.query(&expression).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let is_shown = words.filter(|word| word.starts_with("ebb_")).all(|of| shown.contains(of));
        let has_data = answer["data"]["result"].as_array().is_some_and(|all| !all.is_empty());
        assert!(has_data || !is_shown, "{expression}: {answer}");
        with_data += usize::from(has_data);
    }
    assert!(with_data >= 5, "{with_data}");
    let rules = prometheus.ask("/api/v1/rules").unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() >= 6 && rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");
    assert!(rules.iter().all(|rule| rule["state"] != "firing"), "{rules:?}");
}
