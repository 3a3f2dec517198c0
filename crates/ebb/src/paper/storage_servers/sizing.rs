//! The discussion (§4.1.3): how many small servers replace one, at what power, energy and price.

use anyhow::Result;

use super::super::span::Span;
use super::Study;
use super::benchmarks::{Pair, reads, writes};

/// Two, three and four CubieTrucks in place of the PC.
pub fn replacement(study: &mut Study) -> Result<()> {
    let price = |row| anyhow::Ok(study.report.stated.span(row)?.middle);
    let (ssd, board) = (price("given/ssd")?, price("given/board")?);
    let computer = price("given/computer")?;
    let found = study.benchmarks()?;
    let span = |value: &dyn Fn(&Pair) -> f64| found.span(value);
    let less = |count: f64| span(&|p| 100.0 * p.saved(count, writes));
    let faster = |count: f64| span(&|p| 100.0 * (p.faster(count, writes) - 1.0));
    let (three, four) = ((less(3.0), faster(3.0)), (less(4.0), faster(4.0)));
    // So many that they are at least as fast.
    let needed = |p: &Pair| (1.0 / p.faster(1.0, writes)).ceil();
    let count = span(&needed);
    let at_count = span(&|p| 100.0 * p.saved(needed(p), writes));
    let price = span(&|p| needed(p) * (board + ssd));
    let to_read = span(&|p| (1.0 / p.faster(1.0, reads)).ceil());
    let energy = |of| span(&|p: &Pair| 100.0 * (1.0 - 1.0 / p.efficiency(of)));
    let (reading, writing) = (energy(reads), energy(writes));
    let report = &mut study.report;
    for (row, found) in [
        ("sizing/three-power", three.0),
        ("sizing/three-rate", three.1),
        ("sizing/four-power", four.0),
        ("sizing/four-rate", four.1),
        ("sizing/needed", count),
        ("sizing/needed-power", at_count),
        ("sizing/needed-price", price),
        ("sizing/needed-reads", to_read),
        ("sizing/energy-reads", reading),
        ("sizing/energy-writes", writing),
        ("prices/pc", Span::exact(computer + ssd)),
        ("prices/trucks", Span::exact(2.0 * (board + ssd))),
        ("prices/alone", Span::exact(computer / board)),
        ("prices/with-ssds", Span::exact((computer + ssd) / (board + ssd))),
    ] {
        report.range(row, found)?;
    }
    Ok(())
}
