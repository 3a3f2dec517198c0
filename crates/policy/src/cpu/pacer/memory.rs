//! What has broken `plf` is not tried again for a while. Ours, against limit cycles.
//!
//! Cores and frequencies come in steps. Where one more step costs more than the slack that is left,
//! the paper's law takes it, breaks `plf`, gives it back, sees slack and takes it again, for ever.
//! Here the step that was followed by a broken `plf` leaves a floor behind, which is forgotten
//! after some time since loads change. Floors only rise in between, so the number of steps is
//! bounded.

use crate::GroupSetting;
use crate::topology::Topology;
use crate::units::{Hertz, Nanos};

/// The last saving, as long as its effect has not been measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saving {
    None,
    Cores,
    Frequency,
}

/// The last saving and the floors.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    last: Saving,
    /// Active cores before the last saving.
    before: Vec<u16>,
    cores: Vec<u16>,
    frequency: Hertz,
    forget_at: Nanos,
}

impl Memory {
    pub fn new(groups: usize) -> Self {
        Self {
            last: Saving::None,
            before: vec![0; groups],
            cores: vec![0; groups],
            frequency: Hertz(0.0),
            forget_at: Nanos::ZERO,
        }
    }

    /// A saving is about to be made; `groups` is what is in force until then.
    pub fn saving(&mut self, saving: Saving, groups: &[GroupSetting]) {
        self.last = saving;
        for (before, group) in self.before.iter_mut().zip(groups) {
            *before = group.active;
        }
    }

    /// The last saving was measured and has kept `plf`, or something else has changed since.
    pub fn acquit(&mut self) {
        self.last = Saving::None;
    }

    /// `plf` is broken: raises the floor above the last saving, if there is one to blame, and
    /// says which. After a `severe` break the floor lies halfway back, so that the next tries
    /// close in on what can be borne. Floors last until `forget_at`.
    pub fn blame(
        &mut self,
        groups: &[GroupSetting],
        topology: &Topology,
        severe: bool,
        forget_at: Nanos,
    ) -> Saving {
        let last = std::mem::replace(&mut self.last, Saving::None);
        match last {
            Saving::None => return last,
            Saving::Cores => {
                for (g, group) in groups.iter().enumerate() {
                    if group.active < self.before[g] {
                        let taken = self.before[g] - group.active;
                        let back = if severe { taken.div_ceil(2) } else { 1 };
                        self.cores[g] = self.cores[g].max(group.active + back);
                    }
                }
            }
            Saving::Frequency => {
                let f = topology.io_groups().next().map_or(Hertz(0.0), |g| groups[g].frequency);
                let above = topology.frequencies.iter().copied().find(|other| *other > f);
                self.frequency = self.frequency.max(above.unwrap_or(f));
            }
        }
        self.forget_at = forget_at;
        last
    }

    /// Forgets floors that have grown old.
    pub fn expire(&mut self, now: Nanos) {
        if now >= self.forget_at {
            self.cores.fill(0);
            self.frequency = Hertz(0.0);
        }
    }

    /// Cores below which `group` may not go.
    pub fn core_floor(&self, group: usize) -> u16 {
        self.cores[group]
    }

    /// Frequency below which nothing may go.
    pub fn frequency_floor(&self) -> Hertz {
        self.frequency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{CoreRole, GroupSpec};

    const UNTIL: Nanos = Nanos::from_secs(110);

    fn topology() -> Topology {
        let frequencies = [1e9, 1.5e9, 2e9].map(Hertz).to_vec();
        let role = CoreRole::FrontEnd;
        let group = GroupSpec { role, cores: 24, min_cores: 1, socket: None };
        Topology { groups: vec![group; 2], frequencies, ..Topology::default() }
    }

    fn groups(active: [u16; 2], frequency: f64) -> [GroupSetting; 2] {
        active.map(|active| GroupSetting { active, frequency: Hertz(frequency) })
    }

    #[test]
    fn only_what_was_last_changed_is_blamed() {
        let mut memory = Memory::new(2);
        assert_eq!(memory.blame(&groups([8, 8], 2e9), &topology(), false, UNTIL), Saving::None);
        memory.saving(Saving::Cores, &groups([8, 8], 2e9));
        assert_eq!(memory.blame(&groups([6, 8], 2e9), &topology(), false, UNTIL), Saving::Cores);
        assert_eq!((memory.core_floor(0), memory.core_floor(1)), (7, 0));
        memory.saving(Saving::Frequency, &groups([7, 8], 2e9));
        assert_eq!(
            memory.blame(&groups([7, 8], 1e9), &topology(), false, UNTIL),
            Saving::Frequency
        );
        assert_eq!(memory.frequency_floor(), Hertz(1.5e9));
        assert_eq!(memory.blame(&groups([7, 8], 1e9), &topology(), false, UNTIL), Saving::None);
    }

    #[test]
    fn a_severe_break_puts_the_floor_halfway_back() {
        let mut memory = Memory::new(2);
        memory.saving(Saving::Cores, &groups([24, 8], 2e9));
        memory.blame(&groups([5, 8], 2e9), &topology(), true, UNTIL);
        assert_eq!((memory.core_floor(0), memory.core_floor(1)), (15, 0));
    }

    #[test]
    fn floors_are_forgotten() {
        let mut memory = Memory::new(2);
        memory.saving(Saving::Cores, &groups([8, 8], 2e9));
        memory.blame(&groups([6, 8], 2e9), &topology(), false, UNTIL);
        memory.expire(Nanos::from_secs(109));
        assert_eq!(memory.core_floor(0), 7);
        memory.expire(Nanos::from_secs(110));
        assert_eq!(memory.core_floor(0), 0);
    }

    #[test]
    fn an_acquitted_saving_leaves_no_floor() {
        let mut memory = Memory::new(2);
        memory.saving(Saving::Cores, &groups([8, 8], 2e9));
        memory.acquit();
        assert_eq!(memory.blame(&groups([6, 8], 2e9), &topology(), false, UNTIL), Saving::None);
        assert_eq!(memory.core_floor(0), 0);
    }
}
