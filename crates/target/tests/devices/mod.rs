//! Devices against a model: what was written is what is read.
mod common;
mod disk;
mod file;
mod file_cuts;
mod lane;
mod raid5;
mod raid5_crash;
mod raid5_full;
mod raid5_histories;
mod raid5_kill;
mod shelf;
mod volatile;
