//! A Linux server as a plant: what can be sensed and steered over sysfs, procfs, NVMe and control
//! groups.
//!
//! | file | what it is |
//! |---|---|
//! | `sys.rs`, `watched.rs` | the kernel's small files, under a root that is a fixture in tests |
//! | `cpus.rs` | cores, sockets, frequency domains, idle states |
//! | `energy.rs` | energy counters that wrap |
//! | `hwmon.rs` | temperatures, fans, power meters |
//! | `patience.rs` | questions with a deadline |
//! | `drives.rs`, `nvme/` | drives: who they are, what they did, what they answer |
//! | `conflicts.rs` | other programs that set the same |
//! | `claims.rs`, `signature.rs` | who uses a disk, and what it holds |
//! | `machine.rs` | all of it together |
//! | `probe.rs` | the same in the terms of the table of signals and controls |
//! | `layout.rs` | which part of the machine each part of a policy's topology is |
//! | `sense.rs`, `drive_watch.rs` | what a cycle senses |
//! | `knob.rs` | what can be set, by names that outlive a restart |
//! | `originals.rs`, `restore.rs` | what was found, on disk before any write; setting it back |
//! | `hold.rs` | settings that the operator holds meanwhile |
//! | `steering.rs` | sets places and sees to it that they stay set |
//! | `tasks.rs` | tasks that are bound to CPUs, which partitions make the kernel forget |
//! | `parking.rs` | cores that are parked |
//! | `acting.rs` | which places a control is set in, in which order |
//! | `plant.rs` | all of that as a [`ebb_policy::Plant`] |

mod acting;
mod claims;
mod conflicts;
mod cpus;
mod drive_watch;
mod drives;
mod energy;
mod hold;
mod hwmon;
mod knob;
mod layout;
mod machine;
mod nvme;
mod originals;
mod parking;
mod patience;
mod plant;
mod probe;
mod restore;
mod sense;
mod signature;
mod steering;
mod sys;
mod tasks;
mod watched;

pub use claims::Claim;
pub use conflicts::{Conflict, found as conflicts};
pub use cpus::{Cpu, Cpus, IdleState, Policy};
pub use drives::{Counters, Drive};
pub use energy::{Meter, Zone};
pub use hold::{Held, Hold, Holds};
pub use hwmon::{Chip, Of};
pub use knob::Place;
pub use layout::{Group, Impossible, Layout, MIN_DUTY, ParkBy, Stated};
pub use machine::Machine;
pub use nvme::{Admin, Controllers, Health, Identity};
pub use originals::{Leave, Original, Originals, State, StateError};
pub use patience::Patience;
pub use plant::Host;
pub use probe::{Fit, Found, Report};
pub use restore::{Outcome as RestoreOutcome, Restored, restore};
pub use signature::signature;
pub use steering::{Contest, Notice};
pub use sys::{Absent, Sys, cpus};
pub use tasks::Bound;
