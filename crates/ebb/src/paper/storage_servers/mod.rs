//! "Towards Energy-Efficient Storage Servers" (Figs. 1-4 and the discussion's sizing), paper
//! against twin.
//!
//! The baseline is the PC: what the text leaves open of it is fitted to the PC's own results
//! ([`platforms`]). The treatment are the CubieTrucks: their numbers follow from published
//! measurements of such boards, so what comes out for them is predicted.

mod arithmetic;
mod benchmarks;
mod emulator;
mod hou10ni;
mod platforms;
mod sizing;
mod today;

use anyhow::Result;
use ebb_cli::progress::Progress;

use super::report::Report;
use super::study::Part;

use benchmarks::Benchmarks;

/// Of what one MB has: the paper does not say; a million, as data sheets have it.
const MB: f64 = 1e6;
/// Of a run, for people.
pub const LENGTH: &str = "128 MiB a process";
/// "All tests were repeated five times" (§3): here with as many seeds.
const REPEATS: u64 = 5;

/// The evaluation's parts, in the paper's order.
pub const PARTS: &[Part<Study>] = &[
    Part { figures: &["inputs"], run: platforms::inputs },
    Part { figures: &["1"], run: benchmarks::power },
    Part { figures: &["2"], run: benchmarks::bandwidth },
    Part { figures: &["3"], run: benchmarks::efficiency },
    Part { figures: &["sizing"], run: sizing::replacement },
    Part { figures: &["4"], run: hou10ni::minutes },
    Part { figures: &["arithmetic"], run: arithmetic::check },
    Part { figures: &["today"], run: today::candidates },
];

/// What the evaluation comes to, and where its experiments run.
pub struct Study {
    pub report: Report,
    /// First of the seeds.
    seed: u64,
    threads: Option<u16>,
    progress: Progress,
    /// What the benchmarks gave, once they ran.
    benchmarks: Option<Benchmarks>,
}

impl Study {
    /// Nothing run yet.
    pub fn new(report: Report, seed: u64, threads: Option<u16>, progress: Progress) -> Self {
        Self { report, seed, threads, progress, benchmarks: None }
    }

    /// What the benchmarks give; they run when it is first asked for.
    fn benchmarks(&mut self) -> Result<&Benchmarks> {
        let done = match self.benchmarks.take() {
            Some(done) => done,
            None => Benchmarks::run(self)?,
        };
        Ok(self.benchmarks.insert(done))
    }

    /// The seeds of the repeats.
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..REPEATS).map(move |repeat| first.wrapping_add(repeat))
    }
}
