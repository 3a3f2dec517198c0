//! One budget for the whole server: `tide` on a copy of a machine whose meter follows its clocks.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ebb_twin::Profile;
use rustix::process::{Pid, Signal, kill_process};

use super::{CPU, Copy, ends, str};
use crate::common::{ebb, fails, json, path, prints, spawn, valid};
use crate::serve::Serve;

const METER: &str = "sys/class/hwmon/hwmon5";

/// Cores that draw more than all traffic of the drive does.
const PROFILE: &str = "name = 'here'\nsummary = 'four hot cores'\nbase = 'generic-1u'\n\
                       [cpu]\ncore_dynamic = '40 W'\n";

/// What the machine draws with its four cores at a share of the highest frequency, at the wall.
fn draws(copy: &Copy, share: f64) -> f64 {
    let profile = Profile::load(&path(copy.folder.path(), "profile.toml")).unwrap();
    let model = profile.power_with(1).unwrap();
    model.wall(model.packages(4.0, 0.0, share, 1.0), 0.0, 0.0).0
}

fn metered() -> Copy {
    let copy = Copy::new();
    copy.put(&format!("{METER}/name"), "power_meter");
    copy.put(&format!("{METER}/power1_average"), "000000000000");
    copy
}

/// A configuration that names the profile.
fn config(copy: &Copy) -> String {
    let (config, profile) = (path(copy.folder.path(), "ebb.toml"), copy.folder.path());
    let profile = path(profile, "profile.toml");
    fs::write(&profile, PROFILE).unwrap();
    fs::write(&config, format!("profile = {profile:?}")).unwrap();
    config
}

/// The highest ceiling of its cores, as a share of the highest frequency.
fn share(copy: &Copy) -> f64 {
    let ceiling = |cpu| copy.get(&format!("{CPU}/cpufreq/policy{cpu}/scaling_max_freq"));
    (0..4).filter_map(|cpu| ceiling(cpu).trim().parse().ok()).fold(0.0, f64::max) / 3e6
}

/// Ends the meter, however the test ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets the meter show what the machine draws, until `over`.
fn shows(copy: &Copy, over: &AtomicBool) {
    let file = copy.folder.path().join("root").join(METER).join("power1_average");
    let meter = fs::File::options().write(true).open(file).unwrap();
    while !over.load(Ordering::Relaxed) {
        // Of one length, so that no reader sees a part.
        let text = format!("{:012.0}", draws(copy, share(copy)) * 1e6);
        meter.write_at(text.as_bytes(), 0).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn clocks_follow_a_budget_and_are_given_back() {
    let copy = metered();
    let config = config(&copy);
    let (socket, over) = (path(copy.folder.path(), "run.sock"), AtomicBool::new(false));
    let found = |all: Vec<(PathBuf, String)>| {
        let all = all.into_iter().filter(|(path, _)| !path.ends_with("power1_average"));
        all.collect::<Vec<_>>()
    };
    let before = found(copy.all());
    let (high, low) = (draws(&copy, 0.9), draws(&copy, 0.7));
    let waits = |what: &str, is: &dyn Fn(f64) -> bool| {
        for _ in 0..6000 {
            if is(share(&copy)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let status = prints(&["ctl", "--socket", &socket, "status"]);
        panic!("not in time: {what}: {} {status}", share(&copy));
    };
    thread::scope(|scope| {
        scope.spawn(|| shows(&copy, &over));
        let _over = Over(&over);
        waits("the meter shows it", &|_| {
            !copy.get(&format!("{METER}/power1_average")).starts_with("000000000000")
        });
        let budget = format!("{high} W");
        let run = ["run", "--policy", "tide", "--server-budget", &budget, "--apply"];
        let more = ["--control", &socket, "--config", &config];
        let child = spawn(copy.args(&[&run[..], &more].concat()), Stdio::null());
        let kept = |budget: f64| {
            let copy = &copy;
            move |share: f64| share > 0.34 && draws(copy, share) <= budget
        };
        waits("the budget is kept", &kept(high));
        let ctl = |args: &[&str]| prints(&[&["ctl", "--socket", &socket], args].concat());
        let told = ctl(&["budget", "set", "--server", &format!("{low} W")]);
        assert!(told.contains("the server up to"), "{told}");
        waits("the lower one is kept", &kept(low));
        // An order shows with the next cycle.
        waits("it is told", &|_| {
            let status = json(&["ctl", "--json", "--socket", &socket, "status"]);
            valid("run-status-1", &status);
            status["server_budget_w"] == low
        });
        let least = fails(&["ctl", "--socket", &socket, "budget", "set", "--server", "20 W"]).1;
        assert!(least.contains("server_budget") && least.contains("W"), "{least}");
        ctl(&["budget", "clear", "--server"]);
        waits("it rises again", &|share| draws(&copy, share) > low);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let (code, error) = ends(child);
        assert_eq!(code, Some(0), "{error}");
    });
    assert_eq!(found(copy.all()), before);
}

/// A host of `ebb serve` for which nobody waits has what the budget leaves, others have all; what
/// limits it is gone soon after the one who limits.
#[test]
fn a_host_that_nobody_waits_for_is_limited_for_as_long_as_the_run_lasts() {
    const BACKUP: &str = "nqn.2026-01.org.example:backup";
    let (copy, over) = (metered(), AtomicBool::new(false));
    let (config, folder) = (config(&copy), copy.folder.path());
    let (socket, control) = (path(folder, "serve.sock"), path(folder, "run.sock"));
    let serve = Serve::start(&["--control", &socket, "--scheduler", "interrupt"]);
    let mut text = fs::read_to_string(&config).unwrap();
    text += &format!(
        "\nserve = \"{}\"\nserve_control = {socket:?}\n[machine]\nbest_effort = [\"{BACKUP}\"]\n",
        serve.metrics
    );
    fs::write(&config, text).unwrap();
    // As the server shows it, until `is`.
    let waits = |what: &str, is: &dyn Fn(&serde_json::Value) -> bool| {
        for _ in 0..6000 {
            let status = serve.status();
            valid("serve-status-1", &status);
            if is(&status["limits"]) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("not in time: {what}: {}", serve.status()["limits"]);
    };
    thread::scope(|scope| {
        scope.spawn(|| shows(&copy, &over));
        for host in [BACKUP, "nqn.2026-01.org.example:user"] {
            let load =
                ["load", "--connect", &serve.address, "--host-nqn", host, "--wait", "--json"];
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    json(&[&load[..], &["--rate", "500", "--duration", "300 ms"]].concat());
                }
            });
        }
        let _over = Over(&over);
        let budget = format!("{} W", draws(&copy, 0.7));
        let run = ["run", "--policy", "tide", "--server-budget", &budget, "--apply"];
        let more = ["--control", &control, "--config", &config];
        let mut child = spawn(copy.args(&[&run[..], &more].concat()), Stdio::null());
        waits("it is limited, and nobody else", &|limits| {
            let of = |limit: &serde_json::Value| {
                limit["host"] == BACKUP && limit["lent_bytes_per_second"].as_u64() >= Some(65536)
            };
            limits.as_array().is_some_and(|all| all.len() == 1 && of(&all[0]))
        });
        let status = json(&["ctl", "--json", "--socket", &control, "status"]);
        valid("run-status-1", &status);
        let hosts = json(&["ctl", "--json", "--socket", &socket, "host", "list"]);
        valid("ctl-1", &hosts);
        let done = hosts["hosts"].as_array().unwrap().iter().find(|host| host["nqn"] == BACKUP);
        assert!(done.unwrap()["controllers"].is_u64(), "{hosts}");
        child.kill().unwrap();
        child.wait().unwrap();
        waits("nobody is limited any more", &|limits| *limits == serde_json::json!([]));
    });
    let restored = ebb(&str(&copy.args(&["restore"])));
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
}

/// Two supplies that share the load, each with a feed of its own; a recording of it decides alike.
/// Adds a power supply; its device.
fn supply(copy: &Copy, at: usize) -> String {
    let (chip, device) = (format!("sys/class/hwmon/hwmon{}", 8 + at), format!("3-005{at}"));
    for (file, text) in [("name", "cffps2"), ("in1_label", "vin"), ("power1_label", "pin")] {
        copy.put(&format!("{chip}/{file}"), text);
    }
    let link = copy.folder.path().join("root").join(&chip).join("device");
    std::os::unix::fs::symlink(format!("../../../devices/{device}"), link).unwrap();
    device
}

/// What a power supply tells of its input.
fn feed(copy: &Copy, at: usize, volts: u32, watts: f64) {
    let chip = format!("sys/class/hwmon/hwmon{}", 8 + at);
    copy.put(&format!("{chip}/in1_input"), volts * 1000);
    copy.put(&format!("{chip}/power1_input"), format!("{:.0}", watts * 1e6));
}

#[test]
fn while_a_feed_is_lost_the_server_takes_what_the_other_may_give() {
    let (copy, over) = (metered(), AtomicBool::new(false));
    let (config, folder) = (config(&copy), copy.folder.path());
    let [socket, record] = ["run.sock", "record"].map(|name| path(folder, name));
    let mut text =
        fs::read_to_string(&config).unwrap() + "\npolicy = \"tide\"\nperiod = \"100 ms\"\n";
    let limit = draws(&copy, 0.7).floor();
    for (at, name) in ["A", "B"].into_iter().enumerate() {
        let device = supply(&copy, at);
        feed(&copy, at, 230, 100.0);
        text += &format!("[[machine.feeds]]\nname = {name:?}\nlimit = \"{limit} W\"\n");
        text += &format!("supplies = [{device:?}]\n");
    }
    fs::write(&config, text).unwrap();
    let root = path(folder, "root");
    let probe = prints(&["probe", "--root", &root]);
    assert!(probe.contains("3-0050 (cffps2)") && probe.contains("230 V, 100 W"), "{probe}");
    let waits = |what: &str, is: &dyn Fn(&serde_json::Value) -> bool| {
        for _ in 0..3000 {
            let status = ebb(&["ctl", "--json", "--socket", &socket, "status"]).stdout;
            let status: serde_json::Value = serde_json::from_slice(&status).unwrap_or_default();
            if is(&status) {
                return valid("run-status-1", &status);
            }
            thread::sleep(Duration::from_millis(20));
        }
        let last = ebb(&["ctl", "--socket", &socket, "status"]).stdout;
        panic!("not in time: {what}: {}", String::from_utf8_lossy(&last));
    };
    thread::scope(|scope| {
        scope.spawn(|| shows(&copy, &over));
        let _over = Over(&over);
        let run = ["run", "--apply", "--record", &record];
        let more = ["--control", &socket, "--config", &config];
        let child = spawn(copy.args(&[&run[..], &more].concat()), Stdio::null());
        let acts = |status: &serde_json::Value| status["state"] == "acting";
        waits("both feed it", &|status| acts(status) && status["server_budget_w"] == 2.0 * limit);
        feed(&copy, 0, 0, 0.0);
        feed(&copy, 1, 230, 200.0);
        waits("the other one is left", &|status| {
            let lost = status["lost_feeds"] == serde_json::json!(["A"]);
            lost && status["server_budget_w"] == limit && draws(&copy, share(&copy)) <= limit
        });
        let text = prints(&["ctl", "--socket", &socket, "status"]);
        assert!(text.contains("no input: feed A"), "{text}");
        feed(&copy, 0, 230, 100.0);
        feed(&copy, 1, 230, 100.0);
        waits("it is back", &|status| {
            status.get("lost_feeds").is_none() && draws(&copy, share(&copy)) > limit
        });
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let (code, error) = ends(child);
        assert!(code == Some(0) && error.contains("no input: feed A: the server up to"), "{error}");
    });
    let again = json(&["sim", "--recorded", &record, "--json"]);
    assert_eq!(again["same"], again["cycles"], "{again:#}");
}

/// Budgets that nothing would keep, and times of the day that mean nothing.
#[test]
fn what_a_configuration_cannot_mean_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "ebb.toml");
    let span = |to: &str, sets: &str| format!("[[schedule]]\nfrom = '22:00'\nto = '{to}'\n{sets}");
    for (text, says) in [
        ("ssd_budget = '224 W'".to_owned(), "line 1: ssd_budget: pacer does not keep it"),
        (
            span("23:00", "ssd_budget = '224 W'"),
            "line 4: schedule.0.ssd_budget: pacer does not keep it; pacer+pacman does",
        ),
        (span("24:00", "plf = 0.1"), "line 3: midnight is \"00:00\""),
        (span("22:00", "plf = 0.1"), "line 3: schedule.0.to is from"),
        (span("23:00", ""), "line 2: schedule.0.from sets nothing"),
        (
            "policy = 'pacman'\nssd_budget = '-1 W'".to_owned(),
            "line 2: ssd_budget is no budget: write more than 0 W",
        ),
        ("policy = 'tide'\nserver_budget = '0 W'".to_owned(), "line 2: server_budget is no budget"),
        (
            "policy = 'tide'\nserver_budget = '300 W'\n".to_owned()
                + &span("23:00", "server_budget = '-5 W'"),
            "line 6: schedule.0.server_budget is no budget",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        let (code, error) = fails(&["config", "check", &file]);
        assert!(code == 2 && error.contains(says), "{text}: {error}");
    }
    fs::write(&file, "policy = 'pacer+pacman'\nssd_budget = '224 W'").unwrap();
    assert_eq!(prints(&["config", "check", &file]), format!("{file}: good\n"));
}

/// A name of a supply that is wrong must not look like a feed that is lost.
#[test]
fn a_supply_that_is_not_here_is_named_at_the_start() {
    let copy = metered();
    copy.put(&format!("{METER}/power1_average"), "200000000");
    let (config, device) = (config(&copy), supply(&copy, 0));
    feed(&copy, 0, 230, 100.0);
    let mut text = fs::read_to_string(&config).unwrap() + "\npolicy = \"tide\"\n";
    for (name, device) in [("A", &*device), ("B", "3-0099")] {
        text += &format!("[[machine.feeds]]\nname = {name:?}\nlimit = \"300 W\"\n");
        text += &format!("supplies = [{device:?}]\n");
    }
    fs::write(&config, text).unwrap();
    let done = ebb(&str(&copy.args(&["run", "--config", &config, "--duration", "0.1 s"])));
    let error = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(0), "{error}");
    assert!(error.contains("machine.feeds: supply 3-0099 of feed B is not here"), "{error}");
    assert!(error.contains("no input: feed B: the server up to 300 W"), "{error}");
    assert!(!error.contains(&format!("supply {device} ")), "{error}");
}

/// No budget: a constant clock, whose saving the meter shows in blocks as found.
#[test]
fn a_trial_measures_what_is_saved() {
    let (copy, over) = (metered(), AtomicBool::new(false));
    let (config, folder) = (config(&copy), copy.folder.path());
    copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
    let [ledger, record] = ["ledger", "record"].map(|name| path(folder, name));
    let mut text = fs::read_to_string(&config).unwrap();
    text += "\nperiod = \"100 ms\"\n[trial]\nshare = \"20%\"\nblock = \"2 s\"\n";
    fs::write(&config, text).unwrap();
    let run = ["run", "--policy", "constant(ghz=1.5)", "--apply", "--duration", "22 s"];
    let more = ["--config", &config, "--ledger", &ledger, "--record", &record];
    let done = thread::scope(|scope| {
        scope.spawn(|| shows(&copy, &over));
        let _over = Over(&over);
        ebb(&str(&copy.args(&[&run[..], &more].concat())))
    });
    let told = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(told.contains("trial: power"), "{told}");
    let report = json(&["report", "--ledger", &ledger, "--json"]);
    valid("report-1", &report);
    let trial = &report["trial"][0];
    assert_eq!((&trial["policy"], &trial["of"]), (&"constant(ghz=1.5)".into(), &"power".into()));
    let saved = trial["saved_w"]["mean"].as_f64().unwrap();
    let truth = draws(&copy, 1.0) - draws(&copy, 0.5);
    assert!((saved / truth - 1.0).abs() < 0.05, "{saved} of {truth}: {report:#}");
    let again = json(&["sim", "--recorded", &record, "--json"]);
    assert_eq!(again["same"], again["cycles"], "{again:#}");
}

/// The copy has frequencies and no control groups, so no core can be parked.
#[test]
fn a_constant_that_nothing_can_be_held_at_is_refused() {
    let copy = Copy::new();
    copy.put("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2");
    let config = config(&copy);
    let run = |policy: &str, more: &[&str]| {
        let args = ["run", "--config", &config, "--policy", policy, "--duration", "0.1 s"];
        ebb(&str(&copy.args(&[&args[..], more].concat())))
    };
    let told = |policy: &str, more: &[&str]| {
        let done = run(policy, more);
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let nothing = "can do nothing here";
    let (code, error) = told("constant(cores=0.5)", &[]);
    assert!(code == Some(0) && error.contains(nothing), "{error}");
    let (code, error) = told("constant(cores=0.5)", &["--apply"]);
    assert!(code == Some(2) && error.contains(nothing), "{error}");
    for policy in ["constant(ghz=1.2)", "constant(ghz=1.2, cores=0.5)", "native"] {
        let (code, error) = told(policy, &[]);
        assert!(code == Some(0) && !error.contains(nothing), "{policy}: {error}");
    }
}

#[test]
fn what_cannot_be_kept_is_refused_at_the_start() {
    let copy = metered();
    copy.put(&format!("{METER}/power1_average"), "200000000");
    let refused = |more: &[&str], told: &str| {
        let config = config(&copy);
        let args = copy.args(&[&["run", "--config", &config, "--apply"], more].concat());
        let (code, error) = fails(&str(&args));
        assert!(code == 2 && error.contains(told), "{more:?}: {error}");
    };
    refused(&["--policy", "tide"], "without server_budget");
    let file = path(copy.folder.path(), "budget.toml");
    fs::write(&file, "plf = 0.1\nserver_budget = \"20 W\"").unwrap();
    // What is wrong is the file's, of what the command line does not replace.
    for (policy, told) in [
        ("eadc", format!("{file}: line 2: server_budget: eadc does not keep it")),
        ("tide", "server budget 20 W is impossible".to_owned()),
    ] {
        let args = copy.args(&["run", "--config", &file, "--policy", policy]);
        let (code, error) = fails(&str(&args));
        assert!(code == 2 && error.contains(&told), "{policy}: {error}");
    }
    refused(&["--policy", "tide", "--server-budget", "20 W"], "server_budget");
    refused(&["--policy", "pass", "--server-budget", "300 W"], "machine.throttle");
    refused(&["--policy", "eadc", "--server-budget", "300 W"], "eadc+tide");
    for (machine, told) in [
        ("best_effort = ['nqn.2026-01.org.example:backup']", "say with serve where"),
        ("throttle = ['nqn.2026-01.org.example:backup']", "machine.best_effort alone"),
        ("best_effort = ['nqn.x']", "qualified name"),
        ("[[machine.feeds]]\nname = 'A'\nlimit = '90 W'\nsupplies = []", "pacer+tide does"),
    ] {
        let file = path(copy.folder.path(), "other.toml");
        fs::write(&file, format!("[machine]\n{machine}\n")).unwrap();
        let (code, error) = fails(&["config", "check", &file]);
        assert!(code == 2 && error.contains(told) && error.contains("line 2"), "{error}");
    }
    fs::remove_dir_all(copy.folder.path().join("root").join(METER)).unwrap();
    refused(&["--policy", "tide", "--server-budget", "300 W"], "tide can do nothing here");
    // By a meter that is too late, whether a budget or the feeds ask for it.
    let late = path(copy.folder.path(), "late.toml");
    fs::write(&late, format!("{PROFILE}[board]\nmeter_lag = '5.5 s'\n")).unwrap();
    let late_config = path(copy.folder.path(), "late-ebb.toml");
    supply(&copy, 0);
    feed(&copy, 0, 230, 100.0);
    for asks in [
        "server_budget = '300 W'",
        "[[machine.feeds]]\nname = 'A'\nlimit = '300 W'\nsupplies = ['3-0050']",
    ] {
        fs::write(&late_config, format!("policy = 'tide'\nprofile = {late:?}\n{asks}\n")).unwrap();
        let (code, error) = fails(&str(&copy.args(&["run", "--apply", "--config", &late_config])));
        assert!(code == 2 && error.contains("at most 5 s"), "{asks}: {error}");
    }
}
