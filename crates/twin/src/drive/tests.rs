//! What a drive promises whatever its profile, as properties.

use ebb_policy::units::Watts;
use proptest::prelude::*;

use super::*;
use crate::DriveFile;

pub(super) fn profile(name: &str) -> DriveProfile {
    DriveProfile::builtin(name).unwrap()
}

#[test]
fn every_shipped_profile_is_valid_and_reads_back() {
    for &(name, text) in DriveProfile::SHIPPED {
        let parsed = DriveProfile::from_toml(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(parsed.name, name);
        assert_eq!(DriveProfile::builtin(name), Some(parsed));
    }
    assert_eq!(DriveProfile::builtin("floppy"), None);
}

/// One step of a random history: a pause, then a command or a change of power state or limit.
#[derive(Debug, Clone)]
enum Step {
    Submit { pause: u64, op: Op, page: u64, bytes: u32 },
    State { pause: u64, ps: u8 },
    Limit { pause: u64, watts: Option<f64> },
}

impl Step {
    fn pause(&self) -> u64 {
        let (Self::Submit { pause, .. } | Self::State { pause, .. } | Self::Limit { pause, .. }) =
            self;
        *pause
    }
}

fn step() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![4 => 0u64..3_000, 2 => 0u64..2_000_000, 1 => 0u64..3_000_000_000];
    let op = prop_oneof![
        4 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Flush), 1 => Just(Op::Trim)
    ];
    let bytes = prop_oneof![Just(512u32), Just(4096), Just(16_384), Just(1 << 20), Just(8 << 20)];
    prop_oneof![
        20 => (pause.clone(), op, 0u64..1 << 28, bytes)
            .prop_map(|(pause, op, page, bytes)| Step::Submit { pause, op, page, bytes }),
        1 => (pause.clone(), 0u8..8).prop_map(|(pause, ps)| Step::State { pause, ps }),
        1 => (pause, prop::option::of(0.0..30.0))
            .prop_map(|(pause, watts)| Step::Limit { pause, watts }),
    ]
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(DriveProfile::names().collect::<Vec<_>>())
}

/// `small` is at most `large`, up to the rounding of the running total.
fn within(small: Joules, large: Joules) -> bool {
    small.0 <= large.0 + 1e-9
}

proptest! {
    /// Completion never precedes submission, energy never falls, and neither depends on how
    /// often the meter is read.
    #[test]
    fn energy_is_monotone_and_additive(
        name in names(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut often = Drive::new(&profile(name), 1);
        let mut once = Drive::new(&profile(name), 1);
        let (mut now, mut before) = (0, 0.0);
        for step in steps {
            let pause = step.pause();
            for part in [now + pause / 3, now + pause / 2, now + pause] {
                let energy = often.energy(Nanos(part)).0;
                prop_assert!(energy >= before);
                before = energy;
            }
            now += pause;
            let (a, b) = match step {
                Step::Submit { op, page, bytes, .. } => (
                    often.submit(Nanos(now), op, page * 4096, bytes),
                    once.submit(Nanos(now), op, page * 4096, bytes),
                ),
                Step::State { ps, .. } => (
                    often.set_power_state(Nanos(now), ps),
                    once.set_power_state(Nanos(now), ps),
                ),
                Step::Limit { watts, .. } => {
                    often.set_power_limit(Nanos(now), watts.map(Watts));
                    once.set_power_limit(Nanos(now), watts.map(Watts));
                    (Nanos(now), Nanos(now))
                }
            };
            prop_assert!(a >= Nanos(now));
            prop_assert_eq!(a, b);
        }
        let end = Nanos(now + 20_000_000_000);
        let (a, b) = (often.energy(end).0, once.energy(end).0);
        prop_assert!((a - b).abs() <= 1e-9 * b, "{} {}", a, b);
    }

    /// Mean power stays within the cap of the state and the limit in force, over every period
    /// however short, and never falls below the deepest idle power.
    #[test]
    fn power_stays_within_the_state(
        name in names(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let profile = profile(name);
        let mut drive = Drive::new(&profile, 1);
        let floor = profile.idle.last().map_or(profile.power.ready, |idle| idle.power);
        let cap = |ps: u8| profile.spec().cap(ps);
        let least = cap(u8::MAX);
        let (mut now, mut state, mut limit) = (0, 0, None);
        for step in steps {
            let pause = step.pause();
            let within_limit = |ps| limit.map_or(cap(ps), |limit| cap(ps).min(limit));
            let allowed = within_limit(state);
            let before = drive.energy(Nanos(now));
            now += pause;
            let (drawn, span) = (drive.energy(Nanos(now)) - before, Nanos(pause));
            prop_assert!(within(drawn, allowed * span), "{drawn} in {span} at {allowed}");
            prop_assert!(within(floor * span, drawn), "{drawn} in {span}, idle {floor}");
            match step {
                Step::Submit { op, page, bytes, .. } => {
                    drive.submit(Nanos(now), op, page * 4096, bytes);
                }
                Step::State { ps, .. } => {
                    state = ps.min(profile.states.len() as u8 - 1);
                    let done = drive.set_power_state(Nanos(now), ps);
                    let during = Nanos(done.0 - now);
                    let before = drive.energy(Nanos(now));
                    now = done.0;
                    let drawn = drive.energy(done) - before;
                    prop_assert!(within(drawn, allowed.max(within_limit(state)) * during));
                }
                Step::Limit { watts, .. } => {
                    limit = watts.map(|watts| Watts(watts).max(least));
                    drive.set_power_limit(Nanos(now), watts.map(Watts));
                }
            }
        }
    }
}

/// Keeps `depth` commands in flight until `end`; returns bytes per second and mean watts after
/// the first tenth.
pub(super) fn closed_loop(
    drive: &mut Drive,
    depth: usize,
    from: Nanos,
    length: Nanos,
    mut next: impl FnMut(u64) -> (Op, u64, u32),
) -> (f64, Watts) {
    let mut slots = vec![from; depth];
    let warm = Nanos(from.0 + length.0 / 10);
    let end = Nanos(from.0 + length.0);
    let (mut bytes, mut count, mut warm_energy) = (0.0, 0, None);
    loop {
        let slot = (0..depth).min_by_key(|slot| slots[*slot]).unwrap();
        let now = slots[slot];
        if now >= end {
            break;
        }
        if now >= warm && warm_energy.is_none() {
            warm_energy = Some(drive.energy(now));
        }
        let (op, offset, size) = next(count);
        count += 1;
        slots[slot] = drive.submit(now, op, offset, size);
        if now >= warm {
            bytes += f64::from(size);
        }
    }
    let span = Nanos(end.0 - warm.0);
    (bytes / span.seconds(), (drive.energy(end) - warm_energy.unwrap()) / span)
}
