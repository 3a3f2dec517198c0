//! What hosts make a group hold: one rule for all of it, however the data comes.
//!
//! A host may hold as many buffers of a kind as it leaves to others, and so may the device of a
//! namespace (dynamic thresholds, Choudhury and Hahne 1998): one alone gets half of them, and
//! whoever keeps them leaves the other half. What is left shrinks with everybody who keeps some, so
//! once a second one has come a quarter is apart: of it every host that holds none gets one, where
//! the device has nothing to do or does something. What a stalled device holds is not its hosts'
//! doing: it counts for what they ask of that device, not for what they ask of others. Nobody
//! overtakes a command of the same host for the same namespace that waits for the same kind.
//!
//! So many hosts may come at once that this quarter is gone, too. Then all that a host holds beyond
//! its one is a loan, and called back ([`Ledger::patience`]).

use std::io;

use ebb_policy::units::Nanos;

use super::Limits;
use crate::controller::{ADMIN_IN_CAPSULE, CONTROLLERS};
use crate::device::{Buffer, Pool};

/// Bytes of a list of ranges (NVM 3.2.3: 256 of 16 bytes).
const LIST: usize = 4096;
/// Lists at once: the part apart has one for every host that there may be, for only the device can
/// give one back.
const LISTS: u32 = APART * CONTROLLERS as u32;
/// Buffers for small answers to admin commands: every host that there may be can have one.
const ADMIN: u32 = 2 * CONTROLLERS as u32;
/// Those for large ones.
const LOGS: u32 = 16;
/// The part of the buffers of a kind that is for hosts who hold none.
const APART: u32 = 4;

/// What buffers are for, told apart by who must act before they come back: one kind never waits
/// for what another kind's holder does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data that the host is asked for or takes: itself, and the device.
    Data,
    /// Data that comes with its command: the host for the rest of it, then the device. What stands
    /// behind it in the stream may be what frees the other kinds.
    Capsule,
    /// Ranges of a long command: the device, many times.
    List,
    /// A small answer to an admin command, as those of Identify: the host.
    Admin,
    /// A larger one: the host.
    Log,
}

impl Kind {
    pub const COUNT: usize = 5;
    pub const ALL: [Self; Self::COUNT] =
        [Self::Data, Self::Capsule, Self::List, Self::Admin, Self::Log];

    /// Of an answer of so many bytes to an admin command.
    pub fn of_answer(length: u32) -> Self {
        if length <= ADMIN_IN_CAPSULE { Self::Admin } else { Self::Log }
    }

    /// Whether the commands of an I/O queue take it, or those of an admin queue.
    fn is_for_io(self) -> bool {
        !matches!(self, Self::Admin | Self::Log)
    }
}

/// Some kinds, by their order.
pub(super) type Kinds = [bool; Kind::COUNT];

/// The lane of admin commands; those of namespaces follow, in their order.
pub(super) const ADMIN_LANE: usize = 0;

/// On whose account a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    /// The host's number in its group.
    pub host: usize,
    /// [`ADMIN_LANE`], or that of a namespace.
    pub lane: usize,
}

/// How a namespace's device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Load {
    /// Requests that it has.
    pub under_way: u32,
    /// It has some and completes none.
    pub is_stalled: bool,
    /// It has completed none for a tenth of the time after which it is stalled.
    pub is_silent: bool,
}

impl Load {
    /// It has nothing to do or does something.
    fn is_at_work(self) -> bool {
        !self.is_stalled && !self.is_silent
    }
}

/// The buffers of a group.
#[derive(Debug)]
pub(super) struct Ledger {
    pools: [Pool; Kind::COUNT],
    /// Namespaces there may be, and one.
    lanes: usize,
}

impl Ledger {
    /// For so many namespaces at most.
    ///
    /// # Errors
    /// When the system has no address space for them.
    pub fn new(limits: &Limits, namespaces: usize) -> io::Result<Self> {
        let size = |kind| Self::size(limits, kind);
        let pool = |kind| Pool::new(size(kind).0, size(kind).1);
        let [data, capsule, list, admin, log] = Kind::ALL.map(pool);
        Ok(Self { pools: [data?, capsule?, list?, admin?, log?], lanes: namespaces + 1 })
    }

    /// Buffers of a kind, and bytes of each.
    fn size(limits: &Limits, kind: Kind) -> (u32, usize) {
        match kind {
            Kind::Data => (limits.buffers, limits.buffer()),
            Kind::Capsule => (limits.buffers, limits.in_capsule.max(1) as usize),
            Kind::List => (LISTS, LIST),
            Kind::Admin => (ADMIN, ADMIN_IN_CAPSULE as usize),
            Kind::Log => (LOGS, limits.buffer()),
        }
    }

    /// Bytes of all of them.
    pub fn most_memory(limits: &Limits) -> u64 {
        let bytes = |kind| {
            let (count, bytes) = Self::size(limits, kind);
            u64::from(count).saturating_mul(bytes.next_multiple_of(4096) as u64)
        };
        Kind::ALL.map(bytes).into_iter().fold(0, u64::saturating_add)
    }

    /// The buffers that go to and from devices.
    pub fn device_pools(&self) -> &[Pool] {
        &self.pools[..2]
    }

    pub fn lanes(&self) -> usize {
        self.lanes
    }

    fn accounts(&self, host: usize) -> std::ops::Range<u32> {
        (host * self.lanes) as u32..((host + 1) * self.lanes) as u32
    }

    /// Whether `account` may have `count` more buffers of a kind; `loads` are those of the lanes in
    /// use.
    pub fn may(&self, kind: Kind, account: Account, count: u32, loads: &[Load]) -> bool {
        let (left, held) = self.charged(kind, account, loads);
        let load = loads.get(account.lane).copied().unwrap_or_default();
        let all = self.pools[kind as usize].count();
        let is_alone = left + held == all;
        let shared = if is_alone { left } else { left.saturating_sub(all / APART) };
        let shares = |held| held == 0 || held < shared;
        let may = shared >= count && shares(held) && shares(load.under_way);
        may || held == 0 && load.is_at_work() && left >= count
    }

    /// Whether `account` is owed its one buffer of a kind and there is none, or not the two that
    /// some commands take.
    pub fn owes(&self, kind: Kind, account: Account, loads: &[Load]) -> bool {
        let load = loads.get(account.lane).copied().unwrap_or_default();
        let (left, held) = self.charged(kind, account, loads);
        left < 2 && held == 0 && load.is_at_work()
    }

    /// Buffers of a kind that nobody holds, and those that count for what `account` asks.
    fn charged(&self, kind: Kind, account: Account, loads: &[Load]) -> (u32, u32) {
        let first = self.accounts(account.host).start;
        let counts = |one| {
            let lane = (one - first) as usize;
            lane == account.lane || loads.get(lane).is_none_or(|load| !load.is_stalled)
        };
        self.pools[kind as usize].charged(first..first + loads.len() as u32, counts)
    }

    /// How long a host may make us wait in its I/O queues, or its admin queue, while others are
    /// owed buffers of `kinds` and there are none.
    pub fn patience(&self, host: usize, is_io: bool, kinds: Kinds, limits: &Limits) -> Nanos {
        let its = Kind::ALL.into_iter().filter(|kind| kind.is_for_io() == is_io);
        let short = its.filter(|kind| kinds[*kind as usize]);
        let held = short.map(|kind| self.held(kind, host)).max();
        match held.unwrap_or(0) {
            0 => limits.stall,
            1 => limits.patience,
            _ => limits.recall,
        }
    }

    /// Takes a buffer for `account`.
    pub fn take(&self, kind: Kind, account: Account, length: u32) -> Option<Buffer> {
        let number = self.accounts(account.host).start + account.lane as u32;
        self.pools[kind as usize].take_for(number, length as usize)
    }

    /// Buffers that a host holds.
    pub fn held_by(&self, host: usize) -> u32 {
        Kind::ALL.into_iter().map(|kind| self.held(kind, host)).sum()
    }

    fn held(&self, kind: Kind, host: usize) -> u32 {
        self.pools[kind as usize].charged(self.accounts(host), |_| true).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(buffers: u32) -> Ledger {
        let limits = Limits { buffers, max_transfer: 4096, ..Limits::default() };
        Ledger::new(&limits, 2).unwrap()
    }

    /// Takes data buffers while it may; they count as under way.
    fn fill(ledger: &Ledger, account: Account, loads: &mut [Load]) -> Vec<Buffer> {
        let mut held = Vec::new();
        while ledger.may(Kind::Data, account, 1, loads) {
            held.extend(ledger.take(Kind::Data, account, 4096));
            loads[account.lane].under_way += 1;
        }
        held
    }

    #[test]
    fn each_host_leaves_as_many_as_it_holds_and_every_other_gets_some() {
        let (ledger, mut loads) = (ledger(64), [Load::default(); 3]);
        let held: Vec<_> = (1..6)
            .map(|host| {
                let account = Account { host, lane: 0 };
                // Not the device's limit here.
                loads[0].under_way = 0;
                fill(&ledger, account, &mut loads)
            })
            .collect();
        assert_eq!(held[0].len(), 32);
        assert!(held.iter().all(|held| !held.is_empty()), "{held:?}");
        drop(held);
        assert_eq!((1..6).map(|host| ledger.held_by(host)).sum::<u32>(), 0);
    }

    #[test]
    fn a_stalled_device_keeps_its_share_and_nobody_pays_for_it_elsewhere() {
        let (ledger, mut loads) = (ledger(64), [Load::default(); 2]);
        let (hung, fine) = (Account { host: 1, lane: 0 }, Account { host: 1, lane: 1 });
        let other = Account { host: 2, lane: 0 };
        let held = fill(&ledger, hung, &mut loads);
        assert_eq!(held.len(), 32);
        assert!(!ledger.may(Kind::Data, fine, 1, &loads), "the host has its share");
        loads[0].is_silent = true;
        assert!(!ledger.may(Kind::Data, other, 1, &loads), "the device has its share");
        loads[0].is_stalled = true;
        assert!(ledger.may(Kind::Data, fine, 1, &loads), "the host did not do it");
        assert!(!ledger.may(Kind::Data, hung, 1, &loads));
        assert!(ledger.may(Kind::Data, Account { host: 2, lane: 1 }, 1, &loads));
        assert!(ledger.may(Kind::Capsule, fine, 1, &loads), "kinds do not wait for each other");
    }

    #[test]
    fn every_host_that_there_may_be_gets_a_list() {
        let ledger = ledger(4);
        let mut held = Vec::new();
        for host in 1..=usize::from(CONTROLLERS) {
            let before = held.len();
            let account = Account { host, lane: 0 };
            while ledger.may(Kind::List, account, 1, &[Load::default()]) {
                held.extend(ledger.take(Kind::List, account, 4096));
            }
            assert!(held.len() > before, "host {host}");
        }
    }

    /// However many keep what they have: who holds none gets one.
    #[test]
    fn many_who_keep_theirs_leave_one_to_each_other() {
        let ledger = ledger(256);
        let mut held = Vec::new();
        // Hosts that never send what they are asked for, then devices that hang one by one.
        for host in 1..=12 {
            held.extend(fill(&ledger, Account { host, lane: 0 }, &mut [Load::default()]));
        }
        let ledger_of_devices = super::Ledger::new(
            &Limits { buffers: 256, max_transfer: 4096, ..Limits::default() },
            13,
        );
        let devices = ledger_of_devices.unwrap();
        let mut loads = [Load::default(); 14];
        for lane in 1..=12 {
            held.extend(fill(&devices, Account { host: lane, lane }, &mut loads));
            (loads[lane].is_silent, loads[lane].is_stalled) = (true, true);
        }
        for host in 13..40 {
            let other = |lane| Account { host, lane };
            assert!(ledger.may(Kind::Data, other(0), 1, &[Load::default()]), "host {host}");
            held.extend(ledger.take(Kind::Data, other(0), 4096));
            assert!(devices.may(Kind::Data, other(13), 1, &loads), "host {host}");
            assert!(!devices.may(Kind::Data, other(5), 1, &loads), "of one that hangs");
            held.extend(devices.take(Kind::Data, other(13), 4096));
        }
    }
}
