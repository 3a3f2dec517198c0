//! Block-I/O traces: one record type, readers for the public formats, generators, statistics.

pub mod request;

pub use request::{Closed, Op, Request, Source, TraceError, Workload};
