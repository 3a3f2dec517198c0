//! The climate of whole runs: books, equations, throttling, trip, and that it changes nothing
//! where a profile does not model it.

use crate::common::{Clients, Held, Poisson, job, simulate, simulate_with};
use ebb_policy::units::{Celsius, Joules, Nanos};
use ebb_policy::{Limits, Policy};
use ebb_trace::{Op, Workload};
use ebb_twin::faults::Faults;
use ebb_twin::{Observer, Profile, Run, Sample, TwinError, Unobserved, Weather, run, run_to_trip};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

fn server() -> Profile {
    Profile::load("thermal-1u").unwrap()
}

/// The same with texts replaced.
fn changed(changes: &[(&str, &str)]) -> Profile {
    crate::common::changed("thermal-1u", changes)
}

/// The same, with packages that draw so many watts whatever they do: heat without the cost of
/// simulating the requests that would cause it.
fn burning(watts: u32, changes: &[(&str, &str)]) -> Profile {
    let uncore = format!("uncore = \"{watts} W\"");
    let changes: Vec<_> =
        changes.iter().copied().chain([("uncore = \"45 W\"", &*uncore)]).collect();
    changed(&changes)
}

/// Hardly any.
fn idle() -> Workload {
    Workload::Open(Box::new(Poisson::new(1_000_000, 1e8, 4096, 0.5, 1)))
}

/// What was seen of each period.
#[derive(Default)]
struct Seen {
    weather: Vec<Weather>,
    readings: Vec<Option<f64>>,
    duties: Vec<f64>,
    frequencies: Vec<f64>,
}

impl Observer for Seen {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.weather.push(sample.weather.unwrap().clone());
        let cooling = &sample.cycled.signals.cooling;
        self.readings.push(cooling.sockets[0].map(|reading| reading.temperature.0));
        self.duties.push(cooling.fans[0].duty.unwrap());
        self.frequencies.push(sample.cycled.signals.groups[0].frequency.unwrap().0);
    }
}

fn seen(profile: &Profile, policy: impl Policy + 'static, seconds: u64) -> Seen {
    let mut seen = Seen::default();
    let end = Some(Nanos::from_secs(seconds));
    simulate_with(profile, Box::new(policy), idle(), end, &mut seen);
    seen
}

#[test]
fn leakage_and_fans_are_in_the_books() {
    let profile = server();
    let outcome = simulate(&profile, idle(), Some(Nanos::from_secs(60)));
    let thermal = outcome.thermal.unwrap();
    assert!(thermal.leakage > Joules(0.0) && thermal.leakage < outcome.energy.cpu);
    // Six fans draw at least their electronics, at most full speed.
    let watts = outcome.energy.fans.0 / 60.0;
    assert!(watts > 6.0 * 0.383 && watts < 6.0 * 14.5, "{watts}");
    let parts: Joules = outcome.energy.components().iter().map(|(_, joules)| *joules).sum();
    assert_eq!(parts, outcome.energy.total());
    assert_eq!(thermal.span, outcome.span);
    // Without leakage the processors draw less by just as much, as idle cores do not care.
    let none = changed(&[("power = \"8 W\"", "power = \"0 W\"")]);
    let dry = simulate(&none, idle(), Some(Nanos::from_secs(60)));
    let saved = outcome.energy.cpu - dry.energy.cpu;
    assert!((saved.0 - thermal.leakage.0).abs() < 0.1, "{saved} {}", thermal.leakage);
}

#[test]
fn faster_fans_cool_cost_power_and_shake() {
    let profile = burning(150, &[]);
    let at = |duty| {
        let end = Some(Nanos::from_secs(120));
        let outcome = simulate_with(&profile, Box::new(Held(duty)), idle(), end, &mut Unobserved);
        (outcome.thermal.unwrap(), outcome.energy.fans)
    };
    let ((slow, slow_power), (fast, fast_power)) = (at(0.3), at(1.0));
    assert!(fast.hottest_socket < slow.hottest_socket);
    assert!(fast.hottest_drive < slow.hottest_drive);
    assert!(fast.leakage < slow.leakage);
    assert!(fast_power.0 > 5.0 * slow_power.0);
    assert!(fast.mean_vibration() > 2.0 * slow.mean_vibration());
}

#[test]
fn sensors_lag_behind_the_die_by_about_ten_seconds() {
    let seen = seen(&burning(200, &[]), Held(0.4), 60);
    let late = |seconds: f64| seen.readings[(seconds * 2.0) as usize].unwrap();
    let die = |seconds: f64| seen.weather[(seconds * 2.0) as usize].sockets[0].0;
    assert!((late(8.0) - 45.0).abs() <= 2.0, "still the start: {}", late(8.0));
    assert!(die(8.0) > 50.0);
    for second in [20.0, 30.0, 40.0, 50.0] {
        assert!((late(second) - die(second - 10.0)).abs() < 2.5, "at {second} s");
    }
}

#[test]
fn firmware_runs_the_fans_by_the_sensors() {
    let seen = seen(&burning(200, &[]), ebb_policy::cpu::Native, 120);
    assert!(seen.duties[0] < 0.3);
    assert!(*seen.duties.last().unwrap() > 0.35, "{:?}", seen.duties.last());
}

#[test]
fn the_hardware_slows_hot_cores_down_and_lets_them_go() {
    // Polling cores: their power falls with frequency even where there is nothing to do.
    let hot = changed(&[
        ("wait = \"sleep\"", "wait = \"poll\""),
        ("core_dynamic = \"4 W\"", "core_dynamic = \"18 W\""),
    ]);
    let mut seen = Seen::default();
    let end = Some(Nanos::from_secs(200));
    let outcome = simulate_with(&hot, Box::new(Held(0.3)), idle(), end, &mut seen);
    let slowed = seen.frequencies.iter().filter(|frequency| **frequency == 1.2e9).count();
    assert!(slowed > 2, "{:?}", seen.weather.last());
    let thermal = outcome.thermal.unwrap();
    assert_eq!(thermal.socket_throttled.0, slowed_time(&seen));
    // Bang-bang between the thresholds: let go after each, never far above.
    assert!(seen.frequencies.iter().rev().take(100).any(|frequency| *frequency > 2e9));
    assert!(thermal.hottest_socket < Celsius(93.0), "{}", thermal.hottest_socket);
}

/// Socket time throttled, as the periods' states at their beginning say.
fn slowed_time(seen: &Seen) -> u64 {
    let before = &seen.weather[..seen.weather.len() - 1];
    let throttled =
        |weather: &Weather| weather.throttled.iter().filter(|throttled| **throttled).count();
    before.iter().map(|weather| throttled(weather) as u64 * 500_000_000).sum()
}

#[test]
fn hot_drives_do_less() {
    // Drives without much heat capacity: hot in seconds where the air is slow.
    let folder = tempfile::tempdir().unwrap();
    let light = folder.path().join("light.toml");
    let heavy = include_str!("../profiles/drives/generic-nvme.toml");
    std::fs::write(&light, heavy.replace("j_per_k = 150.0", "j_per_k = 1.0")).unwrap();
    let model = format!("model = \"{}\"", light.display());
    let profile =
        changed(&[("model = \"generic-nvme\"", &model), ("raid = \"raid5\"", "raid = \"none\"")]);
    let writes = || {
        let random = Pcg64Mcg::seed_from_u64(3);
        let clients = Clients { slots: 32, bytes: 1 << 20, op: Op::Write, devices: 8, random };
        Workload::Closed(Box::new(clients))
    };
    let run = |duty| {
        let end = Some(Nanos::from_secs(12));
        // Without the guard, which would blow.
        let limits = Limits { drive: Some(Celsius(200.0)), ..Limits::default() };
        let job = job(&profile, Box::new(Held(duty)), writes(), end);
        run(Run { limits, ..job }, &mut Unobserved).unwrap()
    };
    let (cool, throttled) = (run(1.0), run(0.2));
    assert_eq!(cool.thermal.unwrap().drive_throttled, Nanos::ZERO);
    let heat = throttled.thermal.unwrap();
    assert!(heat.drive_throttled > Nanos::ZERO);
    assert!(throttled.bytes < cool.bytes, "{} {}", throttled.bytes, cool.bytes);
    // Without throttling they would be beyond 110 °C in the end.
    assert!(heat.hottest_drive < Celsius(95.0), "{}", heat.hottest_drive);
}

#[test]
fn a_trip_ends_the_run_and_says_why() {
    let doomed = burning(300, &[("sink_to_air_k_per_w = 0.2", "sink_to_air_k_per_w = 3.0")]);
    let end = Some(Nanos::from_secs(600));
    let error = run(job(&doomed, Box::new(Held(0.2)), idle(), end), &mut Unobserved).unwrap_err();
    assert!(matches!(error, TwinError::Trip { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("thermal trip: socket") && message.contains("airflow"), "{message}");
    // The same as an outcome: all that was up to then, in whole periods.
    let mut seen = Seen::default();
    let outcome = run_to_trip(job(&doomed, Box::new(Held(0.2)), idle(), end), &mut seen).unwrap();
    let trip = outcome.trip.unwrap();
    assert_eq!(TwinError::Trip(trip).to_string(), message);
    let late = outcome.span - trip.at;
    assert!(trip.at > Nanos::ZERO && late < ebb_policy::PERIOD, "{trip:?} {}", outcome.span);
    assert!(outcome.energy.total().0 > 0.0);
    assert!(outcome.thermal.unwrap().hottest_socket >= trip.temperature);
    assert_eq!(seen.weather.len() as u64, outcome.span.0 / ebb_policy::PERIOD.0);
}

#[test]
fn a_die_whose_temperature_is_no_number_trips_too() {
    // No profile says so; who builds one in code may.
    let mut profile = server();
    profile.fans.as_mut().unwrap().airflow_m3_s = 1e308;
    let end = Some(Nanos::from_secs(10));
    let error = run(job(&profile, Box::new(Held(1.0)), idle(), end), &mut Unobserved).unwrap_err();
    assert!(matches!(error, TwinError::Trip { .. }), "{error}");
}

#[test]
fn the_same_seeds_give_the_same_run_and_the_same_faults() {
    let profile = server();
    let once = |seed: Option<u64>| {
        let faults = seed.map(Faults::seeded);
        let end = Some(Nanos::from_secs(90));
        let native = Box::new(ebb_policy::cpu::Native);
        let mut seen = Seen::default();
        let job = Run { faults, ..job(&profile, native, idle(), end) };
        let outcome = run(job, &mut seen).unwrap();
        (seen.weather, seen.readings, format!("{:?}", outcome.energy))
    };
    assert_eq!(once(Some(5)), once(Some(5)));
    assert_ne!(once(Some(5)).0, once(None).0);
}

#[test]
fn faults_need_something_that_can_fail() {
    let profile = Profile::load("generic-1u").unwrap();
    let end = Some(Nanos::from_secs(1));
    let native = Box::new(ebb_policy::cpu::Native);
    let job = Run { faults: Some(Faults::seeded(1)), ..job(&profile, native, idle(), end) };
    let message = run(job, &mut Unobserved).unwrap_err().to_string();
    assert!(message.contains("[thermal]"), "{message}");
}
