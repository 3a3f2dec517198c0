//! PASS (EuroSys'26): a server's budget shared between CPU and SSDs by a table and a feedback loop.
//!
//! Written from the description of its controller. The table comes from a sweep of core count, CPU
//! time and RAPL limit on its server, of which the Pareto front of watts and p99 is kept; the rows
//! below say the same as the table's 122. One turn takes 2.5 s (published: 2 to 3 s), of which a
//! half second is waited after a change and another measures the drives.
//!
//! Departures: core counts are of 8 there, and as large a share of the cores here. RAPL limits are
//! of all packages together. A turn lasts whole control periods.

use super::{io_cores, lift, release, sensed};
use crate::topology::Topology;
use crate::units::{Nanos, Watts};
use crate::{Policy, Request, Signals};

/// How its description is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// As its code does: drive limits are lifted in the turn that sets them, and the number of
    /// drives counts twice in their watts.
    Published,
    /// As its text means: limits stay until the drives serve more, and count once.
    Intended,
}

/// Length of a turn.
const TURN: Nanos = Nanos::from_millis(2500);
/// Wait after a change, and then the time that the drives are measured for.
const WAIT: Nanos = Nanos::from_millis(1000);
/// Period of the CPU time (`cpu.max`).
const CPU_PERIOD: Nanos = Nanos::from_secs(1);
/// Target below which the drives are looked at.
const LOW: f64 = 110.0;
/// Lowest and highest target of the table, W.
const TABLE: (f64, f64) = (45.0, 210.0);
/// Drives of its server.
const DRIVES: f64 = 10.0;
const MIB: f64 = 1024.0 * 1024.0;

/// One row of the table: at most so many watts of CPU power.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    /// Of 8.
    cores: f64,
    /// Share of one core's time.
    time: f64,
    rapl: Watts,
}

/// The highest row with at most `c` W.
fn row(c: f64) -> Row {
    // Watts, cores, CPU time in shares of one core; RAPL at 110 W in all of them.
    const LOW_ROWS: [(f64, f64, f64); 11] = [
        (45.0, 2.0, 0.05),
        (50.0, 2.0, 0.10),
        (55.0, 2.0, 0.25),
        (60.0, 2.0, 0.35),
        (65.0, 2.0, 0.50),
        (70.0, 2.0, 1.0),
        (75.0, 2.0, 2.0),
        (80.0, 3.0, 3.0),
        (85.0, 4.0, 4.0),
        (90.0, 5.0, 5.0),
        (95.0, 6.0, 6.0),
    ];
    // From 99 W on a row for each watt: all cores, RAPL 11 W above, from 119 to 124 W two for one.
    if c >= 99.0 {
        let c = c.floor();
        let rapl = Watts((2.0 * c - 108.0).clamp(c + 11.0, c + 16.0));
        return Row { cores: 8.0, time: 8.0, rapl };
    }
    let fitting = LOW_ROWS.iter().rev().find(|(watts, ..)| *watts <= c);
    let (_, cores, time) = *fitting.unwrap_or(&LOW_ROWS[0]);
    Row { cores, time, rapl: Watts(110.0) }
}

/// What a step of the turn waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The next turn.
    Turn,
    /// The drives' rates after the change.
    After,
}

/// The controller.
#[derive(Debug, Clone)]
pub struct Pass {
    reading: Reading,
    topology: Topology,
    /// `C`: CPU power that is aimed at, W.
    c: f64,
    /// The row in force and the one before.
    row: Row,
    previous: Row,
    phase: Phase,
    /// When the turn began.
    begun: Option<Nanos>,
    /// `P - B` at its beginning.
    excess: f64,
    /// Bytes a second read from and written to each drive before the change.
    before: Vec<[f64; 2]>,
}

impl Pass {
    /// The controller at its start: all power for the CPU.
    #[must_use]
    pub fn new(topology: &Topology, reading: Reading) -> Self {
        let row = row(TABLE.1);
        Self {
            reading,
            topology: topology.clone(),
            c: TABLE.1,
            row,
            previous: row,
            phase: Phase::Turn,
            begun: None,
            excess: 0.0,
            before: vec![[0.0; 2]; topology.drives.len()],
        }
    }

    /// The new target, by `P` and `B`.
    fn target(c: f64, p: Watts, b: Watts) -> f64 {
        let gain = match p.0 {
            p if p > 1.05 * b.0 => 0.6,
            p if p > b.0 => 0.3,
            p if p < 0.98 * b.0 => 0.5,
            _ => 0.0,
        };
        (c - gain * (p - b).0).clamp(TABLE.0, TABLE.1)
    }

    fn apply(&self, row: Row, request: &mut Request) {
        let share = row.cores / 8.0;
        for group in self.topology.io_groups() {
            let cores = (share * f64::from(self.topology.groups[group].cores)).ceil() as u16;
            request.core_limit.ask(group, cores, "pass:table");
        }
        let time = row.time / 8.0 * io_cores(&self.topology);
        request.package_limit.ask(0, row.rapl, "pass:table");
        request.cpu_time.ask(0, time, "pass:table");
        request.cpu_period.ask(0, CPU_PERIOD, "pass:table");
    }

    /// The drives against the change: what they lost may be more than had to be saved.
    fn weigh(&mut self, signals: &Signals, request: &mut Request) {
        let mut delta = 0.0;
        for drive in 0..self.before.len() {
            let (before, after) = (self.before[drive], rates(signals, drive));
            delta += (after[0] - before[0]) / MIB * 7.0 / 7000.0;
            delta += (after[1] - before[1]) / MIB * 10.0 / 3600.0;
        }
        if self.reading == Reading::Published {
            delta *= DRIVES;
        }
        if delta < 0.0 && delta < self.excess {
            for drive in 0..self.before.len() {
                let (before, after) = (self.before[drive], rates(signals, drive));
                let limit = |way: usize| after[way] + 0.5 * (before[way] - after[way]).max(0.0);
                request.read_rate.ask(drive, limit(0), "pass:drives");
                request.write_rate.ask(drive, limit(1), "pass:drives");
            }
            self.row = self.previous;
            self.apply(self.row, request);
            if self.reading == Reading::Published {
                lift(request);
            }
        } else if delta > 0.0 {
            lift(request);
        }
    }
}

/// Bytes a second read from and written to a drive in the period.
fn rates(signals: &Signals, drive: usize) -> [f64; 2] {
    let span = signals.period.seconds().max(1e-9);
    let drive = &signals.drives[drive];
    [drive.read_bytes, drive.written_bytes].map(|bytes| bytes.unwrap_or_default() as f64 / span)
}

impl Policy for Pass {
    fn name(&self) -> &'static str {
        match self.reading {
            Reading::Published => "pass",
            Reading::Intended => "pass-intended",
        }
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let Some((b, p)) = sensed(signals) else { return release(request) };
        let Some(p) = p else {
            // Before the first reading the table's highest row is in force.
            return self.apply(self.row, request);
        };
        let past = self.begun.map(|begun| signals.now.saturating_sub(begun));
        if self.phase == Phase::After && past >= Some(WAIT) {
            self.phase = Phase::Turn;
            if self.c < LOW {
                self.weigh(signals, request);
            }
        }
        if past.is_some_and(|past| past < TURN) {
            return;
        }
        (self.begun, self.phase) = (Some(signals.now), Phase::After);
        for drive in 0..self.before.len() {
            self.before[drive] = rates(signals, drive);
        }
        self.excess = (p - b).0;
        self.c = Self::target(self.c, p, b);
        (self.previous, self.row) = (self.row, row(self.c));
        self.apply(self.row, request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::testing::server;

    #[test]
    fn the_rows_are_the_table_s() {
        let of = |c: f64| {
            let Row { cores, time, rapl } = row(c);
            (cores, time, rapl.0)
        };
        for (c, expected) in [
            (45.0, (2.0, 0.05, 110.0)),
            (64.9, (2.0, 0.35, 110.0)),
            (75.0, (2.0, 2.0, 110.0)),
            (98.9, (6.0, 6.0, 110.0)),
            (99.0, (8.0, 8.0, 110.0)),
            (110.0, (8.0, 8.0, 121.0)),
            (119.0, (8.0, 8.0, 130.0)),
            (122.0, (8.0, 8.0, 136.0)),
            (144.0, (8.0, 8.0, 160.0)),
            (210.0, (8.0, 8.0, 226.0)),
        ] {
            assert_eq!(of(c), expected, "{c} W");
        }
    }

    #[test]
    fn the_target_follows_the_four_cases() {
        let of = |p: f64| Pass::target(150.0, Watts(p), Watts(300.0));
        assert_eq!(of(320.0), 150.0 - 0.6 * 20.0);
        assert_eq!(of(310.0), 150.0 - 0.3 * 10.0);
        assert_eq!(of(296.0), 150.0);
        assert_eq!(of(280.0), 150.0 + 0.5 * 20.0);
        assert_eq!((of(900.0), of(0.0)), (45.0, 210.0));
    }

    /// Steps a controller under a budget of 300 W with so many watts at the wall and bytes written
    /// a second to each of two drives.
    struct Bench(Pass, Signals, Request);

    impl Bench {
        fn new(reading: Reading) -> Self {
            let topology = server(2);
            let pass = Pass::new(&topology, reading);
            Self(pass, Signals::new(&topology), Request::new(&topology))
        }
        fn step(&mut self, power: f64, written: f64) {
            let Self(pass, signals, request) = self;
            signals.period = Nanos::from_millis(500);
            signals.now += signals.period;
            signals.server_budget = Some(Watts(300.0));
            signals.power.total = Some(Watts(power));
            for drive in &mut signals.drives {
                drive.written_bytes = Some((written * 0.5) as u64);
            }
            pass.step(signals, request);
        }
    }

    #[test]
    fn a_turn_takes_two_and_a_half_seconds() {
        let mut bench = Bench::new(Reading::Published);
        let mut targets = Vec::new();
        for _ in 0..11 {
            bench.step(330.0, 0.0);
            targets.push(bench.0.c);
        }
        let changes: Vec<_> = (1..11).filter(|at| targets[*at] != targets[at - 1]).collect();
        assert_eq!((targets[0], changes), (210.0 - 18.0, vec![5, 10]));
        assert_eq!(bench.2.package_limit.get(0), Some(Watts(156.0 + 16.0)));
        assert_eq!(bench.2.cpu_period.get(0), Some(CPU_PERIOD));
    }

    /// Its drives lose 1000 MiB/s each at a low target: more watts than were to be saved.
    #[test]
    fn drives_that_lose_too_much_are_limited_and_the_row_before_comes_back() {
        for (reading, limited) in [(Reading::Published, false), (Reading::Intended, true)] {
            let mut bench = Bench::new(reading);
            bench.0.c = 76.0;
            bench.0.row = row(76.0);
            bench.step(320.0, 2000.0 * MIB); // C = 64: half a core's time
            assert_eq!(bench.2.cpu_time.get(0), Some(0.35));
            bench.step(310.0, 1000.0 * MIB);
            bench.step(310.0, 1000.0 * MIB);
            assert_eq!(bench.2.cpu_time.get(0), Some(2.0), "{reading:?}");
            let limit = limited.then_some(1500.0 * MIB);
            assert_eq!(bench.2.write_rate.get(1), limit, "{reading:?}");
        }
    }

    #[test]
    fn without_a_budget_nothing_is_limited() {
        let mut bench = Bench::new(Reading::Published);
        bench.step(320.0, 0.0);
        bench.1.server_budget = None;
        bench.0.step(&bench.1, &mut bench.2);
        assert_eq!(bench.2, Request::new(&bench.0.topology));
    }
}
