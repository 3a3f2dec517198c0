//! The loads, in the slides' order. Their rates are shares of what busy polling does at most here.

use std::path::PathBuf;

use anyhow::Result;

use super::super::super::study::Part;

/// When requests come.
pub enum Pace {
    /// Never: connections are open and nothing happens.
    Idle,
    /// At this share of the maximum, as a Poisson process.
    Share(f64),
    /// A burst at the end.
    Bursts,
    /// As in a trace.
    Trace(PathBuf),
}

/// One load.
pub struct Case {
    /// Part of the evaluation.
    pub figure: &'static str,
    /// What is special about it.
    pub label: String,
    /// From RAID-5 over memory, with writes, in place of memory.
    pub raid: bool,
    /// When requests come.
    pub pace: Pace,
}

/// Shares of the maximum of the stable loads, and of those on RAID-5.
const SHARES: [f64; 4] = [0.02, 0.1, 0.3, 0.6];
const RAID_SHARES: [f64; 2] = [0.1, 0.5];

/// What is to be measured.
#[derive(Default)]
pub struct Plan {
    /// The trace to replay, if there is one.
    pub trace: Option<PathBuf>,
    /// In this order.
    pub cases: Vec<Case>,
    /// What cannot be measured, and why.
    pub left_out: Vec<String>,
}

impl Plan {
    fn add(&mut self, figure: &'static str, label: String, raid: bool, pace: Pace) -> Result<()> {
        self.cases.push(Case { figure, label, raid, pace });
        Ok(())
    }

    fn shares(&mut self, figure: &'static str, raid: bool, shares: &[f64]) -> Result<()> {
        shares.iter().try_for_each(|share| {
            let label = format!("{:.0} % of the maximum", 100.0 * share);
            self.add(figure, label, raid, Pace::Share(*share))
        })
    }

    fn cloud(&mut self) -> Result<()> {
        let Some(trace) = self.trace.clone() else {
            let why = "cloud: no trace at hand; name one with --trace, or set EBB_DATA";
            self.left_out.push(why.to_owned());
            return Ok(());
        };
        // Told of now, not after minutes.
        ebb_trace::open(&trace, &ebb_trace::OpenOptions::default())?;
        let name = trace.file_name().unwrap_or(trace.as_os_str()).to_string_lossy().into_owned();
        self.add("cloud", name, false, Pace::Trace(trace))
    }
}

/// The parts of the evaluation, for `--figure`.
pub const PARTS: &[Part<Plan>] = &[
    Part {
        figures: &["idle"],
        run: |plan| plan.add("idle", "connected".into(), false, Pace::Idle),
    },
    Part { figures: &["stable"], run: |plan| plan.shares("stable", false, &SHARES) },
    Part {
        figures: &["bursts"],
        run: |plan| plan.add("bursts", "all requests".into(), false, Pace::Bursts),
    },
    Part { figures: &["raid-5"], run: |plan| plan.shares("raid-5", true, &RAID_SHARES) },
    Part { figures: &["cloud"], run: Plan::cloud },
];
