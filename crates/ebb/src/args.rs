//! The command line as types.

use std::any::TypeId;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use ebb_policy::units::{Bytes, Nanos, Watts, parse_ratio};
use ebb_trace::Format;
use ebb_trace::generate::{DriveShare, Rate, Share};

use crate::characterise::CharacteriseArgs;
use crate::load::args::LoadArgs;
use crate::paper::PaperArgs;
use crate::probe::ProbeCommand;
use crate::serve::{ServeArgs, StatusArgs};

/// Power management for storage servers.
#[derive(Debug, Parser)]
#[command(name = "ebb", version, about, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 the work failed, 2 wrong usage or input, 130 interrupted."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare power policies on a simulated server, over the same requests.
    Sim(Box<SimArgs>),
    /// Look into, convert and rate block-I/O traces.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Put load on an NVMe/TCP target and measure it, or prove that it keeps data.
    Load(Box<LoadArgs>),
    /// Repeat a paper's evaluation in the twin: every stated number, paper against twin.
    Paper(PaperArgs),
    /// Serve block devices over NVMe/TCP.
    Serve(Box<ServeArgs>),
    /// Ask a running `ebb serve --metrics` what it does.
    Status(StatusArgs),
    /// Sweep the fans of a simulated server and measure what its disks still do: EADC's curve.
    Characterise(CharacteriseArgs),
    /// Measure what this machine can do.
    #[command(subcommand)]
    Probe(ProbeCommand),
    /// Print the completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Write the manual pages.
    Man {
        /// Folder for them, made if it is not there.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// The command line. A quantity may begin with a hyphen: "-5 W" is a wrong power, not an option.
pub fn command() -> clap::Command {
    quantities(Cli::command())
}

fn quantities(command: clap::Command) -> clap::Command {
    fn is<T: 'static>(arg: &Arg) -> bool {
        arg.get_value_parser().type_id() == TypeId::of::<T>()
    }
    let numbers = [is::<f64>, is::<Nanos>, is::<Watts>, is::<Bytes>, is::<Rate>, is::<Share>];
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| {
        let is_quantity = numbers.iter().any(|is| is(&arg));
        if is_quantity { arg.allow_hyphen_values(true) } else { arg }
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, quantities))
}

/// Options of `ebb sim`.
///
/// Without a profile, trace, workload or policy it runs a built-in example.
#[derive(Debug, Default, Args)]
pub struct SimArgs {
    /// Server: a shipped profile or a TOML file [default: asg-1115s].
    #[arg(long, value_name = "NAME|FILE")]
    pub profile: Option<String>,

    /// Policy to compare; repeat it for several, the first is the reference. `a+b` runs two
    /// together [default: native].
    #[arg(long = "policy", value_name = "NAME[+NAME]")]
    pub policies: Vec<String>,

    /// Tolerated loss: how much the mean latency may rise over the first policy's, as 0.2 or 20%.
    #[arg(long, value_name = "SHARE", value_parser = parse_ratio, default_value = "0.2")]
    pub plf: f64,

    /// Power budget of all drives together, such as "224 W". Enforced for every policy but
    /// native, the uncapped reference.
    #[arg(long, value_name = "POWER")]
    pub ssd_budget: Option<Watts>,

    /// Disk throughput by fan duty, a file that `ebb characterise --out` wrote, for eadc and
    /// eadc-plus [default: disks that do not feel the fans].
    #[arg(long, value_name = "FILE")]
    pub curve: Option<PathBuf>,

    /// Stop taking requests after this time [default: the whole trace; 1 min of a generated
    /// workload that has no end of its own].
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// Time at the start that is simulated but not counted [default: none].
    #[arg(long, value_name = "TIME")]
    pub warmup: Option<Nanos>,

    /// Seed of everything random.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Break sensors, fans and frequencies from this seed, the same under every policy; for
    /// profiles with a `[thermal]` section.
    #[arg(long, value_name = "SEED")]
    pub faults: Option<u64>,

    /// Break more: also the sensors of inlet and drives, power states, job shares, and all fans
    /// but one.
    #[arg(long, requires = "faults")]
    pub faults_wide: bool,

    /// End all faults at this time [default: they go on].
    #[arg(long, value_name = "TIME", requires = "faults")]
    pub faults_until: Option<Nanos>,

    #[command(flatten)]
    pub trace: TraceInput,

    #[command(flatten)]
    pub workload: WorkloadArgs,

    #[command(flatten)]
    pub output: SimOutput,
}

/// Requests from trace files.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Traces")]
pub struct TraceInput {
    /// Trace to replay, - for standard input; repeat it to play several at once, each on devices of
    /// its own.
    #[arg(long = "trace", value_name = "FILE", conflicts_with_all = ["workload", "pressure"])]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub reading: Reading,

    #[command(flatten)]
    pub changes: Changes,

    /// Fold devices and offsets onto those the server has.
    #[arg(long)]
    pub fold: bool,
}

impl TraceInput {
    /// The first option given that needs `--trace`.
    pub fn first_given(&self) -> Option<&'static str> {
        let Self { reading, changes, fold, .. } = self;
        first(&[
            ("--format", reading.format.is_some()),
            ("--lenient", reading.lenient),
            ("--rate-scale", changes.rate_scale.is_some()),
            ("--from", changes.from.is_some()),
            ("--to", changes.to.is_some()),
            ("--fold", *fold),
        ])
    }
}

fn first(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options.iter().find_map(|(name, given)| given.then_some(*name))
}

/// How to read a trace.
#[derive(Debug, Default, Clone, Copy, Args)]
pub struct Reading {
    /// Format of the trace [default: detected].
    #[arg(long, value_name = "NAME", value_parser = formats(), hide_possible_values = true)]
    pub format: Option<Format>,

    /// Pass over malformed records and count them.
    #[arg(long)]
    pub lenient: bool,
}

/// Formats by name, so that shells complete them and a near miss is told.
fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(|name| name.parse::<Format>())
}

/// What to change on the way from a trace.
#[derive(Debug, Default, Clone, Args)]
pub struct Changes {
    /// Play it faster by this factor, or slower below 1.
    #[arg(long, value_name = "FACTOR")]
    pub rate_scale: Option<f64>,

    /// Leave out what comes before this time of the trace.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Nanos>,

    /// Leave out what comes at or after this time of the trace.
    #[arg(long, value_name = "TIME")]
    pub to: Option<Nanos>,
}

/// Generated requests.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Generated workloads")]
pub struct WorkloadArgs {
    /// Built-in workload or a TOML file; `--list` shows the built-in ones.
    #[arg(long, value_name = "NAME|FILE")]
    pub workload: Option<String>,

    /// Rate as a share of the most this server can do of this workload, measured by a short
    /// saturating run under native (PACER §III-A3), such as 10%.
    #[arg(long, value_name = "SHARE", value_parser = parse_ratio, conflicts_with = "rate")]
    pub pressure: Option<f64>,

    /// Rate: "max", "18000 IOPS", 50k or a pressure such as 10%, for each part of the workload.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Rate>,

    /// Share of reads, such as 70%.
    #[arg(long, value_name = "SHARE")]
    pub read: Option<Share>,

    /// Share of random offsets, such as 100%.
    #[arg(long, value_name = "SHARE")]
    pub random: Option<Share>,

    /// Request size, such as "8 KiB".
    #[arg(long, value_name = "SIZE")]
    pub block: Option<Bytes>,

    /// Client threads, in all or per drive as the workload has them.
    #[arg(long, value_name = "NUMBER")]
    pub jobs: Option<u32>,

    /// Requests outstanding per client thread.
    #[arg(long, value_name = "NUMBER")]
    pub depth: Option<u32>,

    /// Drives the workload uses, such as "0%-25%".
    #[arg(long, value_name = "FROM-TO", value_parser = drive_share)]
    pub drives: Option<DriveShare>,

    /// Data that RocksDB workloads insert, such as "10 GB".
    #[arg(long, value_name = "SIZE")]
    pub data: Option<Bytes>,
}

impl WorkloadArgs {
    /// The first option given that needs `--workload`.
    pub fn first_given(&self) -> Option<&'static str> {
        first(&[
            ("--pressure", self.pressure.is_some()),
            ("--rate", self.rate.is_some()),
            ("--read", self.read.is_some()),
            ("--random", self.random.is_some()),
            ("--block", self.block.is_some()),
            ("--jobs", self.jobs.is_some()),
            ("--depth", self.depth.is_some()),
            ("--drives", self.drives.is_some()),
            ("--data", self.data.is_some()),
        ])
    }
}

fn drive_share(text: &str) -> Result<DriveShare, String> {
    let wrong = || format!("'{text}' is not a range of drives: write such as \"0%-25%\"");
    let (from, to) = text.split_once('-').ok_or_else(wrong)?;
    let share = |text: &str| text.parse::<Share>().map_err(|_| wrong());
    let (from, to) = (share(from)?, share(to)?);
    if from >= to || to.0 > 1.0 { Err(wrong()) } else { Ok(DriveShare { from, to }) }
}

/// What `ebb sim` puts out.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct SimOutput {
    /// Print the results as JSON (docs/json-schema/sim-1.json).
    #[arg(long)]
    pub json: bool,

    /// Write one row per policy and control period; the ending says how.
    #[arg(long, value_name = "FILE.{csv,parquet}")]
    pub timeseries: Option<PathBuf>,

    /// Write a page with plots and the decision log into this folder; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,

    /// Write every decision of every policy, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub decisions: Option<PathBuf>,

    /// Runs at once; the results are the same for any number [default: all cores].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,

    /// List the policies, profiles and workloads, and exit.
    #[arg(long)]
    pub list: bool,

    /// No progress and no hints.
    #[arg(long, short)]
    pub quiet: bool,
}

/// What to do with a trace.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Rates, sizes, mix, locality, gaps and recorded latencies, in one pass.
    Info(InfoArgs),
    /// The first requests as Ebb reads them.
    Head(HeadArgs),
    /// Write a trace in another format, changed on the way if asked.
    Convert(ConvertArgs),
    /// I/O pressure over time: load against the most a server can do (PACER §III-A3).
    Pressure(PressureArgs),
}

/// Which traces, and how to read them.
#[derive(Debug, Args)]
pub struct Files {
    /// Trace files, - for standard input; several are played at once, each on devices of its own.
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

    /// Runs at once; the results are the same for any number [default: all cores].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}
