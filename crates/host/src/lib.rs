//! A Linux server as a plant: what can be sensed and steered over sysfs and procfs.
//!
//! | file | what it is |
//! |---|---|
//! | `sys.rs` | the kernel's small files, under a root that is a fixture in tests |
//! | `cpus.rs` | cores, sockets, frequency domains, idle states |
//! | `energy.rs` | energy counters that wrap |
//! | `hwmon.rs` | temperatures, fans, power meters |
//! | `drives.rs` | drives, who they are and what they did |
//! | `conflicts.rs` | other programs that set the same |
//! | `machine.rs` | all of it together |
//! | `probe.rs` | the same in the terms of the table of signals and controls |

mod conflicts;
mod cpus;
mod drives;
mod energy;
mod hwmon;
mod machine;
mod probe;
mod sys;

pub use conflicts::Conflict;
pub use cpus::{Cpu, Cpus, IdleState, Policy};
pub use drives::{Counters, Drive};
pub use energy::{Meter, Zone};
pub use hwmon::{Chip, Of};
pub use machine::Machine;
pub use probe::{Fit, Found, Report};
pub use sys::{Absent, Sys};
