//! Whose turn it is: hosts share a group evenly, however many connections each has.
//!
//! In each round every host may have its connections move so many bytes, and gets one slice of a
//! long command submitted (deficit round robin, Shreedhar and Varghese 1995, where a host that
//! took more than its turn has nothing left for it to be paid back with but the next round).

use std::collections::VecDeque;

/// Connections that are no queue yet: they share one turn.
pub(super) const STRANGERS: usize = 0;
/// Slices that a host has under way at once.
const SLICES: u32 = 4;

/// One host's share of a group.
#[derive(Debug, Default)]
pub(super) struct Host {
    key: u64,
    connections: u32,
    round: u64,
    /// Bytes left of the turn of `round`.
    pub turn: u32,
    /// Buffers that its connections hold.
    pub buffers: u32,
    /// Its long commands that wait for their next slice: connection and slot.
    pub long: VecDeque<u64>,
    slices: u32,
}

/// The hosts of a group.
#[derive(Debug)]
pub(super) struct Hosts {
    list: Vec<Host>,
    round: u64,
    /// Slices under way: connection and slot, and the host's number.
    under_way: Vec<(u64, usize)>,
}

impl Hosts {
    pub fn new() -> Self {
        Self { list: vec![Host::default()], round: 0, under_way: Vec::new() }
    }

    /// A stranger's connection with so many `buffers` is one of the host known by `key`. Returns
    /// the host's number.
    pub fn enter(&mut self, key: u64, buffers: u32) -> usize {
        self.released(STRANGERS, buffers);
        let of_host = |host: &Host| host.connections > 0 && host.key == key;
        // One whose slices are still under way keeps its place.
        let is_free = |host: &Host| host.connections == 0 && host.slices == 0;
        let known = self.list.iter().skip(1).position(of_host);
        let place = known.or_else(|| self.list.iter().skip(1).position(is_free));
        let number = place.map_or(self.list.len(), |at| at + 1);
        if number == self.list.len() {
            self.list.push(Host::default());
        }
        let host = &mut self.list[number];
        (host.key, host.connections) = (key, host.connections + 1);
        host.buffers += buffers;
        number
    }

    /// Host `number` holds so many buffers less.
    pub fn released(&mut self, number: usize, buffers: u32) {
        self.list[number].buffers -= buffers;
    }

    /// A connection of host `number` is gone, and the `buffers` that it held.
    pub fn leave(&mut self, number: usize, buffers: u32) {
        self.released(number, buffers);
        let host = &mut self.list[number];
        if number != STRANGERS {
            host.connections -= 1;
        }
        if host.connections == 0 {
            host.long.clear();
        }
    }

    /// The host whose connections are more than half of `places`.
    pub fn hog(&self, places: u64) -> Option<usize> {
        let has_most = |host: &Host| 2 * u64::from(host.connections) > places;
        self.list.iter().skip(1).position(has_most).map(|at| at + 1)
    }

    /// Begins a round.
    pub fn next_round(&mut self) {
        self.round += 1;
    }

    /// Host `number`, its turn of `bytes` begun if this is the first look at it in this round.
    pub fn in_turn(&mut self, number: usize, bytes: u32) -> &mut Host {
        let host = &mut self.list[number];
        if host.round != self.round {
            (host.round, host.turn) = (self.round, bytes);
        }
        host
    }

    /// Hosts there have been at once.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The long command whose next slice host `number` may have submitted.
    pub fn next_slice(&mut self, number: usize) -> Option<u64> {
        let host = &mut self.list[number];
        if host.slices >= SLICES { None } else { host.long.pop_front() }
    }

    /// A slice of `command` was submitted for host `number`.
    pub fn submitted(&mut self, command: u64, number: usize) {
        self.list[number].slices += 1;
        self.under_way.push((command, number));
    }

    /// A device request of `command` is done; it may have been a slice.
    pub fn completed(&mut self, command: u64) {
        if let Some(at) = self.under_way.iter().position(|(slice, _)| *slice == command) {
            let (_, number) = self.under_way.swap_remove(at);
            self.list[number].slices -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_one_turn_a_round_whatever_its_connections() {
        let mut hosts = Hosts::new();
        let (a, b) = (hosts.enter(7, 0), hosts.enter(8, 0));
        assert_eq!((hosts.enter(7, 0), a == b), (a, false));
        hosts.next_round();
        hosts.in_turn(a, 100).turn = 0;
        assert_eq!((hosts.in_turn(a, 100).turn, hosts.in_turn(b, 100).turn), (0, 100));
        hosts.next_round();
        assert_eq!(hosts.in_turn(a, 100).turn, 100);
    }

    #[test]
    fn slices_are_few_at_once_and_their_host_keeps_its_place_until_they_are_done() {
        let mut hosts = Hosts::new();
        let a = hosts.enter(7, 0);
        hosts.in_turn(a, 1).long.extend(10..20);
        for expected in 10..14 {
            assert_eq!(hosts.next_slice(a), Some(expected));
            hosts.submitted(expected, a);
        }
        assert_eq!(hosts.next_slice(a), None);
        hosts.completed(11);
        assert_eq!(hosts.next_slice(a), Some(14));
        hosts.leave(a, 0);
        assert_ne!(hosts.enter(9, 0), a);
        [10, 12, 13].into_iter().for_each(|command| hosts.completed(command));
        assert_eq!(hosts.enter(10, 0), a);
        assert_eq!(hosts.next_slice(a), None, "the last host's commands are gone");
    }
}
