//! Where a value comes from: how old it is, and whether anything measured it.

use super::signal::Signal;
use super::topology::Topology;
use super::units::Nanos;

/// What a value rests on, the better first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Origin {
    /// A sensor or a counter.
    #[default]
    Measured,
    /// A model, such as a drive's power by its state, or all that the twin says.
    Modelled,
}

impl Origin {
    /// As in logs and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Modelled => "modelled",
        }
    }
}

/// Where one value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Source {
    /// Time from its reading to the end of the period.
    pub age: Nanos,
    /// What it rests on.
    pub origin: Origin,
}

/// Where every value comes from; measured at the end of the period unless a plant says otherwise.
/// What a plant says stands until it says something else.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sources(Vec<Vec<Source>>);

impl Sources {
    /// One for each part of each signal.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let parts = |signal: &Signal| vec![Source::default(); signal.domain().count(topology)];
        Self(Signal::ALL.iter().map(parts).collect())
    }

    /// Of how many parts of `signal` it says something.
    #[must_use]
    pub fn parts(&self, signal: Signal) -> usize {
        self.0.get(signal as usize).map_or(0, Vec::len)
    }

    /// Of the part `at` of `signal`.
    #[must_use]
    pub fn of(&self, signal: Signal, at: usize) -> Source {
        self.0.get(signal as usize).and_then(|parts| parts.get(at)).copied().unwrap_or_default()
    }

    /// Says it of the part `at` of `signal`; a part that there is not is left alone.
    pub fn set(&mut self, signal: Signal, at: usize, source: Source) {
        if let Some(own) = self.0.get_mut(signal as usize).and_then(|parts| parts.get_mut(at)) {
            *own = source;
        }
    }

    /// Says of everything what it rests on.
    pub fn all(&mut self, origin: Origin) {
        self.0.iter_mut().flatten().for_each(|source| source.origin = origin);
    }
}
