//! A part that throttles early is kept from it like any other.

use super::*;

fn scene(throttle: f64, seconds: u64) -> Scene {
    let mut scene = Scene::mixed(8, seconds);
    let emergency = &mut scene.profile.thermal.as_mut().unwrap().emergency;
    (emergency.at, emergency.release) = (Celsius(throttle), Celsius(throttle - 5.0));
    scene
}

#[test]
fn what_throttles_early_is_kept_below_that() {
    for throttle in [80.0, 75.0] {
        for name in POLICIES {
            let seen = scene(throttle, 2400).run(name);
            for period in seen.between(1800, 2400) {
                assert!(period.die < throttle, "{name} at {throttle}: {}", period.die);
                assert!(!period.guarded(), "{name}: the guard has nothing to do");
            }
            let (last, peak) = (seen.last().die, seen.peak());
            // `eadc-plus` heats as little as is worth it.
            let needed = name == "eadc-plus" || last > throttle - 12.0;
            assert!(needed, "{name} at {throttle}: {last}, colder than needed");
            assert!(peak < throttle + 5.0, "{name} at {throttle}: {peak}");
        }
        let peak = scene(throttle, 1800).run("stoker").peak();
        assert!(peak < throttle + 5.0, "{throttle}: {peak}");
    }
}

#[test]
fn what_throttles_late_is_kept_to_the_papers_temperatures() {
    for name in POLICIES {
        let run = |throttle| {
            let seen = scene(throttle, 1200).run(name);
            assert!(seen.peak() < 90.0, "{name}: {}", seen.peak());
            (seen.last().in_force.clone(), format!("{:?}", seen.outcome.energy))
        };
        let usual = run(90.0);
        for throttle in [95.0, 104.0] {
            assert_eq!(run(throttle), usual, "{name} at {throttle}");
        }
    }
}
