//! Profiles with a base: what they inherit, what they add, and how mistakes in them are told.

use crate::common::{Clients, Held, job, simulate_with};
use ebb_policy::Limits;
use ebb_policy::cpu::Native;
use ebb_policy::units::{Celsius, Nanos};
use ebb_trace::{Op, Workload};
use ebb_twin::thermal::{Air, Heat, Network};
use ebb_twin::{Outcome, Profile, Run, Unobserved, run};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Every drive written as fast as it goes.
fn writes(profile: &Profile) -> Workload {
    let random = Pcg64Mcg::seed_from_u64(3);
    let devices = profile.volumes().0;
    let slots = 4 * u32::from(devices);
    Workload::Closed(Box::new(Clients { slots, bytes: 4 << 20, op: Op::Write, devices, random }))
}

fn held(profile: &Profile, duty: f64, seconds: u64, limits: Limits) -> Outcome {
    let end = Some(Nanos::from_secs(seconds));
    let job = job(profile, Box::new(Held(duty)), writes(profile), end);
    run(Run { limits, ..job }, &mut Unobserved).unwrap()
}

/// A guard that lets drives get as hot as they will.
fn careless() -> Limits {
    Limits { drive: Some(Celsius(200.0)), ..Limits::default() }
}

#[test]
fn drives_heat_up_under_writes_and_throttle_only_where_fans_are_slow() {
    let profile = Profile::load("asg-1115s-thermal").unwrap();
    let limit = profile.model().unwrap().heat().unwrap().throttle.unwrap();
    let held = |duty: f64, limits: Limits| held(&profile, duty, 600, limits);
    let (fast, slow) = (held(1.0, careless()), held(0.2, careless()));
    let (cool, hot) = (fast.thermal.as_ref().unwrap(), slow.thermal.as_ref().unwrap());
    assert!(cool.hottest_drive > Celsius(35.0) && cool.hottest_drive < limit);
    assert_eq!(cool.drive_throttled, Nanos::ZERO);
    assert!(hot.hottest_drive > limit, "{}", hot.hottest_drive);
    assert!(hot.drive_throttled > Nanos::ZERO);
    assert!(slow.bytes < fast.bytes, "{} {}", slow.bytes, fast.bytes);
    // The guard does not let a policy that wants slow fans do that.
    let guarded = held(0.2, Limits::default());
    let thermal = guarded.thermal.as_ref().unwrap();
    assert!(thermal.hottest_drive <= limit, "{}", thermal.hottest_drive);
    assert_eq!((thermal.drive_throttled, guarded.bytes), (Nanos::ZERO, fast.bytes));
}

#[test]
fn policies_know_how_much_heat_each_drive_bears_and_which_fans_can_shake() {
    for (name, limit, rotational) in [
        ("asg-1115s-thermal", 80.0, false),
        ("dorado-6000-thermal", 65.0, false),
        ("thermal-1u", 70.0, false),
        ("eadc-e6", 60.0, true),
        ("backup-36", 60.0, true),
    ] {
        let topology = Profile::load(name).unwrap().topology();
        let limits = topology.drives.iter().map(|drive| drive.hottest());
        assert!(
            topology.drives.len() > 1 && limits.eq(vec![Celsius(limit); topology.drives.len()])
        );
        assert!(topology.drives.iter().all(|drive| drive.rotational == rotational), "{name}");
    }
    let text = Profile::shipped_text("thermal-1u").unwrap();
    let own = "[thermal.drive]\nthrottle = \"66 C\"\nthrottle_full = \"68 C\"";
    let topology = Profile::parse(&text.replace("[thermal.drive]", own), "own").unwrap().topology();
    assert_eq!(topology.drives[0].limit, Some(Celsius(66.0)));
}

#[test]
fn firmware_keeps_the_drives_of_both_servers_below_throttling() {
    for (name, seconds) in [("asg-1115s-thermal", 240), ("dorado-6000-thermal", 120)] {
        let profile = Profile::load(name).unwrap();
        let limit = profile.model().unwrap().heat().unwrap().throttle.unwrap();
        let end = Some(Nanos::from_secs(seconds));
        let native = Box::new(Native);
        let outcome = simulate_with(&profile, native, writes(&profile), end, &mut Unobserved);
        let thermal = outcome.thermal.unwrap();
        assert!(thermal.hottest_drive < limit, "{name}: {}", thermal.hottest_drive);
        assert_eq!(thermal.drive_throttled, Nanos::ZERO, "{name}");
    }
}

#[test]
fn cool_drives_do_the_same_work_in_the_server_and_in_its_base() {
    let run = |name: &str| {
        let profile = Profile::load(name).unwrap();
        let end = Some(Nanos::from_secs(2));
        let native = Box::new(Native);
        simulate_with(&profile, native, writes(&profile), end, &mut Unobserved)
    };
    let (base, heated) = (run("asg-1115s"), run("asg-1115s-thermal"));
    assert_eq!((base.requests, base.bytes), (heated.requests, heated.bytes));
    assert_eq!(base.energy.ssd, heated.energy.ssd);
    assert!(base.thermal.is_none() && heated.thermal.is_some());
}

/// The steady state at full fan speed in air of 35 °C: the hottest drive and die.
fn steady(profile: &Profile, drive: f64, socket: impl Fn(f64) -> f64) -> (f64, f64) {
    let (thermal, fans) = (profile.thermal.as_ref().unwrap(), profile.fans.as_ref().unwrap());
    let count = f64::from(fans.count);
    let air = Air::new(35.0, 0.0, count * fans.airflow_m3_s, thermal.draught_m3_s);
    let drives = vec![drive; usize::from(profile.drives.count)];
    let mut network = Network::new(thermal, drives.len());
    for _ in 0..200 {
        let sockets: Vec<f64> = network.dies().map(&socket).collect();
        let fans = fans.power(fans.top()).0 * count;
        network.settle(&air, &Heat { drives: &drives, fans, sockets: &sockets });
    }
    (network.drives().iter().copied().fold(0.0, f64::max), network.die(0))
}

#[test]
fn bays_and_heat_sinks_are_sized_by_the_rules_in_the_profiles() {
    for (name, rated) in [("asg-1115s-thermal", None), ("dorado-6000-thermal", Some(145.0))] {
        let profile = Profile::load(name).unwrap();
        let cores: u16 = profile.stage.iter().map(|stage| stage.cores).sum();
        let cpu = &profile.cpu;
        let busy = cpu.uncore + (cpu.core_static + cpu.core_dynamic) * f64::from(cores);
        let each = busy.0 / f64::from(profile.sockets());
        let leakage = profile.thermal.as_ref().unwrap().leakage;
        let socket = |die| rated.unwrap_or_else(|| each + leakage.power(die, 1.0));
        let most = profile.topology().drives[0].cap(0).0;
        let (drive, die) = steady(&profile, most, socket);
        let limit = profile.model().unwrap().heat().unwrap().throttle.unwrap().0;
        assert!((drive - (limit - 5.0)).abs() < 0.5, "{name}: drive {drive} °C");
        assert!((die - 85.0).abs() < 1.0, "{name}: die {die} °C");
        // With the leakage at 67 °C the packages draw what they do in the base.
        let base = Profile::load(profile.base.as_deref().unwrap()).unwrap();
        let leaked = leakage.power(67.0, 1.0) * f64::from(profile.sockets());
        assert!((cpu.uncore.0 + leaked - base.cpu.uncore.0).abs() < 0.05, "{name}: {leaked} W");
    }
}

/// The error for a profile on `asg-1115s-thermal` with these lines, and its first line.
fn refused(lines: &str) -> String {
    let head = "name = \"hot\"\nsummary = \"a hot one\"\nbase = \"asg-1115s-thermal\"\n";
    Profile::parse(&format!("{head}{lines}"), "hot.toml").unwrap_err().to_string()
}

#[test]
fn a_value_is_refused_in_the_text_that_sets_it() {
    for (lines, place, says) in [
        ("[thermal]\naltitude_m = 9e3\n", "hot.toml:5: altitude_m", "not in"),
        ("[thermal.drive]\nto_air_k_per_w = -1.0\n", "hot.toml:5: to_air_k_per_w", "not physical"),
        (
            "[[stage]]\nrole = \"front-end\"\ncores = 4\nread_cycles = -1.0\nwrite_cycles = 0.0\n\
          cycles_per_kib = 0.0\n",
            "hot.toml:7: read_cycles",
            "not in",
        ),
        ("[thermal.emergency]\ntrip = \"80 C\"\n", "hot.toml:5: trip", "not above"),
        // The inlet is set here, what it makes impossible there.
        ("[thermal]\ninlet = \"50 C\"\n", "hot.toml:3: base: asg-1115s-thermal:", "start"),
        ("[drives]\nmodel = \"floppy\"\n", "hot.toml:5: model", "pm1743"),
    ] {
        let message = refused(lines);
        assert!(message.starts_with(place) && message.contains(says), "{message}");
    }
}

#[test]
fn syntax_errors_and_unknown_keys_show_the_line() {
    for (lines, line) in [
        ("[thermal]\ninlett = \"25 C\"\n", "line 5"),
        ("[fans]\ncount = \"four\"\n", "line 5"),
        ("[fans\n", "line 4"),
        ("[thermals]\ninlet = \"25 C\"\n", "line 4"),
    ] {
        let message = refused(lines);
        assert!(message.starts_with("hot.toml") && message.contains(line), "{message}");
    }
}

#[test]
fn a_base_is_another_profile_and_no_circle() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let on = |base: &str| format!("name = \"x\"\nsummary = \"y\"\nbase = \"{base}\"\n");
    let error = |path: &str| Profile::load(path).unwrap_err().to_string();
    let circle = write("circle.toml", &on("circle.toml"));
    assert!(error(&circle).contains("circle.toml:3: base: more than 8"), "{}", error(&circle));
    let lost = write("lost.toml", &on("nowhere.toml"));
    assert!(error(&lost).contains("lost.toml:3: base: 'nowhere.toml'"), "{}", error(&lost));
    let nameless = write("nameless.toml", "base = \"asg-1115s\"\n");
    assert!(error(&nameless).contains("needs its own"), "{}", error(&nameless));
    // A base in another folder brings its drive along; a mistake in it is told with its own name.
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let drive = include_str!("../profiles/drives/pm1743.toml");
    write("sub/drive.toml", &drive.replace("throttle_full = \"83 C\"", "throttle_full = \"60 C\""));
    let with = on("asg-1115s-thermal") + "[drives]\nmodel = \"drive.toml\"\n";
    write("sub/base.toml", &with);
    let top = write("top.toml", &on("sub/base.toml"));
    let message = error(&top);
    for part in ["top.toml:3: base:", "base.toml:5: model: drive.toml: line 84", "the hotter"] {
        assert!(message.contains(part), "{message}");
    }
    write("sub/drive.toml", drive);
    assert_eq!(Profile::load(&top).unwrap().drives.model, "drive.toml");
}
