//! What waited goes on: long commands, commands without buffers, authentications.

use ebb_policy::units::Nanos;

use super::super::commands::STREAM;
use super::super::context::{Channels, Context};
use super::super::ledger::{Account, Kind};
use super::super::network::Network;
use super::super::turns::STRANGERS;
use super::{Group, Peer, SHORT_TICK, TICK, index_of};

/// Slices of long commands submitted in one round.
const SLICES: usize = 16;

impl<N: Network> Group<N> {
    /// Submits one slice of a long command for each host that has some, and few in all. How many.
    pub(super) fn slice(&mut self, now: Nanos) -> usize {
        let mut count = 0;
        if !self.hosts.anybody_waits() {
            return 0;
        }
        for number in self.hosts.numbers() {
            let takes = |channels: &Channels, lane| channels.takes_long(lane);
            while let Some((command, lane)) =
                self.hosts.next_slice(number, |lane| takes(&self.channels, lane))
            {
                let submitted = self.with(index_of(command), now, |peer, context| {
                    peer.connection.slice(command as u16, context)
                });
                if submitted == Some(true) {
                    self.hosts.submitted(command, Account { host: number, lane });
                    count += 1;
                    break;
                }
            }
            if count == SLICES {
                break;
            }
        }
        count
    }

    /// Goes on with commands that waited for buffers, as far as their hosts may have some. How
    /// many.
    pub(super) fn feed(&mut self, now: Nanos) -> usize {
        let mut count = 0;
        self.resumes = true;
        for host in self.hosts.numbers() {
            if !self.hosts.is_starving(host) {
                continue;
            }
            for lane in 0..self.channels.loads().len() {
                let account = Account { host, lane };
                count += Kind::ALL
                    .map(|kind| self.feed_account(account, kind, now))
                    .iter()
                    .sum::<usize>();
            }
        }
        (self.resumes, self.is_news) = (false, false);
        count
    }

    fn feed_account(&mut self, account: Account, kind: Kind, now: Nanos) -> usize {
        let mut count = 0;
        let waiting = self.hosts.starved(account, kind);
        // Of a stalled device: who waits in a stream is answered, so that others in it go on. Who
        // comes later is answered at once, so they are looked at when it stalls, and not again.
        if waiting > 0 && self.channels.is_stalled(account.lane) {
            for _ in 0..if self.is_news { waiting } else { 0 } {
                let Some(command) = self.hosts.next_starved(account, kind) else { break };
                if command as u16 == STREAM && self.resume(command, now) {
                    count += 1;
                } else {
                    self.hosts.still_last(account, kind, command);
                }
            }
            return count;
        }
        while self.hosts.starved(account, kind) > 0
            && self.ledger.may(kind, account, 1, self.channels.loads())
            && let Some(command) = self.hosts.next_starved(account, kind)
        {
            if !self.resume(command, now) {
                self.hosts.still_first(account, kind, command);
                break;
            }
            count += 1;
        }
        count
    }

    /// Goes on with a command that waited for buffers; false: there are none for it.
    fn resume(&mut self, command: u64, now: Nanos) -> bool {
        let resume = |peer: &mut Peer<_>, context: &mut Context<'_>| {
            debug_assert_eq!(peer.connection.tag(), command & !0xffff);
            peer.connection.resume_starved(command as u16, context)
        };
        self.with(index_of(command), now, resume) != Some(false)
    }

    /// Charges a host with what reading took besides the bytes that came of it.
    pub(super) fn pay(&mut self, index: usize, now: Nanos) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        let (cost, has_more) = self.network.rest(&mut peer.stream);
        peer.has_input |= has_more;
        if cost > 0 {
            self.with(index, now, |_, context| {
                context.host.turn = context.host.turn.saturating_sub(cost);
            });
        }
    }

    /// Goes on with authentications that waited.
    pub(super) fn join(&mut self, now: Nanos) {
        for index in 0..self.peers.len() {
            let is_joining = |peer: &Peer<_>| peer.connection.is_joining();
            if self.peers[index].as_ref().is_some_and(is_joining) {
                self.with(index, now, |peer, context| peer.connection.resume_joining(context));
            }
        }
    }

    /// Whether somebody waits in vain for the one buffer of a kind that every host is owed.
    fn owes(&self, kind: Kind) -> bool {
        let loads = self.channels.loads();
        let starving = self.hosts.numbers().filter(|host| self.hosts.is_starving(*host));
        let accounts =
            starving.flat_map(|host| (0..loads.len()).map(move |lane| Account { host, lane }));
        accounts
            .filter(|account| self.hosts.starved(*account, kind) > 0)
            .any(|account| self.ledger.owes(kind, account, loads))
    }

    /// Looks at deadlines.
    pub(super) fn tick(&mut self, now: Nanos) {
        self.next_tick = now + if self.hosts.anybody_starves() { SHORT_TICK } else { TICK };
        self.held_until = now; // What hosts are allowed may have changed.
        let owed = Kind::ALL.map(|kind| self.owes(kind));
        for index in 0..self.peers.len() {
            let tick =
                |peer: &mut Peer<_>, context: &mut Context<'_>| peer.connection.tick(owed, context);
            if self.with(index, now, tick) == Some(false) {
                self.close(index);
            }
            // A handshake of TLS may wait for its time.
            if let Some(Some(peer)) = self.peers.get_mut(index)
                && peer.host == STRANGERS
            {
                peer.has_input = true;
                self.read(index, now);
            }
        }
    }
}
