//! The text against itself: what its numbers imply of one another, within their rounding.

use anyhow::Result;

use super::super::span::Span;
use super::{Study, whole};

/// A stated percentage as a factor: of "lower" or "higher" than one.
fn lower(percent: f64) -> Span {
    whole(percent).map(|percent| 1.0 - percent / 100.0)
}
fn higher(percent: f64) -> Span {
    whole(percent).map(|percent| 1.0 + percent / 100.0)
}
/// Back to percent more, or less.
fn more(factor: Span) -> Span {
    factor.map(|factor| 100.0 * (factor - 1.0))
}
fn less(factor: Span) -> Span {
    factor.map(|factor| 100.0 * (1.0 - factor))
}
/// "23 % (approximately 2W)": watts of which these are the share.
pub fn share(watts: f64, percent: f64) -> Span {
    whole(watts) / whole(percent).map(|percent| percent / 100.0)
}

/// All rows.
pub fn check(study: &mut Study) -> Result<()> {
    // Of two CubieTrucks over the PC: power of reads, of writes; bandwidth of writes.
    let (reading, writing, slower) = (lower(85.0), lower(82.0), lower(37.0));
    // "Read bandwidth is 240 % higher than write bandwidth in the CubieTrucks"; similar in the PC.
    let faster = higher(240.0) * slower;
    let half = |count: f64| Span::exact(count / 2.0);
    let mut row = |figure, quantity: &str, paper: Option<f64>, found| {
        let paper = paper.map(whole);
        study.report.arithmetic(figure, quantity, paper, found);
    };
    let (pc, trucks) = (share(4.0, 7.0), share(2.0, 23.0));
    row("§4.1", "PC while it reads, W, if 4 W are 7 %", None, pc);
    row("§4.1", "two CubieTrucks while they read, W, if 2 W are 23 %", None, trucks);
    row("§4.1", "power below the PC's, reads, %, from these watts", Some(85.0), less(trucks / pc));
    let from_reads = reading * higher(23.0) / higher(7.0);
    row("§4.1", "power below the PC's, writes, %, from reads", Some(82.0), less(from_reads));
    row("§4.1.1", "read bandwidth over the PC's, x (the text: roughly twice)", None, faster);
    let (read, write) = (faster / reading, slower / writing);
    row(
        "§4.1.2",
        "efficiency over the PC's, reads, %, PC's reads as its writes",
        Some(1437.0),
        more(read),
    );
    let twice = Span::exact(2.0) / reading;
    row(
        "§4.1.2",
        "efficiency over the PC's, reads, %, twice the bandwidth",
        Some(1437.0),
        more(twice),
    );
    row("§4.1.2", "efficiency over the PC's, writes, %", Some(287.0), more(write));
    let three = (less(half(3.0) * writing), more(half(3.0) * slower));
    let four = (less(half(4.0) * writing), more(half(4.0) * slower));
    row("§4.1.3", "three: power below the PC's, writes, %", Some(73.0), three.0);
    row("§4.1.3", "three: write bandwidth over the PC's, %", Some(-6.0), three.1);
    row("§4.1.3", "four: power below the PC's, writes, %", Some(64.0), four.0);
    row("§4.1.3", "four: write bandwidth over the PC's, %", Some(25.0), four.1);
    // The text calls these savings of power savings of energy. For the same bytes, of any number:
    let energy = less(Span::exact(1.0) / write);
    row(
        "§4.1.3",
        "two: energy (not power) of the same reads saved, %",
        Some(85.0),
        less(Span::exact(1.0) / read),
    );
    row("§4.1.3", "three: energy (not power) of the same writes saved, %", Some(73.0), energy);
    row("§4.1.3", "four: energy (not power) of the same writes saved, %", Some(64.0), energy);
    let light = lower(30.0) / lower(17.0);
    let both = (reading + writing) / Span::exact(2.0) * light;
    row("§4.2", "power below the PC's, Hou10ni, %", Some(86.0), less(both));
    let same = Span::exact(1.0) / lower(86.0);
    row("§4.2", "efficiency over the PC's, same bandwidth, x", Some(7.0), same);
    let both = Span::exact(2.0) / lower(86.0);
    row("§4.2", "the same, the bytes of both servers (the PC serves one), x", Some(7.0), both);
    Ok(())
}
