//! Records one after the other out of a stream of bytes, with bounded buffers.

use std::io::{self, Read};

use crate::format::field::{is_comment, is_heading};
use crate::format::vscsi::{self, Version};
use crate::format::{Fault, Line, LineParser, Records};

/// The longest line that is read; a longer one is none of any format.
const MOST_IN_LINE: usize = 64 * 1024;
/// What a line with zeros is told to be.
const UNWRITTEN: &str = "zeros in place of text: a crash, or a log that was emptied while it was \
                         written, leaves them in a file";
/// Bytes asked of the system at once.
const BUFFER: usize = 256 * 1024;

/// The bytes read and not yet used.
struct Buffer {
    from: Box<dyn Read + Send>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Behind the last end of a line in `bytes`.
    lines_end: usize,
}

impl Buffer {
    fn new(from: Box<dyn Read + Send>) -> Self {
        Self { from, bytes: vec![0; BUFFER], start: 0, end: 0, lines_end: 0 }
    }

    /// Reads more behind what is there; `false` at the end of the stream.
    fn more(&mut self) -> io::Result<bool> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        loop {
            match self.from.read(&mut self.bytes[self.end..]) {
                Ok(read) => {
                    let read_to = self.end + read;
                    let newline = memchr::memrchr(b'\n', &self.bytes[self.end..read_to]);
                    self.lines_end = newline.map_or(0, |at| self.end + at + 1);
                    self.end = read_to;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn unused(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

/// Lines of text through a parser.
pub(crate) struct Lines {
    buffer: Buffer,
    parser: Box<dyn LineParser>,
    line: u64,
    ended: bool,
    /// Of the line at the start of the buffer no end was found.
    too_long: bool,
    heading: Heading,
}

/// What is known of the first line that is no comment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heading {
    /// It is still to come and may name the columns.
    Possible,
    /// It did, and nothing came after it yet.
    Passed,
    /// There is none, or records came after it.
    Over,
}

impl Lines {
    /// `may_have_heading`: whether names of columns as the first line are passed over.
    pub(crate) fn new(
        from: Box<dyn Read + Send>,
        parser: Box<dyn LineParser>,
        may_have_heading: bool,
    ) -> Self {
        let heading = if may_have_heading { Heading::Possible } else { Heading::Over };
        Self { buffer: Buffer::new(from), parser, line: 0, ended: false, too_long: false, heading }
    }

    /// The length of the next line, without and with its line end; `None` at the end.
    fn measure(&mut self) -> Result<Option<(usize, usize)>, Fault> {
        let mut seen = 0;
        loop {
            let unused = self.buffer.unused();
            if let Some(newline) = memchr::memchr(b'\n', &unused[seen..]) {
                return Ok(Some((seen + newline, seen + newline + 1)));
            }
            seen = unused.len();
            if seen > MOST_IN_LINE {
                self.line += 1;
                self.too_long = true;
                let reason = "the line is longer than 64 KiB: not a line of any format";
                return Err(Fault::Record(reason.to_owned()));
            }
            if !self.buffer.more().map_err(Fault::Stream)? {
                return Ok((seen > 0).then_some((seen, seen)));
            }
        }
    }

    /// Drops the rest of a line that was too long: only when more is asked for, since it may have
    /// no end.
    fn skip_long(&mut self) -> Result<(), Fault> {
        while std::mem::take(&mut self.too_long) {
            if let Some(newline) = memchr::memchr(b'\n', self.buffer.unused()) {
                self.buffer.start += newline + 1;
                break;
            }
            self.buffer.start = self.buffer.end;
            self.too_long = self.buffer.more().map_err(Fault::Stream)?;
        }
        Ok(())
    }
}

impl Records for Lines {
    fn next(&mut self) -> Result<Option<Line>, Fault> {
        self.skip_long()?;
        loop {
            let Some((length, used)) = self.measure()? else {
                if !self.ended {
                    self.ended = true;
                    if self.heading == Heading::Passed {
                        let reason = "there is nothing but a heading: no line is a record";
                        return Err(Fault::File(reason.to_owned()));
                    }
                    self.parser.end().map_err(Fault::File)?;
                }
                return Ok(None);
            };
            self.line += 1;
            let start = self.buffer.start;
            self.buffer.start += used;
            let line = self.buffer.bytes[start..start + length].trim_ascii_end();
            if line.len() > MOST_IN_LINE {
                return Err(Fault::Record("the line is longer than 64 KiB".to_owned()));
            }
            if line.is_empty() || is_comment(line) {
                continue;
            }
            let parsed = self.parser.line(line);
            let first = std::mem::replace(&mut self.heading, Heading::Over) == Heading::Possible;
            if first && parsed.is_err() && is_heading(line) {
                self.heading = Heading::Passed;
                return Ok(Some(Line::Header));
            }
            let told = |reason| match memchr::memchr(0, line) {
                Some(_) => Fault::Record(UNWRITTEN.to_owned()),
                None => Fault::Record(reason),
            };
            return parsed.map(Some).map_err(told);
        }
    }

    fn is_ready(&self) -> bool {
        self.buffer.start < self.buffer.lines_end
    }

    fn position(&self) -> u64 {
        self.line
    }

    fn notes(&self) -> Vec<String> {
        self.parser.notes()
    }
}

/// Records of VMware's binary traces.
pub(crate) struct Vscsi {
    buffer: Buffer,
    version: Option<Version>,
    record: u64,
    broken: bool,
}

impl Vscsi {
    pub(crate) fn new(from: Box<dyn Read + Send>) -> Self {
        Self { buffer: Buffer::new(from), version: None, record: 0, broken: false }
    }

    /// Reads until `size` bytes are there or the stream ends.
    fn have(&mut self, size: usize) -> Result<usize, Fault> {
        while self.buffer.unused().len() < size {
            if !self.buffer.more().map_err(Fault::Stream)? {
                break;
            }
        }
        Ok(self.buffer.unused().len())
    }

    fn version(&mut self) -> Result<Option<Version>, Fault> {
        if self.version.is_none() && self.have(2 * Version::V2.size())? > 0 {
            self.version = vscsi::version(self.buffer.unused());
            if self.version.is_none() {
                self.broken = true;
                self.record = 1;
                return Err(Fault::Record(
                    "not a vSCSI record: neither the mark of version 1 in bytes 14 and 15 nor of \
                     version 2 in bytes 2 and 3"
                        .to_owned(),
                ));
            }
        }
        Ok(self.version)
    }
}

impl Records for Vscsi {
    fn next(&mut self) -> Result<Option<Line>, Fault> {
        if self.broken {
            return Ok(None);
        }
        let Some(version) = self.version()? else { return Ok(None) };
        let size = version.size();
        let there = self.have(size)?;
        if there == 0 {
            return Ok(None);
        }
        self.record += 1;
        if there < size {
            self.broken = true;
            return Err(Fault::Record(format!(
                "the file ends inside a record: {there} of {size} bytes"
            )));
        }
        let start = self.buffer.start;
        self.buffer.start += size;
        let record = &self.buffer.bytes[start..start + size];
        vscsi::record(record, version).map(Some).map_err(Fault::Record)
    }

    fn position(&self) -> u64 {
        self.record
    }
}
