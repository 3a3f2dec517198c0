//! Jobs on the cores that run them, in slices of 10 ms (EADC §VI-B).
//!
//! A job alternates between a core and the drives, whose ordinary path its requests take. At
//! the start of a slice jobs arrive, are admitted by class, move between sockets, and each is
//! told by its share whether it may run in this slice; cores with several jobs take turns.

mod job;
#[cfg(test)]
mod tests;

use ebb_policy::units::{Joules, Nanos};
use ebb_policy::{InForce, JobSignals};
use ebb_trace::Op;
use ebb_trace::generate::Job as Spec;

use super::climate::Climate;
use super::cores::Cores;
use super::events::{Event, Events};
use super::io::{DriveCommand, Io, Kind, NONE};
use super::{Engine, TwinError};
use crate::outcome::JobTotal;
use crate::profile::{Profile, Raid};
use job::{Job, Pace, State};

/// Length of a slice.
const SLICE: u64 = 10_000_000;
/// Slots of requests from here on are jobs'.
pub(super) const FIRST_SLOT: u32 = 1 << 31;

/// A core and the jobs on it.
#[derive(Debug)]
struct Seat {
    core: usize,
    group: usize,
    socket: u16,
    jobs: Vec<u32>,
    running: Option<u32>,
    /// Whose turn it is.
    turn: usize,
}

/// All jobs of one run.
#[derive(Debug)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
    seats: Vec<Seat>,
    slots: Vec<Option<u32>>,
    /// Share in force in each slot.
    shares: Vec<f64>,
    migration: Nanos,
    slice_end: u64,
    /// Jobs that may send requests.
    sending: Vec<u32>,
    ended: usize,
}

impl Jobs {
    /// The jobs of a run; `None` without any.
    pub(super) fn new(profile: &Profile, specs: Vec<Spec>) -> Result<Option<Self>, TwinError> {
        if specs.is_empty() {
            return Ok(None);
        }
        let Some(cores) = &profile.jobs else {
            return Err(TwinError::Setup(format!(
                "the workload has jobs, but server '{}' has no cores for them: choose one whose \
                 profile has a [jobs] section",
                profile.name
            )));
        };
        for spec in &specs {
            check(spec, profile).map_err(TwinError::Setup)?;
        }
        let mut seats = Vec::new();
        let mut core = profile.stage.iter().map(|stage| usize::from(stage.cores)).sum();
        for (index, group) in cores.cores.iter().enumerate() {
            for _ in 0..group.cores {
                let (group, socket) = (profile.stage.len() + index, group.socket);
                seats.push(Seat { core, group, socket, jobs: vec![], running: None, turn: 0 });
                core += 1;
            }
        }
        Ok(Some(Self {
            jobs: specs.into_iter().map(Job::new).collect(),
            seats,
            slots: vec![None; usize::from(cores.slots)],
            shares: vec![1.0; usize::from(cores.slots)],
            migration: cores.migration,
            slice_end: 0,
            sending: Vec::new(),
            ended: 0,
        }))
    }

    /// Whether all have ended.
    pub(super) fn done(&self) -> bool {
        self.ended == self.jobs.len()
    }

    pub(super) fn totals(&self) -> Vec<JobTotal> {
        self.jobs.iter().map(|job| job.total.clone()).collect()
    }

    /// Books what the server drew by the end of each job that ended in a period of `length` ns:
    /// `drawn` in it, `before` it. Power is even within a period, as far as anybody knows.
    pub(super) fn book_energy(
        &mut self,
        (start, length): (u64, u64),
        before: Joules,
        drawn: Joules,
    ) {
        for total in self.jobs.iter_mut().map(|job| &mut job.total) {
            if let (Some(end), None) = (total.ended, total.energy) {
                let share = end.0.saturating_sub(start) as f64 / length.max(1) as f64;
                total.energy = Some(before + drawn * share.min(1.0));
            }
        }
    }

    /// Books what runs up to `now`.
    pub(super) fn settle(&mut self, cores: &mut Cores, now: u64) {
        for seat in &self.seats {
            if let Some(job) = seat.running {
                progress(&mut self.jobs[job as usize], seat.group, cores, now);
            }
        }
    }

    /// Reports each slot over a period of `length` ns that ends `now`, all being settled.
    pub(super) fn sense(&mut self, now: u64, length: u64, signals: &mut [JobSignals]) {
        for (slot, signal) in self.slots.iter().zip(signals) {
            *signal = JobSignals::default();
            let Some(job) = slot.map(|job| &mut self.jobs[job as usize]) else { continue };
            let (busy, bytes) = job.take_period();
            let seat = self.seats.get(job.seat);
            *signal = JobSignals {
                present: true,
                class: job.class(),
                socket: seat.map_or(job.socket().unwrap_or(0), |seat| seat.socket),
                cpu: if length > 0 { (busy as f64 / length as f64).min(1.0) } else { 0.0 },
                disk_bytes: bytes,
                waiting: job.state == State::Outside,
                age: Nanos(now.saturating_sub(job.total.arrived.0)),
                objective: job.total.objective,
            };
        }
    }

    /// A slice begins.
    fn slice(&mut self, in_force: &InForce, cores: &mut Cores, events: &mut Events, now: u64) {
        self.settle(cores, now);
        for seat in 0..self.seats.len() {
            self.vacate(seat, cores, now);
        }
        self.slice_end = now + SLICE;
        self.arrive(in_force, cores, now);
        self.move_about(in_force, cores);
        for (slot, job) in self.slots.iter().enumerate() {
            if let Some(job) = job {
                self.jobs[*job as usize].share(self.shares[slot], now);
            }
        }
        for seat in 0..self.seats.len() {
            self.seats[seat].turn += 1;
            self.occupy(seat, cores, events, now);
        }
    }

    /// Jobs whose time has come take slots; those whose class is admitted start.
    fn arrive(&mut self, in_force: &InForce, cores: &Cores, now: u64) {
        for index in self.queue(in_force, now) {
            let job = &self.jobs[index];
            if job.slot.is_none() || !in_force.admits(job.class()) {
                continue;
            }
            let socket = self.wanted_socket(job, in_force).or(job.socket());
            let Some(seat) = self.emptiest(cores, socket) else { continue };
            self.seats[seat].jobs.push(index as u32);
            self.jobs[index].seat = seat;
            self.jobs[index].start(now);
            self.sending.push(index as u32);
        }
    }

    /// Jobs that are there and not started, with the slots that running ones leave: admitted
    /// classes first, then the class that matters most, then the oldest. One that waits gives its
    /// slot up to one that comes before it, so that it holds back none.
    fn queue(&mut self, in_force: &InForce, now: u64) -> Vec<usize> {
        let there = |job: &Job| job.state == State::Outside && job.total.arrived.0 <= now;
        let mut queue: Vec<_> = (0..self.jobs.len()).filter(|i| there(&self.jobs[*i])).collect();
        if queue.is_empty() {
            return queue;
        }
        queue.sort_by_key(|index| {
            let job = &self.jobs[*index];
            (!in_force.admits(job.class()), job.class(), job.total.arrived, *index)
        });
        let runs = |slot: &Option<u32>| {
            slot.is_some_and(|job| self.jobs[job as usize].state != State::Outside)
        };
        let left = self.slots.iter().filter(|slot| !runs(slot)).count();
        for index in queue.iter().skip(left) {
            if let Some(slot) = self.jobs[*index].slot.take() {
                self.slots[usize::from(slot)] = None;
            }
        }
        for index in queue.iter().take(left) {
            if self.jobs[*index].slot.is_some() {
                continue;
            }
            let Some(free) = self.slots.iter().position(Option::is_none) else { break };
            self.slots[free] = Some(*index as u32);
            self.jobs[*index].slot = Some(free as u16);
        }
        queue
    }

    /// The socket that the policy asks for, if it has cores for jobs.
    fn wanted_socket(&self, job: &Job, in_force: &InForce) -> Option<u16> {
        let asked = in_force.job_socket.value(usize::from(job.slot?))?;
        self.seats.iter().any(|seat| seat.socket == asked).then_some(asked)
    }

    /// The usable core with the fewest jobs, on `socket` if one is given.
    fn emptiest(&self, cores: &Cores, socket: Option<u16>) -> Option<usize> {
        let fits = |seat: &Seat| socket.is_none_or(|socket| seat.socket == socket);
        let usable = self.seats.iter().enumerate();
        usable
            .filter(|(_, seat)| fits(seat) && cores.takes_work(seat.core))
            .min_by_key(|(_, seat)| seat.jobs.len())
            .map(|(index, _)| index)
    }

    /// Moves jobs to the sockets that the policy asks for, off parked cores, and from a core with
    /// several to one without: first on the same socket, else, where the policy asks for none,
    /// on any: the load balancing of operating systems.
    fn move_about(&mut self, in_force: &InForce, cores: &Cores) {
        for index in 0..self.jobs.len() {
            let job = &self.jobs[index];
            let seated = matches!(job.state, State::Ready | State::Waiting);
            let Some(seat) = self.seats.get(job.seat).filter(|_| seated) else { continue };
            let asked = self.wanted_socket(job, in_force);
            let stay = asked.unwrap_or(seat.socket);
            let leave = stay != seat.socket || !cores.takes_work(seat.core);
            let crowd = seat.jobs.len();
            if !leave && crowd == 1 {
                continue;
            }
            let mut to = self.emptiest(cores, Some(stay));
            if asked.is_none() && to.is_none_or(|to| !self.seats[to].jobs.is_empty()) {
                to = self.emptiest(cores, None).or(to);
            }
            let better = |to: usize| self.seats[to].jobs.is_empty();
            if let Some(to) = to.filter(|to| *to != job.seat && (leave || better(*to))) {
                self.move_to(index, to);
            }
        }
    }

    fn move_to(&mut self, index: usize, to: usize) {
        let job = &mut self.jobs[index];
        if self.seats[job.seat].socket != self.seats[to].socket {
            job.delay(self.migration);
        }
        self.seats[job.seat].jobs.retain(|other| *other as usize != index);
        self.seats[to].jobs.push(index as u32);
        job.seat = to;
    }

    /// Lets the next job with work run on a core that is free.
    fn occupy(&mut self, index: usize, cores: &mut Cores, events: &mut Events, now: u64) {
        let seat = &mut self.seats[index];
        if seat.running.is_some() || seat.jobs.is_empty() {
            return;
        }
        let count = seat.jobs.len();
        let in_turn = (0..count).map(|step| seat.jobs[(seat.turn + step) % count]);
        let mut can_run = in_turn.filter(|job| {
            let job = &self.jobs[*job as usize];
            job.state == State::Ready && job.allowed
        });
        let Some(next) = can_run.next() else { return };
        seat.running = Some(next);
        let job = &mut self.jobs[next as usize];
        job.running = Some(now);
        cores.start_job(seat.core, now);
        let end = job.burst_end(now, pace(cores, seat.group));
        // A burst that lasts longer is looked at when the next slice begins.
        if end < self.slice_end {
            events.push(end, Event::Burst(next));
        }
    }

    /// Takes the running job, settled, off a core.
    fn vacate(&mut self, index: usize, cores: &mut Cores, now: u64) {
        let seat = &mut self.seats[index];
        let Some(running) = seat.running.take() else { return };
        cores.stop_job(seat.core, now);
        self.jobs[running as usize].running = None;
        if self.jobs[running as usize].is_burst_over() {
            self.burst_done(running, now);
        }
    }

    fn burst_done(&mut self, index: u32, now: u64) {
        let job = &mut self.jobs[index as usize];
        job.burst_done(now);
        if job.state != State::Ended {
            return self.sending.push(index);
        }
        self.ended += 1;
        self.seats[job.seat].jobs.retain(|other| *other != index);
        if let Some(slot) = job.slot.take() {
            self.slots[usize::from(slot)] = None;
        }
    }

    /// The burst of a running job is over.
    fn burst(&mut self, index: u32, cores: &mut Cores, events: &mut Events, now: u64) {
        let seat = self.jobs[index as usize].seat;
        if self.seats[seat].running != Some(index) {
            return;
        }
        progress(&mut self.jobs[index as usize], self.seats[seat].group, cores, now);
        self.vacate(seat, cores, now);
        self.occupy(seat, cores, events, now);
    }

    /// A request of a job was answered.
    fn answered(
        &mut self,
        index: u32,
        bytes: u64,
        cores: &mut Cores,
        events: &mut Events,
        now: u64,
    ) {
        let job = &mut self.jobs[index as usize];
        job.answer(now, bytes);
        let seat = job.seat;
        self.occupy(seat, cores, events, now);
    }
}

/// What keeps a job from running on this server at all.
fn check(spec: &Spec, profile: &Profile) -> Result<(), String> {
    let (name, server) = (&spec.name, &profile.name);
    let cores = profile.jobs.iter().flat_map(|jobs| &jobs.cores);
    if let Some(socket) = spec.socket
        && !cores.clone().any(|group| group.socket == socket)
    {
        return Err(format!(
            "job '{name}' wants socket {socket}, on which server '{server}' has no cores for jobs"
        ));
    }
    let rebuilds = spec.io.as_ref().is_some_and(|io| io.rebuild);
    if rebuilds && profile.layout.raid == Raid::None {
        return Err(format!(
            "job '{name}' rebuilds a drive, but server '{server}' has no RAID: choose one with it"
        ));
    }
    Ok(())
}

fn pace(cores: &Cores, group: usize) -> Pace {
    Pace { frequency: cores.frequency(group), highest: cores.highest_frequency() }
}

/// Books what a running job did; its power differs from the mean core's.
fn progress(job: &mut Job, group: usize, cores: &mut Cores, now: u64) {
    let span = job.progress(now, pace(cores, group));
    cores.add_activity(group, span, job.activity() - 1.0);
}

impl Engine<'_> {
    /// Whether jobs are still to be done.
    #[cold]
    pub(super) fn jobs_go_on(&self) -> bool {
        self.now < self.until && self.jobs.as_ref().is_some_and(|jobs| !jobs.done())
    }

    /// A slice of the jobs begins.
    #[inline(never)] // Out of the way of the events of requests.
    pub(super) fn slice(&mut self) -> Result<(), TwinError> {
        let Self { jobs: Some(jobs), in_force, cores, events, now, climate, .. } = self else {
            return Ok(());
        };
        if !climate.as_ref().is_some_and(Climate::refuses_shares) {
            for (slot, share) in jobs.shares.iter_mut().enumerate() {
                *share = in_force.share(slot);
            }
        }
        jobs.slice(in_force, cores, events, *now);
        self.send_jobs()?;
        let over = self.jobs.as_ref().is_none_or(Jobs::done);
        if over {
            self.last_answer = self.last_answer.max(self.now);
        } else if self.now < self.until {
            self.events.push(self.now + SLICE, Event::Slice);
        }
        Ok(())
    }

    /// The burst of a job is over.
    #[inline(never)]
    pub(super) fn burst(&mut self, job: u32) -> Result<(), TwinError> {
        let Self { jobs: Some(jobs), cores, events, now, .. } = self else { return Ok(()) };
        jobs.burst(job, cores, events, *now);
        if jobs.done() {
            self.last_answer = self.last_answer.max(self.now);
        }
        self.send_jobs()
    }

    /// The request in `slot` of a job was answered.
    #[inline(never)]
    pub(super) fn job_answered(&mut self, slot: u32, bytes: u64) {
        if let Self { jobs: Some(jobs), cores, events, now, .. } = self {
            jobs.answered(slot - FIRST_SLOT, bytes, cores, events, *now);
        }
    }

    /// Sends the requests of jobs that have room for more.
    fn send_jobs(&mut self) -> Result<(), TwinError> {
        while let Some(index) = self.jobs.as_mut().and_then(|jobs| jobs.sending.pop()) {
            let Self { jobs: Some(jobs), now, until, .. } = self else { break };
            let job = &mut jobs.jobs[index as usize];
            if *now >= *until || job.may_send() == 0 {
                continue;
            }
            let rebuild = job.io().is_some_and(|io| io.rebuild);
            if job.may_send() > 1 {
                jobs.sending.push(index);
            }
            let Some(request) = jobs.jobs[index as usize].next_request(*now, index) else { break };
            if rebuild {
                self.rebuild(request.offset, request.bytes, FIRST_SLOT + index);
            } else {
                self.arrive(&request, FIRST_SLOT + index)?;
            }
        }
        Ok(())
    }

    /// Reads a place of the last drive from the others; what it held is written there next.
    fn rebuild(&mut self, offset: u64, bytes: u32, slot: u32) {
        let drives = self.array.drives() as u16;
        let sources = drives - self.profile.layout.raid.parity() as u16;
        let command = |drive| DriveCommand { drive, op: Op::Read, offset, bytes };
        let parent = self.part(NONE, command(drives - 1));
        self.ios[parent] = Io { kind: Kind::Rebuild, slot, ..self.ios[parent] };
        let mut end = None;
        // With two parities one drive more is there than needed: another one each time.
        let first = (offset / u64::from(bytes.max(1)) % u64::from(drives - 1)) as u16;
        for step in 0..sources {
            let drive = (first + step) % (drives - 1);
            end = end.max(self.send_part(parent, command(drive)));
        }
        self.sent_parts(parent, end);
    }

    /// The drives did their part of a rebuilding: read it, or wrote it.
    pub(super) fn rebuilt(&mut self, parent: u32) {
        let Io { offset, bytes, drive, slot, old_read, .. } = self.ios[parent];
        if !old_read {
            self.ios[parent].old_read = true;
            let end = self.send_part(parent, DriveCommand { drive, op: Op::Write, offset, bytes });
            return self.sent_parts(parent, end);
        }
        self.ios.remove(parent);
        let sources = self.array.drives() - self.profile.layout.raid.parity();
        self.job_answered(slot, u64::from(bytes) * (sources as u64 + 1));
    }
}
