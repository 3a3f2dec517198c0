//! Injected faults: a campaign of sensors and actuators that fail and recover, from a seed or as
//! listed.
//!
//! The campaign depends on the seed and the server alone, never on what a policy does: the same
//! seed breaks the same things at the same times under every policy, for however long.

use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

use ebb_policy::units::Nanos;

use crate::profile::Profile;

/// Mean time between the beginnings of two faults of the usual kinds.
const MEAN_GAP: Nanos = Nanos::from_secs(20);
/// The same of those that [`Extent::Wide`] adds.
const WIDE_GAP: Nanos = Nanos::from_secs(5);
/// Shortest and longest fault, seconds.
const LENGTHS: (f64, f64) = (5.0, 45.0);
/// Most kelvins by which a lying sensor is off.
const MOST_OFF: f64 = 25.0;
/// What makes another stream of random numbers of the same seed.
const OTHER: u64 = 0x7_1DE5_C0DE;

/// How much may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// Sensors and frequencies of sockets, at most half of the fans at a time.
    #[default]
    Usual,
    /// Also the sensors of the inlet and the drives, power states and job shares that are
    /// refused, and all fans but one. What is usual comes at the same times, except that a part
    /// which has failed already does not fail twice.
    Wide,
}

/// What a campaign is made of.
#[derive(Debug, Clone, PartialEq)]
enum Plan {
    Drawn(u64, Extent),
    Listed(Vec<FaultEvent>),
}

/// A campaign: what fails, and when it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    plan: Plan,
    until: Option<Nanos>,
}

impl Faults {
    /// The usual faults, drawn from a seed, without end.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { plan: Plan::Drawn(seed, Extent::Usual), until: None }
    }
    /// All kinds of faults, without end.
    #[must_use]
    pub fn wide(seed: u64) -> Self {
        Self { plan: Plan::Drawn(seed, Extent::Wide), until: None }
    }
    /// These and no others; a part that has failed already does not fail twice.
    #[must_use]
    pub fn listed(mut events: Vec<FaultEvent>) -> Self {
        events.sort_by_key(|event| event.from);
        Self { plan: Plan::Listed(events), until: None }
    }
    /// The same, with every fault ended and no more to begin at `until`.
    #[must_use]
    pub fn until(self, until: Option<Nanos>) -> Self {
        Self { until, ..self }
    }

    /// What they are drawn from, and how much may fail; `None` where they are listed.
    #[must_use]
    pub fn drawn(&self) -> Option<(u64, Extent)> {
        match self.plan {
            Plan::Drawn(seed, extent) => Some((seed, extent)),
            Plan::Listed(_) => None,
        }
    }
    /// When all of them are over.
    #[must_use]
    pub fn end(&self) -> Option<Nanos> {
        self.until
    }

    /// Refuses faults of what `profile` does not have.
    ///
    /// # Errors
    /// Which.
    pub(crate) fn check(&self, profile: &Profile) -> Result<(), String> {
        let name = &profile.name;
        if profile.thermal.is_none() {
            let reason = "has no [thermal] section, so that nothing could fail";
            return Err(format!("profile '{name}' {reason}"));
        }
        let Plan::Listed(events) = &self.plan else { return Ok(()) };
        match events.iter().find(|event| !Parts::of(profile).have(&event.fault)) {
            Some(event) => Err(format!("profile '{name}' has nothing for '{}'", event.fault)),
            None => Ok(()),
        }
    }
}

/// One thing that fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The sensor gives no reading.
    SensorLost(Place),
    /// The sensor repeats its last reading.
    SensorStuck(Place),
    /// The sensor is off by so many kelvins.
    SensorLying(Place, f64),
    /// The rotor of this fan is held.
    FanStalled(u16),
    /// This fan has no power.
    FanDead(u16),
    /// This fan keeps its duty whatever is asked.
    FanRefusing(u16),
    /// The cores of this socket keep their frequency whatever is asked; the hardware's own
    /// emergency throttling still works.
    FrequencyRefusing(u16),
    /// This drive keeps its power state whatever is asked.
    StateRefusing(u16),
    /// Every job keeps its share whatever is asked.
    SharesRefusing,
}

/// Where a sensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In this socket.
    Socket(u16),
    /// In this drive.
    Drive(u16),
    /// In the air at the inlet.
    Inlet,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(socket) => write!(f, "socket {socket}"),
            Self::Drive(drive) => write!(f, "drive {drive}"),
            Self::Inlet => f.write_str("the inlet"),
        }
    }
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
            Self::StateRefusing(_) => "fault:state-refusing",
            Self::SharesRefusing => "fault:shares-refusing",
        }
    }
    /// What fails: `fan3`, `socket0`, `drive5`, `inlet`, `jobs`.
    #[must_use]
    pub fn part(&self) -> String {
        match self {
            Self::FanStalled(fan) | Self::FanDead(fan) | Self::FanRefusing(fan) => {
                format!("fan{fan}")
            }
            Self::SensorLost(place) | Self::SensorStuck(place) | Self::SensorLying(place, _) => {
                match place {
                    Place::Socket(socket) => format!("socket{socket}"),
                    Place::Drive(drive) => format!("drive{drive}"),
                    Place::Inlet => "inlet".to_owned(),
                }
            }
            Self::FrequencyRefusing(socket) => format!("socket{socket}"),
            Self::StateRefusing(drive) => format!("drive{drive}"),
            Self::SharesRefusing => "jobs".to_owned(),
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
    /// Whether it is an actuator other than a fan that does not obey.
    fn refuses(&self) -> bool {
        matches!(self, Self::FrequencyRefusing(_) | Self::StateRefusing(_) | Self::SharesRefusing)
    }
    /// Whether both concern the same sensor, fan or other actuator.
    fn same_part(&self, other: &Self) -> bool {
        self.part() == other.part() && self.refuses() == other.refuses()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SensorLost(place) => write!(f, "sensor of {place} lost"),
            Self::SensorStuck(place) => write!(f, "sensor of {place} stuck"),
            Self::SensorLying(place, off) => write!(f, "sensor of {place} off by {off} K"),
            Self::FanStalled(fan) => write!(f, "fan {fan} stalled"),
            Self::FanDead(fan) => write!(f, "fan {fan} dead"),
            Self::FanRefusing(fan) => write!(f, "fan {fan} refuses its duty"),
            Self::FrequencyRefusing(socket) => {
                write!(f, "socket {socket} refuses its frequency")
            }
            Self::StateRefusing(drive) => write!(f, "drive {drive} refuses its power state"),
            Self::SharesRefusing => f.write_str("jobs refuse their shares"),
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

/// How many of each there are to fail, at least one.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Sockets.
    pub sockets: u16,
    /// Fans.
    pub fans: u16,
    /// Drives.
    pub drives: u16,
}

impl Parts {
    /// Those of a server.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let fans = profile.fans.as_ref().map_or(0, |fans| fans.count);
        Self { sockets: profile.sockets(), fans, drives: profile.drives.count }
    }

    fn have(&self, fault: &Fault) -> bool {
        match *fault {
            Fault::FanStalled(fan) | Fault::FanDead(fan) | Fault::FanRefusing(fan) => {
                fan < self.fans
            }
            Fault::SensorLost(place) | Fault::SensorStuck(place) | Fault::SensorLying(place, _) => {
                match place {
                    Place::Socket(socket) => socket < self.sockets,
                    Place::Drive(drive) => drive < self.drives,
                    Place::Inlet => true,
                }
            }
            Fault::FrequencyRefusing(socket) => socket < self.sockets,
            Fault::StateRefusing(drive) => drive < self.drives,
            Fault::SharesRefusing => true,
        }
    }
}

/// A campaign: faults in the order in which they begin.
///
/// No part has two at a time. Where they are drawn at least half of the fans are unharmed at any
/// time (of two, one; of a wide campaign, one).
#[derive(Debug, Clone)]
pub struct Campaign {
    parts: Parts,
    until: Nanos,
    /// Most fans that may be harmed at a time.
    most_fans: usize,
    streams: Vec<Stream>,
    active: Vec<FaultEvent>,
}

/// Faults of some kinds, one after the other.
#[derive(Debug, Clone)]
struct Stream {
    source: Source,
    next: Option<FaultEvent>,
}

type Draw = fn(&mut Pcg64Mcg, Nanos, Parts) -> FaultEvent;

#[derive(Debug, Clone)]
enum Source {
    Drawn(Pcg64Mcg, Draw),
    Listed(std::vec::IntoIter<FaultEvent>),
}

impl Stream {
    fn drawn(seed: u64, parts: Parts, draw: Draw) -> Self {
        Self::new(Source::Drawn(Pcg64Mcg::seed_from_u64(seed), draw), parts)
    }

    fn new(source: Source, parts: Parts) -> Self {
        let mut stream = Self { source, next: None };
        stream.go_on(Nanos::ZERO, parts);
        stream
    }

    /// When the next one begins; at the end of time where there is none.
    fn due(&self) -> Nanos {
        self.next.map_or(Nanos(u64::MAX), |next| next.from)
    }

    fn go_on(&mut self, last: Nanos, parts: Parts) {
        self.next = match &mut self.source {
            Source::Drawn(random, draw) => Some(draw(random, last, parts)),
            Source::Listed(events) => events.next(),
        };
    }
}

impl Campaign {
    /// The campaign `faults` on a server with these parts.
    #[must_use]
    pub fn new(faults: Faults, parts: Parts) -> Self {
        let (mut most_fans, mut streams) = (parts.fans, Vec::new());
        match faults.plan {
            Plan::Drawn(seed, extent) => {
                streams.push(Stream::drawn(seed, parts, usual));
                most_fans = parts.fans / 2;
                if extent == Extent::Wide {
                    streams.push(Stream::drawn(seed ^ OTHER, parts, more));
                    most_fans = parts.fans - 1;
                }
            }
            Plan::Listed(events) => {
                streams.push(Stream::new(Source::Listed(events.into_iter()), parts));
            }
        }
        Self {
            parts,
            until: faults.until.unwrap_or(Nanos(u64::MAX)),
            most_fans: most_fans.into(),
            streams,
            active: Vec::new(),
        }
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
            let Some(stream) = self.streams.iter_mut().min_by_key(|stream| stream.due()) else {
                return;
            };
            let due = stream.next.filter(|next| next.from <= now);
            let until = due.map_or(now, |next| next.from);
            self.active.retain(|event| {
                let lasts = event.until > until;
                if !lasts {
                    tell(event, false);
                }
                lasts
            });
            let Some(mut event) = due else { return };
            stream.go_on(event.from, self.parts);
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
        fault.fan().is_none() || harmed < self.most_fans
    }
}

/// When a fault begins that follows one at `last`, and how many seconds it lasts.
fn time(random: &mut Pcg64Mcg, last: Nanos, gap: Nanos) -> (Nanos, f64) {
    let share: f64 = Exp1.sample(random);
    let from = last + Nanos((share * gap.0 as f64) as u64 + 1);
    (from, random.random_range(LENGTHS.0..LENGTHS.1))
}

/// Halves of a kelvin read well in logs.
fn off(random: &mut Pcg64Mcg) -> f64 {
    (random.random_range(-MOST_OFF..MOST_OFF) * 2.0).round() / 2.0
}

/// The usual fault after one that began at `last`. Seeds mean what they mean by the order of the
/// draws.
fn usual(random: &mut Pcg64Mcg, last: Nanos, parts: Parts) -> FaultEvent {
    let (from, length) = time(random, last, MEAN_GAP);
    let (socket, fan) = (random.random_range(0..parts.sockets), random.random_range(0..parts.fans));
    let (off, place) = (off(random), Place::Socket(socket));
    let fault = match random.random_range(0..7) {
        0 => Fault::SensorLost(place),
        1 => Fault::SensorStuck(place),
        2 => Fault::SensorLying(place, off),
        3 => Fault::FanStalled(fan),
        4 => Fault::FanDead(fan),
        5 => Fault::FanRefusing(fan),
        _ => Fault::FrequencyRefusing(socket),
    };
    FaultEvent { from, until: from + Nanos((length * 1e9) as u64), fault }
}

/// The same of a wide campaign's other faults: half of them harm fans.
fn more(random: &mut Pcg64Mcg, last: Nanos, parts: Parts) -> FaultEvent {
    let (from, length) = time(random, last, WIDE_GAP);
    let (drive, fan) = (random.random_range(0..parts.drives), random.random_range(0..parts.fans));
    let inlet = random.random_bool(0.5);
    let (off, place) = (off(random), if inlet { Place::Inlet } else { Place::Drive(drive) });
    let fault = match random.random_range(0..10) {
        0 => Fault::SensorLost(place),
        1 => Fault::SensorStuck(place),
        2 => Fault::SensorLying(place, off),
        3 => Fault::StateRefusing(drive),
        4 => Fault::SharesRefusing,
        5 => Fault::FanStalled(fan),
        6 => Fault::FanRefusing(fan),
        _ => Fault::FanDead(fan),
    };
    FaultEvent { from, until: from + Nanos((length * 1e9) as u64), fault }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PARTS: Parts = Parts { sockets: 2, fans: 6, drives: 8 };

    /// All that begins and ends in so many seconds, looked at every `step` ms.
    fn events(seed: u64, seconds: u64, step: u64) -> Vec<(FaultEvent, bool)> {
        all(Faults::seeded(seed), seconds, step)
    }

    fn all(faults: Faults, seconds: u64, step: u64) -> Vec<(FaultEvent, bool)> {
        let mut campaign = Campaign::new(faults, PARTS);
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
            let mut campaign = Campaign::new(Faults::seeded(seed).until(until), PARTS);
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

    /// A change of this is a change of what every seed means: say so where it is told.
    #[test]
    fn seeds_mean_what_they_meant() {
        let told = events(7, 60, 1000);
        let told: Vec<_> = told.iter().filter(|(_, begins)| *begins).collect();
        let words = |(event, _): &&(FaultEvent, bool)| {
            format!("{:.3} {:.3} {}", event.from.seconds(), event.until.seconds(), event.fault)
        };
        let said = ["20.706 44.756 sensor of socket 0 off by -10.5 K"];
        assert_eq!(told.iter().map(words).collect::<Vec<_>>(), said);
    }

    #[test]
    fn a_wide_campaign_has_the_usual_faults_too() {
        for seed in 0..20 {
            let wide = all(Faults::wide(seed), 600, 1000);
            let usual = events(seed, 600, 1000);
            let in_wide = |event: &(FaultEvent, bool)| wide.contains(event);
            // All but fans, of which one may have failed before.
            assert!(usual.iter().filter(|(event, _)| event.fault.fan().is_none()).all(in_wide));
            assert!(wide.len() > 3 * usual.len());
        }
    }

    #[test]
    fn what_is_listed_comes_as_listed() {
        let event = |from, until, fault| FaultEvent {
            from: Nanos::from_secs(from),
            until: Nanos::from_secs(until),
            fault,
        };
        let dead: Vec<_> = (0..6).map(|fan| event(50, 60, Fault::FanDead(fan))).collect();
        let lost = event(10, 20, Fault::SensorLost(Place::Inlet));
        // The second is there already.
        let again = event(15, 30, Fault::SensorStuck(Place::Inlet));
        let listed = Faults::listed([dead.clone(), vec![again, lost]].concat());
        let server = Profile::load("thermal-1u").unwrap();
        assert_eq!(listed.check(&server), Ok(()));
        let told = all(listed, 100, 1000);
        let all = [vec![lost], dead].concat();
        let of = |begins| -> Vec<_> {
            told.iter().filter(|(_, b)| *b == begins).map(|(event, _)| *event).collect()
        };
        assert_eq!((of(true), of(false)), (all.clone(), all));
        for fault in [
            Fault::FanDead(6),
            Fault::SensorStuck(Place::Socket(2)),
            Fault::SensorLost(Place::Drive(8)),
            Fault::FrequencyRefusing(2),
            Fault::StateRefusing(8),
        ] {
            let error = Faults::listed(vec![event(0, 1, fault)]).check(&server).unwrap_err();
            assert!(error.contains(&fault.to_string()), "{error}");
        }
    }

    #[test]
    fn every_kind_occurs_and_what_begins_ends() {
        for (faults, most) in [(Faults::seeded(3), 7), (Faults::wide(3), 9)] {
            let told = all(faults, 20_000, 500);
            let kinds: BTreeSet<_> = told.iter().map(|(event, _)| event.fault.reason()).collect();
            assert_eq!(kinds.len(), most);
            let count = |which| told.iter().filter(|(_, begins)| *begins == which).count();
            assert!(count(true) - count(false) < 20, "{} {}", count(true), count(false));
        }
    }

    #[test]
    fn some_of_the_fans_stay_whole_and_no_part_fails_twice() {
        let mut most = 0;
        for seed in 0..50 {
            for (faults, limit) in [(Faults::seeded(seed), 3), (Faults::wide(seed), 5)] {
                let mut campaign = Campaign::new(faults, PARTS);
                for tick in 0..4000 {
                    campaign.advance(Nanos::from_millis(tick * 500), |_, _| {});
                    let active = campaign.active();
                    let harmed: Vec<_> = active.iter().filter_map(|e| e.fault.fan()).collect();
                    assert!(harmed.len() <= limit);
                    most = most.max(harmed.len());
                    let parts: BTreeSet<_> =
                        active.iter().map(|e| (e.fault.part(), e.fault.refuses())).collect();
                    assert_eq!(parts.len(), active.len());
                }
            }
        }
        assert_eq!(most, 5);
    }
}
