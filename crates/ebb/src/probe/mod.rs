//! `ebb probe`: what this machine can do.

pub mod wake;

use anyhow::Result;
use clap::Subcommand;

/// What to look into.
#[derive(Debug, Subcommand)]
pub enum ProbeCommand {
    /// Measure every way a core can sleep and be woken, messages between cores and moves of
    /// threads, on this machine.
    Wake(wake::WakeArgs),
}

/// Looks into it.
pub fn run(command: &ProbeCommand) -> Result<()> {
    match command {
        ProbeCommand::Wake(args) => wake::run(args),
    }
}
