//! Small Arm servers of today in place of the PC, from published measurements of the boards
//! (profiles). No paper states any of it.

use anyhow::Result;

use ebb_twin::Profile;

use ebb_bench::replay::Direction;

use super::super::span::Span;
use super::Study;
use super::emulator::tests;

/// Profiles, what they do, and its rows. The second's writes are not published.
const CANDIDATES: [(&str, Direction, [&str; 4]); 3] = [
    (
        "cm5-nvme",
        Direction::Read,
        ["cm5-reads/rate", "cm5-reads/watts", "cm5-reads/bytes", "cm5-reads/over"],
    ),
    (
        "cm5-nvme",
        Direction::Write,
        ["cm5-writes/rate", "cm5-writes/watts", "cm5-writes/bytes", "cm5-writes/over"],
    ),
    (
        "rock-5c-nvme",
        Direction::Read,
        ["rock-reads/rate", "rock-reads/watts", "rock-reads/bytes", "rock-reads/over"],
    ),
];

/// Each under the synthetic tests.
pub fn candidates(study: &mut Study) -> Result<()> {
    for (name, direction, rows) in CANDIDATES {
        let profile = Profile::load(name)?;
        let mut found = Vec::new();
        for seed in study.seeds() {
            for test in tests(direction) {
                found.push(test.run(&profile, seed)?);
            }
        }
        let span = |value: fn(f64, f64) -> f64| {
            Span::of(found.iter().map(|one| value(one.rate, one.watts)))
        };
        let (rate, watts) = (span(|rate, _| rate), span(|_, watts| watts));
        let efficiency = span(|rate, watts| rate / watts);
        let pc = study.benchmarks()?.span(|pair| {
            let reads = direction == Direction::Read;
            let one = if reads { pair.pc.reads } else { pair.pc.writes };
            one.rate / one.watts
        });
        for (row, found) in rows.into_iter().zip([rate, watts, efficiency, efficiency / pc]) {
            study.report.range(row, found)?;
        }
    }
    Ok(())
}
