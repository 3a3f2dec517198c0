//! The recent past of a run, for charts: a row for each cycle, as many as there is room for.

use std::collections::VecDeque;

use ebb_policy::table::SIGNALS;
use ebb_policy::{Origin, Signal};
use schemars::JsonSchema;
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

/// The recent past: a value for each of the last 1200 cycles, null where nothing is known. The
/// events that follow it are run-status-1.json.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "the first event of GET /events of ebb run")]
pub struct Past {
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// From the start of the run.
    #[schemars(length(max = 1200), inner(range(min = 0)))]
    at_s: Vec<f64>,
    /// Signals of the server; one that was now measured and now modelled has two.
    series: Vec<Series>,
    /// The mean saving since the parts were found, modelled.
    saving: Savings,
}

/// A signal of the server as it was measured, or as it was modelled.
#[derive(Debug, Serialize, JsonSchema)]
struct Series {
    signal: &'static str,
    #[schemars(extend("enum" = ["measured", "modelled"]))]
    source: &'static str,
    #[schemars(length(max = 1200))]
    values: Vec<Option<f32>>,
}

/// The mean saving, at least and at most.
#[derive(Debug, Serialize, JsonSchema)]
struct Savings {
    #[schemars(length(max = 1200))]
    least_w: Vec<Option<f32>>,
    #[schemars(length(max = 1200))]
    most_w: Vec<Option<f32>>,
}

#[cfg(test)]
crate::schema::written!("run-history-1", Past);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ebb_policy::units::{Nanos, Watts};
    use ebb_policy::{Applied, InForce, Signals, Source, Topology};

    use super::super::events::{Settings, State};
    use super::*;

    fn tick(at: u64, origin: Origin) -> Tick {
        let topology = Topology::default();
        let mut signals = Signals::new(&topology);
        signals.power.cpu = Some(Watts(at as f64));
        signals.sources.set(Signal::CpuPower, 0, Source { origin, ..Source::default() });
        Tick {
            begun: Arc::default(),
            number: at,
            made: Arc::default(),
            found: None,
            at: Nanos::from_secs(at),
            unix_s: 0.0,
            settings: Arc::new(Settings::default()),
            signals,
            in_force: InForce::new(&topology),
            applied: Applied::new(&topology),
            state: State::Observing,
            notices: Vec::new(),
            late: Nanos::ZERO,
            saving: Some([Watts(1.0), Watts(2.0)]),
            saved: None,
            loss: None,
        }
    }

    #[test]
    fn the_oldest_give_way_and_measured_and_modelled_stay_apart() {
        let mut history = History::default();
        for at in 0..CYCLES as u64 + 100 {
            let origin = if at.is_multiple_of(2) { Origin::Measured } else { Origin::Modelled };
            history.add(&tick(at, origin));
        }
        let past = history.past();
        assert_eq!((past.at_s.len(), past.at_s[0]), (CYCLES, 100.0));
        let [measured, modelled] = &past.series[..] else { panic!("{:?}", past.series.len()) };
        assert_eq!(
            (measured.source, &measured.values[..2]),
            ("measured", &[Some(100.0), None][..])
        );
        assert_eq!(
            (modelled.source, &modelled.values[..2]),
            ("modelled", &[None, Some(101.0)][..])
        );
        assert_eq!((past.saving.least_w[0], past.saving.most_w[0]), (Some(1.0), Some(2.0)));
    }
}
