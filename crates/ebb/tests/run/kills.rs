//! `ebb run` killed at random moments, on machines that are set at random: `ebb restore`, which is
//! killed now and then as well, sets everything back.

use std::env;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::{CHIP, CPU, Copy, kill_both, prints, str};

const POLICIES: [&str; 3] = ["eadc", "constant(ghz=2, cores=1)+eadc", "constant(ghz=1, cores=0.5)"];

fn starts(args: &[String]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Whether anything was set when it was killed.
fn kill(seed: u64) -> bool {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |bound: u64| random.next_u64() % bound;
    let copy = Copy::new();
    copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
    for cpu in 0..4 {
        let folder = format!("{CPU}/cpufreq/policy{cpu}");
        copy.put(&format!("{folder}/scaling_min_freq"), 1_000_000 + 250_000 * below(4));
        copy.put(&format!("{folder}/scaling_max_freq"), 2_000_000 + 250_000 * below(5));
    }
    for fan in 1..3 {
        copy.put(&format!("{CHIP}/pwm{fan}_enable"), below(6));
    }
    let before = copy.all();
    let run = copy.args(&["run", "--apply", "--policy", POLICIES[below(3) as usize]]);
    // At first again and again: before anything is saved, at the first contact, while it acts.
    for _ in 0..=below(3) {
        let child = starts(&run);
        thread::sleep(Duration::from_millis(below(700)));
        kill_both(child);
    }
    let changed = copy.all() != before;
    let restore = copy.args(&["restore"]);
    for _ in 0..below(3) {
        let mut child = starts(&restore);
        thread::sleep(Duration::from_micros(below(20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    prints(&str(&restore));
    assert_eq!(copy.all(), before, "EBB_SEED={seed}");
    changed
}

/// As many as EBB_ENDS says, from EBB_SEED on.
#[test]
fn whenever_it_is_killed_everything_is_set_back() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (first, count) = (number("EBB_SEED").unwrap_or(1), number("EBB_ENDS").unwrap_or(20));
    let changed = (first..first + count).filter(|seed| kill(*seed)).count();
    println!("{count} ends from seed {first} on; {changed} found settings changed");
    assert!(changed > 0, "nothing was set in any: there was nothing to prove");
}
