//! What the control groups use that a budget of the whole server may limit.

use ebb_policy::{BestEffortSignals, Signals};

use crate::find::jobs::{Use, Yielding};
use crate::find::layout::Layout;
use crate::find::machine::Machine;
use crate::sense::group::{Group, Moved, moved};

/// The groups of a machine.
#[derive(Debug)]
pub struct Throttled {
    groups: Vec<(Group, Vec<Moved>)>,
    /// For which of them nobody waits.
    best_effort: Vec<bool>,
    /// The number of each drive, such as `259:0`.
    drives: Vec<Option<String>>,
    uses: Vec<Use>,
}

impl Throttled {
    /// Those of `layout`.
    #[must_use]
    pub fn new(machine: &Machine, layout: &Layout) -> Self {
        let none = vec![Moved::default(); layout.drives.len()];
        let group = |of: &Yielding| (Group::new(&machine.sys, &of.group), none.clone());
        let groups: Vec<_> = layout.throttle.iter().map(group).collect();
        let rates = vec![[0.0; 2]; layout.drives.len()];
        let uses = vec![Use { rates, ..Use::default() }; groups.len()];
        let best_effort = layout.throttle.iter().map(|of| of.best_effort).collect();
        let mut this = Self { groups, best_effort, drives: Vec::new(), uses };
        this.follow(machine, layout);
        this
    }

    /// Takes in that drives have come or gone.
    pub fn follow(&mut self, machine: &Machine, layout: &Layout) {
        let number = |name: &str| machine.sys.text(format!("sys/block/{name}/dev")).ok();
        let drives = layout.drives.iter().map(|parts| number(&parts.drive.name));
        self.drives = drives.collect();
    }

    /// What each used in the period that ends now; tells `signals` what nobody waits for.
    pub fn read(&mut self, signals: &mut Signals) -> &[Use] {
        let Self { groups, best_effort, drives, uses } = self;
        for ((group, before), used) in groups.iter_mut().zip(&mut *uses) {
            let is_new = group.look();
            used.id = group.id();
            used.cores = group.cores(signals.period).unwrap_or_default();
            used.rates.fill([0.0; 2]);
            (used.requests, used.bytes) = (0, 0);
            let Ok(text) = group.io() else { continue };
            for (device, now) in moved(text) {
                let is_it = |drive: &Option<String>| drive.as_deref() == Some(device);
                let Some(at) = drives.iter().position(is_it) else { continue };
                let then = std::mem::replace(&mut before[at], now);
                if is_new || signals.period.0 == 0 {
                    continue;
                }
                used.requests += now.requests.saturating_sub(then.requests);
                for way in 0..2 {
                    let bytes = now.bytes[way].saturating_sub(then.bytes[way]);
                    used.bytes += bytes;
                    used.rates[at][way] = bytes as f64 / signals.period.seconds();
                }
            }
        }
        let rest = || uses.iter().zip(&*best_effort).filter(|(_, is)| **is).map(|(used, _)| used);
        if rest().next().is_some() {
            let requests = Some(rest().map(|used| used.requests).sum());
            let bytes = Some(rest().map(|used| used.bytes).sum());
            signals.best_effort = BestEffortSignals { requests, bytes };
        }
        uses
    }
}
