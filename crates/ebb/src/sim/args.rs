//! The options of `ebb sim`.

use std::path::PathBuf;

use clap::Args;

use ebb_cli::args::{Changes, Reading};
use ebb_policy::units::{Bytes, Nanos, Watts, parse_ratio, parse_tolerance};
use ebb_trace::generate::{DriveShare, Rate, Share};
use ebb_twin::AsHost;
use ebb_twin::profile::Governor;

use super::change::Change;

/// The headings of options.
pub const TRACES: &str = "Traces";
pub const GENERATED: &str = "Generated workloads";
pub const OUTPUT: &str = "Output";

/// Options of `ebb sim`.
///
/// Without a profile, trace, workload or policy it runs a built-in example.
#[derive(Debug, Default, Args)]
pub struct SimArgs {
    /// TOML file with these options by the same names, except output options; the command line
    /// overrides it.
    #[arg(long, value_name = "FILE")]
    pub experiment: Option<PathBuf>,

    /// Server: a shipped profile or a TOML file [default: asg-1115s].
    #[arg(long, value_name = "NAME|FILE")]
    pub profile: Option<String>,

    /// Policy to compare; repeatable, the first is the reference. `a+b` runs two together, `a(x=1,
    /// y=2)` sets parameters of a [default: native].
    #[arg(long = "policy", value_name = "NAME[+NAME]")]
    pub policies: Vec<String>,

    /// Tolerated loss: how much the mean latency may rise over the first policy's, as 0.2 or 20%.
    #[arg(long, value_name = "SHARE", value_parser = parse_tolerance, default_value = "0.2")]
    pub plf: f64,

    /// How much the 99th percentile of the latency may rise, as 0.5 or 50%, for pacer and its
    /// variants [default: they keep the mean alone].
    #[arg(long, value_name = "SHARE", value_parser = parse_tolerance)]
    pub tail: Option<f64>,

    /// Power budget of all drives together, such as "224 W". Enforced for every policy except
    /// native, the uncapped reference.
    #[arg(long, value_name = "POWER")]
    pub ssd_budget: Option<Watts>,

    /// Power budget of the whole server, such as "300 W", for pass, thunderbolt and tide. The guard
    /// keeps it under every policy except native.
    #[arg(long, value_name = "POWER")]
    pub server_budget: Option<Watts>,

    /// Only tell the server's budget to policies, and leave it to them to keep it; to study those
    /// published without a guard.
    #[arg(long, requires = "server_budget")]
    pub no_budget_guard: bool,

    /// Change the tolerance or a budget during the runs, such as "20 s: plf 10%, ssd-budget 150 W"
    /// or "20 s: server-budget 300 W"; repeatable.
    #[arg(long, value_name = "TIME: NAME VALUE", value_parser = Change::parse)]
    pub change: Vec<Change>,

    /// Disk throughput by fan duty, a file written by `ebb characterise --out`, for eadc and
    /// eadc-plus [default: fans do not affect disks].
    #[arg(long, value_name = "FILE")]
    pub curve: Option<PathBuf>,

    /// Stop taking requests after this time [default: the whole trace; 1 min for a generated
    /// workload without an end, 148 s for the example].
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// Time at the start that is simulated but not counted [default: until all policies have
    /// settled, where the run lasts long enough; 0s counts from the start].
    #[arg(long, value_name = "TIME")]
    pub warmup: Option<Nanos>,

    /// Simulate about this share of the requests, such as 5%, and estimate the whole load from it,
    /// each number with its 90 % interval; a day by default. Windows are drawn by their load and
    /// its changes; a burst in a window that is not drawn is not seen.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub sampled: Option<f64>,

    /// Seed of everything random.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Inject faults of sensors, fans and frequencies from this seed, the same under every policy;
    /// for profiles with a `[thermal]` section.
    #[arg(long, value_name = "SEED")]
    pub faults: Option<u64>,

    /// Inject more faults: also in sensors of inlet and drives, power states, job shares, and all
    /// fans but one.
    #[arg(long, requires = "faults")]
    pub faults_wide: bool,

    /// End all faults at this time [default: they continue].
    #[arg(long, value_name = "TIME", requires = "faults")]
    pub faults_until: Option<Nanos>,

    /// Switch off the guard's thermal limits, so that only the hardware's own throttling acts; to
    /// study policies published without a guard.
    #[arg(long)]
    pub no_thermal_guard: bool,

    /// Sense and act as `ebb run` can on a server, with its paces, roundings and absences:
    /// "least", or a list of what a server has beyond that. "meters": drives measure their power;
    /// "idle-power": they state what they draw at rest. "served": latency from `ebb serve`.
    /// "throttle": control groups whose CPU time and rates may be limited.
    #[arg(long, value_name = "SENSES", value_parser = as_host)]
    pub as_host: Option<AsHost>,

    /// Frequency governor that the server was found with, below what a policy asks for [default:
    /// the profile's, or else performance].
    #[arg(long, value_name = "NAME", value_parser = governor)]
    pub governor: Option<Governor>,

    /// Instead of simulating, decide again what a run has recorded (`ebb run --record`), and
    /// compare to the bit; with --policy, say what that one would have saved.
    #[arg(long, value_name = "DIR")]
    pub recorded: Option<PathBuf>,

    #[command(flatten)]
    pub trace: TraceInput,

    #[command(flatten)]
    pub workload: WorkloadArgs,

    #[command(flatten)]
    pub output: SimOutput,
}

/// Requests from trace files.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = TRACES)]
pub struct TraceInput {
    /// Trace to replay, - for standard input; repeat it to play several at once, each on its own
    /// devices.
    #[arg(long = "trace", value_name = "FILE", conflicts_with_all = ["workload", "pressure"])]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub reading: Reading,

    #[command(flatten)]
    pub changes: Changes,

    /// Fold devices and offsets onto those of the server.
    #[arg(long)]
    pub fold: bool,

    /// Play it again and again, until --duration [default: until all policies have settled and
    /// show what they save; once where it lasts that long].
    #[arg(long = "loop")]
    pub again: bool,
}

impl TraceInput {
    /// The first option given that needs `--trace`.
    pub fn first_given(&self) -> Option<&'static str> {
        let Self { reading, changes, fold, again, .. } = self;
        first(&[
            ("--format", reading.format.is_some()),
            ("--columns", reading.columns.is_some()),
            ("--lenient", reading.lenient),
            ("--rate-scale", changes.rate_scale.is_some()),
            ("--from", changes.from.is_some()),
            ("--to", changes.to.is_some()),
            ("--fold", *fold),
            ("--loop", *again),
        ])
    }
}

fn first(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options.iter().find_map(|(name, given)| given.then_some(*name))
}

/// Generated requests.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = GENERATED)]
pub struct WorkloadArgs {
    /// Built-in workload or a TOML file; `--list` shows the built-in ones.
    #[arg(long, value_name = "NAME|FILE")]
    pub workload: Option<String>,

    /// Rate as a share of this server's maximum for this workload, such as 10%. A short saturating
    /// run under native measures the maximum (PACER §III-A3).
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

    /// Client threads, in all or per drive, depending on the workload.
    #[arg(long, value_name = "NUMBER")]
    pub jobs: Option<u32>,

    /// Requests outstanding per client thread.
    #[arg(long, value_name = "NUMBER")]
    pub depth: Option<u32>,

    /// Drives the workload uses, such as "0%-25%".
    #[arg(long, value_name = "FROM-TO", value_parser = drive_share)]
    pub drives: Option<DriveShare>,

    /// Amount of data that RocksDB workloads insert, such as "10 GB".
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

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<Share>().map_err(|error| error.to_string())?.0;
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err("a share above 0 and up to 100% is needed".to_owned()),
    }
}

fn as_host(text: &str) -> Result<AsHost, String> {
    let mut senses = AsHost::default();
    for name in text.split(',').map(str::trim).filter(|name| *name != "least") {
        let sense = match name {
            "meters" => &mut senses.meters,
            "idle-power" => &mut senses.idle_power,
            "served" => &mut senses.served,
            "throttle" => &mut senses.throttle,
            _ => {
                let names = "least, meters, idle-power, served, throttle";
                return Err(format!("'{name}' is none of {names}"));
            }
        };
        *sense = true;
    }
    Ok(senses)
}

fn governor(text: &str) -> Result<Governor, String> {
    match text {
        "performance" => Ok(Governor::Performance),
        "schedutil" => Ok(Governor::Schedutil),
        _ => Err(format!("'{text}' is none of performance, schedutil")),
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
#[command(next_help_heading = OUTPUT)]
pub struct SimOutput {
    /// Print the results as JSON (docs/json-schema/sim-1.json).
    #[arg(long)]
    pub json: bool,

    /// Write one row per policy and control period, as CSV or Parquet by the file's ending.
    #[arg(long, value_name = "FILE.{csv,parquet}")]
    pub timeseries: Option<PathBuf>,

    /// Write a page with plots and the decision log into this folder; created if missing.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,

    /// Write every decision of every policy, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub decisions: Option<PathBuf>,

    /// Concurrent runs; the results are the same for any number [default: all cores].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,

    /// List policies, profiles and workloads, and exit.
    #[arg(long)]
    pub list: bool,

    /// No progress and no hints.
    #[arg(long, short)]
    pub quiet: bool,
}
