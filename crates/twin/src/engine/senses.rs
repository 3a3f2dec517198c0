//! The host's senses in the twin (`ebb sim --as-host`): each signal with the place, pace, rounding
//! and absence that it has on a server, as the table of [`ebb_policy::live`] says; drives are asked
//! by the very code that asks them there.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use ebb_policy::live::{FREQUENCY_SPREAD, METER_STEP, TICK};
use ebb_policy::sense::{Answers, Asked, DriveHealth, add_cpus};
use ebb_policy::units::{Hertz, Nanos, Watts};
use ebb_policy::{
    Applied, BestEffortSignals, Control, DriveSignals, GroupSignals, InForce, IoSignals, OpSignals,
    Origin, Outcome, PowerSignals, PowerState, Signal, Signals,
};

use super::array::Array;
use super::cores::Cores;
use super::drive_queue::Block;
use crate::profile::{DriveModel, Profile};

/// What of a server's senses differs from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AsHost {
    /// Its drives measure their power.
    pub meters: bool,
    /// Its drives state what they draw at rest.
    pub idle_power: bool,
    /// `ebb serve` tells the latency of its clients' requests, with percentiles.
    pub served: bool,
    /// Its control groups may be throttled (`machine.throttle`).
    pub throttle: bool,
    /// As up to version 0.9: a state counts only once it is asked for, and every answer as new.
    pub forgetful: bool,
}

/// A drive, as it would answer.
struct Truth {
    state: Option<PowerState>,
    health: DriveHealth,
}

impl Answers for Truth {
    fn state(&mut self) -> Option<PowerState> {
        self.state
    }
    fn health(&mut self) -> Option<DriveHealth> {
        Some(self.health)
    }
}

/// One drive between its answers.
#[derive(Debug, Clone)]
struct Drive {
    asked: Asked,
    /// Its power in the period before: what a meter says is the mean of a second.
    before: Option<Watts>,
    /// The state that was written last.
    written: PowerState,
}

/// All senses of one run.
#[derive(Debug)]
pub(super) struct Senses {
    how: AsHost,
    drives: Vec<Drive>,
    in_flight: u64,
    random: Pcg64Mcg,
}

impl Senses {
    pub(super) fn new(how: AsHost, profile: &Profile, model: &DriveModel, seed: u64) -> Self {
        let states = model.spec().states;
        let rest = model.ready();
        let stated = rest.filter(|_| how.idle_power);
        let idle = states.iter().map(|state| Some(stated?.min(state.max_power))).collect();
        let drive = Drive { asked: Asked::new(states, idle), before: rest, written: 0 };
        Self {
            how,
            drives: vec![drive; usize::from(profile.drives.count)],
            in_flight: 0,
            random: Pcg64Mcg::seed_from_u64(seed ^ 0x5E45E),
        }
    }

    /// Makes of what is true what a host would have sensed of the period that ends now.
    pub(super) fn see(&mut self, signals: &mut Signals, array: &Array, cores: &mut Cores) {
        signals.sources.all(Origin::Measured);
        let (block, in_flight) = array.block(signals.now.0);
        let before = std::mem::replace(&mut self.in_flight, in_flight);
        if !self.how.served {
            let bytes =
                |of: fn(&DriveSignals) -> Option<u64>| signals.drives.iter().filter_map(of).sum();
            let moved = [bytes(|drive| drive.read_bytes), bytes(|drive| drive.written_bytes)];
            let op = |at: usize| op(block[at].completed, moved[at], block[at].time);
            let whole = |of: fn(&Block) -> u64| block.iter().map(of).sum();
            signals.io = io([op(0), op(1)], whole(|op| op.time), (before, in_flight));
            add_cpus(signals, Some(cores.lost(signals.now.0)));
        }
        signals.background_pending = None;
        if !self.how.throttle {
            signals.best_effort = BestEffortSignals::default();
        }
        let wall = signals.power.total;
        let wall = wall.map(|power| Watts((power / METER_STEP).round() * METER_STEP.0));
        signals.power = PowerSignals { total: wall, fans: None, ..signals.power };
        self.see_cores(&mut signals.groups, signals.period);
        self.see_drives(signals);
        signals.power.ssd = signals.drives.iter().map(|drive| drive.power).sum();
    }

    fn see_cores(&mut self, groups: &mut [GroupSignals], period: Nanos) {
        let ticks = |share: f64| {
            let ticks = period.seconds() / TICK.seconds();
            ((share * ticks).round() / ticks).min(1.0)
        };
        for group in groups {
            group.busiest = group.busiest.map(ticks);
            let read = 1.0 + self.random.random_range(-FREQUENCY_SPREAD..=FREQUENCY_SPREAD);
            group.frequency = group.frequency.map(|frequency| Hertz(frequency.0 * read));
        }
    }

    fn see_drives(&mut self, signals: &mut Signals) {
        for (at, drive) in self.drives.iter_mut().enumerate() {
            let truth = &signals.drives[at];
            let power = truth.power;
            let before = drive.before;
            drive.before = power.or(before);
            // Before the first period there is only what was before.
            let mean = power.or(before).map(|power| (power + before.unwrap_or(power)) * 0.5);
            let health = DriveHealth {
                temperature: truth.temperature,
                power: mean.filter(|_| self.how.meters),
            };
            let mut truth = Truth { state: truth.state, health };
            drive.asked.read(signals, at, Some(&mut truth));
            if self.how.forgetful {
                let sources = &mut signals.sources;
                let mut source = sources.of(Signal::DriveState, at);
                source.age = Nanos::ZERO;
                sources.set(Signal::DriveState, at, source);
            }
        }
    }

    /// Hears which states were written and read back.
    pub(super) fn took(&mut self, now: Nanos, given: &InForce, applied: &Applied) {
        for (at, drive) in self.drives.iter_mut().enumerate() {
            let state = given.state(at);
            let written = std::mem::replace(&mut drive.written, state) != state;
            let done = applied.of(Control::PowerState, at) == Outcome::Done;
            if written && done && !self.how.forgetful {
                drive.asked.took(now, state);
            }
        }
    }
}

fn op(completed: u64, bytes: u64, time: u64) -> OpSignals {
    OpSignals {
        completed: Some(completed),
        bytes: Some(bytes),
        mean_latency: time.checked_div(completed).map(Nanos),
        percentiles: None,
    }
}

/// As a host makes it of `/proc/diskstats`.
fn io([reads, writes]: [OpSignals; 2], time: u64, (before, in_flight): (u64, u64)) -> IoSignals {
    let sum = |of: fn(&OpSignals) -> Option<u64>| Some(of(&reads)? + of(&writes)?);
    let completed = sum(|op| op.completed);
    let grown = in_flight.saturating_sub(before);
    IoSignals {
        arrived: completed.map(|completed| completed + grown),
        completed,
        bytes: sum(|op| op.bytes),
        mean_latency: completed.and_then(|completed| time.checked_div(completed)).map(Nanos),
        max_latency: None,
        percentiles: None,
        in_flight: Some(in_flight),
        reads,
        writes,
    }
}
