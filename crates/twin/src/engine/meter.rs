//! What is measured: users' I/O, power by component, the totals of a run.

use std::collections::VecDeque;
use std::ops::Range;

use hdrhistogram::{CreationError, Histogram};

use ebb_policy::ssd::CAP_TOLERANCE;
use ebb_policy::units::{Joules, Nanos, Watts};
use ebb_policy::{DriveSignals, IoSignals, PowerSignals};
use ebb_trace::{LoadPart, Op};

use super::io::{Io, NO_PART};
use super::latency::Latencies;
use crate::outcome::{Energy, Outcome, PartTotal};
use crate::profile::{Board, Profile, Psu};
use crate::spells::Spells;

/// What a period's components drew that have meters of their own; in joules.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) cpu: f64,
    pub(super) ssd: f64,
    pub(super) fans: Joules,
}

/// All meters of one run.
#[derive(Debug)]
pub(super) struct Meter {
    board: Board,
    psu: Psu,
    /// Of the period: requests that arrived, those that were answered, the longest latency.
    arrived: u64,
    latencies: Latencies,
    latency_max: u64,
    /// Latencies of requests that arrived before are not counted.
    counted_from: u64,
    /// The first stream of each part of the load, where there are several.
    parts: Vec<u32>,
    /// Joules up to the end of each period that a late meter still has to tell of.
    passed: VecDeque<(u64, f64)>,
    /// Energy of the last period, and its length where it is counted.
    last: Joules,
    counted: Nanos,
    pub(super) spells: Spells,
    pub(super) outcome: Outcome,
}

impl Meter {
    /// Tells latencies up to `longest` apart, and counts `spells` one by one.
    pub(super) fn new(
        profile: &Profile,
        longest: u64,
        spells: &[Range<Nanos>],
        parts: &[LoadPart],
    ) -> Result<Self, CreationError> {
        let histogram = Histogram::new_with_bounds(1, longest, 3)?;
        // Of one part all is told already.
        let parts = if parts.len() < 2 { &[] } else { parts };
        let mut outcome = Outcome::empty(histogram, usize::from(profile.drives.count));
        outcome.parts = vec![PartTotal::new(&outcome.latency); parts.len()];
        Ok(Self {
            board: profile.board.clone(),
            psu: profile.psu.clone(),
            arrived: 0,
            latencies: Latencies::new(),
            latency_max: 0,
            counted_from: 0,
            parts: parts.iter().map(|part| part.first).collect(),
            passed: VecDeque::from([(0, 0.0)]),
            last: Joules(0.0),
            counted: Nanos::ZERO,
            spells: Spells::new(spells)?,
            outcome,
        })
    }

    /// The part of the load that a stream belongs to.
    pub(super) fn part(&self, stream: u32) -> u16 {
        match self.parts.partition_point(|first| *first <= stream) {
            0 => NO_PART,
            after => (after - 1) as u16,
        }
    }

    pub(super) fn arrived(&mut self) {
        self.arrived += 1;
    }
    /// A request was answered; `drive` is the one that served it, if exactly one did. A policy
    /// senses what a server can: not the time that a request waited for a thread of its client.
    #[inline] // Once per request; left to itself the compiler does so or not by what stands around.
    pub(super) fn completed(&mut self, io: &Io, answered: u64, drive: Option<u16>) {
        let Io { arrival, sent, op, .. } = *io;
        let bytes = op.data(io.bytes);
        let sensed = answered - sent;
        if let Some(spell) = self.spells.of(arrival) {
            let latency = answered - arrival;
            spell.requests += 1;
            spell.reads += u64::from(op == Op::Read);
            spell.bytes += u64::from(bytes);
            spell.latency_sum += latency;
            let recorded = spell.latency.record(latency);
            debug_assert!(recorded.is_ok(), "it grows");
        }
        self.latencies.add(op, bytes, sensed);
        self.latency_max = self.latency_max.max(sensed);
        // What is done counts as the energy does, in the seconds in which it is done.
        let outcome = &mut self.outcome;
        outcome.requests += 1;
        outcome.reads += u64::from(op == Op::Read);
        outcome.bytes += u64::from(bytes);
        if let Some(drive) = drive {
            let total = &mut outcome.drives[usize::from(drive)];
            total.requests += 1;
            total.bytes += u64::from(bytes);
        }
        // Recorded once: of several parts the whole is their sum.
        let mut part = outcome.parts.get_mut(usize::from(io.part));
        if let Some(part) = &mut part {
            part.requests += 1;
            part.bytes += u64::from(bytes);
        }
        // Of what came before, latency would tell of time that does not count.
        if arrival >= self.counted_from {
            let latency = answered - arrival;
            outcome.latency_sum += u128::from(latency);
            outcome.windows.add(arrival - self.counted_from, latency);
            let latencies = match part {
                Some(part) => {
                    part.latency_sum += u128::from(latency);
                    &mut part.latency
                }
                None => &mut outcome.latency,
            };
            latencies.saturating_record(latency);
        }
    }

    /// What the run came to.
    pub(super) fn finish(self) -> Outcome {
        let mut outcome = self.outcome;
        outcome.spells = self.spells.finish();
        for part in &outcome.parts {
            let added = outcome.latency.add(&part.latency);
            assert!(added.is_ok(), "the histogram of a part is like that of the whole");
        }
        outcome
    }

    /// Forgets what was counted so far: warm-up is over.
    pub(super) fn restart(&mut self, now: u64) {
        self.counted_from = now;
        self.counted = Nanos::ZERO;
        let mut histogram = self.outcome.latency.clone();
        histogram.reset();
        let parts = vec![PartTotal::new(&histogram); self.parts.len()];
        self.outcome = Outcome::empty(histogram, self.outcome.drives.len());
        self.outcome.parts = parts;
    }

    /// Reports users' I/O of the period and starts the next one.
    pub(super) fn sense(&mut self, in_flight: u64) -> (IoSignals, u64) {
        let (completed, bytes, mean_latency) = self.latencies.totals();
        let (reads, writes, percentiles) = self.latencies.take();
        let max = std::mem::take(&mut self.latency_max);
        let signals = IoSignals {
            arrived: Some(std::mem::take(&mut self.arrived)),
            completed: Some(completed),
            bytes: Some(bytes),
            mean_latency,
            max_latency: mean_latency.map(|_| Nanos(max)),
            percentiles,
            in_flight: Some(in_flight),
            reads,
            writes,
        };
        (signals, bytes)
    }

    /// Energy of a period of `length` by component.
    pub(super) fn energy(&self, length: Nanos, drawn: Drawn, bytes: u64) -> Energy {
        let gigabytes = bytes as f64 * 1e-9;
        let board = &self.board;
        let mut energy = Energy {
            cpu: Joules(drawn.cpu),
            ssd: Joules(drawn.ssd),
            memory: board.memory * length + Joules(board.memory_per_gbps.0 * gigabytes),
            nic: board.nic * length + Joules(board.nic_per_gbps.0 * gigabytes),
            fans: drawn.fans,
            other: board.other * length,
            psu_loss: Joules(0.0),
        };
        if length > Nanos::ZERO {
            let delivered = energy.total();
            energy.psu_loss = delivered * (1.0 / self.psu.efficiency(delivered / length) - 1.0);
        }
        energy
    }

    /// Adds each drive's energy of a period to its total.
    pub(super) fn book_drives(&mut self, drives: &[DriveSignals], length: Nanos) {
        for (total, drive) in self.outcome.drives.iter_mut().zip(drives) {
            total.energy += drive.power.unwrap_or_default() * length;
        }
    }

    /// What a meter tells at `now` that is `lag` late: the mean power over a period that ended so
    /// long ago, or over `window` where that is longer and as much has passed. Call it once per
    /// period.
    pub(super) fn late(
        &mut self,
        now: u64,
        span: Nanos,
        lag: Nanos,
        window: Nanos,
    ) -> Option<Watts> {
        let before = self.passed.back().map_or(0.0, |last| last.1);
        self.passed.push_back((now, before + self.last.0));
        let end = now.checked_sub(lag.0)?;
        let from = end.checked_sub(span.0)?.min(end.saturating_sub(window.0));
        while self.passed.get(1).is_some_and(|(at, _)| *at <= from) {
            self.passed.pop_front();
        }
        let joules = |at: u64| {
            let after = self.passed.partition_point(|(end, _)| *end < at);
            let (t1, e1) = self.passed[after.min(self.passed.len() - 1)];
            let (t0, e0) = self.passed[after.saturating_sub(1)];
            if t1 == t0 { e1 } else { e0 + (e1 - e0) * (at - t0) as f64 / (t1 - t0) as f64 }
        };
        Some(Joules(joules(end) - joules(from)) / (Nanos(end - from)))
    }

    /// Adds a period that began at `start` to the totals of the run; returns its power.
    pub(super) fn book(
        &mut self,
        energy: Energy,
        start: u64,
        length: Nanos,
        budget: Option<Watts>,
    ) -> PowerSignals {
        let before = std::mem::replace(&mut self.last, energy.total());
        self.outcome.energy.add(&energy);
        if let Some(spell) = self.spells.of(start) {
            spell.energy.add(&energy);
        }
        self.outcome.span += length;
        if length == Nanos::ZERO {
            return PowerSignals::default();
        }
        let power = PowerSignals {
            total: Some(energy.total() / length),
            cpu: Some(energy.cpu / length),
            ssd: Some(energy.ssd / length),
            fans: Some(energy.fans / length),
        };
        // The rest of a period tells of no mean: it counts with the period before.
        let counted = std::mem::replace(&mut self.counted, length);
        let (joules, of) = match length < counted {
            true => (before + self.last, counted + length),
            false => (self.last, length),
        };
        self.outcome.peak = self.outcome.peak.max(joules / of);
        // Drives at caps that sum to the budget are not over it by a rounding error.
        if budget.is_some_and(|budget| energy.ssd / length > budget + CAP_TOLERANCE) {
            self.outcome.over_budget += length;
        }
        power
    }
}

impl Psu {
    /// Efficiency at a load, on straight lines between the curve's points.
    #[must_use]
    pub fn efficiency(&self, load: Watts) -> f64 {
        let share = load / self.rated;
        let after = self.efficiency.partition_point(|(at, _)| *at < share);
        let point = |index: usize| self.efficiency.get(index).copied();
        match (after.checked_sub(1).and_then(point), point(after)) {
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (share - x0) / (x1 - x0),
            (Some((_, efficiency)), None) | (None, Some((_, efficiency))) => efficiency,
            (None, None) => 1.0,
        }
    }
}
