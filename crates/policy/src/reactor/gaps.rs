//! How long a core that may block polls on after work: as long as the gaps between work that it
//! has learned make polling pay.
//!
//! To block costs the next request a wake-up, to poll costs the core's time. Let a wake-up be
//! worth `price` of that. A core that polls for `spin` after work, then blocks, pays for each gap
//!
//! ```text
//! E[min(gap, spin)] + P(gap > spin) price
//! ```
//!
//! The spin with the least of it is ski rental with the distribution known (Karlin et al.,
//! "Competitive Randomized Algorithms for Nonuniform Problems", 1994). It is never above `price`,
//! which is what blocking at once pays: whatever the gaps, polling takes no more than the rate of
//! work times `price` of a core. Where work comes denser than `price`, polling for ever is least.

use crate::units::Nanos;

/// The shortest spin. A fine step comes within it and sees what has come.
pub(super) const SHORTEST: Nanos = Nanos::from_micros(16);
/// Spins told apart, each twice the one before: the longest is 32.768 ms.
const SPINS: usize = 12;
/// Weight of the newest gap: some 30 are remembered.
const NEWEST: f64 = 1.0 / 32.0;
/// Of spins that cost nearly the least, the longest is taken: it wakes the core least often.
const NEARLY: f64 = 1.05;

/// The gaps between work, of late.
#[derive(Debug, Clone)]
pub(super) struct Gaps {
    /// Core time that a wake-up is worth, in nanoseconds.
    price: f64,
    /// Shares of gaps that the spin of each number reaches and no shorter one does, and of those
    /// that none reaches.
    shares: [f64; SPINS + 1],
    /// The last work; none before the first.
    last: Option<Nanos>,
}

impl Gaps {
    /// Of a server that has been idle so far.
    pub fn new(price: Nanos) -> Self {
        let mut shares = [0.0; SPINS + 1];
        shares[SPINS] = 1.0;
        Self { price: price.0 as f64, shares, last: None }
    }

    /// Learns that the last work was done at `at`. Whether that is news.
    pub fn learn(&mut self, at: Nanos) -> bool {
        let gap = self.quiet(at);
        if at == Nanos::ZERO || gap == Nanos::ZERO {
            return false;
        }
        self.last = Some(at);
        let number = (0..SPINS).find(|number| gap <= length(*number)).unwrap_or(SPINS);
        self.shares.iter_mut().for_each(|share| *share *= 1.0 - NEWEST);
        self.shares[number] += NEWEST;
        true
    }

    /// How long there has been no work by `now`.
    pub fn quiet(&self, now: Nanos) -> Nanos {
        self.last.map_or(Nanos(u64::MAX), |last| now.saturating_sub(last))
    }

    /// How long to poll on after work before blocking.
    pub fn spin(&self) -> Nanos {
        let (mut polled, mut longer) = (0.0, 1.0);
        let costs: [f64; SPINS] = std::array::from_fn(|number| {
            let spin = length(number).0 as f64;
            // A gap lies between this spin and half of it.
            polled += self.shares[number] * 0.75 * spin;
            longer -= self.shares[number];
            polled + longer * (spin + self.price)
        });
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let number = costs.iter().rposition(|cost| *cost <= NEARLY * least);
        length(number.unwrap_or(0))
    }
}

fn length(number: usize) -> Nanos {
    Nanos(SHORTEST.0 << number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PRICE: Nanos = Nanos::from_micros(300);

    fn after(gaps: impl IntoIterator<Item = u64>) -> Gaps {
        let (mut learned, mut at) = (Gaps::new(PRICE), Nanos::from_secs(1));
        for gap in gaps {
            at += Nanos(gap);
            learned.learn(at);
        }
        learned
    }

    #[test]
    fn an_idle_server_hardly_spins_and_a_dense_stream_is_polled() {
        assert_eq!(after([]).spin(), SHORTEST);
        assert_eq!(after([10_000_000; 500]).spin(), SHORTEST);
        assert_eq!(after([100_000; 500]).spin(), length(SPINS - 1));
        // A second's request that a drive answers in 90 us: the answer is waited for, no more.
        let answered = [1_000_000_000, 90_000].repeat(200);
        assert_eq!(after(answered).spin(), Nanos::from_micros(128));
    }

    #[test]
    fn a_stream_after_a_long_rest_is_polled_within_a_few_dozen_requests() {
        let mut gaps = vec![1_000_000_000; 300];
        gaps.extend([50_000; 40]);
        assert!(after(gaps).spin() >= Nanos::from_micros(64));
    }

    #[test]
    fn the_same_work_is_no_news_and_no_work_is_none() {
        let mut gaps = after([]);
        assert_eq!(gaps.quiet(Nanos::from_secs(1)), Nanos(u64::MAX));
        assert!(!gaps.learn(Nanos::ZERO));
        assert!(gaps.learn(Nanos(5)) && !gaps.learn(Nanos(5)));
        assert_eq!(gaps.quiet(Nanos(8)), Nanos(3));
    }

    proptest! {
        /// The bound, for any gaps that keep coming: the learned spin polls for no more than the
        /// price of a wake-up per gap, as far as 12 spins tell gaps apart.
        #[test]
        fn polling_takes_at_most_the_price_of_a_wake_up_for_each_gap(
            gaps in prop::collection::vec(1_000_u64..50_000_000, 1..8),
        ) {
            let spin = after(gaps.iter().copied().cycle().take(gaps.len() * 100)).spin();
            let polled: u64 = gaps.iter().map(|gap| spin.0.min(*gap)).sum();
            let each = polled as f64 / gaps.len() as f64;
            // A gap may be a third longer than it is taken for, and the newest weigh more.
            prop_assert!(each <= 1.5 * PRICE.0 as f64, "{each} ns polled, spin {spin}");
        }
    }
}
