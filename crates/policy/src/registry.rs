//! The policies by name: the one list that the command line, the reports and the docs read.

use crate::cpu::{Adaptors, Native, Ondemand, Pacer, PacerParams, PacerPlus};
use crate::ssd::{Pacman, PacmanPlus, Sspc};
use crate::topology::Topology;
use crate::units::Watts;
use crate::{Policy, Signals};

/// What the operator states: the tolerated loss and the budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `plf`: tolerated relative increase of the mean I/O latency (PACER §IV-C).
    pub plf: f64,
    /// Power the drives' caps may sum to; every drive in state 0 when `None`.
    pub ssd_budget: Option<Watts>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { plf: 0.2, ssd_budget: None }
    }
}

/// A policy as listed by `ebb sim --list`.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    make: Make,
}

type Make = fn(&Topology, &Settings) -> Result<Box<dyn Policy>, PolicyError>;

/// Why a policy could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error("unknown policy '{name}'; choose from: {valid}")]
    Unknown {
        /// As asked for.
        name: String,
        /// All names.
        valid: String,
    },
    /// The budget is below what the drives can be capped to.
    #[error(
        "SSD budget {budget} is impossible: the lowest power states of the {drives} drives sum \
         to {lowest}; give at least that"
    )]
    Budget {
        /// As asked for.
        budget: Watts,
        /// Sum of the lowest caps.
        lowest: Watts,
        /// Number of drives.
        drives: usize,
    },
    /// A parameter out of its range.
    #[error("{parameter} = {value} is out of range: {valid}")]
    Parameter {
        /// Its name.
        parameter: &'static str,
        /// As asked for.
        value: f64,
        /// What would be valid.
        valid: &'static str,
    },
}

/// Every policy, in the order of the docs.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "native",
        summary: "everything on: all cores at the highest frequency, drives uncapped",
        make: |_, _| Ok(Box::new(Native)),
    },
    Entry {
        name: "ondemand",
        summary: "Linux's governor: frequency by the utilisation of the busiest core",
        make: |topology, _| Ok(Box::new(Ondemand::new(topology))),
    },
    Entry {
        name: "pacer",
        summary: "cores and frequency follow the load within a tolerated latency increase (plf)",
        make: |topology, settings| pacer(topology, settings, Adaptors::Both),
    },
    Entry {
        name: "pacer-cores",
        summary: "PACER with its Core Adaptor only",
        make: |topology, settings| pacer(topology, settings, Adaptors::Cores),
    },
    Entry {
        name: "pacer-freq",
        summary: "PACER with its Freq Adaptor only",
        make: |topology, settings| pacer(topology, settings, Adaptors::Frequency),
    },
    Entry {
        name: "pacer-plus",
        summary: "our own variant: PACER with a reserve for bursts, paid out of the tolerated loss",
        make: |topology, settings| {
            Ok(Box::new(PacerPlus::new(topology, PacerParams::for_plf(settings.plf))?))
        },
    },
    Entry {
        name: "sspc",
        summary: "static storage power capping: one uniform drive cap that fits the budget",
        make: |topology, settings| Ok(Box::new(Sspc::new(topology, settings.ssd_budget)?)),
    },
    Entry {
        name: "pacman",
        summary: "drive caps moved to where the measured power says they are needed",
        make: |topology, settings| Ok(Box::new(Pacman::new(topology, settings.ssd_budget)?)),
    },
    Entry {
        name: "pacman-mean",
        summary: "PACMAN predicting with the mean power alone",
        make: |topology, settings| Ok(Box::new(Pacman::mean(topology, settings.ssd_budget)?)),
    },
    Entry {
        name: "pacman-ema",
        summary: "PACMAN predicting with an exponential moving average",
        make: |topology, settings| Ok(Box::new(Pacman::ema(topology, settings.ssd_budget)?)),
    },
    Entry {
        name: "pacman-plus",
        summary: "our own variant: max-min fair caps by measured power, every half second",
        make: |topology, settings| Ok(Box::new(PacmanPlus::new(topology, settings.ssd_budget)?)),
    },
];

fn pacer(
    topology: &Topology,
    settings: &Settings,
    adaptors: Adaptors,
) -> Result<Box<dyn Policy>, PolicyError> {
    let params = PacerParams { adaptors, ..PacerParams::for_plf(settings.plf) };
    Ok(Box::new(Pacer::new(topology, params)?))
}

/// Makes the policy `name`; `a+b` runs a and b together, in that order.
///
/// # Errors
/// Unknown names, impossible budgets and parameters out of range.
pub fn make(
    name: &str,
    topology: &Topology,
    settings: &Settings,
) -> Result<Box<dyn Policy>, PolicyError> {
    let one = |name: &str| {
        let entry = ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let valid = ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
            PolicyError::Unknown { name: name.to_owned(), valid }
        })?;
        (entry.make)(topology, settings)
    };
    if !name.contains('+') {
        return one(name);
    }
    let parts = name.split('+').map(|part| one(part.trim())).collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new(Together(parts)))
}

/// Several policies that own different controls.
struct Together(Vec<Box<dyn Policy>>);

impl Policy for Together {
    fn name(&self) -> &'static str {
        "together"
    }
    fn step(&mut self, signals: &Signals, controls: &mut crate::Controls) {
        for policy in &mut self.0 {
            policy.step(signals, controls);
        }
    }
}
