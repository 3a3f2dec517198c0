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
//! which is what blocking at once pays. Where work comes denser than `price`, polling for ever is
//! least. Gaps that change faster than they are learned could make it dearer, so an account bounds
//! it: each work brings `price`, polling takes from it, and no spin is longer than what is left.
//! Whatever the gaps, polling takes no more than the rate of work times `price` of a core.

use crate::units::Nanos;

/// The shortest spin. A fine step comes within it and sees what has come.
pub(super) const SHORTEST: Nanos = Nanos::from_micros(16);
/// Spins told apart, each twice the one before: the longest is 8.192 ms.
const SPINS: usize = 10;
/// Weight of the newest gap: some 30 are remembered.
const NEWEST: f64 = 1.0 / 32.0;
/// Prices that the account holds at most: some 10 ms.
const ACCOUNT: f64 = 32.0;
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
    /// Core time that may be polled for, in nanoseconds.
    account: f64,
    spin: Nanos,
}

impl Gaps {
    /// Of a server that has been idle so far.
    pub fn new(price: Nanos) -> Self {
        let mut shares = [0.0; SPINS + 1];
        shares[SPINS] = 1.0;
        let price = price.0 as f64;
        Self { price, shares, last: None, account: 0.0, spin: SHORTEST }
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
        let left = self.account - gap.min(self.spin).0 as f64;
        self.account = (left + self.price).clamp(0.0, ACCOUNT * self.price);
        self.spin = self.cheapest();
        true
    }

    /// How long there has been no work by `now`.
    pub fn quiet(&self, now: Nanos) -> Nanos {
        self.last.map_or(Nanos(u64::MAX), |last| now.saturating_sub(last))
    }

    /// How long to poll on after work before blocking.
    pub fn spin(&self) -> Nanos {
        self.spin
    }

    /// Of spins that the account affords, and the shortest.
    fn cheapest(&self) -> Nanos {
        let (mut polled, mut longer) = (0.0, 1.0);
        let costs: [f64; SPINS] = std::array::from_fn(|number| {
            let spin = length(number).0 as f64;
            // A gap lies between this spin and half of it.
            polled += self.shares[number] * 0.75 * spin;
            longer -= self.shares[number];
            match number == 0 || spin <= self.account {
                true => polled + longer * (spin + self.price),
                false => f64::INFINITY,
            }
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
        /// The bound, for any gaps in any order: bunches of work with long gaps between them, too.
        #[test]
        fn polling_takes_at_most_the_price_of_a_wake_up_for_each_gap(
            parts in prop::collection::vec((1_000_u64..50_000_000, 1_usize..100), 1..40),
        ) {
            let (mut learned, mut at) = (after([]), Nanos::from_secs(1));
            let (mut polled, mut count) = (0, 0);
            for gap in parts.into_iter().flat_map(|(gap, times)| std::iter::repeat_n(gap, times)) {
                polled += learned.spin().0.min(gap);
                count += 1;
                at += Nanos(gap);
                learned.learn(at);
            }
            prop_assert!(polled <= count * PRICE.0, "{polled} ns polled in {count} gaps");
        }
    }
}
