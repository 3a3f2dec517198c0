//! A machine as what a sweep sets and sees.

use std::time::Duration;

use anyhow::Result;
use ebb_policy::units::Rpm;

/// Time from one look to the next.
pub const LOOK: Duration = Duration::from_millis(500);
/// Disks without users' I/O for so long are idle.
pub const IDLE: Duration = Duration::from_secs(3);

/// What there is to see.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Since a fixed moment.
    pub at: Duration,
    /// Of each fan that is held; `None` of one without tachometer.
    pub speeds: Vec<Option<Rpm>>,
    /// Each disk.
    pub disks: Vec<DiskLook>,
}

/// What a disk did.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskLook {
    /// Bytes that were read of it for this measurement.
    pub read: u64,
    /// Whether a read may be under way.
    pub is_busy: bool,
    /// Whether it did more than that: since the reads began, or, without any, since the last look.
    pub foreign: bool,
}

/// A machine that is swept.
pub trait Bench {
    /// Holds all fans at a duty, or at the next higher one that they know: the one in force.
    fn set(&mut self, duty: f64) -> Result<f64>;
    /// Begins to read all disks, for the `attempt`-th time.
    fn read(&mut self, attempt: u64) -> Result<()>;
    /// Ends that.
    fn stop(&mut self);
    /// Waits for [`LOOK`] and looks. It is an error if it must not go on: too warm, told to end.
    fn look(&mut self) -> Result<Look>;
    /// Gives the fans back, and reads no more.
    fn release(&mut self) -> Result<()>;
}
