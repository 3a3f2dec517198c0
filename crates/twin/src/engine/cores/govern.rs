//! What a frequency governor sees of the cores and sets.

use ebb_policy::units::Hertz;
use ebb_policy::{CoreRole, GroupSetting};

use super::super::events::Events;
use super::{Cores, Group};

impl Cores {
    /// Useful time of a group's cores up to `now` since the start, ns.
    pub(in super::super) fn busy(&mut self, group: usize, now: u64) -> u64 {
        let Group { first, stage, .. } = &self.groups[group];
        let cores = *first..*first + usize::from(stage.cores);
        cores.for_each(|index| self.book(index, now));
        self.groups[group].busy
    }
    /// Whether a group's cores poll while they have nothing to do.
    pub(in super::super) fn polls(&self, group: usize) -> bool {
        self.groups[group].polls
    }
    /// Cores in use of a group.
    pub(in super::super) fn active(&self, group: usize) -> f64 {
        f64::from(self.groups[group].active.max(1))
    }

    /// Lets a group run at the first frequency from `needed` on, where that is asked for.
    pub(in super::super) fn govern(
        &mut self,
        events: &mut Events,
        now: u64,
        group: usize,
        needed: Hertz,
    ) {
        let steps = self.cpu.frequencies.iter().copied();
        let step = steps.filter(|step| *step >= needed).reduce(Hertz::min);
        let Group { needed, active, asked, .. } = &mut self.groups[group];
        *needed = step.unwrap_or(Hertz(f64::INFINITY));
        let as_asked = GroupSetting { active: *active, frequency: *asked };
        self.apply(events, now, group, as_asked);
    }

    /// What was lost since the last report on the cores that serve users: by waiting for one, and
    /// by their ceilings, ns.
    pub(in super::super) fn lost(&mut self, now: u64) -> f64 {
        let highest = self.highest_frequency();
        let serving = self.groups.iter_mut().filter(|group| group.stage.role != CoreRole::Compute);
        serving
            .map(|group| {
                let busy = group.busy - std::mem::replace(&mut group.told, group.busy);
                let speed = (group.asked / highest).min(1.0);
                group.waiting.take(now) as f64 + busy as f64 * (1.0 - speed)
            })
            .sum()
    }
}
