//! What a host may do in a second: token buckets, charged as its commands are taken up, by
//! whichever threads carry its connections. Two are the operator's; a third one is lent to whoever
//! keeps a budget, who has to ask for it again and again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ebb_policy::units::Nanos;

/// What a host that was idle may do at once: its allowance of so long.
const BURST: u64 = 10_000_000;
/// Units of a nanosecond that a token takes to come: a byte takes less than one.
const FRACTION: u64 = 1000;

/// Least limits: less would keep commands waiting for longer than hosts wait for them.
pub const LEAST_IOPS: u64 = 10;
/// Likewise.
pub const LEAST_BYTES_PER_SECOND: u64 = 64 << 10;

/// Tokens that come at an even rate (the virtual scheduling of ITU-T I.371: one number says when
/// all that was taken has come).
#[derive(Debug, Default)]
struct Bucket {
    /// Tokens a second, for who asks; zero for no limit.
    rate: AtomicU64,
    /// Thousandths of a nanosecond for a token; zero for no limit.
    each: AtomicU64,
    /// When all tokens that were taken have come, thousandths of a nanosecond.
    paid: AtomicU64,
}

impl Bucket {
    fn set(&self, per_second: Option<u64>) {
        let each = per_second.map_or(0, |rate| 1_000_000_000 * FRACTION / rate.max(1));
        self.rate.store(per_second.unwrap_or(0), Ordering::Relaxed);
        self.each.store(each, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// Until when the next command must wait.
    fn ready(&self) -> u64 {
        match self.each.load(Ordering::Relaxed) {
            0 => 0,
            _ => (self.paid.load(Ordering::Relaxed) / FRACTION).saturating_sub(BURST),
        }
    }

    fn take(&self, tokens: u64, now: Nanos) {
        let each = self.each.load(Ordering::Relaxed);
        if each == 0 {
            return;
        }
        let now = now.0.saturating_mul(FRACTION);
        let add = |paid: u64| Some(paid.max(now).saturating_add(tokens.saturating_mul(each)));
        let _ = self.paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
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
    is_set: AtomicBool,
    commands: Bucket,
    bytes: Bucket,
    lent: Bucket,
    /// Until when.
    until: Mutex<Option<Instant>>,
}

impl Allowance {
    pub fn set(&self, allowed: Allowed) {
        self.commands.set(allowed.iops);
        self.bytes.set(allowed.bytes_per_second);
        self.note();
    }

    pub fn get(&self) -> Allowed {
        Allowed { iops: self.commands.get(), bytes_per_second: self.bytes.get() }
    }

    /// Sets the bytes a second that are lent, and until when.
    pub fn lend(&self, loan: Option<(u64, Instant)>) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = loan.map(|(_, until)| until);
        self.lent.set(loan.map(|(bytes_per_second, _)| bytes_per_second));
        self.note();
    }

    /// Lends no longer what was lent until `now` at most.
    pub fn end_loan(&self, now: Instant) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.take_if(|until| *until <= now).is_some() {
            self.lent.set(None);
            self.note();
        }
    }

    pub fn lent(&self) -> Option<u64> {
        self.lent.get()
    }

    fn note(&self) {
        let is_set = self.get() != Allowed::default() || self.lent().is_some();
        self.is_set.store(is_set, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Until when the host's next command must wait; `None` if it need not.
    pub fn wait(&self, now: Nanos) -> Option<Nanos> {
        if !self.is_set() {
            return None;
        }
        let of = [&self.commands, &self.bytes, &self.lent].map(Bucket::ready);
        let ready = Nanos(of.into_iter().max().unwrap_or(0));
        (ready > now).then_some(ready)
    }

    /// A command that moves so many `bytes` is taken up.
    pub fn charge(&self, bytes: u32, now: Nanos) {
        if self.is_set() {
            self.commands.take(1, now);
            self.bytes.take(bytes.into(), now);
            self.lent.take(bytes.into(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// Commands and bytes taken up in `seconds`, the clock read every `step`.
    fn run(allowed: Allowed, bytes: u32, step: u64, seconds: u64) -> (u64, u64) {
        let allowance = Allowance::default();
        allowance.set(allowed);
        let (mut commands, mut now) = (0, Nanos::from_secs(3));
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
        ) {
            let allowed = Allowed { iops: Some(iops), bytes_per_second: Some(rate) };
            let (commands, moved) = run(allowed, bytes, step, 4);
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
    fn the_lower_of_both_limits_holds_and_a_loan_ends() {
        let (allowance, start) = (Allowance::default(), Instant::now());
        let rate = |at: u64| {
            allowance.charge(1 << 20, Nanos::from_secs(at));
            let wait = allowance.wait(Nanos::from_secs(at)).unwrap() - Nanos::from_secs(at);
            (f64::from(1 << 20) / (wait.seconds() + BURST as f64 / 1e9)).round()
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
