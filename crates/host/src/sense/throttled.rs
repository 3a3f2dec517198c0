//! What the control groups use that a budget of the whole server may limit.

use ebb_policy::Signals;

use crate::find::jobs::Use;
use crate::find::layout::Layout;
use crate::find::machine::Machine;
use crate::sense::group::{Group, moved};

/// The groups of a machine.
#[derive(Debug)]
pub struct Throttled {
    groups: Vec<(Group, Vec<[u64; 2]>)>,
    /// The number of each drive, such as `259:0`.
    drives: Vec<Option<String>>,
    uses: Vec<Use>,
}

impl Throttled {
    /// Those of `layout`.
    #[must_use]
    pub fn new(machine: &Machine, layout: &Layout) -> Self {
        let none = vec![[0; 2]; layout.drives.len()];
        let group = |path: &String| (Group::new(&machine.sys, path), none.clone());
        let groups: Vec<_> = layout.throttle.iter().map(group).collect();
        let rates = vec![[0.0; 2]; layout.drives.len()];
        let uses = vec![Use { rates, ..Use::default() }; groups.len()];
        let mut this = Self { groups, drives: Vec::new(), uses };
        this.follow(machine, layout);
        this
    }

    /// Takes in that drives have come or gone.
    pub fn follow(&mut self, machine: &Machine, layout: &Layout) {
        let number = |name: &str| machine.sys.text(format!("sys/block/{name}/dev")).ok();
        let drives = layout.drives.iter().map(|parts| number(&parts.drive.name));
        self.drives = drives.collect();
    }

    /// What each used in the period that ends now.
    pub fn read(&mut self, signals: &Signals) -> &[Use] {
        let Self { groups, drives, uses } = self;
        for ((group, before), used) in groups.iter_mut().zip(&mut *uses) {
            let is_new = group.look();
            used.id = group.id();
            used.cores = group.cores(signals.period).unwrap_or_default();
            used.rates.fill([0.0; 2]);
            let Ok(text) = group.io() else { continue };
            for (device, bytes) in moved(text) {
                let is_it = |drive: &Option<String>| drive.as_deref() == Some(device);
                let Some(at) = drives.iter().position(is_it) else { continue };
                let then = std::mem::replace(&mut before[at], bytes);
                if is_new || signals.period.0 == 0 {
                    continue;
                }
                for way in 0..2 {
                    let bytes = bytes[way].saturating_sub(then[way]);
                    used.rates[at][way] = bytes as f64 / signals.period.seconds();
                }
            }
        }
        uses
    }
}
