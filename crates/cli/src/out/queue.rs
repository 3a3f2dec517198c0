//! Lines that nobody waits for: a thread writes them, and what it cannot keep up with is lost and
//! counted. Who controls a machine must not depend on who reads its log.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// So many bytes wait at most: minutes of all that a large machine can say.
const MOST: usize = 1 << 20;

/// The writer's stack: it only writes.
const STACK: usize = 64 << 10;

/// A stream with its own writer.
pub struct Queue {
    name: &'static str,
    parts: Sender<Part>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Bytes that wait.
    waiting: AtomicUsize,
    /// Lines that were lost, and how many of them were told of.
    lost: AtomicU64,
    told: AtomicU64,
    /// Whether the last write failed.
    fails: AtomicBool,
}

enum Part {
    /// Whole lines.
    Lines(String),
    /// Everything before it has been tried.
    End(std::sync::mpsc::SyncSender<()>),
}

impl Queue {
    /// Writes to `to`, which is called `name`.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn new(name: &'static str, to: File) -> io::Result<Self> {
        let (parts, received) = channel();
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let writer = thread::Builder::new().name("ebb log".to_owned()).stack_size(STACK);
        writer.spawn(move || write(to, &received, &own))?;
        Ok(Self { name, parts, shared })
    }

    /// Hands whole lines over; they are lost where too many wait.
    pub fn say(&self, lines: String) {
        debug_assert!(lines.is_empty() || lines.ends_with('\n'), "half a line: {lines:?}");
        let Shared { waiting, lost, .. } = &*self.shared;
        let count = lines_of(&lines);
        let length = lines.len();
        if waiting.fetch_add(length, Ordering::Relaxed) + length > MOST
            || self.parts.send(Part::Lines(lines)).is_err()
        {
            waiting.fetch_sub(length, Ordering::Relaxed);
            lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// How many lines were lost so far, where that is news and can be told.
    pub fn lost(&self) -> Option<u64> {
        let Shared { waiting, lost, told, fails } = &*self.shared;
        let can = waiting.load(Ordering::Relaxed) < MOST / 2 && !fails.load(Ordering::Relaxed);
        let lost = lost.load(Ordering::Relaxed);
        (can && told.swap(lost, Ordering::Relaxed) != lost).then_some(lost)
    }

    /// Waits until `deadline` for what is still to be written; says how many lines were lost
    /// in all.
    pub fn finish(&self, deadline: Instant) -> Option<String> {
        let (done, is_done) = sync_channel(1);
        let left = deadline.saturating_duration_since(Instant::now());
        let in_time =
            self.parts.send(Part::End(done)).is_ok() && is_done.recv_timeout(left).is_ok();
        let late = if in_time { "" } else { "; its reader does not read" };
        match self.shared.lost.load(Ordering::Relaxed) {
            0 if in_time => None,
            0 => Some(format!("the end of {} may be lost{late}", self.name)),
            lost => Some(format!("{lost} lines of {} were lost{late}", self.name)),
        }
    }
}

/// Writes what comes. A reader that has gone loses all the rest, which is no loss to anybody.
fn write(mut to: File, parts: &Receiver<Part>, shared: &Shared) {
    let mut is_read = true;
    // Whether the last line was cut off.
    let mut is_torn = false;
    for part in parts {
        let lines = match part {
            Part::Lines(lines) => lines,
            Part::End(done) => {
                let _ = done.send(());
                continue;
            }
        };
        if is_read {
            let written = whole(&mut to, &lines, &mut is_torn);
            shared.fails.store(written.is_err(), Ordering::Relaxed);
            match written {
                Err((error, _)) if error.kind() == ErrorKind::BrokenPipe => is_read = false,
                // A full disk, say.
                Err((_, left)) => drop(shared.lost.fetch_add(left, Ordering::Relaxed)),
                Ok(()) => {}
            }
        }
        shared.waiting.fetch_sub(lines.len(), Ordering::Relaxed);
    }
}

/// Writes all of `lines`, on a line of their own.
///
/// # Errors
/// Why not, and how many lines are not there in whole.
fn whole(to: &mut File, lines: &str, is_torn: &mut bool) -> Result<(), (io::Error, u64)> {
    let mut left = lines.as_bytes();
    let mut put = |bytes: &[u8]| match to.write(bytes) {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        other => other,
    };
    let failed = |error, left: &[u8]| {
        let count = left.iter().filter(|byte| **byte == b'\n').count();
        Err((error, count as u64))
    };
    while *is_torn {
        match put(b"\n") {
            Ok(_) => *is_torn = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return failed(error, left),
        }
    }
    while !left.is_empty() {
        match put(left) {
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Somebody else made it so, the shell that started it say.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                *is_torn = lines.as_bytes()[..lines.len() - left.len()].last() != Some(&b'\n')
                    && left.len() < lines.len();
                return failed(error, left);
            }
        }
    }
    Ok(())
}

fn lines_of(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    #[test]
    fn a_reader_that_stalls_loses_lines_which_are_counted() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Queue::new("the log", File::from(OwnedFd::from(writer))).unwrap();
        let line = "x".repeat(1023) + "\n";
        for _ in 0..4096 {
            queue.say(line.clone());
        }
        assert_eq!(queue.lost(), None, "nobody could be told");
        let said = queue.finish(soon()).unwrap();
        assert!(said.contains("lines of the log were lost; its reader does not read"), "{said}");
        let lost: usize = said.split(' ').next().unwrap().parse().unwrap();
        // It reads again: what waited is there, whole.
        let mut bytes = vec![0; 1024 * (4096 - lost)];
        reader.read_exact(&mut bytes).unwrap();
        assert!(bytes.chunks(1024).all(|one| one == line.as_bytes()));
        queue.say("more\n".to_owned());
        let mut more = [0; 5];
        reader.read_exact(&mut more).unwrap();
        assert_eq!(&more, b"more\n");
    }

    #[test]
    fn a_full_disk_loses_lines_and_a_reader_that_has_gone_does_not() {
        let Ok(full) = File::options().write(true).open("/dev/full") else {
            return;
        };
        let queue = Queue::new("the log", full).unwrap();
        queue.say("one\ntwo\n".to_owned());
        queue.say("three\n".to_owned());
        assert_eq!(queue.finish(soon()).unwrap(), "3 lines of the log were lost");
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let queue = Queue::new("the log", File::from(OwnedFd::from(writer))).unwrap();
        queue.say("one\n".to_owned());
        assert_eq!(queue.finish(soon()), None);
    }
}
