//! Small Arm servers of today in place of the PC, from published measurements of the boards
//! (profiles). No paper states any of it.

use anyhow::Result;

use ebb_twin::Profile;

use crate::replay::Direction;

use super::super::span::Span;
use super::Study;
use super::emulator::tests;

/// Profiles, and whether their writes are published, too.
const CANDIDATES: [(&str, bool); 2] = [("cm5-nvme", true), ("rock-5c-nvme", false)];

/// Each under the synthetic tests.
pub fn candidates(study: &mut Study) -> Result<()> {
    for (name, writes) in CANDIDATES {
        let profile = Profile::load(name)?;
        let mut directions = vec![("reads", Direction::Read)];
        if writes {
            directions.push(("writes", Direction::Write));
        }
        for (does, direction) in directions {
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
            let benchmarks = study.benchmarks()?;
            let pc = |value: fn(f64, f64) -> f64| {
                benchmarks.span(|pair| {
                    let one = if does == "reads" { pair.pc.reads } else { pair.pc.writes };
                    value(one.rate, one.watts)
                })
            };
            let times = efficiency / pc(|rate, watts| rate / watts);
            let report = &mut study.report;
            report.modelled("today", &format!("{name}: {does}, MB/s"), rate);
            report.modelled("today", &format!("{name}: {does}, W"), watts);
            report.modelled("today", &format!("{name}: {does}, MB/J"), efficiency);
            let quantity = format!("{name}: {does}, bytes of a joule over the PC's, x");
            report.modelled("today", &quantity, times);
        }
    }
    Ok(())
}
