//! Work that begins on a server that has done little so far: no fire, whatever was learnt of it.

use super::*;
use ebb_policy::sense::SET_POINT;

#[test]
fn the_first_work_of_an_idle_server_is_no_emergency() {
    // What each of eight readers computes for a block, about 80 times a second.
    for (name, little) in [("dlb", 1), ("eadc", 25), ("eadc-plus", 600)] {
        for idle in [5, 20, 60, 400, 1500] {
            let little = Nanos::from_micros(little);
            // Then little more, in which nothing but the first heat of a cold die is to be seen.
            let from = |start| move |disk| Job { start, ..reader(disk, little) };
            let (more, work) = (Nanos::from_secs(idle), idle + 60);
            let mut jobs: Vec<_> = (0..4).map(from(Nanos::ZERO)).collect();
            jobs.extend((4..8).map(from(more)));
            jobs.extend(vec![busy(work, 100_000); 8]);
            let (profile, faults) = (server(), Vec::new());
            let seen = Scene { profile, curve: None, jobs, faults, seconds: work + 120 }.run(name);
            for period in &seen.periods {
                assert!(!period.guarded(), "{name}, idle for {idle} s: at {}", period.now);
            }
            assert!(seen.peak() < SET_POINT.0, "below the set point: {}", seen.peak());
            let worked = mean(seen.between(work + 60, work + 120), |period| period.work);
            // Readers are on some of their cores.
            assert!(worked > 6.0, "{worked}");
        }
    }
}
