//! Whose turn it is: hosts share a group evenly, however many connections each has.
//!
//! In each round every host may have its connections move so many bytes, and gets one slice of a
//! long command submitted (deficit round robin, Shreedhar and Varghese 1995, where a host that
//! took more than its turn has nothing left for it to be paid back with but the next round). What
//! waits, waits by host and namespace: for a buffer of a kind, or for its next slice.

use std::collections::VecDeque;

use super::ledger::{Account, Kind};

/// Connections that are no queue yet: they share one turn, and hold nothing.
pub(super) const STRANGERS: usize = 0;
/// Slices that a host has under way at once in one namespace.
const SLICES: u32 = 4;

/// What a host has waiting for one namespace, or of admin commands: connection and slot each.
#[derive(Debug, Default)]
struct Lane {
    /// For a buffer, by its kind, oldest first.
    starved: [VecDeque<u64>; Kind::COUNT],
    /// Long commands for their next slice.
    long: VecDeque<u64>,
    slices: u32,
}

/// One host's share of a group.
#[derive(Debug, Default)]
pub(super) struct Host {
    key: u64,
    connections: u32,
    round: u64,
    /// Bytes left of the turn of `round`.
    pub turn: u32,
    lanes: Vec<Lane>,
    /// How many wait for a buffer, and how many long commands for their next slice.
    starving: usize,
    long: usize,
    /// The lane whose slice is next.
    next: usize,
}

impl Host {
    /// How many commands wait, for whatever.
    pub fn waiting(&self) -> usize {
        self.starving + self.long
    }

    /// A command waits for a buffer of a kind.
    pub fn starve(&mut self, lane: usize, kind: Kind, command: u64) {
        self.starving += 1;
        self.lanes[lane].starved[kind as usize].push_back(command);
    }

    /// How many wait for a buffer of a kind.
    pub fn starved(&self, lane: usize, kind: Kind) -> usize {
        self.lanes[lane].starved[kind as usize].len()
    }

    /// A long command waits for its next slice.
    pub fn wait_for_slice(&mut self, lane: usize, command: u64) {
        self.long += 1;
        self.lanes[lane].long.push_back(command);
    }

    /// Nothing waits of the connection with this `tag`.
    fn forget(&mut self, tag: u64) {
        if self.waiting() == 0 {
            return;
        }
        let keep = |queue: &mut VecDeque<u64>, count: &mut usize| {
            let before = queue.len();
            queue.retain(|command| command & !0xffff != tag);
            *count -= before - queue.len();
        };
        for lane in &mut self.lanes {
            lane.starved.iter_mut().for_each(|queue| keep(queue, &mut self.starving));
            keep(&mut lane.long, &mut self.long);
        }
    }
}

/// The most bytes of memory that a host takes where there may be so many namespaces; commands that
/// wait are besides.
pub(super) const fn most_memory_of_host(namespaces: usize) -> usize {
    size_of::<Host>() + (namespaces + 1) * size_of::<Lane>()
}

/// The hosts of a group.
#[derive(Debug)]
pub(super) struct Hosts {
    list: Vec<Host>,
    lanes: usize,
    round: u64,
    /// The host who is first in this round.
    first: usize,
    /// Commands of all hosts that wait, so that a group without any need not look for them.
    waiting: usize,
    /// Slices under way: connection and slot, and on whose account.
    under_way: Vec<(u64, Account)>,
}

impl Hosts {
    /// Of a group with so many lanes.
    pub fn new(lanes: usize) -> Self {
        let mut hosts =
            Self { list: Vec::new(), lanes, round: 0, first: 0, waiting: 0, under_way: Vec::new() };
        hosts.add();
        hosts
    }

    fn add(&mut self) {
        let lanes = (0..self.lanes).map(|_| Lane::default()).collect();
        self.list.push(Host { lanes, ..Host::default() });
    }

    /// A stranger's connection is one of the host known by `key`: the host's number. One that has
    /// gone and still `holds` something keeps its place.
    pub fn enter(&mut self, key: u64, holds: impl Fn(usize) -> bool) -> usize {
        let is_free = |number: &usize| {
            let host = &self.list[*number];
            let slices = || host.lanes.iter().any(|lane| lane.slices > 0);
            host.connections == 0 && !slices() && !holds(*number)
        };
        let of_host = |number: &usize| self.list[*number].key == key && !is_free(number);
        let known = (1..self.list.len()).find(of_host);
        let place = known.or_else(|| (1..self.list.len()).find(is_free));
        let number = place.unwrap_or(self.list.len());
        if number == self.list.len() {
            self.add();
        }
        let host = &mut self.list[number];
        (host.key, host.connections) = (key, host.connections + 1);
        number
    }

    /// The connection of host `number` with this `tag` is gone.
    pub fn leave(&mut self, number: usize, tag: u64) {
        self.forget(number, tag);
        if number != STRANGERS {
            self.list[number].connections -= 1;
        }
    }

    /// Nothing waits any more of the connection of host `number` with this `tag`.
    pub fn forget(&mut self, number: usize, tag: u64) {
        let host = &mut self.list[number];
        let before = host.waiting();
        host.forget(tag);
        self.waiting -= before - host.waiting();
    }

    /// The host whose connections are more than half of `places`.
    pub fn hog(&self, places: u64) -> Option<usize> {
        let has_most = |host: &Host| 2 * u64::from(host.connections) > places;
        self.list.iter().skip(1).position(has_most).map(|at| at + 1)
    }

    /// Begins a round.
    pub fn next_round(&mut self) {
        self.round += 1;
        self.first = (self.first + 1) % self.list.len();
    }

    /// Host `number`, its turn of `bytes` begun if this is the first look at it in this round.
    pub fn in_turn(&mut self, number: usize, bytes: u32) -> &mut Host {
        let host = &mut self.list[number];
        if host.round != self.round {
            (host.round, host.turn) = (self.round, bytes);
        }
        host
    }

    /// So many commands of a host waited `before` it was looked at, and so many do `after`.
    pub fn changed(&mut self, before: usize, after: usize) {
        self.waiting = self.waiting + after - before;
    }

    /// Whether a command of any host waits.
    pub fn anybody_waits(&self) -> bool {
        self.waiting > 0
    }

    /// The hosts' numbers, another one first in each round.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.first, self.list.len());
        (0..count).map(move |at| (first + at) % count)
    }

    /// Whether host `number` has commands that wait for buffers.
    pub fn is_starving(&self, number: usize) -> bool {
        self.list[number].starving > 0
    }

    /// Whether any host has.
    pub fn anybody_starves(&self) -> bool {
        self.waiting > 0 && self.list.iter().any(|host| host.starving > 0)
    }

    /// Takes the command that has waited longest for a buffer of a kind.
    pub fn next_starved(&mut self, account: Account, kind: Kind) -> Option<u64> {
        let host = &mut self.list[account.host];
        let command = host.lanes[account.lane].starved[kind as usize].pop_front()?;
        (host.starving, self.waiting) = (host.starving - 1, self.waiting - 1);
        Some(command)
    }

    /// Puts a command back to where it was taken from.
    pub fn still_first(&mut self, account: Account, kind: Kind, command: u64) {
        let host = &mut self.list[account.host];
        (host.starving, self.waiting) = (host.starving + 1, self.waiting + 1);
        host.lanes[account.lane].starved[kind as usize].push_front(command);
    }

    /// Puts a command behind the others.
    pub fn still_last(&mut self, account: Account, kind: Kind, command: u64) {
        self.waiting += 1;
        self.list[account.host].starve(account.lane, kind, command);
    }

    /// How many wait for a buffer of a kind on one account.
    pub fn starved(&self, account: Account, kind: Kind) -> usize {
        self.list[account.host].starved(account.lane, kind)
    }

    /// The long command whose next slice host `number` may have submitted, and its lane, where the
    /// device `takes` any.
    pub fn next_slice(
        &mut self,
        number: usize,
        takes: impl Fn(usize) -> bool,
    ) -> Option<(u64, usize)> {
        let (host, lanes) = (&mut self.list[number], self.lanes);
        if host.long == 0 {
            return None;
        }
        let may = |lane: &usize| {
            let Lane { slices, long, .. } = &host.lanes[*lane];
            *slices < SLICES && !long.is_empty() && takes(*lane)
        };
        let at = (0..lanes).map(|at| (host.next + at) % lanes).find(may)?;
        let command = host.lanes[at].long.pop_front()?;
        (host.long, host.next) = (host.long - 1, (at + 1) % lanes);
        self.waiting -= 1;
        Some((command, at))
    }

    /// A slice of `command` was submitted.
    pub fn submitted(&mut self, command: u64, account: Account) {
        self.list[account.host].lanes[account.lane].slices += 1;
        self.under_way.push((command, account));
    }

    /// A device request of `command` is done; it may have been a slice.
    pub fn completed(&mut self, command: u64) {
        if let Some(at) = self.under_way.iter().position(|(slice, _)| *slice == command) {
            let (_, Account { host, lane }) = self.under_way.swap_remove(at);
            self.list[host].lanes[lane].slices -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(_: usize) -> bool {
        false
    }

    fn any(_: usize) -> bool {
        true
    }

    /// As a group does.
    fn with(hosts: &mut Hosts, number: usize, act: impl FnOnce(&mut Host)) {
        let host = hosts.in_turn(number, 1);
        let before = host.waiting();
        act(host);
        let after = host.waiting();
        hosts.changed(before, after);
    }

    #[test]
    fn each_host_has_one_turn_a_round_whatever_its_connections() {
        let mut hosts = Hosts::new(1);
        let (a, b) = (hosts.enter(7, free), hosts.enter(8, free));
        assert_eq!((hosts.enter(7, free), a == b), (a, false));
        hosts.next_round();
        hosts.in_turn(a, 100).turn = 0;
        assert_eq!((hosts.in_turn(a, 100).turn, hosts.in_turn(b, 100).turn), (0, 100));
        hosts.next_round();
        assert_eq!(hosts.in_turn(a, 100).turn, 100);
    }

    #[test]
    fn slices_are_few_at_once_and_their_host_keeps_its_place_until_they_are_done() {
        let mut hosts = Hosts::new(2);
        let a = hosts.enter(7, free);
        let (command, account) = (|slot: u64| 5 << 16 | slot, Account { host: a, lane: 0 });
        with(&mut hosts, a, |host| {
            (0..10).for_each(|slot| host.wait_for_slice(0, command(slot)));
        });
        for slot in 0..4 {
            assert_eq!(hosts.next_slice(a, any), Some((command(slot), 0)));
            hosts.submitted(command(slot), account);
        }
        assert_eq!(hosts.next_slice(a, any), None);
        // A device that hangs does not keep the host's other namespaces waiting.
        with(&mut hosts, a, |host| host.wait_for_slice(1, command(77)));
        assert_eq!(hosts.next_slice(a, any), Some((command(77), 1)));
        hosts.completed(command(1));
        assert_eq!(hosts.next_slice(a, |lane| lane != 0), None, "its device is stalled");
        assert_eq!(hosts.next_slice(a, any), Some((command(4), 0)));
        hosts.leave(a, command(0));
        assert!(!hosts.anybody_waits());
        assert_ne!(hosts.enter(9, free), a);
        assert_eq!(hosts.enter(7, free), a, "a host that comes again has its account");
        hosts.leave(a, command(0));
        [0, 2, 3].into_iter().for_each(|slot| hosts.completed(command(slot)));
        assert_ne!(hosts.enter(10, |number| number == a), a, "it still holds buffers");
        assert_eq!(hosts.enter(11, free), a);
        assert_eq!(hosts.next_slice(a, any), None, "the last host's commands are gone");
    }

    #[test]
    fn what_waited_for_a_connection_that_is_gone_waits_no_more() {
        let mut hosts = Hosts::new(1);
        let account = Account { host: hosts.enter(7, free), lane: 0 };
        with(&mut hosts, account.host, |host| {
            for command in [0x1_0001, 0x2_0001, 0x1_0002] {
                host.starve(0, Kind::Data, command);
            }
            host.starve(0, Kind::List, 0x1_0003);
        });
        hosts.leave(account.host, 0x1_0000);
        assert!(hosts.is_starving(account.host) && hosts.anybody_waits());
        assert_eq!(hosts.next_starved(account, Kind::Data), Some(0x2_0001));
        hosts.still_first(account, Kind::Data, 0x2_0001);
        assert_eq!(hosts.next_starved(account, Kind::Data), Some(0x2_0001));
        assert!(hosts.next_starved(account, Kind::List).is_none() && !hosts.anybody_waits());
    }
}
