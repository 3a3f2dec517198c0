//! Sandman's evaluation, slides against twin. The slides number no figures; parts are named.

mod bursts;
mod cloud;
pub mod here;
mod lab;
mod stable;

use anyhow::Result;

use super::fits;
use super::report::Report;
use super::study::Part;
use crate::progress::Progress;

use lab::Lab;

/// What the evaluation comes to, and where its experiments run.
pub struct Study {
    lab: Lab,
    /// What came out so far.
    pub report: Report,
}

impl Study {
    /// Nothing run yet.
    pub fn new(seed: u64, threads: Option<u16>, progress: Progress) -> Result<Self> {
        Ok(Self { lab: Lab::new(seed, threads, progress)?, report: Report::default() })
    }
}

/// Figures whose runs take minutes.
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

/// "Within 5 % in corner cases".
const NEAR: f64 = 5.0;

/// How much more in percent.
fn percent(of: f64, over: f64) -> f64 {
    100.0 * (of / over - 1.0)
}
