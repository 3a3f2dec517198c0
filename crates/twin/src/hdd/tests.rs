//! What a disk promises whatever its profile.

use std::collections::BinaryHeap;

use ebb_policy::units::Watts;
use proptest::prelude::*;

use super::*;
use crate::DriveFile;

pub(super) type Next = Box<dyn FnMut(u64) -> (Op, u64, u32)>;

pub(super) fn profile(name: &str) -> HddProfile {
    HddProfile::builtin(name).unwrap()
}

/// Commands scattered over the whole disk.
pub(super) fn random(profile: &HddProfile, op: Op, bytes: u32) -> Next {
    let places = profile.capacity.0 / u64::from(bytes);
    Box::new(move |n| {
        let mut z = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let place = (u128::from(z ^ (z >> 31)) * u128::from(places)) >> 64;
        (op, place as u64 * u64::from(bytes), bytes)
    })
}

/// A disk and the instants it waits for.
struct Plant<'a> {
    disk: &'a mut Hdd,
    access_ends: Option<Nanos>,
    /// Completions, soonest first.
    pending: BinaryHeap<std::cmp::Reverse<Completion>>,
    done: Vec<Completion>,
}

impl<'a> Plant<'a> {
    fn new(disk: &'a mut Hdd) -> Self {
        Self { disk, access_ends: None, pending: BinaryHeap::new(), done: Vec::new() }
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        if let Some(end) = self.disk.submit(now, command, &mut self.done) {
            assert!(self.access_ends.replace(end).is_none(), "one access at a time");
        }
        self.collect(now);
    }

    fn collect(&mut self, now: Nanos) {
        assert!(self.done.iter().all(|(at, _)| *at >= now));
        self.pending.extend(self.done.drain(..).map(std::cmp::Reverse));
    }

    /// The next completion.
    fn next(&mut self) -> Option<Completion> {
        loop {
            let first = self.pending.peek().map(|first| first.0.0);
            match self.access_ends {
                Some(end) if first.is_none_or(|first| end <= first) => {
                    self.access_ends = self.disk.ended(end, &mut self.done);
                    self.collect(end);
                }
                _ => return self.pending.pop().map(|first| first.0),
            }
        }
    }
}

/// Keeps `depth` commands in flight; bytes and commands per second and mean power after the
/// first tenth of `length`.
pub(super) fn closed_loop(
    disk: &mut Hdd,
    depth: usize,
    length: Nanos,
    mut next: Next,
) -> (f64, f64, Watts) {
    let mut plant = Plant::new(disk);
    let warm = Nanos(length.0 / 10);
    let (mut count, mut bytes, mut commands, mut warm_energy) = (0, 0.0, 0.0, None);
    let mut send = |plant: &mut Plant<'_>, now| {
        let (op, offset, bytes) = next(count);
        plant.submit(now, Command { token: bytes, op, offset, bytes });
        count += 1;
    };
    (0..depth).for_each(|_| send(&mut plant, Nanos::ZERO));
    while let Some((now, token)) = plant.next().filter(|(now, _)| *now < length) {
        if now >= warm {
            if warm_energy.is_none() {
                warm_energy = Some((now, plant.disk.energy(now)));
            }
            bytes += f64::from(token);
            commands += 1.0;
        }
        send(&mut plant, now);
    }
    let (from, energy) = warm_energy.unwrap();
    let end = Nanos(length.0.max(plant.disk.clock));
    let span = (length - from).seconds();
    (bytes / span, commands / span, (plant.disk.energy(end) - energy) / (end - from))
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Submit { pause: u64, op: Op, share: f64, bytes: u32 },
    State { pause: u64, ps: u8 },
    Vibrate { pause: u64, amplitude: f64 },
}

fn step() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![
        4 => 0u64..3_000_000,
        2 => 0u64..2_000_000_000,
        1 => 0u64..900_000_000_000
    ];
    let op = prop_oneof![
        4 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Flush), 1 => Just(Op::Trim)
    ];
    let bytes = prop_oneof![Just(512u32), Just(4096), Just(65_536), Just(8 << 20)];
    let share = prop_oneof![3 => 0.0..1.0, 1 => Just(0.5), 1 => Just(1.0)];
    prop_oneof![
        20 => (pause.clone(), op, share, bytes)
            .prop_map(|(pause, op, share, bytes)| Step::Submit { pause, op, share, bytes }),
        1 => (pause.clone(), 0u8..6).prop_map(|(pause, ps)| Step::State { pause, ps }),
        1 => (pause, 0.0..1.5).prop_map(|(pause, amplitude)| Step::Vibrate { pause, amplitude }),
    ]
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(HddProfile::names().collect::<Vec<_>>())
}

proptest! {
    /// Every command completes once and never before it was submitted; energy never falls, lies
    /// between standby's and the peak's, and does not depend on how often it is read.
    #[test]
    fn commands_complete_and_energy_is_bounded(
        name in names(),
        cached in any::<bool>(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut spec = profile(name);
        spec.write_cache.enabled = cached;
        let (mut often, mut once) = (Hdd::new(&spec, 1), Hdd::new(&spec, 1));
        let (mut one, mut other) = (Plant::new(&mut often), Plant::new(&mut once));
        let (mut now, mut before, mut completed, mut sent) = (Nanos::ZERO, 0.0, vec![], 0);
        let mut collect = |plant: &mut Plant<'_>, until: Nanos| {
            while plant.access_ends.is_some_and(|end| end <= until)
                || plant.pending.peek().is_some_and(|first| first.0.0 <= until)
            {
                let Some(next) = plant.next() else { break };
                completed.push(next);
            }
        };
        for step in steps {
            let (Step::Submit { pause, .. } | Step::State { pause, .. }
                | Step::Vibrate { pause, .. }) = step;
            now += Nanos(pause);
            // Completions read ahead of time may have moved the clock on.
            collect(&mut one, now);
            now = now.max(Nanos(one.disk.clock));
            let energy = one.disk.energy(now).0;
            prop_assert!(energy >= before);
            before = energy;
            for plant in [&mut one, &mut other] {
                while plant.access_ends.is_some_and(|end| end <= now) {
                    let end = plant.access_ends.unwrap();
                    plant.access_ends = plant.disk.ended(end, &mut plant.done);
                    plant.collect(end);
                }
                match step {
                    Step::Submit { op, share, bytes, .. } => {
                        let offset = (share * (spec.capacity.0 - u64::from(bytes)) as f64) as u64;
                        plant.submit(now, Command { token: sent, op, offset, bytes });
                    }
                    Step::State { ps, .. } => { plant.disk.set_power_state(now, ps); }
                    Step::Vibrate { amplitude, .. } => plant.disk.set_vibration(now, amplitude),
                }
            }
            sent += u32::from(matches!(step, Step::Submit { .. }));
        }
        while let Some(next) = one.next() {
            completed.push(next);
        }
        while other.next().is_some() {}
        prop_assert_eq!(completed.len(), sent as usize);
        let mut tokens: Vec<_> = completed.iter().map(|(_, token)| *token).collect();
        tokens.sort_unstable();
        prop_assert!(tokens.iter().enumerate().all(|(n, token)| n == *token as usize));
        let end = Nanos(now.0.max(one.disk.clock).max(other.disk.clock)) + Nanos::from_secs(1000);
        let (a, b) = (one.disk.energy(end).0, other.disk.energy(end).0);
        prop_assert!((a - b).abs() <= 1e-9 * b, "{} {}", a, b);
        let standby = spec.idle.last().unwrap().power * end;
        let peaks = spec.idle.iter().map(|idle| idle.recovery_peak);
        let peak = peaks.fold(spec.power.random_read, Watts::max);
        prop_assert!(a >= standby.0 - 1e-9, "{} below standby's {}", a, standby);
        // Reads from what was read ahead may add energy beside an access.
        let most = (peak + spec.power.sequential_read) * end;
        prop_assert!(a <= most.0, "{} above the most, {}", a, most);
    }

    /// More vibration never means more throughput, whatever the disk does.
    #[test]
    fn throughput_falls_with_vibration(
        name in names(),
        op in prop_oneof![Just(Op::Read), Just(Op::Write)],
        stream in any::<bool>(),
        low in 0.0..1.2f64,
        step in 0.15..0.5f64,
    ) {
        let spec = profile(name);
        let run = |amplitude| {
            let mut disk = Hdd::new(&spec, 5);
            disk.set_vibration(Nanos::ZERO, amplitude);
            let next: Next = if stream {
                Box::new(move |n| (op, n << 18, 1 << 18))
            } else {
                random(&spec, op, 16_384)
            };
            closed_loop(&mut disk, 8, Nanos::from_secs(20), next).0
        };
        // Twenty seconds of a random order differ by a few percent.
        prop_assert!(run(low + step) <= 1.03 * run(low));
    }
}

/// Submits one read at `now` and returns when it completes.
fn read_at(disk: &mut Hdd, now: Nanos, offset: u64) -> Nanos {
    let mut plant = Plant::new(disk);
    plant.submit(now, Command { token: 0, op: Op::Read, offset, bytes: 4096 });
    plant.next().unwrap().0
}

#[test]
fn standby_takes_its_time_and_power_to_leave_and_wears() {
    let spec = profile("es3-4tb");
    let mut disk = Hdd::new(&spec, 1);
    let deepest = spec.spec().states.len() as u8 - 1;
    assert_eq!(disk.set_power_state(Nanos::from_secs(1), deepest), Nanos::from_secs(1));
    let (a, b) = (Nanos::from_secs(2), Nanos::from_secs(102));
    let before = disk.energy(a);
    let standby = (disk.energy(b) - before) / (b - a);
    assert!((standby.0 - 1.2).abs() < 1e-9, "{standby}");
    let up = read_at(&mut disk, b, 1 << 40);
    assert!((15.0..15.05).contains(&(up - b).seconds()), "spin-up: {}", up - b);
    assert_eq!(disk.power_state(), 0);
    let spent = disk.energy(b + Nanos::from_secs(15)) - before - standby * (b - a);
    let expected = 0.6 * 15.0 * 29.07 + 0.4 * 15.0 * 7.97;
    assert!((spent.0 / expected - 1.0).abs() < 1e-3, "{spent}, expected {expected} J");
    let wear = disk.wear();
    assert_eq!((wear.spin_ups, wear.loads), (1, 1));
}

#[test]
fn idle_falls_through_the_power_conditions() {
    let spec = profile("es3-4tb");
    let mut disk = Hdd::new(&spec, 1);
    let mut power = |from: u64, to: u64| {
        let before = disk.energy(Nanos::from_secs(from));
        ((disk.energy(Nanos::from_secs(to)) - before) / Nanos::from_secs(to - from)).0
    };
    for (from, to, watts) in
        [(0, 119, 7.97), (121, 239, 7.8), (241, 599, 6.56), (601, 100_000, 4.25)]
    {
        assert!((power(from, to) - watts).abs() < 1e-6, "{from} s: {}", power(from, to));
    }
    let late = Nanos::from_secs(100_000);
    let recovered = read_at(&mut disk, late, 0) - late;
    assert!((4.0..4.05).contains(&recovered.seconds()), "{recovered}");
    assert_eq!((disk.wear().spin_ups, disk.wear().loads), (0, 1));
}

#[test]
fn the_write_cache_answers_first_and_a_flush_waits_for_the_media() {
    let write = |cached: bool| {
        let mut spec = profile("es3-4tb");
        spec.write_cache.enabled = cached;
        let mut disk = Hdd::new(&spec, 1);
        let mut plant = Plant::new(&mut disk);
        plant
            .submit(Nanos::ZERO, Command { token: 1, op: Op::Write, offset: 1 << 41, bytes: 4096 });
        plant.submit(Nanos::ZERO, Command { token: 2, op: Op::Flush, offset: 0, bytes: 0 });
        (plant.next().unwrap(), plant.next().unwrap())
    };
    let ((written, one), (flushed, two)) = write(true);
    assert_eq!((one, two), (1, 2));
    assert!(written < Nanos::from_micros(200), "{written}");
    assert!(flushed > Nanos::from_millis(5), "{flushed}");
    // Without the cache nothing is left to flush; the write itself takes the seek.
    let ((flushed, two), (written, one)) = write(false);
    assert_eq!((one, two), (1, 2));
    assert!(flushed < Nanos::from_micros(200) && written > Nanos::from_millis(5));
}

#[test]
fn a_stream_read_one_by_one_keeps_the_media_rate() {
    let spec = profile("es3-4tb");
    let next: Next = Box::new(|n| (Op::Read, n << 16, 1 << 16));
    let rate = closed_loop(&mut Hdd::new(&spec, 1), 1, Nanos::from_secs(10), next).0;
    assert!((150e6..=178e6).contains(&rate), "{rate}");
}

#[test]
fn a_deeper_queue_finds_nearer_accesses() {
    let spec = profile("es3-4tb");
    let reads = |depth| {
        let next = random(&spec, Op::Read, 4096);
        closed_loop(&mut Hdd::new(&spec, 1), depth, Nanos::from_secs(30), next).1
    };
    let (one, eight, many) = (reads(1), reads(8), reads(32));
    assert!(eight > 1.4 * one && many > 1.2 * eight, "{one} {eight} {many}");
}

#[test]
fn no_command_starves() {
    // One read at the far edge among a flood of near ones.
    let spec = profile("es3-4tb");
    let mut disk = Hdd::new(&spec, 1);
    let mut plant = Plant::new(&mut disk);
    let near = |n: u64| Command { token: 1, op: Op::Read, offset: (n * 7) << 20, bytes: 4096 };
    (0..16).for_each(|n| plant.submit(Nanos::ZERO, near(n)));
    let far = Command { token: 0, op: Op::Read, offset: spec.capacity.0 - 4096, bytes: 4096 };
    plant.submit(Nanos::ZERO, far);
    for n in 16.. {
        let (now, token) = plant.next().unwrap();
        assert!(now < Nanos::from_secs(2), "starved");
        if token == 0 {
            break;
        }
        plant.submit(now, near(n % 400));
    }
}

/// What the disk tells of its lost time is what a saturated disk's throughput falls by, by
/// accesses of its own and by reading ahead.
#[test]
fn the_time_lost_to_vibration_is_the_throughput_lost() {
    let spec = profile("es3-4tb");
    let stream = || -> Next { Box::new(|n| (Op::Read, n << 18, 1 << 18)) };
    for (what, make, depth) in [
        ("random writes", &(|| random(&spec, Op::Write, 1 << 16)) as &dyn Fn() -> Next, 16),
        ("stream", &stream, 1),
    ] {
        let at = |amplitude: f64| {
            let mut disk = Hdd::new(&spec, 1);
            disk.set_vibration(Nanos::ZERO, amplitude);
            let rate = closed_loop(&mut disk, depth, Nanos::from_secs(60), make()).0;
            (rate, disk.wear())
        };
        let (still, calm) = at(0.0);
        assert_eq!((calm.lost, calm.retries, calm.loss()), (Nanos::ZERO, 0, Some(0.0)), "{what}");
        for amplitude in [0.7, 0.85, 1.0] {
            let (rate, wear) = at(amplitude);
            let (loss, told) = (1.0 - rate / still, wear.loss().unwrap());
            assert!((told - loss).abs() < 0.04, "{what} at {amplitude}: {told}, in truth {loss}");
            assert!(wear.busy <= Nanos::from_secs(61), "{what}: {}", wear.busy);
        }
    }
    assert_eq!(Hdd::new(&spec, 1).wear().loss(), None, "a disk without work loses nothing");
}
