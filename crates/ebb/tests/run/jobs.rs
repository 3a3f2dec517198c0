//! Control groups as jobs of a daemon.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::{Copy, kill_both, str};
use crate::common::{fails, path, prints};

const GROUP: &str = "sys/fs/cgroup/batch.slice/scrub.service";

fn put(copy: &Copy, file: &str, text: &str) {
    copy.put(&format!("{GROUP}/{file}"), text);
}

/// A job that comes while the socket is hot is held still; both processes are killed with it so.
#[test]
fn a_job_that_is_held_goes_on_after_a_kill() {
    let copy = Copy::new();
    copy.put("sys/class/hwmon/hwmon0/temp1_input", 92_000);
    put(&copy, "cgroup.freeze", "0");
    put(&copy, "cpu.max", "max 100000");
    put(&copy, "cpu.stat", "usage_usec 0");
    put(&copy, "io.stat", "");
    put(&copy, "cgroup.events", "populated 0\nfrozen 0");
    let config = path(copy.folder.path(), "ebb.toml");
    let job = "[[job]]\ncgroup = \"batch.slice/scrub.service\"\nclass = \"noncritical\"";
    fs::write(&config, format!("period = \"100 ms\"\n{job}")).unwrap();
    let child = copy.start(&["--config", &config]);
    let freeze = || copy.get(&format!("{GROUP}/cgroup.freeze"));
    // Until the policy knows how hot it is, jobs that come may start.
    let begun = Instant::now();
    while freeze().trim() != "1" {
        assert!(begun.elapsed() < Duration::from_secs(60), "no job is held");
        for populated in [0, 1] {
            put(&copy, "cgroup.events", &format!("populated {populated}\nfrozen 0"));
            thread::sleep(Duration::from_millis(300));
        }
    }
    kill_both(child);
    assert_eq!(freeze().trim(), "1");
    let text = prints(&str(&copy.args(&["restore"])));
    assert_eq!(freeze().trim(), "0");
    let first = text.lines().find(|line| line.contains("->")).unwrap();
    assert!(first.contains("cgroup.freeze"), "{text}");
    assert_eq!(copy.get(&format!("{GROUP}/cpu.max")).trim(), "max 100000");
}

#[test]
fn what_cannot_be_a_job_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "ebb.toml");
    let job = |group: &str| format!("[[job]]\ncgroup = \"{group}\"\nclass = \"vital\"\n");
    for (groups, says) in [
        (["a.slice", "/b.slice"], "line 5: job: cgroup = \"/b.slice\": write its path below"),
        (["system.slice", "b.slice"], "line 2: job: cgroup = \"system.slice\""),
        (["a.slice", "a.slice/b.service"], "line 5: job: cgroup = \"a.slice/b.service\""),
    ] {
        fs::write(&file, groups.map(job).concat()).unwrap();
        let (code, error) = fails(&["config", "check", &file]);
        assert!(code == 2 && error.contains(says), "{groups:?}: {error}");
    }
    // One that would hold itself still.
    let copy = Copy::new();
    copy.put("proc/self/cgroup", "0::/a.slice/ebb.service");
    fs::write(&file, job("a.slice")).unwrap();
    let (code, error) = fails(&str(&copy.run(&["--config", &file])));
    assert!(code == 2 && error.contains("job: \"a.slice\" has this process in it"), "{error}");
}
