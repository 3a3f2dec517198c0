//! Parameter Update and the two adaptors (§IV-C): what happens in the Stable state each time `k`
//! windows under one setting are complete.
//!
//! **The baseline.** §IV-C lets Parameter Update take the current `l_avg` as `l_baseline`
//! "iteratively when PACER is in the Stable state". Taken by the letter the baseline is the latency
//! that power saving has already slowed: the loss is then always about 0, each round may lose
//! another `plf` on top, and nothing bounds the sum. The promise of the introduction and of §V is
//! relative to *native*. So the baseline is learned only while everything is on: on entering
//! Stable ("System stable; recalculate the baseline", Fig. 9), and iteratively for as long as
//! nothing is saved. While power is being saved, a native latency that rises looks like a loss:
//! PACER gives back, at most everything, and at full resources learns anew. One that falls cannot
//! be seen at all, so a baseline is only trusted for `baseline_age`; then PACER goes through
//! Unstable, and back to the same setting if the baseline has not changed.
//!
//! **`l_cur`** is `l_avg` over the `k` windows since the last change rather than one window's
//! latency: a step every 5.5 s whose effect is known, instead of one every second that answers to
//! noise and to requests queued under the setting before.
//!
//! **Order.** With slack the Core Adaptor acts first; only when it has no core left to take does
//! the Freq Adaptor "refine". So the effect of each step is measured on its own. With a broken
//! `plf` the last saving is taken back if it is to blame; otherwise the frequency, then cores.
//! Between the two divergence thresholds nothing more is saved, but what is owed is given back.

use crate::Controls;
use crate::controls::GroupControl;
use crate::cpu::closest;
use crate::cpu::pacer::core_adaptor::{self, Sizing};
use crate::cpu::pacer::memory::Saving;
use crate::cpu::pacer::params::LEARNING_SHARE;
use crate::cpu::pacer::{Adaptors, Pacer, State, freq_adaptor, loss};
use crate::units::{Hertz, Nanos};

/// Periods for which a setting is asked for again. Ours: twice what the guard needs to park a whole
/// group, half of it per period.
const RESUME_PERIODS: u8 = 4;

/// Loss distance below which steps are too slow: the loss is twice the tolerated one. Ours: what
/// last kept `plf` comes back at once.
const SEVERE: f64 = -1.0;

impl Pacer {
    pub(super) fn enter_stable(&mut self, now: Nanos, controls: &mut Controls) {
        self.state = State::Stable;
        let (l_avg, old) = (self.windows.l_avg(), self.l_baseline);
        let same = (l_avg - old).abs() < self.params.stable_thresh * old;
        if std::mem::take(&mut self.relearning) && same {
            self.learn(l_avg, now);
            self.resume = RESUME_PERIODS;
            self.resume(controls);
        } else {
            self.kept.copy_from_slice(&self.native);
            let groups = self.topology.io_groups().map(|g| self.sizing(g, controls));
            let overall = core_adaptor::overall(groups);
            self.cores.start(overall);
            self.tune(now, controls);
        }
    }

    /// Asks for the setting before the baseline was learned again, until it is in force. The guard
    /// parks only so many cores per period.
    pub(super) fn resume(&mut self, controls: &mut Controls) {
        let there = self.asks(controls, &self.kept);
        self.resume = if there { 0 } else { self.resume - 1 };
        self.set(controls, &self.kept, "pacer:resume");
    }

    /// Parameter Update, then the adaptors.
    pub(super) fn tune(&mut self, now: Nanos, controls: &mut Controls) {
        let l_cur = self.windows.l_avg();
        let calm = self.windows.l_div() < self.params.stable_thresh;
        let still = self.ceilings.still();
        if self.all_on(controls) && calm && still {
            self.learn(l_cur, now);
        } else if now.saturating_sub(self.learned_at) >= self.trusted_for {
            self.learn_again(controls, "pacer:baseline-age");
            return;
        }
        let loss = loss::loss_cur(l_cur, self.l_baseline);
        let distance = loss::loss_distance(self.params.plf, loss);
        self.memory.expire(now);
        if distance < 0.0 {
            self.give_back(distance, now, controls);
            return;
        }
        self.kept.copy_from_slice(controls.groups());
        if !self.relieve(controls) && calm && still && distance > self.params.deadband {
            self.save(distance, controls);
        }
    }

    fn learn(&mut self, l_avg: f64, now: Nanos) {
        (self.l_baseline, self.learned_at) = (l_avg, now);
        self.ceilings.learn();
        let took = Nanos(self.windows.span().0.saturating_mul(LEARNING_SHARE));
        self.trusted_for = self.params.baseline_age.max(took);
    }

    /// Everything on, only to see the native latency.
    pub(super) fn learn_again(&mut self, controls: &mut Controls, reason: &'static str) {
        self.state = State::Unstable;
        self.relearning = true;
        self.memory.acquit();
        self.set(controls, &self.native, reason);
    }

    /// Uses slack up: fewer cores, or when there are none to take, a lower frequency.
    fn save(&mut self, distance: f64, controls: &mut Controls) {
        if self.params.adaptors != Adaptors::Frequency && self.take_cores(distance, controls) {
            return;
        }
        if self.params.adaptors != Adaptors::Cores {
            self.lower_frequency(distance, controls);
        }
    }

    /// Core Adaptor; false when there is no core to take.
    fn take_cores(&mut self, distance: f64, controls: &mut Controls) -> bool {
        let old = self.cores;
        self.cores.update(distance, self.busiest(controls));
        if self.topology.io_groups().any(|g| self.cores.held(self.sizing(g, controls))) {
            self.cores = old;
        }
        let wanted = |g| self.cores.fewer(self.sizing(g, controls));
        if self.topology.io_groups().all(|g| wanted(g) == controls.groups()[g].active) {
            return false;
        }
        self.memory.saving(Saving::Cores, controls.groups());
        for g in self.topology.io_groups() {
            let n_desired = self.cores.fewer(self.sizing(g, controls));
            controls.set_active(g, n_desired, "pacer:slack-cores");
        }
        true
    }

    fn lower_frequency(&mut self, distance: f64, controls: &mut Controls) {
        let Some(u) = self.busiest(controls) else { return };
        let f_cur = self.frequency(controls.groups());
        let gamma = freq_adaptor::gamma(self.params.gamma, f_cur, self.params.plf);
        let f_desired = freq_adaptor::desired(f_cur, gamma, distance).max(freq_adaptor::bearable(
            f_cur,
            u,
            self.params.max_utilisation,
        ));
        let floor = self.memory.frequency_floor().max(self.floors.frequency);
        let f = closest(&self.topology.frequencies, f_desired).max(floor);
        if f < f_cur {
            self.memory.saving(Saving::Frequency, controls.groups());
            self.set_frequency(f, controls, "pacer:slack-frequency");
        }
    }

    /// Gives resources back until `plf` is kept again.
    fn give_back(&mut self, distance: f64, now: Nanos, controls: &mut Controls) {
        let severe = distance < SEVERE;
        let forget_at = now + self.trusted_for;
        let blamed = self.memory.blame(controls.groups(), &self.topology, severe, forget_at);
        self.cores.update(distance, self.busiest(controls));
        if severe && self.asks(controls, &self.kept) {
            // What kept `plf` once no longer does: the load is another.
            self.enter_unstable(controls, "pacer:loss-severe");
            return;
        } else if severe {
            self.set(controls, &self.kept, "pacer:loss-severe");
            return;
        }
        let f_cur = self.frequency(controls.groups());
        let gamma = freq_adaptor::gamma(self.params.gamma, f_cur, self.params.plf);
        let f_desired = freq_adaptor::desired(f_cur, gamma, distance);
        // What a ceiling forbids cannot be given back; cores can.
        let highest = self.frequency(&self.native);
        let f = self.topology.frequency_at_least(f_desired).min(highest);
        if blamed != Saving::Cores && f > f_cur {
            self.set_frequency(f, controls, "pacer:loss-frequency");
            if f_desired <= f {
                return;
            }
        }
        if self.params.adaptors != Adaptors::Frequency {
            for g in self.topology.io_groups() {
                let n_desired = self.cores.more(self.sizing(g, controls));
                controls.set_active(g, n_desired, "pacer:loss-cores");
            }
        }
    }

    /// Adds cores to a group that comes close to what the Burst-Check takes for a burst; its load
    /// has grown without the latency telling.
    fn relieve(&mut self, controls: &mut Controls) -> bool {
        let limit = (self.params.max_utilisation + self.params.burst_utilisation) / 2.0;
        let mut relieved = false;
        for g in self.topology.io_groups() {
            if let Some(n) = self.cores.relieve(self.sizing(g, controls), limit) {
                controls.set_active(g, n, "pacer:load-cores");
                relieved = true;
            }
        }
        if relieved {
            self.memory.acquit();
        }
        relieved
    }

    fn sizing(&self, group: usize, controls: &Controls) -> Sizing<'_> {
        Sizing {
            spec: &self.topology.groups[group],
            active: controls.groups()[group].active,
            work: self.windows.work(group),
            floor: self.memory.core_floor(group).max(self.floors.cores[group]),
        }
    }

    fn busiest(&self, controls: &Controls) -> Option<f64> {
        core_adaptor::busiest(self.topology.io_groups().map(|g| self.sizing(g, controls)))
    }

    fn set_frequency(&self, f: Hertz, controls: &mut Controls, reason: &'static str) {
        for g in self.topology.io_groups() {
            controls.set_frequency(g, f, reason);
        }
    }

    /// `f_cur`: the frequency of `groups` under the ceilings; one, since there is one latency to
    /// steer by, but for sockets with unlike ceilings.
    fn frequency(&self, groups: &[GroupControl]) -> Hertz {
        let highest = self.topology.max_frequency();
        let under = |g: usize| groups[g].frequency.min(highest * self.ceilings.share(g));
        self.topology.io_groups().map(under).fold(Hertz(0.0), Hertz::max)
    }
}
