//! Mean latency window by window: what the mean of a whole run hides.

use std::ops::Range;

use ebb_policy::units::Nanos;

/// Length of a window.
pub const WINDOW: Nanos = Nanos::from_secs(5);
/// Requests that a window has at least, or it counts together with the next one: the mean of a few
/// says more of them than of the server.
const FEWEST: u64 = 100;

/// Requests and the sum of their latencies, by the time that they were meant to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Windows(Vec<Window>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Window {
    requests: u64,
    latency: u64,
}

impl Window {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.latency = self.latency.saturating_add(other.latency);
    }

    fn mean(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.latency as f64 / self.requests as f64)
    }
}

/// How often a run was above a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Above {
    /// Share of the windows.
    pub share: f64,
    /// Mean latency of the worst window over its limit, minus 1; below 0 where none is above.
    pub worst: f64,
}

impl Windows {
    /// A request that was meant to be sent `since` the beginning took `latency`, both in
    /// nanoseconds.
    #[inline]
    pub(crate) fn add(&mut self, since: u64, latency: u64) {
        let at = (since / WINDOW.0) as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, Window::default());
        }
        self.0[at].add(Window { requests: 1, latency });
    }

    /// Those of such numbers alone.
    #[must_use]
    pub fn part(&self, numbers: Range<usize>) -> Self {
        let end = numbers.end.min(self.0.len());
        Self(self.0.get(numbers.start..end).unwrap_or_default().to_vec())
    }

    /// How often the mean latency of a window was more than `factor` times that of `reference` in
    /// the same window; `None` without requests in both.
    #[must_use]
    pub fn above(&self, reference: &Self, factor: f64) -> Option<Above> {
        let ratios = self.beside(reference);
        let ratios = ratios.iter().filter_map(|[own, its]| Some(own.mean()? / its.mean()?));
        let excess: Vec<f64> = ratios.map(|ratio| ratio / factor - 1.0).collect();
        let above = excess.iter().filter(|excess| **excess > 0.0).count();
        let worst = excess.iter().copied().reduce(f64::max)?;
        Some(Above { share: above as f64 / excess.len() as f64, worst })
    }

    /// The windows of both, each with enough requests of both.
    fn beside(&self, other: &Self) -> Vec<[Window; 2]> {
        let at = |all: &Self, at| all.0.get(at).copied().unwrap_or_default();
        let mut done: Vec<[Window; 2]> = Vec::new();
        let mut open = [Window::default(); 2];
        for index in 0..self.0.len().max(other.0.len()) {
            open[0].add(at(self, index));
            open[1].add(at(other, index));
            if open.iter().all(|window| window.requests >= FEWEST) {
                done.push(std::mem::take(&mut open));
            }
        }
        // What is left at the end counts with the last.
        match done.last_mut() {
            Some(last) => last.iter_mut().zip(open).for_each(|(last, open)| last.add(open)),
            None => done.push(open),
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many requests of this latency in each window.
    fn windows(all: &[(u64, u64)]) -> Windows {
        let mut windows = Windows::default();
        for (at, &(requests, latency)) in all.iter().enumerate() {
            (0..requests).for_each(|_| windows.add(at as u64 * WINDOW.0 + 7, latency));
        }
        windows
    }

    #[test]
    fn each_window_is_beside_the_same_of_the_reference() {
        let reference = windows(&[(200, 100), (200, 1000), (200, 100), (200, 100)]);
        let run = windows(&[(200, 110), (200, 1100), (200, 150), (200, 100)]);
        let above = run.above(&reference, 1.2).unwrap();
        assert_eq!(above.share, 0.25);
        assert!((above.worst - 0.25).abs() < 1e-9, "{above:?}");
        assert_eq!(reference.above(&reference, 1.0).unwrap(), Above { share: 0.0, worst: 0.0 });
    }

    #[test]
    fn windows_with_few_requests_count_together() {
        let reference = windows(&[(60, 100), (60, 100), (0, 0), (3, 100), (100, 100), (1, 100)]);
        // Alone the third request of many would be above.
        let run = windows(&[(60, 100), (60, 130), (0, 0), (3, 900), (100, 100), (1, 900)]);
        let above = run.above(&reference, 1.2).unwrap();
        assert_eq!((above.share, run.beside(&reference).len()), (0.5, 2), "{above:?}");
        assert_eq!(Windows::default().above(&Windows::default(), 1.2), None);
    }
}
