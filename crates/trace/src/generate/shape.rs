//! How a load changes over time.

use std::ops::Range;
use std::vec;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use ebb_policy::units::Nanos;

use super::error::{GenerateError, Place};
use super::load_csv;
use super::random::{carve, threshold, unit};
use super::spec::ShapeSpec;
use super::windows::Window;

/// A span of constant load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// When it ends, in nanoseconds.
    pub(super) until: f64,
    /// Load, 1 being the rate.
    pub(super) level: f64,
    /// Its own share of reads, as a threshold.
    pub(super) read: Option<u64>,
}

/// An endless sequence of segments.
pub(super) struct Shape {
    kind: Kind,
    until: f64,
}

enum Kind {
    Flat,
    OnOff {
        rng: Pcg64Mcg,
        on: f64,
        off: f64,
        floor: f64,
        spread: f64,
        is_on: bool,
    },
    Random {
        rng: Pcg64Mcg,
        step: f64,
    },
    /// Lengths, loads and shares of reads, over and over.
    Table {
        rows: Vec<(f64, f64, Option<u64>)>,
        next: usize,
    },
}

/// What is not plain about the file of a shape, if it has one that can be read.
pub(super) fn notes(spec: &ShapeSpec) -> Vec<String> {
    let ShapeSpec::File { path, workload, .. } = spec else { return Vec::new() };
    let loads = load_csv::read(path, workload);
    let name = path.display();
    loads.map_or(Vec::new(), |loads| {
        loads.notes.iter().map(|note| format!("{name}: {note}")).collect()
    })
}

/// In what time a shape comes round, and whether alike; 0 where it does not change.
pub(super) fn turn(spec: &ShapeSpec) -> (Nanos, bool) {
    match spec {
        ShapeSpec::Flat => (Nanos::ZERO, true),
        ShapeSpec::OnOff { off: Nanos::ZERO, .. } => (Nanos::ZERO, true),
        ShapeSpec::OnOff { on, off, spread, .. } => (*on + *off, spread.0 == 0.0),
        ShapeSpec::Random { step } => (*step, false),
        ShapeSpec::Day { length, .. } => (*length, true),
        ShapeSpec::File { length: Some(length), .. } => (*length, true),
        ShapeSpec::File { path, workload, length: None } => {
            let windows = load_csv::read(path, workload).map_or(Vec::new(), |loads| loads.windows);
            (Nanos(windows.iter().map(|window| window.length).sum::<f64>() as u64), true)
        }
    }
}

impl Shape {
    pub(super) fn new(
        spec: &ShapeSpec,
        read: f64,
        mut rng: Pcg64Mcg,
        place: Place<'_>,
    ) -> Result<Self, GenerateError> {
        let kind = match spec {
            ShapeSpec::Flat => Kind::Flat,
            ShapeSpec::OnOff { on, off, floor, spread } => {
                place.need(on.0 > 0, "shape.on-off.on", "must be longer than zero")?;
                let (on, off) = (on.0 as f64, off.0 as f64);
                Kind::OnOff { rng, on, off, floor: floor.0, spread: spread.0, is_on: false }
            }
            ShapeSpec::Random { step } => {
                place.need(step.0 > 0, "shape.random.step", "must be longer than zero")?;
                Kind::Random { rng, step: step.0 as f64 }
            }
            ShapeSpec::Day { length, peaks, height, share } => {
                place.need(length.0 >= MINUTES as u64, "shape.day.length", "must be longer")?;
                let good = (0.0..=MOST_HEIGHT).contains(height);
                place.need(good, "shape.day.height", "must be between 0 and 1000")?;
                let good = u64::from(*peaks) <= MINUTES as u64;
                place.need(good, "shape.day.peaks", "must be at most 1440")?;
                let rows = day(length.0 as f64, *peaks as usize, *height, share.0, &mut rng);
                Kind::Table { rows, next: 0 }
            }
            ShapeSpec::File { path, workload, length } => {
                let windows = load_csv::read(path, workload)?.windows;
                let any = windows.iter().any(|window| requests(window, read) != (0.0, 0.0));
                let reason = "the workload has no requests of the kinds that `read` asks for";
                place.need(any, "shape.file", reason)?;
                Kind::Table { rows: table(&windows, read, length.map(|l| l.0 as f64)), next: 0 }
            }
        };
        Ok(Self { kind, until: 0.0 })
    }

    /// The next segment.
    pub(super) fn next(&mut self) -> Segment {
        let (length, level, read) = match &mut self.kind {
            Kind::Flat => (f64::INFINITY, 1.0, None),
            Kind::OnOff { rng, on, off, floor, spread, is_on } => {
                *is_on = !*is_on || *off == 0.0;
                let (mean, level) = if *is_on { (*on, 1.0) } else { (*off, *floor) };
                let swing = *spread * (2.0 * unit(rng.next_u64()) - 1.0);
                // At least a microsecond, so that time goes on.
                ((mean * (1.0 + swing)).max(1e3), level, None)
            }
            Kind::Random { rng, step } => (*step, -(1.0 - unit(rng.next_u64())).ln(), None),
            Kind::Table { rows, next } => {
                let row = rows[*next];
                *next = (*next + 1) % rows.len();
                row
            }
        };
        self.until += length;
        Segment { until: self.until, level, read }
    }
}

/// Pieces of a shape, one after the other on a clock of their own.
pub(super) struct Pieces {
    shape: Shape,
    segment: Segment,
    pieces: vec::IntoIter<Range<f64>>,
    piece: Option<Range<f64>>,
    /// When the present piece begins on the clock.
    begins: f64,
}

impl Pieces {
    /// Of `shape`, in order and apart.
    pub(super) fn new(mut shape: Shape, pieces: Vec<Range<f64>>) -> Self {
        let segment = shape.next();
        let mut pieces = pieces.into_iter();
        let piece = pieces.next();
        Self { shape, segment, pieces, piece, begins: 0.0 }
    }

    /// The next segment; after the last piece there is no load.
    pub(super) fn next(&mut self) -> Segment {
        let Some(piece) = self.piece.clone() else {
            return Segment { until: f64::INFINITY, level: 0.0, read: None };
        };
        while self.segment.until <= piece.start {
            self.segment = self.shape.next();
        }
        let end = self.segment.until.min(piece.end);
        let segment = Segment { until: self.begins + (end - piece.start), ..self.segment };
        if end < piece.end {
            self.segment = self.shape.next();
        } else {
            self.begins += piece.end - piece.start;
            self.piece = self.pieces.next();
        }
        segment
    }
}

const MINUTES: usize = 1440;
/// Of a peak, times the rate.
const MOST_HEIGHT: f64 = 1000.0;
/// The load between peaks swings by this much around 1; the papers give no number.
const SWING: f64 = 0.3;

/// A day minute by minute: low with occasional peaks, each somewhere in its part of the day.
fn day(
    length: f64,
    peaks: usize,
    height: f64,
    share: f64,
    rng: &mut Pcg64Mcg,
) -> Vec<(f64, f64, Option<u64>)> {
    let mut levels = vec![1.0; MINUTES];
    let part = MINUTES.checked_div(peaks).unwrap_or(0);
    let wide = ((part as f64 * share).round() as usize).min(part);
    for peak in 0..peaks {
        let shift = carve(&mut rng.next_u64(), (part - wide) as u64 + 1) as usize;
        levels[peak * part + shift..][..wide].fill(height);
    }
    let mut row = |level: f64| {
        let swing = SWING * (2.0 * unit(rng.next_u64()) - 1.0);
        (length / MINUTES as f64, level * (1.0 + swing), None)
    };
    levels.into_iter().map(&mut row).collect()
}

/// Reads and writes of a window, all of the workload's requests being about 1.
fn requests(window: &Window, read: f64) -> (f64, f64) {
    (read * window.reads, (1.0 - read) * window.writes)
}

/// Windows of a measured shape as loads of mean 1, each with its share of reads, for a workload
/// whose share of reads is `read` over the whole time.
fn table(windows: &[Window], read: f64, length: Option<f64>) -> Vec<(f64, f64, Option<u64>)> {
    let measured: f64 = windows.iter().map(|window| window.length).sum();
    let both = |window: &Window| requests(window, read).0 + requests(window, read).1;
    let all: f64 = windows.iter().map(both).sum();
    let stretch = length.unwrap_or(measured) / measured;
    let row = |window: &Window| {
        let (reads, writes) = requests(window, read);
        let level = (reads + writes) / all * (measured / window.length);
        let share = if reads + writes > 0.0 { reads / (reads + writes) } else { read };
        (window.length * stretch, level, Some(threshold(share)))
    };
    windows.iter().map(row).collect()
}
