//! How often each request size occurs.

use std::collections::BTreeMap;

/// Different sizes counted exactly; traces have a few hundred at most.
const DIFFERENT: usize = 4096;

/// Counts by size, bounded: once there are 4096 different sizes a new one counts as the next power
/// of two.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sizes {
    counts: BTreeMap<u32, u64>,
    total: u64,
    last: Option<(u32, u64)>,
}

impl Sizes {
    /// Counts one request.
    pub(crate) fn push(&mut self, bytes: u32) {
        self.total += 1;
        match &mut self.last {
            // Runs of one size are the rule.
            Some((size, run)) if *size == bytes => *run += 1,
            _ => {
                self.settle();
                self.last = Some((bytes, 1));
            }
        }
    }

    fn settle(&mut self) {
        let Some((bytes, run)) = self.last.take() else { return };
        let known = self.counts.len() < DIFFERENT || self.counts.contains_key(&bytes);
        let size =
            if known { bytes } else { bytes.checked_next_power_of_two().unwrap_or(u32::MAX) };
        *self.counts.entry(size).or_default() += run;
    }

    /// The distribution so far: sizes in ascending order with their counts.
    pub(crate) fn counts(&mut self) -> &BTreeMap<u32, u64> {
        self.settle();
        &self.counts
    }

    /// The smallest size that at least `share` of all requests do not exceed; 0 without any.
    pub(crate) fn quantile(&mut self, share: f64) -> u32 {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (size, count) in self.counts() {
            seen += count;
            if seen >= wanted {
                return *size;
            }
        }
        0
    }

    /// The `most` most frequent sizes with their shares, the most frequent first.
    pub(crate) fn top(&mut self, most: usize) -> Vec<(u32, f64)> {
        let total = self.total as f64;
        let mut all: Vec<_> = self.counts().iter().map(|(size, count)| (*size, *count)).collect();
        all.sort_by_key(|(size, count)| (std::cmp::Reverse(*count), *size));
        all.truncate(most);
        all.into_iter().map(|(size, count)| (size, count as f64 / total)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_shares_are_exact() {
        let mut sizes = Sizes::default();
        for size in [4096, 512, 4096, 8192, 4096, 512, 4096, 65_536, 4096, 4096] {
            sizes.push(size);
        }
        assert_eq!(
            (sizes.quantile(0.5), sizes.quantile(0.95), sizes.quantile(0.0)),
            (4096, 65_536, 512)
        );
        assert_eq!(sizes.top(2), [(4096, 0.6), (512, 0.2)]);
        assert_eq!(Sizes::default().quantile(0.5), 0);
    }

    #[test]
    fn more_sizes_than_can_be_counted_fall_into_powers_of_two() {
        let mut sizes = Sizes::default();
        for size in 1..=100_000 {
            sizes.push(size);
        }
        assert!(sizes.counts().len() <= DIFFERENT + 33);
        assert_eq!(sizes.counts().values().sum::<u64>(), 100_000);
        assert_eq!(sizes.quantile(1.0), 131_072);
    }
}
