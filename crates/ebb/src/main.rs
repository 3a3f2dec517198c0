//! The one binary of Ebb: `ebb sim` compares policies in the digital twin, `ebb trace` looks
//! into block-I/O traces, `ebb paper` repeats published evaluations, `ebb characterise` finds what
//! fans cost disks, `ebb probe` says what this machine can sense and steer. `docs/cli.md` describes
//! every option.

#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic on a closed pipe: see `out`.

mod characterise;
mod command;
mod ctl;
mod curve;
#[cfg(test)]
mod docs;
mod exit;
mod ledger;
mod log;
mod manual;
mod metrics;
#[cfg(test)]
mod option_tables;
mod paper;
mod probe;
mod profile;
mod restore;
mod rpc;
mod run;
#[cfg(test)]
mod schema;
mod scrub;
mod serve;
mod server;
mod sim;
mod status;
mod top;
mod trace;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, FromArgMatches};
use ebb_bench::{load, replay};
use ebb_cli::{interrupt, out};

use command::{Cli, Command, command};

fn main() -> ExitCode {
    let command = command();
    let matches = command.clone().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let done = interrupt::outlive_limits().and_then(|()| execute(cli, &command, &matches));
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error, interrupt::asked()),
    };
    out::finish();
    code
}

fn execute(cli: Cli, command: &clap::Command, matches: &ArgMatches) -> Result<()> {
    match cli.command {
        Command::Sim(args) => sim::run(*args, command, matches),
        Command::Trace(command) => trace::run(&command),
        Command::Load(args) => load::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Paper(args) => paper::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Report(args) => ledger::run(&args),
        Command::Status(args) => status::show(&args),
        Command::Top(args) => top::run(args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Characterise(args) => characterise::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Config(command) => run::configuration(&command),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::pages(&folder),
    }
}
