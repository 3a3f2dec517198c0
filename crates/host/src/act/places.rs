//! The places that controls are set in. Those that belong together are one unit: it is steered
//! only if every one of its places can be read and set, for what cannot be read cannot be set back.

use ebb_policy::{Control, Topology};

use crate::act::idle_wake;
use crate::act::knob::{Knob, MANUAL, Place};
use crate::act::originals::{Leave, Original};
use crate::act::parking;
use crate::act::steering::Notice;
use crate::find::cpus::Policy;
use crate::find::energy::Zone;
use crate::find::fans::Fan;
use crate::find::layout::Layout;
use crate::find::machine::Machine;
use crate::nvme::Cap;

/// Places that one control is set in, all of them or none: a fan's mode and duty, a domain's
/// highest and lowest frequency.
#[derive(Debug)]
pub struct Unit {
    control: Control,
    places: Vec<Steered>,
    /// Whether it is set back whatever is to be left of its control.
    always: bool,
    /// Why it could not be set back, whatever its places say.
    refused: Option<&'static str>,
}

/// One place of a unit.
#[derive(Debug)]
struct Steered {
    place: Place,
    safe: Safe,
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
    fn new(place: Place, safe: Safe) -> Self {
        Self { place, safe }
    }
}

impl Unit {
    /// Places that the operator holds.
    #[must_use]
    pub fn held<'a>(places: impl Iterator<Item = &'a Place>) -> Self {
        let places = places.map(|place| Steered::new(place.clone(), Safe::Found));
        Self::of(Control::Background, places.collect())
    }

    fn of(control: Control, places: Vec<Steered>) -> Self {
        Self { control, places, always: false, refused: None }
    }

    /// What its places are set to now, and what is to be left there.
    ///
    /// # Errors
    /// Why it is not steered.
    pub fn originals(
        &self,
        machine: &Machine,
        leave: impl Fn(Control) -> Leave,
    ) -> Result<Vec<Original>, Notice> {
        if let (Some(why), Some(first)) = (self.refused, self.places.first()) {
            let text = format!("it is not steered: {why}");
            return Err(Notice { place: first.place.clone(), text });
        }
        let original = |one: &Steered| {
            let leave = if self.always { Leave::Restore } else { leave(self.control) };
            one.original(machine, leave).map_err(|reason| {
                let others = self.places.iter().filter(|other| other.place != one.place);
                let others = others.map(|other| format!("; so {} is not either", other.place));
                let others: String = others.collect();
                let text =
                    format!("it is not steered, for it could not be set back: {reason}{others}");
                Notice { place: one.place.clone(), text }
            })
        };
        self.places.iter().map(original).collect()
    }
}

impl Steered {
    fn original(&self, machine: &Machine, leave: Leave) -> Result<Original, String> {
        let knob = Knob::find(machine, &self.place);
        let original = Original::of(self.place.clone(), knob, &machine.sys);
        let original = original.map_err(|absent| absent.to_string())?;
        let safe = match &self.safe {
            Safe::Found => original.found.clone(),
            Safe::Value(value) => value.clone(),
        };
        let original = Original { safe, leave, ..original };
        original.check().map(|()| original)
    }
}

/// What the `owned` controls are set in, in the order in which it is set back: what may hang comes
/// last.
#[must_use]
pub fn units(
    machine: &Machine,
    layout: &Layout,
    topology: &Topology,
    owned: &[Control],
) -> Vec<Unit> {
    let owns = |control: Control| owned.contains(&control);
    let mut all = Vec::new();
    let domain = |policy: &Policy| {
        let places = ["max", "min"].map(|which| Steered::new(limit(policy, which), Safe::Found));
        Unit { refused: policy.set_by_hand(), ..Unit::of(Control::Frequency, places.into()) }
    };
    if layout.paces_reactors {
        let its = machine.cpus.policies.iter().filter(|policy| layout.is_reactors(policy));
        all.extend(its.map(|policy| Unit { always: true, ..domain(policy) }));
    }
    if owned.iter().any(|one| one.is_of_cores() && !one.parks()) {
        // One that a reactor's core belongs to is the reactor's.
        let is_free = |policy: &&Policy| policy.cpus.iter().all(|c| !layout.reactors.contains(c));
        all.extend(machine.cpus.policies.iter().filter(is_free).map(domain));
    }
    if owned.iter().any(|one| one.parks()) {
        let place = Steered::new(parking::place(layout.park_by), Safe::Found);
        all.push(Unit::of(Control::ActiveCores, vec![place]));
    }
    if layout.limits_packages {
        let places = machine.limited_packages().map(package_place);
        let unit = |place| Unit::of(Control::PackageLimit, vec![Steered::new(place, Safe::Found)]);
        all.extend(places.map(unit));
    }
    let steered = layout.fans.fans.iter().filter(|fan| fan.left.is_none());
    all.extend(steered.map(|fan| fan_unit(machine, fan)));
    for (parts, spec) in layout.drives.iter().zip(&topology.drives) {
        if let Some(drive) = parts.drive.saved.clone()
            && spec.operational().len() > 1
        {
            let cap = parts.cap();
            let place = Steered::new(cap_place(&cap, drive), Safe::Value(cap.text(0)));
            all.push(Unit::of(Control::PowerState, vec![place]));
        }
        if owns(Control::IdleWake)
            && let Some(place) = idle_wake::place(parts)
        {
            all.push(Unit::of(Control::IdleWake, vec![Steered::new(place, Safe::Found)]));
        }
    }
    all
}

/// The places of a fan.
#[must_use]
pub fn fan_unit(machine: &Machine, fan: &Fan) -> Unit {
    let (duty, mode) = fan_places(machine, fan);
    let duty = Steered::new(duty, Safe::Value("255".to_owned()));
    let mode = mode.map(|mode| Steered::new(mode, Safe::Value(MANUAL.to_owned())));
    Unit::of(Control::FanDuty, std::iter::once(duty).chain(mode).collect())
}

/// The place of a frequency limit.
#[must_use]
pub fn limit(policy: &Policy, which: &str) -> Place {
    Place::File { path: format!("{}/scaling_{which}_freq", policy.folder) }
}

/// The place of a package's power limit.
#[must_use]
pub fn package_place(zone: &Zone) -> Place {
    let (control_type, package) = (zone.control_type().to_owned(), zone.name.clone());
    Place::PackagePower { control_type, package }
}

/// The place of a drive's cap.
#[must_use]
pub fn cap_place(cap: &Cap, drive: String) -> Place {
    match cap {
        Cap::State => Place::PowerState { drive },
        Cap::Limit(_) => Place::PowerLimit { drive },
    }
}

/// The place of a fan's duty, and that of its mode where it has one.
#[must_use]
pub fn fan_places(machine: &Machine, fan: &Fan) -> (Place, Option<Place>) {
    let chip = &machine.chips[fan.chip];
    let place = |file: String| Place::Chip {
        chip: chip.name.clone(),
        device: chip.device.clone().unwrap_or_default(),
        file,
    };
    let mode = fan.mode_file(machine).map(|_| place(format!("{}_enable", fan.pwm)));
    (place(fan.pwm.clone()), mode)
}
