//! Puts what is given in force: which places each control is set in, to what, in which order.

use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{BackgroundMode, Control, InForce, Outcome, PowerState, Topology};

use crate::act::hold::{Held, Hold};
use crate::act::knob::{Knob, Place};
use crate::act::originals::{Leave, Original, State};
use crate::act::parking::{self, Parking};
use crate::act::steering::{Notice, Steering, worse};
use crate::act::tasks::Tasks;
use crate::find::layout::{Core, Layout, ParkBy};
use crate::find::machine::Machine;

/// Controls that nothing on a host carries out.
const NOWHERE: [Control; 5] =
    [Control::JobShare, Control::JobSocket, Control::Admit, Control::IdleWake, Control::Recall];

/// So many places are read back in a cycle at least, and so many parts of all.
const CHECKED: usize = 4;
const CHECKED_PARTS: usize = 20;

/// A place that a control is set in.
#[derive(Debug)]
pub struct Steered {
    control: Control,
    place: Place,
    safe: Safe,
    /// Whether its value is the firmware's while it steers itself.
    moves: bool,
}

/// What can do no harm in a place.
#[derive(Debug)]
enum Safe {
    /// What was found.
    Found,
    /// This.
    Value(String),
}

impl Steered {
    /// A place that the operator holds.
    #[must_use]
    pub fn held(place: &Place) -> Self {
        let control = Control::Background;
        Self { control, place: place.clone(), safe: Safe::Found, moves: false }
    }

    /// What it is set to now, and what is to be left there.
    ///
    /// # Errors
    /// Why it cannot be steered.
    pub fn original(
        &self,
        machine: &Machine,
        leave: impl Fn(Control) -> Leave,
    ) -> Result<Original, Notice> {
        let found = Knob::find(machine, &self.place).and_then(|mut knob| knob.read(&machine.sys));
        let found = found.map_err(|absent| Notice {
            place: self.place.clone(),
            text: format!("it is not steered, for it could not be set back: {absent}"),
        })?;
        // The group is Ebb's: one that is there was left behind.
        let found =
            if matches!(self.place, Place::Partition { .. }) { String::new() } else { found };
        let safe = match &self.safe {
            Safe::Found => found.clone(),
            Safe::Value(value) => value.clone(),
        };
        let leave = match leave(self.control) {
            Leave::Restore if self.moves => Leave::Keep,
            leave => leave,
        };
        Ok(Original { place: self.place.clone(), found, safe, leave })
    }
}

/// One frequency domain.
#[derive(Debug)]
struct Domain {
    max: usize,
    min: usize,
    groups: Vec<usize>,
    cpus: Vec<u16>,
    socket: Option<u16>,
    range: (Hertz, Hertz),
}

impl Domain {
    /// Whether nothing runs there: it cannot be asked or set then.
    fn rests(&self, offline: &[u16]) -> bool {
        self.cpus.iter().all(|cpu| offline.contains(cpu))
    }
}

/// One fan: its mode, where it has one, and its duty.
#[derive(Debug)]
struct Fan {
    mode: Option<usize>,
    duty: usize,
}

/// Acts on one machine.
#[derive(Debug)]
pub struct Acting {
    steering: Steering,
    /// Cores of each group.
    cores: Vec<u16>,
    parking: Option<Parking>,
    domains: Vec<Domain>,
    drives: Vec<Option<usize>>,
    fans: Vec<Option<Fan>>,
    /// What the operator holds all the time, and while background work races.
    constant: Vec<(usize, String)>,
    race: Vec<(usize, String)>,
}

impl Acting {
    /// The places that `owned` controls are set in, in the order in which they are set back: what
    /// may hang comes last.
    #[must_use]
    pub fn places(
        machine: &Machine,
        layout: &Layout,
        topology: &Topology,
        owned: &[Control],
    ) -> Vec<Steered> {
        let owns = |control: Control| owned.contains(&control);
        let mut all = Vec::new();
        let mut add = |control, place, safe, moves| {
            all.push(Steered { control, place, safe, moves });
        };
        if owns(Control::Frequency) || owns(Control::FrequencyCap) {
            for policy in &machine.cpus.policies {
                let highest = format!("{:.0}", policy.highest.0 / 1e3);
                add(Control::Frequency, limit(policy, "max"), Safe::Value(highest), false);
                add(Control::Frequency, limit(policy, "min"), Safe::Found, false);
            }
        }
        if owns(Control::ActiveCores) {
            add(Control::ActiveCores, parking::place(layout.park_by), Safe::Found, false);
            if layout.park_by == ParkBy::Partition {
                add(Control::ActiveCores, parking::controller(), Safe::Found, false);
            }
        }
        for (chip, pwm) in &layout.fans {
            let (duty, mode) = fan(machine, *chip, pwm);
            let is_manual = machine.sys.text(&mode.1).is_ok_and(|mode| mode == "1");
            let has_mode = machine.sys.has(&mode.1);
            let full = Safe::Value("255".to_owned());
            add(Control::FanDuty, duty, full, has_mode && !is_manual);
            if has_mode {
                add(Control::FanDuty, mode.0, Safe::Value("1".to_owned()), false);
            }
        }
        for (parts, spec) in layout.drives.iter().zip(&topology.drives) {
            if let Some(drive) = parts.drive.id.clone()
                && spec.operational().len() > 1
            {
                let place = Place::PowerState { drive };
                add(Control::PowerState, place, Safe::Value("0".to_owned()), false);
            }
        }
        all
    }

    /// Acts in the places that `steering` has; `state` is where what was found is on disk.
    #[must_use]
    pub fn new(
        machine: &Machine,
        layout: &Layout,
        steering: Steering,
        tasks: Tasks,
        holds: &Held,
        state: &State,
    ) -> Self {
        let find = |place: &Place| steering.find(place);
        let held = |holds: &[Hold]| {
            let held = holds.iter().map(|hold| Some((find(&hold.place)?, hold.value.clone())));
            held.flatten().collect()
        };
        let domains = machine.cpus.policies.iter().filter_map(|policy| {
            let of = |cores: &Vec<Core>| {
                cores.iter().any(|core| core.cpus.iter().any(|cpu| policy.cpus.contains(cpu)))
            };
            let groups = layout.groups.iter().enumerate().filter(|(_, cores)| of(cores));
            let cpu = machine.cpus.cpus.iter().find(|cpu| policy.cpus.contains(&cpu.number));
            Some(Domain {
                max: find(&limit(policy, "max"))?,
                min: find(&limit(policy, "min"))?,
                groups: groups.map(|(at, _)| at).collect(),
                cpus: policy.cpus.clone(),
                socket: cpu.map(|cpu| cpu.socket),
                range: (policy.lowest, policy.highest),
            })
        });
        let fan = |(chip, pwm): &(usize, String)| {
            let (duty, mode) = fan(machine, *chip, pwm);
            Some(Fan { mode: find(&mode.0), duty: find(&duty)? })
        };
        let drive = |parts: &crate::find::layout::DriveParts| {
            find(&Place::PowerState { drive: parts.drive.id.clone()? })
        };
        Self {
            parking: Parking::new(machine, layout, &steering, tasks, state.again()),
            cores: layout.groups.iter().map(|cores| cores.len() as u16).collect(),
            domains: domains.collect(),
            drives: layout.drives.iter().map(drive).collect(),
            fans: layout.fans.iter().map(fan).collect(),
            constant: held(&holds.constant),
            race: held(&holds.race),
            steering,
        }
    }

    /// Cores of `group` that take new work.
    #[must_use]
    pub fn active(&self, group: usize) -> u16 {
        let active = self.parking.as_ref().map(|parking| parking.active(group, &self.steering));
        active.unwrap_or(self.cores[group])
    }

    /// The CPUs that are offline because their cores are parked.
    #[must_use]
    pub fn offline(&self) -> Vec<u16> {
        self.parking.as_ref().map(|parking| parking.offline(&self.steering)).unwrap_or_default()
    }

    /// See [`crate::Host::notices`].
    pub fn notices(&mut self) -> Vec<Notice> {
        self.steering.notices()
    }

    /// See [`crate::Host::failing`].
    #[must_use]
    pub fn failing(&self) -> usize {
        self.steering.failing()
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
        let (drives, offline) = (&self.drives, self.offline());
        let drive = |place: usize| drives.iter().position(|at| *at == Some(place));
        let rests = |place: usize| {
            let its = self.domains.iter().find(|domain| [domain.max, domain.min].contains(&place));
            its.is_some_and(|domain| domain.rests(&offline))
        };
        let sleeps = |place: usize| drive(place).is_some_and(&sleeps) || rests(place);
        self.steering.check(checked, now, sleeps);
        for fan in 0..self.fans.len() {
            tell(Control::FanDuty, fan, self.set_fan(fan, given, now));
        }
        // Cores come back before they are slowed down, and are slowed down before they go.
        let parked = self.parking.as_mut().map(|it| it.set(given, &mut self.steering, now));
        for (group, cores) in self.cores.iter().enumerate() {
            let nowhere = || refused(given.group(group).active < *cores);
            tell(Control::ActiveCores, group, parked.unwrap_or_else(nowhere));
        }
        let offline = self.offline();
        for domain in 0..self.domains.len() {
            if self.domains[domain].rests(&offline) {
                continue;
            }
            let outcome = self.set_frequency(domain, given, now);
            if outcome == Outcome::Done {
                continue;
            }
            let Domain { groups, socket, .. } = &self.domains[domain];
            groups.iter().for_each(|group| tell(Control::Frequency, *group, outcome));
            if let Some(socket) = socket.map(usize::from)
                && socket < given.frequency_cap.len()
            {
                tell(Control::FrequencyCap, socket, outcome);
            }
        }
        self.set_drives(given, now, tell);
        for (at, value) in &self.constant {
            self.steering.set(*at, Some(value), now);
        }
        tell(Control::Background, 0, self.set_background(given, now));
        for control in NOWHERE {
            for part in 0..given.count(control) {
                tell(control, part, refused(given.is_given(control, part)));
            }
        }
    }

    fn set_background(&mut self, given: &InForce, now: Nanos) -> Outcome {
        let races = given.background() == BackgroundMode::Race;
        let set = |outcome, (at, value): &(usize, String)| {
            worse(outcome, self.steering.set(*at, races.then_some(value), now))
        };
        let nowhere = refused(races && self.race.is_empty());
        self.race.iter().fold(nowhere, set)
    }

    fn set_fan(&mut self, fan: usize, given: &InForce, now: Nanos) -> Outcome {
        let asked = given.fan_duty.at(fan).given;
        let Some(Fan { mode, duty }) = &self.fans[fan] else { return refused(asked.is_some()) };
        let steering = &mut self.steering;
        let Some(share) = asked else {
            // The duty while it can still be set, then the board's own control.
            let duty = steering.set(*duty, None, now);
            return worse(duty, mode.map_or(Outcome::Done, |mode| steering.set(mode, None, now)));
        };
        let mode = mode.map_or(Outcome::Done, |mode| steering.set(mode, Some("1"), now));
        if mode != Outcome::Done {
            return mode;
        }
        let steps = (share.clamp(0.0, 1.0) * 255.0).ceil() as u8;
        steering.set(*duty, Some(&steps.to_string()), now)
    }

    /// The highest frequency that any group asks of a domain, below the ceiling of its socket.
    fn set_frequency(&mut self, domain: usize, given: &InForce, now: Nanos) -> Outcome {
        let Domain { max, min, groups, socket, range, .. } = &self.domains[domain];
        let (max, min) = (*max, *min);
        let mut asked = groups.iter().map(|group| given.frequency.at(*group).given);
        let first = asked.next().flatten();
        let asked = asked.fold(first, |most, one| Some(most?.max(one?)));
        let caps = (0..given.frequency_cap.len())
            .filter(|at| socket.is_none_or(|socket| usize::from(socket) == *at));
        let cap = caps.filter_map(|at| given.frequency_cap.at(at).given).reduce(Hertz::min);
        let steering = &mut self.steering;
        if asked.is_none() && cap.is_none() {
            return worse(steering.set(max, None, now), steering.set(min, None, now));
        }
        let found = |at: usize| {
            let khz = steering.found(at).parse::<f64>().ok();
            khz.map(|khz| Hertz(khz * 1e3))
        };
        let bounded = |frequency: Option<Hertz>| {
            let capped = cap.map_or(frequency, |cap| frequency.map(|f| f.min(cap)).or(Some(cap)));
            let (lowest, highest) = *range;
            let hertz = capped.unwrap_or(highest).max(lowest).min(highest);
            format!("{:.0}", hertz.0 / 1e3)
        };
        let (most, least) = (bounded(asked.or(found(max))), bounded(asked.or(found(min))));
        let khz = |text: &str| text.parse::<f64>().unwrap_or_default();
        // The maximum may never come below the minimum in between.
        let order = if khz(&most) >= khz(steering.now(max)) {
            [(max, &most), (min, &least)]
        } else {
            [(min, &least), (max, &most)]
        };
        order.into_iter().fold(Outcome::Done, |outcome, (at, value)| {
            worse(outcome, steering.set(at, Some(value), now))
        })
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
        let number = |text: &str| text.parse::<PowerState>().unwrap_or_default();
        let mut taken = true;
        for lower in [true, false] {
            for (drive, at) in self.drives.iter().enumerate() {
                let asked = given.power_state.at(drive).given;
                let Some(at) = *at else {
                    tell(Control::PowerState, drive, refused(asked.is_some()));
                    continue;
                };
                let to = asked.unwrap_or_else(|| number(steering.found(at)));
                let lowers = to > number(steering.now(at));
                if lowers != lower {
                    continue;
                }
                let outcome = if lower || taken {
                    let value = asked.map(|state| state.to_string());
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

/// The place of a frequency limit.
fn limit(policy: &crate::find::cpus::Policy, which: &str) -> Place {
    Place::File { path: format!("{}/scaling_{which}_freq", policy.folder) }
}

/// The place of a fan's duty, and that of its mode with the mode's file.
fn fan(machine: &Machine, chip: usize, pwm: &str) -> (Place, (Place, String)) {
    let chip = &machine.chips[chip];
    let place = |file: String| Place::Chip {
        chip: chip.name.clone(),
        device: chip.device.clone().unwrap_or_default(),
        file,
    };
    let mode = format!("{pwm}_enable");
    let path = format!("{}/{mode}", chip.folder);
    (place(pwm.to_owned()), (place(mode), path))
}

/// Of a control that has no place here.
fn refused(asked: bool) -> Outcome {
    if asked { Outcome::Refused } else { Outcome::Done }
}
