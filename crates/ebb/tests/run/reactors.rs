//! Cores that `ebb serve` owns, beside those that policies steer.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{CPU, Copy, kill_both, path, str};
use crate::common::{ebb, fails, prints};
use crate::serve::Serve;

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

/// The frequency limits of a CPU's domain.
fn ceiling(copy: &Copy, policy: u16) -> String {
    copy.get(&format!("{CPU}/cpufreq/policy{policy}/scaling_max_freq"))
}

/// An `ebb serve` that answers what it is told.
struct Fake {
    address: String,
    asks: Arc<Mutex<f64>>,
}

impl Fake {
    /// As a real server's status, but on CPU 0 and 1, and asking for this share of the highest
    /// frequency; at none it hangs up.
    fn start(asks: f64) -> Self {
        let real = Serve::start(&[]);
        let mut status = real.status();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asks = Arc::new(Mutex::new(asks));
        let share = asks.clone();
        let core = status["cores"][0].clone();
        thread::spawn(move || {
            for (answers, stream) in listener.incoming().enumerate() {
                let Ok(mut stream) = stream else { continue };
                let share = *share.lock().unwrap();
                let _ = stream.read(&mut [0; 4096]);
                if share == 0.0 {
                    continue; // It hangs up.
                }
                let cores = [0, 1].map(|cpu| {
                    let mut core = core.clone();
                    core["cpu"] = cpu.into();
                    core["frequency_requested_share"] = share.into();
                    core
                });
                status["cores"] = cores.to_vec().into();
                status["server"]["uptime_s"] = (answers as f64).into();
                let body = status.to_string();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Self { address, asks }
    }

    fn ask(&self, share: f64) {
        *self.asks.lock().unwrap() = share;
    }
}

fn wait(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Reactors and a policy on one server: each core has its owner, and everything is as it was
/// found once the server or Ebb has gone.
#[test]
fn the_reactors_run_as_their_scheduler_asks_and_the_rest_as_the_policy_does() {
    let copy = copy();
    let fake = Fake::start(0.6);
    let file = path(copy.folder.path(), "ebb.toml");
    let text =
        format!("period = \"100 ms\"\nserve = \"{}\"\n[machine]\nreactors = \"0-1\"", fake.address);
    fs::write(&file, text).unwrap();
    let before = copy.all();
    let acts = |duration: &str| {
        let policy = ["--policy", "constant(ghz=2)+eadc", "--apply", "--duration", duration];
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.args(copy.args(&[&["run", "--config", &file], &policy[..]].concat()));
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let child = acts("1 h");
    let is = |first: &str| ceiling(&copy, 0) == first && ceiling(&copy, 2) == "2000000";
    wait("slowed", || is("1800000"));
    fake.ask(1.0);
    wait("raised", || is("3000000"));
    fake.ask(0.7);
    wait("slowed again", || is("2100000"));
    fake.ask(0.0);
    wait("released when the server does not answer", || is("3000000"));
    fake.ask(0.5);
    wait("slowed once more", || is("1500000"));
    kill_both(child);
    assert!(is("1500000"), "nobody was left to set it back");
    prints(&str(&copy.args(&["restore"])));
    assert_eq!(copy.all(), before);
    let told = acts("1 s").wait_with_output().unwrap();
    assert_eq!(copy.all(), before);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("reactors: CPUs 0-1 at up to 50 % of their frequency"), "{told}");
}
