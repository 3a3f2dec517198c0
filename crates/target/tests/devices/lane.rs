//! The kernel before a simulated disk: calls are answered late and in any order.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use ebb_target::device::{Call, Channel, Device, FileChannel, Geometry, Kernel};
use rand::RngExt;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::disk::{Disk, Entry, SECTOR, State};

/// One channel's way to the disk.
struct Lane {
    state: Arc<Mutex<State>>,
    id: u64,
    queued: Vec<Entry>,
    /// Somebody waits for a completion.
    hurry: bool,
    /// Always readable: whoever waits looks again at once.
    fd: OwnedFd,
}

impl Kernel for Lane {
    fn push(&mut self, tag: u64, call: Call, offset: u64, length: u64, data: &mut [u8]) -> bool {
        let mut state = self.state.lock().unwrap();
        state.clock += 1;
        let (id, sector) = (state.clock, offset / SECTOR as u64);
        let result = if call == Call::Read { state.read(sector, data) } else { 0 };
        let kept = if let Call::Write { .. } = call { data.to_vec() } else { Vec::new() };
        let bytes = if kept.is_empty() { length } else { kept.len() as u64 };
        self.queued.push(Entry {
            lane: self.id,
            tag,
            id,
            call,
            sector,
            sectors: bytes / SECTOR as u64,
            data: kept,
            submitted: 0,
            ran: false,
            result,
        });
        true
    }

    fn submit(&mut self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let passing = state.faults.passing;
        if !self.queued.is_empty() && state.one_in(passing) {
            return Err(Errno::AGAIN.into());
        }
        state.clock += 1;
        let submitted = state.clock;
        let too_late = state.lost_power();
        state.under_way.extend(self.queued.drain(..).map(|entry| {
            let result = if too_late { -Errno::IO.raw_os_error() } else { entry.result };
            Entry { submitted, ran: too_late, result, ..entry }
        }));
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.hurry = true;
        self.submit()
    }

    fn next(&mut self) -> Option<(u64, i32)> {
        let mut state = self.state.lock().unwrap();
        state.lost_power();
        while self.hurry || state.random.random_range(0..4) > 0 {
            let mine = state.under_way.iter().zip(0..).filter(|(entry, _)| entry.lane == self.id);
            let mine: Vec<usize> = mine.map(|(_, at)| at).collect();
            if mine.is_empty() {
                return None;
            }
            let at = mine[state.random.random_range(0..mine.len())];
            let mut entry = state.under_way.swap_remove(at);
            if !entry.ran {
                entry.result = state.run(&entry);
                entry.ran = true;
            }
            if self.hurry || state.random.random() {
                self.hurry = false;
                state.answer(&entry);
                return Some((entry.tag, entry.result));
            }
            state.under_way.push(entry);
        }
        None
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }
    fn describe(&self) -> String {
        "a disk that may fail".to_owned()
    }
    fn open(&self) -> io::Result<Box<dyn Channel>> {
        let fd = eventfd(1, EventfdFlags::CLOEXEC)?;
        let mut state = self.state();
        state.clock += 1;
        let id = state.clock;
        let lane = Lane { state: self.state.clone(), id, queued: Vec::new(), hurry: false, fd };
        Ok(Box::new(FileChannel::new(lane, self.medium.clone())))
    }
}
