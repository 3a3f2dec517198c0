//! Takes each cycle of a run, and keeps of it what is asked for.

use std::io;

use hdrhistogram::Histogram;

use ebb_policy::{Cycled, Topology};

use crate::column::{Column, Columns};
use crate::log::{Line, Log};
use crate::spool::Spool;
use crate::totals::Totals;

/// What to keep of a run beside its totals.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keep {
    /// A row per control period.
    pub rows: bool,
    /// Every decision; without it only the first and the last, for the report.
    pub decisions: bool,
}

/// What was kept of one run.
#[derive(Debug)]
pub struct Recorded {
    /// The policy.
    pub policy: String,
    /// A row per control period, if asked for.
    pub rows: Option<Spool>,
    /// The decisions.
    pub log: Log,
    /// What the cycles add up to.
    pub totals: Totals,
    /// Latency of every request in nanoseconds, where the plant tells it.
    pub latency: Option<Histogram<u64>>,
}

/// Watches one run of any plant.
#[derive(Debug)]
pub struct Recorder {
    columns: Columns,
    row: Vec<f64>,
    kept: Recorded,
}

impl Recorder {
    /// A recorder of `policy` on a plant with `topology` that adds the columns `added`.
    ///
    /// # Errors
    /// When there is no room for temporary files.
    pub fn new(
        policy: &str,
        topology: &Topology,
        added: Vec<Column>,
        keep: Keep,
    ) -> io::Result<Self> {
        let columns = Columns::new(topology, added);
        let width = columns.all.len();
        let kept = Recorded {
            policy: policy.to_owned(),
            rows: if keep.rows { Some(Spool::new(width)?) } else { None },
            log: Log::new(topology, keep.decisions)?,
            totals: Totals::default(),
            latency: None,
        };
        Ok(Self { columns, row: Vec::with_capacity(width), kept })
    }

    /// Takes a cycle with the values of the columns that the plant has added, NaN where one is
    /// absent. A cycle that comes before any time has passed makes no row.
    pub fn cycle(&mut self, cycled: &Cycled<'_>, added: &[f64]) {
        let Recorded { policy, rows, log, totals, .. } = &mut self.kept;
        log.cycle(policy, &self.columns.names, cycled);
        if cycled.signals.period.0 == 0 {
            return;
        }
        totals.add(cycled);
        if let Some(rows) = rows {
            self.columns.fill(&mut self.row, cycled, added);
            rows.push(&self.row);
        }
    }

    /// Takes what is no decision into the log: an injected fault, say.
    pub fn event(&mut self, line: &Line<'_>) {
        self.kept.log.write(line);
    }

    /// What was kept.
    #[must_use]
    pub fn finish(self) -> Recorded {
        self.kept
    }
}
