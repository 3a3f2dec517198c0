//! Limits of the cores' power and time, as a run goes on.

use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{CoreRole, GroupSetting};

use super::super::events::{Event, Events};
use super::Cores;

/// Limits that are asked for; the profile's own where they are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in super::super) struct CoreLimits {
    pub(in super::super) power: Option<Watts>,
    pub(in super::super) time: Option<f64>,
    pub(in super::super) period: Option<Nanos>,
}

impl Cores {
    /// Carries out what is asked: the CPU time at once, where what runs ends as it was to; the
    /// power after the packages' own latency.
    pub(in super::super) fn limit(&mut self, events: &mut Events, now: u64, asked: CoreLimits) {
        let before = std::mem::replace(&mut self.limits, asked);
        if (before.time, before.period) != (asked.time, asked.period) {
            for index in 0..self.cores.len() {
                self.book(index, now);
            }
            let lower = |a: f64, b: Option<f64>| b.map_or(a, |b| b.min(a));
            let time = asked.time.map(|time| lower(time, self.cpu.quota)).or(self.cpu.quota);
            self.quota.set(time, asked.period.unwrap_or(self.cpu.quota_period));
            self.share_quota(now);
        }
        if before.power != asked.power {
            events.push(now + self.cpu.limit_latency.0, Event::PowerLimit);
        }
    }

    /// The packages keep the limit that was asked for last.
    pub(in super::super) fn keep_power(&mut self, events: &mut Events, now: u64) {
        let own = self.cpu.power_limit;
        let lowest = |a: Watts| own.map_or(a, |b| if b < a { b } else { a });
        let ceiling = self.within(self.limits.power.map(lowest).or(own));
        if std::mem::replace(&mut self.ceiling, ceiling) == ceiling {
            return;
        }
        for group in 0..self.groups.len() {
            let group_of = &self.groups[group];
            let as_asked = GroupSetting { active: group_of.active, frequency: group_of.asked };
            self.apply(events, now, group, as_asked);
        }
    }

    /// Shares the quota among the cores that run now.
    pub(super) fn share_quota(&mut self, now: u64) {
        if !self.quota.limits() {
            return;
        }
        for index in 0..self.cores.len() {
            self.book(index, now);
        }
        let stages = self.groups.iter().filter(|group| group.stage.role != CoreRole::Compute);
        self.quota.share(stages.map(|group| usize::from(group.active)).sum());
    }
}
