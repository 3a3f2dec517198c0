//! What others have a group change, and hosts that have used up their allowance.

use std::net::SocketAddr;

use ebb_policy::units::Nanos;

use super::super::network::Network;
use super::super::steward::Order;
use super::{Group, Peer, wait};

impl<N: Network> Group<N> {
    /// Carries out what was ordered; how much.
    pub(super) fn obey(&mut self) -> usize {
        let orders = self.steward.take();
        let count = orders.len();
        for order in orders {
            // Who ordered it may wait no more.
            let _ = match order {
                Order::Attach(namespace, channel, slice, done) => {
                    self.channels.attach(namespace, channel, slice);
                    if let Some(fd) = self.channels.wake_fd(namespace) {
                        // Unwatched, it is polled at every tick.
                        let _ = self.network.watch_device(fd);
                    }
                    done.send(())
                }
                Order::Detach(namespace, heir) => {
                    for peer in self.peers.iter_mut().flatten() {
                        peer.connection.withdraw(namespace);
                    }
                    self.channels.detach(namespace, heir);
                    self.bequeath();
                    Ok(())
                }
                Order::Close(address, done) => {
                    self.is_closed |= address.is_none();
                    self.close_those_by(address);
                    done.send(())
                }
            };
        }
        count
    }

    fn close_those_by(&mut self, address: Option<SocketAddr>) {
        for index in 0..self.peers.len() {
            let came_by = |it: &Peer<_>| address.is_none_or(|one| it.connection.came_by(one));
            if self.peers[index].as_ref().is_some_and(came_by) {
                self.close(index);
            }
        }
    }

    /// Gives away the channels of namespaces that were removed.
    pub(super) fn bequeath(&mut self) {
        let Self { channels, network, service, .. } = self;
        channels.bequeath(|namespace, channel| {
            service.set_stalled(namespace, false);
            if let Some(fd) = channel.wake_fd() {
                network.forget_device(fd);
            }
        });
    }

    /// Lets a connection wait for its host's allowance: it is not looked at before.
    pub(super) fn hold(&mut self, index: usize, until: Nanos) {
        let is_first = self.held.is_empty() || until < self.held_until;
        if is_first {
            self.held_until = until;
        }
        self.held.push(index);
        if let Some(Some(peer)) = self.peers.get_mut(index) {
            peer.is_waiting = true;
        }
    }

    /// Has those looked at again of whom one's time has come.
    pub(super) fn release(&mut self, now: Nanos) {
        if self.held.is_empty() || now < self.held_until {
            return;
        }
        for index in self.held.drain(..) {
            if let Some(Some(peer)) = self.peers.get_mut(index) {
                peer.is_waiting = false;
                wait(&mut self.waiting, index, &mut peer.is_waiting);
            }
        }
    }
}
