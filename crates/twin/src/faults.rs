//! Injected faults: a campaign of sensors and actuators that fail and recover, from a seed.
//!
//! The campaign depends on the seed and the server alone, never on what a policy does: the same
//! seed breaks the same things at the same times under every policy, for however long.

use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

use ebb_policy::units::Nanos;

/// Mean time between the beginnings of two faults.
const MEAN_GAP: Nanos = Nanos::from_secs(20);
/// Shortest and longest fault, seconds.
const LENGTHS: (f64, f64) = (5.0, 45.0);
/// Most kelvins by which a lying sensor is off.
const MOST_OFF: f64 = 25.0;

/// A campaign: its seed, and when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// What all of it is drawn from.
    pub seed: u64,
    /// When every fault has ended and no more begin; never when `None`.
    pub until: Option<Nanos>,
}

impl Faults {
    /// Faults without end.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, until: None }
    }
}

/// One thing that fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The sensor of this socket gives no reading.
    SensorLost(u16),
    /// The sensor of this socket repeats its last reading.
    SensorStuck(u16),
    /// The sensor of this socket is off by so many kelvins.
    SensorLying(u16, f64),
    /// The rotor of this fan is held.
    FanStalled(u16),
    /// This fan has no power.
    FanDead(u16),
    /// This fan keeps its duty whatever is asked.
    FanRefusing(u16),
    /// The cores of this socket keep their frequency whatever is asked; the hardware's own
    /// emergency throttling still works.
    FrequencyRefusing(u16),
}

impl Fault {
    /// What it is, for logs: `fault:…`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::SensorLost(_) => "fault:sensor-lost",
            Self::SensorStuck(_) => "fault:sensor-stuck",
            Self::SensorLying(..) => "fault:sensor-lying",
            Self::FanStalled(_) => "fault:fan-stalled",
            Self::FanDead(_) => "fault:fan-dead",
            Self::FanRefusing(_) => "fault:fan-refusing",
            Self::FrequencyRefusing(_) => "fault:frequency-refusing",
        }
    }
    /// What fails: `fan3`, `socket0`.
    #[must_use]
    pub fn part(&self) -> String {
        match self {
            Self::FanStalled(fan) | Self::FanDead(fan) | Self::FanRefusing(fan) => {
                format!("fan{fan}")
            }
            Self::SensorLost(socket)
            | Self::SensorStuck(socket)
            | Self::SensorLying(socket, _)
            | Self::FrequencyRefusing(socket) => format!("socket{socket}"),
        }
    }
    /// The fan that it harms.
    #[must_use]
    pub fn fan(&self) -> Option<u16> {
        match self {
            Self::FanStalled(fan) | Self::FanDead(fan) | Self::FanRefusing(fan) => Some(*fan),
            _ => None,
        }
    }
    /// Whether both concern the same sensor, fan or frequency.
    fn same_part(&self, other: &Self) -> bool {
        let frequency = |fault: &Self| matches!(fault, Self::FrequencyRefusing(_));
        self.part() == other.part() && frequency(self) == frequency(other)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SensorLost(socket) => write!(f, "sensor of socket {socket} lost"),
            Self::SensorStuck(socket) => write!(f, "sensor of socket {socket} stuck"),
            Self::SensorLying(socket, off) => write!(f, "sensor of socket {socket} off by {off} K"),
            Self::FanStalled(fan) => write!(f, "fan {fan} stalled"),
            Self::FanDead(fan) => write!(f, "fan {fan} dead"),
            Self::FanRefusing(fan) => write!(f, "fan {fan} refuses its duty"),
            Self::FrequencyRefusing(socket) => {
                write!(f, "socket {socket} refuses its frequency")
            }
        }
    }
}

/// One fault and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultEvent {
    /// When it begins.
    pub from: Nanos,
    /// When it ends.
    pub until: Nanos,
    /// What fails.
    pub fault: Fault,
}

/// A seeded campaign: faults in the order in which they begin.
///
/// At any time at least half of the fans are unharmed (of two, one), and no part has two faults.
#[derive(Debug, Clone)]
pub struct Campaign {
    random: Pcg64Mcg,
    sockets: u16,
    fans: u16,
    until: Nanos,
    next: FaultEvent,
    active: Vec<FaultEvent>,
}

impl Campaign {
    /// The campaign `faults` on a server with so many sockets and fans, at least one of each.
    #[must_use]
    pub fn new(faults: Faults, sockets: u16, fans: u16) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(faults.seed);
        let until = faults.until.unwrap_or(Nanos(u64::MAX));
        let (sockets, fans) = (sockets.max(1), fans.max(1));
        let next = draw(&mut random, Nanos::ZERO, sockets, fans);
        Self { random, sockets, fans, until, next, active: Vec::new() }
    }

    /// Faults in force.
    #[must_use]
    pub fn active(&self) -> &[FaultEvent] {
        &self.active
    }

    /// Lets time come to `now`. Tells each fault that begins (`true`) or ends (`false`) at or
    /// before it: ends first, so that a part may fail again at once.
    pub fn advance(&mut self, now: Nanos, mut tell: impl FnMut(&FaultEvent, bool)) {
        loop {
            let until = self.next.from.min(now);
            self.active.retain(|event| {
                let lasts = event.until > until;
                if !lasts {
                    tell(event, false);
                }
                lasts
            });
            if self.next.from > now {
                return;
            }
            let mut event = self.next;
            self.next = draw(&mut self.random, event.from, self.sockets, self.fans);
            event.until = event.until.min(self.until);
            if event.from < event.until && self.allowed(&event.fault) {
                self.active.push(event);
                tell(&event, true);
            }
        }
    }

    fn allowed(&self, fault: &Fault) -> bool {
        if self.active.iter().any(|event| event.fault.same_part(fault)) {
            return false;
        }
        let harmed = self.active.iter().filter(|event| event.fault.fan().is_some()).count();
        fault.fan().is_none() || harmed < usize::from(self.fans / 2)
    }
}

/// The fault after one that began at `last`.
fn draw(random: &mut Pcg64Mcg, last: Nanos, sockets: u16, fans: u16) -> FaultEvent {
    let gap: f64 = Exp1.sample(random);
    let from = last + Nanos((gap * MEAN_GAP.0 as f64) as u64 + 1);
    let length = random.random_range(LENGTHS.0..LENGTHS.1);
    let (socket, fan) = (random.random_range(0..sockets), random.random_range(0..fans));
    // Halves of a kelvin read well in logs.
    let off = (random.random_range(-MOST_OFF..MOST_OFF) * 2.0).round() / 2.0;
    let fault = match random.random_range(0..7) {
        0 => Fault::SensorLost(socket),
        1 => Fault::SensorStuck(socket),
        2 => Fault::SensorLying(socket, off),
        3 => Fault::FanStalled(fan),
        4 => Fault::FanDead(fan),
        5 => Fault::FanRefusing(fan),
        _ => Fault::FrequencyRefusing(socket),
    };
    FaultEvent { from, until: from + Nanos((length * 1e9) as u64), fault }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All that begins and ends in so many seconds, looked at every `step` ms.
    fn events(seed: u64, seconds: u64, step: u64) -> Vec<(FaultEvent, bool)> {
        let mut campaign = Campaign::new(Faults::seeded(seed), 2, 6);
        let mut told = Vec::new();
        for tick in 0..=seconds * 1000 / step {
            campaign.advance(Nanos::from_millis(tick * step), |event, begins| {
                told.push((*event, begins));
            });
        }
        told
    }

    #[test]
    fn a_seed_gives_the_same_faults_however_often_one_looks() {
        for seed in 0..20 {
            let beginnings = |step| -> Vec<FaultEvent> {
                let all = events(seed, 600, step).into_iter();
                all.filter_map(|(event, begins)| begins.then_some(event)).collect()
            };
            assert_eq!(beginnings(100), beginnings(5000));
            assert!(beginnings(100).len() > 5);
        }
        assert_ne!(events(1, 600, 100), events(2, 600, 100));
    }

    #[test]
    fn an_end_cuts_the_campaign_and_changes_nothing_before() {
        for seed in 0..20 {
            let until = Some(Nanos::from_secs(200));
            let mut campaign = Campaign::new(Faults { seed, until }, 2, 6);
            let mut told = Vec::new();
            for tick in 0..400 {
                campaign.advance(Nanos::from_secs(tick), |event, begins| {
                    told.push((event.from, event.fault, begins));
                });
            }
            assert!(campaign.active().is_empty());
            let without: Vec<_> = events(seed, 199, 1000)
                .into_iter()
                .map(|(event, begins)| (event.from, event.fault, begins))
                .collect();
            assert_eq!(told[..without.len()], without);
            let end = Nanos::from_secs(200);
            assert!(told[without.len()..].iter().all(|(from, _, begins)| !begins || *from < end));
        }
    }

    #[test]
    fn every_kind_occurs_and_what_begins_ends() {
        let told = events(3, 20_000, 500);
        let kinds: BTreeSet<_> = told.iter().map(|(event, _)| event.fault.reason()).collect();
        assert_eq!(kinds.len(), 7);
        let count = |which| told.iter().filter(|(_, begins)| *begins == which).count();
        assert!(count(true) - count(false) < 10, "{} {}", count(true), count(false));
    }

    #[test]
    fn half_of_the_fans_stay_whole_and_no_part_fails_twice() {
        for seed in 0..50 {
            let mut campaign = Campaign::new(Faults::seeded(seed), 2, 6);
            for tick in 0..4000 {
                campaign.advance(Nanos::from_millis(tick * 500), |_, _| {});
                let active = campaign.active();
                let harmed: Vec<_> = active.iter().filter_map(|e| e.fault.fan()).collect();
                assert!(harmed.len() <= 3);
                let distinct: BTreeSet<_> = harmed.iter().collect();
                assert_eq!(distinct.len(), harmed.len());
            }
        }
    }
}
