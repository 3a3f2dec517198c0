//! The options of `ebb trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use ebb_policy::units::Nanos;
use ebb_trace::Format;

use ebb_cli::args::{Changes, Reading, formats};

/// What to do with a trace.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Rates, sizes, mix, locality, gaps and recorded latencies.
    Info(InfoArgs),
    /// Print the first requests as Ebb reads them.
    Head(HeadArgs),
    /// Write a trace in another format, optionally scaled or cut.
    Convert(ConvertArgs),
    /// I/O pressure over time: load relative to a server's maximum (PACER §III-A3).
    Pressure(PressureArgs),
}

/// Which traces, and how to read them.
#[derive(Debug, Args)]
pub struct Files {
    /// Trace files, - for standard input; several are played at once, each on its own devices.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub reading: Reading,

    #[command(flatten)]
    pub changes: Changes,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// No progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Options of `ebb trace info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub input: Files,
}

/// Options of `ebb trace head`.
#[derive(Debug, Args)]
pub struct HeadArgs {
    #[command(flatten)]
    pub input: Files,

    /// How many.
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 10)]
    pub lines: u64,
}

/// Options of `ebb trace convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub input: Files,

    /// File to write, - for standard output.
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,

    /// Format to write [default: by the file's ending, .parquet or .csv].
    #[arg(long, value_name = "NAME", value_parser = formats(), hide_possible_values = true)]
    pub output_format: Option<Format>,
}

/// Options of `ebb trace pressure`.
#[derive(Debug, Args)]
pub struct PressureArgs {
    #[command(flatten)]
    pub input: Files,

    /// Server: a shipped profile or a TOML file.
    #[arg(long, value_name = "NAME|FILE", default_value = "dorado-6000")]
    pub profile: String,

    /// Length of a segment.
    #[arg(long, value_name = "TIME", default_value = "20 min")]
    pub segment: Nanos,

    /// Time simulated for each of a segment's two runs.
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    pub run: Nanos,

    /// Seed of everything random.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Concurrent runs; the results are the same for any number [default: all cores].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}
