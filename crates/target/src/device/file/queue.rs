//! Requests in flight on one open file, answered as the kernel answers them: nothing is tried
//! again, taken apart or renamed. For measuring; data that must not be lost goes through
//! [`super::FileChannel`].

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::super::{Buffer, Pool};
use super::kernel::{Call, Kernel};
use super::ring::Ring;

/// A ring on a file, and a buffer for each request that can be in flight.
pub struct FileQueue {
    ring: Ring,
    buffers: Vec<Buffer>,
    free: Vec<u32>,
}

/// A request was answered.
#[derive(Debug)]
pub struct Answer {
    /// Which one: what [`FileQueue::push`] returned.
    pub slot: u32,
    /// Bytes moved, or the kernel's error.
    pub result: io::Result<u32>,
}

impl FileQueue {
    /// For `depth` requests of at most `bytes` each; `fill` is given each buffer once, for what
    /// writes are to write.
    ///
    /// # Errors
    /// When the system refuses a ring.
    pub fn new(
        file: Arc<File>,
        depth: u32,
        bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> io::Result<Self> {
        let mut ring = Ring::new(depth, file)?;
        let pool = Pool::new(depth, bytes)?;
        ring.register(&pool);
        let mut buffers: Vec<_> = std::iter::from_fn(|| pool.take(bytes)).collect();
        buffers.iter_mut().for_each(|buffer| fill(buffer));
        Ok(Self { ring, buffers, free: (0..depth).rev().collect() })
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.buffers.len() - self.free.len()
    }

    /// Whether no more can be taken before one is answered.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Queues `call` on `length` bytes from `offset` on, to be sent by [`FileQueue::submit`] or a
    /// wait; `prepare` may change what a write writes. `None`: the queue is full.
    ///
    /// # Panics
    /// When a read or write is longer than the buffers.
    pub fn push(
        &mut self,
        call: Call,
        offset: u64,
        length: u64,
        prepare: impl FnOnce(&mut [u8]),
    ) -> Option<u32> {
        let slot = self.free.pop()?;
        let buffer = &mut self.buffers[slot as usize];
        let moves = matches!(call, Call::Read | Call::Write { .. });
        buffer.window(0..if moves { length as usize } else { 0 });
        prepare(buffer);
        if self.ring.push(slot.into(), call, offset, length, buffer) {
            return Some(slot);
        }
        self.free.push(slot);
        None
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// When the kernel takes nothing now; what is queued stays queued.
    pub fn submit(&mut self) -> io::Result<()> {
        passing(self.ring.submit())
    }

    /// Sends what is queued and waits for an answer, no longer than `limit`.
    ///
    /// # Errors
    /// As for [`FileQueue::submit`].
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        passing(match limit {
            Some(limit) => self.ring.wait_for(limit),
            None => self.ring.wait(),
        })
    }

    /// The next answer, if one is there.
    #[allow(clippy::should_implement_trait)] // Not an iterator: answers come later.
    pub fn next(&mut self) -> Option<Answer> {
        let (tag, result) = self.ring.next()?;
        let slot = tag as u32;
        self.free.push(slot);
        let result = u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Some(Answer { slot, result })
    }
}

/// Neither a signal, nor the end of the time, nor a lack of memory that will pass, is an error.
fn passing(result: io::Result<()>) -> io::Result<()> {
    match result.as_ref().map_err(Errno::from_io_error) {
        Err(Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY)) => Ok(()),
        _ => result,
    }
}

impl Drop for FileQueue {
    fn drop(&mut self) {
        // The kernel may still write to the buffers: they must not go back before it is done.
        while self.in_flight() > 0 {
            if self.wait(None).is_err() {
                std::mem::forget(std::mem::take(&mut self.buffers));
                return;
            }
            while self.next().is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn answers(queue: &mut FileQueue, count: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        while answers.len() < count {
            queue.wait(Some(Duration::from_secs(5))).unwrap();
            answers.extend(std::iter::from_fn(|| queue.next()));
        }
        answers
    }

    #[test]
    fn what_is_written_stands_in_the_file_and_errors_are_the_kernel_s() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let mut reader = file.try_clone().unwrap();
        let mut queue = FileQueue::new(Arc::new(file), 2, 4096, |buffer| buffer.fill(3)).unwrap();
        let write = Call::Write { durable: false };
        let slot = queue.push(write, 4096, 4096, |data| data[0] = 9).unwrap();
        assert!(queue.push(Call::Read, 1 << 40, 4096, |_| ()).is_some());
        assert!(queue.is_full() && queue.push(Call::Sync, 0, 0, |_| ()).is_none());
        let answers = answers(&mut queue, 2);
        let of = |slot| answers.iter().find(|answer| answer.slot == slot).unwrap();
        assert_eq!(of(slot).result.as_ref().unwrap(), &4096);
        assert_eq!(of(1 - slot).result.as_ref().unwrap(), &0, "beyond the end");
        assert_eq!(queue.in_flight(), 0);
        use std::io::{Read, Seek};
        let mut bytes = Vec::new();
        reader.rewind().unwrap();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes[4095], bytes[4096], bytes[4097], bytes.len()), (7, 9, 3, 8192));
    }

    #[test]
    fn a_file_that_may_only_be_read_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(file.path()).unwrap();
        let mut queue = FileQueue::new(Arc::new(file), 1, 4096, |_| ()).unwrap();
        queue.push(Call::Write { durable: false }, 0, 4096, |_| ()).unwrap();
        let error = answers(&mut queue, 1).pop().unwrap().result.unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::BADF));
    }
}
