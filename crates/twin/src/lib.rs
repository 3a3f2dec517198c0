//! The digital twin: a storage server in virtual time.

pub mod drive;
