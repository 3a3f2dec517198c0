//! The options of `ebb replay`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use ebb_cli::args::{Changes, Reading};
use ebb_policy::units::{Bytes, Nanos};

use super::energy::{Accuracy, MeterKind};
use crate::load::args::{Arrival, CoreList, Rate};

const USAGE: &str = "ebb replay [OPTIONS] TRACE... TARGET
       ebb replay [OPTIONS] --pattern KIND TARGET
       ebb replay [OPTIONS] --workload NAME|FILE TARGET";

const EXAMPLES: &str = "\
Examples:
  ebb replay examples/office.csv.gz /srv/scratch --beyond wrap --size 1GiB
      A trace as recorded, against a file in a folder that is there only for that.
  ebb replay --pattern strided --rw write --request 4MiB --repeats 5 -o /tmp/run /srv/scratch
      The paper's server emulator: two processes, 3 GiB each, five times, with raw samples.
  ebb replay --pattern contiguous --meter-csv watts.csv --meter-accuracy \"0.5 %\" /dev/sdb
      Reads a whole drive region and tells bytes per joule by an external meter.

Without --destroy nothing is written to a device or file that holds anything. docs/replay.md has
all of it.";

/// Options of `ebb replay`.
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Traces, each a stream of its own, then the target: a file, a block device, or a folder for a
    /// temporary file.
    #[arg(required = true, value_name = "TRACE... TARGET")]
    pub paths: Vec<PathBuf>,

    /// What is requested.
    #[command(flatten)]
    pub requests: RequestArgs,

    /// When, and by how many.
    #[command(flatten)]
    pub pace: PaceArgs,

    /// What it is done to.
    #[command(flatten)]
    pub target: TargetArgs,

    /// What meters energy.
    #[command(flatten)]
    pub energy: EnergyArgs,

    /// How often, and where results go.
    #[command(flatten)]
    pub runs: RunArgs,

    /// Print the results as JSON (docs/json-schema/replay-1.json).
    #[arg(long)]
    pub json: bool,

    /// No progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// What is asked of the target.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub struct RequestArgs {
    /// Generate requests: each stream reads or writes its own part of the target from its start
    /// (contiguous), every so many requests of the whole (strided), or anywhere (random).
    #[arg(long, value_name = "KIND")]
    pub pattern: Option<Pattern>,

    /// A generated workload with fixed arrival times, built-in or a TOML file; runs for --duration.
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "pattern")]
    pub workload: Option<String>,

    /// Length of the workload [default: its own].
    #[arg(long, value_name = "TIME", requires = "workload")]
    pub duration: Option<Nanos>,

    /// What a pattern does [default: read].
    #[arg(long, value_name = "KIND", requires = "pattern")]
    pub rw: Option<Direction>,

    /// Bytes of each request of a pattern [default: 32 KiB].
    #[arg(long, value_name = "SIZE", requires = "pattern")]
    pub request: Option<Bytes>,

    /// For a pattern, what each stream reads or writes [default: 3 GiB]; for a trace, how much of
    /// the target to use [default: as much as it needs].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,

    /// Concurrent streams, each with its own thread and ring [default: 2 for patterns, as in the
    /// paper, else one per trace]. A trace's own streams are distributed over them.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub streams: Option<u16>,

    /// Seed of everything random.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// How the trace is read.
    #[command(flatten)]
    pub reading: Reading,

    #[command(flatten)]
    pub changes: Changes,

    /// What to do with requests beyond the end of the target.
    #[arg(long, value_name = "WHAT", default_value = "refuse")]
    pub beyond: Beyond,
}

/// When requests are issued.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
pub struct PaceArgs {
    /// recorded: with the time differences of the trace; max: as soon as --queue-depth allows; or
    /// requests per second over all streams, such as 5k [default: recorded; max for patterns].
    #[arg(long, value_name = "PACE")]
    pub pace: Option<Pace>,

    /// Distribution of the gaps between requests of a rate.
    #[arg(long, value_name = "KIND", default_value = "constant")]
    pub arrival: Arrival,

    /// Maximum outstanding requests per stream [default: 1 at pace max, as in the paper, else 128].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub queue_depth: Option<u16>,

    /// How long before a request is due its thread wakes up and spins.
    #[arg(long, value_name = "TIME", default_value = "100 us")]
    pub spin: Nanos,

    /// Cores for the streams, in turn, such as 1 or 0-2,5 [default: anywhere].
    #[arg(long, value_name = "LIST")]
    pub cores: Option<CoreList>,

    /// Time at the start of each repeat that is not counted.
    #[arg(long, value_name = "TIME", default_value = "0 s")]
    pub warmup: Nanos,
}

/// How the target is treated.
#[derive(Debug, Args)]
#[command(next_help_heading = "Target")]
pub struct TargetArgs {
    /// Allow overwriting this device or file; the name must be the target's.
    #[arg(long, value_name = "NAME")]
    pub destroy: Option<String>,

    /// Use the page cache instead of O_DIRECT.
    #[arg(long)]
    pub buffered: bool,

    /// Keep the file that was made in a folder.
    #[arg(long)]
    pub keep: bool,

    /// Stop at the first failed request.
    #[arg(long)]
    pub abort_on_error: bool,
}

/// What is metered.
#[derive(Debug, Args)]
#[command(next_help_heading = "Energy")]
pub struct EnergyArgs {
    /// Meters of this machine to read [default: all there are].
    #[arg(long = "meter", value_name = "KIND", value_delimiter = ',')]
    pub meters: Vec<MeterKind>,

    /// A growing file of an external meter: lines of watts, or of Unix seconds and watts.
    #[arg(long, value_name = "FILE", conflicts_with = "meter_command")]
    pub meter_csv: Option<PathBuf>,

    /// A command that prints watts, once or repeatedly; run by sh, again whenever it ends.
    #[arg(long, value_name = "COMMAND")]
    pub meter_command: Option<String>,

    /// Also the energy of this simulated server over the same requests (modelled).
    #[arg(long, value_name = "NAME|FILE")]
    pub meter_profile: Option<String>,

    /// Accuracy of the external meter, or without one of the server's own meter: "0.5 %", "2 W" or
    /// "0.5 % + 2 W".
    #[arg(long, value_name = "ACCURACY")]
    pub meter_accuracy: Option<Accuracy>,

    /// Time between readings of the meters.
    #[arg(long, value_name = "TIME", default_value = "100 ms")]
    pub sample: Nanos,
}

/// How often, and what is kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Runs")]
pub struct RunArgs {
    /// Number of repeats.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub repeats: u16,

    /// Pause before each repeat.
    #[arg(long, value_name = "TIME", default_value = "0 s")]
    pub rest: Nanos,

    /// Drop the kernel's caches before each repeat, if permitted.
    #[arg(long)]
    pub drop_caches: bool,

    /// Write configuration, results and raw samples into this new folder.
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Spatial patterns (section 3.1 of the paper, and one of ours).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Sequential.
    Contiguous,
    /// One-dimensional strided: streams take turns.
    Strided,
    /// Random, aligned to the request size.
    Random,
}

/// What a pattern does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Half of each.
    Rw,
}

/// What happens to requests beyond the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Beyond {
    /// An error, before anything is issued.
    Refuse,
    /// Offsets modulo the target's size.
    Wrap,
}

/// When requests are issued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// As recorded.
    Recorded,
    /// As soon as the depth allows.
    Max,
    /// So many a second.
    Rate(Rate),
}

impl FromStr for Pace {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "recorded" => Ok(Self::Recorded),
            "max" => Ok(Self::Max),
            _ => text.parse().map(Self::Rate).map_err(|_| {
                format!(
                    "'{text}' is no pace: write recorded, max, or requests per second such as 5k"
                )
            }),
        }
    }
}
