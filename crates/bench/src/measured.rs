//! What `ebb load` and `ebb replay` measure alike: requests by operation, told as a table and in
//! the JSON, and what running threads show of themselves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use indicatif::ProgressBar;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::text::{grouped, number, seconds};
use ebb_trace::Op;

use crate::latency::{Latency, LatencyReport, PERCENTILES};

/// Names of the operations, by [`Op`].
pub const NAMES: [&str; 4] = ["read", "write", "flush", "trim"];

/// Requests of one kind that were answered without error.
#[derive(Debug, Clone)]
struct PerOp {
    latency: Latency,
    bytes: u64,
}

/// Requests by operation.
#[derive(Debug, Clone)]
pub struct Requests([PerOp; 4]);

impl Requests {
    /// None.
    ///
    /// # Errors
    /// None: see [`Latency::new`].
    pub fn new() -> Result<Self> {
        let op = PerOp { latency: Latency::new()?, bytes: 0 };
        Ok(Self([op.clone(), op.clone(), op.clone(), op]))
    }

    /// One more.
    #[inline]
    pub fn add(&mut self, op: Op, nanos: u64, bytes: u64) {
        let op = &mut self.0[op as usize];
        op.latency.record(nanos);
        op.bytes += bytes;
    }

    /// Adds those of another.
    ///
    /// # Errors
    /// None: see [`Latency::merge`].
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.latency.merge(&theirs.latency)?;
            mine.bytes += theirs.bytes;
        }
        Ok(())
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|op| op.bytes).sum()
    }

    /// The latencies of all.
    ///
    /// # Errors
    /// None: see [`Latency::merge`].
    pub fn latency(&self) -> Result<Latency> {
        let mut all = Latency::new()?;
        self.0.iter().try_for_each(|op| all.merge(&op.latency))?;
        Ok(all)
    }

    /// What they come to in `seconds`: all, and those operations that there were.
    ///
    /// # Errors
    /// None: see [`Latency::merge`].
    pub fn report(&self, seconds: f64) -> Result<(OpReport, BTreeMap<&'static str, OpReport>)> {
        let all = PerOp { latency: self.latency()?, bytes: self.bytes() };
        let ops = NAMES.iter().zip(&self.0).filter(|(_, op)| op.latency.count() > 0);
        let by_op = ops.map(|(name, op)| (*name, OpReport::new(op, seconds))).collect();
        Ok((OpReport::new(&all, seconds), by_op))
    }
}

/// Requests of one kind, as they stand in the JSON.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct OpReport {
    /// Requests that were done and whose intended start was counted.
    pub requests: u64,
    /// Requests per second of the time counted.
    pub iops: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Millions of bytes per second.
    pub mb_per_s: f64,
    /// As each command counts it.
    pub latency_ns: Option<LatencyReport>,
}

impl OpReport {
    fn new(op: &PerOp, seconds: f64) -> Self {
        let requests = op.latency.count();
        let rate = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
        Self {
            requests,
            iops: rate(requests as f64),
            bytes: op.bytes,
            mb_per_s: rate(op.bytes as f64) * 1e-6,
            latency_ns: op.latency.report(),
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let counts = [grouped(self.requests as f64), grouped(self.iops), number(self.mb_per_s)];
        let mut cells = vec![name.to_owned()];
        cells.extend(counts);
        match &self.latency_ns {
            Some(latency) => cells.extend(latency.cells()),
            None => cells.extend(std::iter::repeat_n("–".to_owned(), 7)),
        }
        cells
    }
}

/// The operations as a table, all of them in a row of its own where there are several, and `more`
/// latencies below.
pub fn table<'a>(
    total: &OpReport,
    by_op: &BTreeMap<&'static str, OpReport>,
    more: impl IntoIterator<Item = (&'a str, &'a LatencyReport)>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let mut header = vec!["", "requests", "IOPS", "MB/s", "mean"];
    header.extend(PERCENTILES.iter().map(|(name, _)| *name));
    header.push("max");
    table.set_header(header);
    table.add_rows(by_op.iter().map(|(name, op)| op.row(name)));
    if by_op.len() != 1 {
        table.add_row(total.row("all"));
    }
    for (name, latency) in more {
        let count = grouped(latency.count as f64);
        let start = [name.to_owned(), count, String::new(), String::new()];
        table.add_row(start.into_iter().chain(latency.cells()));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// What a running thread shows of itself: its own cache line, written by it alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Live {
    requests: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Live {
    /// One more request.
    #[inline]
    pub fn add(&self, bytes: u64, latency: Duration) {
        let add = |to: &AtomicU64, value: u64| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
        };
        add(&self.requests, 1);
        add(&self.bytes, bytes);
        add(&self.nanos, latency.as_nanos() as u64);
    }

    /// Requests, bytes and the sum of latencies of all threads so far.
    pub fn sum(threads: &[Self]) -> [u64; 3] {
        let mut sums = [0_u64; 3];
        for thread in threads {
            let values = [&thread.requests, &thread.bytes, &thread.nanos];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(value.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

/// A progress line that says what happened in the last second.
pub struct Show<'a> {
    bar: &'a ProgressBar,
    threads: &'a [Live],
    last: Instant,
    before: [u64; 3],
}

impl<'a> Show<'a> {
    /// Of what `threads` do from now on.
    pub fn new(bar: &'a ProgressBar, threads: &'a [Live]) -> Self {
        Self { bar, threads, last: Instant::now(), before: Live::sum(threads) }
    }

    /// Shows how far it is: at `position`, or at so many requests.
    pub fn tick(&mut self, position: Option<u64>) {
        let now = Live::sum(self.threads);
        self.bar.set_position(position.unwrap_or(now[0]));
        let length = self.last.elapsed().as_secs_f64();
        if length < 1.0 {
            return;
        }
        let [requests, bytes, nanos] =
            [0, 1, 2].map(|i| now[i].wrapping_sub(self.before[i]) as f64);
        self.bar.set_message(format!(
            "{} IOPS  {} MB/s  mean {}",
            grouped(requests / length),
            grouped(bytes / length * 1e-6),
            seconds(nanos / requests.max(1.0) * 1e-9),
        ));
        (self.last, self.before) = (Instant::now(), now);
    }
}
