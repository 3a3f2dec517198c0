//! Random reads of one disk, one after the other, by a thread of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use ebb_cli::random::Random;

/// Bytes of one read: little beside a seek, and one request to any disk.
pub const READ: u64 = 64 << 10;
/// What reads of one duty and of the next are apart: no read finds in the disk's cache what an
/// earlier one has left there.
const APART: u64 = 1 << 30;
/// What direct reads are aligned to in memory; no disk has larger blocks.
const ALIGNED: usize = 4096;

/// The places of reads: random, and for any attempt as far from one another as for any other, so
/// that all duties have the same seeks.
pub struct Places {
    random: Random,
    shift: u64,
    count: u64,
}

impl Places {
    /// Of disk number `disk`, which holds `bytes`, for the `attempt`-th time.
    pub fn new(seed: u64, disk: u64, attempt: u64, bytes: u64) -> Self {
        let shift = attempt.wrapping_mul(APART / READ);
        Self { random: Random::new(seed, disk), shift, count: (bytes / READ).max(1) }
    }

    fn next(&mut self) -> u64 {
        self.random.below(self.count).wrapping_add(self.shift) % self.count * READ
    }
}

/// Reads until it is stopped.
pub struct Reader {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    issued: AtomicU64,
    done: AtomicU64,
    error: OnceLock<String>,
}

impl Reader {
    /// Begins.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn begin(file: Arc<File>, places: Places) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        let thread = thread::Builder::new().spawn(move || own.read(&file, places))?;
        Ok(Self { shared, thread })
    }

    /// The read under way is the last one.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// Whether a read may be under way.
    pub fn is_busy(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Bytes asked for.
    pub fn issued(&self) -> u64 {
        self.shared.issued.load(Ordering::Acquire)
    }

    /// Bytes read.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Acquire)
    }

    /// Why it ended by itself.
    pub fn error(&self) -> Option<&String> {
        self.shared.error.get()
    }
}

impl Shared {
    fn read(&self, file: &File, mut places: Places) {
        let mut memory = vec![0; READ as usize + ALIGNED];
        let skip = memory.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        let buffer = &mut memory[skip..skip + READ as usize];
        while !self.stop.load(Ordering::Acquire) {
            let at = places.next();
            self.issued.fetch_add(READ, Ordering::AcqRel);
            if let Err(error) = file.read_exact_at(buffer, at) {
                let _ = self.error.set(format!("cannot read at {at}: {error}"));
                return;
            }
            self.done.fetch_add(READ, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn all_duties_have_the_same_seeks_and_no_place_twice() {
        let places = |attempt| {
            let mut places = Places::new(7, 0, attempt, 18 << 40);
            std::iter::repeat_with(move || places.next()).take(1000).collect::<Vec<_>>()
        };
        let (first, second) = (places(0), places(1));
        assert_eq!(first, places(0));
        let size = (18 << 40) / READ * READ;
        let shifted = first.iter().map(|at| (at + APART) % size);
        assert!(shifted.eq(second.iter().copied()));
        assert!(!first.iter().any(|at| second.contains(at)));
        assert!(first.iter().chain(&second).all(|at| at % READ == 0 && at + READ <= size));
    }

    #[test]
    fn it_reads_until_it_is_stopped_and_says_why_it_cannot() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * READ).unwrap();
        let begun = Instant::now();
        let until = |is: &dyn Fn() -> bool| {
            while !is() {
                assert!(begun.elapsed() < Duration::from_secs(20));
                thread::sleep(Duration::from_millis(1));
            }
        };
        let file = Arc::new(file);
        let reader = Reader::begin(file.clone(), Places::new(1, 0, 3, 4 * READ)).unwrap();
        until(&|| reader.done() >= 100 * READ);
        reader.stop();
        until(&|| !reader.is_busy());
        assert_eq!((reader.issued(), reader.error()), (reader.done(), None));
        let beyond = Reader::begin(file, Places::new(1, 0, 0, 400 * READ)).unwrap();
        until(&|| !beyond.is_busy());
        assert!(beyond.error().is_some_and(|error| error.contains("cannot read at")));
    }
}
