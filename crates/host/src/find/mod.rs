//! What is here: the parts of a machine and who uses them. Nothing is changed.

pub mod chips;
pub mod claims;
pub mod conflicts;
pub mod cpus;
pub mod drives;
pub mod energy;
pub mod fans;
pub mod hwmon;
pub mod identity;
pub mod jobs;
pub mod layout;
pub mod machine;
pub mod meters;
pub mod parts;
pub mod signature;
