//! What a host may do in a second: token buckets, charged as its commands are taken up, by
//! whichever threads carry its connections. Two are the operator's; a third one is lent to whoever
//! keeps a budget, who has to ask for it again and again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ebb_policy::units::Nanos;

use super::ends::Ends;
use super::lock::lock;

/// What a host that was idle may do at once: its allowance of so long.
const BURST: Nanos = Nanos::from_millis(10);

/// Least limits: less would keep commands waiting for longer than hosts wait for them.
pub const LEAST_IOPS: u64 = 10;
/// Likewise.
pub const LEAST_BYTES_PER_SECOND: u64 = 64 << 10;

/// Tokens that come at an even rate (the virtual scheduling of ITU-T I.371: one number says when
/// all that was taken has come).
#[derive(Debug, Default)]
struct Bucket {
    /// Tokens a second; zero for no limit.
    rate: u64,
    /// The rate that `paid` is by.
    by: u64,
    /// When all tokens that were taken have come.
    paid: Nanos,
}

impl Bucket {
    fn set(&mut self, per_second: Option<u64>) {
        match per_second {
            Some(rate) => self.rate = rate.max(1),
            None => *self = Self::default(),
        }
    }

    fn get(&self) -> Option<u64> {
        Some(self.rate).filter(|rate| *rate > 0)
    }

    /// What is owed are tokens: where the rate has changed, they come at the new one from now on.
    fn settle(&mut self, now: Nanos) {
        if self.by != self.rate {
            let owed = u128::from(self.paid.saturating_sub(now).0) * u128::from(self.by);
            let time = owed / u128::from(self.rate.max(1));
            self.paid = Nanos(now.0.saturating_add(time.try_into().unwrap_or(u64::MAX)));
            self.by = self.rate;
        }
    }

    /// Until when the next command must wait.
    fn ready(&mut self, now: Nanos) -> Nanos {
        self.settle(now);
        self.paid.saturating_sub(BURST)
    }

    fn take(&mut self, tokens: u32, now: Nanos) {
        self.settle(now);
        if self.rate > 0 {
            let time = (u64::from(tokens) * 1_000_000_000).div_ceil(self.rate);
            self.paid = Nanos(self.paid.max(now).0.saturating_add(time));
        }
    }
}

/// The limits of a host; `None` for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    /// I/O commands a second.
    pub iops: Option<u64>,
    /// Bytes of data a second.
    pub bytes_per_second: Option<u64>,
}

/// What all queues of a host share.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// All that is looked at for hosts without limits.
    is_set: AtomicBool,
    buckets: Mutex<Buckets>,
    /// Those of them that have ended.
    pub ends: Ends,
}

#[derive(Debug, Default)]
struct Buckets {
    commands: Bucket,
    bytes: Bucket,
    lent: Bucket,
    /// Until when.
    until: Option<Instant>,
}

impl Allowance {
    fn change(&self, change: impl FnOnce(&mut Buckets)) {
        let mut buckets = lock(&self.buckets);
        change(&mut buckets);
        let Buckets { commands, bytes, lent, .. } = &*buckets;
        let is_set = [commands, bytes, lent].iter().any(|bucket| bucket.get().is_some());
        self.is_set.store(is_set, Ordering::Release);
    }

    pub fn set(&self, allowed: Allowed) {
        self.change(|buckets| {
            buckets.commands.set(allowed.iops);
            buckets.bytes.set(allowed.bytes_per_second);
        });
    }

    pub fn get(&self) -> Allowed {
        let buckets = lock(&self.buckets);
        Allowed { iops: buckets.commands.get(), bytes_per_second: buckets.bytes.get() }
    }

    /// Sets the bytes a second that are lent, and until when.
    pub fn lend(&self, loan: Option<(u64, Instant)>) {
        self.change(|buckets| {
            buckets.until = loan.map(|(_, until)| until);
            buckets.lent.set(loan.map(|(bytes_per_second, _)| bytes_per_second));
        });
    }

    /// Lends no longer what was lent until `now` at most.
    pub fn end_loan(&self, now: Instant) {
        self.change(|buckets| {
            if buckets.until.take_if(|until| *until <= now).is_some() {
                buckets.lent.set(None);
            }
        });
    }

    pub fn lent(&self) -> Option<u64> {
        lock(&self.buckets).lent.get()
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Until when the host's next command must wait, as its limits are now; `None` if it need not.
    pub fn wait(&self, now: Nanos) -> Option<Nanos> {
        if !self.is_set() {
            return None;
        }
        let Buckets { commands, bytes, lent, .. } = &mut *lock(&self.buckets);
        let ready = commands.ready(now).max(bytes.ready(now)).max(lent.ready(now));
        (ready > now).then_some(ready)
    }

    /// A command that moves so many `bytes` is taken up.
    pub fn charge(&self, bytes: u32, now: Nanos) {
        if self.is_set() {
            let mut buckets = lock(&self.buckets);
            buckets.commands.take(1, now);
            buckets.bytes.take(bytes, now);
            buckets.lent.take(bytes, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const TEN_YEARS: Nanos = Nanos::from_secs(10 * 365 * 24 * 3600);

    /// Commands and bytes taken up in `seconds` from `now`, the clock read every `step`.
    fn run(allowed: Allowed, bytes: u32, step: u64, mut now: Nanos, seconds: u64) -> (u64, u64) {
        let (allowance, mut commands) = (Allowance::default(), 0);
        allowance.set(allowed);
        let end = now + Nanos::from_secs(seconds);
        while now < end {
            while allowance.wait(now).is_none() && commands < 10_000_000 {
                allowance.charge(bytes, now);
                commands += 1;
            }
            now += Nanos(step);
        }
        (commands, commands * u64::from(bytes))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Both limits hold over any time but for the first burst and one command, and the tighter
        /// one is used up.
        #[test]
        fn limits_hold_and_are_used(
            iops in LEAST_IOPS..50_000,
            rate in LEAST_BYTES_PER_SECOND..1 << 31,
            bytes in prop::sample::select(vec![512_u32, 4096, 65536, 131_072]),
            step in 1_000_u64..5_000_000,
            from in prop::sample::select(vec![Nanos(1), Nanos::from_secs(3), TEN_YEARS]),
        ) {
            let allowed = Allowed { iops: Some(iops), bytes_per_second: Some(rate) };
            let (commands, moved) = run(allowed, bytes, step, from, 4);
            let most = |rate: u64| rate * 4 + rate / 50 + 1;
            prop_assert!(commands <= most(iops), "{} of {}", commands, iops);
            prop_assert!(moved <= most(rate) + u64::from(bytes), "{} of {}", moved, rate);
            let used = (commands * 100 / iops).max(moved * 100 / rate);
            prop_assert!(used >= 4 * 97, "{used}");
        }
    }

    #[test]
    fn what_is_not_set_does_not_wait() {
        let allowance = Allowance::default();
        (0..1000).for_each(|_| allowance.charge(1 << 20, Nanos::ZERO));
        assert_eq!(allowance.wait(Nanos::ZERO), None);
        let allowed = Allowed { iops: Some(10), bytes_per_second: None };
        allowance.set(allowed);
        assert_eq!(allowance.get(), allowed);
        allowance.charge(0, Nanos::ZERO);
        assert_eq!(allowance.wait(Nanos::ZERO), Some(Nanos(90_000_000)));
        allowance.set(Allowed::default());
        assert_eq!(allowance.wait(Nanos::ZERO), None);
    }

    #[test]
    fn what_is_owed_comes_at_the_rate_of_now() {
        for start in [Nanos(1), TEN_YEARS] {
            let allowance = Allowance::default();
            let set = |rate| allowance.set(Allowed { iops: None, bytes_per_second: rate });
            let left = |at: Nanos| allowance.wait(at).map(|until| until + BURST - at);
            set(Some(1 << 20));
            allowance.charge(4 << 20, start);
            let now = start + Nanos::from_secs(2);
            assert_eq!(left(now), Some(Nanos::from_secs(2)));
            for (rate, seconds) in [(1 << 21, 1), (1 << 21, 1), (1 << 19, 4), (1 << 20, 2)] {
                set(Some(rate));
                assert_eq!(left(now), Some(Nanos::from_secs(seconds)));
            }
            set(Some(1 << 40));
            assert_eq!(left(now), None);
            set(Some(1));
            allowance.charge(u32::MAX, now);
            set(None);
            assert_eq!(left(now), None);
            set(Some(1));
            assert_eq!(left(now), None, "who was let go owes nothing");
        }
    }

    #[test]
    fn the_lower_of_both_limits_holds_and_a_loan_ends() {
        let (allowance, start) = (Allowance::default(), Instant::now());
        let rate = |at: u64| {
            allowance.charge(1 << 20, Nanos::from_secs(at));
            let wait = allowance.wait(Nanos::from_secs(at)).unwrap() - Nanos::from_secs(at);
            (f64::from(1 << 20) / (wait.seconds() + BURST.seconds())).round()
        };
        allowance.set(Allowed { iops: None, bytes_per_second: Some(1 << 18) });
        allowance.lend(Some((1 << 17, start + Duration::from_secs(3))));
        assert_eq!((rate(10), allowance.lent()), (f64::from(1 << 17), Some(1 << 17)));
        allowance.end_loan(start + Duration::from_secs(2));
        assert_eq!(rate(100), f64::from(1 << 17));
        allowance.end_loan(start + Duration::from_secs(3));
        assert_eq!((rate(1000), allowance.lent()), (f64::from(1 << 18), None));
        allowance.set(Allowed::default());
        assert!(!allowance.is_set());
    }
}
