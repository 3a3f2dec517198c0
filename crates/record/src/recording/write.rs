//! Writes a recording.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ebb_policy::units::{Bytes, Nanos};
use ebb_policy::{Control, Cycled, Given as Held};
use serde::Serialize;
use zstd::bulk::Compressor;

use super::{Begun, ENDING, Entry, Found, Frame, Given, Header, Made, Note, refused, sourced};

/// A block is written when it has so many bytes, or is of so much time: a crash costs no more.
const BLOCK: usize = 1 << 20;
const EVERY: Nanos = Nanos::from_secs(60);
/// A file has no more bytes, and no more than this share of what is kept of all.
const FILE: u64 = 16 << 20;
const SHARE: u64 = 8;
/// zstd's own default.
const LEVEL: i32 = 3;

/// Writes a recording into a folder. What cannot be written is lost: its cycles are a gap then.
pub struct Writer {
    folder: PathBuf,
    keep: Bytes,
    file: Option<(File, u64)>,
    compressor: Compressor<'static>,
    header: Vec<u8>,
    begun: Option<(Begun, Vec<u8>)>,
    made: Option<Made>,
    block: Vec<u8>,
    cycles: u64,
    waited: Nanos,
    last: Vec<Held<f64>>,
    lost: u64,
    blocks: u64,
}

fn bytes(entry: &impl Serialize) -> io::Result<Vec<u8>> {
    rmp_serde::to_vec_named(entry).map_err(io::Error::other)
}

/// Our files in `folder`, by number.
pub(super) fn files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_suffix(ENDING)?.strip_suffix('.'));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

impl Writer {
    /// Into `folder`, which is made where it is not there, with a new file; the oldest files are
    /// deleted where all together have more than `keep`. Nothing is written yet.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(folder: &Path, keep: Bytes, header: Header) -> io::Result<Self> {
        let mut compressor = Compressor::new(LEVEL)?;
        compressor.include_checksum(true)?;
        Ok(Self {
            folder: folder.to_owned(),
            keep,
            file: None,
            compressor,
            header: bytes(&Entry::Header(header))?,
            begun: None,
            made: None,
            block: Vec::new(),
            cycles: 0,
            waited: Nanos::ZERO,
            last: Vec::new(),
            lost: 0,
            blocks: 0,
        })
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// Where it cannot be had.
    pub fn ready(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        files(&self.folder).map(drop)
    }

    /// How many blocks were written so far.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many cycles could not be written so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Says what the cycles from now on are of.
    ///
    /// # Errors
    /// When the block before cannot be written.
    pub fn begun(&mut self, begun: Begun) -> io::Result<()> {
        let done = self.flush();
        let told = bytes(&Entry::Begun(Box::new(begun.clone())))?;
        (self.begun, self.made) = (Some((begun, told)), None);
        done
    }

    /// Says what the cycles from now on go by.
    ///
    /// # Errors
    /// Never so far.
    pub fn made(&mut self, made: Made) -> io::Result<()> {
        if !self.block.is_empty() {
            self.block.extend(bytes(&Entry::Made(made.clone()))?);
        }
        self.made = Some(made);
        Ok(())
    }

    /// Says that something happened.
    ///
    /// # Errors
    /// Never so far.
    pub fn note(&mut self, at: Nanos, text: &str) -> io::Result<()> {
        let note = bytes(&Entry::Note(Note { at, text: text.to_owned() }))?;
        self.begin()?;
        self.block.extend(note);
        Ok(())
    }

    /// Begins a block, where none is begun.
    fn begin(&mut self) -> io::Result<()> {
        if !self.block.is_empty() {
            return Ok(());
        }
        self.block.extend(&self.header);
        self.block.extend(self.begun.iter().flat_map(|(_, told)| told));
        if let Some(made) = &self.made {
            self.block.extend(bytes(&Entry::Made(made.clone()))?);
        }
        self.last.clear();
        Ok(())
    }

    /// Adds the cycle with this `number`, with what was `found` where its signals are what would
    /// have been, and writes the block where it is due.
    ///
    /// # Errors
    /// When a block cannot be written: it is lost.
    pub fn frame(
        &mut self,
        number: u64,
        unix_s: f64,
        late: Nanos,
        cycled: &Cycled<'_>,
        found: Option<&Found>,
    ) -> io::Result<()> {
        let Some((Begun { topology, .. }, _)) = &self.begun else { return Ok(()) };
        let signals = cycled.signals.clone();
        let frame = Frame {
            number,
            unix_s,
            late,
            sources: sourced(&signals),
            refused: refused(cycled.applied, topology),
            emergency: cycled.in_force.emergency,
            native: cycled.native.map(str::to_owned),
            given: Vec::new(),
            found: found.cloned().map(Box::new),
            signals,
        };
        self.begin()?;
        let is_first = self.last.is_empty();
        let frame = Entry::Frame(Box::new(Frame { given: self.given(cycled), ..frame }));
        let done = match is_first {
            true => rmp_serde::encode::write_named(&mut self.block, &frame),
            false => rmp_serde::encode::write(&mut self.block, &frame),
        };
        done.map_err(io::Error::other)?;
        self.cycles += 1;
        self.waited += cycled.signals.period;
        let is_due = self.block.len() >= BLOCK || self.waited >= EVERY;
        if is_due { self.flush() } else { Ok(()) }
    }

    /// What has changed of what is in force.
    fn given(&mut self, cycled: &Cycled<'_>) -> Vec<Given> {
        let mut changed = Vec::new();
        let mut place = 0;
        for control in Control::ALL {
            for part in 0..cycled.in_force.count(*control) {
                let held = cycled.in_force.at(*control, part);
                if self.last.get(place).is_none_or(|last| !is_same(last, &held)) {
                    let Held { asked, given, reason } = held;
                    let (control, part, reason) = (*control as u8, part as u16, reason.to_owned());
                    changed.push(Given { control, part, asked, given, reason });
                }
                match self.last.get_mut(place) {
                    Some(last) => *last = held,
                    None => self.last.push(held),
                }
                place += 1;
            }
        }
        changed
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// When it cannot: it is lost.
    pub fn flush(&mut self) -> io::Result<()> {
        let block = std::mem::take(&mut self.block);
        let cycles = std::mem::take(&mut self.cycles);
        self.waited = Nanos::ZERO;
        if block.is_empty() {
            return Ok(());
        }
        let done = self.compressor.compress(&block).and_then(|block| self.write(&block));
        if done.is_err() {
            self.lost += cycles;
            // It may end in the middle of a block now.
            self.file = None;
        }
        done
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        let (most, more) = (FILE.min(self.keep.0 / SHARE), block.len() as u64);
        let (file, size) = match &mut self.file {
            Some((file, size)) if *size + more <= most => (file, size),
            _ => {
                self.file = None;
                self.ready()?;
                self.make_room()?;
                let (file, size) = self.file.insert((self.create()?, 0));
                (file, size)
            }
        };
        file.write_all(block)?;
        file.sync_data()?;
        *size += more;
        self.blocks += 1;
        Ok(())
    }

    /// A new file.
    fn create(&self) -> io::Result<File> {
        let mut next = files(&self.folder)?.last().map_or(1, |(number, _)| number + 1);
        loop {
            let path = self.folder.join(format!("{next:08}.{ENDING}"));
            match OpenOptions::new().write(true).create_new(true).open(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => next += 1,
                made => return made,
            }
        }
    }

    /// Deletes the oldest files, so that a further one has room.
    fn make_room(&self) -> io::Result<()> {
        let files = files(&self.folder)?;
        let sizes: Vec<u64> = files
            .iter()
            .map(|(_, path)| path.metadata().map(|file| file.len()))
            .collect::<io::Result<_>>()?;
        let mut sum: u64 = sizes.iter().sum();
        let room = self.keep.0 - self.keep.0 / SHARE;
        for ((_, path), size) in files.iter().zip(sizes) {
            if sum <= room {
                break;
            }
            fs::remove_file(path)?;
            sum -= size;
        }
        Ok(())
    }
}

/// Whether two are the same to the bit.
pub(super) fn is_same(one: &Held<f64>, other: &Held<f64>) -> bool {
    let bits = |of: Option<f64>| of.map(f64::to_bits);
    let of = |held: &Held<f64>| (bits(held.asked), bits(held.given));
    of(one) == of(other) && one.reason == other.reason
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Who cares has called it before.
        let _ = self.flush();
    }
}
