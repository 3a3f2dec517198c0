//! Stability-Check's measurements: average latency `l_i` of each `n`-second window, over `k` of
//! them the average `l_avg` and the divergence `l_div` (§IV-B).
//!
//! The two formulas are missing from the paper's text. The average is plain; the divergence here is
//! the mean deviation of the windows from their average, relative to it,
//!
//! ```text
//! l_avg = 1/k · Σ l_i        l_div = 1/k · Σ |l_i − l_avg| / l_avg
//! ```
//!
//! so that the Burst-Check's divergence of a single window is the same quantity with k = 1.
//!
//! Two rules of ours. A window with few completions says little, so it grows until it has enough;
//! one without any is no measurement at all. And a change of ours is not a divergence of the load:
//! it starts the open window anew, after leaving out the period in which it took effect, and both
//! formulas then take the windows since the change, one at first, `k` and sliding at last.

use crate::cpu::pacer::PacerParams;
use crate::units::Nanos;
use crate::{GroupSignals, IoSignals, Signals};

/// Completions and mean latency in ns of one period; `None` when not known.
pub(super) fn completions(io: &IoSignals) -> Option<(u64, f64)> {
    match (io.completed?, io.mean_latency) {
        (0, _) => Some((0, 0.0)),
        (completed, latency) => Some((completed, latency?.0 as f64)),
    }
}

/// Utilisation of a group, if sensed and possible.
pub(super) fn utilisation(group: &GroupSignals) -> Option<f64> {
    group.utilisation.filter(|u| (0.0..=1.05).contains(u))
}

/// Numbers, sums of the latency in ns, and bytes of reads and of writes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ops {
    pub number: [f64; 2],
    pub latency: [f64; 2],
    pub bytes: [f64; 2],
}

impl Ops {
    /// Those of one period; none where they are not known apart.
    pub fn of(io: &IoSignals) -> Self {
        let mut ops = Self::default();
        for (op, known) in [io.reads, io.writes].iter().enumerate() {
            if let (Some(n), Some(latency)) = (known.completed, known.mean_latency) {
                (ops.number[op], ops.latency[op]) = (n as f64, n as f64 * latency.0 as f64);
                // Where sizes are not known all are one.
                ops.bytes[op] = known.bytes.unwrap_or(n) as f64;
            }
        }
        ops
    }

    /// Mean latency of the reads, `op` 0, or of the writes, 1.
    pub fn mean(&self, op: usize) -> Option<f64> {
        (self.number[op] > 0.0).then(|| self.latency[op] / self.number[op])
    }

    /// Mean size of the reads, `op` 0, or of the writes, 1, in bytes.
    pub fn size(&self, op: usize) -> f64 {
        self.bytes[op] / self.number[op]
    }

    fn add(&mut self, other: &Self) {
        for op in 0..2 {
            self.number[op] += other.number[op];
            self.latency[op] += other.latency[op];
            self.bytes[op] += other.bytes[op];
        }
    }
}

/// Requests and their bytes, in a period or per second; NaN, which is never below another, where
/// they are not known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    requests: f64,
    bytes: f64,
}

impl Load {
    /// That of one period. What arrives and has to wait counts.
    pub fn of(io: &IoSignals) -> Self {
        let known = |n: Option<u64>| n.map_or(f64::NAN, |n| n as f64);
        Self { requests: known(io.completed.max(io.arrived)), bytes: known(io.bytes) }
    }

    pub fn requests(&self) -> f64 {
        self.requests
    }

    /// The same per second.
    pub fn per(self, span: Nanos) -> Self {
        let seconds = span.seconds();
        Self { requests: self.requests / seconds, bytes: self.bytes / seconds }
    }

    /// Whether this is below `other` by a `share` and more: fewer requests, and no larger ones in
    /// their place.
    pub fn below(&self, other: &Self, share: f64) -> bool {
        let below = |own: f64, other: f64| own < other * (1.0 - share);
        below(self.requests, other.requests) && below(self.bytes, other.bytes)
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

/// The window being filled.
#[derive(Debug, Clone, Default)]
struct Open {
    span: Nanos,
    requests: u64,
    latency_sum: f64,
    /// Requests whose 99th percentile is known, and the sum of it over them.
    tail: (f64, f64),
    ops: Ops,
    load: Load,
    /// Joules, and the seconds for which they are known.
    energy: (f64, f64),
    /// Per group, core-seconds of useful work and the seconds for which it is known.
    work: Vec<(f64, f64)>,
}

impl Open {
    fn clear(&mut self) {
        (self.span, self.requests, self.latency_sum) = (Nanos::ZERO, 0, 0.0);
        self.tail = (0.0, 0.0);
        (self.ops, self.load, self.energy) = (Ops::default(), Load::default(), (0.0, 0.0));
        self.work.fill((0.0, 0.0));
    }
}

/// The last `k` windows under one setting.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    length: Nanos,
    longest: Nanos,
    requests: u64,
    open: Open,
    skip: bool,
    /// Ring of `l_i` in ns.
    latency: Vec<f64>,
    /// Ring of 99th percentiles in ns.
    tails: Vec<Option<f64>>,
    /// Ring of the windows' lengths.
    spans: Vec<Nanos>,
    /// Ring of reads and writes.
    ops: Vec<Ops>,
    /// Ring of requests and bytes.
    loads: Vec<Load>,
    /// Ring of joules, and of the seconds for which they are known.
    energy: Vec<(f64, f64)>,
    /// Ring of work per group, a row per window.
    work: Vec<Option<f64>>,
    next: usize,
    filled: usize,
    /// Windows since the last change.
    unchanged: usize,
    /// All that ever were.
    count: u64,
}

impl Windows {
    pub fn new(params: &PacerParams, groups: usize) -> Self {
        Self {
            length: params.window,
            longest: params.window_longest,
            requests: params.window_requests,
            open: Open { work: vec![(0.0, 0.0); groups], ..Open::default() },
            skip: true,
            latency: vec![0.0; params.windows],
            tails: vec![None; params.windows],
            spans: vec![Nanos::ZERO; params.windows],
            ops: vec![Ops::default(); params.windows],
            loads: vec![Load::default(); params.windows],
            energy: vec![(0.0, 0.0); params.windows],
            work: vec![None; params.windows * groups],
            next: 0,
            filled: 0,
            unchanged: 0,
            count: 0,
        }
    }

    /// All windows that ever were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Forgets everything: what was measured belongs to another load.
    pub fn clear(&mut self) {
        self.changed();
        (self.next, self.filled) = (0, 0);
    }

    /// Another setting is in force from now on.
    pub fn changed(&mut self) {
        self.paused();
        self.unchanged = 0;
    }

    /// Another setting is in force for a while without requests.
    pub fn paused(&mut self) {
        self.open.clear();
        self.skip = true;
    }

    /// Takes in one period; true when it completes a window and `k` of them are there.
    pub fn add(&mut self, signals: &Signals) -> bool {
        let Some((requests, latency)) = completions(&signals.io) else { return false };
        if std::mem::take(&mut self.skip) {
            return false;
        }
        self.open.span += signals.period;
        self.open.requests = self.open.requests.saturating_add(requests);
        self.open.latency_sum += requests as f64 * latency;
        if let Some(percentiles) = signals.io.percentiles.filter(|_| requests > 0) {
            self.open.tail.0 += requests as f64;
            self.open.tail.1 += requests as f64 * percentiles.p99.0 as f64;
        }
        self.open.ops.add(&Ops::of(&signals.io));
        self.open.load.add(&Load::of(&signals.io));
        // Of the processors where that is known: the rest of the server adds only noise.
        if let Some(power) = signals.power.cpu.or(signals.power.total) {
            self.open.energy.0 += (power * signals.period).0;
            self.open.energy.1 += signals.period.seconds();
        }
        for (group, work) in signals.groups.iter().zip(&mut self.open.work) {
            if let (Some(u), Some(active)) = (utilisation(group), group.active) {
                let seconds = signals.period.seconds();
                work.0 += f64::from(active) * u * seconds;
                work.1 += seconds;
            }
        }
        let enough = self.open.span >= self.length && self.open.requests >= self.requests;
        let late = self.open.span >= self.longest && self.open.requests > 0;
        if enough || late {
            self.close();
        }
        (enough || late) && self.filled == self.latency.len()
    }

    fn close(&mut self) {
        let groups = self.open.work.len();
        self.latency[self.next] = self.open.latency_sum / self.open.requests as f64;
        let (requests, sum) = self.open.tail;
        self.tails[self.next] = (requests > 0.0).then(|| sum / requests);
        self.spans[self.next] = self.open.span;
        self.ops[self.next] = self.open.ops;
        self.loads[self.next] = self.open.load;
        self.energy[self.next] = self.open.energy;
        let row = &mut self.work[self.next * groups..(self.next + 1) * groups];
        for (kept, (work, seconds)) in row.iter_mut().zip(&self.open.work) {
            *kept = (*seconds > 0.0).then_some(work / seconds);
        }
        self.next = (self.next + 1) % self.latency.len();
        self.filled = (self.filled + 1).min(self.latency.len());
        self.count += 1;
        self.unchanged = (self.unchanged + 1).min(self.latency.len());
        self.open.clear();
    }

    /// The windows since the last change, the latest first.
    fn current(&self) -> impl Iterator<Item = usize> {
        let (k, next) = (self.latency.len(), self.next);
        (1..=self.unchanged).map(move |back| (next + k - back) % k)
    }

    /// `l_i` in ns of the window that was closed last, its load, and its reads and writes.
    pub fn last(&self) -> (f64, Load, Ops) {
        let window = (self.next + self.latency.len() - 1) % self.latency.len();
        (self.latency[window], self.loads[window].per(self.spans[window]), self.ops[window])
    }

    /// Leaves out all windows but the one that was closed last.
    pub fn keep_last(&mut self) {
        self.unchanged = 1;
    }

    /// Leaves out the window that was closed last.
    pub fn forget(&mut self) {
        self.next = (self.next + self.latency.len() - 1) % self.latency.len();
        self.unchanged -= 1;
    }

    /// Reads and writes of the windows since the last change.
    pub fn ops(&self) -> Ops {
        let mut sum = Ops::default();
        self.current().for_each(|window| sum.add(&self.ops[window]));
        sum
    }

    /// Windows since the last change.
    pub fn since_change(&self) -> usize {
        self.unchanged
    }

    /// Whether all windows belong to the setting in force.
    pub fn unchanged(&self) -> bool {
        self.unchanged == self.latency.len()
    }

    /// `l_avg` in ns. Only meaningful once [`Windows::add`] has returned true, as the rest.
    pub fn l_avg(&self) -> f64 {
        self.current().map(|window| self.latency[window]).sum::<f64>() / self.unchanged as f64
    }

    /// The 99th percentile in ns, mean over the windows since the last change that know it.
    pub fn tail(&self) -> Option<f64> {
        let known = self.current().filter_map(|window| self.tails[window]);
        let (sum, count) = known.fold((0.0, 0.0), |(sum, n), tail| (sum + tail, n + 1.0));
        (count > 0.0).then_some(sum / count)
    }

    /// Requests and bytes per second since the last change.
    pub fn load(&self) -> Load {
        let (mut sum, mut span) = (Load::default(), Nanos::ZERO);
        for window in self.current() {
            sum.add(&self.loads[window]);
            span += self.spans[window];
        }
        sum.per(span)
    }

    /// Mean power in watts since the last change, where it is known.
    pub fn watts(&self) -> Option<f64> {
        let sum = |(j, s), window: usize| (j + self.energy[window].0, s + self.energy[window].1);
        let (joules, seconds) = self.current().fold((0.0, 0.0), sum);
        (seconds > 0.0).then(|| joules / seconds)
    }

    /// Length of the `k` windows together.
    pub fn span(&self) -> Nanos {
        self.spans.iter().copied().fold(Nanos::ZERO, |sum, span| sum + span)
    }

    /// `l_div`, of latencies as multiples of what is `expected` of a window's reads and writes.
    pub fn l_div(&self, expected: impl Fn(&Ops) -> f64) -> f64 {
        let of = |window: usize| self.latency[window] / expected(&self.ops[window]);
        let count = self.unchanged as f64;
        let l_avg = self.current().map(of).sum::<f64>() / count;
        let off = self.current().map(|window| (of(window) - l_avg).abs()).sum::<f64>();
        if l_avg > 0.0 { off / count / l_avg } else { 0.0 }
    }

    /// Useful work of a group in cores (`n_cur · u_cur`), mean over the windows since the last
    /// change that know it.
    pub fn work(&self, group: usize) -> Option<f64> {
        let groups = self.open.work.len();
        let known = self.current().filter_map(|window| self.work[window * groups + group]);
        let (sum, count) = known.fold((0.0, 0.0), |(sum, n), work| (sum + work, n + 1.0));
        (count > 0.0).then_some(sum / count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(requests: u64, micros: u64, u: Option<f64>) -> Signals {
        let mean_latency = (requests > 0).then_some(Nanos::from_micros(micros));
        Signals {
            period: Nanos::from_millis(500),
            io: IoSignals { completed: Some(requests), mean_latency, ..IoSignals::default() },
            groups: vec![
                GroupSignals { active: Some(8), utilisation: u, ..GroupSignals::default() };
                2
            ],
            ..Signals::default()
        }
    }

    /// Windows of one period each, three of them.
    fn windows(requests: u64) -> Windows {
        let params = PacerParams {
            window: Nanos::from_millis(500),
            window_requests: requests,
            window_longest: Nanos::from_secs(2),
            windows: 3,
            ..PacerParams::default()
        };
        let mut windows = Windows::new(&params, 2);
        assert!(!windows.add(&period(1_000_000, 1, None)), "the first period is left out");
        windows
    }

    #[test]
    fn average_and_divergence() {
        let mut windows = windows(1);
        assert!(!windows.add(&period(10, 90, Some(0.1))));
        assert!(!windows.add(&period(10, 100, Some(0.2))));
        assert!(windows.add(&period(10, 110, Some(0.3))));
        assert_eq!(windows.l_avg(), 100_000.0);
        assert!((windows.l_div(|_| 1.0) - 0.2 / 3.0).abs() < 1e-12);
        assert!((windows.work(1).unwrap() - 1.6).abs() < 1e-12);
        assert!(windows.unchanged());
        // Sliding: 90 drops out.
        assert!(windows.add(&period(10, 120, Some(0.3))));
        assert_eq!(windows.l_avg(), 110_000.0);
        // After a change, from it on.
        windows.changed();
        assert!(!windows.add(&period(10, 500, Some(0.3))), "the period of the change is left out");
        assert!(windows.add(&period(10, 120, Some(0.3))));
        assert_eq!((windows.l_avg(), windows.l_div(|_| 1.0)), (120_000.0, 0.0));
        assert!(!windows.unchanged());
        assert!(windows.add(&period(10, 140, Some(0.3))));
        assert_eq!(windows.l_avg(), 130_000.0);
    }

    #[test]
    fn a_window_weighs_requests_and_grows_until_it_has_enough() {
        let mut windows = windows(100);
        for _ in 0..3 {
            assert!(!windows.add(&period(25, 100, None)));
            assert!(!windows.add(&period(0, 0, None)));
            windows.add(&period(75, 200, None));
        }
        assert_eq!(windows.l_avg(), 175_000.0);
        assert_eq!(windows.span(), Nanos::from_millis(4500));
        assert_eq!(windows.l_div(|_| 1.0), 0.0);
        assert_eq!(windows.work(0), None);
    }

    #[test]
    fn a_late_window_closes_with_what_it_has_but_never_with_nothing() {
        let mut windows = windows(100);
        for _ in 0..40 {
            assert!(!windows.add(&period(0, 0, None)));
        }
        assert!(!windows.add(&period(1, 100, None)));
        let filled = (0..8).filter(|_| windows.add(&period(1, 100, None))).count();
        assert_eq!(filled, 1, "two windows of four periods each complete the three");
    }

    #[test]
    fn unknown_periods_are_left_out_and_clearing_starts_anew() {
        let mut windows = windows(1);
        windows.add(&period(10, 100, None));
        windows.add(&period(10, 100, None));
        let unknown = Signals { period: Nanos::from_millis(500), ..Signals::default() };
        assert!(!windows.add(&unknown));
        let mut half = period(10, 100, None);
        half.io.mean_latency = None;
        assert!(!windows.add(&half));
        assert!(windows.add(&period(10, 100, Some(f64::NAN))));
        assert_eq!(windows.work(0), None, "nonsense is not averaged");
        windows.clear();
        let full = (0..4).map(|_| windows.add(&period(10, 300, None))).collect::<Vec<_>>();
        assert_eq!(full, [false, false, false, true]);
        assert_eq!(windows.l_avg(), 300_000.0);
    }

    #[test]
    fn a_load_is_below_another_with_fewer_requests_and_fewer_bytes() {
        let load = |requests, bytes| {
            let io = IoSignals { completed: Some(requests), bytes, ..IoSignals::default() };
            Load::of(&io).per(Nanos::from_millis(500))
        };
        let other = load(100, Some(800));
        assert!(load(70, Some(560)).below(&other, 0.25));
        assert!(!load(80, Some(640)).below(&other, 0.25));
        assert!(!load(10, Some(800)).below(&other, 0.25), "larger requests");
        assert!(!load(10, None).below(&other, 0.25), "not known");
        assert!(!load(10, Some(80)).below(&load(100, None), 0.25));
        let mut waits = IoSignals { completed: Some(10), bytes: Some(80), ..IoSignals::default() };
        waits.arrived = Some(100);
        assert!(!Load::of(&waits).per(Nanos::from_millis(500)).below(&other, 0.25));
    }
}
