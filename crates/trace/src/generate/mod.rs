//! Workload generators, deterministic by seed. A workload is data ([`WorkloadSpec`]): one of
//! [`BUILTIN`], or a TOML file; built for a server it gives open or closed loops of requests.
//! `docs/workloads.md` says what each one does and which of its numbers are assumed.

mod access;
mod arrivals;
mod batch;
mod build;
mod builtin;
mod change;
mod clients;
mod eadc;
mod error;
mod jobs;
mod load_csv;
mod load_json;
mod load_prometheus;
mod load_report;
mod load_sadf;
mod pace;
mod random;
mod readers;
mod rocksdb;
mod schedule;
mod shape;
mod spec;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod windows;

use std::path::Path;

pub use batch::{BatchIo, BatchSpec, Job, JobIo};
pub use build::PartDevices;
pub use builtin::{BUILTIN, Builtin, by_name};
pub use change::Overrides;
pub use error::GenerateError;
pub use spec::{
    AccessSpec, ArrivalSpec, Gaps, HotSpec, JobSpec, PhaseSpec, ReaderSpec, RocksdbSpec, ShapeSpec,
    StageSpec, VarySpec, WorkloadSpec,
};
pub use target::{BuildContext, DriveShare};
pub use text::{Blocks, Rate, RateError, Share, iops};

use crate::files;
use crate::request::TraceError;

/// Reads a workload from a TOML file. Paths in it are relative to it.
///
/// # Errors
/// When the file is unreadable, not TOML, or not a workload; the error names line and field.
pub fn load(path: impl AsRef<Path>) -> Result<WorkloadSpec, GenerateError> {
    let path = path.as_ref();
    let file = path.display().to_string();
    let text = files::text(path).map_err(|source| TraceError::Io { file: file.clone(), source })?;
    let mut spec: WorkloadSpec = toml::from_str(&text)
        .map_err(|error| GenerateError::Toml { file, reason: error.to_string() })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    for part in &mut spec.arrivals {
        if let ShapeSpec::File { path, .. } = &mut part.shape {
            *path = folder.join(&*path);
        }
    }
    Ok(spec)
}
