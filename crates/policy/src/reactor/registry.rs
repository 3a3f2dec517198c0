//! The schedulers by name: the one list that the target, the twin, the command line and the docs
//! read.

use super::sandman::SandmanParams;
use super::{
    Dynamic, Governed, Governor, Hybrid, Interrupt, Machine, Sandman, SandmanPlus, Scheduler,
    StaticPolling,
};
use crate::PolicyError;
use crate::registry::stated::{Stated, split};

/// A scheduler as the command line lists it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// The parameters that may be stated after its name.
    pub takes: &'static [&'static str],
    /// Coarse periods until it does for good what it makes of a steady load.
    pub settles: u32,
    make: Make,
}

type Make = fn(&Machine, &Stated) -> Result<Box<dyn Scheduler>, PolicyError>;

/// What follows the load of the last periods.
const GOVERNED: u32 = 20;
/// What learns of bursts as well: its reserve forgets a 300th in each period (`sandman_plus.rs`),
/// and until a rare burst comes it may save what it gives up then for good.
const RESERVE: u32 = 300;

/// Every scheduler, in the order of the docs.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "static",
        summary: "busy polling: every core polls at full frequency whatever the load",
        takes: &[],
        settles: 0,
        make: |_, _| Ok(Box::new(StaticPolling)),
    },
    Entry {
        name: "interrupt",
        summary: "interrupt-driven: a core without work blocks and the kernel wakes it",
        takes: &[],
        settles: GOVERNED,
        make: |_, _| Ok(Box::new(Interrupt)),
    },
    Entry {
        name: "governor",
        summary: "busy polling at a frequency that follows the share of useful polls, as SPDK's",
        takes: &[],
        settles: GOVERNED,
        make: |_, _| Ok(Box::new(Governor)),
    },
    Entry {
        name: "dynamic",
        summary: "SPDK's dynamic scheduler: idle threads to the main core, every second",
        takes: &[],
        settles: GOVERNED,
        make: |machine, _| Ok(Box::new(Dynamic::new(machine))),
    },
    Entry {
        name: "hybrid",
        summary: "hybrid polling: naps of half the mean gap between requests",
        takes: &[],
        settles: GOVERNED,
        make: |machine, _| Ok(Box::new(Hybrid::new(machine.cores.len()))),
    },
    Entry {
        name: "sandman",
        summary: "consolidates every second, dozes siblings together, spreads bursts in 10 us",
        takes: SANDMAN,
        settles: GOVERNED,
        make: |machine, stated| Ok(Box::new(sandman(machine, stated)?)),
    },
    Entry {
        name: "sandman-plus",
        summary: "our own variant: a delay objective per queue, learned reserves, a main core \
                  that rests",
        takes: PLUS,
        settles: RESERVE,
        make: |machine, stated| Ok(Box::new(plus(machine, stated)?)),
    },
    Entry {
        name: "sandman+governor",
        summary: "sandman, with polling cores at a frequency that follows their load",
        takes: SANDMAN,
        settles: GOVERNED,
        make: |machine, stated| {
            let inner = sandman(machine, stated)?;
            Ok(Box::new(Governed::new("sandman+governor", inner, machine.cores.len())))
        },
    },
    Entry {
        name: "sandman-plus+governor",
        summary: "sandman-plus, with polling cores at a frequency that follows their load",
        takes: PLUS,
        settles: RESERVE,
        make: |machine, stated| {
            let inner = plus(machine, stated)?;
            Ok(Box::new(Governed::new("sandman-plus+governor", inner, machine.cores.len())))
        },
    },
];

const SANDMAN: &[&str] = &["burst_buffer", "burst_depth"];
const PLUS: &[&str] = &["objective_us", "objective_percent"];

fn sandman(machine: &Machine, stated: &Stated) -> Result<Sandman, PolicyError> {
    let usual = SandmanParams::default();
    let params = SandmanParams {
        burst_buffer: stated.or("burst_buffer", usual.burst_buffer),
        burst_depth: stated.or("burst_depth", usual.burst_depth),
    };
    Sandman::with_params(machine, params)
}

fn plus(machine: &Machine, stated: &Stated) -> Result<SandmanPlus, PolicyError> {
    match (stated.get("objective_us"), stated.get("objective_percent")) {
        (None, None) => Ok(SandmanPlus::new(machine)),
        (Some(micros), None) => SandmanPlus::with_micros(machine, micros),
        (None, Some(percent)) => SandmanPlus::with_percent(machine, percent),
        (Some(_), Some(value)) => {
            let (parameter, valid) = ("objective_percent", "stated without objective_us");
            Err(PolicyError::Parameter { parameter, value, valid })
        }
    }
}

/// Why there is no such scheduler.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SchedulerError {
    /// No scheduler has this name.
    #[error("unknown scheduler '{name}'; choose from: {valid}")]
    Unknown {
        /// As asked for.
        name: String,
        /// All names.
        valid: String,
    },
    /// What is stated of its parameters is not to be understood, or out of range.
    #[error(transparent)]
    Parameters(#[from] PolicyError),
}

/// Coarse periods until the scheduler `name` has settled; 0 where there is none of this name.
#[must_use]
pub fn settles(name: &str) -> u32 {
    let (known, _) = split(name);
    ENTRIES.iter().find(|entry| entry.name == known).map_or(0, |entry| entry.settles)
}

/// Makes the scheduler `name` for `machine`; `sandman(burst_depth=16)` is one with a parameter
/// stated.
///
/// # Errors
/// When no scheduler has this name; the error lists those that exist. Parameters that it does not
/// take, or that are out of range.
pub fn by_name(name: &str, machine: &Machine) -> Result<Box<dyn Scheduler>, SchedulerError> {
    let (known, stated) = split(name);
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == known) else {
        let valid = ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        return Err(SchedulerError::Unknown { name: known.to_owned(), valid });
    };
    let stated = stated.map(|text| Stated::parse(entry.name, entry.takes, text)).transpose()?;
    Ok((entry.make)(machine, &stated.unwrap_or_default())?)
}
