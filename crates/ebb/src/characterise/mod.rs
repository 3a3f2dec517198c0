//! `ebb characterise`: how fast a server's disks are at each fan speed, the curve that EADC uses
//! (Fig. 5). In the twin, or on this machine.

mod here;
mod twin;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use ebb_policy::PERIOD;
use ebb_policy::cooling::Curve;
use ebb_policy::units::{Nanos, parse_ratio};

use ebb_cli::{output, usage};

pub use twin::{Step, Sweep, curve_of, hold_fans};

/// Options of `ebb characterise`.
///
/// Runs a simulated server once at each fan duty while the disks do nothing but random writes, or,
/// with --here, reads idle disks of this machine at one fan duty after the other, and prints what
/// is left of their throughput at each.
#[derive(Debug, Args)]
pub struct CharacteriseArgs {
    /// Server: a shipped profile with fans and hard disks, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "eadc-e6", conflicts_with = "here")]
    profile: String,
    /// Step between fan duties, as 0.1 or 10%
    #[arg(long, value_name = "SHARE", value_parser = parse_ratio, default_value = "10%")]
    step: f64,
    /// Time measured at each duty: in the twin after half as long to settle, with --here once the
    /// fans' speed is steady
    #[arg(long, value_name = "TIME", default_value = "20 s")]
    pause: Nanos,
    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Write the curve to this TOML file, for `ebb sim --curve` and `curve` of `ebb run`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Concurrent runs; the results are the same for any number [default: all cores]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(conflicts_with = "here")]
    threads: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    here: here::HereArgs,
}

/// Sweeps and prints.
pub fn run(args: &CharacteriseArgs) -> Result<()> {
    if let Some(path) = &args.out {
        output::check("--out", path)?;
    }
    if !(0.01..=0.5).contains(&args.step) {
        return Err(usage(format!("--step {}: give a share from 1% to 50%", args.step)));
    }
    if args.pause < PERIOD {
        return Err(usage(format!("--pause {}: give at least {PERIOD}", args.pause)));
    }
    if args.here.is_given() { here::run(args) } else { twin::run(args) }
}

/// Fan duties from full speed down to `least`.
fn duties(least: f64, step: f64) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
    let steps = ((1.0 - least) / step - 1e-9).ceil() as u32;
    (0..steps + 1).map(move |n| (1.0 - f64::from(n) * step).max(least))
}

/// What a curve means for EADC, below its table.
fn ending(curve: &Curve) -> String {
    if curve.knee() < 1.0 {
        format!(
            "\nDisks feel the fans above {:.0} %: EADC keeps them there while disks are busy.\n",
            100.0 * curve.knee()
        )
    } else {
        "\nDisks do not feel the fans: temperature alone decides.\n".to_owned()
    }
}

#[cfg(test)]
mod tests {
    #[derive(schemars::JsonSchema)]
    #[schemars(untagged, title = "ebb characterise --json")]
    #[expect(dead_code, reason = "its schema is what is wanted")]
    enum Report {
        /// In the twin.
        Twin(super::twin::Report<'static>),
        /// On this machine, with --here.
        Here(super::here::Report<'static>),
    }

    crate::schema::written!("characterise-1", Report);
}
