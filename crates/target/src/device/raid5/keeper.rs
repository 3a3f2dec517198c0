//! The keeper: writes superblocks, moves the journal's tail, rebuilds. It may wait; channels not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ebb_nvme::Status;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Error;
use super::array::{Array, Health};
use super::layout::MOST;
use super::locks::Claim;
use super::mailbox::LOOK;
use super::plan::xor;
use super::superblock::{State, Superblock};
use super::wait::Member;

/// Bytes rebuilt between two notes of how far it is.
const NOTE: u64 = 64 << 20;

/// How long after a failure something is tried again: twice as long each time it fails again.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(16));

/// Looks after one array.
pub struct Keeper {
    pub(super) array: Arc<Array>,
    pub(super) members: Vec<Option<Member>>,
    superblock: Superblock,
    /// The stripe that is rebuilt or looked at, and whether it is ours.
    claim: Option<(Claim, bool)>,
    claims: u32,
    /// The rebuild met a source that cannot be read: it waits for [`Keeper::retry`].
    paused: bool,
    pub(super) sum: Vec<u8>,
    pub(super) part: Vec<u8>,
}

impl Keeper {
    pub(super) fn new(
        array: Arc<Array>,
        mut members: Vec<Option<Member>>,
        superblock: Superblock,
    ) -> Self {
        let chunk = array.layout.chunk as usize;
        for (role, member) in members.iter_mut().enumerate() {
            if let Some(member) = member {
                member.watched(&array.silent, role);
            }
        }
        Self {
            array,
            members,
            superblock,
            claim: None,
            claims: 0,
            paused: false,
            sum: vec![0; chunk],
            part: vec![0; chunk],
        }
    }

    /// Does what is due; true when there is more to do at once (a rebuild).
    pub fn run_once(&mut self) -> bool {
        let mut news = Vec::new();
        self.array.keeper.take(&mut news);
        if let Some((claim, granted)) = &mut self.claim {
            *granted |= news.contains(&claim.segment);
        }
        if self.array.health().unsettled && !self.array.health().dead && self.note() {
            self.array.settled();
        }
        if let Some(tail) = self.array.journal.due()
            && self.checkpoint(tail)
            && self.array.journal.moved(tail)
        {
            self.array.keeper.post(LOOK);
        }
        let health = self.array.health();
        match health.rebuilding.filter(|_| !health.dead && !self.paused) {
            Some(role) => self.rebuild(role),
            None => {
                self.give_up_claim();
                false
            }
        }
    }

    /// Goes on with a rebuild that could not read a member, and does what is due; true when there
    /// is more to do at once. To be called now and then while [`Keeper::waits`].
    pub fn retry(&mut self) -> bool {
        self.paused = false;
        self.run_once()
    }

    /// Whether there is something for [`Keeper::retry`].
    #[must_use]
    pub fn waits(&self) -> bool {
        self.paused
    }

    /// Until the array is given up: then everything goes to its place, and the superblocks say so.
    pub(super) fn run(mut self, rate: Option<u64>) {
        let mut next = Instant::now();
        let mut again: Option<(Instant, Duration)> = None;
        loop {
            let before = self.array.rebuilt.load(Ordering::Relaxed);
            let more = match again {
                Some((at, patience)) if at <= Instant::now() => {
                    let patience = (patience * 2).min(PATIENCE.1);
                    again = Some((Instant::now() + patience, patience));
                    self.retry()
                }
                _ => self.run_once(),
            };
            // After the mail was taken, or the word to stop could be taken and not heeded.
            if self.array.stopping.load(Ordering::Acquire) {
                break;
            }
            again =
                self.waits().then(|| again.unwrap_or((Instant::now() + PATIENCE.0, PATIENCE.0)));
            let moved = self.array.rebuilt.load(Ordering::Relaxed).saturating_sub(before);
            let bytes = moved * self.array.layout.chunk;
            if let Some(rate) = rate {
                let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
                next = next.max(Instant::now()) + cost;
            }
            // Without a rebuild there is nothing to do before somebody asks, or until it is time
            // to try again.
            let until = [more.then_some(next), again.map(|(at, _)| at)].into_iter().flatten().min();
            let wait = until.map(|until| {
                let wait = until.saturating_duration_since(Instant::now());
                Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() }
            });
            let fd = self.array.keeper.fd();
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], wait.as_ref());
        }
        self.stop();
    }

    /// Notes that all is in place. Without it the next assembly looks through the journal, which
    /// is no harm.
    pub fn stop(mut self) {
        self.run_once();
        self.give_up_claim();
        let head = self.array.journal.head();
        if !self.array.health().dead && self.flush() {
            self.superblock.clean = true;
            self.superblock.tail = head;
            self.note_rebuilt();
            self.note();
        }
    }

    /// What is so now is on every member in use, durably, and each of them says so: see
    /// [`Superblock::vouches`]. False when there are too few.
    fn note(&mut self) -> bool {
        while !self.array.health().dead {
            let health = self.array.health();
            if self.round(health) && self.round(health) {
                return true;
            }
        }
        false
    }

    /// Writes the superblock to every member in use. False when one could not.
    fn round(&mut self, health: Health) -> bool {
        for role in 0..MOST {
            self.superblock.states[role] = match role {
                _ if health.failed == Some(role) => State::Failed,
                _ if health.rebuilding == Some(role) && !self.rebuilt_all() => State::Rebuilding,
                _ => State::Live,
            };
        }
        self.superblock.now.events += 1;
        for (role, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member.as_mut().filter(|_| health.failed != Some(role))
                && let Err(status) = write(member, role, &self.superblock)
            {
                self.array.fail(role, "its superblock could not be written", status);
                return false;
            }
        }
        self.superblock.told();
        true
    }

    fn rebuilt_all(&self) -> bool {
        self.superblock.rebuilt == self.array.layout.stripes
    }

    /// All that members in use did becomes durable. False when one could not.
    fn flush(&mut self) -> bool {
        let failed = self.array.health().failed;
        for (role, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member.as_mut().filter(|_| failed != Some(role))
                && let Err(status) = member.flush()
            {
                self.array.fail(role, "it could not be flushed", status);
                return false;
            }
        }
        true
    }

    /// What is before `tail` is in place: makes that durable, then known.
    fn checkpoint(&mut self, tail: u64) -> bool {
        if self.array.health().dead || !self.flush() {
            return false;
        }
        self.superblock.tail = tail;
        let settles = self.array.health().unsettled;
        let noted = self.note();
        if noted && settles {
            self.array.settled();
        }
        noted
    }

    /// One stripe more, if its rows are to be had; true when the rebuild goes on.
    fn rebuild(&mut self, role: usize) -> bool {
        let stripe = self.array.rebuilt.load(Ordering::Relaxed);
        let chunk = self.array.layout.chunk as usize;
        if stripe == self.array.layout.stripes {
            return !self.finish(role);
        }
        if !self.claimed(stripe) {
            return false; // The mail says when.
        }
        let at = self.array.layout.chunk_at(stripe);
        self.sum.fill(0);
        for (other, member) in
            self.members.iter_mut().enumerate().filter(|(other, _)| *other != role)
        {
            let read = member.as_mut().map(|member| member.read(at, &mut self.part));
            if read.is_none_or(|read| read.is_err()) {
                self.paused = true;
                self.array.stuck.store(true, Ordering::Relaxed);
                self.give_up_claim();
                return false;
            }
            self.array.patch(other, stripe, &(0..chunk), &mut self.part);
            xor(&mut self.sum, &self.part);
        }
        self.array.stuck.store(false, Ordering::Relaxed);
        let Some(member) = self.members[role].as_mut() else { return false };
        match member.write(at, &self.sum, false) {
            Ok(()) if self.array.health().rebuilding == Some(role) => {
                self.array.rebuilt.store(stripe + 1, Ordering::Release);
            }
            Ok(()) => {}
            Err(status) => {
                self.array.fail(role, "it could not be written by the rebuild", status);
            }
        }
        self.give_up_claim();
        let rebuilt = self.array.rebuilt.load(Ordering::Relaxed);
        if (rebuilt - self.superblock.rebuilt) * chunk as u64 >= NOTE {
            self.note_rebuilt();
            self.note();
        }
        true
    }

    /// Whether this stripe is the keeper's; otherwise the mail will say when.
    pub(super) fn claimed(&mut self, stripe: u64) -> bool {
        if self.claim.as_ref().is_some_and(|(claim, _)| claim.stripe != stripe) {
            self.give_up_claim();
        }
        if self.claim.is_none() {
            let rows = 0..self.array.layout.chunk as usize;
            let owner = self.array.keeper.clone();
            self.claims = (self.claims + 1) % LOOK;
            let claim = Claim { stripe, rows, shared: false, owner, segment: self.claims };
            let granted = self.array.locks.acquire(&claim);
            self.claim = Some((claim, granted));
        }
        self.claim.as_ref().is_some_and(|(_, granted)| *granted)
    }

    pub(super) fn give_up_claim(&mut self) {
        if let Some((claim, _)) = self.claim.take() {
            self.array.locks.release(&claim);
        }
    }

    /// What the superblock may say of the rebuild: what is durable.
    fn note_rebuilt(&mut self) {
        let rebuilt = self.array.rebuilt.load(Ordering::Relaxed);
        if self.array.health().rebuilding.is_some() && self.flush() {
            self.superblock.rebuilt = rebuilt;
        }
    }

    fn finish(&mut self, role: usize) -> bool {
        self.note_rebuilt();
        let done = self.rebuilt_all() && self.note();
        if done && self.array.health().rebuilding == Some(role) {
            self.array.whole();
        }
        done
    }
}

/// Writes `superblock` to a member, durably.
pub(super) fn write(
    member: &mut Member,
    role: usize,
    superblock: &Superblock,
) -> Result<(), Status> {
    let mut page = [0; super::layout::PAGE];
    superblock.encode(role, &mut page);
    member.write(superblock.place(), &page, true)
}

/// A member that could not do what assembling needs.
pub(super) fn broken(path: &str, what: &str, status: Status) -> Error {
    let (why, remedy) = match status {
        Status::CAPACITY_EXCEEDED => ("there is no room".to_owned(), "make some, or"),
        _ => (format!("status {:#06x}", status.to_field()), "if it has failed,"),
    };
    let rest = "leave it out and add ',degraded'";
    Error::unfit(path, format!("cannot be {what} ({why}); {remedy} {rest}"))
}
