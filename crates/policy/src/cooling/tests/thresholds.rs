//! A part that throttles early is kept from it like any other.

use super::safety::Stoker;
use super::*;

fn server(throttle: Option<f64>) -> Plant {
    let mut jobs = vec![compute(1.0); 8];
    jobs.push(query());
    let mut plant = Plant::new(Physics::default(), jobs);
    plant.topology.throttle = throttle.map(Celsius);
    plant.curve = Some(fig5());
    plant
}

#[test]
fn what_throttles_early_is_kept_below_that() {
    for throttle in [80.0, 75.0] {
        for name in POLICIES {
            let mut looped = looped(name, server(Some(throttle)));
            looped.run(1800);
            let mut taken = 0;
            for _ in 0..1200 {
                looped.step();
                taken += usize::from(looped.guarded());
                let t = looped.plant.hottest();
                assert!(t < throttle, "{name} at {throttle}: {t}");
            }
            assert!(looped.plant.hottest() > throttle - 12.0, "{name}: no colder than needed");
            assert_eq!(taken, 0, "{name}: the guard has nothing to do");
            assert!(looped.peak < throttle + 5.0, "{name} at {throttle}: {}", looped.peak);
        }
        let mut stoked = Loop::new(server(Some(throttle)), Box::new(Stoker));
        stoked.run(1800);
        assert!(stoked.peak < throttle + 5.0, "{throttle}: {}", stoked.peak);
    }
}

#[test]
fn what_throttles_late_or_never_says_is_kept_to_the_papers_temperatures() {
    for name in POLICIES {
        let run = |throttle| {
            let mut looped = looped(name, server(throttle));
            looped.run(1200);
            (looped.peak, looped.plant.energy, looped.in_force)
        };
        let usual = run(None);
        for throttle in [90.0, 95.0, 105.0] {
            assert_eq!(run(Some(throttle)), usual, "{name} at {throttle}");
        }
    }
}
