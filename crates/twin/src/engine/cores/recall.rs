//! Brings cores back as soon as too many requests wait for those in use.

use ebb_policy::GroupSetting;
use ebb_policy::units::Nanos;

use super::super::events::{Event, Events};
use super::{Cores, Group};

impl Cores {
    /// The same, looked at only so often whether they are crowded, as a host does.
    pub(in super::super) fn watched(mut self, pace: Option<Nanos>) -> Self {
        self.watch = pace.map_or(0, |pace| pace.0);
        self
    }

    /// Everything of a group.
    pub(in super::super) fn all(&self, group: usize) -> GroupSetting {
        let active = self.groups[group].stage.cores;
        GroupSetting { active, frequency: self.highest_frequency() }
    }

    /// Sets above which load of each active core what comes back of a group.
    pub(in super::super) fn set_recall(
        &mut self,
        group: usize,
        recall: Option<(u16, GroupSetting)>,
    ) {
        self.groups[group].recall = recall.map(|(most, all)| (u32::from(most), all));
    }

    /// Whether more wait for the cores in use of a group than are to.
    #[inline]
    pub(super) fn is_crowded(&self, group: usize) -> bool {
        let Group { recall, active, asked, load, .. } = &self.groups[group];
        recall.is_some_and(|(most, all)| {
            (*active < all.active || *asked < all.frequency)
                && *load > most.saturating_mul(u32::from(*active))
        })
    }

    /// Has all cores back, at once or when it is looked at next.
    pub(super) fn crowded(&mut self, events: &mut Events, now: u64) {
        if self.watch == 0 {
            self.recall(events, now);
        } else if !std::mem::replace(&mut self.watching, true) {
            events.push((now / self.watch + 1) * self.watch, Event::Watch);
        }
    }

    /// Looks whether cores are crowded still.
    pub(in super::super) fn look(&mut self, events: &mut Events, now: u64) {
        self.watching = false;
        if (0..self.groups.len()).any(|group| self.is_crowded(group)) {
            self.recall(events, now);
        }
    }

    /// What crowds one stage is on its way to the next: all come back.
    fn recall(&mut self, events: &mut Events, now: u64) {
        for index in 0..self.groups.len() {
            let Some((_, all)) = self.groups[index].recall else { continue };
            self.apply(events, now, index, all);
        }
    }
}
