//! Block-I/O traces: one record type, readers for the public formats, generators, statistics.

pub mod format;
mod input;
pub mod open;
mod order;
pub mod pressure;
pub mod reader;
pub mod request;
pub mod stats;
pub mod transform;
pub mod write;

pub use format::Format;
pub use open::{OpenOptions, open, open_bytes, open_stream};
pub use reader::{Reader, Skipped};
pub use request::{Closed, Op, Request, Source, TraceError, Workload};
pub use write::write;
