//! `pacer-plus`, ours: PACER with a trigger inside the period, and the drives' idle states.
//!
//! A load that jumps meets the few cores of the calm before until PACER's next step. What queues
//! meanwhile grows with the square of that time, so half a second costs more latency than hours
//! within `plf` have saved up, and none of it can be foreseen the first time. A reserve for all of
//! it would cost more than a quick answer: here the plant itself is told to bring all cores back as
//! soon as [`RECALL`] requests wait for each active one ([`crate::Request::recall`]), which takes
//! it milliseconds. PACER then finds itself in Unstable, as after a burst of its own finding.
//!
//! A sixth of each group's cores stays on ([`RESERVE`]): the last few cores save little power, and
//! requests that come all at once wait in inverse proportion to them.
//!
//! What a recall comes too late for, larger bunches of requests that are worked off in
//! milliseconds, is held against what `plf` has allowed: an account has, over the last hour or so,
//!
//! ```text
//! E = Σ (1 + plf) · l_baseline − l     over the requests completed under a saving
//!   + Σ plf · min(l, l_baseline)       over those under native
//! ```
//!
//! and while it is overdrawn everything stays on.
//!
//! Drives may enter the idle states (`ssd/apst.rs`) that a tenth of `plf` allows, at all times; the
//! other nine are PACER's, whose baseline has their wake-ups in it.

use crate::PolicyError;
use crate::cpu::pacer::{Pacer, PacerParams};
use crate::ssd::Apst;
use crate::topology::Topology;
use crate::{IoSignals, Policy, Request, Signals};

/// Requests on a core, waiting or worked on, at which the load is no longer what the cores were
/// chosen for. At the utilisation that PACER allows itself, 70 %, a core of a group has three at a
/// time or fewer; a mean of 16 does not come by chance.
const RECALL: u16 = 16;

/// Share of a group's cores that stays on. Parking all but the fewest saves half a percent more of
/// a server's power, and a bunch of requests then costs several times as much latency.
const RESERVE: f64 = 1.0 / 6.0;

/// The drives' share of `plf`. Shallow states wake within microseconds and save most of what drives
/// can save; deep ones take as long as a request does.
pub const DRIVES: f64 = 0.1;

/// Time in which what the account has fades to 1/e, in seconds.
const HOUR: f64 = 3600.0;

/// The controller.
#[derive(Debug, Clone)]
pub struct PacerPlus {
    pacer: Pacer,
    apst: Apst,
    topology: Topology,
    plf: f64,
    /// `E` in ns, summed over requests.
    account: f64,
}

impl PacerPlus {
    /// `pacer-plus` for `topology`; the parameters are PACER's.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(topology: &Topology, params: PacerParams) -> Result<Self, PolicyError> {
        params.validate()?;
        let (whole, drives) = (params.plf, DRIVES * params.plf);
        let plf = (1.0 + whole) / (1.0 + drives) - 1.0;
        let mut reserved = topology.clone();
        for group in &mut reserved.groups {
            let reserve = (f64::from(group.cores) * RESERVE).ceil() as u16;
            group.min_cores = group.min_cores.max(reserve);
        }
        Ok(Self {
            pacer: Pacer::new(&reserved, PacerParams { plf, ..params })?,
            apst: Apst::new(topology, drives),
            topology: topology.clone(),
            plf: whole,
            account: 0.0,
        })
    }

    /// Books what a period left of the tolerated loss, or took.
    fn book(&mut self, signals: &Signals) {
        let IoSignals { completed: Some(n @ 1..), mean_latency: Some(l), .. } = signals.io else {
            return;
        };
        let Some(l_baseline) = self.pacer.l_baseline() else { return };
        let (l, highest) = (l.0 as f64, self.topology.max_frequency());
        let native = self.topology.io_groups().all(|g| {
            let group = signals.in_force.group(g);
            group.active == self.topology.groups[g].cores && group.frequency == highest
        });
        let left = match native {
            true => self.plf * l.min(l_baseline),
            false => (1.0 + self.plf) * l_baseline - l,
        };
        self.account = self.account * (-signals.period.seconds() / HOUR).exp() + left * n as f64;
    }

    /// Whether a group was found with more cores than were in force.
    fn recalled(&self, signals: &Signals) -> bool {
        self.topology.io_groups().any(|g| {
            let found = signals.groups.get(g).and_then(|group| group.active);
            found.is_some_and(|active| active > signals.in_force.group(g).active)
        })
    }
}

impl Policy for PacerPlus {
    fn name(&self) -> &'static str {
        "pacer-plus"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        self.book(signals);
        let held = if self.recalled(signals) {
            Some("pacer-plus:recalled")
        } else {
            (self.account < 0.0).then_some("pacer-plus:overdrawn")
        };
        self.pacer.step_held(held, signals, request);
        self.apst.step(signals, request);
        for g in self.topology.io_groups() {
            request.recall.ask(g, RECALL, "pacer-plus:recall");
        }
    }
}

#[cfg(test)]
mod tests;
