//! Behaviour that policies and the engine rely on, one test per promise.

use ebb_policy::units::Watts;

use super::tests::{closed_loop, profile};
use super::*;
use crate::DriveFile;

const SECOND: u64 = 1_000_000_000;

fn scattered(count: u64) -> u64 {
    (count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) * 4096
}

fn mean_watts(drive: &mut Drive, from: u64, to: u64) -> f64 {
    let before = drive.energy(Nanos(from));
    ((drive.energy(Nanos(to)) - before) / Nanos(to - from)).0
}

/// The command number n of a workload.
type Next = fn(u64) -> (Op, u64, u32);

/// Reads, writes and mixes of them, random and sequential, small and large.
fn mixes() -> [(&'static str, Next); 5] {
    [
        ("random reads", |n| (Op::Read, scattered(n), 4096)),
        ("random writes", |n| (Op::Write, scattered(n), 4096)),
        ("sequential reads", |n| (Op::Read, n * 65_536, 65_536)),
        ("sequential writes", |n| (Op::Write, n * 131_072, 131_072)),
        ("mixed", |n| (if n % 3 == 0 { Op::Write } else { Op::Read }, scattered(n), 16_384)),
    ]
}

#[test]
fn more_power_never_means_less_throughput() {
    for name in DriveProfile::names() {
        for (mix, next) in mixes() {
            for free in [1.0, 0.02] {
                let mut profile = profile(name);
                profile.gc.free = free;
                let rates = (0..profile.states.len() as u8).map(|ps| {
                    let mut drive = Drive::new(&profile, 3);
                    let from = drive.set_power_state(Nanos::ZERO, ps);
                    closed_loop(&mut drive, 64, from, Nanos::from_millis(300), next)
                });
                let rates: Vec<_> = rates.collect();
                for (ps, pair) in rates.windows(2).enumerate() {
                    let (more, less) = (pair[0].0, pair[1].0);
                    assert!(more >= 0.995 * less, "{name}, {mix}, {ps}: {more} < {less}");
                }
                for ((_, power), state) in rates.iter().zip(&profile.states) {
                    assert!(power.0 <= state.max_power.0 + 1e-6, "{name}, {mix}: {power}");
                }
            }
        }
    }
}

#[test]
fn a_power_limit_lies_between_the_power_states() {
    for name in ["pm1743", "generic-nvme"] {
        let profile = profile(name);
        let caps: Vec<_> = profile.states.iter().filter(|state| state.operational).collect();
        for (mix, next) in mixes() {
            let run = |set: &dyn Fn(&mut Drive) -> Nanos| {
                let mut drive = Drive::new(&profile, 3);
                let from = set(&mut drive);
                closed_loop(&mut drive, 64, from, Nanos::from_millis(300), next)
            };
            let state = |ps: usize| run(&|drive| drive.set_power_state(Nanos::ZERO, ps as u8));
            let limited = |limit: Watts| {
                run(&|drive| {
                    drive.set_power_limit(Nanos::ZERO, Some(limit));
                    Nanos::ZERO
                })
            };
            for (ps, pair) in caps.windows(2).enumerate() {
                let limit = (pair[0].max_power + pair[1].max_power) * 0.5;
                let (above, between, below) = (state(ps), limited(limit), state(ps + 1));
                let what = format!("{name}, {mix}, {limit}: {above:?} {between:?} {below:?}");
                assert!(between.1 <= limit + Watts(1e-6), "{what}");
                assert!(between.0 <= 1.005 * above.0 && below.0 <= 1.005 * between.0, "{what}");
                // Where the upper state's cap binds, less power is less throughput.
                if above.1 > pair[0].max_power - Watts(0.1) {
                    assert!(between.0 < 0.99 * above.0 && between.1 < above.1, "{what}");
                    assert!(below.0 < 0.99 * between.0 && below.1 < between.1, "{what}");
                }
                let own = limited(pair[1].max_power);
                assert!((own.0 / below.0 - 1.0).abs() < 0.01, "{what}: {own:?} at its cap");
            }
        }
    }
}

#[test]
fn a_power_limit_holds_at_once_in_any_state_and_ends() {
    let profile = profile("pm1743");
    let mut drive = Drive::new(&profile, 3);
    for count in 0..40_000 {
        drive.submit(Nanos::ZERO, Op::Write, count * (1 << 20), 1 << 20);
    }
    let mut second = 0;
    let mut next = |drive: &mut Drive| {
        second += 1;
        mean_watts(drive, (second - 1) * SECOND, second * SECOND)
    };
    let at = |second: u64| Nanos(second * SECOND);
    let free = next(&mut drive);
    drive.set_power_limit(at(1), Some(Watts(16.5)));
    let limited = next(&mut drive);
    assert!(free > 20.0 && (16.0..=16.5 + 1e-6).contains(&limited), "{free} {limited}");
    // A deeper state holds below it; a shallower one does not lift it.
    drive.set_power_state(at(2), 3);
    assert!(next(&mut drive) <= 14.0 + 1e-6);
    drive.set_power_state(at(3), 0);
    assert!((16.0..=16.5 + 1e-6).contains(&next(&mut drive)));
    // No lower than the lowest state's cap.
    drive.set_power_limit(at(4), Some(Watts(0.5)));
    assert!((8.5..=9.0 + 1e-6).contains(&next(&mut drive)));
    drive.set_power_limit(at(5), None);
    let again = next(&mut drive);
    assert!((free..=25.0 + 1e-6).contains(&again), "{again} {free}");
}

/// The twin's own check of the number that NVMe defines: any 10 s at full load.
#[test]
fn ten_seconds_at_full_load_stay_within_the_cap() {
    let profile = profile("pm1743");
    for (ps, state) in profile.states.iter().enumerate() {
        let mut drive = Drive::new(&profile, 3);
        let mut now = drive.set_power_state(Nanos::ZERO, ps as u8);
        let begin = now;
        let before = drive.energy(now);
        let mut count = 0;
        while now.0 < begin.0 + 10 * SECOND {
            now = drive.submit(now, Op::Write, count * (1 << 20), 1 << 20);
            count += 1;
        }
        let mean = (drive.energy(now) - before) / Nanos(now.0 - begin.0);
        assert!(mean.0 <= state.max_power.0 + 1e-6, "state {ps}: {mean}");
    }
}

#[test]
fn a_backlog_is_drawn_as_it_is_worked_off() {
    let mut drive = Drive::new(&profile("pm1743"), 3);
    let mut end = Nanos::ZERO;
    for count in 0..7_000 {
        end = drive.submit(Nanos::ZERO, Op::Write, count * (1 << 20), 1 << 20);
    }
    assert!((0.9..1.1).contains(&end.seconds()), "a second of writes: {end}");
    let tenths: Vec<_> =
        (0..9).map(|i| mean_watts(&mut drive, i * SECOND / 10, (i + 1) * SECOND / 10)).collect();
    for power in &tenths {
        assert!((power - tenths[0]).abs() < 0.2, "{tenths:?}");
    }
    assert!((20.0..=25.0).contains(&tenths[0]), "{tenths:?}");
    let after = mean_watts(&mut drive, 3 * SECOND, 4 * SECOND);
    assert!((after - 5.0).abs() < 0.01, "idle after: {after}");
}

#[test]
fn same_seed_same_history_other_seed_other() {
    let run = |seed| {
        let mut drive = Drive::new(&profile("pm1743"), seed);
        let next = |n: u64| if n & 1 == 0 { Op::Read } else { Op::Write };
        let ends: Vec<_> =
            (0..5_000).map(|n| drive.submit(Nanos(n * 900), next(n), scattered(n), 4096)).collect();
        (ends, drive.energy(Nanos(SECOND)).0.to_bits())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn a_change_of_state_takes_exit_and_entry_and_commands_wait() {
    let mut profile = profile("pm1743");
    profile.states[0].exit = Nanos::from_millis(3);
    profile.states[3].entry = Nanos::from_millis(4);
    let mut drive = Drive::new(&profile, 3);
    let now = Nanos::from_millis(10);
    let done = drive.set_power_state(now, 3);
    assert_eq!(done, Nanos::from_millis(17));
    assert_eq!(drive.power_state(), 3);
    assert_eq!(drive.set_power_state(now, 3), done, "asking again changes nothing");
    assert!(drive.submit(now, Op::Read, 0, 4096) > done);
    let idle = Nanos::from_millis(50);
    assert_eq!(drive.set_power_state(idle, 3), idle, "already in force");
    let beyond = drive.set_power_state(idle, 200);
    assert!(beyond > idle && drive.power_state() == 4, "clamped to the last state");
}

#[test]
fn of_changes_during_a_change_the_last_follows_it() {
    let mut profile = profile("pm1743");
    for state in &mut profile.states {
        (state.exit, state.entry) = (Nanos::from_millis(3), Nanos::from_millis(4));
    }
    let mut drive = Drive::new(&profile, 3);
    let millis = Nanos::from_millis;
    assert_eq!(drive.set_power_state(Nanos::ZERO, 3), millis(7));
    for count in 0..50_000_u32 {
        let at = Nanos(100 * u64::from(count));
        assert_eq!(drive.set_power_state(at, [1, 2][count as usize % 2]), millis(14));
    }
    assert_eq!(drive.power_state(), 2);
    assert_eq!(drive.set_power_state(millis(6), 3), millis(7), "where it goes anyway");
    assert_eq!(drive.set_power_state(millis(6), 1), millis(14));
    // That one is under way by then.
    assert_eq!(drive.set_power_state(millis(8), 0), millis(21));
    let end = drive.submit(millis(8), Op::Read, 0, 4096);
    assert!(end > millis(21) && end < millis(28), "{end}");
}

#[test]
fn a_lower_cap_holds_at_once_and_a_higher_one_only_when_in_force() {
    let mut profile = profile("pm1743");
    profile.states[0].entry = Nanos::from_millis(200);
    profile.states[0].exit = Nanos::from_millis(200);
    let mut drive = Drive::new(&profile, 3);
    for count in 0..20_000 {
        drive.submit(Nanos::ZERO, Op::Write, count << 20, 1 << 20);
    }
    let done = drive.set_power_state(Nanos(SECOND / 2), 3).0;
    assert!(mean_watts(&mut drive, SECOND / 2, done) <= 14.0 + 1e-6);
    let back = drive.set_power_state(Nanos(SECOND), 0).0;
    assert!(mean_watts(&mut drive, SECOND, back) <= 14.0 + 1e-6);
    assert!(mean_watts(&mut drive, back, back + SECOND / 10) > 20.0);
}

#[test]
fn a_non_operational_state_saves_power_until_the_next_command() {
    let mut profile = profile("client-m2");
    profile.states.push(State {
        max_power: ebb_policy::units::Watts(0.07),
        operational: false,
        entry: Nanos::from_micros(500),
        exit: Nanos::from_micros(5_000),
    });
    let mut drive = Drive::new(&profile, 3);
    let done = drive.set_power_state(Nanos::ZERO, 1).0;
    assert_eq!(done, 500_000);
    assert!((mean_watts(&mut drive, done, SECOND) - 0.07).abs() < 1e-9);
    let completed = drive.submit(Nanos(SECOND), Op::Read, 0, 4096).0;
    assert!(completed >= SECOND + 5_000_000, "waits for the exit: {completed}");
    assert_eq!(drive.power_state(), 0, "left by itself");
    assert!(mean_watts(&mut drive, 2 * SECOND, 3 * SECOND) > 1.0);
}

#[test]
fn idle_time_refills_the_pool_at_a_price() {
    let mut profile = profile("pm1743");
    profile.capacity = ebb_policy::units::Bytes(100_000_000_000);
    profile.gc.free = 0.05;
    profile.gc.background_target = 0.5;
    let mut drive = Drive::new(&profile, 3);
    let free = drive.free_flash();
    let resting = mean_watts(&mut drive, 0, SECOND / 20);
    let working = mean_watts(&mut drive, SECOND / 5, SECOND / 2);
    assert!(working > resting + 1.0, "{working} W after {resting} W");
    drive.energy(Nanos(200 * SECOND));
    let target = 0.5 * 0.088 * 1e11;
    assert!(free < 500_000_000 && (drive.free_flash() as f64 - target).abs() < 1e6);
    let rested = mean_watts(&mut drive, 200 * SECOND, 201 * SECOND);
    assert!((rested - resting).abs() < 1e-6, "{rested} W once done");
}

#[test]
fn a_command_interrupts_background_collection() {
    let mut profile = profile("pm1743");
    profile.gc.free = 0.05;
    profile.gc.background_target = 0.5;
    let mut drive = Drive::new(&profile, 3);
    let before = drive.free_flash();
    let now = Nanos(SECOND / 2);
    let latency = drive.submit(now, Op::Read, 0, 4096) - now;
    assert!(latency < Nanos::from_micros(70), "{latency}");
    assert!(drive.free_flash() > before, "what was reclaimed stays");
}

#[test]
fn reads_wait_for_programs_in_their_way() {
    let latency = |writes: bool| {
        let mut drive = Drive::new(&profile("pm1743"), 3);
        let mut total = 0;
        for n in 0..20_000 {
            let now = Nanos(n * 10_000);
            if writes {
                drive.submit(now, Op::Write, n << 16, 1 << 16);
            }
            total += drive.submit(now, Op::Read, scattered(n), 4096).0 - now.0;
        }
        total / 20_000
    };
    let (alone, beside) = (latency(false), latency(true));
    assert!(beside > alone + 10_000, "{alone} ns alone, {beside} ns beside writes");
}

#[test]
fn a_flush_waits_for_the_flash_only_without_power_loss_protection() {
    let flush = |name| {
        let mut drive = Drive::new(&profile(name), 3);
        for n in 0..100 {
            drive.submit(Nanos::ZERO, Op::Write, n << 16, 1 << 16);
        }
        drive.submit(Nanos::from_micros(500), Op::Flush, 0, 0).0 - 500_000
    };
    assert!(flush("pm1743") < 100_000);
    assert!(flush("client-m2") > 1_000_000, "6.5 MB at 1.8 GB/s");
}

#[test]
fn absurd_profiles_are_refused_with_the_key_and_what_is_valid() {
    let refused = |change: fn(&mut DriveProfile)| {
        let mut profile = profile("pm1743");
        change(&mut profile);
        profile.validate().unwrap_err()
    };
    let units = refused(|p| p.parallelism.units = 100);
    assert!(units.contains("parallelism.units = 100 must be a power of two"), "{units}");
    let order = refused(|p| p.states.swap(0, 1));
    assert!(order.contains("states: 1 follows 0 wrongly"), "{order}");
    let cap = refused(|p| p.states[4].max_power = p.power.ready);
    assert!(cap.contains("must exceed power.ready"), "{cap}");
    let window = refused(|p| p.controller.regulation = Nanos::from_secs(20));
    assert!(window.contains("controller.regulation = 20 s"), "{window}");
    let share = refused(|p| p.gc.free = 1.5);
    assert!(share.contains("gc.free = 1.5 must lie in"), "{share}");
    assert!(refused(|p| p.states.clear()).contains("1 to 32"));
    let text = DriveProfile::from_toml("[drive]\nnmae = \"x\"\n").unwrap_err();
    assert!(text.contains("line 2") && text.contains("nmae"), "{text}");
}
