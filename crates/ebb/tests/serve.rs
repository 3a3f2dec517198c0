//! `ebb serve` as a whole command: starting, metrics, status, ending, refusing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;

use crate::common::{ebb, fails, json, path, prints, valid};

/// A running `ebb serve` with metrics; killed when dropped.
pub struct Serve {
    child: Child,
    pub address: String,
    pub metrics: String,
}

impl Serve {
    pub fn start(more: &[&str]) -> Self {
        Self::start_with(None, more)
    }

    /// At this address, with these namespaces alone.
    pub fn at(listen: &str, namespaces: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.args(["serve", "--cores", "0", "--listen", listen, "--metrics", "127.0.0.1:0"]);
        command.args(namespaces.iter().flat_map(|namespace| ["--namespace", namespace]));
        Self::of(&mut command)
    }

    /// Of a file of options.
    pub fn of_file(file: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        Self::of(command.args(["serve", "--config", file]))
    }

    /// Under the shell's `limit`.
    pub fn start_with(limit: Option<&str>, more: &[&str]) -> Self {
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
        let mut command = Command::new("sh");
        let script = format!("{} && exec \"$0\" \"$@\"", limit.unwrap_or("true"));
        command.args(["-c", &script, env!("CARGO_BIN_EXE_ebb")]);
        Self::of(command.args(fixed).args(["--namespace", "ram:8MiB"]).args(more))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut after =
            |prefix: &str| lines.find_map(|line| line.strip_prefix(prefix).map(str::to_owned));
        let address = after("listening on ").unwrap();
        let metrics = after("metrics on http://").unwrap();
        let metrics = metrics.strip_suffix("/metrics").unwrap().to_owned();
        Self { child, address, metrics }
    }

    /// Sends `request` and returns everything that comes back.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // Where too much is said, the answer may come, and the connection end, before all is sent.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer); // a reset ends it too
        answer
    }

    pub fn get(&self, path: &str) -> (String, String) {
        let answer = self.raw(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn scrape(&self) -> Scrape {
        let (head, body) = self.get("/metrics");
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("openmetrics-text"), "{head}");
        Scrape::parse(&body)
    }

    pub fn load(&self, rw: &str) {
        let fixed = ["load", "--connect", &self.address, "--wait", "--duration", "300 ms"];
        json(&[&fixed[..], &["--rw", rw, "--queue-depth", "4", "--json"]].concat());
    }

    /// Writes random data to a namespace.
    pub fn write_random(&self, namespace: u32) {
        let namespace = namespace.to_string();
        let fixed = ["load", "--connect", &self.address, "--wait", "--duration", "500 ms"];
        let what =
            ["--rw", "randwrite", "--block-size", "8KiB", "--namespace", &namespace, "--json"];
        json(&[&fixed[..], &what].concat());
    }

    /// Fills a namespace, reads and writes it, and compares all of it.
    pub fn verify(&self, namespace: u32) {
        let namespace = namespace.to_string();
        let fixed = ["load", "--connect", &self.address, "--wait", "--duration", "300 ms"];
        let what = ["--rw", "randrw", "--fill", "--verify", "--namespace", &namespace, "--json"];
        json(&[&fixed[..], &what].concat());
    }

    /// Ends it in order.
    pub fn end(mut self) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// The core has run: its energy, which is modelled, is above zero.
    fn wait_for_energy(&self) {
        while self.status()["cores"][0]["energy_modelled_j"].as_f64().unwrap() == 0.0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Files that it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// From now on it has so many bytes more of address space.
    pub fn limit_address_space(&self, more: u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let size: u64 = size.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        let most = Some(size * 1024 + more);
        let id = Pid::from_raw(self.child.id() as i32);
        let limit = Rlimit { current: most, maximum: most };
        prlimit(id, Resource::As, limit).unwrap();
    }

    /// What it said on standard error until now, after which it is no more.
    pub fn errors(mut self) -> String {
        let _ = self.child.kill();
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub fn status(&self) -> Value {
        json(&["status", &self.metrics, "--json"])
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// OpenMetrics text, taken apart strictly.
struct Scrape {
    types: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Scrape {
    fn parse(text: &str) -> Self {
        assert!(text.ends_with("# EOF\n"), "{text}");
        let (mut types, mut samples) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(
                    samples.insert(series.trim_end_matches("{}").to_owned(), value).is_none(),
                    "{series} twice"
                );
                let name = series.split('{').next().unwrap();
                let known = |family: &String| {
                    let rest = name.strip_prefix(family.as_str());
                    rest.is_some_and(|rest| {
                        ["", "_total", "_sum", "_count", "_bucket"].contains(&rest)
                    })
                };
                assert!(types.keys().any(known), "{name} has no type");
            }
        }
        Self { types, samples }
    }

    fn of(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("{series} in {:#?}", self.samples))
    }

    /// Sum over all series of a name.
    fn sum(&self, name: &str) -> f64 {
        let is = |series: &str| series.split('{').next() == Some(name);
        self.samples.iter().filter(|(series, _)| is(series)).map(|(_, value)| value).sum()
    }
}

#[test]
fn metrics_grow_with_what_is_done() {
    let serve = Serve::start(&["--scheduler", "interrupt"]);
    let before = serve.scrape();
    let read = "ebb_namespace_commands_total{namespace=\"1\",op=\"read\"}";
    assert_eq!(before.of(read), 0.0);
    serve.load("randread");
    serve.load("randwrite");
    let after = serve.scrape();
    let data = "ebb_namespace_data_bytes_total{namespace=\"1\",op=\"read\"}";
    assert!(after.of(read) > 0.0);
    assert_eq!(after.of(data), 4096.0 * after.of(read));
    for op in ["read", "write"] {
        // Each command is timed once, and the buckets add up.
        let commands =
            after.of(&format!("ebb_namespace_commands_total{{namespace=\"1\",op=\"{op}\"}}"));
        let timed = after.of(&format!("ebb_service_time_seconds_count{{op=\"{op}\"}}"));
        let all = after.of(&format!("ebb_service_time_seconds_bucket{{le=\"+Inf\",op=\"{op}\"}}"));
        assert_eq!((timed, all), (commands, commands));
        let sum = after.of(&format!("ebb_service_time_seconds_sum{{op=\"{op}\"}}"));
        assert!(sum > 0.0 && sum < 60.0 * commands);
    }
    assert_eq!(after.sum("ebb_namespace_errors_total"), 0.0);
    assert!(after.of("ebb_connections_accepted_total") >= 4.0);
    assert!(after.sum("ebb_thread_commands_total") > after.sum("ebb_namespace_commands_total"));
    for (series, value) in &before.samples {
        let family = series.split('{').next().unwrap();
        let kind = after.types.get(family.strip_suffix("_total").unwrap_or(family));
        if kind.is_some_and(|kind| kind == "counter") {
            assert!(after.of(series) >= *value, "{series} went back");
        }
    }
    // What the cores did is all the time there was: within a poll of it.
    let states = after.sum("ebb_core_time_seconds_total");
    let uptime = after.of("ebb_uptime_seconds");
    assert!(states > 0.0 && states <= uptime + 0.1, "{states} {uptime}");
    assert!(after.sum("ebb_core_sleeps_total") > 0.0);
}

#[test]
fn every_metric_is_documented() {
    let serve = Serve::start(&[]);
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    for (name, kind) in serve.scrape().types {
        let name = if kind == "counter" { format!("{name}_total") } else { name };
        assert!(manual.contains(&format!("`{name}`")), "{name} is not in docs/serve.md");
    }
}

#[test]
fn the_status_is_as_its_schema_says_and_readable() {
    let serve = Serve::start(&[]);
    serve.load("randrw");
    let status = serve.status();
    valid("serve-status-1", &status);
    let (head, body) = serve.get("/status");
    assert!(head.contains("application/json"), "{head}");
    valid("serve-status-1", &serde_json::from_str(&body).unwrap());
    assert_eq!(status["server"]["listen"][0], serve.address.as_str());
    assert_eq!(status["server"]["scheduler"], "sandman-plus");
    assert!(status["namespaces"][0]["work"]["read"]["commands"].as_u64().unwrap() > 0);
    let shares = ["busy_share", "wasted_share", "asleep_share"];
    let sum: f64 = shares.iter().map(|name| status["cores"][0][name].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    let latency = &status["service"][0];
    let values = ["p50_s", "p99_s", "p999_s", "max_s"].map(|name| latency[name].as_f64().unwrap());
    assert!(values[0] > 0.0 && values.is_sorted(), "{latency}");

    let text = prints(&["status", &serve.metrics]);
    for words in ["sandman-plus", "(cpu 0)", "W (modelled)", "read", "8 MiB", "listener"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Modelled energy says so wherever it shows; measured energy takes its place.
#[test]
fn energy_says_where_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let empty = path(folder.path(), "empty");
    std::fs::create_dir(&empty).unwrap();
    let serve = Serve::start(&["--powercap", &empty]);
    let status = serve.status();
    valid("serve-status-1", &status);
    assert_eq!(status["energy"][0]["source"], "modelled");
    serve.wait_for_energy();
    let modelled = serve.scrape();
    assert!(modelled.of("ebb_energy_joules_total{domain=\"cores\",source=\"modelled\"}") > 0.0);
    let text = prints(&["status", &serve.metrics]);
    assert!(text.contains("modelled by profile all-flash"), "{text}");

    let zone = folder.path().join("intel-rapl:0");
    std::fs::create_dir(&zone).unwrap();
    let write = |name: &str, text: &str| std::fs::write(zone.join(name), text).unwrap();
    write("name", "package-0\n");
    write("max_energy_range_uj", "262143328850\n");
    write("energy_uj", "262143328000\n");
    let serve = Serve::start(&["--powercap", folder.path().to_str().unwrap()]);
    write("energy_uj", "4999150\n"); // wrapped
    let scrape = serve.scrape();
    assert_eq!(scrape.of("ebb_energy_joules_total{domain=\"package-0\",source=\"measured\"}"), 5.0);
    let all = scrape.samples.keys().filter(|series| series.starts_with("ebb_energy_joules"));
    assert_eq!(all.count(), 1, "measured and modelled are not mixed");
    let status = serve.status();
    valid("serve-status-1", &status);
    assert_eq!(status["energy"][0]["domain"], "package-0");
    serve.wait_for_energy();
}

/// A modelled drive shows its power state and its energy, which say that they are modelled.
#[test]
fn modelled_drives_show_their_power() {
    let serve = Serve::start(&["--namespace", "modelled:1MiB"]);
    let status = serve.status();
    valid("serve-status-1", &status);
    let drives = status["drives"].as_array().unwrap();
    assert_eq!(drives.len(), 1, "{status}");
    assert!(drives[0].get("power_limit_w").is_none(), "{status}");
    assert_eq!((&drives[0]["namespace"], &drives[0]["power_state"]), (&2.into(), &0.into()));
    let scrape = serve.scrape();
    let labels = "{namespace=\"2\",drive=\"pm1743\",source=\"modelled\"}";
    assert_eq!(scrape.of(&format!("ebb_drive_power_state{labels}")), 0.0);
    assert!(scrape.of(&format!("ebb_drive_energy_joules_total{labels}")) > 0.0);
    let text = prints(&["status", &serve.metrics]);
    assert!(text.contains("pm1743 (namespace 2)"), "{text}");
}

/// The frequencies that a scheduler asks for are shown, for `ebb run` to set, and that the server
/// sets none is told and counted.
#[test]
fn what_a_scheduler_asks_of_frequencies_is_shown_and_not_done() {
    let mut serve = Serve::start(&["--scheduler", "governor"]);
    let asked = |status: &Value| status["cores"][0]["frequency_requested_share"].as_f64().unwrap();
    let status = loop {
        let status = serve.status();
        if asked(&status) < 1.0 {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    valid("serve-status-1", &status);
    assert!(asked(&status) >= 0.32, "{status}");
    assert!(status["shifts"]["unmet_frequency_requests"].as_u64().unwrap() > 0);
    assert!(status["shifts"]["last"].as_array().unwrap().is_empty(), "none was carried out");
    let scrape = serve.scrape();
    assert!(scrape.of("ebb_frequency_requests_unmet_total") > 0.0);
    assert!(scrape.of("ebb_core_frequency_requested_ratio{cpu=\"0\"}") < 1.0);
    let text = prints(&["status", &serve.metrics]);
    assert!(text.contains("which `ebb run` can set"), "{text}");
    serve.child.kill().unwrap();
    let mut error = String::new();
    serve.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(error.contains("governor: only `ebb run` sets the frequencies"), "{error}");
}

/// Strangers get no further than a refusal, and do not keep others from asking.
#[test]
fn strangers_are_bounded() {
    let serve = Serve::start(&[]);
    let of = |request: &str| serve.raw(request).lines().next().unwrap_or("").to_owned();
    assert!(of("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").contains("404"));
    assert!(of("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n").contains("405"));
    assert!(of("GET /metrics HTTP/1.1\r\nHost: attacker.example\r\n\r\n").contains("421"));
    assert!(of("nonsense\r\n\r\n").contains("400"));
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(1 << 20));
    assert!(!of(&long).contains("200"));
}

/// Whoever holds connections, and however, others are answered meanwhile; and what is held ends.
#[test]
fn strangers_lock_nobody_out() {
    let serve = Serve::start(&[]);
    let begun = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nA: ";
    let whole = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for said in ["", begun, whole] {
        let held: Vec<_> = (0..200)
            .map(|_| {
                let mut stream = TcpStream::connect(&serve.metrics).unwrap();
                // It may have given way already.
                let _ = stream.write_all(said.as_bytes());
                stream
            })
            .collect();
        for round in 0..5 {
            assert!(serve.scrape().of("ebb_uptime_seconds") > 0.0, "{said:?} in round {round}");
            // One byte more of a header that never ends.
            let more = if said == begun { "a" } else { "" };
            held.iter().for_each(|mut stream| _ = stream.write_all(more.as_bytes()));
        }
        for mut stream in held {
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut rest = String::new();
            let ended = stream.read_to_string(&mut rest).map_err(|error| error.kind());
            assert!(ended != Err(ErrorKind::WouldBlock), "{said:?} is still connected");
            assert!(said == whole || rest.is_empty() || rest.starts_with("HTTP/1.1 408"), "{rest}");
        }
    }
}

#[test]
fn a_signal_ends_it_in_order() {
    let mut serve = Serve::start(&[]);
    serve.load("randread");
    let id = Pid::from_raw(serve.child.id() as i32).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    assert_eq!(serve.child.wait().unwrap().code(), Some(0));
    let (code, error) = fails(&["status", &serve.metrics]);
    assert!(code == 1 && error.contains(&serve.metrics) && error.contains("--metrics"), "{error}");
}

#[test]
fn what_is_not_right_is_refused_with_the_remedy() {
    let ram = ["--namespace", "ram:1MiB"];
    let cases: [(&[&str], &str); 19] = [
        (&[], "--namespace ram:256MiB"),
        (&["--namespace", "ram:1MiB", "--scheduler", "wizard"], "sandman"),
        (&["--namespace", "tape:1MiB"], "tape"),
        (&["--namespace", "ram:1MiB", "--cores", "x"], "0-1,4"),
        (&["--namespace", "ram:1MiB", "--threads", "0"], "--threads 0: must be 1 to"),
        (&["--namespace", "ram:1MiB", "--threads", "65535"], "--threads 65535: must be"),
        (&["--namespace", "ram:1MiB", "--power-profile", "/none.toml"], "/none.toml"),
        (&["--namespace", "ram:1MiB", "--max-transfer", "100KiB"], "--max-transfer: "),
        (&["--namespace", "ram:1MiB", "--queue-depth", "1"], "--queue-depth: "),
        (&["--namespace", "ram:1MiB", "--max-queues", "0"], "--max-queues: "),
        (&["--namespace", "ram:1MiB", "--in-capsule", "1GiB"], "--in-capsule: "),
        (&["--namespace", "ram:1MiB", "--max-connections", "0"], "--max-connections 0"),
        (&["--namespace", "ram:1MiB", "--max-connections", "65536"], "1 to 65535"),
        (&["--namespace", "ram:1MiB", "--buffers", "3"], "--buffers 3: "),
        (&["--namespace", "ram:1MiB", "--stall-after", "0 s"], "--stall-after 0"),
        (&["--namespace", "ram:1MiB", "--dhchap-group", "foo"], "--dhchap-group foo: must be"),
        // What they let hosts use is not there, or what the namespaces take.
        (&["--namespace", "ram:1MiB", "--buffers", "4294967295"], "lower --max-connections"),
        (&["--namespace", "ram:1MiB", "--namespace", "ram:32TiB"], "of memory and hosts may use"),
        (&["--namespace", "ram:1MiB", "--listen", "localhost:4420"], "127.0.0.1:4420"),
    ];
    for (args, words) in cases {
        let (code, error) = fails(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
        assert!(code == 2 && error.contains(words), "{args:?}: {code} {error}");
    }
    // Ports in use.
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = holder.local_addr().unwrap().to_string();
    let listen: &[&str] = &["--listen", &held];
    let metrics: &[&str] = &["--metrics", &held, "--listen", "127.0.0.1:0"];
    for args in [listen, metrics] {
        let (code, error) = fails(&[&["serve"], &ram[..], args].concat());
        assert!(code == 1 && error.contains(&held) && error.contains(args[0]), "{error}");
    }
}

#[test]
fn a_file_says_the_same_as_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "serve.toml");
    let text = "scheduler = \"static\"\nqueue-depth = 16\nnqn = \"nqn.2026-01.test:serve\"\n";
    std::fs::write(&file, text).unwrap();
    let serve = Serve::start(&["--config", &file]);
    let status = serve.status();
    assert_eq!(status["server"]["nqn"], "nqn.2026-01.test:serve");
    assert_eq!(status["server"]["scheduler"], "static");

    std::fs::write(&file, "queue-depth = 16\ncroes = \"0\"\n").unwrap();
    let (code, error) = fails(&["serve", "--config", &file]);
    assert!(code == 2 && error.contains(&file), "{error}");
    assert!(error.contains("line 2") && error.contains("croes"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let (code, error) = fails(&["serve", "--config", &file]);
    assert!(code == 2 && error.contains(&file), "{error}");
    let list = ebb(&["serve", "--scheduler", "list"]);
    assert!(String::from_utf8(list.stdout).unwrap().contains("sandman-plus"));
}

/// An array without a member says so wherever somebody looks.
#[test]
fn a_lost_member_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [a, b, c] = ["a", "b", "c"].map(path);
    let array = format!("raid5:{a},{b},{c},journal=16");
    let open = |text: &str| ebb_target::device::open(&text.parse().unwrap());
    // Where there is no io_uring, there is nothing to ask.
    if open(&format!("file:{},create,size=1MiB", path("probe"))).is_err() {
        return;
    }
    drop(open(&format!("{array},create,size=8MiB")).unwrap());
    std::fs::remove_file(&b).unwrap();
    let mut serve = Serve::start(&["--namespace", &format!("{array},degraded")]);
    let status = serve.status();
    valid("serve-status-1", &status);
    let [ram, health] = [0, 1].map(|at| status["namespaces"][at]["health"].clone());
    assert!(ram.is_null(), "{ram}");
    assert_eq!(
        [&health["degraded"], &health["read_only"]],
        [&serde_json::json!(true), &serde_json::json!(false)]
    );
    assert_eq!(health["failed"], serde_json::json!(["raid5 member 2"]));
    let text = prints(&["status", &serve.metrics]);
    assert!(text.contains("namespace 2 is degraded: without raid5 member 2"), "{text}");
    let (_, metrics) = serve.get("/metrics");
    assert!(metrics.contains("ebb_namespace_degraded{namespace=\"2\"} 1"), "{metrics}");
    let mut lines = BufReader::new(serve.child.stderr.take().unwrap()).lines();
    let told = lines.find_map(|line| line.ok().filter(|line| line.contains("degraded")));
    assert!(told.is_some_and(|line| line.contains("',rebuild'")));
}
