//! Reads a recording, whoever has written it: sizes are bounded, and what is cut or damaged is left
//! out and named.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::find_frame_compressed_size;

use super::{BLOCK, Entry, FORMAT, Header, RecordingError, VERSION, write};

/// No file has more bytes: four times what is written into one.
const FILE: u64 = 64 << 20;

/// A part of a file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Which file.
    pub file: String,
    /// From which byte of it on.
    pub at: usize,
    /// Why.
    pub why: String,
}

/// The blocks of the bytes of a file.
struct Blocks<'a> {
    bytes: &'a [u8],
    at: usize,
    decompressor: Decompressor<'static>,
}

/// The entries of a block, or where it begins and why it cannot be read.
type Block = Result<Entries, (usize, String)>;

impl<'a> Blocks<'a> {
    /// All of them.
    ///
    /// # Errors
    /// Out of memory.
    fn new(bytes: &'a [u8]) -> io::Result<Self> {
        Ok(Self { bytes, at: 0, decompressor: Decompressor::new()? })
    }
}

impl Iterator for Blocks<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let (at, rest) = (self.at, self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?);
        let size =
            find_frame_compressed_size(rest).ok().filter(|size| (1..=rest.len()).contains(size));
        let Some(size) = size else {
            // Where the next one begins is not known.
            self.at = self.bytes.len();
            return Some(Err((at, format!("{} bytes are no whole block", rest.len()))));
        };
        self.at += size;
        let raw = self.decompressor.decompress(&rest[..size], BLOCK);
        Some(raw.map(|raw| Entries { raw, at: 0 }).map_err(|error| (at, error.to_string())))
    }
}

/// The entries of a block; an error where what follows is none.
struct Entries {
    raw: Vec<u8>,
    at: usize,
}

impl Iterator for Entries {
    type Item = Result<Entry, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.raw.get(self.at..).filter(|rest| !rest.is_empty())?;
        let mut deserializer = rmp_serde::Deserializer::new(&mut rest);
        let entry = Entry::deserialize(&mut deserializer);
        self.at = self.raw.len() - rest.len();
        if entry.is_err() {
            self.at = self.raw.len();
        }
        Some(entry.map_err(|error| error.to_string()))
    }
}

/// What comes next.
#[derive(Debug)]
pub enum Item {
    /// Something recorded.
    Entry(Entry),
    /// Something that cannot be read, and is left out.
    Cut(Cut),
}

/// Reads a folder. An error is of a file that cannot be read, or that is of a version with which
/// nothing can be done.
pub struct Reader {
    files: std::vec::IntoIter<PathBuf>,
    count: usize,
    file: String,
    bytes: Vec<u8>,
    at: usize,
    block: Option<(usize, Entries)>,
}

impl Iterator for Reader {
    type Item = Result<Item, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

impl Reader {
    /// Of the recording in `folder`.
    ///
    /// # Errors
    /// Where there is none.
    pub fn open(folder: &Path) -> Result<Self, RecordingError> {
        let name = folder.display().to_string();
        let files = write::files(folder)
            .map_err(|source| RecordingError::Io { file: name.clone(), source })?;
        if files.is_empty() {
            return Err(RecordingError::None(name));
        }
        let files: Vec<_> = files.into_iter().map(|(_, path)| path).collect();
        let count = files.len();
        let (files, bytes) = (files.into_iter(), Vec::new());
        Ok(Self { files, count, file: name, bytes, at: 0, block: None })
    }

    /// How many files there are.
    #[must_use]
    pub fn files(&self) -> usize {
        self.count
    }

    /// The file that was read last.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    fn step(&mut self) -> Result<Option<Item>, RecordingError> {
        loop {
            if let Some((begins, entries)) = &mut self.block {
                match entries.next() {
                    Some(Ok(entry)) => {
                        if let Entry::Header(header) = &entry {
                            self.fits(header)?;
                        }
                        return Ok(Some(Item::Entry(entry)));
                    }
                    Some(Err(why)) => {
                        let at = *begins;
                        return Ok(Some(self.cut(at, why)));
                    }
                    None => self.block = None,
                }
            }
            if self.at >= self.bytes.len() {
                let Some(file) = self.files.next() else { return Ok(None) };
                self.file = file.display().to_string();
                self.bytes = self.whole(&file)?;
                self.at = 0;
                continue;
            }
            let begins = self.at;
            let failed = |source| RecordingError::Io { file: self.file.clone(), source };
            let mut blocks = Blocks::new(&self.bytes).map_err(failed)?;
            blocks.at = begins;
            let block = blocks.next();
            self.at = blocks.at;
            match block {
                Some(Ok(entries)) => self.block = Some((begins, entries)),
                Some(Err((at, why))) => return Ok(Some(self.cut(at, why))),
                None => {}
            }
        }
    }

    fn cut(&self, at: usize, why: String) -> Item {
        Item::Cut(Cut { file: self.file.clone(), at, why })
    }

    fn whole(&self, path: &Path) -> Result<Vec<u8>, RecordingError> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(FILE + 1).read_to_end(&mut bytes));
        read.map_err(|source| RecordingError::Io { file: self.file.clone(), source })?;
        match bytes.len() as u64 > FILE {
            true => Err(RecordingError::Large(self.file.clone())),
            false => Ok(bytes),
        }
    }

    /// Whether this build knows what it says.
    fn fits(&self, header: &Header) -> Result<(), RecordingError> {
        let own = Header::new("", None);
        let what = match header {
            Header { format, .. } if format != FORMAT => format!("as {format:?}"),
            Header { version, .. } if *version != VERSION => {
                format!("in form {version} where this one reads form {VERSION}")
            }
            Header { signals, .. } if *signals != own.signals => "which has other signals".into(),
            Header { controls, .. } if *controls != own.controls => {
                "which has other controls".into()
            }
            _ => return Ok(()),
        };
        Err(RecordingError::Version { file: self.file.clone(), ebb: header.of(), what })
    }
}
