//! Training jobs that read their samples, as MLPerf Storage emulates them (PACER §V-B2): read a
//! batch, sleep for the time an accelerator would compute on it, with the next batch read
//! meanwhile.

use ebb_policy::units::Nanos;
use rand_distr::{Distribution, Normal};
use rand_pcg::rand_core::Rng;

use super::error::{GenerateError, Place};
use super::random::{carve, stream};
use super::spec::ReaderSpec;
use super::target::Target;
use crate::request::{Op, Request};

/// Frame of a TFRecord around each sample of a file of many: two lengths' and sums' bytes.
const FRAME: u64 = 16;
const PAGE: u64 = 4096;

/// The reading workers of all accelerators.
pub(super) struct Readers {
    workers: Vec<Worker>,
    files: Vec<u64>,
    target: Target,
    /// Room for each file on its drive.
    stride: u64,
    transfer: u64,
    record: u64,
    samples_per_file: u32,
    batch: f64,
    /// Time between the batches that one worker delivers: the others deliver those between.
    turn: u64,
    /// Order of the files, drawn once per epoch: file `a * i + b` comes at place `i`.
    seed: u64,
    part: u64,
    first: u32,
}

#[derive(Default)]
struct Worker {
    /// Files begun, place in the present file, samples read and not yet used.
    begun: u64,
    file: u64,
    left: u64,
    offset: u64,
    samples: f64,
    /// When the accelerator has taken this worker's last batch and wants the next.
    wanted: u64,
}

impl Readers {
    pub(super) fn new(
        spec: &ReaderSpec,
        target: Target,
        seed: u64,
        part: u64,
        first: u32,
        place: Place<'_>,
    ) -> Result<Self, GenerateError> {
        let workers = u64::from(spec.accelerators) * u64::from(spec.workers);
        place.need((1..=1 << 20).contains(&workers), "accelerators", "1 to a million workers")?;
        place.need(spec.batch > 0, "batch", "must be at least 1")?;
        place.need(spec.samples_per_file > 0, "samples_per_file", "must be at least 1")?;
        let good = (PAGE..=1 << 30).contains(&spec.transfer.0);
        place.need(
            good && spec.transfer.0.is_multiple_of(PAGE),
            "transfer",
            "must be a multiple of 4 KiB up to 1 GiB",
        )?;
        place.need(spec.sample.0 > 0, "sample", "must be above zero")?;
        let many = spec.samples_per_file > 1;
        place.need(!many || spec.deviation.0 == 0, "deviation", "is for files of one sample")?;
        let good = u64::from(spec.files) >= workers && spec.files < 1 << 24;
        place.need(good, "files", &format!("give {workers} (one per worker) to 16 million"))?;
        let files = sizes(spec, seed, part, place)?;
        let most = files.iter().copied().max().unwrap_or(PAGE);
        let stride = most.next_multiple_of(PAGE);
        let per_drive = u64::from(spec.files.div_ceil(u32::from(target.count)));
        let good = stride.saturating_mul(per_drive) <= target.capacity;
        let reason = format!("{per_drive} files of up to {stride} B do not fit a drive");
        place.need(good, "files", &reason)?;
        let turn = |worker: u64| worker % u64::from(spec.workers);
        Ok(Self {
            workers: (0..workers)
                .map(|worker| Worker {
                    begun: 0,
                    wanted: turn(worker) * spec.compute.0,
                    ..Worker::default()
                })
                .collect(),
            files,
            target,
            stride,
            transfer: spec.transfer.0,
            record: spec.sample.0 + if many { FRAME } else { 0 },
            samples_per_file: spec.samples_per_file,
            batch: f64::from(spec.batch),
            turn: spec.compute.0 * u64::from(spec.workers),
            seed,
            part,
            first,
        })
    }

    /// The next read of `worker`, whose last one completed at `now`.
    pub(super) fn next(&mut self, worker: u32, now: u64) -> Request {
        let index = worker as usize;
        let at = self.delivered(index, now);
        if self.workers[index].left == 0 {
            self.begin_file(index);
        }
        let drives = u64::from(self.target.count);
        let state = &mut self.workers[index];
        let bytes = state.left.min(self.transfer);
        let offset = state.file / drives * self.stride + state.offset;
        state.left -= bytes;
        state.offset += bytes;
        // A file of one sample is of use when it is whole; records arrive with every transfer.
        state.samples += match self.samples_per_file {
            1 => f64::from(u8::from(state.left == 0)),
            _ => bytes as f64 / self.record as f64,
        };
        Request {
            at: Nanos(at),
            offset,
            bytes: bytes as u32,
            device: self.target.first + (state.file % drives) as u16,
            op: Op::Read,
            stream: self.first + worker,
            recorded_latency: None,
        }
    }

    /// When the worker reads on: when the accelerator takes the batches that are complete.
    fn delivered(&mut self, worker: usize, now: u64) -> u64 {
        let state = &mut self.workers[worker];
        let mut at = now;
        while state.samples >= self.batch {
            state.samples -= self.batch;
            at = at.max(state.wanted);
            state.wanted = at + self.turn;
        }
        at
    }

    fn begin_file(&mut self, worker: usize) {
        let files = self.files.len() as u64;
        let state = &mut self.workers[worker];
        let place = state.begun * self.workers_count() + worker as u64;
        let file = self.shuffled(place / files, place % files);
        let size = self.files[file as usize];
        let state = &mut self.workers[worker];
        state.begun += 1;
        state.file = file;
        state.left = size;
        state.offset = 0;
    }

    fn workers_count(&self) -> u64 {
        self.workers.len() as u64
    }

    /// The file at a place of an epoch's order: every file once per epoch.
    fn shuffled(&self, epoch: u64, place: u64) -> u64 {
        let files = self.files.len() as u64;
        let mut rng = stream(self.seed, self.part, ORDER - epoch);
        let shift = carve(&mut rng.next_u64(), files);
        let mut factor = 1 + carve(&mut rng.next_u64(), files);
        while common_divisor(factor, files) > 1 {
            factor = 1 + carve(&mut rng.next_u64(), files);
        }
        // Below 2^48, as there are fewer than 2^24 files.
        (factor * place + shift) % files
    }
}

/// Random stream of the first epoch's order; the sizes have the one above it.
const ORDER: u64 = u64::MAX - 1;

const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The size of each file in whole pages: normal like the data set's, within three deviations.
fn sizes(
    spec: &ReaderSpec,
    seed: u64,
    part: u64,
    place: Place<'_>,
) -> Result<Vec<u64>, GenerateError> {
    if spec.samples_per_file > 1 {
        let size = (spec.sample.0 + FRAME).checked_mul(u64::from(spec.samples_per_file));
        let size = size.filter(|size| *size < 1 << 48);
        let size =
            size.ok_or_else(|| place.wrong("samples_per_file", "the files are too large"))?;
        return Ok(vec![size.next_multiple_of(PAGE); spec.files as usize]);
    }
    let (mean, deviation) = (spec.sample.0 as f64, spec.deviation.0 as f64);
    let normal =
        Normal::new(mean, deviation).map_err(|_| place.wrong("deviation", "must be finite"))?;
    let mut rng = stream(seed, part, u64::MAX);
    let size = |_| {
        let drawn: f64 = normal.sample(&mut rng);
        let size = drawn.clamp(PAGE as f64, (mean + 3.0 * deviation).max(PAGE as f64)) as u64;
        size.next_multiple_of(PAGE)
    };
    Ok((0..spec.files).map(size).collect())
}
