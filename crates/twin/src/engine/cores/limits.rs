//! Limits of the cores' power and time, as a run goes on.

use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{CoreRole, GroupSetting};

use super::super::events::{Event, Events};
use super::super::quota::Quota;
use super::Cores;

/// Limits that are asked for; the profile's own where they are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in super::super) struct CoreLimits {
    pub(in super::super) power: Option<Watts>,
    pub(in super::super) time: Option<f64>,
    pub(in super::super) period: Option<Nanos>,
}

impl Cores {
    /// Carries out what is asked: the CPU time at once, the power after the packages' own latency.
    pub(in super::super) fn limit(&mut self, events: &mut Events, now: u64, asked: CoreLimits) {
        let before = std::mem::replace(&mut self.limits, asked);
        if (before.time, before.period) != (asked.time, asked.period) {
            let lower = |a: f64, b: Option<f64>| b.map_or(a, |b| b.min(a));
            let time = asked.time.map(|time| lower(time, self.cpu.quota)).or(self.cpu.quota);
            let period = asked.period.unwrap_or(self.cpu.quota_period);
            self.retime(events, now, |quota| quota.set(time, period));
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

    /// Cores that share the quota.
    pub(super) fn sharers(&self) -> usize {
        let stages = self.groups.iter().filter(|group| group.stage.role != CoreRole::Compute);
        stages.map(|group| usize::from(group.active)).sum()
    }

    /// Changes the quota, and shares it among the cores in use. What is left of the work that
    /// cores run goes on under the new one.
    pub(super) fn retime(&mut self, events: &mut Events, now: u64, set: impl Fn(&mut Quota)) {
        for index in 0..self.cores.len() {
            self.book(index, now);
        }
        let mut quota = self.quota.clone();
        set(&mut quota);
        quota.share(self.sharers());
        for (index, core) in self.cores.iter_mut().enumerate() {
            if core.ends == u64::MAX {
                continue;
            }
            let left = self.quota.between(now, core.ends);
            let end = quota.end(now, left);
            if end != core.ends {
                core.ends = end;
                events.push(end, Event::CoreDone(index as u32));
            }
        }
        self.quota = quota;
    }

    /// Whether a core is to finish what it runs now: its end may have moved.
    #[inline]
    pub(in super::super) fn is_due(&self, now: u64, index: u32) -> bool {
        self.cores[index as usize].ends == now
    }
}
