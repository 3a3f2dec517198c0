//! What the guard does for drives: hot ones, and those of which little is known.

use super::*;
use crate::{DriveSignals, Source};

/// [`warm_bench`] with cool sockets and drives that bear 70 °C, the last one as much as unknown
/// ones do.
fn drive_bench() -> Bench {
    let mut bench = warm_bench(50.0);
    let mut server = bench.guard.topology.clone();
    server.drives[..3].iter_mut().for_each(|drive| drive.limit = Some(Celsius(70.0)));
    bench.guard = Guard::new(&server, Limits::default());
    bench
}

impl Bench {
    /// One period with these drives, for a policy that wants the least air.
    fn warm_drives(&mut self, temperatures: [Option<f64>; 4]) -> Vec<&'static str> {
        self.warm(Some(self.cool()));
        for (drive, t) in self.signals.drives.iter_mut().zip(temperatures) {
            drive.temperature = t.map(Celsius);
        }
        self.period(fans(0.2))
    }
}

#[test]
fn a_hot_drive_has_the_air_it_needs_until_it_is_cool() {
    for (drive, limit) in [(1, 70.0), (3, 60.0)] {
        let mut bench = drive_bench();
        let mut at = |t: f64| {
            let mut all = [Some(40.0), Some(40.0), None, Some(40.0)];
            all[drive] = Some(t);
            let guarded = bench.warm_drives(all);
            (bench.fan().unwrap(), guarded)
        };
        assert!(at(limit - 1.0).0 < 1.0);
        assert_eq!(at(limit), (1.0, vec!["guard:hot-drive"]));
        for t in [limit + 3.0, limit, limit - 2.0] {
            assert_eq!(at(t).0, 1.0);
        }
        // Then as much as its temperature asks for, and no policy may take that away.
        let near: Vec<f64> = (0..600).map(|_| at(limit - 5.0).0).collect();
        assert!(near.is_sorted_by(|a, b| a >= b) && near[0] > 0.95, "{near:?}");
        assert!((0.4..0.6).contains(&near[599]), "{}", near[599]);
        assert!(at(limit - 4.0).0 > near[599]);
        (0..40).for_each(|_| drop(at(limit - 8.0)));
        assert_eq!(at(limit - 8.0), (0.2, vec![]));
    }
}

#[test]
fn a_drive_that_falls_silent_warms_up_in_the_dark() {
    let mut bench = drive_bench();
    let mut full_after = |first: Option<f64>| {
        bench.warm_drives([first, Some(40.0), None, Some(40.0)]);
        (1..=600).find(|_| {
            bench.warm_drives([None, Some(40.0), None, Some(40.0)]);
            bench.fan() == Some(1.0)
        })
    };
    // One that never spoke is nobody's.
    assert_eq!(full_after(None), None);
    // 20 K at a tenth of a kelvin per second.
    let periods = full_after(Some(50.0)).unwrap();
    assert!((398..=402).contains(&periods), "{periods}");
    bench.warm_drives([Some(50.0), Some(40.0), None, Some(40.0)]);
    assert!(bench.fan().unwrap() < 1.0);
}

/// Seconds until the fans are full, and until the policy has them back after that, within ten
/// minutes in which drive 0 is as `seen` makes it: 50 °C warm before, when its state was known.
fn while_seen(seen: impl Fn(usize, &mut [DriveSignals])) -> (Option<usize>, Option<usize>) {
    let mut bench = drive_bench();
    bench.signals.drives[0].state = Some(0);
    bench.warm_drives([Some(50.0), Some(40.0), None, Some(40.0)]);
    let duties: Vec<_> = (1..=1200)
        .map(|period| {
            bench.warm(Some(bench.cool()));
            seen(period, &mut bench.signals.drives);
            bench.period(fans(0.2));
            bench.fan().unwrap()
        })
        .collect();
    let full = duties.iter().position(|duty| *duty == 1.0);
    let back = duties[full.unwrap_or(0)..].iter().position(|duty| *duty == 0.2);
    (full.map(|period| period / 2), back.map(|period| period / 2))
}

#[test]
fn a_drive_that_was_pulled_out_is_forgotten_and_one_that_lost_its_temperature_is_not() {
    let nothing = DriveSignals::default();
    let pulled = while_seen(|_, drives| drives[0] = nothing);
    assert_eq!(pulled.0, None, "gone before it can have warmed by 20 K");
    // Its state is still told.
    let (full, back) = while_seen(|_, drives| drives[0].temperature = None);
    assert!((198..=202).contains(&full.unwrap()) && back.is_none(), "{full:?} {back:?}");
    // Now and then: it is there.
    let often = while_seen(|period, drives| {
        drives[0] = nothing;
        drives[0].state = period.is_multiple_of(120).then_some(0);
    });
    assert_eq!(often, (full, None));
    // Nothing of any drive: nobody asks them.
    assert_eq!(while_seen(|_, drives| drives.fill(nothing)), (full, None));
}

#[test]
fn a_hot_drive_that_is_pulled_out_gives_the_fans_back_until_it_speaks_again() {
    let nothing = DriveSignals::default();
    let at = |t: f64| DriveSignals { temperature: Some(Celsius(t)), state: Some(0), ..nothing };
    let (full, back) = while_seen(|period, drives| {
        drives[0] = if period < 100 { at(70.0) } else { nothing };
    });
    // Two minutes of silence, then as slowly as fans slow down.
    assert_eq!(full, Some(0));
    assert!((170..=190).contains(&back.unwrap()), "{back:?}");
    let again = while_seen(|period, drives| {
        drives[0] = if period < 1000 { nothing } else { at(70.0) };
    });
    assert_eq!(again, (Some(499), None));
}

#[test]
fn the_board_has_its_fans_back_when_the_drives_are_cool() {
    let mut bench = drive_bench();
    let mut asks_nothing = |t: f64| {
        bench.warm(Some(bench.cool()));
        bench.signals.drives[0].temperature = Some(Celsius(t));
        bench.period(|_| ());
        bench.fan()
    };
    assert_eq!(asks_nothing(60.0), None);
    assert_eq!(asks_nothing(70.0), Some(1.0));
    assert_eq!(asks_nothing(64.0), None);
}

#[test]
fn drives_whose_states_nobody_knows_may_draw_power() {
    let mut bench = Bench::new(Limits::default());
    let mut topology = server();
    topology.drives.iter_mut().for_each(|drive| drive.states.clear());
    bench.guard = Guard::new(&topology, Limits::default());
    bench.request = Request::new(&topology);
    bench.signals.drives[0].power = Some(Watts(12.0));
    bench.period(|_| ());
    assert_eq!(bench.guard.native(), None);
    bench.signals.drives[0].power = Some(Watts(f64::NAN));
    bench.period(|_| ());
    assert_eq!(bench.guard.native(), Some("guard:absurd-drive-power"));
}

/// A host asks a drive for its state every ten seconds, and one that sleeps not at all.
#[test]
fn a_state_read_before_the_cap_was_lowered_is_no_disobedience() {
    let mut bench = Bench::with_budget(56.0);
    bench.signals.drives.iter_mut().for_each(|drive| drive.state = Some(0));
    let age = |seconds: f64| Source { age: Nanos::from_seconds(seconds), ..Source::default() };
    for period in 0..20 {
        let read = age(0.5 * f64::from(period));
        (0..4).for_each(|d| bench.signals.sources.set(Signal::DriveState, d, read));
        bench.period(|_| ());
        assert_eq!(bench.drives(), [3; 4], "{period}");
    }
    // Read again: three have obeyed, and one has not.
    bench.signals.drives[1..].iter_mut().for_each(|drive| drive.state = Some(3));
    (0..4).for_each(|d| bench.signals.sources.set(Signal::DriveState, d, age(0.0)));
    bench.period(|_| ());
    assert_eq!(bench.drives(), [4; 4]);
}
