//! Limits that are set while the twin runs: cores, frequency, packages' power, CPU time, drives'
//! rates; and a meter that is late.

use crate::common::job;
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Hertz, Nanos, Watts};
use ebb_policy::{BestEffortSignals, Control, Limits, Policy, Request, Signals};
use ebb_trace::generate::{BuildContext, WorkloadSpec};
use ebb_twin::outcome::{Observer, Sample};
use ebb_twin::{Change, Profile, Run, run};

/// A coordinator that does as the test says.
struct Caps<F>(F);

impl<F: FnMut(u64, &mut Request) + Send> Policy for Caps<F> {
    fn name(&self) -> &'static str {
        "caps"
    }
    fn owns(&self) -> &[Control] {
        &[Control::CoreLimit]
    }
    fn step(&mut self, signals: &Signals, request: &mut Request) {
        (self.0)(signals.now.0 / 500_000_000, request);
    }
}

/// One period: requests and bytes completed, watts of the packages, of all, and by the meter;
/// bytes written to each drive; what nobody waits for.
#[derive(Debug, Default, Clone)]
struct Seen {
    completed: f64,
    cpu: f64,
    total: f64,
    meter: Option<f64>,
    written: Vec<u64>,
    active: u16,
    best_effort: BestEffortSignals,
}

struct Watch(Vec<Seen>);

impl Observer for Watch {
    fn sample(&mut self, sample: &Sample<'_>) {
        let signals = sample.cycled.signals;
        self.0.push(Seen {
            completed: signals.io.completed.unwrap_or_default() as f64,
            cpu: (sample.energy.cpu / sample.length).0,
            total: (sample.energy.total() / sample.length).0,
            meter: signals.power.total.map(|power| power.0),
            written: signals.drives.iter().map(|d| d.written_bytes.unwrap_or_default()).collect(),
            active: signals.groups[0].active.unwrap_or_default(),
            best_effort: signals.best_effort,
        });
    }
}

/// `pass-10` with `changes` under one writer of `block` for each drive, for so many periods of
/// 500 ms; `caps` is asked after each of them, and before the first.
fn periods(
    changes: &str,
    block: &str,
    count: u64,
    caps: impl FnMut(u64, &mut Request) + Send + 'static,
) -> Vec<Seen> {
    let jobs = format!(
        "[[jobs]]\nname = 'fio'\nthreads = 1\nper_drive = true\n\
         access = {{ block = '{block}', read = '0%' }}"
    );
    periods_of(&jobs, changes, count, caps)
}

/// The same under these `jobs`.
fn periods_of(
    jobs: &str,
    changes: &str,
    count: u64,
    caps: impl FnMut(u64, &mut Request) + Send + 'static,
) -> Vec<Seen> {
    let text = format!("name = 'x'\nsummary = 'x'\nbase = 'pass-10'\n{changes}");
    let profile = Profile::parse(&text, "x.toml").unwrap();
    let spec: WorkloadSpec = toml::from_str(&format!("name = 'fio'\n{jobs}")).unwrap();
    let (devices, capacity) = profile.volumes();
    let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 1 };
    let native = Box::new(ebb_policy::cpu::Native);
    let end = Some(Nanos::from_millis(500 * count));
    let of = job(&profile, native, spec.build(&context).unwrap(), end);
    let mut watch = Watch(Vec::new());
    run(Run { coordinator: Some(Box::new(Caps(caps))), ..of }, &mut watch).unwrap();
    watch.0
}

#[test]
fn cores_and_frequency_are_capped_and_come_back() {
    let seen = periods("", "4 KiB", 4, |period, request| match period {
        1 => {
            request.core_limit.ask(0, 3, "test:cap");
            request.frequency_limit.ask(0, Hertz(1.0e9), "test:cap");
        }
        2 => {
            request.core_limit.release(0);
            request.frequency_limit.release(0);
        }
        _ => {}
    });
    let active: Vec<_> = seen.iter().map(|seen| seen.active).collect();
    assert_eq!(active[..3], [8, 3, 8]);
    assert!(seen[1].completed < 0.95 * seen[0].completed, "slower requests: {seen:?}");
    assert!(seen[1].cpu < seen[0].cpu - 100.0, "{seen:?}");
    assert!((seen[2].cpu / seen[0].cpu - 1.0).abs() < 0.01, "{seen:?}");
}

#[test]
fn a_power_limit_acts_after_its_latency() {
    let of = |latency: &str| {
        let changes = format!("cpu.limit_latency = '{latency}'");
        periods(&changes, "4 KiB", 4, |period, request| match period {
            1 => request.package_limit.ask(0, Watts(120.0), "test:cap"),
            2 => request.package_limit.release(0),
            _ => {}
        })
    };
    let (quick, slow) = (of("0 s"), of("250 ms"));
    let (high, low) = (quick[0].cpu, quick[1].cpu);
    assert!(low <= 120.0 && high > 180.0, "{quick:?}");
    for middle in [&slow[1], &slow[2]] {
        assert!((middle.cpu - 0.5 * (high + low)).abs() < 2.0, "{slow:?}");
    }
}

#[test]
fn cpu_time_is_cut_and_given_back() {
    let seen = periods("cpu.resume = '0 s'", "4 KiB", 4, |period, request| match period {
        1 => {
            request.cpu_time.ask(0, 2.0, "test:cap");
            request.cpu_period.ask(0, Nanos::from_millis(20), "test:cap");
        }
        2 => request.cpu_time.release(0),
        _ => {}
    });
    let share = seen[1].completed / seen[0].completed;
    assert!((share - 0.25).abs() < 0.03, "two cores' time of eight: {share}");
    assert!(seen[1].cpu < seen[0].cpu - 40.0, "{seen:?}");
    assert!((seen[2].completed / seen[0].completed - 1.0).abs() < 0.05, "{seen:?}");
}

#[test]
fn one_drive_is_written_to_no_faster_than_its_limit() {
    let seen = periods("", "128 KiB", 4, |period, request| match period {
        1 => request.write_rate.ask(3, 50e6, "test:cap"),
        2 => request.write_rate.release(3),
        _ => {}
    });
    let written = |period: usize, drive: usize| seen[period].written[drive] as f64;
    assert!((written(1, 3) / 25e6 - 1.0).abs() < 0.03, "{seen:?}");
    for free in [written(0, 3), written(1, 4), written(2, 3)] {
        assert!(free > 10.0 * 25e6, "{seen:?}");
    }
}

/// Work that nobody waits for is held back before it takes a core; the others are not.
#[test]
fn best_effort_is_moved_no_faster_than_its_limit() {
    let jobs = "[[jobs]]\nname = 'front'\nthreads = 2\n\
                access = { block = '4 KiB', read = '100%' }\n\
                [[jobs]]\nname = 'back'\nthreads = 4\nper_drive = true\nbest_effort = true\n\
                access = { block = '128 KiB', read = '0%' }";
    let seen = periods_of(jobs, "", 4, |period, request| match period {
        1 => request.best_effort_rate.ask(0, 100e6, "test:cap"),
        2 => request.best_effort_rate.release(0),
        _ => {}
    });
    let bytes = |period: usize| seen[period].best_effort.bytes.unwrap() as f64;
    assert!((bytes(1) / 50e6 - 1.0).abs() < 0.03, "{seen:?}");
    assert!(bytes(0).min(bytes(2)) > 50.0 * 50e6, "{seen:?}");
    for period in &seen {
        let BestEffortSignals { requests, bytes } = period.best_effort;
        assert_eq!(requests.unwrap() * 131_072, bytes.unwrap());
    }
    let front =
        |period: usize| seen[period].completed - seen[period].best_effort.requests.unwrap() as f64;
    assert!(front(1) > 1.3 * front(0).max(front(2)), "{seen:?}");
    let none = periods("", "4 KiB", 1, |_, request| {
        request.best_effort_rate.ask(0, 1e6, "test:cap");
    });
    assert_eq!(none[0].best_effort, BestEffortSignals::default());
}

/// What waited under a limit does not wait for longer than the limit is there.
#[test]
fn a_limit_that_is_lifted_holds_nothing_back() {
    let seen = periods("cpu.resume = '0 s'", "4 KiB", 4, |period, request| match period {
        1 => request.cpu_time.ask(0, 0.05, "test:cap"),
        2 => request.cpu_time.release(0),
        _ => {}
    });
    assert!(seen[1].completed < 0.02 * seen[0].completed, "{seen:?}");
    assert!(seen[2].completed > 0.99 * seen[0].completed, "{seen:?}");
    let seen = periods("", "128 KiB", 4, |period, request| match period {
        1 => request.write_rate.ask(3, 1e5, "test:cap"), // The guard gives 1 MB/s: 130 ms each.
        2 => request.write_rate.release(3),
        _ => {}
    });
    let written = |period: usize| seen[period].written[3] as f64;
    assert!(written(1) < 0.01 * written(0), "{seen:?}");
    assert!(written(2) > 0.99 * written(0), "{seen:?}");
}

/// Requests that the cores alone hold up are served for as long as the cores may run.
#[test]
fn what_is_served_is_the_time_that_was_allowed() {
    let times = [8.0, 0.7, 5.5, 0.05, 3.0, 7.0, 1.1, 0.4, 6.2];
    let changes = "cpu.resume = '0 s'\ncpu.quota_period = '7 ms'\ncpu.random_order = 0";
    let seen = periods(changes, "4 KiB", times.len() as u64, move |period, request| {
        let time = times.get(period as usize).copied().unwrap_or(8.0);
        request.cpu_time.ask(0, time, "test:cap");
        let length = if period % 2 == 0 { 50 } else { 13 };
        request.cpu_period.ask(0, Nanos::from_millis(length), "test:cap");
    });
    for (time, period) in times.iter().zip(&seen) {
        let share = period.completed / seen[0].completed;
        assert!((share - time / 8.0).abs() < 0.03, "{share} for {time} of 8 cores: {seen:?}");
    }
}

/// A meter that tells means of a second sees no periods of a second.
#[test]
fn a_meter_that_averages_sees_no_stops() {
    let seen = periods("board.meter_window = '1 s'", "4 KiB", 12, |period, request| {
        if period == 1 {
            request.cpu_time.ask(0, 4.0, "test:cap");
            request.cpu_period.ask(0, Nanos::from_secs(1), "test:cap");
        }
    });
    let (whole, half) = (seen[6].total, seen[7].total);
    assert!((whole - half).abs() > 50.0, "cores run in one half of each second: {seen:?}");
    for period in &seen[4..] {
        let meter = period.meter.unwrap();
        assert!((meter - 0.5 * (whole + half)).abs() < 1.0, "{meter} W: {seen:?}");
    }
}

/// A meter that is 700 ms late tells of a step in two readings.
#[test]
fn a_late_meter_tells_what_was() {
    let seen = periods(
        "board = { meter_lag = '700 ms', meter_window = '0 s' }",
        "4 KiB",
        8,
        |period, request| {
            if period == 3 {
                request.core_limit.ask(0, 1, "test:cap");
            }
        },
    );
    assert_eq!(seen[1].meter, None, "nothing is known before the lag is over");
    for now in 3..seen.len() {
        let expected = 0.6 * seen[now - 1].total + 0.4 * seen[now - 2].total;
        let meter = seen[now].meter.unwrap();
        assert!((meter - expected).abs() < 0.01, "{now}: {meter} W of {expected} W");
    }
    assert!(seen[7].meter.unwrap() < seen[2].meter.unwrap() - 20.0);
}

/// Whether the guard has held anything to its own limit of the whole server, and watts by period.
#[derive(Default)]
struct Kept(Vec<f64>, bool);

impl Observer for Kept {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.0.push((sample.energy.total() / sample.length).0);
        let is_safe = |why: &str| ["guard:over-server-budget", "guard:no-meter"].contains(&why);
        self.1 |= sample.cycled.in_force.held().any(|(.., why)| is_safe(why));
    }
}

/// `tide` with a meter that is late, a budget that falls and rises, large and small writes: the
/// budget is kept, and the guard has nothing to do.
#[test]
fn tide_keeps_a_budget_that_changes() {
    for (block, lag) in [("128 KiB", "1 s"), ("4 KiB", "300 ms")] {
        let text =
            format!("name = 'x'\nsummary = 'x'\nbase = 'pass-10'\n[board]\nmeter_lag = '{lag}'\n");
        let profile = Profile::parse(&text, "x.toml").unwrap();
        let spec: WorkloadSpec = toml::from_str(&format!(
            "name = 'fio'\n[[jobs]]\nname = 'fio'\nthreads = 2\nper_drive = true\n\
             access = {{ block = '{block}', read = '0%' }}"
        ))
        .unwrap();
        let (devices, capacity) = profile.volumes();
        let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 1 };
        let settings = Settings::default();
        let tide = make("tide", &profile.topology(), &settings).unwrap();
        let native = Box::new(ebb_policy::cpu::Native);
        let load = spec.build(&context).unwrap();
        let of = job(&profile, native, load, Some(Nanos::from_secs(24)));
        let change = |at, watts| Change {
            at: Nanos::from_secs(at),
            policy: None,
            ssd_budget: None,
            limit: None,
            server_budget: Some(Watts(watts)),
        };
        let server_budget = Some(Watts(320.0));
        let limits = Limits { server_budget, ..Limits::default() };
        let changes = vec![change(10, 270.0), change(17, 320.0)];
        let mut kept = Kept::default();
        run(Run { coordinator: Some(tide), limits, changes, ..of }, &mut kept).unwrap();
        let Kept(watts, held) = kept;
        assert!(!held, "{block}: the guard had to act: {watts:?}");
        for (period, drawn) in watts.iter().enumerate() {
            let budget = if (20..34).contains(&period) { 270.0 } else { 320.0 };
            assert!(*drawn <= 1.02 * budget, "{block}, period {period}: {drawn} of {budget} W");
        }
        assert!(watts[19] > watts[3] && watts[33] < watts[19], "{block}: {watts:?}");
    }
}

/// Bursts of large requests that come again and again: once known they meet no limits, and wait no
/// longer than at the least clock, which leaves most for them.
#[test]
fn bursts_that_come_again_are_not_held_back() {
    let profile = Profile::load("pass-10").unwrap();
    let spec: WorkloadSpec = toml::from_str(
        "name = 'bursts'\n[[arrivals]]\nname = 'bursts'\nrate = '800 IOPS'\nstreams = 64\n\
         gaps = 'exponential'\naccess = { block = '4 MiB', read = 0.2 }\n\
         [arrivals.shape.on-off]\non = '1700 ms'\noff = '2300 ms'\nfloor = '2%'\nspread = '0%'",
    )
    .unwrap();
    let (devices, capacity) = profile.volumes();
    let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 1 };
    // The mean latency after the first 14 s, in microseconds, and the most that was drawn then.
    let after = |budget: Option<f64>| {
        let native = Box::new(ebb_policy::cpu::Native);
        let load = spec.build(&context).unwrap();
        let of = job(&profile, native, load, Some(Nanos::from_secs(40)));
        let server_budget = budget.map(Watts);
        let limits = Limits { server_budget, ..Limits::default() };
        let tide = make("tide", &profile.topology(), &Settings::default()).unwrap();
        let coordinator = server_budget.map(|_| tide);
        let mut kept = Kept::default();
        let warmup = Nanos::from_secs(14);
        let outcome = run(Run { coordinator, limits, warmup, ..of }, &mut kept).unwrap();
        (outcome.mean_latency(), kept.0[28..79].iter().copied().fold(0.0, f64::max))
    };
    let (usual, _) = after(None);
    for (budget, longest) in [(280.0, 1.15), (300.0, 1.06), (330.0, 1.03)] {
        let (mean, most) = after(Some(budget));
        assert!(mean < longest * usual, "{budget} W: {mean} for {usual}");
        assert!(most < budget, "{budget} W: {most} W");
    }
}

/// Where limits of rates serve as much as stops of the CPU, nothing stops: with stops it would be
/// 20.6 GB/s for less watts.
#[test]
fn large_writes_are_limited_and_not_stopped() {
    let profile = Profile::load("pass-10").unwrap();
    let spec: WorkloadSpec = toml::from_str(
        "name = 'large'\n[[jobs]]\nname = 'large'\nthreads = 16\nper_drive = true\n\
         access = { block = '128 KiB', read = '0%', random = '0%' }",
    )
    .unwrap();
    let (devices, capacity) = profile.volumes();
    let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 1 };
    let native = Box::new(ebb_policy::cpu::Native);
    let of = job(&profile, native, spec.build(&context).unwrap(), Some(Nanos::from_secs(14)));
    let limits = Limits { server_budget: Some(Watts(340.0)), ..Limits::default() };
    let tide = make("tide", &profile.topology(), &Settings::default()).unwrap();
    let mut watch = Watch(Vec::new());
    run(Run { coordinator: Some(tide), limits, ..of }, &mut watch).unwrap();
    let last = &watch.0[18..28];
    let written = last.iter().flat_map(|period| &period.written).sum::<u64>() as f64 / 5.0;
    let most = last.iter().map(|period| period.total).fold(0.0, f64::max);
    assert!(written > 23e9 && most < 340.0, "{written} bytes a second, {most} W");
}

/// Users who read beside a backup that fills the network: under native half of them wait, while
/// `tide` leaves them room, and gives the backup what the budget leaves.
#[test]
fn users_find_room_beside_what_nobody_waits_for() {
    let profile = Profile::load("pass-10").unwrap();
    let jobs = "name = 'beside'\n[[jobs]]\nname = 'users'\nthreads = 16\nrate = '50000 IOPS'\n\
                access = { block = '4 KiB', read = '100%' }\n\
                [[jobs]]\nname = 'backup'\nbest_effort = true\nthreads = 16\nper_drive = true\n\
                access = { block = '128 KiB', read = '0%', random = '0%' }";
    let spec: WorkloadSpec = toml::from_str(jobs).unwrap();
    let (devices, capacity) = profile.volumes();
    let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 1 };
    // Of the last five seconds: requests of users and bytes of the backup a second, and watts.
    let last = |budget: Option<f64>| {
        let native = Box::new(ebb_policy::cpu::Native);
        let load = spec.build(&context).unwrap();
        let of = job(&profile, native, load, Some(Nanos::from_secs(14)));
        let server_budget = budget.map(Watts);
        let limits = Limits { server_budget, ..Limits::default() };
        let tide = make("tide", &profile.topology(), &Settings::default()).unwrap();
        let coordinator = server_budget.map(|_| tide);
        let mut watch = Watch(Vec::new());
        run(Run { coordinator, limits, ..of }, &mut watch).unwrap();
        let [mut users, mut bytes, mut watts] = [0.0; 3];
        for period in &watch.0[18..28] {
            let BestEffortSignals { requests, bytes: moved } = period.best_effort;
            users += (period.completed - requests.unwrap() as f64) / 5.0;
            bytes += moved.unwrap() as f64 / 5.0;
            watts += period.total / 10.0;
        }
        (users, bytes, watts)
    };
    let (users, bytes, _) = last(None);
    assert!(users < 0.5 * 50e3 && bytes > 20e9, "{users} {bytes}");
    for (budget, least) in [(260.0, 1e9), (280.0, 5e9), (300.0, 10e9), (340.0, 18e9), (440.0, 20e9)]
    {
        let (users, bytes, watts) = last(Some(budget));
        assert!((users / 50e3 - 1.0).abs() < 0.01, "{budget} W: {users} of users");
        assert!(bytes > least && watts < budget, "{budget} W: {bytes} bytes, {watts} W");
    }
}

/// A crowd brings back what the limits leave, between cycles too.
#[test]
fn a_recall_stays_within_the_limits() {
    let most_active = |limit: u16| {
        let seen = periods("", "128 KiB", 6, move |_, request| {
            request.active_cores.ask(0, 1, "test:");
            request.recall.ask(0, 1, "test:");
            request.core_limit.ask(0, limit, "test:");
        });
        seen.iter().skip(2).map(|period| period.active).max().unwrap()
    };
    assert!(most_active(8) > 3, "there is no crowd");
    assert!(most_active(3) <= 3);
}
