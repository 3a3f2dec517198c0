//! The synthetic tests (§4.1): Figs. 1 to 3.

use anyhow::Result;

use ebb_bench::replay::{Direction, Pattern};
use ebb_cli::parallel::in_parallel;

use super::super::span::Span;
use super::Study;
use super::emulator::{Measured, Test, tests};
use super::platforms::{DOUBT, Member, cubietrucks, pcs};

/// A server under the four tests that read and the four that write.
#[derive(Debug, Clone, Copy)]
struct Tested {
    reads: [Measured; 4],
    writes: [Measured; 4],
}

/// A PC and one CubieTruck, each over the tests that read and over those that write.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub pc: Means,
    /// One of the two.
    pub truck: Means,
}

/// Means over four tests.
#[derive(Debug, Clone, Copy)]
pub struct Means {
    pub reads: Measured,
    pub writes: Measured,
}

/// What the tests gave: every platform that can be, every seed.
pub struct Benchmarks {
    pub pcs: Vec<Member>,
    /// By member and seed.
    pc: Vec<Tested>,
    /// Those that go with the PC of the same place.
    trucks: Vec<Vec<Tested>>,
}

impl Benchmarks {
    /// Fits the PC and runs all tests.
    pub fn run(study: &Study) -> Result<Self> {
        let pcs = pcs(study)?;
        let mut servers = Vec::new();
        for Member { profile, .. } in &pcs {
            for seed in study.seeds() {
                servers.push((profile.clone(), seed));
                servers.extend(cubietrucks(profile)?.into_iter().map(|truck| (truck, seed)));
            }
        }
        let bar = study.progress.bar("Figs. 1-3", Some(servers.len() as u64));
        let done = in_parallel(servers.len(), study.threads, |index| {
            let (profile, seed) = &servers[index];
            let all = |direction| -> Result<Vec<_>> {
                tests(direction).iter().map(|test| test.run(profile, *seed)).collect()
            };
            let (reads, writes) = (all(Direction::Read)?, all(Direction::Write)?);
            bar.inc(1);
            Ok(Tested {
                reads: std::array::from_fn(|index| reads[index]),
                writes: std::array::from_fn(|index| writes[index]),
            })
        })?;
        bar.finish_and_clear();
        let each = servers.len() / (pcs.len() * study.seeds().count());
        let (pc, trucks) = done.chunks(each).map(|all| (all[0], all[1..].to_vec())).unzip();
        Ok(Self { pcs, pc, trucks })
    }

    /// Every PC with every CubieTruck that goes with it.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.pc.iter().zip(&self.trucks).flat_map(|(pc, trucks)| {
            let means = trucks.iter().map(Tested::means);
            let doubtful = means.flat_map(|truck| DOUBT.map(|doubt| truck.with(doubt)));
            doubtful.map(|truck| Pair { pc: pc.means(), truck })
        })
    }

    /// `value` of every pair.
    pub fn span(&self, value: impl Fn(&Pair) -> f64) -> Span {
        Span::of(self.pairs().map(|pair| value(&pair)))
    }

    /// One number of each test, of the PC and of two CubieTrucks, as the figures show them.
    fn figures(&self, value: fn(Measured, f64) -> f64) -> Vec<(String, [(f64, f64); 2])> {
        let trucks: Vec<_> = self.trucks.iter().flatten().copied().collect();
        let mut curves = Vec::new();
        for (name, servers, all) in [("PC", 1.0, &self.pc), ("two CubieTrucks", 2.0, &trucks)] {
            for (does, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
                for (place, pattern) in
                    [("contiguous", Pattern::Contiguous), ("1-D strided", Pattern::Strided)]
                {
                    let tests = tests(direction);
                    let point = |request: u64| {
                        let test = Test { direction, pattern, request };
                        let at = tests.iter().position(|one| *one == test).unwrap_or(0);
                        let of = |tested: &Tested| value(tested.of(direction)[at], servers);
                        (request as f64 / 1024.0, Span::of(all.iter().map(of)).middle)
                    };
                    let points = [32 << 10, 4 << 20].map(point);
                    curves.push((format!("{name}, {does}, {place}"), points));
                }
            }
        }
        curves
    }

    /// Small requests over large ones, strided over contiguous, of a PC or a CubieTruck.
    fn impact(&self, truck: bool, of: [usize; 2], over: [usize; 2]) -> Span {
        let all: Vec<_> = match truck {
            true => self.trucks.iter().flatten().collect(),
            false => self.pc.iter().collect(),
        };
        let sum = |tests: &[Measured; 4], which: [usize; 2]| {
            which.iter().map(|at| tests[*at].rate).sum::<f64>()
        };
        let ratio = |tests: &[Measured; 4]| sum(tests, of) / sum(tests, over);
        Span::of(all.iter().flat_map(|tested| [ratio(&tested.reads), ratio(&tested.writes)]))
    }
}

impl Tested {
    fn of(&self, direction: Direction) -> &[Measured; 4] {
        match direction {
            Direction::Write => &self.writes,
            _ => &self.reads,
        }
    }

    fn means(&self) -> Means {
        let mean = |tests: &[Measured; 4]| Measured {
            watts: tests.iter().map(|one| one.watts).sum::<f64>() / 4.0,
            rate: tests.iter().map(|one| one.rate).sum::<f64>() / 4.0,
        };
        Means { reads: mean(&self.reads), writes: mean(&self.writes) }
    }
}

impl Means {
    /// The same with `doubt` more watts.
    pub fn with(self, doubt: f64) -> Self {
        let more = |one: Measured| Measured { watts: one.watts + doubt, ..one };
        Self { reads: more(self.reads), writes: more(self.writes) }
    }

    /// Of reads and writes alike.
    pub fn watts(&self) -> f64 {
        (self.reads.watts + self.writes.watts) / 2.0
    }
}

impl Pair {
    /// What `count` CubieTrucks draw less than the PC, as a share.
    pub fn saved(&self, count: f64, of: fn(&Means) -> Measured) -> f64 {
        1.0 - count * of(&self.truck).watts / of(&self.pc).watts
    }

    /// Bandwidth of `count` CubieTrucks over the PC's.
    pub fn faster(&self, count: f64, of: fn(&Means) -> Measured) -> f64 {
        count * of(&self.truck).rate / of(&self.pc).rate
    }

    /// Bytes of a joule of CubieTrucks over the PC's: the same for any number of them.
    pub fn efficiency(&self, of: fn(&Means) -> Measured) -> f64 {
        self.faster(1.0, of) / (1.0 - self.saved(1.0, of))
    }
}

/// While reading.
pub fn reads(means: &Means) -> Measured {
    means.reads
}
/// While writing.
pub fn writes(means: &Means) -> Measured {
    means.writes
}

/// Fig. 1: power.
pub fn power(study: &mut Study) -> Result<()> {
    let found = study.benchmarks()?;
    let span = |value: fn(&Pair) -> f64| found.span(value);
    let rows = [
        ("fig-1/pc", span(|p| p.pc.reads.watts)),
        ("fig-1/pc-percent", span(|p| 100.0 * (p.pc.writes.watts / p.pc.reads.watts - 1.0))),
        ("fig-1/pc-watts", span(|p| p.pc.writes.watts - p.pc.reads.watts)),
        ("fig-1/trucks", span(|p| 2.0 * p.truck.reads.watts)),
        (
            "fig-1/trucks-percent",
            span(|p| 100.0 * (p.truck.writes.watts / p.truck.reads.watts - 1.0)),
        ),
        ("fig-1/trucks-watts", span(|p| 2.0 * (p.truck.writes.watts - p.truck.reads.watts))),
        ("fig-1/reads", span(|p| 100.0 * p.saved(2.0, reads))),
        ("fig-1/writes", span(|p| 100.0 * p.saved(2.0, writes))),
    ];
    let curves = found.figures(|one, servers| one.watts * servers);
    show(study, rows, "Fig. 1", "W", curves)
}

/// Fig. 2: bandwidth.
pub fn bandwidth(study: &mut Study) -> Result<()> {
    const SMALL: [usize; 2] = [0, 2];
    const LARGE: [usize; 2] = [1, 3];
    let found = study.benchmarks()?;
    let span = |value: fn(&Pair) -> f64| found.span(value);
    let [pc, trucks] = [false, true].map(|truck| found.impact(truck, SMALL, LARGE));
    let rows = [
        ("fig-2/pc", span(|p| p.pc.reads.rate / p.pc.writes.rate)),
        ("fig-2/pc-small", pc),
        ("fig-2/trucks-small", trucks),
        ("fig-2/trucks-strided", found.impact(true, [2, 3], [0, 1])),
        ("fig-2/trucks", span(|p| 100.0 * (p.truck.reads.rate / p.truck.writes.rate - 1.0))),
        ("fig-2/reads", span(|p| p.faster(2.0, reads))),
        ("fig-2/writes", span(|p| 100.0 * (1.0 - p.faster(2.0, writes)))),
    ];
    let curves = found.figures(|one, servers| one.rate * servers);
    show(study, rows, "Fig. 2", "MB/s", curves)
}

/// Fig. 3: bytes of a joule.
pub fn efficiency(study: &mut Study) -> Result<()> {
    let found = study.benchmarks()?;
    let gain = |of: fn(&Means) -> Measured| found.span(|p| 100.0 * (p.efficiency(of) - 1.0));
    let rows = [("fig-3/reads", gain(reads)), ("fig-3/writes", gain(writes))];
    let curves = found.figures(|one, _| one.rate / one.watts);
    show(study, rows, "Fig. 3", "MB/J", curves)
}

/// The numbers of a figure, then its curves.
fn show<const COUNT: usize>(
    study: &mut Study,
    rows: [(&str, Span); COUNT],
    figure: &'static str,
    unit: &str,
    curves: Vec<(String, [(f64, f64); 2])>,
) -> Result<()> {
    for (row, found) in rows {
        study.report.range(row, found)?;
    }
    for (series, points) in curves {
        study.report.curve(figure, format!("{series}: {unit} over KB"), &points);
    }
    Ok(())
}
