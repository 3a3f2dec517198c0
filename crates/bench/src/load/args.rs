//! The options of `ebb load`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use ebb_policy::cpus::list;
use ebb_policy::units::{Bytes, Nanos};
use ebb_trace::generate::iops;

use ebb_cli::args::Reading;

/// Options of `ebb load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Address and port of the target.
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: String,

    /// NQN of the subsystem [default: the only one that the target's discovery service lists].
    #[arg(long, value_name = "NQN")]
    pub nqn: Option<String>,

    /// Host NQN to connect with.
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,

    /// File with this host's key for TLS: all connections are over it.
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// File with this host's key, to authenticate itself by DH-HMAC-CHAP where the target wants it.
    #[arg(long, value_name = "FILE")]
    pub dhchap_secret: Option<PathBuf>,

    /// File with the target's key: it must authenticate itself too.
    #[arg(long, value_name = "FILE", requires = "dhchap_secret")]
    pub dhchap_ctrl_secret: Option<PathBuf>,

    /// Namespaces to use [default: all].
    #[arg(long = "namespace", value_name = "NUMBER", value_delimiter = ',')]
    pub namespaces: Vec<u32>,

    /// Connections, each with its own I/O queue [default: one per core].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub connections: Option<u16>,

    /// Digests (CRC32C) to use.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub digest: Vec<DigestKind>,

    /// Cores to run on, such as 1 or 0-2,5, with one thread each [default: one unpinned thread].
    #[arg(long, value_name = "LIST")]
    pub cores: Option<CoreList>,

    /// Poll for completions [default: with up to 8 connections per core].
    #[arg(long, conflicts_with = "wait")]
    pub poll: bool,

    /// Sleep until the kernel reports completions.
    #[arg(long)]
    pub wait: bool,

    /// What is requested.
    #[command(flatten)]
    pub work: WorkArgs,

    /// When, and by how many.
    #[command(flatten)]
    pub pace: PaceArgs,

    /// What is verified and told.
    #[command(flatten)]
    pub check: CheckArgs,

    /// Print the results as JSON (docs/json-schema/load-1.json).
    #[arg(long)]
    pub json: bool,

    /// No progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// What is asked of the target.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub struct WorkArgs {
    /// Reads or writes, sequential or random [default: randread].
    #[arg(long, value_name = "KIND", conflicts_with = "trace")]
    pub rw: Option<Rw>,

    /// Share of reads of rw and randrw, in percent [default: 50].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub mix: Option<u8>,

    /// Bytes of each request [default: 4 KiB].
    #[arg(long, value_name = "SIZE", conflicts_with = "trace")]
    pub block_size: Option<Bytes>,

    /// Where to begin in each namespace.
    #[arg(long, value_name = "SIZE", default_value = "0 B")]
    pub offset: Bytes,

    /// How much of each namespace to use [default: up to its end].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,

    /// Seed of everything random.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Replay this trace instead, folded onto the namespaces and as fast as recorded; - for
    /// standard input.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// How the trace is read.
    #[command(flatten)]
    pub reading: Reading,

    /// Replay faster by this factor, or slower if below 1.
    #[arg(long, value_name = "FACTOR", requires = "trace")]
    pub speed: Option<f64>,
}

/// When requests are sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
pub struct PaceArgs {
    /// Outstanding requests. Without a rate: per connection and namespace [default: 1]. With a rate
    /// or a trace: at most, per connection [default: 128, or the target's queue size].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub queue_depth: Option<u16>,

    /// Requests per second over all connections, such as 50k, however slow the target is.
    #[arg(long, value_name = "RATE", conflicts_with = "trace")]
    pub rate: Option<Rate>,

    /// Distribution of the gaps between requests of a rate.
    #[arg(long, value_name = "KIND", default_value = "poisson")]
    pub arrival: Arrival,

    /// A higher rate at the end of each period, such as "1 s every 10 s at 400k".
    #[arg(long, value_name = "TIME every TIME at RATE", conflicts_with = "trace")]
    pub burst: Option<Burst>,

    /// Raise the rate from zero over this time.
    #[arg(long, value_name = "TIME", requires = "rate")]
    pub ramp: Option<Nanos>,

    /// How long to send requests, warm-up included [default: 10 s, or the whole trace].
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// Time at the start that is not counted.
    #[arg(long, value_name = "TIME", default_value = "0 s")]
    pub warmup: Nanos,
}

/// What is checked, and what happens when things go wrong.
#[derive(Debug, Args)]
#[command(next_help_heading = "Checks and failures")]
pub struct CheckArgs {
    /// Verify data; overwrites what is there. Each written block identifies itself, every block
    /// read is checked, and at the end everything written is read back.
    #[arg(long)]
    pub verify: bool,

    /// Write everything once before the load.
    #[arg(long)]
    pub fill: bool,

    /// If the connection is lost, try for this long to connect again, then continue.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub reconnect: Option<Nanos>,

    /// Give up a connection that sends nothing for this long while an answer is due.
    #[arg(long, value_name = "TIME", default_value = "30 s")]
    pub timeout: Nanos,
}

/// A time; a plain number means seconds.
fn seconds(text: &str) -> Result<Nanos, String> {
    let plain = text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = if plain { format!("{text} s") } else { text.to_owned() };
    text.parse::<Nanos>().map_err(|error| error.to_string())
}

/// What is protected by a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DigestKind {
    /// Headers of PDUs.
    Header,
    /// Data of PDUs.
    Data,
}

/// Kinds of load, as fio names them.
#[allow(clippy::enum_variant_names)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Sequential reads and writes.
    Rw,
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Random reads and writes.
    Randrw,
}

impl Rw {
    /// Whether offsets are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite | Self::Randrw)
    }
    /// Whether reads and writes are mixed.
    pub fn is_mixed(self) -> bool {
        matches!(self, Self::Rw | Self::Randrw)
    }
    /// Whether it writes.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Randread)
    }
}

/// Kinds of gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arrival {
    /// Exponentially distributed: independent clients.
    Poisson,
    /// Equal gaps.
    Constant,
}

/// Requests per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let rate = iops(text).filter(|rate| (0.001..=1e9).contains(rate)).map(Self);
        rate.ok_or_else(|| {
            format!("'{text}' is not a rate: write requests per second such as 50k or \"1M IOPS\"")
        })
    }
}

/// A repeated burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// How long each lasts.
    pub length: Nanos,
    /// From the end of one to the end of the next.
    pub period: Nanos,
    /// Requests per second while it lasts.
    pub rate: Rate,
}

impl FromStr for Burst {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a burst: write such as \"1 s every 10 s at 400k\"");
        let (length, rest) = text.split_once(" every ").ok_or_else(wrong)?;
        let (period, rate) = rest.split_once(" at ").ok_or_else(wrong)?;
        let length: Nanos = length.parse().map_err(|_| wrong())?;
        let period: Nanos = period.parse().map_err(|_| wrong())?;
        let rate = rate.parse()?;
        let good = length > Nanos::ZERO && length < period;
        if good { Ok(Self { length, period, rate }) } else { Err(wrong()) }
    }
}

/// Cores by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreList(pub Vec<usize>);

impl FromStr for CoreList {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a list of cores: write such as 1 or 0-2,5");
        let cores = list::<usize>(text).filter(|cores| !cores.is_empty()).ok_or_else(wrong)?;
        let mut unique = cores.clone();
        unique.sort_unstable();
        unique.dedup();
        let good = unique.len() == cores.len() && unique.last().is_some_and(|last| *last < 4096);
        if good { Ok(Self(cores)) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        assert_eq!("50k".parse(), Ok(Rate(50_000.0)));
        assert_eq!("1.5M IOPS".parse(), Ok(Rate(1.5e6)));
        assert_eq!("0-2,5".parse(), Ok(CoreList(vec![0, 1, 2, 5])));
        let burst: Burst = "1 s every 10 s at 400k".parse().unwrap();
        assert_eq!((burst.length, burst.period), (Nanos::from_secs(1), Nanos::from_secs(10)));
        assert_eq!(burst.rate, Rate(400_000.0));
        assert_eq!(seconds("30"), Ok(Nanos::from_secs(30)));
        assert_eq!(seconds("500 ms"), Ok(Nanos::from_millis(500)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "k", "0", "-5", "1e99", "5x"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["", "1-0", "a", "0,0", "1-", "5000"] {
            assert!(text.parse::<CoreList>().is_err(), "{text}");
        }
        for text in ["1 s", "10 s every 1 s at 5k", "0 s every 1 s at 5k", "1 s every 2 s at no"] {
            assert!(text.parse::<Burst>().is_err(), "{text}");
        }
    }
}
