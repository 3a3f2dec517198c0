//! From a specification to a source of requests.

use std::ops::Range;

use ebb_policy::units::Nanos;

use super::arrivals::{self, Arrivals, Open, When};
use super::batch::{self, Job};
use super::clients::{Clients, Part};
use super::error::{GenerateError, Place};
use super::jobs::Jobs;
use super::readers::Readers;
use super::rocksdb::Rocksdb;
use super::shape;
use super::spec::{PhaseSpec, WorkloadSpec};
use super::target::{BuildContext, DriveShare, Target};
use crate::request::{LoadPart, Request, Source, TraceError, Workload};
use crate::transform::Load;

/// No requests.
struct Nothing;

impl Source for Nothing {
    fn fill(&mut self, _: &mut Vec<Request>) -> Result<(), TraceError> {
        Ok(())
    }
}

/// A part of a workload and its devices, for results by part (PACMAN Fig. 5 c and d).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartDevices {
    /// Name of the part.
    pub name: String,
    /// First device.
    pub first: u16,
    /// Number of devices.
    pub count: u16,
}

impl WorkloadSpec {
    /// Makes the requests.
    ///
    /// # Errors
    /// When a field makes no sense, alone, with others or on this server; when a rate is still a
    /// pressure (see [`with_maximum`](Self::with_maximum)); when an input file is unreadable.
    pub fn build(&self, context: &BuildContext) -> Result<Workload, GenerateError> {
        let whole = Place { workload: &self.name, part: "" };
        whole.need(context.devices > 0, "devices", "the server has none")?;
        let end = self.duration.unwrap_or(Nanos(u64::MAX)).0;
        whole.need(end > 0, "duration", "must be longer than zero")?;
        let closed = self.jobs.len() + self.rocksdb.len() + self.readers.len();
        match (closed, self.arrivals.len()) {
            (0, 0) if !self.batch.is_empty() => {
                // Checked here; whoever runs the jobs makes them anew.
                self.batch_jobs(context)?;
                Ok(Workload::Open(Box::new(Nothing)))
            }
            (0, 0) => {
                let reason = "give at least one [[jobs]], [[rocksdb]], [[readers]], [[arrivals]] \
                              or [[batch]]";
                Err(whole.wrong("parts", reason))
            }
            (1.., 1..) => {
                let reason = "requests by the clock cannot be mixed with [[jobs]], [[rocksdb]] or \
                              [[readers]], which go by completion";
                Err(whole.wrong("arrivals", reason))
            }
            (1.., _) => Ok(Workload::Closed(Box::new(self.closed(context, end)?))),
            _ => Ok(Workload::Open(Box::new(self.open(context, &[0.0..f64::INFINITY], end)?))),
        }
    }

    fn closed(&self, context: &BuildContext, end: u64) -> Result<Clients, GenerateError> {
        let mut clients = Clients::new(end);
        let mut streams = 0;
        let mut seeds = 0;
        let mut next = |used: u32| {
            let before = (streams, seeds);
            streams += used;
            seeds += 1;
            before
        };
        for spec in &self.jobs {
            let target = self.target(context, spec.drives, &spec.name)?;
            let (first, part) = next(spec.streams(target.count));
            let place = self.place(&spec.name);
            let jobs = Jobs::new(spec, target, context.seed, part, first, end, place)?;
            let streams = LoadPart { first, best_effort: spec.best_effort };
            clients.add(streams, jobs.slots(), Part::Jobs(jobs));
        }
        for spec in &self.rocksdb {
            let target = self.target(context, spec.drives, &spec.name)?;
            let (first, _) = next(Rocksdb::STREAMS);
            let instance = Rocksdb::new(spec, target, first, self.place(&spec.name))?;
            let streams = LoadPart { first, best_effort: false };
            clients.add(streams, (0..spec.depth).collect(), Part::Rocksdb(instance));
        }
        for spec in &self.readers {
            let target = self.target(context, spec.drives, &spec.name)?;
            let workers = spec.accelerators.saturating_mul(spec.workers);
            let (first, part) = next(workers);
            let place = self.place(&spec.name);
            let readers = Readers::new(spec, target, context.seed, part, first, place)?;
            let streams = LoadPart { first, best_effort: false };
            clients.add(streams, (0..workers).collect(), Part::Readers(readers));
        }
        Ok(clients)
    }

    /// Makes the `[[arrivals]]` of `pieces`, which are in order and apart, one after the other: as
    /// many at the same loads as come in them when all are made, but not the same ones.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn excerpt(
        &self,
        context: &BuildContext,
        pieces: &[Range<Nanos>],
    ) -> Result<Workload, GenerateError> {
        let end = pieces.iter().map(|piece| (piece.end - piece.start).0).sum();
        let float = |piece: &Range<Nanos>| piece.start.0 as f64..piece.end.0 as f64;
        let pieces: Vec<_> = pieces.iter().map(float).collect();
        Ok(Workload::Open(Box::new(self.open(context, &pieces, end)?)))
    }

    /// What to expect of `[[arrivals]]` in each of so many slots of `length`, without making them.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn loads(
        &self,
        context: &BuildContext,
        (slots, length): (usize, Nanos),
    ) -> Result<Vec<Load>, GenerateError> {
        let mut all = vec![Load::default(); slots];
        for (part, spec) in self.arrivals.iter().enumerate() {
            let slots = (all.as_mut_slice(), length);
            let seed = (context.seed, part as u64);
            arrivals::expect(spec, seed, slots, self.place(&spec.name))?;
        }
        Ok(all)
    }

    fn open(
        &self,
        context: &BuildContext,
        pieces: &[Range<f64>],
        end: u64,
    ) -> Result<Open, GenerateError> {
        let (mut parts, mut streams) = (Vec::new(), Vec::new());
        let mut first = 0;
        for (part, spec) in self.arrivals.iter().enumerate() {
            let target = self.target(context, spec.drives, &spec.name)?;
            let place = self.place(&spec.name);
            let seed = context.seed;
            let when = When { pieces: pieces.to_vec(), end };
            parts.push(Arrivals::new(spec, target, seed, part as u64, first, when, place)?);
            streams.push(LoadPart { first, best_effort: spec.best_effort });
            first += spec.streams;
        }
        Ok(Open::new(parts, streams))
    }

    /// The jobs of the workload, in the order of their parts.
    ///
    /// # Errors
    /// When a field makes no sense, alone or on this server.
    pub fn batch_jobs(&self, context: &BuildContext) -> Result<Vec<Job>, GenerateError> {
        batch::jobs(&self.name, &self.batch, context)
    }

    /// Which devices each part of the workload uses on a server of so many.
    #[must_use]
    pub fn parts(&self, devices: u16) -> Vec<PartDevices> {
        let jobs = self.jobs.iter().map(|part| (&part.name, part.drives));
        let rocksdb = self.rocksdb.iter().map(|part| (&part.name, part.drives));
        let readers = self.readers.iter().map(|part| (&part.name, part.drives));
        let arrivals = self.arrivals.iter().map(|part| (&part.name, part.drives));
        let io = self.batch.iter().filter_map(|part| Some((&part.name, part.io.as_ref()?.drives)));
        let all = jobs.chain(rocksdb).chain(readers).chain(arrivals).chain(io);
        all.map(|(name, drives)| {
            let (first, count) = drives.of(devices);
            PartDevices { name: name.clone(), first, count }
        })
        .collect()
    }

    /// What is not plain about the files that its loads have as their shapes.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut all: Vec<String> =
            self.arrivals.iter().flat_map(|part| shape::notes(&part.shape)).collect();
        all.dedup();
        all
    }

    /// The longest time in which a part of it comes round, and whether all do so alike, or anew
    /// each time; 0 where nothing changes.
    #[must_use]
    pub fn turn(&self) -> (Nanos, bool) {
        let shapes = self.arrivals.iter().map(|part| shape::turn(&part.shape));
        let phases = self.jobs.iter().filter_map(|part| part.phases.as_ref());
        let phases = phases.map(|phases| {
            let PhaseSpec { busy, idle, spread, vary } = phases;
            let turn = if *idle > Nanos::ZERO { *busy + *idle } else { Nanos::ZERO };
            let every = vary.map_or(Nanos::ZERO, |vary| vary.every);
            (turn.max(every), vary.is_none() && spread.0 == 0.0)
        });
        let turns = shapes.chain(phases).filter(|(turn, _)| *turn > Nanos::ZERO);
        turns.fold((Nanos::ZERO, true), |(all, alike), (turn, own)| (all.max(turn), alike && own))
    }

    fn place<'a>(&'a self, part: &'a str) -> Place<'a> {
        Place { workload: &self.name, part }
    }

    fn target(
        &self,
        context: &BuildContext,
        drives: DriveShare,
        part: &str,
    ) -> Result<Target, GenerateError> {
        let (first, count) = drives.of(context.devices);
        let reason = format!("holds none of the {} devices", context.devices);
        self.place(part).need(count > 0, "drives", &reason)?;
        Ok(Target { first, count, capacity: context.capacity_bytes })
    }
}
