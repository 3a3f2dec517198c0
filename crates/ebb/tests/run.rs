//! `ebb run`, `ebb restore` and `ebb config` on a copy of a machine's files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{ebb, fails, path, prints, spawn, valid};
use crate::serve::Serve;

mod browser;
mod changes;
mod control;
mod jobs;
mod kills;
mod ledger;
mod live;
mod log;
mod metrics;
mod prometheus;
mod reactors;
mod recall;
mod recording;
mod server_budget;
mod top;

/// Four cores, two fans of the board, a warm socket, a disk.
pub struct Copy {
    pub folder: TempDir,
}

pub const CPU: &str = "sys/devices/system/cpu";
pub const CHIP: &str = "sys/class/hwmon/hwmon3";

impl Copy {
    pub fn new() -> Self {
        let copy = Self { folder: tempfile::tempdir().unwrap() };
        copy.put("proc/sys/kernel/random/boot_id", "a6dfd9b5");
        copy.put("proc/stat", "cpu0 1 0 0 9\ncpu1 1 0 0 9\ncpu2 1 0 0 9\ncpu3 1 0 0 9");
        copy.put("proc/diskstats", "8 0 sda 1 0 8 1 1 0 8 1 0 2 2");
        copy.put(&format!("{CPU}/online"), "0-3");
        for cpu in 0..4 {
            copy.put(&format!("{CPU}/cpu{cpu}/topology/physical_package_id"), 0);
            for (file, value) in [
                ("related_cpus", cpu),
                ("cpuinfo_min_freq", 1_000_000),
                ("cpuinfo_max_freq", 3_000_000),
                ("scaling_min_freq", 1_000_000),
                ("scaling_max_freq", 3_000_000),
                ("scaling_cur_freq", 3_000_000),
            ] {
                copy.put(&format!("{CPU}/cpufreq/policy{cpu}/{file}"), value);
            }
        }
        copy.put("sys/class/hwmon/hwmon0/name", "coretemp");
        copy.put("sys/class/hwmon/hwmon0/temp1_input", 55_000);
        copy.put(&format!("{CHIP}/name"), "nct6798");
        for fan in 1..3 {
            copy.put(&format!("{CHIP}/fan{fan}_input"), 5000);
            copy.put(&format!("{CHIP}/pwm{fan}"), 120);
            copy.put(&format!("{CHIP}/pwm{fan}_enable"), 5);
        }
        copy.put("sys/block/sda/device/wwid", "naa.5000c500d5f1a2b3");
        copy.put("sys/block/sda/size", 35_156_656_128_u64);
        copy.put("sys/block/sda/queue/rotational", 1);
        copy
    }

    pub fn put(&self, file: &str, text: impl ToString) {
        let file = self.folder.path().join("root").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text.to_string()).unwrap();
    }

    pub fn get(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join("root").join(file)).unwrap()
    }

    /// The arguments of a command on this machine, with fans as what is steered.
    pub fn args(&self, command: &[&str]) -> Vec<String> {
        let folder = self.folder.path();
        let (root, state) = (path(folder, "root"), path(folder, "state"));
        let own = ["--root", &root, "--state", &state];
        command.iter().chain(&own).map(|arg| (*arg).to_owned()).collect()
    }

    pub fn run(&self, more: &[&str]) -> Vec<String> {
        self.args(&[&["run", "--policy", "eadc"], more].concat())
    }

    /// What `child` says until it ends, with four cores that work a tenth of the time.
    pub fn works(&self, child: Child) -> String {
        let stat = fs::File::create(self.folder.path().join("root/proc/stat")).unwrap();
        let pid = Pid::from_child(&child);
        let works = (1..).take_while(|_| rustix::process::test_kill_process(pid).is_ok());
        let ended = thread::scope(|scope| {
            let ended = scope.spawn(|| child.wait_with_output().unwrap());
            for at in works {
                // Of one length, so that no reader sees a part.
                let line = |cpu| format!("cpu{cpu} {at:09} 0 0 {:09} 0 0 0 0\n", 9 * at);
                stat.write_all_at((0..4).map(line).collect::<String>().as_bytes(), 0).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
            ended.join().unwrap()
        });
        assert!(ended.status.success());
        String::from_utf8(ended.stdout).unwrap()
    }

    /// A second disk, with counters.
    pub fn add_disk(&self) {
        self.put("sys/block/sdb/device/wwid", "naa.5000c500d5f1a2b4");
        self.put("sys/block/sdb/size", 35_156_656_128_u64);
        self.put("sys/block/sdb/queue/rotational", 1);
        self.disks(&["sda", "sdb"], 1);
    }

    /// The disks that are there, and so many reads of each.
    pub fn disks(&self, names: &[&str], count: u32) {
        let line = |name: &&str| format!("8 0 {name} {count} 0 8 1 1 0 8 1 0 2 2\n");
        self.put("proc/diskstats", names.iter().map(line).collect::<String>());
    }

    pub fn fan(&self) -> String {
        self.get(&format!("{CHIP}/pwm1_enable"))
    }

    /// Starts to act and waits until a fan has been taken.
    pub fn start(&self, more: &[&str]) -> Child {
        let child = spawn(self.run(&[&["--apply"], more].concat()), Stdio::null());
        // Before that it is tried once.
        let contact = self.folder.path().join("state/contact.json");
        while !contact.exists() || self.fan() != "1" {
            thread::sleep(Duration::from_millis(20));
        }
        child
    }

    pub fn all(&self) -> Vec<(PathBuf, String)> {
        fn walk(folder: &Path, all: &mut Vec<(PathBuf, String)>) {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => walk(&entry.path(), all),
                    false => all.push((entry.path(), fs::read_to_string(entry.path()).unwrap())),
                }
            }
        }
        let mut all = Vec::new();
        walk(&self.folder.path().join("root"), &mut all);
        all.sort();
        all
    }
}

pub fn str(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// The worker of a supervisor, once it has begun.
fn worker_of(supervisor: &Child) -> Option<Pid> {
    let id = supervisor.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    Pid::from_raw(children.trim().parse().ok()?)
}

fn worker(supervisor: &Child) -> Pid {
    worker_of(supervisor).unwrap()
}

/// The supervisor first stops: it does not see the worker die.
pub fn kill_both(mut supervisor: Child) {
    let id = Pid::from_child(&supervisor);
    kill_process(id, Signal::STOP).unwrap();
    waitpid(Some(id), WaitOptions::UNTRACED).unwrap();
    let worker = worker_of(&supervisor);
    let gone = worker.map(|worker| pidfd_open(worker, PidfdFlags::empty()).unwrap());
    worker.into_iter().for_each(|worker| kill_process(worker, Signal::KILL).unwrap());
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    // It has the lock until the kernel has taken it apart.
    if let Some(gone) = gone {
        poll(&mut [PollFd::new(&gone, PollFlags::IN)], None).unwrap();
    }
}

pub fn ends(child: Child) -> (Option<i32>, String) {
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn observing_is_the_default_and_changes_nothing() {
    let copy = Copy::new();
    let before = copy.all();
    let text = prints(&str(&copy.run(&["--duration", "2 s"])));
    assert!(text.contains("observing"), "{text}");
    assert!(text.contains("would set fans of fan0 and fan1: released -> "), "{text}");
    assert_eq!(copy.all(), before);
    assert!(!copy.folder.path().join("state").exists());
    let text = prints(&str(&copy.run(&["--duration", "2 s", "--json"])));
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    events.iter().for_each(|event| valid("run-1", event));
    let decision = events.iter().find(|event| event["control"] == "fan_duty").unwrap();
    assert!(decision["applied"].is_null(), "nobody tried: {text}");
}

/// What a policy decides is not done while it observes, so what it would have come to is modelled,
/// and named so; what nobody decides is as sensed.
#[test]
fn samples_say_what_is_modelled() {
    let copy = Copy::new();
    for cpu in 0..4 {
        copy.put(&format!("{CPU}/cpufreq/policy{cpu}/scaling_cur_freq"), 1_200_000);
    }
    let last = |policy: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.args(copy.args(&["run", "--policy", policy, "--json", "--samples"]));
        command.args(["--duration", "2 s"]);
        let text = copy.works(command.stdout(Stdio::piped()).spawn().unwrap());
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let samples = events.filter(|event| event["event"] == "sample");
        let sample = samples.inspect(|event| valid("run-1", event)).next_back().unwrap();
        let modelled = sample["modelled"].as_array().unwrap().clone();
        (sample["values"].clone(), modelled)
    };
    let (values, modelled) = last("native");
    assert_eq!(modelled, [""; 0], "{values}");
    assert_eq!(values["resource_volume_cores_frequency_hz"], 1.2e9, "{values}");
    let (values, modelled) = last("constant(cores=0.5)");
    assert_eq!(values["resource_volume_cores_active"], 2.0, "{values}");
    let of_core = |of: &str| Value::from(format!("resource_volume_cores_{of}"));
    assert!(modelled.contains(&of_core("frequency_hz")), "{modelled:?} {values}");
    assert!(modelled.contains(&of_core("utilisation")), "{modelled:?} {values}");
}

#[test]
fn what_offline_cpus_break_is_said_before_it_does() {
    let copy = Copy::new();
    copy.put("sys/class/nvme/nvme0/transport", "tcp");
    copy.put("sys/block/nvme0n1/device/model", "remote");
    copy.put("sys/block/nvme0n1/size", 8);
    copy.put("sys/block/nvme0n1/queue/rotational", 0);
    let config = path(copy.folder.path(), "ebb.toml");
    fs::write(&config, "machine.park_by = \"offline\"").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    let told = |command: &mut Command| String::from_utf8(command.output().unwrap().stderr).unwrap();
    let run = ["run", "--policy", "pacer", "--config", &config, "--duration", "0.1 s"];
    let said = told(command.args(copy.args(&run)));
    assert!(said.contains("nvme0n1 cannot connect again while CPUs are offline"), "{said}");
    fs::write(&config, "machine.park_by = \"cpuset\"").unwrap();
    let said = told(&mut command);
    assert!(!said.contains("offline"), "{said}");
}

/// For people and for programs, where that is what cores are steered by.
#[test]
fn the_source_of_users_latency_is_said() {
    let copy = Copy::new();
    let config = path(copy.folder.path(), "ebb.toml");
    let line = |policy: &str| {
        let run = ["run", "--policy", policy, "--config", &config, "--duration", "0.1 s"];
        let says = |more: &[&str]| {
            let done = ebb(&str(&copy.args(&[&run[..], more].concat())));
            String::from_utf8(done.stdout).unwrap()
        };
        let (text, json) = (says(&[]), says(&["--json"]));
        let events = json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut events = events.inspect(|event| valid("run-1", event));
        let of = |text: &str| text.split_once("users' latency is ").map(|(_, is)| is.to_owned());
        let said = events.find_map(|event| of(event["text"].as_str()?));
        assert_eq!(said, text.lines().find_map(of), "{text}");
        said.unwrap_or_default()
    };
    fs::write(&config, "").unwrap();
    let alone = line("pacer");
    assert!(alone.starts_with("block: at the drives alone"), "{alone}");
    assert!(alone.contains("no /proc/schedstat") && alone.contains("50 % utilisation"), "{alone}");
    assert_eq!(line("eadc"), "");
    copy.put("proc/schedstat", "version 16\ntimestamp 9\ncpu0 0 0 0 0 0 0 9 9 9\n");
    let with = line("pacer-plus");
    assert!(with.starts_with("block+cpu: "), "{with}");
    fs::write(&config, "serve = \"127.0.0.1:9\"").unwrap();
    let served = line("pacer");
    assert!(served.starts_with("served: "), "{served}");
}

/// Each request counts, with percentiles; a server that is gone is not one at rest.
#[test]
fn users_io_is_what_ebb_serve_counts() {
    let copy = Copy::new();
    let serve = Serve::start(&[]);
    let config = path(copy.folder.path(), "ebb.toml");
    fs::write(&config, format!("serve = \"{}\"\nperiod = \"100 ms\"", serve.metrics)).unwrap();
    let run = copy.run(&["--config", &config, "--json", "--samples"]);
    let mut child = spawn(run, Stdio::piped());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut samples = lines.filter_map(|line| {
        let event: Value = serde_json::from_str(&line).unwrap();
        valid("run-1", &event);
        (event["event"] == "sample").then(|| event["values"].clone())
    });
    let completed = |values: &Value| values["completed"].as_f64();
    samples.find(|values| completed(values) == Some(0.0)).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                serve.load("randread")
            }
        });
        let busy = samples.find(|values| completed(values) > Some(100.0)).unwrap();
        done.store(true, Ordering::Relaxed);
        assert_eq!(busy["reads"], busy["completed"]);
        // Bytes and times are not of the very same moment.
        let bytes = busy["read_bytes"].as_f64().unwrap();
        let reads = completed(&busy).unwrap();
        assert!((bytes / (4096.0 * reads) - 1.0).abs() < 0.1, "{reads} reads, {bytes} bytes");
        let [median, p99] = ["latency_p50_s", "latency_p99_s"].map(|of| busy[of].as_f64().unwrap());
        assert!(0.0 < median && median <= p99 && p99 < 60.0, "{median} {p99}");
    });
    drop(serve);
    samples.find(|values| completed(values).is_none()).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let (code, told) = ends(child);
    assert_eq!(code, Some(0), "{told}");
    // On a machine that stalls it may have been silent before it was gone, which is said once.
    let gone = ["no status from", "ebb serve at"]
        .map(|why| format!("users' I/O is not known: {why} 127.0.0.1:"));
    assert!(gone.iter().any(|line| told.contains(line)), "{told}");
    // It runs on a core that the policy has as well.
    assert!(told.contains("which the policy steers too: give it its cores, machine.reactors"));
}

#[test]
fn acting_ends_with_everything_as_it_was() {
    let copy = Copy::new();
    let before = copy.all();
    let child = copy.start(&[]);
    assert_ne!(copy.all(), before);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let (code, error) = ends(child);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(copy.all(), before);
    assert!(error.contains("pwm1_enable of nct6798: '1' -> '5'"), "{error}");
}

#[test]
fn a_worker_that_is_killed_or_hangs_is_cleaned_up_after() {
    for signal in [Signal::KILL, Signal::ABORT, Signal::STOP] {
        let copy = Copy::new();
        let before = copy.all();
        let child = copy.start(&[]);
        kill_process(worker(&child), signal).unwrap();
        let (code, error) = ends(child);
        assert_eq!(code, Some(1), "{signal:?}: {error}");
        assert!(error.contains("setting all back"), "{error}");
        assert_eq!(copy.all(), before, "{signal:?}");
    }
}

#[test]
fn a_worker_without_its_supervisor_sets_everything_back() {
    let copy = Copy::new();
    let before = copy.all();
    let mut child = copy.start(&[]);
    let mut told = BufReader::new(child.stderr.take().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    // It is the worker's, too: the end comes with the worker's.
    let mut error = String::new();
    while told.read_line(&mut error).unwrap() > 0 {}
    assert!(error.contains("the supervisor is gone"), "{error}");
    assert_eq!(copy.all(), before);
}

/// The fan is at full speed and in Ebb's hands when the sweep is killed.
#[test]
fn a_sweep_that_is_killed_is_set_back() {
    let copy = Copy::new();
    let before = copy.all();
    let args = copy.args(&["probe", "--fans", "--sweep", "--yes", "--settle", "20 s"]);
    let mut sweep = Command::new(env!("CARGO_BIN_EXE_ebb")).args(args).spawn().unwrap();
    let begun = Instant::now();
    while copy.get(&format!("{CHIP}/pwm1")).trim() != "255" {
        assert!(begun.elapsed() < Duration::from_secs(20), "the sweep does not begin");
        thread::sleep(Duration::from_millis(10));
    }
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    assert_ne!(copy.all(), before);
    prints(&str(&copy.args(&["restore"])));
    assert_eq!(copy.all(), before);
}

#[test]
fn when_both_are_killed_restore_sets_everything_back() {
    let copy = Copy::new();
    let before = copy.all();
    kill_both(copy.start(&[]));
    assert_ne!(copy.all(), before);
    // A new start does not take what it finds now for what was found.
    copy.put(&format!("{CHIP}/pwm1_enable"), 7);
    kill_both(copy.start(&[]));
    let text = prints(&str(&copy.args(&["restore"])));
    assert!(text.contains("'1' -> '5'"), "{text}");
    assert_eq!(copy.all(), before);
    let report: Value =
        serde_json::from_str(&prints(&str(&copy.args(&["restore", "--json"])))).unwrap();
    valid("restore-1", &report);
    assert_eq!(report["restored"].as_array().map(Vec::len), Some(0));
}

#[test]
fn the_next_start_first_sets_back_what_was_left() {
    let copy = Copy::new();
    kill_both(copy.start(&[]));
    assert_eq!(copy.fan(), "1");
    // Even where it then finds that it can do nothing: this machine counts no latencies.
    let again = spawn(copy.args(&["run", "--policy", "pacer", "--apply"]), Stdio::null());
    let (code, told) = ends(again);
    assert_eq!(code, Some(2), "{told}");
    assert_eq!(told.matches("'1' -> '5'").count(), 2, "both fans: {told}");
    assert_eq!(copy.fan(), "5");
}

#[test]
fn what_cannot_be_set_back_is_said_and_stays_saved() {
    let copy = Copy::new();
    kill_both(copy.start(&[]));
    let fan = copy.folder.path().join("root").join(CHIP).join("pwm2_enable");
    fs::remove_file(&fan).unwrap();
    let args = copy.args(&["restore", "--json"]);
    let output = ebb(&str(&args));
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("restore-1", &report);
    let failed: Vec<_> = report["restored"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["outcome"] == "failed")
        .collect();
    assert_eq!(failed.len(), 2, "the mode, and the duty, which is full: {report}");
    assert_eq!(copy.fan(), "5", "the other fan is back all the same");
    fs::write(&fan, "1").unwrap();
    prints(&str(&copy.args(&["restore"])));
    assert_eq!(copy.get(&format!("{CHIP}/pwm2_enable")), "5");
}

#[test]
fn systemd_is_told_when_it_is_ready_and_that_it_lives() {
    for apply in [false, true] {
        let copy = Copy::new();
        let address = copy.folder.path().join("notify");
        let systemd = UnixDatagram::bind(&address).unwrap();
        let mut args = copy.run(&["--duration", "2 s"]);
        args.extend(apply.then(|| "--apply".to_owned()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.args(&args).env("NOTIFY_SOCKET", &address);
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(0));
        systemd.set_nonblocking(true).unwrap();
        let mut text = [0; 4096];
        let messages = std::iter::from_fn(|| {
            let length = systemd.recv(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text[..length]).into_owned())
        });
        let messages: Vec<String> = messages.collect();
        assert!(messages[0].contains("READY=1"), "{messages:?}");
        let state = if apply { "STATUS=eadc: acting" } else { "STATUS=eadc: observing" };
        assert!(messages[0].contains(state), "{messages:?}");
        assert!(messages.len() > 2 && messages.iter().all(|m| m.contains("WATCHDOG=1")));
    }
}

#[test]
fn there_is_one_at_a_time() {
    let copy = Copy::new();
    let child = copy.start(&[]);
    let (code, error) = fails(&str(&copy.run(&["--apply", "--duration", "1 s"])));
    assert_eq!(code, 1);
    assert!(error.contains("another ebb acts on this machine"), "{error}");
    let (code, error) = fails(&str(&copy.args(&["restore"])));
    assert!(code == 1 && error.contains("systemctl stop ebb"), "{error}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(ends(child).0, Some(0));
}

#[test]
fn a_new_configuration_is_taken_without_a_gap_or_refused() {
    let copy = Copy::new();
    let file = path(copy.folder.path(), "ebb.toml");
    fs::write(&file, "policy = \"eadc\"").unwrap();
    let mut child = copy.start(&["--config", &file]);
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let reloaded =
        |text: &str, says: &str, told: &mut dyn Iterator<Item = std::io::Result<String>>| {
            fs::write(&file, text).unwrap();
            kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
            let is_other = |line: &String| !line.starts_with("first contact: ");
            let line = told.map_while(Result::ok).find(is_other).unwrap();
            assert!(line.contains(says), "{text}: {line}");
            assert_eq!(copy.fan(), "1");
        };
    reloaded("plf = \"30%\"", "is taken", &mut told);
    reloaded("plff = 1", "stays as it was", &mut told);
    reloaded("[leave]\ncooling = \"safe\"", "need a new start", &mut told);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    while told.next().is_some() {}
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(copy.fan(), "5");
}

#[test]
fn who_acts_can_read_its_configuration_again() {
    let copy = Copy::new();
    let (code, error) = fails(&str(&copy.run(&["--apply", "--config", "/dev/stdin"])));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("/dev/stdin") && error.contains("regular file"), "{error}");
}

#[test]
fn a_configuration_is_checked_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "ebb.toml");
    for (text, says) in [
        ("policy = \"pacer\"\nplv = 1", "unknown field `plv`"),
        ("apply = false\npolicy = \"pacr\"", "line 2: unknown policy"),
        ("policy = \"pacr\"", "did you mean 'pacer'"),
        ("policy = \"pacer+pacer-plus\"", "both set"),
        ("policy = \"pacman\"", "ssd_budget"),
        ("ssd_budget = 224", "line 1"),
        ("ssd_budget = \"224\"", "224 W"),
        ("policy = \"pacer\"\nperiod = \"1 ms\"", "line 2: period = 1 ms: write 100 ms"),
        ("plf = 20", "line 1"),
        ("plf = \"2000%\"", "more than 1000%"),
        ("[[schedule]]\nfrom = \"22:00\"\nto = \"06:00\"\nplf = \"2000%\"", "line 4"),
        ("\n[machine]\nmin_duty = 2", "line 3"),
        ("\n[machine.drive_watts]\nX = \"-5 W\"", "more than 0 W"),
        ("[machine]\nmin_cores = 0", "one core"),
        (
            "\n[machine]\nthrottle = [\"system.slice\"]",
            "line 3: machine.throttle: \"system.slice\"",
        ),
        ("[[machine.groups]]\nrole = \"front-end\"\ncpus = \"4-1\"", "0-15"),
        ("[[schedule]]\nfrom = \"25:00\"\nto = \"06:00\"", "22:00"),
        ("contest = \"fight\"", "reassert"),
        ("profile = \"nonesuch\"", "nonesuch"),
        ("serve = \"localhost\"", "127.0.0.1:9091"),
        ("plf = 0.1\ntail = \"50 %\"", "line 2: tail: the kernel counts no percentiles"),
        ("policy = \"eadc\"\ntail = \"50 %\"", "line 2: tail: eadc does not keep it"),
        ("[hold]\ndrive_power = \"700 W\"", "655 W"),
        ("[[job]]\ncgroup = \"a\"\nclass = \"batch\"", "line 3: unknown variant `batch`"),
        ("policy = ", "line 1"),
    ] {
        fs::write(&file, text).unwrap();
        let (code, error) = fails(&["config", "check", &file]);
        assert_eq!(code, 2, "{text}: {error}");
        assert!(error.contains(&file) && error.contains(says), "{text}: {error}");
    }
    let (code, error) = fails(&["config", "check", "/nowhere/ebb.toml"]);
    assert!(code == 2 && error.contains("/nowhere/ebb.toml"), "{error}");
}

#[test]
fn what_is_shown_is_valid_and_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ebb.toml");
    let shown = prints(&["config", "show", example]);
    let value: toml::Value = toml::from_str(&shown).unwrap();
    let value = serde_json::to_value(&value).unwrap();
    valid("config-1", &value);
    let file = path(folder.path(), "ebb.toml");
    fs::write(&file, &shown).unwrap();
    assert_eq!(prints(&["config", "show", &file]), shown);
    assert_eq!(prints(&["config", "check", &file]), format!("{file}: good\n"));
    let schema: Value = serde_json::from_str(&prints(&["config", "schema"])).unwrap();
    // Every key that there is, and no other.
    for (table, keys) in [("/properties", &value), ("/$defs/Machine/properties", &value["machine"])]
    {
        let described = schema.pointer(table).unwrap().as_object().unwrap();
        assert!(keys.as_object().unwrap().keys().all(|key| described.contains_key(key)), "{table}");
    }
}
