//! Puts what is given in force: which places each control is set in, to what, in which order.

use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{
    BackgroundMode, Control, DriveSpec, FanSignals, InForce, Outcome, PowerState, Signals, Topology,
};

use crate::act::background::Background;
use crate::act::contact::{Attempt, Contact, Trial, attempt};
use crate::act::domain::Domain;
use crate::act::fan::FanControl;
use crate::act::hold::{Held, Hold};
use crate::act::idle_wake::{self, IdleWake};
use crate::act::jobs::Jobs;
use crate::act::knob::Place;
use crate::act::originals::State;
use crate::act::owned::StateError;
use crate::act::packages::Packages;
use crate::act::parking::Parking;
use crate::act::places::{cap_place, fan_places};
use crate::act::steering::{Notice, Steering, Verified, refused, worse};
use crate::act::tasks::Tasks;
use crate::act::throttle::Throttle;
use crate::find::cpus::Policy;
use crate::find::fans::Fan;
use crate::find::jobs::{Seen, Use};
use crate::find::layout::{Core, Layout};
use crate::find::machine::Machine;
use crate::nvme::Cap;

/// So many places are read back in a cycle at least, and so many parts of all.
const CHECKED: usize = 4;
const CHECKED_PARTS: usize = 20;

/// Acts on one machine.
#[derive(Debug)]
pub struct Acting {
    steering: Steering,
    /// Cores of each group.
    cores: Vec<u16>,
    parking: Option<Parking>,
    domains: Vec<Domain>,
    /// Groups with CPUs whose frequency cannot be set, and the ceiling found there.
    unsteered: Vec<(usize, Hertz)>,
    /// Those whose cores are all of the reactors.
    reactors: Vec<Domain>,
    drives: Vec<Option<(usize, Cap)>>,
    idle: Vec<Option<IdleWake>>,
    jobs: Jobs,
    packages: Packages,
    throttle: Throttle,
    fans: Vec<Option<FanControl>>,
    /// Whether frequencies may be raised above the ceilings found.
    raises: bool,
    /// CPUs that somebody else has taken offline.
    away: Vec<u16>,
    /// What the operator holds all the time, each all or none.
    constant: Vec<Vec<(usize, String)>>,
    background: Background,
    /// What the first contact has found to be refused.
    refused: Vec<Control>,
}

impl Acting {
    /// Acts in the places that `steering` has; `state` is where what was found is on disk.
    #[must_use]
    pub fn new(
        machine: &Machine,
        layout: &Layout,
        mut steering: Steering,
        tasks: Tasks,
        holds: &Held,
        state: &State,
    ) -> Self {
        let background = Background::new(&holds.of.background, machine, &mut steering);
        let find = |place: &Place| steering.find(place);
        let held = |hold: &Hold| Some((find(&hold.place)?, hold.value.clone()));
        let unit = |holds: &[Hold]| holds.iter().map(held).collect::<Option<Vec<_>>>();
        let domain = |policy| Domain::find(machine, layout, &steering, policy);
        let policies = machine.cpus.policies.iter();
        let (reactors, others): (Vec<_>, Vec<_>) =
            policies.partition(|policy| layout.is_reactors(policy));
        let (mut domains, mut left) = (Vec::new(), Vec::new());
        for policy in others {
            match domain(policy) {
                Some(domain) => domains.push(domain),
                None => left.push(policy),
            }
        }
        let fan = |fan: &Fan| {
            let (duty, mode) = fan_places(machine, fan);
            let mode = mode.as_ref().and_then(find);
            Some(FanControl::new(find(&duty)?, mode, !fan.tachometers.is_empty()))
        };
        let drive = |parts: &crate::find::layout::DriveParts| {
            let cap = parts.cap();
            Some((find(&cap_place(&cap, parts.drive.saved.clone()?))?, cap))
        };
        let idle = |parts: &crate::find::layout::DriveParts| {
            let at = find(&idle_wake::place(parts)?)?;
            Some(IdleWake::new(at, &parts.identity.as_ref()?.idle_wakes(), layout.raise_limits))
        };
        Self {
            parking: Parking::new(machine, layout, &steering, tasks, state.clone()),
            cores: layout.groups.iter().map(|cores| cores.len() as u16).collect(),
            unsteered: unsteered(layout, &left),
            domains,
            reactors: reactors.into_iter().filter_map(domain).collect(),
            drives: layout.drives.iter().map(drive).collect(),
            idle: layout.drives.iter().map(idle).collect(),
            jobs: Jobs::new(machine, layout),
            packages: Packages::new(machine, layout, &steering),
            throttle: Throttle::new(layout),
            fans: layout.fans.fans.iter().map(fan).collect(),
            raises: layout.raise_limits,
            away: Vec::new(),
            constant: Hold::units(&holds.constant).filter_map(unit).collect(),
            background,
            refused: Vec::new(),
            steering,
        }
    }

    /// Cores of `group` that take new work.
    #[must_use]
    pub fn active(&self, group: usize) -> u16 {
        let active = self.parking.as_ref().map(|parking| parking.active(group, &self.steering));
        active.unwrap_or(self.cores[group])
    }

    /// The ceilings in force of the cores of `group` as a share of those found, in the mean.
    #[must_use]
    pub fn speed(&self, group: usize) -> f64 {
        let its = self.domains.iter().filter(|domain| domain.groups.contains(&group));
        let speeds = its.map(|domain| (domain.cpus.len() as f64, domain.speed(&self.steering)));
        let (count, sum) =
            speeds.fold((0.0, 0.0), |(n, sum), (cpus, speed)| (n + cpus, sum + cpus * speed));
        if count > 0.0 { sum / count } else { 1.0 }
    }

    /// How many CPUs are parked, and how many others are kept below the frequency found.
    #[must_use]
    pub fn saving(&self) -> (usize, usize) {
        let parked = self.parking.as_ref().map_or(0, |parking| parking.count(&self.steering));
        let slowed = self.domains.iter().filter(|domain| domain.speed(&self.steering) < 1.0);
        let slowed = slowed.map(|domain| domain.cpus.len()).sum::<usize>();
        (parked, slowed.saturating_sub(parked))
    }

    /// The CPUs that are offline because their cores are parked.
    #[must_use]
    pub fn offline(&self) -> Vec<u16> {
        self.parking.as_ref().map(|parking| parking.offline(&self.steering)).unwrap_or_default()
    }

    /// Takes in that parts of `machine` have gone, come back or got another name, and which CPUs
    /// are `away`: offline, and not because their cores are parked.
    pub fn follow(
        &mut self,
        machine: &Machine,
        away: &[u16],
        is_concerned: impl Fn(&Place) -> bool,
    ) {
        self.away = away.to_vec();
        self.steering.follow(machine, &is_concerned);
        for fan in self.fans.iter_mut().flatten() {
            if fan.places().any(|at| is_concerned(self.steering.place(at))) {
                fan.begin_anew();
            }
        }
        if let Some(parking) = &mut self.parking {
            parking.follow(away, &mut self.steering);
        }
    }

    /// Which places are not to be asked: their drive `sleeps`, or their CPUs are offline.
    fn quiet(&self, sleeps: impl Fn(usize) -> bool) -> Vec<bool> {
        let offline = self.resting();
        let drive = |place: usize| {
            self.drives.iter().position(|at| at.as_ref().is_some_and(|(at, _)| *at == place))
        };
        let is = |place: usize| drive(place).is_some_and(&sleeps) || self.rests(place, &offline);
        (0..self.steering.count()).map(is).collect()
    }

    /// Whether a place is of CPUs that are all `offline`.
    fn rests(&self, place: usize, offline: &[u16]) -> bool {
        let mut all = self.domains.iter().chain(&self.reactors);
        let its = all.find(|domain| [domain.max, domain.min].contains(&place));
        its.is_some_and(|domain| domain.rests(offline))
    }

    /// Compares what is set with what the machine says now.
    pub fn verify(&mut self, now: Nanos, sleeps: impl Fn(usize) -> bool) -> Verified {
        let quiet = self.quiet(sleeps);
        self.steering.verify(|at| quiet[at], now)
    }

    /// The CPUs that nothing can run on.
    fn resting(&self) -> Vec<u16> {
        let mut resting = self.offline();
        resting.extend(&self.away);
        resting
    }

    /// See [`crate::Host::let_go`].
    pub fn let_go(&mut self, now: Nanos) -> Result<(), StateError> {
        self.steering.let_go(now)
    }

    /// Says something of the packages' power limit.
    pub fn note_power(&mut self, text: String) {
        let mut places = self.constant.iter().flatten().map(|(at, _)| *at);
        if let Some(at) = places.find(|at| self.steering.place(*at).hold() == Place::HOLDS[0]) {
            self.steering.note(at, text);
        }
    }

    /// The power state that was written last to a drive and read back, and when.
    #[must_use]
    pub fn power_state(&self, drive: usize) -> Option<(Nanos, PowerState)> {
        let (place, cap) = self.drives[drive].as_ref()?;
        let (at, value) = self.steering.read_back(*place)?;
        Some((at, cap.state(value.parse().ok()?)))
    }

    /// See [`crate::Host::notices`].
    pub fn notices(&mut self) -> Vec<Notice> {
        self.steering.notices()
    }

    /// See [`crate::Host::failing`].
    #[must_use]
    pub fn failing(&self) -> usize {
        let fans = self.fans.iter().flatten().filter(|fan| fan.is_failing(&self.steering));
        // What is of CPUs that are not there has nothing to follow.
        let offline = self.resting();
        self.steering.failing(|at| self.rests(at, &offline)) + fans.count()
    }

    /// Where it acts.
    pub fn places(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.steering.count()).map(|at| self.steering.place(at).to_string())
    }

    /// Tries each kind of control in one place and gives it back.
    pub fn contact(&mut self, machine: &Machine, topology: &Topology) -> Vec<Trial> {
        let Self { steering, parking, domains, fans, drives, idle, constant, raises, .. } = self;
        let packages = self.packages.attempt(steering);
        let of = |control: Control| control.row().name;
        let cores = parking.as_mut().and_then(|parking| {
            let verdict = parking.attempt(steering)?;
            let place = parking.place().to_string();
            Some(Trial { of: of(Control::ActiveCores).to_owned(), place, verdict })
        });
        let tries: Vec<_> = domains.iter().filter_map(|domain| domain.attempt(steering)).collect();
        let frequency = attempt(of(Control::Frequency), tries, machine, steering);
        let tries = fans.iter().flatten().filter_map(|fan| fan.attempt(steering));
        let tries: Vec<_> = tries.collect();
        let fan = attempt(of(Control::FanDuty), tries, machine, steering);
        let next = |(drive, spec): (&Option<(usize, Cap)>, &DriveSpec)| {
            let (at, cap) = drive.as_ref()?;
            let found = steering.found(*at);
            let may = |state: &PowerState| cap.may(*state, found, *raises);
            let states = (1..spec.operational().len() as PowerState).filter(may);
            let value = states.map(|state| cap.text(state)).find(|value| value != found)?;
            Some(Attempt { writes: vec![(*at, value)], bounds: None })
        };
        let tries: Vec<_> = drives.iter().zip(&topology.drives).filter_map(next).collect();
        let drive = attempt(of(Control::PowerState), tries, machine, steering);
        let tries: Vec<_> = idle.iter().flatten().filter_map(|it| it.attempt(steering)).collect();
        let idle = attempt(of(Control::IdleWake), tries, machine, steering);
        let packages = attempt(of(Control::PackageLimit), packages, machine, steering);
        let mut trials: Vec<_> =
            [cores, frequency, fan, drive, idle, packages].into_iter().flatten().collect();
        for name in Place::HOLDS {
            let its = constant.iter().filter(|unit| name_of(unit, steering) == name);
            let tries = its.cloned().map(|writes| Attempt { writes, bounds: None });
            let tries: Vec<_> = tries.collect();
            trials.extend(attempt(name, tries, machine, steering));
        }
        trials
    }

    /// Does without what was refused.
    pub fn refuse(&mut self, contact: &Contact) {
        self.refused = contact.refused().copied().collect();
        let steering = &self.steering;
        self.constant.retain(|unit| !contact.is_refused(name_of(unit, steering)));
        for control in &self.refused {
            match control {
                Control::Frequency => {
                    self.domains.clear();
                    self.reactors.clear();
                }
                Control::FanDuty => self.fans.iter_mut().for_each(|fan| {
                    fan.take_if(|fan| !fan.places().any(|at| steering.is_changed(at)));
                    fan.iter_mut().for_each(FanControl::refuse);
                }),
                Control::PackageLimit => self.packages.refuse(),
                Control::IdleWake => self.idle.iter_mut().for_each(|drive| *drive = None),
                _ => self.drives.iter_mut().for_each(|drive| *drive = None),
            }
        }
        if self.refused.contains(&Control::Frequency) {
            self.refused.extend([Control::FrequencyCap, Control::FrequencyLimit]);
        }
    }

    /// Hears what the chips say of the fans.
    pub fn sensed(&mut self, fans: &[FanSignals]) {
        for (control, signal) in self.fans.iter_mut().zip(fans) {
            if let Some(control) = control {
                control.sensed(signal.duty, signal.speed);
            }
        }
    }

    /// Hears what the jobs do.
    pub fn seen(&mut self, jobs: &[Seen]) {
        self.jobs.sensed(jobs, &mut self.steering);
    }

    /// Hears what hosts of an `ebb serve` use for which nobody waits.
    pub fn hosts_used(&mut self, used: impl Iterator<Item = f64>) {
        self.throttle.hosts_used(used);
    }

    /// How many bytes a second each of them may move.
    pub fn hosts_given(&self) -> impl Iterator<Item = Option<f64>> {
        self.throttle.hosts_given()
    }

    /// Hears what the groups that may be throttled use.
    pub fn used(&mut self, machine: &Machine, uses: &[Use], signals: &Signals) {
        self.background.follow(machine, &mut self.steering);
        self.throttle.used(machine, uses, signals, &mut self.steering);
        self.packages.see(signals.power.cpu, &mut self.steering, signals.now);
    }

    /// Puts `given` in force and tells what became of each control. Drives that sleep are not
    /// asked whether they are as they were set.
    pub fn apply(
        &mut self,
        given: &InForce,
        now: Nanos,
        sleeps: impl Fn(usize) -> bool,
        tell: &mut impl FnMut(Control, usize, Outcome),
    ) {
        let checked = CHECKED.max(self.steering.count() / CHECKED_PARTS);
        let quiet = self.quiet(sleeps);
        self.steering.check(checked, now, |at| quiet[at]);
        for fan in 0..self.fans.len() {
            let asked = given.fan_duty.at(fan).given;
            let outcome = match &mut self.fans[fan] {
                Some(fan) => fan.set(&mut self.steering, asked, given.emergency, now),
                None => refused(asked.is_some()),
            };
            tell(Control::FanDuty, fan, outcome);
        }
        // What is felt soonest first.
        self.throttle.set(given, &mut self.steering, now, tell);
        let limit = given.package_limit.at(0).given;
        let limited = self.packages.set(limit, &mut self.steering, now);
        tell(Control::PackageLimit, 0, limited);
        // Cores come back before they are slowed down, and are slowed down before they go.
        let parked = self.parking.as_mut().map(|it| it.set(given, &mut self.steering, now));
        for (group, cores) in self.cores.iter().enumerate() {
            let nowhere = || refused(given.group(group).active < *cores);
            let outcome = parked.unwrap_or_else(nowhere);
            tell(Control::ActiveCores, group, outcome);
            tell(Control::CoreLimit, group, outcome);
        }
        self.set_frequencies(given, now, tell);
        self.set_drives(given, now, tell);
        for (drive, idle) in self.idle.iter().enumerate() {
            let asked = given.idle_wake.at(drive).given;
            let nowhere = refused(asked.is_some());
            let set = idle.as_ref().map(|idle| idle.set(asked, &mut self.steering, now));
            tell(Control::IdleWake, drive, set.unwrap_or(nowhere));
        }
        self.jobs.set(given, &mut self.steering, now, tell);
        self.constant.iter().for_each(|unit| hold(unit, &mut self.steering, now));
        tell(Control::Background, 0, self.set_background(given, now));
        for control in self.refused.iter().copied() {
            for part in 0..given.count(control) {
                tell(control, part, refused(given.is_given(control, part)));
            }
        }
    }

    /// Brings back at once the cores and frequencies that `all` asks for, and tells what became of
    /// them. Frequencies come first: they are asked for in microseconds.
    pub fn recall(
        &mut self,
        all: &InForce,
        now: Nanos,
        tell: &mut impl FnMut(Control, usize, Outcome),
    ) {
        // A new share of patience, as each cycle has.
        self.steering.check(0, now, |_| false);
        let offline = self.resting();
        for domain in 0..self.domains.len() {
            if !self.domains[domain].rests(&offline) {
                let limits = self.limits(domain, all);
                limits.iter().for_each(|(at, value)| self.steering.ask(*at, value.as_deref()));
            }
        }
        let back = self.parking.as_mut().map(|it| it.recall(all, &mut self.steering, now));
        let cores = back.unwrap_or_default();
        (0..self.cores.len()).for_each(|group| tell(Control::ActiveCores, group, cores));
        self.set_frequencies(all, now, tell);
    }

    fn set_background(&mut self, given: &InForce, now: Nanos) -> Outcome {
        let races = given.background() == BackgroundMode::Race;
        self.background.set(races, &mut self.steering, now)
    }

    fn set_frequencies(
        &mut self,
        given: &InForce,
        now: Nanos,
        tell: &mut impl FnMut(Control, usize, Outcome),
    ) {
        let offline = self.resting();
        for (group, found) in &self.unsteered {
            let below = |hertz: Option<Hertz>| refused(hertz.is_some_and(|hertz| hertz < *found));
            let asked = given.frequency.at(*group).given;
            tell(Control::Frequency, *group, below(asked));
            tell(Control::FrequencyLimit, *group, below(given.frequency_limit.at(*group).given));
        }
        for domain in 0..self.domains.len() {
            if self.domains[domain].rests(&offline) {
                continue;
            }
            let outcome = self.set_frequency(domain, given, now);
            if outcome == Outcome::Done {
                continue;
            }
            let Domain { groups, socket, .. } = &self.domains[domain];
            for group in groups {
                tell(Control::Frequency, *group, outcome);
                tell(Control::FrequencyLimit, *group, outcome);
            }
            if let Some(socket) = socket.map(usize::from)
                && socket < given.frequency_cap.len()
            {
                tell(Control::FrequencyCap, socket, outcome);
            }
        }
    }

    fn set_frequency(&mut self, domain: usize, given: &InForce, now: Nanos) -> Outcome {
        let limits = self.limits(domain, given);
        limits.into_iter().fold(Outcome::Done, |outcome, (at, value)| {
            worse(outcome, self.steering.set(at, value.as_deref(), now))
        })
    }

    /// What the limits of a domain are to be, in this order: by the highest frequency that any
    /// group asks of it, below the ceiling of its socket.
    fn limits(&self, domain: usize, given: &InForce) -> [(usize, Option<String>); 2] {
        let Domain { groups, socket, .. } = &self.domains[domain];
        let mut asked = groups.iter().map(|group| {
            let limit = given.frequency_limit.at(*group).given;
            let asked = given.frequency.at(*group).given;
            asked.into_iter().chain(limit).reduce(Hertz::min)
        });
        let first = asked.next().flatten();
        let asked = asked.fold(first, |most, one| Some(most?.max(one?)));
        let caps = (0..given.frequency_cap.len())
            .filter(|at| socket.is_none_or(|socket| usize::from(socket) == *at));
        let caps = caps.filter_map(|at| given.frequency_cap.at(at).given);
        let ceiling = caps.chain(asked).reduce(Hertz::min);
        self.domains[domain].limits(ceiling, self.raises, &self.steering)
    }

    /// Lets the reactors' cores run at up to the share of the ceiling found that `asked` says of
    /// each CPU; where it says nothing of one, its domain is released.
    pub fn pace_reactors(&mut self, asked: impl Fn(u16) -> Option<f64>, now: Nanos) {
        let offline = self.resting();
        for domain in self.reactors.iter().filter(|domain| !domain.rests(&offline)) {
            let shares = domain.cpus.iter().map(|cpu| asked(*cpu));
            let share = shares.reduce(|most, one| Some(most?.max(one?))).flatten();
            let ceiling = share.map(|share| domain.found(&self.steering) * share);
            for (at, value) in domain.limits(ceiling, false, &self.steering) {
                self.steering.set(at, value.as_deref(), now);
            }
        }
    }

    /// Lower caps first, so that their sum is within the budget after each write; where one is not
    /// taken, none is raised.
    fn set_drives(
        &mut self,
        given: &InForce,
        now: Nanos,
        tell: &mut impl FnMut(Control, usize, Outcome),
    ) {
        let steering = &mut self.steering;
        let mut taken = true;
        for lower in [true, false] {
            for (drive, cap) in self.drives.iter().enumerate() {
                let asked = given.power_state.at(drive).given;
                let Some((at, cap)) = cap else {
                    let capped = asked.is_some_and(|state| state > 0);
                    tell(Control::PowerState, drive, refused(capped));
                    continue;
                };
                let (at, number) = (*at, |text: &str| cap.state(text.parse().unwrap_or_default()));
                let found = steering.found(at);
                let asked = asked.filter(|state| cap.may(*state, found, self.raises));
                let to = asked.unwrap_or_else(|| number(found));
                let lowers = to > number(steering.now(at));
                if lowers != lower {
                    continue;
                }
                let outcome = if lower || taken {
                    let value = asked.map(|state| cap.text(state));
                    steering.set(at, value.as_deref(), now)
                } else {
                    Outcome::Refused
                };
                taken &= !lower || outcome == Outcome::Done;
                tell(Control::PowerState, drive, outcome);
            }
        }
    }
}

/// The key of `[hold]` of what is held all or none.
fn name_of(unit: &[(usize, String)], steering: &Steering) -> &'static str {
    unit.first().map_or("", |(at, _)| steering.place(*at).hold())
}

/// Sets all of `unit`, or none of it.
fn hold(unit: &[(usize, String)], steering: &mut Steering, now: Nanos) {
    let rests = unit.iter().any(|(at, _)| steering.rests(*at, now));
    let mut set = unit.iter().map(|(at, value)| steering.set(*at, Some(value), now));
    if rests || !set.all(|outcome| outcome == Outcome::Done) {
        for (at, _) in unit.iter().rev() {
            steering.take_back(*at, now);
        }
    }
}

/// The groups with cores of the frequency domains `left`, which cannot be set, and the ceilings
/// of these.
fn unsteered(layout: &Layout, left: &[&Policy]) -> Vec<(usize, Hertz)> {
    let has = |cores: &[Core], policy: &Policy| {
        cores.iter().flat_map(|core| &core.cpus).any(|cpu| policy.cpus.contains(cpu))
    };
    let groups = layout.groups.iter().enumerate();
    let ceiling = |(group, cores): (usize, &Vec<Core>)| {
        let its = left.iter().filter(|policy| has(cores, policy)).map(|policy| policy.ceiling);
        Some((group, its.reduce(Hertz::max)?))
    };
    groups.filter_map(ceiling).collect()
}
