//! What EADC does that the others do not.

use super::*;
use crate::Control;

/// A busy server with queries on its disks.
fn mixed(compute_jobs: usize) -> Plant {
    let mut jobs = vec![query()];
    jobs.extend(vec![compute(1.0); compute_jobs]);
    let mut plant = Plant::new(Physics::default(), jobs);
    plant.curve = Some(fig5());
    plant
}

#[test]
fn busy_disks_cap_the_fans_at_the_knee_that_the_curve_has() {
    for (knee, points) in [
        (0.4, vec![(0.2, 1.0), (0.4, 1.0), (0.6, 0.9), (1.0, 0.4)]),
        (0.55, vec![(0.2, 1.0), (0.55, 0.98), (0.7, 0.9), (1.0, 0.7)]),
    ] {
        let mut plant = mixed(14);
        plant.curve = Some(Curve::new(points).unwrap());
        let mut eadc = looped("eadc", plant);
        eadc.run(1800);
        for _ in 0..600 {
            eadc.step();
            assert!(eadc.duty() <= knee, "{} over {knee}", eadc.duty());
        }
        assert!(eadc.duty() >= knee - 0.01, "the load needs all of it: {}", eadc.duty());
        assert!(eadc.plant.hottest() <= SET_POINT.0 + 2.5, "{}", eadc.plant.hottest());
    }
}

#[test]
fn the_cap_is_lifted_when_the_disks_fall_idle() {
    let mut eadc = looped("eadc", mixed(14));
    eadc.run(1800);
    assert_eq!(eadc.duty(), 0.4);
    eadc.plant.jobs[0].disk = 0.0;
    eadc.run(600);
    assert!(eadc.duty() > 0.45, "{}", eadc.duty());
    let shares = eadc.shares();
    assert!(shares.iter().all(|share| *share == 1.0), "{shares:?}");
}

#[test]
fn jobs_that_use_the_disks_least_are_throttled_first() {
    let mut plant = mixed(14);
    for (job, disk) in plant.jobs.iter_mut().zip([150e6, 30e6, 20e6, 10e6]) {
        job.disk = disk;
    }
    let mut eadc = looped("eadc", plant);
    eadc.run(1800);
    let mut throttled = false;
    for _ in 0..600 {
        eadc.step();
        let shares = eadc.shares();
        assert!(shares[..4].iter().all(|share| *share > 1.0 - 1e-9), "{shares:?}");
        assert!(shares.iter().all(|share| *share >= MIN_JOB_SHARE));
        // The others are alike, and throttled alike.
        assert!(shares[4..].iter().all(|share| *share == shares[4]), "{shares:?}");
        throttled |= shares[4] < 1.0;
    }
    assert!(throttled, "this load does not fit under the cap");
}

#[test]
fn disks_work_faster_than_under_the_baselines() {
    let bytes = |name: &str| {
        let mut looped = looped(name, mixed(15));
        looped.run(3600);
        looped.plant.done[0].0
    };
    let [dlb, jetc, eadc] = ["dlb", "jetc", "eadc"].map(bytes);
    assert!(eadc > 1.1 * dlb && eadc > jetc, "{dlb:e} {jetc:e} {eadc:e}");
}

#[test]
fn a_write_burst_raises_the_airflow_before_the_drive_is_warm() {
    let mut plant = mixed(1);
    plant.curve = None;
    let mut eadc = looped("eadc", plant);
    eadc.run(1200);
    let before = eadc.duty();
    eadc.plant.drive_power = 18.0;
    // What a short burst adds, the drive can take.
    eadc.run(10);
    assert!((eadc.duty() - before).abs() < 0.02, "{before} to {}", eadc.duty());
    let rises = (0..600).find(|_| {
        eadc.run(1);
        eadc.duty() > before + 0.05
    });
    assert!(rises.is_some() && eadc.plant.drive < 68.0, "{rises:?} s, {}", eadc.plant.drive);
    for _ in 0..1800 {
        eadc.run(1);
        assert!(eadc.plant.drive < 70.0 && !eadc.guarded(), "{}", eadc.plant.drive);
    }
    // By the temperature of the processors alone the guard has to do it, later.
    let mut jetc = looped("jetc", mixed(1));
    jetc.plant.drive_power = 18.0;
    let mut taken = 0;
    for _ in 0..6000 {
        jetc.step();
        taken += usize::from(jetc.guarded());
        assert!(jetc.plant.drive < 70.0, "{}", jetc.plant.drive);
    }
    assert!(taken > 0);
    // And does not swing.
    let (low, high, turns) = jetc.swing(600);
    assert!(high - low <= 0.05 && turns <= 30, "{low} to {high}, {turns} turns");
}

#[test]
fn what_is_learned_of_the_drives_stays_true_when_half_of_the_fans_die() {
    let mut plant = mixed(1);
    plant.curve = None;
    let mut eadc = looped("eadc", plant);
    eadc.plant.drive_power = 9.0;
    eadc.run(3600);
    eadc.plant.fan_faults[..3].fill(Some(FanFault::Dead));
    eadc.plant.drive_power = 11.0;
    let mut most = 0.0_f64;
    for _ in 0..3600 {
        eadc.run(1);
        most = most.max(eadc.plant.drive);
    }
    assert!(most < 70.0, "{most}");
    assert!(eadc.duty() < 0.9, "{}", eadc.duty());
}

#[test]
fn one_disk_at_work_keeps_the_cap_after_a_stream_on_all() {
    let mut plant = mixed(14);
    plant.jobs[0].disk = 1.4e9;
    let mut eadc = looped("eadc", plant);
    eadc.run(1800);
    for rate in [150e6, 75e6] {
        eadc.plant.jobs[0].disk = rate;
        for _ in 0..1200 {
            eadc.step();
            assert!(eadc.duty() <= 0.4, "{rate:e}: {}", eadc.duty());
        }
    }
}

#[test]
fn frequency_is_the_last_thing_that_gives() {
    // Fans that cannot: two of six left, and heat that no job accounts for.
    let mut plant = mixed(14);
    plant.fan_faults[..4].fill(Some(FanFault::Dead));
    plant.background = 3.0;
    let mut eadc = looped("eadc", plant);
    let (mut throttled_at, mut lowered_at) = (None, None);
    for step in 0..3600 {
        eadc.step();
        let before = &eadc.plant.signals.in_force;
        for decision in eadc.in_force.decisions(before, eadc.plant.signals.now) {
            match decision.control {
                Control::JobShare if decision.to < decision.from => {
                    throttled_at.get_or_insert(step);
                }
                Control::FrequencyCap if decision.to < decision.from => {
                    lowered_at.get_or_insert(step);
                }
                _ => {}
            }
        }
    }
    let throttled_at = throttled_at.unwrap();
    assert!(lowered_at.is_none_or(|at| at >= throttled_at), "{throttled_at} {lowered_at:?}");
    assert!(eadc.peak < RED_LINE.0, "{}", eadc.peak);
}

#[test]
fn under_heat_the_classes_that_matter_most_are_let_in() {
    let mut eadc = looped("eadc", mixed(14));
    eadc.run(60);
    assert!(QosClass::ALL.iter().all(|class| eadc.in_force.admits(*class)), "cool");
    eadc.plant.background = 6.0;
    let mut refused = [0; 4];
    for _ in 0..1200 {
        eadc.step();
        for class in QosClass::ALL {
            refused[class as usize] += usize::from(!eadc.in_force.admits(class));
        }
    }
    assert_eq!(refused[QosClass::Critical as usize], 0);
    assert!(refused[QosClass::Noncritical as usize] > 600, "{refused:?}");
    assert!(refused.is_sorted(), "{refused:?}");
}

#[test]
fn a_lost_sensor_brings_the_fans_up_by_itself() {
    for name in POLICIES {
        let mut looped = looped(name, mixed(8));
        looped.run(1800);
        let before = looped.duty();
        looped.plant.sensor_faults[0] = Some(SensorFault::Lost);
        let (_, most, _) = looped.swing(90);
        assert!(most > before + 0.2, "{name}: {before} {most}");
        looped.plant.sensor_faults[0] = None;
        looped.run(600);
        assert!((looped.duty() - before).abs() < 0.2, "{name}: {before} {}", looped.duty());
    }
}

/// Full fans, and nothing is held back: the hardware sees the die itself.
#[test]
fn with_a_sensor_lost_for_good_the_server_goes_on() {
    for name in ["dlb", "eadc", "eadc-plus"] {
        let mut looped = looped(name, mixed(8));
        looped.run(1800);
        looped.plant.sensor_faults[0] = Some(SensorFault::Lost);
        looped.run(1800);
        let work = |looped: &Loop| looped.plant.done.iter().map(|(_, cpu)| cpu).sum::<f64>();
        let before = work(&looped);
        looped.run(600);
        let (did, all) = (work(&looped) - before, 600.0 * 8.3);
        assert!(did > 0.99 * all, "{name}: {did} of {all} CPU seconds");
        assert!(looped.plant.hottest() < EMERGENCY.0, "{name}: {}", looped.plant.hottest());
        assert_eq!(looped.duty(), 1.0, "{name}");
    }
}

#[test]
fn a_cool_server_whose_inlet_nobody_measures_is_no_emergency() {
    let cool = Physics { ambient: 15.0, idle: 5.0, leakage: 3.0, ..Physics::default() };
    let mut looped = looped("dlb", Plant::new(cool, Vec::new()));
    looped.blind = true;
    looped.run(300);
    assert!(looped.plant.hottest() < 24.0, "{}", looped.plant.hottest());
    assert!(!looped.guarded() && looped.duty() < 0.5, "{}", looped.duty());
}

#[test]
fn a_lost_sensor_holds_no_job_back_and_after_it_the_guard_needs_no_fan_rate() {
    for name in ["eadc", "eadc-plus"] {
        let mut looped = looped(name, mixed(8));
        looped.run(1800);
        looped.plant.sensor_faults[0] = Some(SensorFault::Lost);
        for period in 0..780 {
            if period == 180 {
                looped.plant.sensor_faults[0] = None;
            }
            looped.step();
            let held_back = looped.shares().iter().any(|share| *share < 1.0)
                || looped.in_force.ceiling(None) < looped.plant.topology.max_frequency();
            assert!(!held_back, "{name}: period {period}");
            let rated = looped.in_force.held().any(|(_, _, reason)| reason == "guard:fan-rate");
            assert!(!rated, "{name}: the guard held the fans back in period {period}");
        }
    }
}
