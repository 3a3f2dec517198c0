//! One source of requests for several readers at once: a pipe can be read only once.
//!
//! Each batch is kept until every reader has had it. The readers go at about the same pace: the
//! first waits for the last where it is too far ahead, so that memory stays flat.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;

use ebb_trace::{Request, Source, TraceError};

use crate::interrupt;

/// Batches that the first reader may be ahead of the last.
const AHEAD: usize = 256;
/// How long a reader waits between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(100);

/// A source to be read by a known number of readers, with what goes with it.
pub struct Flow<W> {
    shared: Arc<Shared>,
    about: Mutex<Option<W>>,
}

struct Shared {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    /// `None` before the start and while somebody reads from it.
    source: Option<Box<dyn Source>>,
    batches: VecDeque<Arc<Vec<Request>>>,
    /// Number of the first batch that is kept.
    first: usize,
    /// The batch that each reader wants next; `None` of one that has left.
    places: Vec<Option<usize>>,
    /// Readers that have not come yet.
    missing: usize,
    /// Nothing more comes, perhaps because of an error.
    end: Option<Option<TraceError>>,
}

impl<W: Clone> Flow<W> {
    /// For so many readers.
    pub fn new(readers: usize) -> Self {
        let state = State {
            source: None,
            batches: VecDeque::new(),
            first: 0,
            places: Vec::new(),
            missing: readers,
            end: None,
        };
        let shared = Shared { state: Mutex::new(state), moved: Condvar::new() };
        Self { shared: Arc::new(shared), about: Mutex::new(None) }
    }

    /// Opens the source where that was not done yet.
    ///
    /// # Errors
    /// What opening says.
    pub fn begin(&self, open: impl FnOnce() -> Result<(Box<dyn Source>, W)>) -> Result<W> {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(about) = &*about {
            return Ok(about.clone());
        }
        let (source, new) = open()?;
        self.shared.lock().source = Some(source);
        Ok(about.insert(new).clone())
    }

    /// One of the readers; the source has begun.
    pub fn reader(&self) -> Box<dyn Source> {
        let mut state = self.shared.lock();
        state.missing = state.missing.saturating_sub(1);
        let first = state.first;
        state.places.push(Some(first));
        Box::new(Reader { shared: self.shared.clone(), index: state.places.len() - 1 })
    }

    /// Nobody waits any more for readers that have not come yet.
    pub fn go_on(&self) {
        let mut state = self.shared.lock();
        state.missing = 0;
        state.drop_passed();
        self.shared.moved.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops the batches that every reader has had.
    fn drop_passed(&mut self) {
        if self.missing > 0 {
            return;
        }
        let kept = self.places.iter().flatten().min().copied();
        let passed = kept.map_or(self.batches.len(), |kept| kept - self.first);
        self.batches.drain(..passed);
        self.first += passed;
    }
}

struct Reader {
    shared: Arc<Shared>,
    index: usize,
}

impl Source for Reader {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let Shared { moved, .. } = &*self.shared;
        let mut state = self.shared.lock();
        loop {
            let Some(place) = state.places[self.index] else { return Ok(()) };
            if let Some(found) = state.batches.get(place - state.first).cloned() {
                state.places[self.index] = Some(place + 1);
                state.drop_passed();
                moved.notify_all();
                drop(state);
                batch.extend_from_slice(&found);
                return Ok(());
            }
            if let Some(end) = &state.end {
                return end.as_ref().map_or(Ok(()), |error| Err(error.again()));
            }
            if state.batches.len() < AHEAD
                && let Some(mut source) = state.source.take()
            {
                drop(state);
                let mut new = Vec::new();
                let read = source.fill(&mut new);
                state = self.shared.lock();
                state.source = Some(source);
                if new.is_empty() || read.is_err() {
                    state.end = Some(read.err());
                }
                if !new.is_empty() {
                    state.batches.push_back(Arc::new(new));
                }
                moved.notify_all();
                continue;
            }
            if interrupt::asked() {
                let source = io::ErrorKind::Interrupted.into();
                return Err(TraceError::Io { file: "reading".to_owned(), source });
            }
            let waited = moved.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.places[self.index] = None;
        state.drop_passed();
        self.shared.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_trace::{OpenOptions, open_bytes};

    /// More batches than a reader may be ahead.
    const COUNT: usize = (AHEAD + 20) * 4096;

    fn flow(readers: usize, end: &str) -> Flow<()> {
        let lines = (0..COUNT).map(|at| format!("0,R,{},512,{at}\n", at * 512));
        let text = lines.collect::<String>() + end;
        let flow = Flow::new(readers);
        let open =
            || Ok((Box::new(open_bytes("t", text.into(), &OpenOptions::default())?) as _, ()));
        flow.begin(open).unwrap();
        flow
    }

    fn read(mut reader: Box<dyn Source>) -> Result<usize, String> {
        let (mut batch, mut count) = (Vec::new(), 0);
        loop {
            batch.clear();
            reader.fill(&mut batch).map_err(|error| error.to_string())?;
            if batch.is_empty() {
                return Ok(count);
            }
            assert_eq!(batch[0].offset, count as u64 * 512);
            count += batch.len();
        }
    }

    #[test]
    fn all_readers_have_all_and_little_is_kept() {
        let flow = flow(3, "");
        let leaver = flow.reader();
        std::thread::scope(|scope| {
            let others = [flow.reader(), flow.reader()].map(|one| scope.spawn(|| read(one)));
            drop(leaver);
            for other in others {
                assert_eq!(other.join().unwrap(), Ok(COUNT));
            }
        });
        assert!(flow.shared.lock().batches.is_empty());
    }

    #[test]
    fn an_error_reaches_every_reader_and_nobody_waits_for_who_does_not_come() {
        let flow = flow(3, "x\n");
        let readers = [flow.reader(), flow.reader()];
        flow.go_on();
        std::thread::scope(|scope| {
            for one in readers.map(|one| scope.spawn(|| read(one))) {
                let error = one.join().unwrap().unwrap_err();
                assert!(error.starts_with(&format!("t:{}: ", COUNT + 1)), "{error}");
            }
        });
    }
}
