//! How well each signal is known, over the parts that it is of.

use ebb_policy::table::{SIGNALS, SignalRow};
use ebb_policy::units::Nanos;
use ebb_policy::{Domain, Origin, Signal, Signals};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::board::View;
use super::events::Tick;

/// One signal.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sensor {
    pub signal: String,
    /// Parts that it is of.
    #[schemars(range(min = 1))]
    pub parts: usize,
    /// Parts of which it is known.
    pub known: usize,
    /// How many of them nothing measured.
    pub modelled: usize,
    /// Of all parts.
    pub least: Option<f64>,
    pub most: Option<f64>,
    /// Age of the oldest reading.
    #[schemars(range(min = 0))]
    pub oldest_s: f64,
    /// Parts of which it is not known, where it is of others.
    pub without: Vec<String>,
    /// Why it is not known of all parts, as found at the start, and what to do.
    #[schemars(length(max = 4))]
    pub reasons: Vec<String>,
}

/// So many reasons are told of a signal at most.
const REASONS: usize = 3;

/// Those of parts that are there.
pub fn all(view: &View, tick: &Tick) -> Vec<Sensor> {
    let rows = SIGNALS.iter().filter(|row| row.domain.count(&view.topology) > 0);
    rows.map(|row| sensor(view, &tick.signals, row)).collect()
}

fn sensor(view: &View, signals: &Signals, row: &SignalRow) -> Sensor {
    let parts = row.domain.count(&view.topology);
    let known: Vec<_> = (0..parts).filter_map(|at| Some((at, (row.read)(signals, at)?))).collect();
    let is_modelled = |at: usize| signals.sources.of(row.signal, at).origin == Origin::Modelled;
    let oldest = known.iter().map(|(at, _)| age(signals, row.signal, *at)).max();
    // A slot without a job lacks nothing.
    let has_lost = !known.is_empty() && row.domain != Domain::Job;
    let without = (0..parts).filter(|at| has_lost && !known.iter().any(|(one, _)| one == at));
    Sensor {
        signal: row.name.to_owned(),
        parts,
        known: known.len(),
        modelled: known.iter().filter(|(at, _)| is_modelled(*at)).count(),
        least: known.iter().map(|(_, value)| *value).reduce(f64::min),
        most: known.iter().map(|(_, value)| *value).reduce(f64::max),
        oldest_s: oldest.unwrap_or_default().seconds(),
        reasons: if known.len() < parts { reasons(view, row.name) } else { Vec::new() },
        without: without.filter_map(|at| view.names.of(row.domain, at as u16)).collect(),
    }
}

fn reasons(view: &View, signal: &str) -> Vec<String> {
    let its = view.lacks.iter().filter(|(of, _)| *of == signal).map(|(_, why)| why);
    let more = its.clone().count().saturating_sub(REASONS);
    let more = (more > 0).then(|| format!("and {more} more; ebb probe lists them"));
    its.take(REASONS).cloned().chain(more).collect()
}

/// Time from its reading to the end of the period.
fn age(signals: &Signals, signal: Signal, at: usize) -> Nanos {
    let reading = match signal {
        Signal::InletTemperature => signals.cooling.inlet,
        Signal::SocketTemperature => signals.cooling.sockets.get(at).copied().flatten(),
        _ => None,
    };
    match reading {
        Some(reading) => signals.now.saturating_sub(reading.at),
        None => signals.sources.of(signal, at).age,
    }
}
