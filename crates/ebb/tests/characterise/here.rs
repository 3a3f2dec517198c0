//! `ebb characterise --here` on a copy of a machine's files, in which a file is the disk.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::common::{ebb, fails, path, prints, spawn, valid};
use crate::run::{CHIP, Copy, ends, kill_both, str};

const DISK: &str = "naa.5000c500d5f1a2b3";

/// A machine whose disk is idle.
fn copy() -> Copy {
    let copy = Copy::new();
    copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
    copy.put("dev/sda", "x".repeat(1 << 20));
    copy
}

fn out(copy: &Copy) -> String {
    path(copy.folder.path(), "curve.toml")
}

fn steps(copy: &Copy) -> PathBuf {
    PathBuf::from(out(copy) + ".steps")
}

/// Duties of 100, 60 and 20 %, and 100 % again.
fn args(copy: &Copy, more: &[&str]) -> Vec<String> {
    let own = ["characterise", "--here", "--step", "40%", "--pause", "1 s", "--out", &out(copy)];
    copy.args(&[&own[..], more].concat())
}

/// Whether both fans are at a duty of so many of 255: of what is written the last.
fn are_at(copy: &Copy, duties: &[&str]) -> bool {
    duties.contains(&&*copy.get(&format!("{CHIP}/pwm2")))
}

/// Starts and waits until fans have been taken.
fn start(copy: &Copy, more: &[&str]) -> Child {
    (1..3).for_each(|fan| copy.put(&format!("{CHIP}/pwm{fan}"), 120));
    let child = spawn(args(copy, more), Stdio::null());
    until(|| are_at(copy, &["255", "153"]));
    child
}

fn until(is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it takes too long");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whatever the file's throughput is, it is measured with the fans at each duty, and told.
#[test]
fn a_disk_is_read_at_each_duty_and_nothing_is_left_changed() {
    let copy = copy();
    let before = copy.all();
    let output = ebb(&str(&args(&copy, &["--json", "--disk", "/dev/sda"])));
    let error = String::from_utf8(output.stderr).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("characterise-1", &report);
    assert_eq!(report["disks"][0]["id"], DISK);
    let steps = report["steps"].as_array().unwrap();
    let duties: Vec<_> = steps.iter().map(|step| step["duty"].as_f64().unwrap()).collect();
    assert!(
        duties.iter().zip([0.2, 0.6, 1.0]).all(|(is, to)| (is - to).abs() < 1e-9),
        "{duties:?}"
    );
    for step in steps {
        assert!(step["bytes_per_second"].as_f64().unwrap() > 0.0 && step["rpm"] == 5000.0);
    }
    for duty in ["at 100 %, 5000 rpm", "at 60 %", "at 20 %"] {
        assert!(error.contains(duty), "{error}");
    }
    // A file is a curve or none, by chance.
    let is_curve = report["knee"].is_f64();
    assert_eq!(output.status.code(), Some(if is_curve { 0 } else { 1 }), "{error}");
    assert_eq!(fs::exists(out(&copy)).unwrap(), is_curve);
    assert_eq!(fs::exists(self::steps(&copy)).unwrap(), !is_curve);
    assert_eq!(copy.all(), before);
    assert_eq!(prints(&str(&copy.args(&["restore"]))), "nothing to restore\n");
}

/// Measurements as a disk gives them that feels the fans above 60 %, beside what `kept` says.
fn modelled(kept: &str, shares: [f64; 4]) -> String {
    let head = kept.lines().next().unwrap().to_owned() + "\n";
    let step = |(duty, share): (f64, f64)| {
        let step = json!({"duty": duty, "rpm": 1e4 * duty, "disks": [6e6 * share], "error": 6e3});
        format!("{step}\n")
    };
    [1.0, 0.6, 0.2, 1.0].into_iter().zip(shares).map(step).fold(head, |all, step| all + &step)
}

#[test]
fn a_kill_is_set_back_and_what_was_measured_is_kept() {
    let copy = copy();
    let before = copy.all();
    // The worker alone: its supervisor sets everything back.
    let child = start(&copy, &[]);
    until(|| are_at(&copy, &["153"]));
    let id = child.id();
    let worker = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let worker = Pid::from_raw(worker.trim().parse().unwrap()).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    let (code, error) = ends(child);
    assert!(code == Some(1) && error.contains("setting all back"), "{error}");
    assert_eq!(copy.all(), before);
    // Both: `ebb restore`.
    let kept = fs::read_to_string(steps(&copy)).unwrap();
    assert_eq!(kept.lines().count(), 2, "{kept}");
    kill_both(start(&copy, &[]));
    assert_ne!(copy.all(), before);
    prints(&str(&copy.args(&["restore"])));
    assert_eq!(copy.all(), before);
    let now = fs::read_to_string(steps(&copy)).unwrap();
    assert!(now.starts_with(&kept), "{kept} is no start of {now}");
    // What is complete is not measured again.
    fs::write(steps(&copy), modelled(&kept, [0.4, 0.99, 1.0, 0.4])).unwrap();
    let other = fails(&str(&args(&copy, &["--seed", "2"])));
    assert!(other.0 == 2 && other.1.contains("of other --seed"), "{other:?}");
    let report: Value =
        serde_json::from_str(&prints(&str(&args(&copy, &["--json", "--quiet"])))).unwrap();
    valid("characterise-1", &report);
    assert!((report["knee"].as_f64().unwrap() - 0.6).abs() < 1e-9, "{report}");
    assert_eq!(copy.all(), before);
    assert!(!fs::exists(steps(&copy)).unwrap());
    let curve = fs::read_to_string(out(&copy)).unwrap();
    assert!(curve.contains("measured: ") && curve.contains(DISK), "{curve}");
    let run = ["sim", "--profile", "eadc-e6", "--workload", "eadc-io", "--policy", "eadc"];
    prints(&[&run[..], &["--duration", "2 s", "--curve", &out(&copy)]].concat());
}

#[test]
fn a_throughput_that_rises_with_the_fans_is_told_and_no_curve_is_written() {
    let copy = copy();
    kill_both(start(&copy, &[]));
    prints(&str(&copy.args(&["restore"])));
    let kept = fs::read_to_string(steps(&copy)).unwrap();
    fs::write(steps(&copy), modelled(&kept, [1.0, 0.8, 0.7, 1.0])).unwrap();
    let output = ebb(&str(&args(&copy, &["--quiet"])));
    let (text, error) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    let (text, error) = (text.unwrap(), error.unwrap());
    assert!(text.contains("No curve: point 2"), "{text}");
    assert!(text.contains("60 %     6000       4.80       80.0 %"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("faster fans do not") && error.contains("curve.toml.steps"), "{error}");
    assert!(!fs::exists(out(&copy)).unwrap() && fs::exists(steps(&copy)).unwrap());
}

#[test]
fn users_io_is_left_alone_and_not_waited_for_for_ever() {
    let copy = copy();
    let before = copy.all();
    let child = start(&copy, &["--wait", "4 s"]);
    let users = thread::scope(|scope| {
        let ended = scope.spawn(|| ends(child));
        for writes in 2.. {
            if ended.is_finished() {
                break;
            }
            // In one piece, as the kernel tells it.
            copy.put("sys/block/sda/new", format!("1 0 8 1 {writes} 0 8 1 0 2 2"));
            let file = |name: &str| copy.folder.path().join("root/sys/block/sda").join(name);
            fs::rename(file("new"), file("stat")).unwrap();
            thread::sleep(Duration::from_millis(100));
        }
        ended.join().unwrap()
    });
    let (code, error) = users;
    assert!(code == Some(1) && error.contains("is dropped and the fans are given back"), "{error}");
    assert!(error.contains("users' I/O on sda has not ended for 4s"), "{error}");
    copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
    assert_eq!(copy.all(), before);
}

#[test]
fn heat_and_the_operator_end_it_with_everything_restored() {
    let copy = copy();
    let before = copy.all();
    let child = start(&copy, &[]);
    until(|| fs::read_to_string(steps(&copy)).unwrap_or_default().lines().count() >= 2);
    copy.put("sys/class/hwmon/hwmon0/temp1_input", 81_000);
    let (code, error) = ends(child);
    assert!(code == Some(1) && error.contains("temp1 of coretemp is at 81"), "{error}");
    assert!(error.contains("of 4 measurements are kept in"), "{error}");
    copy.put("sys/class/hwmon/hwmon0/temp1_input", 55_000);
    assert_eq!(copy.all(), before);
    let child = start(&copy, &[]);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let (code, error) = ends(child);
    assert!(code == Some(130) && error.contains("interrupted"), "{error}");
    assert_eq!(copy.all(), before);
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_do() {
    let copy = copy();
    let before = copy.all();
    let refused = |more: &[&str], code: i32, says: &[&str]| {
        let told = fails(&str(&args(&copy, more)));
        assert!(told.0 == code && says.iter().all(|one| told.1.contains(one)), "{told:?}");
    };
    refused(&["--disk", "/dev/sdb"], 2, &["dev/sdb"]);
    refused(&["--from", "10%"], 2, &["--from 10%", "machine.min_duty"]);
    refused(&["--from", "100%"], 2, &["--from 100%"]);
    refused(&["--profile", "eadc-e6"], 2, &["--profile", "--here"]);
    copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 1 2 2");
    refused(&[], 2, &["sda did I/O", "--disk"]);
    copy.put("sys/block/sda/queue/rotational", 0);
    refused(&["--disk", "/dev/sda"], 2, &["no hard disk"]);
    refused(&[], 2, &["no SATA or SAS hard disk"]);
    copy.put("sys/block/sda/queue/rotational", 1);
    copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
    assert_eq!(copy.all(), before);
    let child = copy.start(&[]);
    refused(&[], 1, &["another ebb acts on this machine"]);
    kill_both(child);
    prints(&str(&copy.args(&["restore"])));
    for fan in 1..3 {
        copy.put(&format!("{CHIP}/fan{fan}_input"), 0);
    }
    refused(&[], 2, &["no fan here", "[[machine.fans]]", "ebb probe --fans"]);
    assert!(!fs::exists(steps(&copy)).unwrap());
}
