//! A sensor that is lost asks for air, and for nothing else.

use super::*;
use ebb_policy::sense::EMERGENCY;
use ebb_twin::faults::Place;

const FOREVER: u64 = 1_000_000;
/// Of the loss that ends.
const END: Nanos = Nanos::from_secs(1890);

fn lost(from: u64, until: u64) -> Vec<FaultEvent> {
    vec![fault(Fault::SensorLost(Place::Socket(0)), from, until)]
}

#[test]
fn a_lost_sensor_brings_the_fans_up_by_itself() {
    for name in POLICIES {
        let scene = Scene { faults: lost(1800, 1890), ..Scene::mixed(8, 2500) };
        let seen = scene.run(name);
        let before = seen.at(1800).duty();
        let most = seen.between(1800, 1890).iter().map(Period::duty).fold(0.0, f64::max);
        assert!(most > before + 0.2, "{name}: {before} {most}");
        let after = seen.at(2490).duty();
        assert!((after - before).abs() < 0.2, "{name}: {before} {after}");
    }
}

/// Full fans, and nothing is held back: the hardware sees the die itself.
#[test]
fn with_a_sensor_lost_for_good_the_server_goes_on() {
    for name in ["dlb", "eadc", "eadc-plus"] {
        let seen = Scene { faults: lost(900, FOREVER), ..Scene::mixed(8, 2400) }.run(name);
        let (before, after) = (seen.between(600, 900), seen.between(1800, 2400));
        let (did, all) = (mean(after, |p| p.work), mean(before, |p| p.work));
        assert!(did > 0.99 * all, "{name}: {did} of {all} cores' worth of work");
        let peak = peak(after);
        assert!(peak < EMERGENCY.0, "{name}: {peak}");
        assert_eq!(seen.last().duty(), 1.0, "{name}");
    }
}

#[test]
fn it_holds_no_job_back_and_after_it_the_guard_needs_no_fan_rate() {
    for name in ["eadc", "eadc-plus"] {
        let seen = Scene { faults: lost(1800, 1890), ..Scene::mixed(8, 2190) }.run(name);
        // What `eadc-plus` chose before is not for the sensor's sake.
        let lowest = |period: &Period| {
            let caps = period.in_force.frequency_cap.values().flatten();
            caps.fold(f64::INFINITY, |low, cap| low.min(cap.0))
        };
        let before = seen.between(1700, 1800).iter().map(lowest).fold(f64::INFINITY, f64::min);
        for period in seen.between(1800, 2190) {
            let share = period.shares().fold(1.0, f64::min);
            let lower = lowest(period) < before && (name == "eadc" || period.now < END);
            assert!(share == 1.0 && !lower, "{name}: at {}", period.now);
            let rated = period.in_force.held().any(|(_, _, reason)| reason == "guard:fan-rate");
            assert!(!rated, "{name}: the guard held the fans back at {}", period.now);
        }
    }
}

#[test]
fn a_cool_server_whose_inlet_nobody_measures_is_no_emergency() {
    let mut profile = server();
    let thermal = profile.thermal.as_mut().unwrap();
    (thermal.inlet, thermal.socket.start) = (Celsius(15.0), Celsius(15.0));
    thermal.drive.start = Celsius(15.0);
    thermal.leakage.power = Watts(10.0);
    profile.cpu.uncore = Watts(10.0);
    let faults = vec![fault(Fault::SensorLost(Place::Inlet), 0, FOREVER)];
    // Something that has hardly begun when the run ends.
    let jobs = vec![busy(290, 1)];
    let seen = Scene { profile, curve: None, jobs, faults, seconds: 300 }.run("dlb");
    assert!(seen.peak() < 24.0, "{}", seen.peak());
    for period in seen.between(1, 300) {
        assert!(!period.guarded() && period.duty() < 0.5, "{}: {}", period.now, period.duty());
    }
}
