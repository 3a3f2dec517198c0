//! The recent past of a run, for charts: a row for each cycle, as many as there is room for.

use std::collections::VecDeque;

use ebb_policy::table::SIGNALS;
use ebb_policy::{Origin, Signal};
use serde::Serialize;

use super::events::Tick;

/// What charts show.
const SHOWN: [Signal; 6] = [
    Signal::Power,
    Signal::CpuPower,
    Signal::SsdPower,
    Signal::FanPower,
    Signal::LatencyMean,
    Signal::LatencyP99,
];

/// So many cycles are kept: ten minutes at the usual period.
const CYCLES: usize = 1200;

struct Row {
    at_s: f64,
    values: [Option<(f32, Origin)>; SHOWN.len()],
    saving: Option<[f32; 2]>,
}

/// The last cycles.
#[derive(Default)]
pub struct History(VecDeque<Row>);

impl History {
    /// Adds one.
    pub fn add(&mut self, tick: &Tick) {
        let value = |signal: Signal| {
            let value = (SIGNALS[signal as usize].read)(&tick.signals, 0)?;
            Some((value as f32, tick.signals.sources.of(signal, 0).origin))
        };
        if self.0.len() >= CYCLES {
            self.0.pop_front();
        }
        self.0.push_back(Row {
            at_s: tick.at.seconds(),
            values: SHOWN.map(value),
            saving: tick.saving.map(|range| range.map(|watts| watts.0 as f32)),
        });
    }

    /// All of it.
    pub fn past(&self) -> Past {
        let mut series = Vec::new();
        for (at, signal) in SHOWN.iter().enumerate() {
            for origin in [Origin::Measured, Origin::Modelled] {
                let value = |row: &Row| row.values[at].filter(|is| is.1 == origin).map(|is| is.0);
                let values: Vec<_> = self.0.iter().map(value).collect();
                if values.iter().any(Option::is_some) {
                    let signal = SIGNALS[*signal as usize].name;
                    series.push(Series { signal, source: origin.name(), values });
                }
            }
        }
        let bound =
            |at: usize| self.0.iter().map(|row| row.saving.map(|range| range[at])).collect();
        Past {
            schema: 1,
            at_s: self.0.iter().map(|row| row.at_s).collect(),
            series,
            saving: Savings { least_w: bound(0), most_w: bound(1) },
        }
    }
}

/// The recent past as JSON (docs/json-schema/run-history-1.json): a value for each cycle, null
/// where nothing is known.
#[derive(Debug, Serialize)]
pub struct Past {
    schema: u32,
    /// From the start of the run.
    at_s: Vec<f64>,
    series: Vec<Series>,
    saving: Savings,
}

/// A signal of the server as it was measured, or as it was modelled.
#[derive(Debug, Serialize)]
struct Series {
    signal: &'static str,
    source: &'static str,
    values: Vec<Option<f32>>,
}

/// The mean saving, at least and at most.
#[derive(Debug, Serialize)]
struct Savings {
    least_w: Vec<Option<f32>>,
    most_w: Vec<Option<f32>>,
}
