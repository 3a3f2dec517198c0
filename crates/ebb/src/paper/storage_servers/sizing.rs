//! The discussion (§4.1.3): how many small servers replace one, at what power, energy and price.

use anyhow::Result;

use super::super::span::Span;
use super::super::verdict::Form::{Less, More, Plain};
use super::benchmarks::{Pair, reads, writes};
use super::{Study, whole};

/// "Each SSD", "each CubieTruck", "a similar PC": dollars of September 2016.
const SSD: f64 = 330.0;
const BOARD: f64 = 100.0;
const COMPUTER: f64 = 500.0;

/// Two, three and four CubieTrucks in place of the PC.
pub fn replacement(study: &mut Study) -> Result<()> {
    let found = study.benchmarks()?;
    let span = |value: &dyn Fn(&Pair) -> f64| found.span(value);
    let less = |count: f64| span(&|p| 100.0 * p.saved(count, writes));
    let faster = |count: f64| span(&|p| 100.0 * (p.faster(count, writes) - 1.0));
    let (three, four) = ((less(3.0), faster(3.0)), (less(4.0), faster(4.0)));
    // So many that they are at least as fast.
    let needed = |p: &Pair| (1.0 / p.faster(1.0, writes)).ceil();
    let count = span(&needed);
    let at_count = span(&|p| 100.0 * p.saved(needed(p), writes));
    let price = span(&|p| needed(p) * (BOARD + SSD));
    let to_read = span(&|p| (1.0 / p.faster(1.0, reads)).ceil());
    let energy = |of| span(&|p: &Pair| 100.0 * (1.0 - 1.0 / p.efficiency(of)));
    let (reading, writing) = (energy(reads), energy(writes));
    let report = &mut study.report;
    for (count, (less, faster), stated) in [("3", three, (73.0, -6.0)), ("4", four, (64.0, 25.0))] {
        let quantity = format!("{count} CubieTrucks' power below the PC's, writes, %");
        report.predicted("§4.1.3", &quantity, Less, whole(stated.0), less);
        let quantity = format!("{count} CubieTrucks' bandwidth over the PC's, writes, %");
        report.predicted("§4.1.3", &quantity, More, whole(stated.1), faster);
    }
    let quantity = "CubieTrucks that write as fast as the PC (four, or nearly three)";
    report.predicted("§4.1.3", quantity, Plain, Span::exact(4.0), count);
    report.modelled("§4.1.3", "so many: power below the PC's, %", at_count);
    report.modelled("§4.1.3", "so many with SSDs (PC 830), $", price);
    report.modelled("§4.1.3", "CubieTrucks that read as fast as the PC", to_read);
    report.modelled("§4.1.3", "energy of the same reads below the PC's, %", reading);
    report.modelled("§4.1.3", "energy of the same writes below the PC's, %", writing);
    let exact = |report: &mut super::Report, quantity, stated, value| {
        report.arithmetic("§4.1.3", quantity, Some(Span::exact(stated)), Span::exact(value));
    };
    exact(report, "PC and SSD, $", 830.0, COMPUTER + SSD);
    exact(report, "two CubieTrucks with SSDs, $", 860.0, 2.0 * (BOARD + SSD));
    let with_ssds = (COMPUTER + SSD) / (BOARD + SSD);
    exact(report, "CubieTrucks for the price of a PC (§5), without SSDs", 5.0, COMPUTER / BOARD);
    exact(report, "CubieTrucks for the price of a PC (§5), each with its SSD", 5.0, with_ssds);
    Ok(())
}
