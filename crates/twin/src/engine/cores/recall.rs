//! Brings cores back as soon as too many requests wait for those in use.

use ebb_policy::GroupSetting;
use ebb_policy::units::{Hertz, Nanos};

use super::super::events::{Event, Events};
use super::{Cores, Group};

impl Cores {
    /// The same, looked at only so often whether they are crowded, as a host does.
    pub(in super::super) fn watched(mut self, pace: Option<Nanos>) -> Self {
        self.watch = pace.map_or(0, |pace| pace.0);
        self
    }

    /// Sets above which load of each active core all of a group come back, at which frequency.
    pub(in super::super) fn set_recall(&mut self, group: usize, recall: Option<(u16, Hertz)>) {
        self.groups[group].recall = recall.map(|(most, f)| (u32::from(most), f));
    }

    /// Whether more wait for the cores in use of a group than are to.
    #[inline]
    pub(super) fn is_crowded(&self, group: usize) -> bool {
        let Group { recall, active, asked, load, stage, .. } = &self.groups[group];
        recall.is_some_and(|(most, highest)| {
            (*active < stage.cores || *asked < highest)
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
            let Group { stage, recall, .. } = &self.groups[index];
            let Some((_, frequency)) = *recall else { continue };
            let all = GroupSetting { active: stage.cores, frequency };
            self.apply(events, now, index, all);
        }
    }
}
