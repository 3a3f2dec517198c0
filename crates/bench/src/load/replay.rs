//! A trace, replayed in real time: folded onto the namespaces and handed to the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::input::{FileReport, Traces, Watch};
use ebb_trace::{Op, Request, Source};

use super::arrivals::Phase;
use super::job::{Clock, Feed, Job, NONE, Next};
use super::plan::{Plan, Space};

/// Requests handed to a thread at once, and batches ahead of it.
const BATCH: usize = 256;
const AHEAD: usize = 64;
/// How soon a thread looks again where the reader has nothing ready.
const AGAIN: Duration = Duration::from_micros(50);

/// A request on its place.
#[derive(Debug, Clone, Copy)]
struct Placed {
    at: u64,
    op: Op,
    space: u16,
    lba: u64,
    blocks: u32,
}

/// What became of a trace on its way to the namespaces.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    folded: AtomicU64,
    aligned: AtomicU64,
    cut: AtomicU64,
}

/// The same, at the end.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TraceReport {
    /// What became of the files.
    pub files: Vec<FileReport>,
    /// Requests read.
    pub requests: u64,
    /// Device or offset taken modulo what there is.
    pub folded: u64,
    /// Widened to whole blocks.
    pub aligned: u64,
    /// Larger than the namespace, cut to its size.
    pub cut: u64,
}

/// Reads a trace for all threads.
pub struct Reader {
    thread: JoinHandle<Result<()>>,
    counts: Arc<Counts>,
    watch: Watch,
}

impl Reader {
    /// Begins to read; the feeds are for the threads, in order.
    pub fn start(traces: &Traces, plan: &Plan, clock: Clock) -> Result<(Self, Vec<Replay>)> {
        let (source, watch) = traces.open(None)?;
        let counts = Arc::new(Counts::default());
        let (senders, feeds): (Vec<_>, Vec<_>) = plan
            .cores
            .iter()
            .map(|_| {
                let (sender, receiver) = sync_channel(AHEAD);
                (sender, Replay { receiver, batch: Vec::new(), clock, ended: false })
            })
            .unzip();
        let (spaces, own) = (plan.spaces.clone(), counts.clone());
        let end = plan.duration.map_or(u64::MAX, |duration| duration.as_nanos() as u64);
        let thread = std::thread::spawn(move || distribute(source, &spaces, end, senders, &own));
        Ok((Self { thread, counts, watch }, feeds))
    }

    /// What became of the trace; the feeds must be gone.
    pub fn finish(self) -> Result<TraceReport> {
        match self.thread.join() {
            Ok(read) => read?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(TraceReport {
            files: self.watch.reports(),
            requests: read(&self.counts.requests),
            folded: read(&self.counts.folded),
            aligned: read(&self.counts.aligned),
            cut: read(&self.counts.cut),
        })
    }
}

fn distribute(
    mut source: Box<dyn Source>,
    spaces: &[Space],
    end: u64,
    senders: Vec<SyncSender<Vec<Placed>>>,
    counts: &Counts,
) -> Result<()> {
    let mut requests = Vec::new();
    let mut batches: Vec<Vec<Placed>> = senders.iter().map(|_| Vec::new()).collect();
    let mut turn = 0;
    'trace: loop {
        requests.clear();
        source.fill(&mut requests)?;
        for request in &requests {
            if request.at.0 >= end {
                break 'trace;
            }
            // In turn: each thread has about as much to do, and none waits long for the reader.
            let thread = turn % senders.len();
            turn += 1;
            batches[thread].push(placed(request, spaces, counts));
            if batches[thread].len() == BATCH {
                let batch = std::mem::take(&mut batches[thread]);
                if senders[thread].send(batch).is_err() {
                    return Ok(()); // The load has ended.
                }
            }
        }
        if requests.is_empty() {
            break;
        }
    }
    for (sender, batch) in senders.into_iter().zip(batches) {
        let _ = sender.send(batch); // No loss if the load has ended.
    }
    Ok(())
}

/// Device and offset modulo what there is, widened to whole blocks.
fn placed(request: &Request, spaces: &[Space], counts: &Counts) -> Placed {
    let add = |count: &AtomicU64, yes: bool| {
        count.fetch_add(u64::from(yes), Ordering::Relaxed);
    };
    let index = usize::from(request.device) % spaces.len();
    let space = &spaces[index];
    let block = u64::from(space.namespace.block_size);
    let size = space.blocks * block;
    let (at, op) = (request.at.0, request.op);
    add(&counts.requests, true);
    if op == Op::Flush {
        return Placed { at, op, space: index as u16, lba: 0, blocks: 0 };
    }
    let length = u64::from(request.bytes);
    let end = request.offset.checked_add(length);
    let beyond = usize::from(request.device) >= spaces.len() || end.is_none_or(|end| end > size);
    let unaligned = !request.offset.is_multiple_of(block) || !length.is_multiple_of(block);
    let offset = request.offset % size;
    let first = offset / block;
    let blocks = ((offset + length).div_ceil(block) - first).max(1);
    add(&counts.folded, beyond);
    add(&counts.aligned, unaligned || length == 0);
    add(&counts.cut, blocks > space.blocks);
    let blocks = blocks.min(space.blocks);
    // What would cross the end moves to just before it.
    let first = first.min(space.blocks - blocks);
    Placed { at, op, space: index as u16, lba: space.first + first, blocks: blocks as u32 }
}

/// One thread's share of a trace.
pub struct Replay {
    receiver: Receiver<Vec<Placed>>,
    /// Not yet due, last first.
    batch: Vec<Placed>,
    clock: Clock,
    ended: bool,
}

impl Feed for Replay {
    fn next(&mut self, now: Instant) -> Next {
        while self.batch.is_empty() {
            if self.ended {
                return Next::End;
            }
            match self.receiver.try_recv() {
                Ok(mut batch) => {
                    batch.reverse();
                    self.batch = batch;
                }
                Err(TryRecvError::Empty) => return Next::At(now + AGAIN),
                Err(TryRecvError::Disconnected) => self.ended = true,
            }
        }
        let Some(next) = self.batch.last() else { return Next::End };
        let from = self.clock.start + Duration::from_nanos(next.at);
        if self.clock.is_over(now) {
            return Next::End;
        }
        if from > now {
            return Next::At(from);
        }
        let Placed { op, space, lba, blocks, .. } = *next;
        self.batch.pop();
        let (phase, lane, queue, group) = (Phase::Between, NONE, None, NONE);
        Next::Job(Job { op, space, lba, blocks, from, phase, lane, queue, group })
    }

    fn unsent(&mut self, end: Option<Instant>) -> u64 {
        let end = end.map_or(u64::MAX, |end| {
            end.saturating_duration_since(self.clock.start).as_nanos() as u64
        });
        let due = |batch: &[Placed]| batch.iter().filter(|next| next.at < end).count() as u64;
        let mut count = due(&self.batch);
        self.batch.clear();
        // To the end, so that the reader counts what it folded.
        while let Ok(batch) = self.receiver.recv() {
            count += due(&batch);
            if batch.last().is_some_and(|last| last.at >= end) {
                break;
            }
        }
        // The reader stops when nobody takes what it has.
        (_, self.receiver) = sync_channel(0);
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use ebb_initiator::Namespace;
    use ebb_policy::units::Nanos;

    use super::*;

    fn space(id: u32, block_size: u32, first: u64, blocks: u64) -> Space {
        let namespace = Namespace { id, block_size, blocks: first + blocks };
        Space { namespace, first, blocks }
    }

    proptest! {
        #[test]
        fn every_request_lies_within_its_space(
            offset: u64, bytes: u32, device: u16, first in 0_u64..100, blocks in 1_u64..1000,
        ) {
            let spaces = [space(1, 4096, first, blocks), space(2, 512, first, blocks)];
            let request = Request {
                at: Nanos::ZERO, offset, bytes, device, op: Op::Read, stream: 0,
                recorded_latency: None,
            };
            let counts = Counts::default();
            let placed = placed(&request, &spaces, &counts);
            prop_assert!(placed.blocks >= 1 && placed.lba >= first);
            prop_assert!(placed.lba + u64::from(placed.blocks) <= first + blocks);
        }
    }

    #[test]
    fn what_fits_stays_where_it_is() {
        let spaces = [space(1, 4096, 0, 100)];
        let counts = Counts::default();
        let at = |device, offset, bytes| {
            let request = Request {
                at: Nanos(5),
                offset,
                bytes,
                device,
                op: Op::Write,
                stream: 0,
                recorded_latency: None,
            };
            let placed = placed(&request, &spaces, &counts);
            (placed.lba, placed.blocks)
        };
        assert_eq!(at(0, 8192, 8192), (2, 2));
        assert_eq!(at(0, 8192 + 512, 4096), (2, 2));
        assert_eq!(at(3, 4096, 4096), (1, 1));
        assert_eq!(at(0, 100 * 4096, 4096), (0, 1));
        assert_eq!(at(0, 99 * 4096, 8192), (98, 2));
        assert_eq!(at(0, 0, 4096 * 200), (0, 100));
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counted = [&counts.requests, &counts.folded, &counts.aligned, &counts.cut].map(read);
        assert_eq!(counted, [6, 4, 1, 1]);
    }
}
