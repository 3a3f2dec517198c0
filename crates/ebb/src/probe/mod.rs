//! `ebb probe`: what this machine can do.

mod draft;
mod fans;
mod machine;
pub mod wake;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Options of `ebb probe`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProbeArgs {
    #[command(subcommand)]
    command: Option<ProbeCommand>,
    #[command(flatten)]
    machine: machine::MachineArgs,
    #[command(flatten)]
    fans: fans::FansArgs,
}

/// What else to look into.
#[derive(Debug, Subcommand)]
enum ProbeCommand {
    /// Measure on this machine every way a core can sleep and be woken, messages between cores, and
    /// moves of threads.
    Wake(wake::WakeArgs),
}

/// Looks into it.
pub fn run(args: &ProbeArgs) -> Result<()> {
    match &args.command {
        Some(ProbeCommand::Wake(args)) => wake::run(args),
        None if args.fans.is_given() => fans::run(&args.fans, &args.machine.machine()?),
        None => machine::run(&args.machine),
    }
}
