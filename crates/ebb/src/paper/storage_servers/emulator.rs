//! The study's server emulator (§3.1) in the twin, and what a run of it came to.

use anyhow::Result;

use ebb_policy::Limits;
use ebb_policy::cpu::Native;
use ebb_policy::units::Nanos;
use ebb_trace::{Closed, Op, Request, Source, TraceError, Workload};
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, run};

use ebb_bench::replay::{Direction, Pattern, Shape};
use ebb_cli::interrupt;
use ebb_cli::random::Random;

use super::MB;

/// Bytes that each process reads or writes. The paper's have 3 GB: bandwidth and power are steady
/// long before (a test below compares).
const SIZE: u64 = 128 << 20;
/// "Two concurrent processes" (§3.1).
const PROCESSES: u64 = 2;
/// Requests of a process that are under way at once. The text does not say how its emulator reads
/// and writes; that requests of 32 KB are as fast as those of 4 MB (§4.1.1) takes the kernel's
/// read-ahead and write-back, which is more than one.
const AHEAD: u32 = 4;
/// OrangeFS's stripe, the largest request to a server (§3.2).
const STRIPE: u32 = 64 << 10;
/// Requests of Hou10ni's minute that are simulated.
const STRIPES: u64 = 1_000;

/// One of the synthetic tests (§3.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    pub direction: Direction,
    pub pattern: Pattern,
    /// Bytes of a request.
    pub request: u64,
}

/// Those that read, or those that write: contiguous and strided, of 32 KB and 4 MB.
pub fn tests(direction: Direction) -> [Test; 4] {
    let of = |pattern, request| Test { direction, pattern, request };
    let (small, large) = (32 << 10, 4 << 20);
    [
        of(Pattern::Contiguous, small),
        of(Pattern::Contiguous, large),
        of(Pattern::Strided, small),
        of(Pattern::Strided, large),
    ]
}

/// What one server did in a run.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// At the wall.
    pub watts: f64,
    /// MB/s.
    pub rate: f64,
}

impl Test {
    /// Runs the test on `profile`.
    pub fn run(self, profile: &Profile, seed: u64) -> Result<Measured> {
        self.sized(profile, SIZE, seed)
    }

    /// The same with `size` bytes for each process.
    fn sized(self, profile: &Profile, size: u64, seed: u64) -> Result<Measured> {
        let Self { direction, pattern, request } = self;
        let count = size / request;
        let shape = Shape { pattern, direction, request, count, streams: PROCESSES, seed };
        let requests = |stream| Box::new(shape.stream(stream)) as Box<_>;
        let processes = (0..PROCESSES).map(requests).collect();
        let work = Processes { processes, bytes: request as u32 };
        measured(profile, Workload::Closed(Box::new(work)), seed)
    }
}

/// The processes, each with its requests in order.
struct Processes {
    processes: Vec<Box<dyn Iterator<Item = (Op, u64)> + Send>>,
    bytes: u32,
}

impl Closed for Processes {
    fn slots(&self) -> u32 {
        self.processes.len() as u32 * AHEAD
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        let process = slot as usize % self.processes.len();
        let (op, offset) = self.processes[process].next()?;
        Some(request(now, op, offset, self.bytes, process as u32))
    }
}

/// Requests of a data server of Hou10ni at `rate` MB/s. The text tells neither their times nor
/// their places: stripe after stripe, at random times of that mean.
pub fn application(profile: &Profile, op: Op, rate: f64, seed: u64) -> Result<Measured> {
    let gap = f64::from(STRIPE) / (rate * MB) * 1e9;
    let random = Random::new(seed, 0x500);
    measured(profile, Workload::Open(Box::new(Stripes { op, gap, sent: 0, at: 0.0, random })), seed)
}

struct Stripes {
    op: Op,
    /// Mean, in nanoseconds.
    gap: f64,
    sent: u64,
    at: f64,
    random: Random,
}

impl Source for Stripes {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        for _ in self.sent..STRIPES {
            self.at += self.gap * self.random.gap();
            let offset = self.sent * u64::from(STRIPE);
            batch.push(request(Nanos(self.at as u64), self.op, offset, STRIPE, 0));
            self.sent += 1;
        }
        Ok(())
    }
}

fn request(at: Nanos, op: Op, offset: u64, bytes: u32, stream: u32) -> Request {
    Request { at, offset, bytes, device: 0, op, stream, recorded_latency: None }
}

/// To the end of `workload`, all of it counted.
fn measured(profile: &Profile, workload: Workload, seed: u64) -> Result<Measured> {
    let job = Run {
        limits: Limits::without_heat(),
        ..Run::of(profile, Box::new(Native), workload, seed)
    };
    let Outcome { energy, bytes, span, .. } = run(job, &mut Leaves)?;
    let seconds = span.seconds();
    Ok(Measured { watts: energy.total().0 / seconds, rate: bytes as f64 / seconds / MB })
}

/// Leaves a run that somebody has interrupted.
struct Leaves;
impl Observer for Leaves {
    fn sample(&mut self, _: &Sample<'_>) {
        interrupt::leave_if_asked();
    }
}

#[cfg(test)]
mod tests {
    use super::super::platforms::{CUBIETRUCK, PC};
    use super::*;

    #[test]
    fn fewer_bytes_than_the_papers_show_the_same() {
        for name in [PC, CUBIETRUCK] {
            let profile = Profile::load(name).unwrap();
            for direction in [Direction::Read, Direction::Write] {
                for test in tests(direction) {
                    let short = test.run(&profile, 1).unwrap();
                    let whole = test.sized(&profile, 3 << 30, 1).unwrap();
                    let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.01;
                    assert!(near(short.rate, whole.rate), "{name} {test:?}: {short:?} {whole:?}");
                    assert!(near(short.watts, whole.watts), "{name} {test:?}: {short:?} {whole:?}");
                }
            }
        }
    }
}
