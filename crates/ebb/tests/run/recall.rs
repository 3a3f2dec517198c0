//! A burst brings parked cores back between two cycles.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{CPU, Copy, ends};
use crate::common::{spawn, valid};

/// Every 20 ms a tenth of the time of each CPU, and ten reads of 200 us.
fn load(root: &Path, stop: &AtomicBool) {
    let open = |file: &str| fs::File::create(root.join(file)).unwrap();
    let (stat, disks) = (open("proc/stat"), open("proc/diskstats"));
    // Of one length, so that no reader sees a part.
    let write = |file: &fs::File, text: String| file.write_all_at(text.as_bytes(), 0).unwrap();
    for at in 1_u32.. {
        let line = |cpu| format!("cpu{cpu} {at:09} 0 0 {:09} 0 0 0 0\n", 9 * at);
        write(&stat, (0..4).map(line).collect());
        let (reads, millis) = (10 * at, 2 * at);
        let tail = "0 0 0 0 0 9 9";
        write(&disks, format!("8 0 sda {reads:09} 0 {:09} {millis:09} {tail}\n", 8 * reads));
        if stop.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the load, whatever the test comes to.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_crowd_recalls_parked_cores_and_the_policy_hears_of_it() {
    let copy = Copy::new();
    for (file, text) in [
        ("cgroup.controllers", "cpuset cpu"),
        ("cgroup.subtree_control", "cpuset cpu"),
        ("system.slice/cpuset.cpus", "0-3"),
        ("system.slice/cpuset.cpus.partition", "member"),
        ("system.slice/cgroup.threads", ""),
    ] {
        copy.put(&format!("sys/fs/cgroup/{file}"), text);
    }
    copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
    copy.put("proc/loadavg", "0.50 0.50 0.50 002/300 4000");
    let run = copy.args(&["run", "--apply", "--policy", "pacer-plus", "--json"]);
    let mut child = spawn(run, Stdio::piped());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let mut all = events.by_ref().inspect(|event| valid("run-1", event));
    let stop = AtomicBool::new(false);
    let root = copy.folder.path().join("root");
    thread::scope(|scope| {
        scope.spawn(|| load(&root, &stop));
        let _stop = Stop(&stop);
        let cores = |event: &Value| event["control"] == "active_cores";
        let parks = |event: &Value| cores(event) && event["to"].as_f64() < event["from"].as_f64();
        let parked = all.find(parks).expect("it parks");
        assert_eq!(parked["applied"], "done", "{parked}");
        assert_ne!(copy.get("sys/fs/cgroup/system.slice/cpuset.cpus"), "0-3");
        copy.put("proc/loadavg", "0.50 0.50 0.50 200/300 4000");
        let back = all.find(|event| event["reason"] == "host:recalled").expect("it comes back");
        assert_eq!((&back["applied"], back["to"].as_f64()), (&"done".into(), Some(4.0)), "{back}");
        let text = all.find(|event| event["of"] == "recall").expect("it says why");
        assert!(text["text"].as_str().unwrap().starts_with("recalled: "), "{text}");
        let policy = all.find(|event| cores(event) && event["reason"] != "host:recalled");
        assert_eq!(policy.expect("it hears of it")["reason"], "pacer-plus:recalled");
    });
    assert_eq!(copy.get("sys/fs/cgroup/system.slice/cpuset.cpus"), "0-3");
    assert_eq!(copy.get(&format!("{CPU}/cpufreq/policy0/scaling_max_freq")), "3000000");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let looked = |event: &Value| Some(event["text"].as_str()?.contains("looked for a crowd"));
    assert!(all.any(|event| looked(&event) == Some(true)), "it says what that took");
    let (code, told) = ends(child);
    assert_eq!(code, Some(0), "{told}");
}
