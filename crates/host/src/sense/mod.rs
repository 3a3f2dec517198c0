//! What a cycle senses.

pub mod crowd;
pub mod drive_watch;
pub mod energy;
pub mod feeds;
pub mod gauge;
pub mod group;
pub mod jobs;
pub mod meter_lag;
pub mod run_queue;
pub mod sensors;
pub mod throttled;
pub mod turning;
pub mod watched;
