//! Machines that change while it runs: what has gone is named and left alone, what is back is taken
//! in again, and nothing of it ends the daemon or begins anew what does not concern it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{CHIP, CPU, Copy, kill_both, str, worker};
use crate::common::{prints, spawn};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// A daemon that acts, and what it says.
struct Daemon<'a> {
    copy: &'a Copy,
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl<'a> Daemon<'a> {
    fn start(copy: &'a Copy, policy: &str) -> Self {
        copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
        let mut args = copy.args(&["run", "--apply", "--policy", policy]);
        let file = copy.folder.path().join("ebb.toml");
        fs::write(&file, "period = \"100 ms\"").unwrap();
        args.extend(["--config".to_owned(), file.display().to_string()]);
        let mut child = spawn(args, Stdio::null());
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (told, lines) = channel();
        thread::spawn(move || {
            errors.lines().map_while(Result::ok).try_for_each(|line| told.send(line))
        });
        Self { copy, child, lines, said: Vec::new() }
    }

    /// Waits for a line with `text`.
    fn says(&mut self, text: &str) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else { break };
            self.said.push(line.clone());
            if line.contains(text) {
                return;
            }
        }
        panic!("nothing of '{text}': {:#?}", self.said);
    }

    fn waits(&self, file: &str, is: &str) {
        let begun = Instant::now();
        while self.copy.get(file).trim() != is {
            let (now, said) = (self.copy.get(file), &self.said);
            let told = || Vec::from_iter(self.lines.try_iter());
            let is_soon = begun.elapsed() < PATIENCE;
            assert!(is_soon, "{file}: '{now}' and not '{is}'; {said:?} {:?}", told());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it; all that it said.
    fn ends(mut self) -> String {
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended: {:#?}", self.said);
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        self.said.extend(self.lines.iter());
        assert_eq!(code, Some(0), "{:#?}", self.said);
        self.said.join("\n")
    }
}

fn limit(cpu: u16) -> String {
    format!("{CPU}/cpufreq/policy{cpu}/scaling_max_freq")
}

/// All cores at 2 GHz.
const SLOW: &str = "constant(ghz=2, cores=1)";

/// A CPU goes while it is slowed down: its files refuse, as the kernel's then do. It is not set
/// back, which is no reason to end, and comes back as slow as the others.
#[test]
fn a_cpu_that_goes_offline_is_left_alone_and_taken_in_again() {
    let copy = Copy::new();
    let mut daemon = Daemon::start(&copy, SLOW);
    daemon.waits(&limit(3), "2000000");
    let policy = copy.folder.path().join("root").join(format!("{CPU}/cpufreq/policy3"));
    let away = policy.with_file_name("away");
    fs::rename(&policy, &away).unwrap();
    copy.put(&format!("{CPU}/online"), "0-2");
    daemon.says("cpu3 went offline: its core is left alone");
    // Whatever it had while it was away.
    fs::rename(&away, &policy).unwrap();
    copy.put(&limit(3), 3_000_000);
    copy.put(&format!("{CPU}/online"), "0-3");
    daemon.says("cpu3 is online again");
    daemon.waits(&limit(3), "2000000");
    let said = daemon.ends();
    assert!(!said.contains("starting again") && !said.contains("somebody else"), "{said}");
    assert_eq!(copy.get(&limit(3)), "3000000");
}

/// Arrays, loops, volumes and remote images have no hardware of their own.
#[test]
fn what_is_no_drive_is_no_part() {
    let copy = Copy::new();
    let daemon = Daemon::start(&copy, "eadc");
    let mode = format!("{CHIP}/pwm1_enable");
    daemon.waits(&mode, "1");
    for name in ["md127", "loop9", "dm-3", "zram0", "zd16", "nbd0", "drbd0", "bcache0", "ram0"] {
        copy.put(&format!("sys/devices/virtual/block/{name}/size"), 2048);
        let link = copy.folder.path().join("root/sys/block").join(name);
        std::os::unix::fs::symlink(format!("../devices/virtual/block/{name}"), link).unwrap();
    }
    copy.put("sys/devices/rbd/0/block/rbd0/size", 2048);
    copy.put("sys/devices/rbd/0/block/rbd0/queue/rotational", 0);
    copy.put("sys/devices/rbd/0/block/rbd0/device/model", "image");
    let link = copy.folder.path().join("root/sys/block/rbd0");
    std::os::unix::fs::symlink("../devices/rbd/0/block/rbd0", link).unwrap();
    thread::sleep(Duration::from_secs(1));
    fs::remove_file(copy.folder.path().join("root/sys/block/md127")).unwrap();
    thread::sleep(Duration::from_secs(4));
    assert_eq!(daemon.said, [""; 0]);
    let said = daemon.ends();
    let said = said.lines().filter(|line| !line.starts_with("first contact: "));
    assert_eq!(said.clone().count(), 2, "the fans alone: {:?}", Vec::from_iter(said));
}

/// The chip of the fans gets another number, and its old one goes to another chip.
#[test]
fn a_chip_with_another_number_is_found_and_the_other_left_alone() {
    let copy = Copy::new();
    let daemon = Daemon::start(&copy, "eadc");
    daemon.waits(&format!("{CHIP}/pwm1_enable"), "1");
    let hwmon = copy.folder.path().join("root/sys/class/hwmon");
    // In one moment, as when drivers are loaded anew.
    kill_process(worker(&daemon.child), Signal::STOP).unwrap();
    fs::rename(hwmon.join("hwmon3"), hwmon.join("hwmon5")).unwrap();
    for (file, text) in [("name", "w83795g"), ("pwm1", "77"), ("pwm1_enable", "2")] {
        copy.put(&format!("{CHIP}/{file}"), text);
    }
    copy.put("sys/class/hwmon/hwmon5/pwm1_enable", 5);
    kill_process(worker(&daemon.child), Signal::CONT).unwrap();
    daemon.waits("sys/class/hwmon/hwmon5/pwm1_enable", "1");
    let is = |file: &str| copy.get(&format!("{CHIP}/{file}"));
    assert_eq!((is("pwm1"), is("pwm1_enable")), ("77".to_owned(), "2".to_owned()));
    daemon.ends();
    assert_eq!(copy.get("sys/class/hwmon/hwmon5/pwm1_enable"), "5");
    assert_eq!((is("pwm1"), is("pwm1_enable")), ("77".to_owned(), "2".to_owned()));
}

/// A chip that goes takes its fans along, and nothing else.
#[test]
fn a_chip_that_leaves_ends_nothing_and_is_taken_in_again() {
    let copy = Copy::new();
    let mode = format!("{CHIP}/pwm1_enable");
    let mut daemon = Daemon::start(&copy, &format!("{SLOW}+eadc"));
    daemon.waits(&mode, "1");
    let hwmon = copy.folder.path().join("root/sys/class/hwmon");
    fs::rename(hwmon.join("hwmon3"), copy.folder.path().join("away")).unwrap();
    daemon.says("chip nct6798 left");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(copy.get(&limit(0)), "2000000");
    fs::write(copy.folder.path().join("away/pwm1_enable"), "5").unwrap();
    fs::rename(copy.folder.path().join("away"), hwmon.join("hwmon4")).unwrap();
    daemon.says("chip nct6798 is back");
    daemon.waits("sys/class/hwmon/hwmon4/pwm1_enable", "1");
    let said = daemon.ends();
    assert!(!said.contains("starting again"), "{said}");
    assert_eq!(copy.get("sys/class/hwmon/hwmon4/pwm1_enable"), "5");
}

/// A drive that is back under another name is the same drive, and users' I/O is known meanwhile.
#[test]
fn a_drive_that_comes_back_is_known_by_who_it_is() {
    let copy = Copy::new();
    copy.add_disk();
    let file = copy.folder.path().join("ebb.toml");
    fs::write(&file, "period = \"100 ms\"").unwrap();
    let config = file.display().to_string();
    let args =
        copy.args(&["run", "--policy", "native", "--config", &config, "--json", "--samples"]);
    let mut child = spawn(args, Stdio::piped());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut samples = lines.filter_map(|line| {
        let event: Value = serde_json::from_str(&line).unwrap();
        (event["event"] == "sample").then(|| event["values"].clone())
    });
    let of =
        |values: &Value, signal: &str| values[format!("naa.5000c500d5f1a2b4_{signal}")].as_f64();
    let knows = |values: &Value| values["completed"].as_f64().is_some();
    let begun = samples.find(|values| knows(values)).unwrap();
    assert!(
        begun.as_object().unwrap().keys().any(|key| key.contains("naa.5000c500d5f1a2b4")),
        "{begun}"
    );
    let blocks = copy.folder.path().join("root/sys/block");
    fs::rename(blocks.join("sdb"), copy.folder.path().join("sdb")).unwrap();
    copy.disks(&["sda"], 2);
    let away = samples.find(|values| knows(values) && of(values, "utilisation").is_none());
    assert!(away.is_some());
    fs::rename(copy.folder.path().join("sdb"), blocks.join("sdc")).unwrap();
    copy.disks(&["sda", "sdc"], 3);
    let back = samples.find(|values| knows(values) && of(values, "utilisation").is_some());
    assert!(back.is_some());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    drop(samples);
    let (code, told) = super::ends(child);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("sdb (naa.5000c500d5f1a2b4) left"), "{told}");
    assert!(told.contains("sdc (naa.5000c500d5f1a2b4) is back"), "{told}");
    assert!(!told.contains("starting again"), "{told}");
}

/// A fan that was not there at the start is taken in once all is settled.
#[test]
fn a_new_fan_is_taken_in() {
    let copy = Copy::new();
    let mut daemon = Daemon::start(&copy, "eadc");
    daemon.waits(&format!("{CHIP}/pwm1_enable"), "1");
    let other = "sys/class/hwmon/hwmon7";
    for (file, text) in
        [("name", "nct6683"), ("pwm1", "90"), ("pwm1_enable", "2"), ("fan1_input", "4000")]
    {
        copy.put(&format!("{other}/{file}"), text);
    }
    daemon.says("the machine has new parts");
    daemon.waits(&format!("{other}/pwm1_enable"), "1");
    daemon.ends();
    assert_eq!(copy.get(&format!("{other}/pwm1_enable")), "2");
}

/// As with the daemon before, for one that ends meanwhile: the rest is set back, and what waits for
/// its CPU is no failure.
#[test]
fn what_has_gone_waits_and_fails_nothing() {
    let copy = Copy::new();
    let mut daemon = Daemon::start(&copy, SLOW);
    daemon.waits(&limit(3), "2000000");
    let policy = copy.folder.path().join("root").join(format!("{CPU}/cpufreq/policy3"));
    let away = policy.with_file_name("away");
    fs::rename(&policy, &away).unwrap();
    copy.put(&format!("{CPU}/online"), "0-2");
    daemon.says("cpu3 went offline");
    daemon.ends();
    assert_eq!(copy.get(&limit(0)), "3000000");
    fs::rename(&away, &policy).unwrap();
    copy.put(&format!("{CPU}/online"), "0-3");
    crate::common::prints(&super::str(&copy.args(&["restore"])));
    assert_eq!(copy.get(&limit(3)), "3000000");
}

/// Clocks are given to it, it sets none, and somebody else does.
#[test]
fn what_others_set_stays_where_ebb_has_set_nothing() {
    for killed in [false, true] {
        let copy = Copy::new();
        let mut daemon = Daemon::start(&copy, "constant(ghz=3)+eadc");
        daemon.says("first contact: fan_duty works");
        daemon.waits(&format!("{CHIP}/pwm1_enable"), "1");
        copy.put(&limit(2), 1_500_000);
        if killed {
            kill_both(daemon.child);
            prints(&str(&copy.args(&["restore"])));
        } else {
            daemon.ends();
        }
        assert_eq!([2, 0].map(|cpu| copy.get(&limit(cpu))), ["1500000", "3000000"]);
        assert_eq!(copy.get(&format!("{CHIP}/pwm1_enable")), "5");
    }
}
