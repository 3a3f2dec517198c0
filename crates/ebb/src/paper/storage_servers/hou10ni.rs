//! Hou10ni (§4.2, Fig. 4): the light load of a real application.
//!
//! Each CubieTruck replays the trace of one of two data servers, the PC that of the first alone.

use anyhow::Result;

use ebb_trace::Op;
use ebb_twin::Profile;

use ebb_cli::parallel::in_parallel;

use super::super::span::Span;
use super::Study;
use super::benchmarks::{Means, Pair, reads, writes};
use super::emulator::{Measured, application};
use super::platforms::{DOUBT, cubietrucks};

/// Fig. 4: the first minute, which reads, and the last, which writes.
pub fn minutes(study: &mut Study) -> Result<()> {
    let benchmarks = study.benchmarks()?;
    let (pcs, pairs): (_, Vec<_>) = (benchmarks.pcs.clone(), benchmarks.pairs().collect());
    let seeds: Vec<_> = study.seeds().collect();
    let bar = study.progress.bar("Fig. 4", Some((pcs.len() * seeds.len()) as u64));
    let done = in_parallel(pcs.len() * seeds.len(), study.threads, |index| {
        let (pc, seed) = (&pcs[index / seeds.len()], seeds[index % seeds.len()]);
        let on = |profile: &Profile| -> Result<Means> {
            let minute = |op| application(profile, op, pc.light, seed);
            Ok(Means { reads: minute(Op::Read)?, writes: minute(Op::Write)? })
        };
        let server = on(&pc.profile)?;
        let trucks: Result<Vec<_>> = cubietrucks(&pc.profile)?.iter().map(on).collect();
        bar.inc(1);
        Ok((server, trucks?))
    })?;
    bar.finish_and_clear();
    // In the order of the benchmarks' pairs.
    let minutes: Vec<_> = done
        .iter()
        .flat_map(|(pc, trucks)| {
            let doubtful = trucks.iter().flat_map(|truck| DOUBT.map(|doubt| truck.with(doubt)));
            doubtful.map(|truck| Pair { pc: *pc, truck })
        })
        .collect();
    let both: Vec<_> = minutes.into_iter().zip(pairs).collect();
    rows(study, &both)?;
    curves(study, &both);
    Ok(())
}

/// The numbers that the text states. It does not tell reads from writes.
fn rows(study: &mut Study, both: &[(Pair, Pair)]) -> Result<()> {
    let span = |value: fn(&Pair, &Pair) -> f64| Span::of(both.iter().map(|(a, b)| value(a, b)));
    let pc = span(|minute, test| 100.0 * (1.0 - minute.pc.watts() / test.pc.watts()));
    let trucks = span(|minute, test| 100.0 * (1.0 - minute.truck.watts() / test.truck.watts()));
    let less = span(|minute, _| 100.0 * (1.0 - 2.0 * minute.truck.watts() / minute.pc.watts()));
    let same = span(|minute, _| (minute.faster(1.0, reads) + minute.faster(1.0, writes)) / 2.0);
    let once = span(|minute, _| (minute.efficiency(reads) + minute.efficiency(writes)) / 4.0);
    let twice = span(|minute, _| (minute.efficiency(reads) + minute.efficiency(writes)) / 2.0);
    let report = &mut study.report;
    report.range("fig-4a/pc", pc)?;
    report.range("fig-4a/trucks", trucks)?;
    report.range("fig-4a/below", less)?;
    report.range("fig-4b/same", same)?;
    report.range("fig-4c/once", once)?;
    report.range("fig-4c/twice", twice)
}

fn curves(study: &mut Study, both: &[(Pair, Pair)]) {
    for (does, of) in [("read", reads as fn(&Means) -> Measured), ("write", writes)] {
        let middle = |value: &dyn Fn(&Pair) -> f64| {
            Span::of(both.iter().map(|(minute, _)| value(minute))).middle
        };
        let pc = |value: fn(Measured) -> f64| middle(&|minute| value(of(&minute.pc)));
        let truck = |value: fn(Measured) -> f64| middle(&|minute| value(of(&minute.truck)));
        for (figure, unit, one, two) in [
            ("Fig. 4(a)", "W", pc(|m| m.watts), truck(|m| 2.0 * m.watts)),
            ("Fig. 4(b)", "MB/s of a server", pc(|m| m.rate), truck(|m| m.rate)),
            (
                "Fig. 4(c)",
                "MB of a server for a J",
                pc(|m| m.rate / m.watts),
                truck(|m| m.rate / m.watts / 2.0),
            ),
        ] {
            let series = format!("{does}: {unit}, on PC, CubieTrucks");
            study.report.curve(figure, series, &[(1.0, one), (2.0, two)]);
        }
    }
}
