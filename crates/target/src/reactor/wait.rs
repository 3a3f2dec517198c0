//! Dozing: sleeping on a watched cache line, or the nearest thing this CPU has.

use std::hint::spin_loop;

use ebb_policy::units::Nanos;
use rustix::thread::futex;
use rustix::time::Timespec;

use super::bell::{Bell, FUTEX, WATCHING};
use super::clock::Clock;
use super::hardware::{self, Watch, Watcher};

/// How a core dozes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// UMONITOR and UMWAIT to C0.1 (x86 WAITPKG): a store wakes it.
    UmwaitC01,
    /// UMONITOR and UMWAIT to C0.2, deeper: a store wakes it.
    UmwaitC02,
    /// MONITORX and MWAITX (AMD): a store wakes it.
    Mwaitx,
    /// Load-exclusive and WFE (Arm): a store wakes it.
    Wfe,
    /// Watches the line by reading it, sleeping never: a store wakes it.
    Spin,
    /// Watches the line by reading it for `spin`, then waits in the kernel. Only then does waking
    /// it cost the sender a system call.
    Futex {
        /// How long to spin before the system call.
        spin: Nanos,
    },
}

/// Why this machine cannot doze as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} is not to be had: {reason}", strategy.name())]
pub struct Unavailable {
    /// What was asked for.
    pub strategy: Strategy,
    /// What is missing.
    pub reason: &'static str,
}

impl Strategy {
    /// Spins as long as a futex wake-up costs: then waiting is at worst twice as dear as knowing
    /// beforehand which to choose.
    pub const FUTEX: Self = Self::Futex { spin: Nanos::from_micros(5) };

    /// Every one there is, the most thrifty of those that a store wakes first.
    pub const ALL: [Self; 6] =
        [Self::UmwaitC02, Self::UmwaitC01, Self::Mwaitx, Self::Wfe, Self::FUTEX, Self::Spin];

    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UmwaitC01 => "umwait-c0.1",
            Self::UmwaitC02 => "umwait-c0.2",
            Self::Mwaitx => "mwaitx",
            Self::Wfe => "wfe",
            Self::Spin => "spin",
            Self::Futex { .. } => "futex",
        }
    }

    /// The best this machine has: a watched line if its CPU can, else [`Strategy::FUTEX`].
    #[must_use]
    pub fn best() -> Self {
        let hardware = |strategy: &Self| strategy.watch().is_some() && strategy.check().is_ok();
        Self::ALL.into_iter().find(hardware).unwrap_or(Self::FUTEX)
    }

    /// Whether this machine has it.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(self) -> Result<(), Unavailable> {
        match self.watch() {
            Some((watch, reason)) if Watcher::new(watch).is_none() => {
                Err(Unavailable { strategy: self, reason })
            }
            _ => Ok(()),
        }
    }

    /// The CPU's part, and what its absence means.
    fn watch(self) -> Option<(Watch, &'static str)> {
        let waitpkg = "the CPU or its hypervisor offers no WAITPKG (CPUID 7.0 ECX bit 5)";
        let mwaitx = "the CPU or its hypervisor offers no MONITORX (CPUID 8000_0001 ECX bit 29)";
        let wfe = "it needs an Arm CPU whose kernel runs the event stream (evtstrm)";
        match self {
            Self::UmwaitC01 => Some((Watch::UmwaitC01, waitpkg)),
            Self::UmwaitC02 => Some((Watch::UmwaitC02, waitpkg)),
            Self::Mwaitx => Some((Watch::Mwaitx, mwaitx)),
            Self::Wfe => Some((Watch::Wfe, wfe)),
            Self::Spin | Self::Futex { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Means {
    Hardware(Watcher),
    Spin,
    Futex { spin: Nanos },
}

/// Carries out a [`Strategy`].
#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    means: Means,
    clock: Clock,
    /// CPU ticks in a microsecond.
    ticks: u64,
}

impl Waiter {
    /// A waiter whose deadlines are times of `clock`.
    ///
    /// # Errors
    /// When this machine lacks what `strategy` needs.
    pub fn new(strategy: Strategy, clock: Clock) -> Result<Self, Unavailable> {
        let means = match (strategy, strategy.watch()) {
            (_, Some((watch, reason))) => {
                let none = Unavailable { strategy, reason };
                Means::Hardware(Watcher::new(watch).ok_or(none)?)
            }
            (Strategy::Futex { spin }, None) => Means::Futex { spin },
            (_, None) => Means::Spin,
        };
        let ticks = if matches!(means, Means::Hardware(_)) { ticks_per_micro(clock) } else { 0 };
        Ok(Self { means, clock, ticks })
    }

    /// Sleeps until `bell` is rung or `deadline` has come, unless `published` finds something
    /// after the announcement. May also return early.
    #[inline]
    pub fn wait(&self, bell: &Bell, deadline: Option<Nanos>, published: impl FnOnce() -> bool) {
        bell.announce(WATCHING);
        if !published() {
            match self.means {
                Means::Hardware(watcher) => self.watch(watcher, bell, deadline),
                Means::Spin => {
                    self.spin(bell, deadline);
                }
                Means::Futex { spin } => self.futex(bell, spin, deadline),
            }
        }
        bell.retract();
    }

    /// Sleeps at least until `end` unless `bell` is rung: hybrid polling's nap. Spins for none
    /// of it.
    pub fn nap(&self, bell: &Bell, end: Option<Nanos>, published: impl FnOnce() -> bool) {
        let means = match self.means {
            Means::Futex { .. } | Means::Spin => Means::Futex { spin: Nanos::ZERO },
            hardware @ Means::Hardware(_) => hardware,
        };
        Self { means, ..*self }.wait(bell, end, published);
    }

    /// Goes to sleep as [`Waiter::wait`] and straight out again, with nothing to wait for: what
    /// entering costs. WFE has no timer: with it this lasts until the event stream's next tick.
    pub(super) fn touch(&self, bell: &Bell) {
        bell.announce(WATCHING);
        match self.means {
            Means::Hardware(watcher) => watcher.wait(bell.word(), WATCHING, 0),
            Means::Spin => {}
            // The word is not as given, so the kernel does not put us to sleep.
            Means::Futex { .. } => {
                let _ = futex::wait(bell.word(), futex::Flags::PRIVATE, FUTEX, None);
            }
        }
        bell.retract();
    }

    fn watch(&self, watcher: Watcher, bell: &Bell, deadline: Option<Nanos>) {
        while !bell.is_rung() {
            let Some(left) = self.left(deadline) else { return };
            let ticks = left.map_or(u64::MAX, |left| left.0.saturating_mul(self.ticks) / 1000);
            watcher.wait(bell.word(), WATCHING, ticks);
        }
    }

    /// Reads the line until it is rung (`true`) or `end` has come.
    fn spin(&self, bell: &Bell, end: Option<Nanos>) -> bool {
        loop {
            for _ in 0..8 {
                if bell.is_rung() {
                    return true;
                }
                spin_loop();
            }
            if self.left(end).is_none() {
                return false;
            }
        }
    }

    fn futex(&self, bell: &Bell, spin: Nanos, deadline: Option<Nanos>) {
        let end = self.clock.now() + spin;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        if (spin > Nanos::ZERO && self.spin(bell, Some(end))) || !bell.deepen() {
            return;
        }
        while !bell.is_rung() {
            let Some(left) = self.left(deadline) else { return };
            let timeout = left.map(timespec);
            // An error is a changed word, the timeout, or a signal: the loop looks again.
            let _ = futex::wait(bell.word(), futex::Flags::PRIVATE, FUTEX, timeout.as_ref());
        }
    }

    /// Time left, if bounded; `None` when none is.
    fn left(&self, deadline: Option<Nanos>) -> Option<Option<Nanos>> {
        let Some(deadline) = deadline else { return Some(None) };
        let now = self.clock.now();
        (now < deadline).then(|| Some(deadline - now))
    }
}

/// As the kernel takes it.
pub(super) fn timespec(time: Nanos) -> Timespec {
    let second = 1_000_000_000;
    Timespec { tv_sec: (time.0 / second) as i64, tv_nsec: (time.0 % second) as _ }
}

/// Wakes a sleeper that had announced [`FUTEX`].
pub(super) fn wake(bell: &Bell) {
    // It can only fail for a bad address.
    let _ = futex::wake(bell.word(), futex::Flags::PRIVATE, 1);
}

fn ticks_per_micro(clock: Clock) -> u64 {
    let (from, at) = (hardware::ticks(), clock.now());
    let span = Nanos::from_micros(200);
    while clock.now() < at + span {
        spin_loop();
    }
    let passed = clock.now() - at;
    (hardware::ticks().wrapping_sub(from)).saturating_mul(1000) / passed.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn there() -> impl Iterator<Item = Strategy> {
        Strategy::ALL.into_iter().filter(|strategy| strategy.check().is_ok())
    }

    #[test]
    fn what_is_missing_is_named() {
        for strategy in Strategy::ALL {
            let made = Waiter::new(strategy, Clock::start());
            assert_eq!(made.is_ok(), strategy.check().is_ok());
            if let Err(error) = made {
                assert!(error.to_string().contains(strategy.name()), "{error}");
            }
        }
        assert!(Strategy::best().check().is_ok());
    }

    #[test]
    fn published_work_and_deadlines_end_a_wait() {
        for strategy in there() {
            let clock = Clock::start();
            let waiter = Waiter::new(strategy, clock).unwrap();
            let bell = Bell::default();
            waiter.wait(&bell, None, || true);
            let deadline = clock.now() + Nanos::from_micros(50);
            waiter.wait(&bell, Some(deadline), || false);
            assert!(clock.now() >= deadline, "{}", strategy.name());
            let end = clock.now() + Nanos::from_micros(50);
            waiter.nap(&bell, Some(end), || false);
            assert!(clock.now() >= end && bell.is_rung(), "{}", strategy.name());
        }
    }

    #[test]
    fn no_ring_is_lost() {
        const TURNS: u32 = 2000;
        for strategy in there() {
            let bells = [Bell::default(), Bell::default()];
            let turn = AtomicU32::new(0);
            let waiter = Waiter::new(strategy, Clock::start()).unwrap();
            std::thread::scope(|scope| {
                for me in 0..2_u32 {
                    let (bells, turn) = (&bells, &turn);
                    scope.spawn(move || {
                        let mine = || turn.load(Ordering::Acquire) % 2 == me;
                        loop {
                            while !mine() {
                                waiter.wait(&bells[me as usize], None, mine);
                            }
                            let now = turn.load(Ordering::Acquire);
                            turn.store(now + 1, Ordering::Release);
                            let other = &bells[1 - me as usize];
                            if other.ring() == FUTEX {
                                wake(other);
                            }
                            if now >= TURNS {
                                break;
                            }
                        }
                    });
                }
            });
            assert!(turn.into_inner() > TURNS);
        }
    }
}
