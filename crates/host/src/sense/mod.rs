//! What a cycle senses.

pub mod drive_watch;
pub mod gauge;
pub mod jobs;
pub mod sensors;
pub mod watched;
