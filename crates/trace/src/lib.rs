//! Block-I/O traces: one record type, readers for the public formats, generators, statistics.
//!
//! A trace is a [`Source`]: it appends requests to a batch until nothing comes any more. [`open()`]
//! makes one of a file, [`transform`] one of another, [`stats`] and [`mod@write`] use one up:
//!
//! ```
//! use ebb_policy::units::{Bytes, Nanos};
//! use ebb_trace::{OpenOptions, open_bytes, stats, transform};
//!
//! let text = "0.0 0 8192 4096 1\n0.5 0 99999744 4096 0\n".as_bytes().to_vec();
//! let trace = open_bytes("example", text, &OpenOptions::default())?;
//! let twice = transform::rate(trace, 2.0)?;
//! let mut folded = transform::fold(twice, "example", 4, Bytes(1 << 20))?;
//! let summary = stats::summarise(&mut folded)?;
//! assert_eq!((summary.requests, summary.seconds), (2, Nanos::from_micros(250).seconds()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod files;
mod foreign;
pub mod format;
pub mod generate;
mod gzip;
mod input;
mod kinds;
pub mod open;
mod order;
pub mod output;
pub mod pressure;
pub mod reader;
mod reports;
pub mod request;
pub mod stats;
pub mod times;
pub mod transform;
pub mod write;

pub use format::{Columns, Format};
pub use open::{OpenOptions, STDIN, check_start, open, open_bytes, open_file, open_stream};
pub use output::OutputFile;
pub use reader::{Reader, Skipped};
pub use request::{Closed, LONGEST, LoadPart, Op, Request, Source, TraceError, Workload};
pub use write::{write, write_to};
