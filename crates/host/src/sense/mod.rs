//! What a cycle senses.

pub mod drive_watch;
pub mod sensors;
pub mod watched;
