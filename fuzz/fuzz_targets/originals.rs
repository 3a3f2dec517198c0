//! A file with saved originals as somebody else may have written it. It is refused, or restoring
//! ends, and nothing but settings is written, whatever it names.

#![no_main]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ebb_host::{Machine, State, Sys, restore};
use libfuzzer_sys::fuzz_target;

/// What is no setting, and may not be written.
const SECRETS: [&str; 4] = ["etc/passwd", "sys/class/hwmon/hwmon0/name", "sys/power/state", "x"];

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    if let Some(folder) = path.parent() {
        let _ = fs::create_dir_all(folder);
    }
    let _ = fs::write(path, text);
}

fuzz_target!(|input: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let (root, state) = (folder.path().join("root"), folder.path().join("state"));
    for (path, text) in [
        ("sys/devices/system/cpu/online", "0"),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "1"),
        ("sys/class/hwmon/hwmon0/pwm1", "1"),
        ("sys/class/hwmon/hwmon0/pwm1_enable", "1"),
        ("sys/fs/cgroup/a/cpu.weight", "1"),
    ] {
        put(&root, path, text);
    }
    SECRETS.iter().for_each(|path| put(&root, path, "chip"));
    let _ = symlink("../../../../etc/passwd", root.join("sys/class/hwmon/hwmon0/pwm2"));
    let _ = symlink("../../../etc", root.join("sys/fs/cgroup/out"));
    let (Ok(machine), Ok(state)) = (Machine::found(Sys::new(&root)), State::open(&state)) else {
        return;
    };
    put(folder.path(), "state/originals.json", std::str::from_utf8(input).unwrap_or("\0"));
    let _ = restore(&machine, &state, None);
    for path in SECRETS {
        assert_eq!(fs::read_to_string(root.join(path)).ok().as_deref(), Some("chip"), "{path}");
    }
});
