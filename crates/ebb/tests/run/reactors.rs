//! Cores that `ebb serve` owns, beside those that policies steer.

use std::fs;

use super::{CPU, Copy, path, str};
use crate::common::{ebb, fails};

/// Four cores of which CPU 0 and 1 share a frequency domain, and 2 and 3 their own.
fn copy() -> Copy {
    let copy = Copy::new();
    for cpu in [0, 1] {
        copy.put(&format!("{CPU}/cpufreq/policy{cpu}/related_cpus"), "0 1");
    }
    fs::remove_dir_all(copy.folder.path().join(format!("root/{CPU}/cpufreq/policy1"))).unwrap();
    copy
}

#[test]
fn a_core_has_one_owner() {
    let copy = copy();
    let file = path(copy.folder.path(), "ebb.toml");
    let group = |cpus: &str| format!("[[machine.groups]]\nrole = \"front-end\"\ncpus = \"{cpus}\"");
    for (text, says) in [
        ("reactors = \"0\"\n".to_owned() + &group("0-3"), "CPU 0 is in group 1"),
        ("reactors = \"7\"".to_owned(), "machine.reactors: CPU 7 is not online"),
        ("reactors = \"0-3\"".to_owned(), "ebb serve has all cores"),
    ] {
        fs::write(&file, format!("[machine]\n{text}")).unwrap();
        let (code, error) = fails(&str(&copy.run(&["--config", &file])));
        assert!(code == 2 && error.contains(says), "{text}: {error}");
    }
    fs::write(&file, "\n[machine]\nreactors = \"3-1\"").unwrap();
    let (code, error) = fails(&["config", "check", &file]);
    assert!(code == 2 && error.contains("line 3: machine.reactors"), "{error}");
}

/// A policy slows all cores but those of the reactors' frequency domain.
#[test]
fn what_is_the_reactors_is_not_touched() {
    let copy = copy();
    let file = path(copy.folder.path(), "ebb.toml");
    for (machine, cores, slow) in [("reactors = \"0\"", 3, "3000000"), ("", 4, "2000000")] {
        let text = format!("period = \"100 ms\"\n[leave]\ncpu = \"keep\"\n[machine]\n{machine}");
        fs::write(&file, text).unwrap();
        let policy = ["--policy", "constant(ghz=2)+eadc", "--apply", "--duration", "1 s"];
        let args = copy.args(&[&["run", "--config", &file], &policy[..]].concat());
        let told = String::from_utf8(ebb(&str(&args)).stdout).unwrap();
        assert!(told.contains(&format!("found {cores} cores")), "{told}");
        let ceiling = |policy| copy.get(&format!("{CPU}/cpufreq/policy{policy}/scaling_max_freq"));
        assert_eq!([0, 2, 3].map(ceiling), [slow, "2000000", "2000000"], "{told}");
    }
}
