//! One repeat: all streams at once, and the filling of a file that was just made.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use rustix::fs::{Advice, fadvise};

use ebb_cli::random::noise;
use ebb_cli::{Interrupted, Unwritten, interrupt};
use ebb_host::Sys;
use ebb_target::device::{Call, FileQueue};

use super::content;
use super::plan::Plan;
use super::stream::{Shared, Stream};
use super::tally::{Issued, Tally};
use crate::measured::{Live, Show};

/// Between the making of the threads and the first due time.
const AHEAD: Duration = Duration::from_millis(20);
/// How often the main thread looks up.
const TICK: Duration = Duration::from_millis(50);
/// Pieces in which a file is filled, and how many are in flight.
const PIECE: u64 = 1 << 20;
const PIECES: u32 = 8;

/// What one repeat came to.
pub struct Done {
    /// Of all streams.
    pub tally: Tally,
    /// What each issued, if that is kept.
    pub issued: Vec<Vec<Issued>>,
    /// Time zero of due times.
    pub start: Instant,
    /// From when on it counts.
    pub counted: Instant,
    /// The last answer.
    pub end: Instant,
    /// Whether everything was issued.
    pub complete: bool,
}

/// Runs all streams to their ends.
///
/// # Errors
/// When the system refuses rings or threads.
pub fn run(plan: &Plan, bar: &ProgressBar) -> Result<Done> {
    let streams = &plan.requests.streams;
    let mut made = Vec::new();
    for (index, requests) in streams.iter().enumerate() {
        made.push(Stream::new(index, requests, plan.target.file.clone(), plan.manner)?);
    }
    let live = streams.iter().map(|_| Live::default()).collect();
    let shared = Shared { stop: AtomicBool::new(false), live };
    let start = Instant::now() + AHEAD;
    let mut tallies = Vec::new();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, stream) in made.into_iter().enumerate() {
            let core = plan.cores.get(index % plan.cores.len().max(1)).copied();
            let shared = &shared;
            threads.push(scope.spawn(move || stream.run(index, core, start, shared)));
        }
        let mut show = Show::new(bar, &shared.live);
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(TICK);
            show.tick(None);
        }
        for thread in threads {
            match thread.join() {
                Ok(tally) => tallies.push(tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    let mut all = Tally::new()?;
    let mut issued = Vec::new();
    for tally in tallies {
        let mut tally = tally.context("a ring does not work any more")?;
        all.merge(&tally)?;
        issued.push(std::mem::take(&mut tally.issued));
    }
    let counted = start + plan.manner.warmup;
    let end = all.last.unwrap_or(counted).max(counted);
    let complete = all.unsent == 0;
    Ok(Done { tally: all, issued, start, counted, end, complete })
}

/// Writes everything once: reading a hole would cost no I/O.
///
/// # Errors
/// When the file cannot be written, or somebody wants to end.
pub fn fill(plan: &Plan, bar: &ProgressBar) -> Result<()> {
    let file = plan.target.file.clone();
    let name = plan.place.name();
    write_all(file, plan.target.bytes, plan.manner.seed, bar)?.map_or(Ok(()), |error| {
        Err(anyhow::Error::from(error).context(Unwritten(format!("{name} to fill it"))))
    })
}

/// The kernel's error, if there was one.
fn write_all(
    file: Arc<File>,
    bytes: u64,
    seed: u64,
    bar: &ProgressBar,
) -> Result<Option<std::io::Error>> {
    let mut number = 0x8000_0000;
    let mut queue = FileQueue::new(file, PIECES, PIECE as usize, |buffer| {
        number += 1;
        buffer.copy_from_slice(&noise(seed, number, buffer.len()));
    })?;
    let (mut at, mut error) = (0, None);
    while at < bytes || queue.in_flight() > 0 {
        while at < bytes && error.is_none() && !queue.is_full() {
            let length = PIECE.min(bytes - at);
            let stamp = |data: &mut [u8]| content::stamp(data, at);
            queue.push(Call::Write { durable: false }, at, length, stamp);
            at += length;
        }
        if interrupt::asked() {
            return Err(Interrupted.into());
        }
        queue.wait(Some(TICK))?;
        while let Some(answer) = queue.next() {
            match answer.result {
                Ok(moved) => bar.inc(moved.into()),
                Err(failed) => (at, error) = (bytes, Some(failed)),
            }
        }
    }
    queue.push(Call::Sync, 0, 0, |_| ());
    while queue.in_flight() > 0 {
        queue.wait(Some(TICK))?;
        while let Some(answer) = queue.next() {
            error = error.or(answer.result.err());
        }
    }
    Ok(error)
}

/// Drops what the kernel holds of the target, and all its other caches where that is asked for;
/// returns what was done.
pub fn drop_caches(plan: &Plan, all: bool, sys: &Sys) -> String {
    let file = &plan.target.file;
    // Only clean pages go.
    let _ = rustix::fs::fdatasync(file);
    let own = fadvise(file, 0, None, Advice::DontNeed);
    let own = match own {
        Ok(()) => "the target's pages dropped".to_owned(),
        Err(error) => format!("the target's pages not dropped: {error}"),
    };
    if !all {
        return own;
    }
    rustix::fs::sync();
    match sys.write("proc/sys/vm/drop_caches", "3") {
        Ok(()) => "all caches of the kernel dropped".to_owned(),
        Err(absent) => format!("{own}; the kernel's other caches not dropped: {absent}"),
    }
}
