//! The end of a connection's queue, which is before that of the connection.

use ebb_policy::units::Nanos;

use super::super::context::Context;
use super::super::remains::Left;
use super::{Connection, Phase};

impl Connection {
    /// Whether a device request is its own, and not of one before in its place or of its queue
    /// that has ended.
    pub fn takes(&self, command: u64) -> bool {
        self.tag() == command & !0xffff && !self.commands.has_parted()
    }

    /// Whether its queue is to end: it says goodbye, or the queue is gone for its controller.
    pub fn must_part(&self, now: Nanos) -> bool {
        let is_over = self.phase == Phase::Ending || self.commands.is_cut_off(now);
        is_over && !self.commands.has_parted()
    }

    /// Ends its queue and says goodbye. What devices have of it.
    pub fn part(&mut self, context: &Context<'_>) -> Option<Left> {
        if self.phase != Phase::Ending {
            self.finish(context);
        }
        self.commands.part(context.now)
    }

    /// It is closed. What devices have of it.
    pub fn close(&mut self, now: Nanos) -> Option<Left> {
        self.commands.part(now)
    }
}
