//! Connections whose queue has ended: nothing of them goes on but what devices have already.

use ebb_policy::units::Nanos;

use super::super::network::Network;
use super::{Group, add};

impl<N: Network> Group<N> {
    /// Ends the queue of a connection that may not go on, if it has not been: it says what it has
    /// to say and closes.
    pub(super) fn part(&mut self, index: usize, now: Nanos) {
        let may_go_on = |connection: &super::Connection| !connection.must_part(now);
        if self.peers.get(index).and_then(Option::as_ref).is_none_or(|it| may_go_on(&it.connection))
        {
            return;
        }
        let left = self.with(index, now, |peer, context| {
            (peer.host, peer.connection.tag(), peer.connection.part(context))
        });
        if let Some((host, tag, left)) = left {
            self.hosts.forget(host, tag);
            left.into_iter().for_each(|left| self.remains.keep(tag, left));
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        if let Some(mut peer) = self.peers.get_mut(index).and_then(Option::take) {
            let tag = peer.connection.tag();
            self.left -= peer.connection.left();
            self.hosts.leave(peer.host, tag);
            // Before the host can see that it is closed.
            if let Some(left) = peer.connection.close(self.now) {
                self.remains.keep(tag, left);
            }
            drop(peer);
            self.places.give();
            add(&self.counters.connections, u64::MAX);
        }
    }

    /// Has those looked at whose queues have ended elsewhere.
    pub(super) fn find_ended(&mut self, now: Nanos) {
        for index in 0..self.peers.len() {
            let Some(peer) = &mut self.peers[index] else { continue };
            if peer.connection.must_part(now) && !std::mem::replace(&mut peer.is_dirty, true) {
                self.dirty.push(index);
            }
        }
    }
}
