//! The recording of a run: what each cycle was given and what was decided, so that it can be
//! decided again.
//!
//! A folder of files, numbered in order. A file is a sequence of blocks, a block is a Zstandard
//! frame (RFC 8878) with its size and a checksum, and holds [`Entry`]s in MessagePack. Each block
//! stands for itself: a [`Header`], what the run has begun with, what it goes by, then cycles. In
//! the first cycle of a block the fields have names, and everything that is in force is told; in
//! the others fields are in the same order without names, and only what has changed is told.

mod again;
mod check;
mod read;
mod write;

use ebb_policy::cooling::{Curve, CurveError};
use ebb_policy::registry::Settings;
use ebb_policy::table::SIGNALS;
use ebb_policy::topology::PowerState;
use ebb_policy::units::{Hertz, Nanos, Watts};
use ebb_policy::{
    Control, GroupSignals, IoSignals, Origin, Outcome, Signal, Signals, Source, Sources, Topology,
};
use serde::{Deserialize, Serialize};

pub use again::{Again, Difference, Gap, Side, again};
pub use read::{Cut, Item, Reader};
pub use write::Writer;

/// What stands in [`Header::format`].
pub const FORMAT: &str = "ebb-recording";
/// The form of the entries.
pub const VERSION: u32 = 1;
/// How the names of files end.
pub const ENDING: &str = "ebb.zst";
/// A block has no more bytes before compression.
const BLOCK: usize = 4 << 20;

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// Which file or folder.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// There is none.
    #[error("{0}: no recording here; ebb run --record {0} makes one")]
    None(String),
    /// A file is larger than any that was recorded.
    #[error("{0}: larger than a file of a recording ever is")]
    Large(String),
    /// It is of another form, or of a version with other signals.
    #[error("{file}: recorded by Ebb {ebb}, {what}: decide again with that version")]
    Version {
        /// Which file.
        file: String,
        /// What has recorded it.
        ebb: String,
        /// What is other.
        what: String,
    },
    /// What it says cannot have been.
    #[error("{file}: no recording of this Ebb: {what}")]
    Impossible {
        /// Which file.
        file: String,
        /// What is wrong.
        what: String,
    },
}

/// Something recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// The first of each block.
    Header(Header),
    /// What the run has begun with.
    Begun(Box<Begun>),
    /// What it goes by from the next cycle on.
    Made(Made),
    /// A cycle.
    Frame(Box<Frame>),
    /// Something that happened between two cycles.
    Note(Note),
}

/// What has recorded it, and the order of signals and controls in [`Frame`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The version of Ebb.
    pub ebb: String,
    /// The commit that it was built from, where that is known.
    pub commit: Option<String>,
    /// Names of all signals.
    pub signals: Vec<String>,
    /// Names of all controls.
    pub controls: Vec<String>,
}

impl Header {
    /// Of this build.
    #[must_use]
    pub fn new(ebb: &str, commit: Option<&str>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            ebb: ebb.to_owned(),
            commit: commit.map(str::to_owned),
            signals: SIGNALS.iter().map(|row| row.name.to_owned()).collect(),
            controls: Control::ALL.iter().map(|one| one.row().name.to_owned()).collect(),
        }
    }

    /// Its version and commit, for people.
    #[must_use]
    pub fn of(&self) -> String {
        let short = self.commit.as_ref().map(|commit| commit.get(..12).unwrap_or(commit));
        short.map_or(self.ebb.clone(), |short| format!("{} ({short})", self.ebb))
    }
}

/// The parts of the machine that a run begins with, at its start or when they have changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    /// Since the start of the process.
    pub at: Nanos,
    /// Time of day, seconds since 1970.
    pub unix_s: f64,
    /// The parts.
    pub topology: Topology,
    /// Whether decisions were only what would have been done.
    pub would: bool,
    /// Whose cores stand for this machine's in estimates.
    pub profile: String,
    /// What could not be had.
    pub missing: Vec<String>,
    /// The configuration, as TOML.
    pub config: String,
    /// What steered the frequency of each group when the machine was found.
    pub governed: Vec<Option<Governed>>,
    /// Why no latency shows what waits for CPUs; nil where one does.
    pub unseen: Option<String>,
}

/// What steered the frequency of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Governed {
    /// The governor.
    pub governor: String,
    /// The driver below it.
    pub driver: String,
    /// The lowest frequency.
    pub lowest: Hertz,
}

impl Begun {
    /// Whether a machine can have such parts: somebody else may have written it.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let groups = self.topology.groups.len();
        let is_frequency = |of: &Governed| of.lowest.0.is_finite() && of.lowest > Hertz::default();
        check::is_topology(&self.topology)
            && self.governed.len() == groups
            && self.governed.iter().flatten().all(is_frequency)
    }
}

/// A policy as it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// It is the policy so many have come before since the parts began.
    pub nth: u64,
    /// Its name, with parameters.
    pub policy: String,
    /// The tolerated loss.
    pub plf: f64,
    /// Of the 99th percentile.
    pub tail: Option<f64>,
    /// Most that the caps of all drives may sum to.
    pub ssd_budget: Option<Watts>,
    /// Most that the server may draw.
    pub server_budget: Option<Watts>,
    /// Points of the curve of fans and disks.
    pub curve: Option<Vec<(f64, f64)>>,
    /// What `ebb ctl` has ordered of that, in words.
    pub orders: Vec<String>,
}

impl Made {
    /// The `nth` policy, called `policy`, made with `settings`.
    #[must_use]
    pub fn new(nth: u64, policy: &str, settings: &Settings, orders: Vec<String>) -> Self {
        let Settings { plf, tail, ssd_budget, server_budget, curve } = settings;
        Self {
            nth,
            policy: policy.to_owned(),
            plf: *plf,
            tail: *tail,
            ssd_budget: *ssd_budget,
            server_budget: *server_budget,
            curve: curve.as_ref().map(|curve| curve.measured().to_vec()),
            orders,
        }
    }

    /// What it was made with.
    ///
    /// # Errors
    /// Points that are no curve.
    pub fn settings(&self) -> Result<Settings, CurveError> {
        Ok(Settings {
            plf: self.plf,
            tail: self.tail,
            ssd_budget: self.ssd_budget,
            server_budget: self.server_budget,
            curve: self.curve.clone().map(Curve::new).transpose()?,
        })
    }
}

/// One cycle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// So many cycles have come before since the parts began: one that is missing is a gap.
    pub number: u64,
    /// Time of day, seconds since 1970.
    pub unix_s: f64,
    /// How much later than planned it began.
    pub late: Nanos,
    /// What was sensed. What is absent is nil.
    pub signals: Signals,
    /// Where the values come from, of those not measured at the end of the period.
    pub sources: Vec<Sourced>,
    /// What is in force of each control that has changed; the whole of it in the first of a block.
    pub given: Vec<Given>,
    /// Whether the guard wants the fans at full speed.
    pub emergency: bool,
    /// Why no policy was followed; nil where they were.
    pub native: Option<String>,
    /// What the machine did not take.
    pub refused: Vec<Refused>,
    /// What was sensed where the signals say what it would have been under decisions that were only
    /// watched.
    pub found: Option<Box<Found>>,
}

/// What was sensed of what decisions change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Users' I/O.
    pub io: IoSignals,
    /// Core groups.
    pub groups: Vec<GroupSignals>,
    /// Power and power state of each drive.
    pub drives: Vec<(Option<Watts>, Option<PowerState>)>,
    /// Power of all drives.
    pub ssd: Option<Watts>,
}

impl Found {
    /// That of `signals`.
    #[must_use]
    pub fn of(signals: &Signals) -> Self {
        let Signals { io, groups, drives, power, .. } = signals;
        let drives = drives.iter().map(|drive| (drive.power, drive.state)).collect();
        Self { io: *io, groups: groups.clone(), drives, ssd: power.ssd }
    }

    fn put(&self, signals: &mut Signals) -> bool {
        signals.io = self.io;
        signals.groups.clone_from(&self.groups);
        for (drive, (power, state)) in signals.drives.iter_mut().zip(&self.drives) {
            (drive.power, drive.state) = (*power, *state);
        }
        signals.power.ssd = self.ssd;
        self.drives.len() == signals.drives.len()
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sourced {
    /// Place of the signal in [`Header::signals`].
    pub signal: u8,
    /// Of which part.
    pub part: u16,
    /// When it was read, on the clock of [`Signals::now`]; nil at the end of the period. So it is
    /// the same from one cycle to the next until it is read again.
    pub at: Option<u64>,
    /// Whether a model says so and no sensor.
    pub modelled: bool,
}

/// What is in force of one control of one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// Place of the control in [`Header::controls`].
    pub control: u8,
    /// Of which part.
    pub part: u16,
    /// What is asked for, in the control's unit; nil is released.
    pub asked: Option<f64>,
    /// What is given.
    pub given: Option<f64>,
    /// Why.
    pub reason: String,
}

/// What the machine did not take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Place of the control in [`Header::controls`].
    pub control: u8,
    /// Of which part.
    pub part: u16,
    /// What became of it: "refused" or "changed".
    pub outcome: String,
}

/// Something that happened between two cycles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Since the start of the process.
    pub at: Nanos,
    /// In words.
    pub text: String,
}

/// The sources that are not the usual one.
fn sourced(signals: &Signals) -> Vec<Sourced> {
    let (sources, now) = (&signals.sources, signals.now.0);
    let of = |signal: Signal, part: usize| {
        let source = sources.of(signal, part);
        (source != Source::default()).then(|| Sourced {
            signal: signal as u8,
            part: part as u16,
            // Whatever the two are, the age comes back.
            at: (source.age > Nanos::ZERO).then(|| now.wrapping_sub(source.age.0)),
            modelled: source.origin == Origin::Modelled,
        })
    };
    let all = Signal::ALL.iter();
    all.flat_map(|s| (0..sources.parts(*s)).filter_map(move |part| of(*s, part))).collect()
}

impl Frame {
    /// The signals as the policy had them, but for what was in force.
    fn sensed(&self, topology: &Topology) -> Option<Signals> {
        let mut sources = Sources::new(topology);
        for Sourced { signal, part, at, modelled } in &self.sources {
            let signal = *Signal::ALL.get(usize::from(*signal))?;
            let age = at.map_or(0, |at| self.signals.now.0.wrapping_sub(at));
            let origin = if *modelled { Origin::Modelled } else { Origin::Measured };
            sources.set(signal, (*part).into(), Source { age: Nanos(age), origin });
        }
        Some(Signals { sources, ..self.signals.clone() })
    }
}

impl Frame {
    /// The signals as they were sensed, whatever was decided of a machine that is only watched;
    /// none where no machine with these parts has such.
    #[must_use]
    pub fn natively(&self, topology: &Topology) -> Option<Signals> {
        let mut signals = self.sensed(topology)?;
        let is_whole = self.found.as_ref().is_none_or(|found| found.put(&mut signals));
        Some(signals).filter(|signals| is_whole && check::is_of(signals, topology))
    }
}

fn refused(applied: &ebb_policy::Applied, topology: &Topology) -> Vec<Refused> {
    let of = |control: Control, part: usize| {
        let outcome = applied.of(control, part);
        let (control, part) = (control as u8, part as u16);
        let outcome = (outcome != Outcome::Done).then(|| outcome.name().to_owned())?;
        Some(Refused { control, part, outcome })
    };
    let count = |control: Control| control.row().domain.count(topology);
    let all = Control::ALL.iter();
    all.flat_map(|c| (0..count(*c)).filter_map(move |part| of(*c, part))).collect()
}
