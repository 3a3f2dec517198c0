//! The power limit of the processor packages, all together, as a budget of the whole server asks
//! for (RAPL, `Documentation/power/powercap/powercap.rst`).

use ebb_policy::Outcome;
use ebb_policy::units::{Nanos, Watts};

use crate::act::contact::{Attempt, PowerWatch};
use crate::act::places::package_place;
use crate::act::steering::{Steering, refused, worse};
use crate::find::layout::Layout;
use crate::find::machine::Machine;

/// What is tried at first contact, as a share of the limit found.
const TRIED: f64 = 0.95;

/// The packages that have a limit.
#[derive(Debug)]
pub struct Packages {
    /// Each with the least that it is limited to, in microwatts.
    places: Vec<(usize, f64)>,
    /// What they are limited to together, and who sees whether they keep to it.
    limit: Option<Watts>,
    watch: PowerWatch,
}

impl Packages {
    /// Those of `machine`, in the places that `steering` has; none that the operator holds.
    #[must_use]
    pub fn new(machine: &Machine, layout: &Layout, steering: &Steering) -> Self {
        let own = machine.limited_packages().filter(|_| layout.limits_packages);
        let place = |zone| {
            let at = steering.find(&package_place(zone))?;
            let found = found(at, steering).unwrap_or_default() * 1e-6;
            Some((at, zone.least(&machine.sys, Watts(found)).0 * 1e6))
        };
        let places = own.filter_map(place).collect();
        Self { places, limit: None, watch: PowerWatch::default() }
    }

    /// Does without them.
    pub fn refuse(&mut self) {
        self.places.clear();
    }

    /// A limit of the first one to try.
    #[must_use]
    pub fn attempt(&self, steering: &Steering) -> Option<Attempt> {
        let (at, _) = *self.places.first()?;
        let value = format!("{:.0}", found(at, steering)? * TRIED);
        Some(Attempt { writes: vec![(at, value)], bounds: None })
    }

    /// Limits them to `asked` together, each to an equal part, and none to more than was found.
    pub fn set(&mut self, asked: Option<Watts>, steering: &mut Steering, now: Nanos) -> Outcome {
        if self.places.is_empty() {
            return refused(asked.is_some());
        }
        let part = asked.map(|watts| watts.0 * 1e6 / self.places.len() as f64);
        let (mut all, mut sum) = (Outcome::Done, 0.0);
        for (at, least) in self.places.iter().copied() {
            let found = found(at, steering);
            let value = part.zip(found).map(|(part, found)| part.max(least).min(found));
            let value = value.filter(|value| Some(*value) != found);
            sum += value.or(found).unwrap_or_default();
            let text = value.map(|micros| format!("{micros:.0}"));
            all = worse(all, steering.set(at, text.as_deref(), now));
        }
        self.limit = asked.filter(|_| all == Outcome::Done).map(|_| Watts(sum * 1e-6));
        all
    }

    /// Says, once, of a limit that reads back and does not bind.
    pub fn see(&mut self, power: Option<Watts>, steering: &mut Steering, now: Nanos) {
        let Some((at, _)) = self.places.first() else { return };
        let text = self.limit.and_then(|limit| self.watch.see(limit, power, now));
        text.into_iter().for_each(|text| steering.note(*at, text));
    }
}

/// The limit found, in microwatts; none of a package that has none.
fn found(at: usize, steering: &Steering) -> Option<f64> {
    steering.found(at).parse().ok().filter(|micros| *micros > 0.0)
}
