//! Sandman's evaluation, slides against twin. The slides number no figures; parts are named.

mod bursts;
mod cloud;
pub mod here;
mod lab;
mod stable;

use anyhow::Result;
use ebb_cli::progress::Progress;

use super::fits;
use super::report::Report;
use super::span::Span;
use super::study::Part;

use ebb_twin::reactor::Shown;
use lab::{Lab, PLUS, SANDMAN, SPDK, Trial};

/// What the evaluation comes to, and where its experiments run.
pub struct Study {
    lab: Lab,
    /// What came out so far.
    pub report: Report,
}

impl Study {
    /// Nothing run yet.
    pub fn new(
        report: Report,
        seed: u64,
        threads: Option<u16>,
        progress: Progress,
    ) -> Result<Self> {
        Ok(Self { lab: Lab::new(seed, threads, progress)?, report })
    }
}

/// Figures whose runs take longest.
pub const LONG: &[&str] = &["cloud"];

/// The evaluation's parts, in the slides' order.
pub const PARTS: &[Part<Study>] = &[
    Part { figures: &["power"], run: stable::table },
    Part { figures: &["stable"], run: stable::loads },
    Part { figures: &["bursts"], run: bursts::configurations },
    Part { figures: &["ablation"], run: bursts::ablation },
    Part { figures: &["raid-5"], run: stable::raid },
    Part { figures: &["cloud"], run: cloud::replay },
    Part { figures: &["fit"], run: |study| fits::add(&mut study.report, "sandman") },
];

impl Study {
    /// Adds what is possible under `trial`, and how much of it Sandman and our variant save.
    fn shares(&mut self, rows: [&str; 3], trial: &Trial<'_>, runs: &[Shown]) -> Result<()> {
        let polled = runs[SPDK].power().0;
        let known = self.lab.clairvoyant(trial)?;
        let Some(known) = known else { return Ok(()) };
        let most = polled - known.power().0;
        let [possible, sandman, plus] = rows;
        self.report.range(possible, Span::exact(100.0 * most / polled))?;
        for (index, row) in [(SANDMAN, sandman), (PLUS, plus)] {
            let share = 100.0 * (polled - runs[index].power().0) / most;
            self.report.range(row, Span::exact(share))?;
        }
        Ok(())
    }
}

/// How much more in percent.
fn percent(of: f64, over: f64) -> f64 {
    100.0 * (of / over - 1.0)
}
