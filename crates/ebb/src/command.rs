//! The command line.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Arg, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use ebb_bench::load::LoadArgs;
use ebb_bench::replay::ReplayArgs;
use ebb_policy::units::{Bytes, Nanos, Watts};
use ebb_trace::Columns;
use ebb_trace::generate::{Rate, Share};

use crate::characterise::CharacteriseArgs;
use crate::ctl::CtlArgs;
use crate::ledger::ReportArgs;
use crate::paper::PaperArgs;
use crate::probe::ProbeArgs;
use crate::profile::ProfileArgs;
use crate::restore::RestoreArgs;
use crate::run::{ConfigCommand, RunArgs};
use crate::scrub::ScrubArgs;
use crate::serve::ServeArgs;
use crate::sim::SimArgs;
use crate::status::StatusArgs;
use crate::top::TopArgs;
use crate::trace::TraceCommand;
use crate::verify::VerifyArgs;

/// Power management for storage servers.
#[derive(Debug, Parser)]
#[command(name = "ebb", version = env!("EBB_VERSION"), about, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done (run and serve: also by Ctrl-C), 1 the work failed, \
                  2 wrong usage or input, 3 a served device was not flushed, 130 interrupted.")]
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
    /// Inspect and convert block-I/O traces, and compute their I/O pressure.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Put load on an NVMe/TCP target: measure it, or verify its data.
    Load(Box<LoadArgs>),
    /// Replay a trace or a pattern on a file, a drive or a folder; measure latency and energy.
    Replay(Box<ReplayArgs>),
    /// Print every number that a paper states beside the twin's; --run repeats the evaluation.
    Paper(PaperArgs),
    /// Serve block devices over NVMe/TCP.
    Serve(Box<ServeArgs>),
    /// Show what a running `ebb run` or `ebb serve` does, why and since when.
    Status(StatusArgs),
    /// Watch a running `ebb run` or `ebb serve` in the terminal.
    Top(TopArgs),
    /// Say what was taken and saved since a day, by the ledger of `ebb run`.
    Report(ReportArgs),
    /// Change a running `ebb serve` or `ebb run` over its control socket.
    Ctl(CtlArgs),
    /// Compare parity with data in a RAID-5 array that no server has open.
    Scrub(ScrubArgs),
    /// Measure how fan speed slows down disks, simulated or on this machine (EADC's curve).
    Characterise(CharacteriseArgs),
    /// Print a shipped server or drive model, to copy and change.
    Profile(ProfileArgs),
    /// Show what Ebb can sense and control on this machine, and which policies could run.
    Probe(ProbeArgs),
    /// Run policies on this machine: observe (the default), or act.
    Run(RunArgs),
    /// Compare the machine's settings with what `ebb run` has set, or found.
    Verify(VerifyArgs),
    /// Restore every setting that `ebb run --apply` has changed.
    Restore(RestoreArgs),
    /// Check, show and describe the configuration of `ebb run`.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Write the manual pages.
    Man {
        /// Folder for the pages; created if missing.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// The command line. A quantity may begin with a hyphen: "-5 W" is a wrong power, not an option,
/// and "-,time" columns the first of which is not used.
pub fn command() -> clap::Command {
    quantities(Cli::command())
}

fn quantities(command: clap::Command) -> clap::Command {
    fn is<T: 'static>(arg: &Arg) -> bool {
        arg.get_value_parser().type_id() == TypeId::of::<T>()
    }
    let numbers =
        [is::<f64>, is::<Nanos>, is::<Watts>, is::<Bytes>, is::<Rate>, is::<Share>, is::<Columns>];
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| {
        let is_quantity = numbers.iter().any(|is| is(&arg));
        if is_quantity { arg.allow_hyphen_values(true) } else { arg }
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, quantities))
}
