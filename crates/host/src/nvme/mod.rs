//! NVMe drives by their admin commands: who they are, their power states, their health.

mod cap;
mod ioctl;
mod patient;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys::{Absent, Sys};
pub use cap::Cap;
pub use ioctl::Ioctl;
pub(crate) use patient::DEADLINE;
pub use patient::Patient;
pub use wire::{Health, Identity, power_limit};

/// The bits of Power Management (Feature 02h) that are the power state (Base 5.1.25.1.2).
pub const POWER_STATE_BITS: u32 = 0x1f;
/// The bits of Power Limit (Feature 23h, Base 2.3) that are the limit and its scale.
pub const POWER_LIMIT_BITS: u32 = 0x3_ffff;

/// What the admin queue of a controller is asked.
pub trait Admin: Send + std::fmt::Debug {
    /// A feature's current value (Get Features).
    ///
    /// # Errors
    /// Why the drive did not say.
    fn feature(&mut self, feature: u8) -> Result<u32, Absent>;

    /// Sets a feature until the controller is reset (Set Features without SV).
    ///
    /// # Errors
    /// Why the drive did not take it.
    fn set_feature(&mut self, feature: u8, value: u32) -> Result<(), Absent>;

    /// Who it is (Identify Controller).
    ///
    /// # Errors
    /// Why the drive did not say.
    fn identify(&mut self) -> Result<Identity, Absent>;

    /// How it is (SMART / Health log). Wakes a drive that sleeps.
    ///
    /// # Errors
    /// Why the drive did not say.
    fn health(&mut self) -> Result<Health, Absent>;
}

/// How controllers, such as `nvme0`, are opened.
pub type Open = fn(&Sys, &str) -> Result<Box<dyn Admin>, Absent>;

/// The controllers of a machine, opened when they are first asked.
#[derive(Debug, Clone)]
pub struct Controllers {
    open: Open,
    known: Arc<Mutex<BTreeMap<String, Patient>>>,
}

impl Default for Controllers {
    /// Those of the kernel.
    fn default() -> Self {
        Self::new(|sys, name| Ok(Box::new(Ioctl::open(sys, name)?)))
    }
}

impl Controllers {
    /// Those that `open` opens.
    #[must_use]
    pub fn new(open: Open) -> Self {
        Self { open, known: Arc::default() }
    }

    /// Forgets one: what has its name later is another device, or the same one begun anew.
    pub(crate) fn forget(&self, name: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Opens one.
    ///
    /// # Errors
    /// Where there is none, or we may not use it.
    pub fn open(&self, sys: &Sys, name: &str) -> Result<Patient, Absent> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(patient) = known.get(name) {
            return Ok(patient.clone());
        }
        let patient = Patient::new(sys.path(format!("dev/{name}")), (self.open)(sys, name)?)?;
        known.insert(name.to_owned(), patient.clone());
        Ok(patient)
    }
}
