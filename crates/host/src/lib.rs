//! A Linux server as a plant: what can be sensed and steered over sysfs, procfs, NVMe and control
//! groups.
//!
//! | where | what it is |
//! |---|---|
//! | `sys.rs` | the kernel's small files, under a root that is a fixture in tests |
//! | `folder.rs` | one of their folders, held open: nothing outside it is reached |
//! | `patience.rs` | questions with a deadline |
//! | `capability.rs` | what this process may |
//! | `find/` | what is here, and which part of a policy's topology it is |
//! | `sense/` | what a cycle senses |
//! | `nvme/` | what NVMe drives are asked and told |
//! | `act/` | what can be set: saved on disk before any write, kept set, set back |
//! | `probe.rs` | what is here in the terms of the table of signals and controls |
//! | `plant.rs` | all of that as a [`ebb_policy::Plant`] |

mod act;
mod capability;
mod find;
mod folder;
mod nvme;
mod patience;
mod plant;
mod probe;
mod sense;
mod sys;

pub use act::by_hand::{HeldFans, SweepError, full_speed};
pub use act::contact::{Trial, Verdict};
pub use act::cpusets::{Parkable, parkable};
pub use act::groups::{lacks_cpuset, outside};
pub use act::hold::{Held, Hold, Holds};
pub use act::lock::{Lock, remembered};
pub use act::originals::{Leave, Original, Originals, State};
pub use act::owned::{StateError, is_ours};
pub use act::place::Place;
pub use act::restore::{Outcome as RestoreOutcome, Restoration, Restored, compare, restore};
pub use act::steering::{Contest, Notice, Verified};
pub use act::sweep::sweep;
pub use act::tasks::Bound;
pub use capability::Capability;
pub use find::chips::Of;
pub use find::claims::Claim;
pub use find::conflicts::{Conflict, found as conflicts};
pub use find::cpus::{Arch, Cpu, Cpus, IdleState, Policy};
pub use find::drives::{Counters, Drive};
pub use find::energy::{Meter, Zone};
pub use find::fans::{Fan, Fans, StatedFan};
pub use find::hwmon::Chip;
pub use find::jobs::{StatedJob, check_groups};
pub use find::layout::{Group, Impossible, Layout, MIN_DUTY, ParkBy, Stated};
pub use find::machine::Machine;
pub use find::meters::Meters;
pub use find::signature::signature;
pub use nvme::{Admin, Controllers, Health, Identity};
pub use patience::{Patience, Silence};
pub use plant::{Followed, Host, Recalled};
pub use probe::{Fit, Found, Report};
pub use sense::feeds::{Allowed, Feeds, StatedFeed};
pub use sys::{Absent, Driver, Sys, cpu_list, cpus};
