//! Parameter Update and the two adaptors (§IV-C): what happens in the Stable state each time a
//! window is complete.
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
//! **`l_cur`** is "the latency measured in the current window": a window begins only when the last
//! step is in force, so each step answers to the effect of the one before. As long as nothing
//! changes further windows are averaged with it, up to `k`, lest a steady load is answered to by
//! its noise.
//!
//! **Order.** With slack the Core Adaptor acts first; only when it has no core left to take does
//! the Freq Adaptor "refine". So the effect of each step is measured on its own. With a broken
//! `plf` the last saving is taken back if it is to blame; otherwise the frequency, then cores.
//! Between the two divergence thresholds nothing more is saved, but what is owed is given back.

use crate::cpu::closest;
use crate::cpu::pacer::core_adaptor::{self, CoreAdaptor, Sizing};
use crate::cpu::pacer::memory::Saving;
use crate::cpu::pacer::params::LEARNING_SHARE;
use crate::cpu::pacer::{Adaptors, Pacer, State, freq_adaptor, loss};
use crate::units::{Hertz, Nanos};
use crate::{GroupSetting, Request};

/// For how long a setting is asked for again. Ours: twice what the guard needs to park a whole
/// group, half of it every 500 ms.
pub(super) const RESUME: Nanos = Nanos::from_secs(2);

/// Loss distance below which steps are too slow: the loss is twice the tolerated one. Ours: what
/// last kept `plf` comes back at once.
const SEVERE: f64 = -1.0;

/// What half of the capacity is taken to cost before any of it has gone. Ours, with care.
const UNKNOWN: f64 = 0.2;

impl Pacer {
    pub(super) fn enter_stable(&mut self, (now, period): (Nanos, Nanos), request: &mut Request) {
        self.state = State::Stable;
        let l_avg = self.windows.l_avg();
        let same = self.is_same(l_avg);
        if std::mem::take(&mut self.relearning) && same && self.bearable() {
            self.learn(l_avg, now);
            self.resume = RESUME;
            self.resume(period, request);
        } else {
            self.kept.copy_from_slice(&self.native);
            let groups = self.topology.io_groups().map(|g| self.sizing(g));
            let overall = core_adaptor::overall(groups);
            self.cores.start(overall);
            self.tune((now, period), request);
        }
    }

    /// Whether the load is one for the setting before, by what a request took there: polling cores
    /// take more for each the more of them there are.
    fn bearable(&self) -> bool {
        let (limit, rate) = (self.params.max_utilisation, self.windows.load().requests());
        let most = |g: usize| limit * f64::from(self.kept[g].active);
        let bears = |g: usize| self.kept_work[g].is_none_or(|work| work * rate <= most(g));
        self.care.is_none() || self.topology.io_groups().all(bears)
    }

    /// Notes what is in force as a setting that keeps `plf`.
    fn keep(&mut self) {
        self.kept.copy_from_slice(&self.in_force);
        let rate = self.windows.load().requests();
        for (g, kept) in self.kept_work.iter_mut().enumerate() {
            *kept = self.windows.work(g).map(|work| work / rate);
        }
    }

    /// Asks for the setting before the baseline was learned again, until it is in force. The guard
    /// parks only so many cores per period.
    pub(super) fn resume(&mut self, period: Nanos, request: &mut Request) {
        let there = self.had(&self.kept);
        self.resume = if there { Nanos::ZERO } else { self.resume.saturating_sub(period) };
        self.set(request, Self::last_kept, "pacer:resume");
    }

    /// Parameter Update, then the adaptors.
    pub(super) fn tune(&mut self, (now, period): (Nanos, Nanos), request: &mut Request) {
        let l_cur = self.windows.l_avg();
        let calm = self.l_div() < self.params.stable_thresh;
        let still = self.ceilings.still();
        if self.had(&self.native) && self.windows.unchanged() && calm && still {
            self.learn(l_cur, now);
        } else if now.saturating_sub(self.learned_at) >= self.trusted_for {
            self.learn_again(request, "pacer:baseline-age");
            return;
        }
        if self.judge_exchange(now, request) {
            return;
        }
        let (loss, at_worst) = self.losses(l_cur);
        let distance = loss::loss_distance(self.params.plf, loss);
        let sure = loss::loss_distance(self.params.plf, at_worst);
        self.memory.expire(now);
        let load = self.windows.load();
        if distance < 0.0 && self.care.is_some_and(|care| care.is_lighter(&load)) {
            self.learn_again(request, "pacer-plus:lighter");
            return;
        } else if distance < 0.0 {
            self.give_back(distance, now, request);
            return;
        }
        self.keep();
        if self.relieve(request) || self.saves_nothing((now, period), request) {
            return;
        }
        let may_save = calm && still && sure > self.params.deadband && self.gain.may_be(now);
        if may_save && !self.save(sure, request) {
            self.exchange(now, request);
        }
    }

    /// Whether it was learned not long ago what a light load takes.
    fn knows_light(&self, now: Nanos) -> bool {
        let age = now.saturating_sub(self.light_at);
        self.light_at > Nanos::ZERO && age < self.trusted_for
    }

    /// Hears of a light load from the window that was closed last, with everything on; false if it
    /// was of another.
    pub(super) fn hear_light(&mut self, now: Nanos) -> bool {
        let (known, (l, load, ops)) = (self.knows_light(now), self.windows.last());
        let care = self.care.as_mut().filter(|care| self.l_baseline > 0.0 && care.is_below(&load));
        let Some(care) = care else { return false };
        if care.hear(l, self.l_baseline, &ops, known) {
            self.light_at = now;
        }
        true
    }

    /// Whether a light load was heard of since the baseline, which is young, is learned again.
    pub(super) fn has_heard(&self, now: Nanos) -> bool {
        let heard = self.learning.is_some_and(|since| self.light_at > since);
        self.relearning && heard && now.saturating_sub(self.learned_at) < self.trusted_for
    }

    /// Whether the window that was closed last was of a load far below the baseline's.
    pub(super) fn is_lighter(&self) -> bool {
        let (_, load, _) = self.windows.last();
        self.care.is_some_and(|care| care.is_lighter(&load))
    }

    /// Leaves the window that was closed last out if its load is light and it took no longer than
    /// such a load does natively; false once one has lasted for as long as learning takes. What was
    /// learned of it not long ago is the baseline then.
    pub(super) fn leave_out(&mut self, now: Nanos) -> bool {
        let (l, load, ops) = self.windows.last();
        let Some(care) = self.care else { return false };
        let natively = care.natively(&load).max(1.0) * care.mixed(self.l_baseline, &ops);
        let light = self.is_slow() && care.is_lighter(&load);
        let light = light && l <= (1.0 + self.params.plf) * natively;
        if !light || self.had(&self.native) {
            self.lighter_since = None;
            return false;
        }
        let since = *self.lighter_since.get_or_insert(now);
        let brief = now.saturating_sub(since) < self.took;
        if brief {
            self.windows.forget();
        } else if self.knows_light(now) {
            self.care = Some(care.lightened(load));
            self.windows.keep_last();
        }
        brief
    }

    /// Whether the window that was closed last broke `plf`.
    pub(super) fn is_slow(&self) -> bool {
        let (l, _, ops) = self.windows.last();
        let l_baseline =
            self.care.map_or(self.l_baseline, |care| care.baseline(self.l_baseline, &ops));
        l > (1.0 + self.params.plf) * l_baseline
    }

    /// `loss_cur`, and what it may well be.
    pub(super) fn losses(&mut self, l_cur: f64) -> (f64, f64) {
        let tail = self.tail_loss();
        let l_div = self.l_div();
        let Some(care) = &mut self.care else {
            let loss = loss::loss_cur(l_cur, self.l_baseline).max(tail);
            return (loss, loss);
        };
        let windows = self.windows.since_change();
        let high = care.high(l_cur, l_div, windows);
        let ops = self.windows.ops();
        care.see(high, self.windows.load(), self.l_baseline, &ops);
        let l_baseline = care.baseline(self.l_baseline, &ops);
        let loss = loss::loss_cur(l_cur, l_baseline);
        let at_worst = care.at_worst(care.high(l_cur, l_div.max(care.usual), windows), l_baseline);
        (loss.max(tail), at_worst.max(tail))
    }

    /// What the 99th percentile has risen by, as the loss of the mean that takes the same share of
    /// what is tolerated of it.
    fn tail_loss(&self) -> f64 {
        let known = self.windows.tail().zip(self.tail_baseline).zip(self.params.tail);
        known.map_or(f64::NEG_INFINITY, |((tail_cur, baseline), tail)| {
            loss::loss_cur(tail_cur, baseline) * self.params.plf / tail
        })
    }

    /// Whether a baseline learned now is that of before.
    fn is_same(&self, l_avg: f64) -> bool {
        let natively = self.care.map_or(1.0, |care| care.natively(&self.windows.load()));
        let old = natively * self.mixed(&self.windows.ops());
        (l_avg - old).abs() < self.params.stable_thresh * old
    }

    fn learn(&mut self, l_avg: f64, now: Nanos) {
        let (l_div, same) = (self.l_div(), self.is_same(l_avg));
        let whole = now.saturating_sub(self.learned_at) >= self.trusted_for;
        if let Some(care) = &mut self.care {
            care.confirm(same, whole);
            let (_, last, _) = self.windows.last();
            let of = (self.windows.since_change(), self.windows.load(), last);
            care.learn((self.l_baseline, l_avg), l_div, of, &self.windows.ops());
            if care.is_light() {
                self.light_at = now;
            }
        }
        (self.l_baseline, self.learned_at) = (l_avg, now);
        self.tail_baseline = self.windows.tail();
        self.ceilings.learn();
        let (age, took) = (self.params.baseline_age, self.windows.span());
        if let Some(since) = self.learning.take() {
            self.took = now.saturating_sub(since);
        }
        self.trusted_for = match &self.care {
            // Of a load with silences a window or two come with each burst.
            Some(care) => care.trusted_for(age, self.params.stable_thresh, took.max(self.took)),
            None => age.max(Nanos(took.0.saturating_mul(LEARNING_SHARE))),
        };
    }

    /// Everything on, only to see the native latency.
    pub(super) fn learn_again(&mut self, request: &mut Request, reason: &'static str) {
        self.state = State::Unstable;
        self.relearning = true;
        self.memory.acquit();
        self.windows.clear();
        self.set(request, Self::all, reason);
    }

    /// Uses slack up: fewer cores, or when there are none to take, a lower frequency. False when
    /// there is neither.
    fn save(&mut self, distance: f64, request: &mut Request) -> bool {
        let adaptors = self.params.adaptors;
        adaptors != Adaptors::Frequency && self.take_cores(distance, request)
            || adaptors != Adaptors::Cores && self.lower_frequency(distance, request)
    }

    /// Core Adaptor; false when there is no core to take.
    fn take_cores(&mut self, distance: f64, request: &mut Request) -> bool {
        let old = self.cores;
        self.cores.update(distance, self.busiest());
        let held = self.topology.io_groups().any(|g| self.cores.held(self.sizing(g)));
        if held {
            self.cores = old;
        }
        let takes = |cores: CoreAdaptor| {
            let mut groups = self.topology.io_groups();
            groups.any(|g| self.fewer(&cores, g, distance) != self.in_force[g].active)
        };
        if !takes(self.cores) {
            // A step that is rounded to no core does not mean that there is none.
            return !held && takes(self.cores.at_most());
        }
        self.memory.saving(Saving::Cores, &self.in_force);
        self.each_io_group(|pacer, g| {
            let n_desired = pacer.fewer(&pacer.cores, g, distance);
            pacer.ask_active(g, n_desired, request, "pacer:slack-cores");
        });
        true
    }

    /// `n_desired` with slack. With care, half of the cores stay, and where more than one goes, as
    /// many as keep `plf` if the loss is in proportion to `1 / s − 1` at a share `s` of the
    /// capacity: cores may have little to do on average and too much in a bunch.
    fn fewer(&self, cores: &CoreAdaptor, g: usize, distance: f64) -> u16 {
        let (n_desired, group) = (cores.fewer(self.sizing(g)), self.in_force[g]);
        if self.care.is_none() {
            return n_desired;
        }
        let all = f64::from(self.topology.groups[g].cores);
        let share = (group.frequency / self.highest()).min(1.0);
        let beyond = all / (f64::from(group.active.max(1)) * share) - 1.0;
        let most = 1.0 + beyond / (1.0 - distance).max(f64::MIN_POSITIVE);
        // Of what nothing is known.
        let most = if beyond > 0.0 { most } else { 1.0 + self.params.plf / UNKNOWN };
        let keeps = (all / (share * most)).ceil() as u16;
        let least = keeps.min(group.active.saturating_sub(1)).max(group.active.div_ceil(2));
        n_desired.clamp(least, group.active)
    }

    /// Freq Adaptor; false when there is no frequency to lower.
    fn lower_frequency(&mut self, distance: f64, request: &mut Request) -> bool {
        let Some(u) = self.busiest() else { return false };
        let f_cur = self.frequency(&self.in_force);
        let gamma = freq_adaptor::gamma(self.params.gamma, f_cur, self.params.plf);
        let bearable = freq_adaptor::bearable(f_cur, u, self.params.max_utilisation);
        let f_desired = freq_adaptor::desired(f_cur, gamma, distance).max(bearable);
        let mut floor = self.memory.frequency_floor().max(self.frequency_reserve());
        if self.care.is_some() {
            // The closest may be below it, and look like a burst soon after.
            floor = floor.max(self.topology.frequency_at_least(bearable));
        }
        let f = closest(&self.topology.frequencies, f_desired).max(floor);
        if f < f_cur {
            self.memory.saving(Saving::Frequency, &self.in_force);
            self.set_frequency(f, request, "pacer:slack-frequency");
        }
        f < f_cur
    }

    /// The lowest frequency at which the cores in force make up the reserve.
    fn frequency_reserve(&self) -> Hertz {
        let Some(care) = self.care else { return Hertz(0.0) };
        let share = |g: usize| {
            f64::from(self.in_force[g].active) / f64::from(self.topology.groups[g].cores.max(1))
        };
        let least = self.topology.io_groups().map(share).fold(1.0, f64::min);
        let highest = self.highest();
        self.topology.frequency_at_least(highest * (care.reserve / least)).min(highest)
    }

    /// Gives resources back until `plf` is kept again.
    fn give_back(&mut self, distance: f64, now: Nanos, request: &mut Request) {
        let severe = distance < SEVERE;
        let forget_at = now + self.trusted_for;
        let blamed = self.memory.blame(&self.in_force, &self.topology, severe, forget_at);
        self.cores.update(distance, self.busiest());
        if severe && self.had(&self.kept) {
            // What kept `plf` once no longer does: the load is another.
            self.enter_unstable(request, "pacer:loss-severe");
            return;
        } else if severe {
            self.set(request, Self::last_kept, "pacer:loss-severe");
            return;
        }
        let f_cur = self.frequency(&self.in_force);
        let gamma = freq_adaptor::gamma(self.params.gamma, f_cur, self.params.plf);
        let f_desired = freq_adaptor::desired(f_cur, gamma, distance);
        // What a ceiling forbids cannot be given back; cores can.
        let highest = self.frequency(&self.native);
        let f = self.topology.frequency_at_least(f_desired).min(highest);
        if blamed != Saving::Cores && f > f_cur {
            self.set_frequency(f, request, "pacer:loss-frequency");
            if f_desired <= f {
                return;
            }
        }
        if self.params.adaptors != Adaptors::Frequency {
            self.each_io_group(|pacer, g| {
                let mut n_desired = pacer.cores.more(pacer.sizing(g));
                if pacer.care.is_some() {
                    n_desired = n_desired.min(pacer.in_force[g].active.saturating_mul(2));
                }
                pacer.ask_active(g, n_desired, request, "pacer:loss-cores");
            });
        }
    }

    /// Adds cores to a group that comes close to what the Burst-Check takes for a burst; its load
    /// has grown without the latency telling.
    fn relieve(&mut self, request: &mut Request) -> bool {
        let limit = (self.params.max_utilisation + self.params.burst_utilisation) / 2.0;
        let mut relieved = false;
        self.each_io_group(|pacer, g| {
            if let Some(n) = pacer.cores.relieve(pacer.sizing(g), limit) {
                pacer.ask_active(g, n, request, "pacer:load-cores");
                relieved = true;
            }
        });
        if relieved {
            self.memory.acquit();
        }
        relieved
    }

    fn sizing(&self, group: usize) -> Sizing<'_> {
        Sizing {
            spec: &self.topology.groups[group],
            active: self.in_force[group].active,
            work: self.windows.work(group),
            floor: self.memory.core_floor(group).max(self.reserved(group)),
        }
    }

    fn reserved(&self, group: usize) -> u16 {
        let cores = self.topology.groups[group].cores;
        self.care.map_or(0, |care| match self.exchange.pays {
            // At the present frequency.
            true => care.cores(cores, self.highest() / self.in_force[group].frequency),
            false => care.cores(cores, 1.0),
        })
    }

    fn busiest(&self) -> Option<f64> {
        core_adaptor::busiest(self.topology.io_groups().map(|g| self.sizing(g)))
    }

    fn set_frequency(&mut self, f: Hertz, request: &mut Request, reason: &'static str) {
        self.each_io_group(|pacer, g| pacer.ask_frequency(g, f, request, reason));
    }

    /// `f_cur`: the frequency of `groups` under the ceilings; one, since there is one latency to
    /// steer by, but for sockets with unlike ceilings.
    pub(super) fn frequency(&self, groups: &[GroupSetting]) -> Hertz {
        let highest = self.topology.max_frequency();
        let under = |g: usize| groups[g].frequency.min(highest * self.ceilings.share(g));
        self.topology.io_groups().map(under).fold(Hertz(0.0), Hertz::max)
    }
}
