//! What was measured, and the file beside the curve in which each measurement is kept as soon as it
//! is done: a first line of what is measured, then one for each duty.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ebb_cli::{Unwritten, usage};
use ebb_trace::files;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::bench::Look;

/// Version of the file.
pub const SCHEMA: u32 = 1;

/// What is measured: only what has the same goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The disks' identities.
    pub disks: Vec<String>,
    /// The fans.
    pub fans: Vec<String>,
    /// The lowest duty.
    pub from: f64,
    /// Between duties.
    pub step: f64,
    /// Time measured at each.
    pub pause_ns: u64,
    /// Of the places that are read.
    pub seed: u64,
}

impl Head {
    /// What differs in `other`.
    fn differs(&self, other: &Self) -> String {
        let all = [
            ("schema", self.schema != other.schema),
            ("disks", self.disks != other.disks),
            ("fans", self.fans != other.fans),
            ("--from", self.from.to_bits() != other.from.to_bits()),
            ("--step", self.step.to_bits() != other.step.to_bits()),
            ("--pause", self.pause_ns != other.pause_ns),
            ("--seed", self.seed != other.seed),
        ];
        let named = all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name);
        named.collect::<Vec<_>>().join(", ")
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Duty that the fans were set to, 0 to 1.
    pub duty: f64,
    /// The one in force, where they know a few speeds alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<f64>,
    /// Their mean speed.
    pub rpm: Option<f64>,
    /// Bytes per second of each disk.
    pub disks: Vec<f64>,
    /// Standard error of their sum, from what was read between looks.
    pub error: f64,
}

impl Measured {
    /// What at least two looks saw.
    pub fn new(duty: f64, in_force: f64, looks: &[Look]) -> Self {
        let rates = |from: &Look, to: &Look| -> Vec<f64> {
            let seconds = (to.at - from.at).as_secs_f64().max(1e-9);
            let read = from.disks.iter().zip(&to.disks);
            read.map(|(from, to)| to.read.saturating_sub(from.read) as f64 / seconds).collect()
        };
        let disks = rates(&looks[0], &looks[looks.len() - 1]);
        let parts = looks.windows(2).map(|pair| rates(&pair[0], &pair[1]).iter().sum());
        let parts: Vec<f64> = parts.collect();
        let (count, sum) = (parts.len() as f64, parts.iter().sum::<f64>());
        let squares: f64 = parts.iter().map(|part| (part - sum / count).powi(2)).sum();
        let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
        let speeds = looks.iter().flat_map(|look| look.speeds.iter().flatten());
        let speeds: Vec<f64> = speeds.map(|speed| speed.0).collect();
        let rpm = speeds.iter().sum::<f64>() / speeds.len() as f64;
        let in_force = Some(in_force).filter(|is| *is != duty);
        Self { duty, in_force, rpm: (!speeds.is_empty()).then_some(rpm), disks, error }
    }

    /// The mean of measurements at one duty in force, where there are any.
    pub fn mean(all: &[Self]) -> Option<Self> {
        let (first, count) = (all.first()?, all.len() as f64);
        let rpm: Option<f64> = all.iter().map(|one| one.rpm).sum();
        let disk = |at: usize| all.iter().map(|one| one.disks[at]).sum::<f64>() / count;
        Some(Self {
            rpm: rpm.map(|sum| sum / count),
            disks: (0..first.disks.len()).map(disk).collect(),
            error: all.iter().map(|one| one.error.powi(2)).sum::<f64>().sqrt() / count,
            ..*first
        })
    }

    /// The duty in force.
    pub fn at(&self) -> f64 {
        self.in_force.unwrap_or(self.duty)
    }

    /// Bytes per second of all disks.
    pub fn rate(&self) -> f64 {
        self.disks.iter().sum()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rpm = self.rpm.map(|rpm| format!(", {rpm:.0} rpm")).unwrap_or_default();
        let more = self.in_force.map(|_| " (the next speed that they know)").unwrap_or_default();
        write!(f, "fans at {:.0} %{more}{rpm}: {:.2} MB/s", self.at() * 100.0, self.rate() * 1e-6)
    }
}

/// The measurements so far.
#[derive(Debug)]
pub struct Steps {
    head: Head,
    done: Vec<Measured>,
    file: Option<(PathBuf, File)>,
}

/// Where those of the curve `out` are kept.
pub fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".steps");
    name.into()
}

/// What a file says: complete lines. A last one without end was being written when all ended.
struct Kept {
    head: Option<Head>,
    done: Vec<Measured>,
    /// Bytes of the complete lines.
    bytes: u64,
}

impl Kept {
    fn read(path: &Path) -> Result<Self> {
        let mut kept = Self { head: None, done: Vec::new(), bytes: 0 };
        let text = match files::text(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(kept),
            text => text.map_err(|error| usage(format!("{}: {error}", path.display())))?,
        };
        for (at, line) in text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate()
        {
            let parsed = match at {
                0 => serde_json::from_str(line).map(|head| kept.head = Some(head)),
                _ => serde_json::from_str(line).map(|step| kept.done.push(step)),
            };
            let (name, at) = (path.display(), at + 1);
            parsed.map_err(|error| {
                usage(format!(
                    "{name}: line {at}: not what ebb characterise keeps: {error}; remove the file \
                     to begin anew"
                ))
            })?;
            kept.bytes += line.len() as u64;
        }
        Ok(kept)
    }
}

impl Steps {
    /// What the measurements in the file `path` are of, if there are any.
    ///
    /// # Errors
    /// A file that is something else.
    pub fn head(path: &Path) -> Result<Option<Head>> {
        Ok(Kept::read(path)?.head)
    }

    /// Goes on with those in the file `path`, which are to be of the same `head`, at the first of
    /// `duties`; without a path nothing is kept.
    ///
    /// # Errors
    /// A file that is of something else, or cannot be written.
    pub fn open(path: Option<&Path>, head: Head, duties: &[f64]) -> Result<Self> {
        let Some(path) = path else { return Ok(Self { head, done: Vec::new(), file: None }) };
        let Kept { head: known, done, bytes } = Kept::read(path)?;
        let name = path.display();
        if let Some(known) = known.as_ref().filter(|known| **known != head) {
            return Err(usage(format!(
                "{name} keeps measurements of other {}: give the same, or remove the file to begin \
                 anew",
                known.differs(&head)
            )));
        }
        let is_good = |step: &Measured| {
            let all = step.disks.iter().chain([&step.error]).chain(&step.rpm);
            step.disks.len() == head.disks.len() && all.into_iter().all(|one| *one >= 0.0)
        };
        let of_these = done.iter().zip(duties).all(|(step, duty)| (step.duty - duty).abs() < 1e-9);
        if done.len() > duties.len() || !of_these || !done.iter().all(is_good) {
            return Err(usage(format!(
                "{name}: its measurements are not those of this sweep; remove the file to begin \
                 anew"
            )));
        }
        let unwritten = || Unwritten(name.to_string());
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).custom_flags(flags);
        let mut file = options.open(path).with_context(unwritten)?;
        file.set_len(bytes).and_then(|()| file.seek(SeekFrom::End(0))).with_context(unwritten)?;
        let mut steps = Self { head, done, file: Some((path.to_owned(), file)) };
        if known.is_none() {
            let line = serde_json::to_string(&steps.head)?;
            steps.keep(&line)?;
        }
        Ok(steps)
    }

    /// What they are of.
    pub fn of(&self) -> &Head {
        &self.head
    }

    /// Them, in their order.
    pub fn done(&self) -> &[Measured] {
        &self.done
    }

    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// Keeps the next one.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn push(&mut self, step: Measured) -> Result<()> {
        self.keep(&serde_json::to_string(&step)?)?;
        self.done.push(step);
        Ok(())
    }

    fn keep(&mut self, line: &str) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let written =
            file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.sync_data());
        written.with_context(|| Unwritten(path.display().to_string()))
    }

    /// Removes the file: what it was for is done.
    ///
    /// # Errors
    /// Where that is not possible.
    pub fn remove(&self) -> Result<()> {
        let Some((path, _)) = &self.file else { return Ok(()) };
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
    }
}
