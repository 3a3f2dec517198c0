//! A frequency domain: cores that share the limits of one cpufreq policy.

use ebb_policy::units::Hertz;

use crate::act::contact::Attempt;
use crate::act::places::limit;
use crate::act::steering::Steering;
use crate::find::cpus::Policy;
use crate::find::layout::{Core, Layout};
use crate::find::machine::Machine;

/// One frequency domain.
#[derive(Debug)]
pub struct Domain {
    /// The place of its highest frequency, and of its lowest.
    pub max: usize,
    /// See [`Self::max`].
    pub min: usize,
    /// The groups that have cores in it.
    pub groups: Vec<usize>,
    /// Its CPUs.
    pub cpus: Vec<u16>,
    /// The socket of the first.
    pub socket: Option<u16>,
    range: (Hertz, Hertz),
}

impl Domain {
    /// That of `policy`; `None` where its limits are not steered.
    #[must_use]
    pub fn find(
        machine: &Machine,
        layout: &Layout,
        steering: &Steering,
        policy: &Policy,
    ) -> Option<Self> {
        let of = |cores: &Vec<Core>| {
            cores.iter().any(|core| core.cpus.iter().any(|cpu| policy.cpus.contains(cpu)))
        };
        let groups = layout.groups.iter().enumerate().filter(|(_, cores)| of(cores));
        let cpu = machine.cpus.cpus.iter().find(|cpu| policy.cpus.contains(&cpu.number));
        Some(Self {
            max: steering.find(&limit(policy, "max"))?,
            min: steering.find(&limit(policy, "min"))?,
            groups: groups.map(|(at, _)| at).collect(),
            cpus: policy.cpus.clone(),
            socket: cpu.map(|cpu| cpu.socket),
            range: (policy.lowest, policy.highest),
        })
    }

    /// What it is tried with: its lowest ceiling, where that is not the one found.
    #[must_use]
    pub fn attempt(&self, steering: &Steering) -> Option<Attempt> {
        let lowest = self.range.0.0 / 1e3;
        if khz(steering.found(self.max)) <= lowest {
            return None;
        }
        let min = (khz(steering.found(self.min)) > lowest).then_some(self.min);
        let writes = min.into_iter().chain([self.max]).map(|at| (at, format!("{lowest:.0}")));
        let bounds = self.cpus.first().map(|cpu| (*cpu, lowest));
        Some(Attempt { writes: writes.collect(), bounds })
    }

    /// The ceiling found.
    #[must_use]
    pub fn found(&self, steering: &Steering) -> Hertz {
        Hertz(khz(steering.found(self.max)) * 1e3)
    }

    /// The ceiling in force as a share of the one found.
    #[must_use]
    pub fn speed(&self, steering: &Steering) -> f64 {
        let (now, found) = (khz(steering.now(self.max)), khz(steering.found(self.max)));
        // What cannot be told, and what is raised, is no saving.
        if now > 0.0 && now < found { now / found } else { 1.0 }
    }

    /// Whether nothing runs there: it cannot be asked or set then.
    #[must_use]
    pub fn rests(&self, offline: &[u16]) -> bool {
        self.cpus.iter().all(|cpu| offline.contains(cpu))
    }

    /// What its limits are to be, in this order.
    ///
    /// What is asked is a ceiling, not a pin; one that is no lower than the ceiling found is
    /// released, unless that may be raised.
    #[must_use]
    pub fn limits(
        &self,
        asked: Option<Hertz>,
        raises: bool,
        steering: &Steering,
    ) -> [(usize, Option<String>); 2] {
        let (max, min) = (self.max, self.min);
        let (lowest, highest) = self.range;
        let ceiling = asked.map(|hertz| hertz.max(lowest).min(highest).0 / 1e3);
        let found = khz(steering.found(max));
        let ceiling = ceiling.filter(|most| *most < found || raises && *most > found);
        let floor = ceiling.filter(|most| *most < khz(steering.found(min)));
        let text = |khz: Option<f64>| khz.map(|khz| format!("{khz:.0}"));
        // The maximum may never come below the minimum in between.
        let least = floor.unwrap_or(khz(steering.found(min)));
        if least > khz(steering.now(max)) {
            [(max, text(ceiling)), (min, text(floor))]
        } else {
            [(min, text(floor)), (max, text(ceiling))]
        }
    }
}

/// What cannot be told is nothing.
fn khz(text: &str) -> f64 {
    text.parse().unwrap_or_default()
}
