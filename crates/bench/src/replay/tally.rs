//! What one stream measured, and all of them together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use ebb_trace::Op;

use crate::latency::Latency;
use crate::measured::Requests;

/// That a request moved less than it was asked to, where the kernel told no error.
pub const SHORT: i32 = 0;

/// A request that was issued, for the run folder.
#[derive(Debug, Clone, Copy)]
pub struct Issued {
    /// When, in nanoseconds since the start.
    pub at: u64,
    /// How long it took; `None` of one that failed.
    pub latency: Option<std::num::NonZeroU64>,
}

/// Everything one stream measured.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Counted ones, from the issue to the answer.
    pub requests: Requests,
    /// From the due time to the answer, where requests have one.
    pub response: Latency,
    /// From the due time to the issue.
    pub deviation: Latency,
    /// Requests that were issued late because `--queue-depth` others were outstanding.
    pub held_back: u64,
    /// Requests that failed, counted or not, by operation and error number.
    pub errors: BTreeMap<(u8, i32), u64>,
    /// Requests that were never issued.
    pub unsent: u64,
    /// Processor time of the stream's thread.
    pub cpu: Duration,
    /// When the last request was answered.
    pub last: Option<Instant>,
    /// Every request issued, in order, if that is kept.
    pub issued: Vec<Issued>,
}

impl Tally {
    /// Nothing measured.
    ///
    /// # Errors
    /// None: see [`Latency::new`].
    pub fn new() -> Result<Self> {
        let latency = Latency::new()?;
        Ok(Self {
            requests: Requests::new()?,
            response: latency.clone(),
            deviation: latency,
            held_back: 0,
            errors: BTreeMap::new(),
            unsent: 0,
            cpu: Duration::ZERO,
            last: None,
            issued: Vec::new(),
        })
    }

    /// A request failed.
    pub fn failed(&mut self, op: Op, errno: i32) {
        *self.errors.entry((op as u8, errno)).or_default() += 1;
    }

    /// Adds what another stream measured, but for the list of its requests.
    ///
    /// # Errors
    /// None: see [`Latency::merge`].
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.requests.merge(&other.requests)?;
        self.response.merge(&other.response)?;
        self.deviation.merge(&other.deviation)?;
        self.held_back += other.held_back;
        for (key, count) in &other.errors {
            *self.errors.entry(*key).or_default() += count;
        }
        self.unsent += other.unsent;
        self.cpu += other.cpu;
        self.last = self.last.max(other.last);
        Ok(())
    }
}
