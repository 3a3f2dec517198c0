//! What became of authentications: counted, the last failures kept, and who fails again and again
//! made to wait.
//!
//! Whoever fails may do so in another's name, from its address. So what waits is each attempt by
//! itself, from when it began, and none behind others: who has the key waits once and gets in.
//! What a guess costs is a connection that is held for as long.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use ebb_policy::units::Nanos;

use super::helper::network;

/// Failures in a row after which a host at an address has to wait.
const FREE: u32 = 3;
/// Time from the beginning of each of its attempts to the first answer from then on.
const PACE: Nanos = Nanos::from_secs(2);
/// After so long without a failure there was none.
const MEMORY: Nanos = Nanos::from_secs(60);
/// Hosts at addresses that are remembered at once.
const REMEMBERED: usize = 1024;
/// Failures that are kept.
const KEPT: usize = 32;

/// A failed authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which, counted from 1.
    pub number: u64,
    /// When, from the start of the target.
    pub at: Nanos,
    /// NQN of the host, as whoever failed says.
    pub host: String,
    /// Where it came from.
    pub address: IpAddr,
    /// Why.
    pub why: String,
}

/// Authentications so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Queues whose host has shown that it has the key, each time again.
    pub succeeded: u64,
    /// Those that failed.
    pub failed: u64,
}

/// Who fails, and how often in a row.
struct Failing {
    count: u32,
    last: Nanos,
}

impl Failing {
    fn is_remembered(&self, now: Nanos) -> bool {
        now.saturating_sub(self.last) < MEMORY
    }
}

#[derive(Default)]
pub(super) struct Attempts {
    tally: Tally,
    failures: VecDeque<Failure>,
    failing: BTreeMap<(IpAddr, String), Failing>,
}

impl Attempts {
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The last failures, oldest first, of those after `number`.
    pub fn failures(&self, number: u64) -> Vec<Failure> {
        self.failures.iter().filter(|failure| failure.number > number).cloned().collect()
    }

    /// When an attempt that began at `begun` may be answered, as is known now: whatever the
    /// answer, so that none that is late tells of a wrong key sooner.
    pub fn not_before(&self, host: &str, address: IpAddr, begun: Nanos, now: Nanos) -> Nanos {
        let its = self.failing.get(&(network(address), host.to_owned()));
        match its.is_some_and(|its| its.count >= FREE && its.is_remembered(now)) {
            true => begun + PACE,
            false => begun,
        }
    }

    pub fn succeeded(&mut self, host: &str, address: IpAddr) {
        self.tally.succeeded += 1;
        self.failing.remove(&(network(address), host.to_owned()));
    }

    pub fn failed(&mut self, host: &str, address: IpAddr, why: String, now: Nanos) {
        self.tally.failed += 1;
        if self.failures.len() == KEPT {
            self.failures.pop_front();
        }
        let (number, host) = (self.tally.failed, host.to_owned());
        let failure = Failure { number, at: now, host: host.clone(), address, why };
        self.failures.push_back(failure);
        let key = (network(address), host);
        if !self.failing.contains_key(&key) && self.failing.len() >= REMEMBERED {
            let oldest = self.failing.iter().min_by_key(|(_, failing)| failing.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.failing.remove(&oldest);
            }
        }
        let failing = self.failing.entry(key).or_insert(Failing { count: 0, last: now });
        let before = if failing.is_remembered(now) { failing.count } else { 0 };
        *failing = Failing { count: before.saturating_add(1), last: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2026-01.org.example:host";
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn fail(attempts: &mut Attempts, times: u32, now: Nanos) {
        (0..times).for_each(|_| attempts.failed(HOST, HERE, "wrong".to_owned(), now));
    }

    #[test]
    fn who_fails_again_and_again_waits_and_nobody_else() {
        let (mut attempts, now) = (Attempts::default(), Nanos::from_secs(100));
        fail(&mut attempts, FREE - 1, now);
        assert_eq!(attempts.not_before(HOST, HERE, now, now), now);
        // However often, and however many attempts there are: each waits for itself.
        for times in [1, 1, 300] {
            fail(&mut attempts, times, now);
            assert_eq!(attempts.not_before(HOST, HERE, now, now), now + PACE);
        }
        // The host whose name is taken in vain comes from elsewhere.
        assert_eq!(attempts.not_before(HOST, THERE, now, now), now);
        let other = "nqn.2026-01.org.example:other";
        assert_eq!(attempts.not_before(other, HERE, now, now), now);
        attempts.succeeded(HOST, HERE);
        assert_eq!(attempts.not_before(HOST, HERE, now, now), now);
    }

    #[test]
    fn failures_are_forgotten_and_counted() {
        let (mut attempts, now) = (Attempts::default(), Nanos::from_secs(100));
        fail(&mut attempts, 40, now);
        let later = now + MEMORY;
        assert_eq!(attempts.not_before(HOST, HERE, later, later), later);
        assert_eq!(attempts.tally(), Tally { succeeded: 0, failed: 40 });
        let kept = attempts.failures(0);
        assert_eq!((kept.len(), kept[0].number, kept[31].number), (KEPT, 9, 40));
        assert_eq!(attempts.failures(39), kept[31..]);
        assert_eq!(attempts.failures(40), []);
        fail(&mut attempts, 1, later);
        assert_eq!(attempts.not_before(HOST, HERE, later, later), later, "it is the first again");
    }

    #[test]
    fn strangers_are_remembered_up_to_a_number() {
        let mut attempts = Attempts::default();
        for number in 0..3000_u32 {
            let address = IpAddr::from(number.to_be_bytes());
            attempts.failed(HOST, address, String::new(), Nanos(u64::from(number)));
        }
        assert_eq!(attempts.failing.len(), REMEMBERED);
        assert!(
            attempts.failing.contains_key(&(IpAddr::from(2999_u32.to_be_bytes()), HOST.into()))
        );
    }
}
