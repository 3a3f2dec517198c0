//! The platforms: what of them is input, and what is fitted to the PC's own results.

use anyhow::{Result, anyhow};

use ebb_policy::units::{Bytes, Joules, Watts};
use ebb_trace::Op;
use ebb_twin::Profile;
use ebb_twin::drive::DriveProfile;

use ebb_bench::replay::{Direction, Pattern};
use ebb_cli::parallel::in_parallel;

use super::super::span::Span;
use super::emulator::{Measured, Test, application};
use super::{MB, Study};

/// The baseline.
pub const PC: &str = "pc-i5-4460";
/// The treatment; there are two of it.
pub const CUBIETRUCK: &str = "cubietruck-a20";

/// PC: MB/s that its path carries. The text states none. At most the SSD's sequential writes, for
/// reads are "similar" (§4.1.1); at least what SATA I carries, by declaration.
const RATES: [f64; 3] = [150.0, 240.0, 330.0];
/// PC: watts while it reads. "7 % (approximately 4W)" (§4.1): 3.5 of 7.5 % to 4.5 of 6.5 %.
const READING: [f64; 3] = [46.7, 57.1, 69.2];
/// MB/s of a data server under Hou10ni: "less intensive" (§4.2), without a number.
const LIGHT: [f64; 2] = [5.0, 30.0];
/// Power of the PC over that of its reads.
#[derive(Clone, Copy)]
struct Drawn {
    /// While it writes (§4.1).
    writing: f64,
    /// Under Hou10ni over the benchmarks (§4.2); the text does not tell reads from writes: both on
    /// average.
    application: f64,
}

/// CubieTruck: MB/s of reads and writes through the A20's SATA (profile, published).
const PORTS: [(f64, f64); 3] = [(157.0, 44.0), (200.0, 45.0), (212.0, 46.0)];
/// CubieTruck: watts at the wall by which its profile's 2 W can be wrong, "+/-1 W" (published).
pub const DOUBT: [f64; 3] = [-1.0, 0.0, 1.0];

/// One way in which the open values of a platform can be.
#[derive(Debug, Clone)]
pub struct Member {
    pub profile: Profile,
    /// MB/s of a data server under Hou10ni, which the PC's fit depends on.
    pub light: f64,
}

/// Every PC whose own results are those of the text.
pub fn pcs(study: &Study) -> Result<Vec<Member>> {
    let shipped = Profile::load(PC)?;
    let wanted: Vec<_> = RATES
        .iter()
        .flat_map(|rate| READING.map(|watts| LIGHT.map(|light| (*rate, watts, light))))
        .flatten()
        .collect();
    let percent = |row| anyhow::Ok(study.report.stated.span(row)?.middle / 100.0);
    let drawn = Drawn {
        writing: 1.0 + percent("fig-1/pc-percent")?,
        application: 1.0 - percent("fig-4a/pc")?,
    };
    let found = in_parallel(wanted.len(), study.threads, |index| {
        fit(&shipped, wanted[index], drawn, study.seed)
    })?;
    let found: Vec<_> = found.into_iter().flatten().collect();
    if found.is_empty() {
        return Err(anyhow!("no PC gives the baseline that the text states"));
    }
    Ok(found)
}

/// The PC with these three given; `None` if no board, processor and SSD give them.
///
/// Three values are open: the rest of the board, the cycles of a KiB and the energy of a write.
/// Each decides one of three powers: under Hou10ni, while reading, while writing.
fn fit(
    shipped: &Profile,
    (rate, watts, light): (f64, f64, f64),
    Drawn { writing, application: under }: Drawn,
    seed: u64,
) -> Result<Option<Member>> {
    let limit = Bytes((rate * MB) as u64);
    let with = |board: f64, cycles: f64, energy: f64| {
        let mut drive = ssd(shipped)?;
        (drive.read.per_second, drive.write.per_second) = (limit, limit);
        drive.write.energy_per_gb = Joules(energy);
        let mut profile = shipped.clone().with_drive(drive);
        profile.board.other = Watts(board);
        profile.stage[0].cycles_per_kib = cycles;
        anyhow::Ok(profile)
    };
    let test = |direction| Test { direction, pattern: Pattern::Contiguous, request: 4 << 20 };
    let delivered = shipped.psu.efficiency(Watts(watts));
    // Hou10ni's reads; its writes draw more in proportion to their rate.
    let more = (writing - 1.0) / 2.0;
    let wanted = watts * (under * (1.0 + more) - more * light / rate);
    // What is between reading and Hou10ni grows with the cycles: secants.
    let excess = |cycles: f64| {
        let profile = with(0.0, cycles, 0.0)?;
        let reading = test(Direction::Read).run(&profile, seed)?.watts;
        let application = application(&profile, Op::Read, light, seed)?.watts;
        anyhow::Ok(reading - application - (watts - wanted))
    };
    let (mut low, mut high) = ((0.0, excess(0.0)?), (1e4, excess(1e4)?));
    for _ in 0..4 {
        let next = low.0 - low.1 * (high.0 - low.0) / (high.1 - low.1);
        if !(0.0..5e4).contains(&next) {
            return Ok(None);
        }
        (low, high) = (high, (next, excess(next)?));
        if high.1.abs() < 1e-3 {
            break;
        }
    }
    let cycles = high.0;
    // The other two are linear, in writes from what keeps the SSD's controller awake as reads do.
    let run = |direction, profile: &Profile| test(direction).run(profile, seed);
    let board = (watts - run(Direction::Read, &with(0.0, cycles, 0.0)?)?.watts) * delivered;
    if board < 0.0 {
        return Ok(None);
    }
    let least = ssd(shipped)?.read.energy_per_gb.0;
    let Measured { watts: without, rate } = run(Direction::Write, &with(board, cycles, least)?)?;
    let more = (writing * watts - without) * delivered / rate * 1e3;
    if more < 0.0 {
        return Ok(None);
    }
    Ok(Some(Member { profile: with(board, cycles, least + more)?, light }))
}

/// A CubieTruck with each port that measurements allow, and the PC's SSD.
pub fn cubietrucks(pc: &Profile) -> Result<Vec<Profile>> {
    let shipped = Profile::load(CUBIETRUCK)?;
    let energy = ssd(pc)?.write.energy_per_gb;
    let of = |(read, write): (f64, f64)| {
        let mut drive = ssd(&shipped)?;
        drive.write.energy_per_gb = energy;
        drive.read.per_second = Bytes((read * MB) as u64);
        drive.write.per_second = Bytes((write * MB) as u64);
        Ok(shipped.clone().with_drive(drive))
    };
    PORTS.into_iter().map(of).collect()
}

fn ssd(profile: &Profile) -> Result<DriveProfile> {
    profile.drive().ok_or_else(|| anyhow!("{} has no SSD", profile.name))
}

/// The inputs, and what the fit found.
pub fn inputs(study: &mut Study) -> Result<()> {
    let found = &study.benchmarks()?.pcs;
    let of = |value: fn(&Profile) -> f64| Span::of(found.iter().map(|pc| value(&pc.profile)));
    let energy = |pc: &Profile| ssd(pc).map_or(f64::NAN, |ssd| ssd.write.energy_per_gb.0);
    let board = of(|pc| pc.board.other.0);
    let (cycles, energy) = (of(|pc| pc.stage[0].cycles_per_kib), of(energy));
    let (pc, truck) = (ssd(&Profile::load(PC)?)?, ssd(&Profile::load(CUBIETRUCK)?)?);
    let rate = |bytes: Bytes| bytes.0 as f64 / MB;
    let report = &mut study.report;
    report.row("inputs/ssd", rate(pc.write.program_per_second))?;
    report.row("inputs/a20-reads", rate(truck.read.per_second))?;
    report.row("inputs/a20-writes", rate(truck.write.per_second))?;
    report.range("inputs/path", Span::of(RATES))?;
    report.range("inputs/light", Span::of(LIGHT))?;
    report.range("inputs/board", board)?;
    report.range("inputs/cycles", cycles)?;
    report.range("inputs/energy", energy)
}
