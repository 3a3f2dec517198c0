//! What can be set: saved before the first write, kept set, and set back.

pub mod acting;
pub mod background;
pub mod by_hand;
pub mod contact;
pub mod cpusets;
pub mod domain;
pub mod fan;
pub mod groups;
pub mod hold;
pub mod idle_wake;
pub mod jobs;
pub mod knob;
pub mod lock;
pub mod originals;
pub mod owned;
pub mod packages;
pub mod parking;
pub mod place;
pub mod places;
pub mod restore;
pub mod steering;
pub mod sweep;
pub mod tasks;
pub mod throttle;
