//! The text against itself: what its numbers imply of one another, within their rounding.

use anyhow::Result;

use super::super::span::Span;
use super::super::stated::Stated;
use super::Study;

/// Percent as a factor: of "lower" or "higher" than one.
fn lower(percent: Span) -> Span {
    percent.map(|percent| 1.0 - percent / 100.0)
}
fn higher(percent: Span) -> Span {
    percent.map(|percent| 1.0 + percent / 100.0)
}
/// Back to percent more, or less.
fn more(factor: Span) -> Span {
    factor.map(|factor| 100.0 * (factor - 1.0))
}
fn less(factor: Span) -> Span {
    factor.map(|factor| 100.0 * (1.0 - factor))
}

/// All rows.
pub fn check(study: &mut Study) -> Result<()> {
    for (row, found) in implied(&study.report.stated)? {
        study.report.range(row, found)?;
    }
    Ok(())
}

/// What follows from other rows.
fn implied(stated: &Stated) -> Result<Vec<(&'static str, Span)>> {
    let lower = |row| anyhow::Ok(lower(stated.span(row)?));
    let higher = |row| anyhow::Ok(higher(stated.span(row)?));
    let half = |count: f64| Span::exact(count / 2.0);
    // Of two CubieTrucks over the PC: power of reads, of writes; bandwidth of writes.
    let (reading, writing) = (lower("fig-1/reads")?, lower("fig-1/writes")?);
    let slower = lower("fig-2/writes")?;
    // "Read bandwidth is 240 % higher than write bandwidth in the CubieTrucks"; similar in the PC.
    let faster = higher("fig-2/trucks")? * slower;
    let (pc, trucks) = (stated.span("fig-1/pc")?, stated.span("fig-1/trucks")?);
    let from_reads = reading * higher("fig-1/trucks-percent")? / higher("fig-1/pc-percent")?;
    let (read, write) = (faster / reading, slower / writing);
    let light = lower("fig-4a/trucks")? / lower("fig-4a/pc")?;
    let both = (reading + writing) / Span::exact(2.0) * light;
    let below = lower("fig-4a/below")?;
    // The text calls savings of power savings of energy. For the same bytes, of any number:
    let energy = less(Span::exact(1.0) / write);
    Ok(vec![
        ("check-power/pc", pc),
        ("check-power/trucks", trucks),
        ("check-power/reads", less(trucks / pc)),
        ("check-power/writes", less(from_reads)),
        ("check-rate/reads", faster),
        ("check-efficiency/reads", more(read)),
        ("check-efficiency/reads-twice", more(Span::exact(2.0) / reading)),
        ("check-efficiency/writes", more(write)),
        ("check-sizing/three-power", less(half(3.0) * writing)),
        ("check-sizing/three-rate", more(half(3.0) * slower)),
        ("check-sizing/four-power", less(half(4.0) * writing)),
        ("check-sizing/four-rate", more(half(4.0) * slower)),
        ("check-sizing/two-energy", less(Span::exact(1.0) / read)),
        ("check-sizing/three-energy", energy),
        ("check-sizing/four-energy", energy),
        ("check-hou10ni/power", less(both)),
        ("check-hou10ni/once", Span::exact(1.0) / below),
        ("check-hou10ni/twice", Span::exact(2.0) / below),
    ])
}
