//! The last thing between any policy and any plant.
//!
//! ```text
//!             absurd value, stopped clock, no I/O counters
//!   trusting ─────────────────────────────────────────────► native
//!       ▲                                                      │
//!       └──────────── recovery_periods good in a row ──────────┘
//! ```
//!
//! In either state what leaves the guard is within the topology's bounds and the [`Limits`].
//! Every change it makes is a decision with a reason that starts with `guard:`.

mod thermal;
mod trust;

use crate::controls::GroupControl;
use crate::cooling::{EMERGENCY, RED_LINE};
use crate::ssd::{CAP_TOLERANCE, PowerDesc};
use crate::topology::{GroupSpec, PowerState, Topology};
use crate::units::{Celsius, Hertz, Watts};
use crate::{BackgroundMode, Controls, FanControl, Signals};

use thermal::Thermal;
use trust::{Trust, in_a_row};

/// What no policy may exceed, and when signals are no longer believed.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Most that the caps of all drives may sum to; no limit when `None`.
    pub ssd_budget: Option<Watts>,
    /// Frequency floor; the topology's lowest when `None`.
    pub min_frequency: Option<Hertz>,
    /// Largest share of a group's cores that may be parked in one period (at least one core).
    /// Bringing cores back is never limited.
    pub park_share: f64,
    /// Periods in a row without required I/O counters, with a clock that stands still, or with a
    /// drive that does not take a lower cap, after which the guard acts.
    pub patience_periods: u32,
    /// Good periods in a row after which a policy is trusted again.
    pub recovery_periods: u32,
    /// Socket temperature from which the fans run at full speed, whoever owns them; lower where
    /// the hardware throttles earlier.
    pub emergency: Celsius,
    /// Socket temperature that is never to be crossed; lower where the hardware throttles earlier.
    pub red_line: Celsius,
    /// Drive temperature from which the fans run at full speed, whoever owns them; each drive's own
    /// limit ([`crate::DriveSpec::hottest`]) when `None`.
    pub drive: Option<Celsius>,
}

impl Default for Limits {
    /// Half a group per period, 2 s of patience, 5 s of recovery; no budget; EADC's temperatures,
    /// the drives' own limits.
    fn default() -> Self {
        Self {
            ssd_budget: None,
            min_frequency: None,
            park_share: 0.5,
            patience_periods: 4,
            recovery_periods: 10,
            emergency: EMERGENCY,
            red_line: RED_LINE,
            drive: None,
        }
    }
}

/// Enforces [`Limits`] and the topology's bounds on whatever a policy asked for.
#[derive(Debug)]
pub struct Guard {
    topology: Topology,
    limits: Limits,
    desc: PowerDesc,
    trust: Trust,
    thermal: Thermal,
    /// What left the guard last.
    groups: Vec<GroupControl>,
    drives: Vec<PowerState>,
    fans: Vec<FanControl>,
    /// Periods in a row in which the drive reported a higher cap than was asked for.
    disobeyed: Vec<u32>,
    /// Caps of drives that keep a higher cap than asked for; zero for the others.
    taken: Vec<Watts>,
}

impl Guard {
    /// A guard for `topology`.
    #[must_use]
    pub fn new(topology: &Topology, limits: Limits) -> Self {
        let native = Controls::native(topology);
        let drives = topology.drives.len();
        Self {
            topology: topology.clone(),
            desc: PowerDesc::new(topology),
            trust: Trust::new(&limits),
            thermal: Thermal::new(topology, &limits),
            limits,
            groups: native.groups().to_vec(),
            drives: native.drives().to_vec(),
            fans: native.fans().to_vec(),
            disobeyed: vec![0; drives],
            taken: vec![Watts(0.0); drives],
        }
    }

    /// Brings `controls` inside the limits; falls back to native on signals that cannot be
    /// believed. Call it once per period, after the policies.
    pub fn check(&mut self, signals: &Signals, controls: &mut Controls) {
        let distrust = self.trust.judge(&self.topology, signals);
        for group in 0..self.topology.groups.len() {
            self.bound_cores(group, distrust.cores, controls);
            self.bound_frequency(group, distrust.cores, controls);
        }
        if let Some(reason) = distrust.cores {
            controls.set_background(BackgroundMode::Normal, reason);
        }
        self.watch_drives(signals);
        self.bound_drives(distrust.drives, controls);
        self.thermal.bound(signals, &self.fans, distrust.drives, &self.topology, controls);
        self.groups.copy_from_slice(controls.groups());
        self.drives.copy_from_slice(controls.drives());
        self.fans.copy_from_slice(controls.fans());
    }

    fn bound_cores(&self, g: usize, distrust: Option<&'static str>, controls: &mut Controls) {
        let GroupSpec { cores, min_cores, .. } = self.topology.groups[g];
        let wanted = controls.groups()[g].active;
        let least = min_cores.max(1).min(cores);
        let park = (self.limits.park_share * f64::from(cores)).ceil().max(1.0) as u16;
        let fewest = self.groups[g].active.saturating_sub(park);
        let (active, reason) = match distrust {
            Some(reason) => (cores, reason),
            None if wanted > cores => (cores, "guard:max-cores"),
            None if wanted < least.max(fewest) && least >= fewest => (least, "guard:min-cores"),
            None if wanted < fewest => (fewest, "guard:park-rate"),
            None => return,
        };
        controls.set_active(g, active, reason);
    }

    fn bound_frequency(&self, g: usize, distrust: Option<&'static str>, controls: &mut Controls) {
        let highest = self.topology.max_frequency();
        if let Some(reason) = distrust {
            controls.set_frequency(g, highest, reason);
            return;
        }
        let wanted = controls.groups()[g].frequency;
        let floor = self.limits.min_frequency.unwrap_or_default();
        let (frequency, reason) = if !wanted.0.is_finite() {
            (highest, "guard:absurd-request")
        } else if wanted < floor {
            (self.topology.frequency_at_least(floor), "guard:min-frequency")
        } else {
            (self.topology.frequency_at_least(wanted), "guard:unavailable-frequency")
        };
        controls.set_frequency(g, frequency, reason);
    }

    /// Finds drives that for a while have reported a higher cap than was asked for: a refused or
    /// lost write. A drive in transition gets there within the guard's patience.
    fn watch_drives(&mut self, signals: &Signals) {
        for (d, drive) in signals.drives.iter().enumerate().take(self.drives.len()) {
            let asked = self.desc.cap(d, self.drives[d]);
            let reported = drive.state.map_or(asked, |ps| self.desc.cap(d, ps));
            self.disobeyed[d] = in_a_row(self.disobeyed[d], reported > asked);
            let stuck = self.disobeyed[d] >= self.limits.patience_periods.max(1);
            self.taken[d] = if stuck { reported } else { Watts(0.0) };
        }
    }

    /// Operational states only, with a sum of caps within the budget: where a policy asks for
    /// more, every drive above the uniform cap that fits comes down to it (SSPC). That cap
    /// always fits where anything does, and asks nothing of the policy's internals.
    fn bound_drives(&self, distrust: Option<&'static str>, controls: &mut Controls) {
        let asked = |d: usize, controls: &Controls| match distrust {
            Some(_) => 0,
            None => controls.drives()[d].min(self.desc.deepest(d)),
        };
        let counted = |d| self.desc.cap(d, asked(d, controls)).max(self.taken[d]);
        let sum = (0..self.drives.len()).map(counted).sum::<Watts>();
        // A budget that is no number is kept by nothing: the deepest caps.
        let kept = |budget: Watts| (0.0..=(budget + CAP_TOLERANCE).0).contains(&sum.0);
        let level =
            self.limits.ssd_budget.filter(|budget| !kept(*budget)).map(|budget| {
                self.desc.uniform_level(budget, |d| self.taken[d]).unwrap_or_default()
            });
        let why = match (distrust, level) {
            (Some(reason), _) => reason,
            (None, Some(_)) => "guard:over-budget",
            (None, None) => "guard:not-operational",
        };
        for d in 0..self.drives.len() {
            let fits = level.map_or(0, |level| self.desc.state_at(d, level));
            controls.set_power_state(d, asked(d, controls).max(fits), why);
        }
    }

    /// The writes that take the drives from `current` to what `controls` asks for, in an order
    /// that keeps the sum of caps within the budget after each one: lower caps first. The plant
    /// carries out one write at a time, waits for it to take effect, and carries out no later one
    /// where it failed.
    pub fn drive_writes<'a>(
        current: &'a [PowerState],
        controls: &'a Controls,
    ) -> impl Iterator<Item = (usize, PowerState)> + 'a {
        let changes = move |lower: bool| {
            current.iter().zip(controls.drives()).enumerate().filter_map(
                move |(drive, (from, to))| {
                    (from != to && (to > from) == lower).then_some((drive, *to))
                },
            )
        };
        changes(true).chain(changes(false))
    }
}

#[cfg(test)]
mod tests;
