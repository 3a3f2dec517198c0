//! The default text output of `blkparse` (blktrace).

mod stack;

use super::SECTOR;
use super::field::{self, Columns, Line, LineParser, Lost, Reason, Unknown, shown};
use super::names::Names;
use crate::request::{Op, Request};
use stack::Stack;

/// `  8,0    3    1   0.000000000   697  Q   W 223490 + 8 [kjournald]`: device, processor,
/// sequence number, seconds, process, action, kind, first sector, sectors (512 B).
///
/// The queue events (`Q`) are the arrivals, or the issue events (`D`) where a file has no others.
/// Latency is not taken: a completion (`C`) may cover several queued requests that were merged, and
/// would have to be awaited.
#[derive(Default)]
pub(crate) struct Blkparse {
    devices: Names,
    stack: Stack,
    /// After the totals nothing but more totals or another output is expected.
    summary: bool,
    events: u64,
    arrivals: u64,
    /// Requests end with a process, so that a line without one is cut off.
    has_process: bool,
    unknown: Unknown,
    lost: Lost,
}

/// Every action that `blkparse` prints besides the arrivals.
const ACTIONS: [&[u8]; 19] = [
    b"Q", b"G", b"I", b"D", b"C", b"M", b"F", b"A", b"X", b"P", b"U", b"T", b"B", b"S", b"R", b"m",
    b"UT", b"ZP", b"ZU",
];
/// For a message.
const KNOWN: &str = "one of blkparse's (Q, G, I, D, C, ...)";
/// Bytes that show which events a file has.
const FORESIGHT: usize = 256 << 10;

impl LineParser for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let Some(event) = self.event(line)? else { return Ok(Line::Header) };
        let Event { at, device, process, action, mut columns } = event;
        self.events += 1;
        if action != self.stack.arrival() {
            self.stack.see(device, process, action, columns);
            return match ACTIONS.contains(&action) {
                true => Ok(Line::Other),
                false => self.unknown.count(action, "action", KNOWN),
            };
        }
        let Some(op) = kind(columns.want("kind")?)? else { return Ok(Line::Other) };
        let Some((op, offset, size)) = self.extent(&mut columns, op)? else {
            return Ok(Line::Other);
        };
        let request = field::request(at, op, offset, size)?;
        self.arrivals += 1;
        if !self.stack.counts(device, process, offset / SECTOR, size) {
            return Ok(Line::Other);
        }
        let device = self.devices.number(&[device])?;
        Ok(Line::Request(Request { device, stream: process, ..request }))
    }

    fn foresight(&self) -> usize {
        FORESIGHT
    }

    fn survey(&mut self, head: &[u8]) {
        let complete = memchr::memrchr(b'\n', head).map_or(head, |end| &head[..end]);
        for line in complete.split(|byte| *byte == b'\n') {
            if let Ok(Some(event)) = self.event(line.trim_ascii()) {
                self.stack.foresee(event.action);
            }
        }
        (self.summary, self.lost) = (false, Lost::default());
        self.stack.settle();
    }

    fn end(&self) -> Result<(), Reason> {
        if self.events > 0 && self.arrivals == 0 {
            return Err(format!(
                "{} events, but none of them is the arrival of a request, queued (Q) or issued \
                 (D): run blkparse without -a or, if blktrace ran with it, record with -a queue; \
                 completions are read with --columns device,-,-,time:s,stream,=C,op,\
                 offset:sectors,-,size:sectors,...",
                self.events
            ));
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let unknown = self.unknown.note("actions").into_iter().chain(self.lost.note());
        unknown.chain(self.stack.notes()).collect()
    }
}

/// One event and what stands behind its action.
struct Event<'a> {
    at: u64,
    device: &'a [u8],
    process: u32,
    action: &'a [u8],
    columns: Columns<'a>,
}

impl Blkparse {
    /// The event of a line; `None` for totals and what stands before the events.
    fn event<'a>(&mut self, line: &'a [u8]) -> Result<Option<Event<'a>>, Reason> {
        let mut columns = Columns::blanks(line);
        let device = columns.want("device")?;
        if let Err(reason) = major_minor(device) {
            // Totals stand at the end, where another output may follow.
            let is_total = line.starts_with(b"CPU") || totals_of_process(line);
            self.summary |= is_total && self.events > 0;
            if let Some(skips) = line.strip_prefix(b"Skips:").filter(|_| self.summary) {
                self.lost.add(skipped(skips));
            }
            let dropped = statistics(line);
            self.lost.at_least(dropped.unwrap_or_default());
            let is_known = self.summary || dropped.is_some() || line.starts_with(b"Input file ");
            return if is_known { Ok(None) } else { Err(reason) };
        }
        columns.unsigned("processor")?;
        columns.unsigned("sequence number")?;
        let at = field::time(columns.want("timestamp")?, "timestamp", 1_000_000_000)?;
        let process = field::stream(columns.unsigned("process")?, "process")?;
        // A message may have its control group before it (blkparse.c, handle_notify).
        let action = match columns.want("action")? {
            group if group.contains(&b',') => columns.want("action")?,
            action => action,
        };
        Ok(Some(Event { at, device, process, action, columns }))
    }

    /// `sector + sectors [process]`, with more in parentheses before the process; without it, or
    /// with none, a write is a bare flush and a read nothing. A single number is of a command that
    /// passes through (its bytes).
    fn extent(
        &mut self,
        columns: &mut Columns<'_>,
        op: Op,
    ) -> Result<Option<(Op, u64, u64)>, Reason> {
        let flush = matches!(op, Op::Flush | Op::Write).then_some((Op::Flush, 0, 0));
        let Some(sector) = self.next(columns)? else { return Ok(flush) };
        let sector = field::unsigned(sector, "sector")?;
        match self.next(columns)? {
            Some(b"+") => {}
            None => return Ok(None),
            Some(text) => {
                return Err(format!("'+' was expected after the sector, not '{}'", shown(text)));
            }
        }
        let size = field::sectors(columns.unsigned("size")?, "size")?;
        if let Some(text) = self.next(columns)? {
            return Err(format!("a column too many: '{}'", shown(text)));
        }
        let offset = field::sectors(sector, "sector")?;
        Ok(if size == 0 { flush } else { Some((op, offset, size)) })
    }

    /// The next column; `None` at the process, or at the end of a line without one.
    fn next<'a>(&mut self, columns: &mut Columns<'a>) -> Result<Option<&'a [u8]>, Reason> {
        match columns.next() {
            Some(text) if text.starts_with(b"[") || text.starts_with(b"(") => {
                self.has_process = true;
                Ok(None)
            }
            None if self.has_process => {
                Err("the line ends before its process, such as [dd]: cut off".to_owned())
            }
            text => Ok(text),
        }
    }
}

/// `kjournald (697)`, or `Total (8,0):`: below it stands what it did.
fn totals_of_process(line: &[u8]) -> bool {
    let line = line.strip_suffix(b":").unwrap_or(line);
    let number = |byte: &u8| byte.is_ascii_digit() || b", ".contains(byte);
    line.strip_suffix(b")").is_some_and(|line| {
        memchr::memrchr(b'(', line).is_some_and(|at| at > 0 && line[at + 1..].iter().all(number))
            || line.starts_with(b"Total (")
    })
}

/// What blktrace itself prints at its end (blktrace.c, `show_stats`), which stands in the file as
/// well where both wrote there: how many events a device or all of them lost by such a line.
fn statistics(line: &[u8]) -> Option<u64> {
    let line = line.trim_ascii();
    let is_name = line.starts_with(b"=== ") && line.ends_with(b" ===");
    let counts = line.ends_with(b" KiB data");
    let is_count = counts && (line.starts_with(b"CPU") || line.starts_with(b"Total:"));
    let is_sum = line.starts_with(b"You have ") && line.ends_with(b" dropped events");
    let is_advice = line.starts_with(b"Consider using a larger buffer size");
    let count = match memchr::memmem::find(line, b"(dropped ") {
        Some(at) if is_count => &line[at + b"(dropped ".len()..],
        _ if is_sum => &line[b"You have ".len()..],
        _ => b"",
    };
    let digits = count.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(count.len());
    let dropped = field::unsigned(&count[..digits], "count").unwrap_or_default();
    (is_name || is_count || is_sum || is_advice).then_some(dropped)
}

/// How many events are missing, by ` 3 forward (1,234 -  12.3%)` (blkparse.c): numbers are
/// grouped as the locale has it.
fn skipped(text: &[u8]) -> u64 {
    let text = text.splitn(2, |byte| *byte == b'(').nth(1).unwrap_or_default();
    let number = text.split(|byte| *byte == b'-').next().unwrap_or_default();
    let digits = number.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum: u64, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

fn major_minor(device: &[u8]) -> Result<(), Reason> {
    let mut parts = device.split(|byte| *byte == b',');
    let mut number = || parts.next().is_some_and(|part| field::unsigned(part, "device").is_ok());
    if number() && number() && parts.next().is_none() {
        return Ok(());
    }
    Err(format!("device is '{}', not major,minor such as 8,0", shown(device)))
}

/// The RWBS column: what the request does, `None` where it moves no data (N, the management of
/// zones).
pub(super) fn kind(rwbs: &[u8]) -> Result<Option<Op>, Reason> {
    if rwbs.is_empty() || !rwbs.iter().all(u8::is_ascii_uppercase) {
        return Err(format!("kind is '{}', not letters such as R, WS or D", shown(rwbs)));
    }
    // F first is a flush ahead of the rest, F last forces the write through (blktrace, RWBS).
    let main = rwbs.iter().position(|letter| *letter != b'F').unwrap_or(rwbs.len());
    Ok(match &rwbs[main..] {
        [b'R', ..] => Some(Op::Read),
        [b'W', ..] | [b'Z', b'A', ..] => Some(Op::Write),
        [b'D', ..] => Some(Op::Trim),
        // A flush as issued is FF, or FN in older versions.
        [] => Some(Op::Flush),
        [b'N', ..] if main > 0 => Some(Op::Flush),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
