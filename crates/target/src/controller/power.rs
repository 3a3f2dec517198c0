//! Power management: the state, the limit, and the idle states that are entered unasked. They are
//! the subsystem's, so that all controllers share them; what a controller has set ends with it.

use std::sync::Mutex;

use ebb_nvme::Status;
use ebb_policy::units::Watts;

use super::{AdminQueue, PowerControl, lock};

/// Bytes of the autonomous power state transition data structure (Base 5.27.1.9).
pub(super) const TRANSITIONS: usize = 256;

/// What hosts have set.
#[derive(Debug, Default)]
pub(super) struct Power {
    /// The power state; the plant knows which it is.
    state: Mutex<Setting<()>>,
    /// The power limit, as it was set; 0 for none.
    limit: Mutex<Setting<u32>>,
    transitions: Mutex<Setting<Transitions>>,
}

/// A setting, and the controller that has made it.
#[derive(Debug, Default)]
struct Setting<T> {
    value: T,
    by: Option<u16>,
}

impl<T: Default> Setting<T> {
    /// Ends it if this controller has made it; whether it has.
    fn end(&mut self, by: u16) -> bool {
        let ends = self.by == Some(by);
        if ends {
            *self = Self::default();
        }
        ends
    }
}

/// Which idle states are entered, from which, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transitions {
    /// APSTE.
    pub is_on: bool,
    /// ITPS and ITPT of each power state.
    pub table: [u8; TRANSITIONS],
}

impl Default for Transitions {
    fn default() -> Self {
        Self { is_on: false, table: [0; TRANSITIONS] }
    }
}

impl AdminQueue {
    fn plant(&self) -> Option<&dyn PowerControl> {
        self.subsystem.config.power.as_deref()
    }

    /// The limit that is set, as it was.
    pub(super) fn power_limit(&self) -> u32 {
        lock(&self.subsystem.power.limit).value
    }

    /// The transitions that are set.
    pub(super) fn transitions(&self) -> Transitions {
        lock(&self.subsystem.power.transitions).value
    }

    /// PS (Base 5.27.1.2).
    pub(super) fn set_power_state(&self, state: u8) -> Result<(), Status> {
        if usize::from(state) >= self.subsystem.config.power_states().len().max(1) {
            return Err(Status::INVALID_FIELD);
        }
        if let Some(plant) = self.plant() {
            let mut setting = lock(&self.subsystem.power.state);
            plant.set(state)?;
            setting.by = Some(self.association.id);
        }
        Ok(())
    }

    /// PLV and PLS.
    pub(super) fn set_power_limit(&self, value: u32) -> Result<(), Status> {
        let power = limit(value).ok_or(Status::INVALID_FIELD)?;
        if let (Some(power), Some(least)) = (power, self.subsystem.config.least_limit())
            && power < least
        {
            return Err(Status::INVALID_POWER_LIMIT);
        }
        let mut setting = lock(&self.subsystem.power.limit);
        if let Some(plant) = self.plant() {
            plant.limit(power);
        }
        *setting = Setting { value, by: Some(self.association.id) };
        Ok(())
    }

    /// APSTE, and the table in the host's `data`. When an idle state is entered is the plant's own
    /// matter; which ones is the host's.
    pub(super) fn set_transitions(&self, is_on: bool, data: &[u8]) -> Result<(), Status> {
        let table = *data.first_chunk().ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
        let states = self.subsystem.config.power_states();
        let mut longest = 0;
        for entry in table.as_chunks().0 {
            let entry = u64::from_le_bytes(*entry);
            let (to, after) = (entry >> 3 & 31, entry >> 8 & 0xff_ffff);
            if after > 0 {
                let to = states.get(to as usize).filter(|state| !state.is_operational);
                longest = longest.max(to.ok_or(Status::INVALID_FIELD)?.exit_latency);
            }
        }
        let mut setting = lock(&self.subsystem.power.transitions);
        if let Some(plant) = self.plant() {
            plant.idle(if is_on { longest } else { 0 });
        }
        let value = Transitions { is_on, table };
        *setting = Setting { value, by: Some(self.association.id) };
        Ok(())
    }

    /// None of it is kept over a reset of the controller that has set it, nor does it outlive the
    /// controller (Base 3.7.2).
    pub(super) fn reset_power(&self) {
        let (Some(plant), ours) = (self.plant(), self.association.id) else { return };
        let power = &self.subsystem.power;
        let mut state = lock(&power.state);
        if state.end(ours) {
            // One that refuses stays as it is; there is nobody to tell.
            let _ = plant.set(0);
        }
        drop(state);
        let mut limit = lock(&power.limit);
        if limit.end(ours) {
            plant.limit(None);
        }
        drop(limit);
        let mut transitions = lock(&power.transitions);
        if transitions.end(ours) {
            plant.idle(0);
        }
    }
}

/// A power limit, `Some(None)` for no limit: PLV of zero. PLS is the scale of idle power in power
/// state descriptors.
fn limit(value: u32) -> Option<Option<Watts>> {
    let per_watt = match value >> 16 {
        1 => 10_000.0,
        2 => 100.0,
        0 if value == 0 => return Some(None),
        _ => return None,
    };
    Some(Some(Watts(f64::from(value as u16) / per_watt)).filter(|power| power.0 > 0.0))
}
