//! From a path to a [`Reader`]: decompression by magic number, detection of the format.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use parquet::file::reader::ChunkReader;

use crate::files::{self, Patient};
use crate::foreign;
use crate::format::field::{is_comment, is_heading, shown};
use crate::format::{
    Columns, Detected, Format, Nearest, Records, detect, nearest, parquet as own, vscsi,
};
use crate::gzip::Gzip;
use crate::input::{Lines, Vscsi};
use crate::reader::{Reader, told};
use crate::request::{Source, TraceError};

/// Bytes by which a format is detected, behind the comments at the start.
const HEAD: usize = 1024;
/// Comments that are passed over for that.
const PREFACE: usize = 256 << 10;
/// The name of standard input.
pub const STDIN: &str = "-";

/// How to read a trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// The format; detected where `None`.
    pub format: Option<Format>,
    /// What the columns of a delimited text are, instead of a format.
    pub columns: Option<Columns>,
    /// Pass over malformed records and count them instead of stopping at the first.
    pub lenient: bool,
}

/// Opens a trace file, plain or compressed with gzip or zstd; `-` is standard input.
///
/// # Errors
/// When the file cannot be read, or its format is not known.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Reader, TraceError> {
    let path = path.as_ref();
    if path == Path::new(STDIN) {
        let name = "standard input".to_owned();
        let from = Patient::stdin();
        let from = from.map_err(|source| TraceError::Io { file: name.clone(), source })?;
        return stream(name, Box::new(from), options);
    }
    let name = path.display().to_string();
    let file = files::open(path).map_err(|source| TraceError::Io { file: name.clone(), source })?;
    open_file(&name, file, options)
}

/// A trace file opened by [`files::open`]; `name` is for messages.
///
/// # Errors
/// As [`open`].
pub fn open_file(name: &str, mut file: File, options: &OpenOptions) -> Result<Reader, TraceError> {
    let name = name.to_owned();
    let io = |source| TraceError::Io { file: name.clone(), source };
    let kind = file.metadata().map_err(io)?.file_type();
    if kind.is_dir() {
        return Err(io(io::Error::new(io::ErrorKind::IsADirectory, "a directory, not a trace")));
    }
    if !kind.is_file() {
        return stream(name, Box::new(Patient(file)), options);
    }
    let magic = head_of(&mut file, 4);
    if is_parquet(&magic.bytes, options) {
        return parquet(name, file, options);
    }
    stream(name, Box::new(magic.then(Patient(file))), options)
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

/// Whether a trace that begins with `head` and goes on can be read at all: an early answer before
/// much is done with it.
///
/// # Errors
/// What is wrong with its form, or with one of the requests in `head`.
pub fn check_start(name: &str, head: Vec<u8>, options: &OpenOptions) -> Result<(), TraceError> {
    if is_parquet(&head, options) {
        return Ok(());
    }
    let goes_on = Failing(Some(io::Error::other("more comes")));
    let from = Cursor::new(head).chain(goes_on);
    let checked = stream(name.to_owned(), Box::new(from), options)
        .and_then(|mut reader| reader.fill(&mut Vec::new()));
    match checked {
        Err(TraceError::Io { .. }) => Ok(()),
        checked => checked,
    }
}

fn is_parquet(magic: &[u8], options: &OpenOptions) -> bool {
    match options.format {
        _ if options.columns.is_some() => false,
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
    from: Box<dyn Read + Send>,
    options: &OpenOptions,
) -> Result<Reader, TraceError> {
    let (mut head, mut plain) = begun(&name, from)?;
    while !head.whole && head.error.is_none() && head.bytes.len() < PREFACE {
        let needed = (preface(&head.bytes) + HEAD).saturating_sub(head.bytes.len());
        if needed == 0 {
            break;
        }
        let more = head_of(&mut plain, needed);
        head = head.and(more);
    }
    let binary = options.format == Some(Format::Vscsi) || vscsi::version(&head.bytes).is_some();
    if let (false, Some(reason)) = (binary, foreign::packed(&head.bytes)) {
        return Err(TraceError::Format { file: name, reason });
    }
    let format = match (options.columns, options.format) {
        (Some(_), _) => Format::Columns,
        (None, Some(format)) => format,
        (None, None) => known(&name, &head)?,
    };
    let mut plain: Box<dyn Read + Send> = Box::new(head.then(plain));
    let parser = options.columns.map(Columns::parser).or_else(|| format.parser());
    let records: Box<dyn Records> = match parser {
        Some(mut parser) => {
            let head = head_of(&mut plain, parser.foresight());
            parser.survey(&head.bytes);
            let plain = Box::new(head.then(plain));
            Box::new(Lines::new(plain, parser, format.may_have_heading()))
        }
        None if format == Format::Vscsi => Box::new(Vscsi::new(plain)),
        None => {
            let reason = "a Parquet trace must be a file of its own, neither piped nor compressed \
                          from outside: its index stands at the end";
            return Err(TraceError::Format { file: name, reason: reason.to_owned() });
        }
    };
    let reader = Reader::new(name, format, records, options.lenient);
    Ok(if options.format.is_none() { reader.detected() } else { reader })
}

/// How a stream begins once it is unpacked, without the mark of its encoding, and the rest of it.
fn begun(
    name: &str,
    mut from: Box<dyn Read + Send>,
) -> Result<(Head, Box<dyn Read + Send>), TraceError> {
    for _ in 0..LAYERS {
        let magic = head_of(&mut from, MAGIC);
        let packed = magic.bytes.clone();
        from = unpacked(&packed, Box::new(magic.then(from)))
            .map_err(|source| TraceError::Io { file: name.to_owned(), source })?;
    }
    let mut head = head_of(&mut from, HEAD);
    if head.bytes.starts_with(UTF8_MARK) {
        head.bytes.drain(..UTF8_MARK.len());
    }
    Ok((head, from))
}

/// Text that is no trace, unpacked, and how it begins; `name` is for messages.
pub(crate) fn text(
    name: &str,
    from: impl Read + Send + 'static,
) -> Result<(Vec<u8>, Box<dyn Read + Send>), TraceError> {
    let (head, plain) = begun(name, Box::new(from))?;
    if let Some(reason) = foreign::packed(&head.bytes) {
        return Err(TraceError::Format { file: name.to_owned(), reason });
    }
    let bytes = head.bytes.clone();
    Ok((bytes, Box::new(head.then(plain))))
}

/// Undoes gzip (RFC 1952) or zstd (RFC 8878) where their magic numbers say so. Files of several
/// members or frames are read to the end.
fn unpacked(magic: &[u8], from: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    Ok(match magic {
        // 8, deflate, is the only method there is.
        [0x1f, 0x8b, 8, ..] => Box::new(Gzip::new(BufReader::new(from))),
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            Box::new(zstd::stream::read::Decoder::new(from)?)
        }
        _ => from,
    })
}

/// What Windows programs put before text in UTF-8.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes by which gzip and zstd are known.
const MAGIC: usize = 4;
/// What is packed again, as servers and scripts do to a file that was, is unpacked as often.
const LAYERS: usize = 2;

fn known(name: &str, head: &Head) -> Result<Format, TraceError> {
    // Rows of other programs may fit a format without marks.
    if let Some(reason) = foreign::rows(&head.bytes, head.whole) {
        return Err(TraceError::Format { file: name.to_owned(), reason });
    }
    match detect(&head.bytes, head.whole) {
        Detected::Format(format) => return Ok(format),
        Detected::Doubt(reason) => {
            return Err(TraceError::Format { file: name.to_owned(), reason });
        }
        Detected::None => {}
    }
    if let Some(error) = &head.error {
        let text = format!("{}, within the first bytes: 0 requests were read", told(error));
        let source = io::Error::new(error.kind(), text);
        return Err(TraceError::Io { file: name.to_owned(), source });
    }
    if head.bytes.is_empty() {
        let reason = "the file is empty".to_owned();
        return Err(TraceError::Format { file: name.to_owned(), reason });
    }
    let what = match nearest(&head.bytes, head.whole) {
        None if preface(&head.bytes) >= PREFACE => {
            format!("its first {} KiB are comments or blank", PREFACE >> 10)
        }
        None => "there are only comments and blank lines".to_owned(),
        Some(Nearest { text, .. }) if head.whole && is_heading(text) => {
            format!("there is one line, '{}', and no record behind it", shown(text))
        }
        Some(Nearest { line, text, fault: None }) => {
            format!("no known format fits its first lines; line {line} is '{}'", shown(text))
        }
        Some(Nearest { line, text, fault: Some((format, reason)) }) => {
            let text = shown(text);
            format!("no known format fits line {line}, '{text}'; {format} is nearest: {reason}")
        }
    };
    if let Some(reason) = foreign::other(name, &head.bytes) {
        return Err(TraceError::Format { file: name.to_owned(), reason });
    }
    let names = Format::names();
    let reason = format!(
        "{what}; if it is a trace, name its format with --format: \
         {names}; or say what the columns of a delimited text are: --columns \
         time:ms,device,offset:sectors,size:bytes,op"
    );
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

/// Bytes of the comments and blank lines that `head` begins with.
fn preface(head: &[u8]) -> usize {
    let is_text = |line: &&[u8]| !line.trim_ascii().is_empty() && !is_comment(line);
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let text = lines.by_ref().find(is_text).map_or(0, <[u8]>::len);
    head.len() - text - lines.map(<[u8]>::len).sum::<usize>()
}

impl Head {
    /// One head and what stands behind it.
    fn and(mut self, more: Self) -> Self {
        self.bytes.extend(more.bytes);
        Self { bytes: self.bytes, ..more }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Request, Source};

    const LINES: &str = "419,W,5613568,4096,1577808144360767\n419,R,0,512,1577808144360769\n";

    fn read(text: &[u8], format: Option<Format>) -> Result<Vec<Request>, TraceError> {
        let options = OpenOptions { format, ..OpenOptions::default() };
        let mut batch = Vec::new();
        open_bytes("trace", text.to_vec(), &options)?.fill(&mut batch)?;
        Ok(batch)
    }

    fn refused(text: &[u8]) -> String {
        read(text, None).unwrap_err().to_string()
    }

    #[test]
    fn a_format_that_nearly_fits_says_why_it_does_not() {
        for (text, said) in [
            ("419,X,5613568,4096,157780814\n", "alibaba is nearest: type is 'X', not R or W"),
            ("# a\n0,R,0,4096\n", "fits line 2, '0,R,0,4096'; alibaba is nearest: column"),
            ("a,b\n128166372,h,0,Read,0,-5,1\n", "line 2, '128166372,h,0,Read,0,-5,1'; msr is"),
            ("<\"a\": 1>\n", "first lines; line 1 is '<\\\"a\\\": 1>'"),
            ("time,op,size\n", "there is one line, 'time,op,size', and no record behind it"),
            ("\n\n \n", "there are only comments and blank lines"),
            ("x\u{1b}[31m\n", "line 1 is 'x\\x1b[31m'"),
        ] {
            let error = refused(text.as_bytes());
            assert!(error.contains(said) && error.contains("--format"), "{error}");
        }
    }

    #[test]
    fn marks_comments_and_headings_before_text_are_passed_over() {
        let plain = read(LINES.as_bytes(), None).unwrap();
        assert_eq!(plain.len(), 2);
        let mark = std::str::from_utf8(UTF8_MARK).unwrap();
        let heading = "device_id,opcode,offset,length,timestamp\n";
        let licence = format!("# {}\n\n", "licence ".repeat(12)).repeat(1000);
        assert!(licence.len() < PREFACE);
        let marked = format!("{mark}{licence}").replace('\n', "\r\n");
        for before in [mark, &marked, "# from the archive\n\n  # 2020\n", heading, &licence] {
            let text = format!("{before}{LINES}");
            assert_eq!(read(text.as_bytes(), None).unwrap(), plain, "{before}");
            assert_eq!(read(text.as_bytes(), Some(Format::Alibaba)).unwrap(), plain, "{before}");
        }
        let all = format!("{mark}# a comment\n{heading}{LINES}# the end\n");
        assert_eq!(read(all.as_bytes(), None).unwrap(), plain);
    }

    #[test]
    fn comments_that_do_not_end_are_no_format() {
        let text = "# none\n".repeat(PREFACE);
        assert!(refused(text.as_bytes()).contains("its first 256 KiB are comments or blank"));
        assert!(refused(&vec![b' '; 4 * PREFACE]).contains("comments or blank"));
    }

    #[test]
    fn only_the_first_line_can_be_a_heading() {
        let heading = "device_id,opcode,offset,length,timestamp\n";
        let error = refused(format!("{LINES}{heading}").as_bytes());
        assert!(error.starts_with("trace:3: "), "{error}");
        let error = read(heading.as_bytes(), Some(Format::Alibaba)).unwrap_err().to_string();
        assert!(error.contains("nothing but a heading"), "{error}");
    }

    #[test]
    fn what_fits_two_formats_is_not_guessed() {
        let error = refused(b"0 0 3242508288 4096 0\n45 0 11403917312 512 0\n");
        assert!(error.contains("--format mqsim, --format disksim or"), "{error}");
        assert_eq!(read(b"0 0 3242508288 4096 0\n", Some(Format::MsrCut)).unwrap()[0].bytes, 4096);
    }
}
