//! What must not begin: of a queue that has ended, and what its host must wait with.

use ebb_policy::units::Nanos;

use super::super::context::Context;
use super::super::ledger::Kind;
use super::super::remains::Left;
use super::super::slots::{Slot, Slots};
use super::Commands;
use crate::controller::{Plan, Queue};

impl Commands {
    /// Whether this is an I/O queue that has ended, or one whose host failed to show who it is:
    /// nothing of it may begin at a device.
    pub fn is_cut_off(&self, now: Nanos) -> bool {
        match &self.queue {
            Some(Queue::Io(io)) => !io.alive(now) || !self.may_join(now),
            _ => false,
        }
    }

    /// Since when a command must wait for what is left of its host's queues that have ended.
    pub(super) fn bar(&self, plan: Option<&Plan>, context: &Context<'_>) -> Option<Nanos> {
        let Some(Queue::Io(io)) = &self.queue else { return None };
        io.bar(plan?.namespace()?, &context.channels.wake)
    }

    /// Gives a command the buffers that it wants, if it may begin and have them now; else, the kind
    /// that it must wait for.
    pub(super) fn supply(
        &self,
        slot: &mut Slot,
        is_here: bool,
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        if self.bar(slot.plan.as_ref(), context).is_some() {
            return Err(slot.wants(is_here).map_or(Kind::List, |(kind, _)| kind));
        }
        context.supply(slot, is_here)
    }

    /// Whether the stream must not wait for a command in it: the namespace's device is stalled, or
    /// what it had of the host before is, and the host will try again later.
    pub(super) fn gives_up(&self, plan: Option<&Plan>, context: &Context<'_>) -> bool {
        let may_delay = matches!(&self.queue, Some(Queue::Io(io)) if io.retries_later());
        let is_due = !context.resumes || context.is_tick;
        let is_old = |since| context.now.saturating_sub(since) >= context.limits.silence;
        may_delay
            && (context.channels.is_stalled(context.lane(plan))
                || is_due && self.bar(plan, context).is_some_and(is_old))
    }

    /// The queue is over: nothing of it begins or is answered any more. What devices have of it.
    pub fn part(&mut self, now: Nanos) -> Option<Left> {
        let slots = std::mem::replace(&mut self.slots, Slots::new(0));
        (self.asked, self.fetching, self.authentication) = (0, None, None);
        let Some(Queue::Io(mut io)) = self.queue.take() else { return None };
        let namespace = |slot: &Slot| slot.plan.and_then(|plan| plan.namespace());
        let requests: Vec<_> = slots
            .entries()
            .filter(|(_, slot)| slot.pending > 0)
            .filter_map(|(index, slot)| Some((index, namespace(slot)?)))
            .collect();
        let at = requests.iter().map(|(_, namespace)| *namespace).collect();
        io.end(at, now).map(|stay| Left { stay, requests })
    }

    /// Whether it was [over](Self::part).
    pub fn has_parted(&self) -> bool {
        self.queue.is_none()
    }
}
