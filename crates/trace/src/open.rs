//! From a path to a [`Reader`]: decompression by magic number, detection of the format.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use parquet::file::reader::ChunkReader;

use crate::format::{Format, Records, detect, parquet as own};
use crate::input::{Lines, Vscsi};
use crate::reader::Reader;
use crate::request::TraceError;

/// Bytes by which a format is detected.
const HEAD: usize = 1024;

/// How to read a trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// The format; detected where `None`.
    pub format: Option<Format>,
    /// Pass over malformed records and count them instead of stopping at the first.
    pub lenient: bool,
}

/// Opens a trace file, plain or compressed with gzip or zstd.
///
/// # Errors
/// When the file cannot be read, or its format is not known.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Reader, TraceError> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let io = |source| TraceError::Io { file: name.clone(), source };
    let mut file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.is_dir() {
        return Err(io(io::Error::new(io::ErrorKind::IsADirectory, "a directory, not a trace")));
    }
    let magic = head_of(&mut file, 4);
    if is_parquet(&magic.bytes, options) {
        return parquet(name, file, options);
    }
    stream(name, Box::new(magic.then(file)), options)
}

/// A trace that is in memory.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(name: &str, bytes: Vec<u8>, options: &OpenOptions) -> Result<Reader, TraceError> {
    if is_parquet(&bytes, options) {
        return parquet(name.to_owned(), bytes::Bytes::from(bytes), options);
    }
    stream(name.to_owned(), Box::new(Cursor::new(bytes)), options)
}

/// A trace that comes through a pipe; not for Parquet, whose index stands at the end.
///
/// # Errors
/// As [`open`].
pub fn open_stream(
    name: &str,
    from: impl Read + Send + 'static,
    options: &OpenOptions,
) -> Result<Reader, TraceError> {
    stream(name.to_owned(), Box::new(from), options)
}

fn is_parquet(magic: &[u8], options: &OpenOptions) -> bool {
    match options.format {
        Some(format) => format == Format::Parquet,
        None => magic.starts_with(b"PAR1"),
    }
}

fn parquet<R: ChunkReader + 'static>(
    name: String,
    from: R,
    options: &OpenOptions,
) -> Result<Reader, TraceError> {
    let records = own::Rows::open(from)
        .map_err(|reason| TraceError::Format { file: name.clone(), reason })?;
    Ok(Reader::new(name, Format::Parquet, Box::new(records), options.lenient))
}

fn stream(
    name: String,
    mut from: Box<dyn Read + Send>,
    options: &OpenOptions,
) -> Result<Reader, TraceError> {
    let magic = head_of(&mut from, 4);
    let packed = magic.bytes.clone();
    let mut plain = unpacked(&packed, Box::new(magic.then(from)))
        .map_err(|source| TraceError::Io { file: name.clone(), source })?;
    let head = head_of(&mut plain, HEAD);
    let format = match options.format {
        Some(format) => format,
        None => known(&name, &head)?,
    };
    let plain: Box<dyn Read + Send> = Box::new(head.then(plain));
    let records: Box<dyn Records> = match format.parser() {
        Some(parser) => Box::new(Lines::new(plain, parser)),
        None if format == Format::Vscsi => Box::new(Vscsi::new(plain)),
        None => {
            let reason = "a Parquet trace must be a file of its own, neither piped nor compressed \
                          from outside: its index stands at the end";
            return Err(TraceError::Format { file: name, reason: reason.to_owned() });
        }
    };
    Ok(Reader::new(name, format, records, options.lenient))
}

/// Undoes gzip (RFC 1952) or zstd (RFC 8878) where their magic numbers say so. Files of several
/// members or frames are read to the end.
fn unpacked(magic: &[u8], from: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(from))),
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            Box::new(zstd::stream::read::Decoder::new(from)?)
        }
        _ => from,
    })
}

fn known(name: &str, head: &Head) -> Result<Format, TraceError> {
    if let Some(format) = detect(&head.bytes, head.whole) {
        return Ok(format);
    }
    if let Some(error) = &head.error {
        let text = format!("{error}, within the first bytes: 0 requests were read");
        let source = io::Error::new(error.kind(), text);
        return Err(TraceError::Io { file: name.to_owned(), source });
    }
    let what = if head.bytes.is_empty() {
        "the file is empty"
    } else {
        "no known format fits its first lines"
    };
    let reason =
        format!("{what}; if it is a trace, name its format with --format: {}", Format::names());
    Err(TraceError::Format { file: name.to_owned(), reason })
}

/// The first bytes of a stream, and how reading them ended.
struct Head {
    bytes: Vec<u8>,
    whole: bool,
    error: Option<io::Error>,
}

fn head_of(from: &mut impl Read, size: usize) -> Head {
    let mut bytes = Vec::with_capacity(size);
    let error = from.by_ref().take(size as u64).read_to_end(&mut bytes).err();
    Head { whole: error.is_none() && bytes.len() < size, bytes, error }
}

impl Head {
    /// The stream as if its head had not been taken, with the error at the place where it was.
    fn then<R: Read + Send + 'static>(self, rest: R) -> impl Read + Send {
        Cursor::new(self.bytes).chain(Failing(self.error)).chain(rest)
    }
}

/// Fails once, or ends at once.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
