//! This machine as a [`Bench`].

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use ebb_cli::Interrupted;
use ebb_host::{Counters, Drive, Fan, HeldFans, Machine, State};

use super::bench::{Bench, DiskLook, LOOK, Look};
use super::disks::Disk;
use super::reader::{Places, Reader};
use crate::run::signals::Signals;

/// It.
pub struct Server<'a> {
    machine: &'a Machine,
    state: &'a State,
    fans: Vec<Fan>,
    disks: &'a [Disk],
    seed: u64,
    supervisor: UnixStream,
    signals: Signals,
    begun: Instant,
    held: Option<HeldFans<'a>>,
    readers: Vec<Reader>,
    /// The disks' counters when their readers began, or at the last look.
    base: Vec<Counters>,
}

impl<'a> Server<'a> {
    /// Nothing is set yet, nothing is read.
    ///
    /// # Errors
    /// Where signals cannot be watched, or a disk has no counters.
    pub fn new(
        machine: &'a Machine,
        state: &'a State,
        fans: Vec<Fan>,
        disks: &'a [Disk],
        seed: u64,
        supervisor: UnixStream,
    ) -> Result<Self> {
        let signals = Signals::watch().context("cannot watch for signals")?;
        let mut new = Self {
            machine,
            state,
            fans,
            disks,
            seed,
            supervisor,
            signals,
            begun: Instant::now(),
            held: None,
            readers: Vec::new(),
            base: Vec::new(),
        };
        new.base = new.counters()?;
        Ok(new)
    }

    fn counters(&self) -> Result<Vec<Counters>> {
        let counters = self.disks.iter().map(|disk| disk.drive.counters(&self.machine.sys));
        let counters = counters.collect::<Result<Vec<_>, _>>();
        counters.context("users' I/O cannot be seen any more")
    }

    /// What of disk `at` is its reader's, and what is not.
    fn disk(&self, at: usize, now: &Counters) -> Result<DiskLook> {
        let reader = self.readers.get(at);
        if let Some(error) = reader.and_then(Reader::error) {
            let name = &self.disks[at].drive.name;
            return Err(anyhow!("{name}: {error}; leave it out: name others with --disk"));
        }
        // Later than the counters: what these count of ours was asked for by then.
        let issued = reader.map_or(0, Reader::issued);
        let foreign = now.since(&self.base[at]).is_none_or(|since| {
            since.writes > 0 || since.read_bytes > issued || reader.is_none() && since.in_flight > 0
        });
        Ok(DiskLook {
            read: reader.map_or(0, Reader::done),
            is_busy: reader.is_some_and(Reader::is_busy),
            foreign,
        })
    }
}

impl Bench for Server<'_> {
    fn set(&mut self, duty: f64) -> Result<f64> {
        let held = match self.held.take() {
            Some(held) => held,
            None => {
                // NVMe drives are cooled by the same fans. Other disks sleep, maybe.
                let nvme = self.machine.drives.iter().filter(|drive| drive.controller.is_some());
                let drives: Vec<&Drive> =
                    nvme.chain(self.disks.iter().map(|disk| &disk.drive)).collect();
                HeldFans::take(self.machine, self.state, &self.fans, &drives)?
            }
        };
        Ok(self.held.insert(held).set(duty)?)
    }

    fn read(&mut self, attempt: u64) -> Result<()> {
        self.base = self.counters()?;
        let reader = |(at, disk): (usize, &Disk)| {
            let places = Places::new(self.seed, at as u64, attempt, disk.target.bytes);
            Reader::begin(disk.target.file.clone(), places)
        };
        let readers = self.disks.iter().enumerate().map(reader).collect::<Result<_, _>>();
        self.readers = readers.context("no thread to read with")?;
        Ok(())
    }

    fn stop(&mut self) {
        self.readers.iter().for_each(Reader::stop);
    }

    fn look(&mut self) -> Result<Look> {
        if !self.signals.wait(LOOK, Some(&self.supervisor), None)? {
            return Err(Interrupted.into());
        }
        let _ = self.supervisor.write_all(b"measuring\n");
        let speeds = self.held.as_mut().map(HeldFans::look).transpose()?.unwrap_or_default();
        let counters = self.counters()?;
        let disks = counters.iter().enumerate().map(|(at, now)| self.disk(at, now));
        let disks = disks.collect::<Result<Vec<_>>>()?;
        let at = self.begun.elapsed();
        if self.readers.is_empty() {
            self.base = counters;
        }
        Ok(Look { at, speeds, disks })
    }

    fn release(&mut self) -> Result<()> {
        self.stop();
        // One that the disk keeps ends when it answers.
        self.readers.clear();
        Ok(self.held.take().map_or(Ok(()), HeldFans::give_back)?)
    }
}
