//! What EADC does that the others do not. What counts as disk activity is in `disk_activity.rs`,
//! the feed-forward of drives in `feed_forward.rs`.

use super::*;
use ebb_policy::Control;
use ebb_policy::guard::MIN_JOB_SHARE;
use ebb_policy::sense::{RED_LINE, SET_POINT};

#[test]
fn busy_disks_cap_the_fans_at_the_knee_that_the_curve_has() {
    for (knee, points) in [
        (0.4, vec![(0.2, 1.0), (0.4, 1.0), (0.6, 0.9), (1.0, 0.4)]),
        (0.55, vec![(0.2, 1.0), (0.55, 0.98), (0.7, 0.9), (1.0, 0.7)]),
    ] {
        let curve = Some(Curve::new(points).unwrap());
        let mut scene = Scene { curve, ..Scene::mixed(14, 2100) };
        scene.profile.thermal.as_mut().unwrap().inlet = Celsius(38.0);
        let seen = scene.run("eadc");
        for period in seen.between(1800, 2100) {
            assert!(period.duty() <= knee, "{} over {knee}", period.duty());
        }
        let (duty, die) = (seen.last().duty(), seen.last().die);
        assert!(die <= SET_POINT.0 + 2.5, "{die}");
        assert!(duty >= knee - 0.01, "the load needs all of it: {duty} of {knee}");
    }
}

#[test]
fn jobs_that_use_the_disks_least_are_throttled_first() {
    let mut scene = Scene::mixed(11, 2100);
    // Faster ones, and slower ones by what they compute between.
    scene.jobs.extend((1..4).map(|disk| reader(disk, Nanos::from_millis(4 + 8 * u64::from(disk)))));
    scene.curve = Some(Curve::new(vec![(0.2, 1.0), (0.25, 1.0), (0.6, 0.9), (1.0, 0.4)]).unwrap());
    let seen = scene.run("eadc");
    let mut throttled = false;
    for period in seen.between(1800, 2100) {
        let shares: Vec<_> = period.shares().collect();
        // Critical ones have the first slots.
        assert!(shares[..4].iter().all(|share| *share > 1.0 - 1e-9), "{shares:?}");
        assert!(shares.iter().all(|share| *share >= MIN_JOB_SHARE));
        // The others are alike, and throttled alike.
        assert!(shares[4..15].iter().all(|share| *share == shares[4]), "{shares:?}");
        throttled |= shares[4] < 1.0;
    }
    assert!(throttled, "this load does not fit under the cap");
}

#[test]
fn disks_work_faster_than_under_the_baselines() {
    let mut scene = Scene::mixed(14, 2400);
    scene.profile.thermal.as_mut().unwrap().inlet = Celsius(38.0);
    let bytes = |name: &str| scene.run(name).outcome.jobs[0].disk_bytes as f64;
    let [dlb, jetc, eadc, plus] = ["dlb", "jetc", "eadc", "eadc-plus"].map(bytes);
    assert!(eadc > 1.1 * dlb && eadc > jetc, "{dlb:e} {jetc:e} {eadc:e}");
    assert!(plus > dlb && plus > jetc, "{dlb:e} {jetc:e} {plus:e}");
}

/// What a socket draws besides its work is measured, not assumed: with an assumed share the fans of
/// `eadc-plus` came nearly to rest when most of the work was over, until the guard blew.
#[test]
fn fans_know_where_sockets_go_when_most_of_the_work_is_over() {
    let mut scene = Scene::mixed(0, 900);
    let thermal = scene.profile.thermal.as_mut().unwrap();
    (thermal.inlet, thermal.socket.sink_to_air_k_per_w) = (Celsius(35.0), 0.46);
    scene.jobs.extend((0..11).map(|_| busy(0, 300)));
    let seen = scene.run("eadc-plus");
    assert!(seen.peak() < SET_POINT.0 + 2.5, "{}", seen.peak());
    let most = seen.between(400, 900).iter().map(Period::duty).fold(0.0, f64::max);
    assert!(most < 0.8, "{most}");
}

/// A server that waits draws nearly as much as one that works: when `eadc-plus` still paused jobs
/// to hold the set point, it took 5.2 times the energy of `dlb` on a server that could not hold it.
#[test]
fn no_job_is_paused_on_a_server_too_hot_for_the_set_point() {
    let mut scene = Scene { profile: Profile::load("eadc-e2").unwrap(), ..Scene::mixed(11, 1500) };
    let thermal = scene.profile.thermal.as_mut().unwrap();
    (thermal.inlet, thermal.socket.sink_to_air_k_per_w) = (Celsius(35.0), 0.42);
    let work = |name| scene.run(name).periods.iter().map(|period| period.work).sum::<f64>();
    let (dlb, plus) = (work("dlb"), work("eadc-plus"));
    assert!(plus > 0.9 * dlb, "{plus} of {dlb}");
}

#[test]
fn a_heat_sink_is_not_overheated_while_it_is_learnt() {
    let scene = Scene { profile: Profile::load("eadc-e2").unwrap(), ..Scene::mixed(11, 600) };
    let peak = scene.run("eadc-plus").peak();
    assert!(peak < 86.5, "{peak}");
}

#[test]
fn frequency_is_the_last_thing_that_gives() {
    // Fans that cannot: two of six left.
    let scene = Scene { faults: dead_fans(4, 0), ..Scene::mixed(14, 1800) };
    let seen = scene.run("eadc");
    let (mut throttled_at, mut lowered_at) = (None, None);
    for (step, period) in seen.periods.iter().enumerate() {
        for decision in period.in_force.decisions(&period.before, period.now) {
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
    assert!(seen.peak() < RED_LINE.0, "{}", seen.peak());
}

#[test]
fn under_heat_the_classes_that_matter_most_are_let_in() {
    let scene = Scene { faults: dead_fans(4, 60), ..Scene::mixed(14, 660) };
    let seen = scene.run("eadc");
    assert!(QosClass::ALL.iter().all(|class| seen.at(50).in_force.admits(*class)), "cool");
    let mut refused = [0; 4];
    for period in seen.between(60, 660) {
        for class in QosClass::ALL {
            refused[class as usize] += usize::from(!period.in_force.admits(class));
        }
    }
    assert_eq!(refused[QosClass::Critical as usize], 0);
    assert!(refused[QosClass::Noncritical as usize] > 600, "{refused:?}");
    assert!(refused.is_sorted(), "{refused:?}");
}
