//! The schedulers by name: the one list that the target, the twin, the command line and the docs
//! read.

use super::{
    Dynamic, Governor, Hybrid, Interrupt, Machine, Sandman, SandmanPlus, Scheduler, StaticPolling,
};

/// A scheduler as the command line lists it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    make: fn(&Machine) -> Box<dyn Scheduler>,
}

/// Every scheduler, in the order of the docs.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "static",
        summary: "busy polling: every core polls at full frequency whatever the load",
        make: |_| Box::new(StaticPolling),
    },
    Entry {
        name: "interrupt",
        summary: "interrupt-driven: a core without work blocks and the kernel wakes it",
        make: |_| Box::new(Interrupt),
    },
    Entry {
        name: "governor",
        summary: "busy polling at a frequency that follows the share of useful polls, as SPDK's",
        make: |_| Box::new(Governor),
    },
    Entry {
        name: "dynamic",
        summary: "SPDK's dynamic scheduler: idle threads to the main core, every second",
        make: |machine| Box::new(Dynamic::new(machine)),
    },
    Entry {
        name: "hybrid",
        summary: "hybrid polling: naps of half the mean gap between requests",
        make: |machine| Box::new(Hybrid::new(machine.cores.len())),
    },
    Entry {
        name: "sandman",
        summary: "consolidates every second, dozes siblings together, spreads bursts in 10 us",
        make: |machine| Box::new(Sandman::new(machine)),
    },
    Entry {
        name: "sandman-plus",
        summary: "our own variant: a delay objective per queue, learned reserves, a main core \
                  that rests",
        make: |machine| Box::new(SandmanPlus::new(machine)),
    },
];

/// No scheduler has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown scheduler '{name}'; choose from: {valid}")]
pub struct UnknownScheduler {
    /// As asked for.
    pub name: String,
    /// All names.
    pub valid: String,
}

/// Makes the scheduler `name` for `machine`.
///
/// # Errors
/// When no scheduler has this name; the error lists those that exist.
pub fn by_name(name: &str, machine: &Machine) -> Result<Box<dyn Scheduler>, UnknownScheduler> {
    match ENTRIES.iter().find(|entry| entry.name == name) {
        Some(entry) => Ok((entry.make)(machine)),
        None => {
            let valid = ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
            Err(UnknownScheduler { name: name.to_owned(), valid })
        }
    }
}
