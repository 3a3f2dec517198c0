//! Drives composed of a base profile and the power states that a real drive declares, from a
//! table with one state per row (the columns of `nvme_power_states.csv`).

use std::path::Path;

use ebb_policy::units::{Bytes, Nanos, Watts};
use serde::Deserialize;

use super::profile::{DriveProfile, State};
use crate::drive_file::DriveFile;

/// Why a drive could not be composed.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// The table cannot be opened.
    #[error("{file}: {source}")]
    Io {
        /// Path as given.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A row that is not one, or states that do not follow each other.
    #[error("{file}:{line}: {reason}")]
    Row {
        /// Path as given.
        file: String,
        /// Line, counted from 1.
        line: u64,
        /// What is wrong, and what would be valid.
        reason: String,
    },
    /// The table does not have this drive.
    #[error("{file}: no model '{model}'; it has: {valid}")]
    Model {
        /// Path as given.
        file: String,
        /// As asked for.
        model: String,
        /// All models of the table.
        valid: String,
    },
    /// The declared states and the base profile make no drive that works.
    #[error("{file}: model '{model}' on base profile '{base}': {reason}")]
    Profile {
        /// Path as given.
        file: String,
        /// As asked for.
        model: String,
        /// Name of the base profile.
        base: String,
        /// What [`DriveFile::validate`] says.
        reason: String,
    },
}

/// The columns used; the others are for readers.
#[derive(Debug, Deserialize)]
struct Row {
    model: String,
    capacity_gb: Option<f64>,
    ps: usize,
    operational: u8,
    max_power_w: f64,
    entry_lat_us: f64,
    exit_lat_us: f64,
}

impl Row {
    fn state(&self) -> State {
        State {
            max_power: Watts(self.max_power_w),
            operational: self.operational != 0,
            entry: Nanos::from_seconds(self.entry_lat_us * 1e-6),
            exit: Nanos::from_seconds(self.exit_lat_us * 1e-6),
        }
    }
}

impl DriveProfile {
    /// A drive with the power states (and capacity, where given) that `model` declares in the
    /// table at `path`, and everything else from `base`. The states limit power only: what an
    /// operation costs stays `base`'s.
    ///
    /// # Errors
    /// When the table is unreadable or malformed (with its line), lacks the model, or the
    /// result is no valid drive.
    pub fn compose(path: &Path, model: &str, base: &Self) -> Result<Self, ComposeError> {
        let file = path.display().to_string();
        let input = std::fs::File::open(path)
            .map_err(|source| ComposeError::Io { file: file.clone(), source })?;
        let mut models = Vec::new();
        let mut profile = Self { states: Vec::new(), ..base.clone() };
        for row in csv::Reader::from_reader(input).into_deserialize::<Row>().enumerate() {
            // One state per line, below the header.
            let line = row.0 as u64 + 2;
            let error = |reason| ComposeError::Row { file: file.clone(), line, reason };
            let row = row.1.map_err(|source| error(source.to_string()))?;
            if row.model == model {
                append(&mut profile, &row).map_err(error)?;
            }
            if models.last() != Some(&row.model) {
                models.push(row.model);
            }
        }
        if profile.states.is_empty() {
            let valid = models.join(", ");
            return Err(ComposeError::Model { file, model: model.to_owned(), valid });
        }
        profile.name = model.to_owned();
        profile.source = format!("power states: {file}; rest: {}", base.name);
        match profile.validate() {
            Ok(()) => Ok(profile),
            Err(reason) => {
                let (model, base) = (model.to_owned(), base.name.clone());
                Err(ComposeError::Profile { file, model, base, reason })
            }
        }
    }
}

fn append(profile: &mut DriveProfile, row: &Row) -> Result<(), String> {
    let expected = profile.states.len();
    if row.ps != expected {
        return Err(format!("ps {} of '{}' where {expected} was expected", row.ps, row.model));
    }
    for (column, value) in [
        ("max_power_w", row.max_power_w),
        ("entry_lat_us", row.entry_lat_us),
        ("exit_lat_us", row.exit_lat_us),
    ] {
        if !(0.0..1e9).contains(&value) {
            return Err(format!("{column} {value} must be a number from 0 to 1e9"));
        }
    }
    if let Some(gigabytes) = row.capacity_gb.filter(|gigabytes| *gigabytes > 0.0) {
        profile.capacity = Bytes((gigabytes * 1e9) as u64);
    }
    profile.states.push(row.state());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Drive;

    const HEADER: &str =
        "model,family,capacity_gb,ps,operational,max_power_w,entry_lat_us,exit_lat_us";

    /// Composes from `rows` written to a file of its own.
    fn compose(test: &str, rows: &str) -> Result<DriveProfile, ComposeError> {
        let path = std::env::temp_dir().join(format!("ebb-{test}-{}.csv", std::process::id()));
        std::fs::write(&path, format!("{HEADER}\n{rows}")).unwrap();
        let base = DriveProfile::builtin("generic-nvme").unwrap();
        let result = DriveProfile::compose(&path, "X", &base);
        std::fs::remove_file(path).unwrap();
        result
    }

    #[test]
    fn takes_states_and_capacity() {
        let rows =
            "Y,other,,0,1,9,0,0\nX,\"a, b\",960,0,1,25,5,60000\nX,\"a, b\",960,1,0,2.5,7,8\n";
        let profile = compose("states", rows).unwrap();
        assert_eq!(profile.capacity, Bytes(960_000_000_000));
        assert_eq!(profile.states.len(), 2);
        assert_eq!(profile.states[0].exit, Nanos::from_millis(60));
        assert_eq!(profile.states[1].max_power, Watts(2.5));
        assert!(!profile.states[1].operational);
        assert_eq!(profile.spec().operational().len(), 1);
    }

    #[test]
    fn errors_name_file_line_and_remedy() {
        let message = |test, rows| compose(test, rows).unwrap_err().to_string();
        let bad = message("number", "X,f,,0,1,25,0,0\nX,f,,1,1,many,0,0\n");
        assert!(bad.contains(".csv:3: ") && bad.contains("invalid float"), "{bad}");
        let gap = message("gap", "X,f,,0,1,25,0,0\nX,f,,2,1,9,0,0\n");
        assert!(gap.contains(".csv:3: ps 2 of 'X' where 1 was expected"), "{gap}");
        let negative = message("negative", "X,f,,0,1,-25,0,0\n");
        assert!(negative.contains(".csv:2: max_power_w -25"), "{negative}");
        let none = message("none", "Y,f,,0,1,25,0,0\n");
        assert!(none.contains("no model 'X'; it has: Y"), "{none}");
        let weak = message("weak", "X,f,,0,1,4,0,0\n");
        assert!(weak.contains("must exceed power.ready = 5 W"), "{weak}");
        let base = DriveProfile::builtin("generic-nvme").unwrap();
        let absent = DriveProfile::compose(Path::new("no/such.csv"), "X", &base).unwrap_err();
        assert!(absent.to_string().starts_with("no/such.csv: "), "{absent}");
    }

    /// Every data-centre drive of the real table makes a drive that runs.
    #[test]
    fn composes_the_real_table() {
        let base = std::env::var("EBB_DATA").unwrap_or_else(|_| {
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into()
        });
        let path = Path::new(&base).join("devices/nvme_power_states/nvme_power_states.csv");
        let Ok(mut table) = csv::Reader::from_path(&path) else {
            return println!("skipped: {} is absent", path.display());
        };
        let mut models: Vec<_> =
            table.records().map(|record| record.unwrap()[0].to_owned()).collect();
        models.dedup();
        let enterprise = DriveProfile::builtin("generic-nvme").unwrap();
        let client = DriveProfile::builtin("client-m2").unwrap();
        for model in &models {
            let is_client = model.starts_with("Samsung 950") || model.starts_with("Toshiba");
            let base = if is_client { &client } else { &enterprise };
            let profile = DriveProfile::compose(&path, model, base).unwrap();
            let mut drive = Drive::new(&profile, 1);
            let last = profile.states.len() as u8 - 1;
            let done = drive.set_power_state(Nanos::ZERO, last);
            let completed = drive.submit(done, ebb_trace::Op::Read, 0, 4096);
            assert!(completed > done, "{model}");
        }
        assert!(models.len() >= 19, "{models:?}");
    }
}
