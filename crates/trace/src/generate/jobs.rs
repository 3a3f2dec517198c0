//! Client threads in a closed loop: vdbench (PACER Table II) and fio (PACMAN Table II).

use super::access::{Access, Streams, Thread};
use super::error::{GenerateError, Place};
use super::pace::{Pace, Stage, Turn, interval};
use super::random::stream;
use super::schedule::Schedule;
use super::spec::{AccessSpec, JobSpec};
use super::target::Target;
use super::text::{RATES, RATES_SAID, Rate};
use crate::request::Request;

/// Threads of one kind. Each thread draws its requests in an order of its own, whatever its
/// other slots and other threads do: every policy meets the same requests.
pub(super) struct Jobs {
    threads: Vec<Thread>,
    depth: u32,
    /// How requests are drawn in each stage.
    accesses: Vec<Access>,
    pace: Pace,
    phases: Option<Schedule>,
    /// Threads with the same job number are active together.
    same_job: u32,
}

/// Numbers of random streams that are not a thread's.
const PACE: u64 = u64::MAX;
const PHASES: u64 = u64::MAX - 1;
/// No server has more requests outstanding than its clients have tags.
const MOST_SLOTS: u64 = 1 << 20;

impl JobSpec {
    /// Threads on so many devices.
    pub(super) fn streams(&self, devices: u16) -> u32 {
        if self.per_drive { self.threads.saturating_mul(u32::from(devices)) } else { self.threads }
    }

    /// Rate and requests of each stage, and when it begins.
    fn stages(&self) -> Vec<(u64, Rate, AccessSpec)> {
        let mut stages = vec![(0, self.rate, self.access.clone())];
        for stage in &self.stages {
            let mut access = stages[stages.len() - 1].2.clone();
            access.block = stage.block.clone().unwrap_or(access.block);
            stages.push((stage.start.0, stage.rate, access));
        }
        stages
    }
}

impl Jobs {
    pub(super) fn new(
        spec: &JobSpec,
        target: Target,
        seed: u64,
        part: u64,
        first: u32,
        end: u64,
        place: Place<'_>,
    ) -> Result<Self, GenerateError> {
        place.need(spec.threads > 0, "threads", "must be at least 1")?;
        place.need(spec.depth > 0, "depth", "must be at least 1")?;
        let slots = u64::from(spec.streams(target.count)) * u64::from(spec.depth);
        place.need(slots <= MOST_SLOTS, "threads", "more than a million requests outstanding")?;
        let stages = spec.stages();
        let ordered = stages.windows(2).all(|pair| pair[0].0 < pair[1].0);
        place.need(ordered, "stages", "must start after zero and one after the other")?;
        let accesses: Vec<Access> = stages
            .iter()
            .map(|stage| Access::new(&stage.2, target, place))
            .collect::<Result<_, _>>()?;
        let of_part = Streams { seed, part, count: spec.threads, per_drive: spec.per_drive, first };
        let phases = spec
            .phases
            .as_ref()
            .map(|phases| Schedule::new(phases, spec.threads, stream(seed, part, PHASES), place));
        for access in &accesses {
            access.region(&of_part, place)?;
        }
        let threads = accesses[0].streams(&of_part, place)?;
        let paces = paces(&stages, end, place)?;
        Ok(Self {
            pace: Pace::new(paces, threads.len(), stream(seed, part, PACE)),
            threads,
            depth: spec.depth,
            accesses,
            phases: phases.transpose()?,
            same_job: if spec.per_drive { u32::from(target.count) } else { 1 },
        })
    }

    /// The thread of each slot.
    pub(super) fn slots(&self) -> Vec<u32> {
        let threads = 0..self.threads.len() as u32;
        threads.flat_map(|thread| (0..self.depth).map(move |_| thread)).collect()
    }

    /// The next request for a slot of `thread` that is free at `now`, if one comes.
    #[inline]
    pub(super) fn next(&mut self, thread: u32, now: u64) -> Option<Request> {
        let (at, stage, thread) = match self.pace.turn(now, self.phases.as_mut())? {
            Turn::Own { at, stage } => {
                let at = match &mut self.phases {
                    Some(phases) => phases.admit(thread / self.same_job, at),
                    None => at,
                };
                (at, stage, thread as usize)
            }
            Turn::Arrival { at, stage, thread } => (at, stage, thread),
        };
        Some(self.accesses[stage].draw(&mut self.threads[thread], at))
    }
}

fn paces(
    stages: &[(u64, Rate, AccessSpec)],
    end: u64,
    place: Place<'_>,
) -> Result<Vec<Stage>, GenerateError> {
    let ends = stages.iter().skip(1).map(|stage| stage.0).chain([end]);
    let stage = |((from, rate, _), until): (&(u64, Rate, AccessSpec), u64)| {
        let interval = match *rate {
            Rate::Max => None,
            rate => Some(interval(iops(rate, place)?)),
        };
        Ok(Stage { from: *from, until, interval })
    };
    stages.iter().zip(ends).map(stage).collect()
}

/// A rate in requests per second, which a pressure is not yet.
pub(super) fn iops(rate: Rate, place: Place<'_>) -> Result<f64, GenerateError> {
    match rate {
        Rate::Iops(iops) if RATES.contains(&iops) => Ok(iops),
        Rate::Iops(iops) => Err(place.wrong("rate", format!("{iops:e} IOPS: {RATES_SAID}"))),
        Rate::Max => Err(place.wrong("rate", "requests by the clock need a rate, not \"max\"")),
        Rate::Pressure(_) => {
            let reason = format!("{rate} is a share of the server's maximum, which is not known");
            Err(place.wrong("rate", reason))
        }
    }
}
