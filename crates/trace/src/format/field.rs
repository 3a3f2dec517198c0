//! Columns of a text line, and numbers out of them without copying.

use std::collections::BTreeMap;
use std::io;

use ebb_policy::units::Nanos;

use crate::request::{Op, Request};

/// What is wrong with a line and what was expected.
pub(crate) type Reason = String;

/// One line as a parser sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// A request; its `at` is still on the clock of the trace.
    Request(Request),
    /// A heading or another line by which the format is known.
    Header,
    /// Well-formed, but not a request: another event, or a call that moved no data.
    Other,
}

/// A parser of one text format, fed line by line (blank lines are dropped before).
pub(crate) trait LineParser: Send {
    /// Takes one line, without its line end.
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason>;

    /// Bytes from the start of the file that [`Self::survey`] wants to see.
    fn foresight(&self) -> usize {
        0
    }

    /// Looks at the start of the file, before its first line is taken.
    fn survey(&mut self, _head: &[u8]) {}

    /// What a reader of the numbers has to know of how they came about.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Called at the end of the file: whether it made sense as a whole.
    fn end(&self) -> Result<(), Reason> {
        Ok(())
    }
}

/// Why the next record could not be had.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The record is malformed; the one after it can be tried.
    Record(Reason),
    /// The file makes no sense as a whole; there is nothing after it.
    File(Reason),
    /// The stream itself failed.
    Stream(io::Error),
}

/// A file as records.
pub(crate) trait Records: Send {
    /// The next record, `None` at the end.
    fn next(&mut self) -> Result<Option<Line>, Fault>;
    /// Whether the next record is there without waiting for the stream.
    fn is_ready(&self) -> bool {
        true
    }
    /// Number of the line or record that `next` just looked at, counted from 1.
    fn position(&self) -> u64;
    /// As [`LineParser::notes`].
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Rows of kinds that are not known, which are passed over: how many of each.
#[derive(Default)]
pub(crate) struct Unknown(BTreeMap<Box<[u8]>, u64>);

impl Unknown {
    /// Kinds that are told apart; a file has a few, or is of another format.
    const MOST: usize = 16;

    /// Counts a row of `kind`: letters, or it is none; `known` are for the message.
    pub(crate) fn count(&mut self, kind: &[u8], name: &str, known: &str) -> Result<Line, Reason> {
        let word = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
        let is_known = self.0.contains_key(kind);
        if kind.is_empty() || !kind.iter().all(word) || (!is_known && self.0.len() == Self::MOST) {
            return Err(format!("{name} is '{}', not {known}", shown(kind)));
        }
        *self.0.entry(kind.into()).or_default() += 1;
        Ok(Line::Other)
    }

    /// What was passed over.
    pub(crate) fn note(&self, name: &str) -> Option<String> {
        let each = self.0.iter().map(|(kind, count)| format!("{count} × {}", shown(kind)));
        let all = each.collect::<Vec<_>>().join(", ");
        (!all.is_empty()).then(|| format!("rows of unknown {name} were passed over: {all}"))
    }
}

/// Events that the recorder says it has lost.
#[derive(Default)]
pub(crate) struct Lost(u64);

impl Lost {
    /// Takes in a line such as `Possibly lost 12 samples` (BCC) or `lost 3 events on CPU #2`
    /// (libbpf-tools, bpftrace); whether it is one.
    pub(crate) fn says(&mut self, line: &[u8]) -> bool {
        let mut words = Columns::blanks(line);
        let first = words.next().filter(|word| *word != b"Possibly").or_else(|| words.next());
        let is_lost = first.is_some_and(|word| word.eq_ignore_ascii_case(b"lost"));
        let count = words.next().and_then(|count| unsigned(count, "count").ok());
        let Some(count) = count.filter(|_| is_lost) else { return false };
        let is_it = words.next().is_some_and(|what| matches!(what, b"samples" | b"events"));
        self.add(if is_it { count } else { 0 });
        is_it
    }

    pub(crate) fn add(&mut self, count: u64) {
        self.0 = self.0.saturating_add(count);
    }

    /// Takes in what was counted in another way too.
    pub(crate) fn at_least(&mut self, count: u64) {
        self.0 = self.0.max(count);
    }

    pub(crate) fn note(&self) -> Option<String> {
        (self.0 > 0).then(|| {
            format!(
                "{} events were lost when this was recorded, its buffers being full: requests are \
                 missing",
                self.0
            )
        })
    }
}

/// Whether a line is a comment, in any format.
pub(crate) fn is_comment(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'#')
}

/// Whether a line names columns: two words or more, and each begins with a letter.
pub(crate) fn is_heading(line: &[u8]) -> bool {
    let mut words = line
        .split(|byte| matches!(byte, b',' | b';' | b' ' | b'\t'))
        .map(|word| word.strip_prefix(b"\"").unwrap_or(word))
        .map(|word| word.strip_suffix(b"\"").unwrap_or(word).trim_ascii())
        .filter(|word| !word.is_empty());
    let named = |word: &[u8]| word.first().is_some_and(u8::is_ascii_alphabetic);
    words.by_ref().take(2).filter(|word| named(word)).count() == 2 && words.all(named)
}

/// The columns of a line, one after the other.
pub(crate) struct Columns<'a> {
    rest: &'a [u8],
    comma: bool,
    ended: bool,
}

impl<'a> Columns<'a> {
    /// Columns separated by commas; blanks around them do not count.
    pub(crate) fn commas(line: &'a [u8]) -> Self {
        Self { rest: line, comma: true, ended: false }
    }

    /// Columns separated by runs of blanks.
    pub(crate) fn blanks(line: &'a [u8]) -> Self {
        let rest = line.trim_ascii();
        Self { rest, comma: false, ended: rest.is_empty() }
    }

    /// A column without blanks around it, and between commas without the quotes in which R, pandas
    /// and others write words, or everything: no format has a comma in a column.
    #[inline]
    fn bare(&self, column: &'a [u8]) -> &'a [u8] {
        let column = column.trim_ascii();
        let quoted = column.strip_prefix(b"\"").filter(|_| self.comma);
        quoted.and_then(|rest| rest.strip_suffix(b"\"")).map_or(column, <[u8]>::trim_ascii)
    }

    /// The next column; `name` is for the message when there is none.
    #[inline]
    pub(crate) fn want(&mut self, name: &str) -> Result<&'a [u8], Reason> {
        self.next().ok_or_else(|| format!("column '{name}' is missing"))
    }

    /// The next column as a whole number.
    #[inline]
    pub(crate) fn unsigned(&mut self, name: &str) -> Result<u64, Reason> {
        unsigned(self.want(name)?, name)
    }

    /// Refuses columns beyond the last one.
    #[inline]
    pub(crate) fn end(&mut self) -> Result<(), Reason> {
        match self.next() {
            None => Ok(()),
            Some(extra) => Err(format!("a column too many: '{}'", shown(extra))),
        }
    }
}

impl<'a> Iterator for Columns<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.ended {
            return None;
        }
        let separator = |byte: &u8| {
            if self.comma { *byte == b',' } else { matches!(*byte, b' ' | b'\t') }
        };
        let Some(split) = self.rest.iter().position(separator) else {
            self.ended = true;
            return Some(self.bare(self.rest));
        };
        let column = &self.rest[..split];
        self.rest = &self.rest[split + 1..];
        if self.comma {
            return Some(self.bare(column));
        }
        self.rest = self.rest.trim_ascii_start();
        Some(column)
    }
}

/// The columns of a line, divided by commas if it has any.
pub(crate) fn columns(line: &[u8]) -> Columns<'_> {
    if line.contains(&b',') { Columns::commas(line) } else { Columns::blanks(line) }
}

/// A whole number that is not negative.
#[inline]
pub(crate) fn unsigned(field: &[u8], name: &str) -> Result<u64, Reason> {
    // 19 digits always fit; longer ones are rare and take the checked way.
    if field.is_empty() || field.len() > 19 {
        return long_unsigned(field, name);
    }
    let mut value = 0;
    for byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return long_unsigned(field, name);
        }
        value = value * 10 + u64::from(digit);
    }
    Ok(value)
}

#[cold]
fn long_unsigned(field: &[u8], name: &str) -> Result<u64, Reason> {
    let text = std::str::from_utf8(field).unwrap_or("");
    if let Ok(value) = text.parse() {
        return Ok(value);
    }
    Err(if field.is_empty() {
        format!("{name} is empty")
    } else if text.starts_with('-') && text.parse::<f64>().is_ok() {
        format!("{name} is negative: '{}'", shown(field))
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        format!("{name} is too large: '{}'", shown(field))
    } else {
        format!("{name} is not a whole number: '{}'", shown(field))
    })
}

/// A time with a decimal fraction, in nanoseconds; `unit` nanoseconds (a power of ten) are one.
/// Digits below a nanosecond are cut off.
#[inline]
pub(crate) fn time(field: &[u8], name: &str, unit: u64) -> Result<u64, Reason> {
    let (mut value, mut scale, mut digits, mut point) = (0_u64, unit, 0, false);
    for byte in field {
        match byte {
            b'0'..=b'9' => {
                let digit = u64::from(byte - b'0');
                digits += 1;
                if point {
                    scale /= 10;
                    value = value.saturating_add(digit * scale);
                } else {
                    value = value.saturating_mul(10).saturating_add(digit * unit);
                }
            }
            b'.' if !point => point = true,
            _ => return odd_time(field, name, unit),
        }
    }
    if digits == 0 || value == u64::MAX { odd_time(field, name, unit) } else { Ok(value) }
}

/// Times with an exponent (`1e-05`), and all that are none.
#[cold]
fn odd_time(field: &[u8], name: &str, unit: u64) -> Result<u64, Reason> {
    let text = std::str::from_utf8(field).unwrap_or("");
    let value = text.parse::<f64>().map(|value| value * unit as f64);
    Err(match value {
        _ if field.is_empty() => format!("{name} is empty"),
        Ok(value) if value < 0.0 => format!("{name} is negative: '{}'", shown(field)),
        Ok(value) if value < u64::MAX as f64 && last_digit(text) * unit as f64 > ROUNDED => {
            format!(
                "{name} is rounded, as spreadsheets and %g write large numbers: '{}'; write all of \
                 its digits",
                shown(field)
            )
        }
        Ok(value) if value < u64::MAX as f64 => return Ok(value.round() as u64),
        Ok(value) if !value.is_nan() => format!("{name} is too large: '{}'", shown(field)),
        _ => format!("{name} is not a number: '{}'", shown(field)),
    })
}

/// A time is not rounded to more than a millisecond.
const ROUNDED: f64 = 1e6;

/// What the last digit of a number with an exponent is worth, in its unit: `1.5e+17` is rounded to
/// 1e16. What is not above 1 is no matter.
fn last_digit(text: &str) -> f64 {
    let Some((digits, exponent)) = text.split_once(['e', 'E']) else { return 0.0 };
    let decimals = digits.split_once('.').map_or(0, |(_, part)| part.len());
    let power = exponent.parse::<i32>().unwrap_or(0).saturating_sub(decimals as i32);
    let is_zero = !digits.contains(|digit: char| ('1'..='9').contains(&digit));
    if power <= 0 || is_zero { 0.0 } else { 10_f64.powi(power) }
}

/// A whole number of `unit`s as nanoseconds.
#[inline]
pub(crate) fn ticks(count: u64, name: &str, unit: u64) -> Result<u64, Reason> {
    count.checked_mul(unit).ok_or_else(|| format!("{name} is too large: '{count}'"))
}

/// A number of 512-byte sectors in bytes.
#[inline]
pub(crate) fn sectors(count: u64, name: &str) -> Result<u64, Reason> {
    count.checked_mul(512).ok_or_else(|| format!("{name} is too large: {count} sectors"))
}

/// A number that must fit 32 bits, for streams.
#[inline]
pub(crate) fn stream(count: u64, name: &str) -> Result<u32, Reason> {
    u32::try_from(count).map_err(|_| format!("{name} is too large: '{count}'"))
}

/// A device that the trace numbers itself.
#[inline]
pub(crate) fn device(number: u64, name: &str) -> Result<u16, Reason> {
    u16::try_from(number)
        .map_err(|_| format!("{name} is too large: '{number}'; at most 65535 is possible"))
}

/// Completion times start near 0, arrivals may lie before: all are moved by a day.
pub(crate) const LEAD: u64 = 86_400_000_000_000;

/// The arrival of what was done at `done` after `latency`, both in nanoseconds.
pub(crate) fn arrival(done: u64, latency: u64) -> Result<u64, Reason> {
    let at = done.checked_add(LEAD).and_then(|done| done.checked_sub(latency));
    at.ok_or_else(|| "time and latency do not fit together".to_owned())
}

/// Puts a request together after the checks that hold for every format.
#[inline]
pub(crate) fn request(at: u64, op: Op, offset: u64, bytes: u64) -> Result<Request, Reason> {
    let Ok(size) = u32::try_from(bytes) else {
        return Err(format!("size is {bytes} bytes; a request has less than 4 GiB"));
    };
    if offset.checked_add(bytes).is_none() {
        return Err(format!("offset {offset} plus size {bytes} is beyond 2^64 bytes"));
    }
    Ok(Request {
        at: Nanos(at),
        offset,
        bytes: size,
        device: 0,
        op,
        stream: 0,
        recorded_latency: None,
    })
}

/// A piece of input as it may stand in a message: short, printable.
pub(crate) fn shown(field: &[u8]) -> String {
    const MOST: usize = 40;
    let text = field[..field.len().min(MOST)].escape_ascii().to_string();
    if field.len() > MOST { text + "..." } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(time(b"0.097", "time", 1_000_000), Ok(97_000));
        assert_eq!(time(b"132001.438", "time", 1_000_000), Ok(132_001_438_000));
        assert_eq!(time(b"1.0000000019", "time", 1_000_000_000), Ok(1_000_000_001));
        assert_eq!(time(b"1e-05", "time", 1_000_000_000), Ok(10_000));
        assert_eq!(time(b"7", "time", 100), Ok(700));
    }

    #[test]
    fn what_is_no_number_is_named() {
        for (field, said) in [
            (&b"-4096"[..], "size is negative: '-4096'"),
            (b"", "size is empty"),
            (b"4k", "size is not a whole number: '4k'"),
            (b"99999999999999999999", "size is too large: '99999999999999999999'"),
            (b"\xff\x00", "size is not a whole number: '\\xff\\x00'"),
        ] {
            assert_eq!(unsigned(field, "size"), Err(said.to_owned()));
        }
        for (field, said) in [
            (&b"NaN"[..], "time is not a number: 'NaN'"),
            (b"-0.5", "time is negative: '-0.5'"),
            (b"inf", "time is too large: 'inf'"),
            (b".", "time is not a number: '.'"),
            (b"1.2.3", "time is not a number: '1.2.3'"),
            (b"99999999999999", "time is too large: '99999999999999'"),
            (b"1.57781E+9", "time is rounded, as spreadsheets and %g write large numbers: '1.5"),
        ] {
            let reason = time(field, "time", 1_000_000_000).unwrap_err();
            assert!(reason.starts_with(said), "{reason}");
        }
    }

    #[test]
    fn what_has_an_exponent_has_all_its_digits() {
        let micros = |text: &str| time(text.as_bytes(), "time", 1_000);
        assert_eq!(micros("1.577808144e+09"), Ok(1_577_808_144_000));
        assert!(micros("1.577808144360767000e+15").is_ok());
        assert_eq!(micros("0.000000e+00"), Ok(0));
        assert_eq!(micros("1.23457e+06"), Ok(1_234_570_000), "of a latency it is enough");
        for rounded in ["1.57781E+15", "1e+06", "1.23457e9", "1e+2147483647"] {
            assert!(micros(rounded).is_err(), "{rounded}");
        }
    }

    #[test]
    fn requests_that_cannot_be_are_refused() {
        assert!(request(0, Op::Flush, 0, 0).is_ok());
        assert!(request(0, Op::Read, 0, 1 << 32).unwrap_err().contains("4 GiB"));
        assert!(request(0, Op::Read, u64::MAX, 1).unwrap_err().contains("2^64"));
    }

    #[test]
    fn columns_split_as_their_kind_says() {
        let of = |columns: Columns<'_>| columns.map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(of(Columns::commas(b"a, b,,")), [&b"a"[..], b"b", b"", b""]);
        assert_eq!(of(Columns::blanks(b"  a \t b  ")), [b"a", b"b"]);
        assert!(of(Columns::blanks(b"  ")).is_empty());
    }

    proptest! {
        #[test]
        fn whole_numbers_read_back(value: u64) {
            prop_assert_eq!(unsigned(value.to_string().as_bytes(), "n"), Ok(value));
        }

        #[test]
        fn times_read_back(nanos in 0_u64..1 << 62) {
            let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
            prop_assert_eq!(time(text.as_bytes(), "time", 1_000_000_000), Ok(nanos));
        }
    }
}
