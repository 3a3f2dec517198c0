//! Any delimited text, with what its columns hold said by the user.

use std::num::NonZeroU64;
use std::str::FromStr;

use super::blkparse::kind;
use super::dates::Dates;
use super::field::{self, Line, LineParser, Lost, Reason, shown};
use super::names::Names;
use super::vscsi_csv::operation as scsi;
use crate::request::{Op, Request};

/// What stands in which column: `time:ms,device,offset:sectors,size:bytes,op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    held: [Held; Self::MOST],
    count: usize,
    /// Words by which rows are chosen.
    chosen: [Word; MOST_WORDS],
    /// Further columns may follow and are not used.
    more: bool,
}

/// What a column holds; units are powers: ten to them nanoseconds, two to them bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Unused,
    /// Rows with another word here than this one of the chosen are passed over.
    Only(u8),
    /// `None`: a date.
    Time(Option<u8>),
    Latency(u8),
    Offset(u8),
    Size(u8),
    Op(Ops),
    Device,
    Stream,
}

/// A word by which rows are chosen, filled up with zeros.
type Word = [u8; 8];
/// How many such words there may be.
const MOST_WORDS: usize = 4;

/// How operations are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ops {
    Words,
    /// 0 and 1, of which this one is a read.
    Digits(u8),
    /// SCSI operation codes in hexadecimal.
    Scsi,
}

/// Columns that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; as in time:ms,device,offset:sectors,size:bytes,op:1=read,- ({HELP})")]
pub struct UnknownColumns(String);

const HELP: &str = "times in s, ms, us, ns or 100ns, also time:date; places in bytes, sectors or \
                    KiB; latency, stream; op as words, op:1=read, op:0=read or op:scsi; =WORD \
                    where other rows are passed over; - for what is not used, ... for all that \
                    follows";

impl Columns {
    const MOST: usize = 32;

    /// A parser of such lines.
    pub(crate) fn parser(self) -> Box<dyn LineParser> {
        let (names, dates, lost) = Default::default();
        Box::new(Delimited { columns: self, separator: None, names, dates, lost })
    }

    /// Whether lines of so many columns are meant.
    fn fit(&self, count: usize) -> bool {
        count == self.count || (self.more && count > self.count)
    }

    /// A tab, a semicolon, a bar, a comma or blanks: the first that makes the right number of
    /// columns out of `line`, or is there at all.
    fn separator(&self, line: &[u8]) -> u8 {
        let marks = b"\t;|, ".iter().copied();
        let fits = |mark: &u8| fields(line, *mark).is_ok_and(|all| self.fit(all.len()));
        let there = || marks.clone().find(|mark| line.contains(mark)).unwrap_or(b' ');
        marks.clone().find(fits).unwrap_or_else(there)
    }

    fn has(&self, wanted: impl Fn(&Held) -> bool) -> usize {
        self.held[..self.count].iter().filter(|held| wanted(held)).count()
    }
}

impl FromStr for Columns {
    type Err = UnknownColumns;

    fn from_str(text: &str) -> Result<Self, UnknownColumns> {
        let chosen = [Word::default(); MOST_WORDS];
        let mut all = Self { held: [Held::Unused; Self::MOST], count: 0, chosen, more: false };
        let mut words = all.chosen.iter_mut().zip(0..);
        for item in text.split(',').map(str::trim) {
            if all.more {
                return Err(UnknownColumns("'...' is not the last".to_owned()));
            }
            if item == "..." {
                all.more = true;
                continue;
            }
            let place = all.held.get_mut(all.count);
            let place = place.ok_or_else(|| UnknownColumns("more than 32 columns".to_owned()))?;
            *place = match item.strip_prefix('=').filter(|word| !word.is_empty()) {
                Some(word) => Held::Only(choose(word, words.next()).map_err(UnknownColumns)?),
                None => held(item).map_err(UnknownColumns)?,
            };
            all.count += 1;
        }
        let needed: [(&str, usize); 4] = [
            ("time", all.has(|held| matches!(held, Held::Time(_)))),
            ("offset", all.has(|held| matches!(held, Held::Offset(_)))),
            ("size", all.has(|held| matches!(held, Held::Size(_)))),
            ("op", all.has(|held| matches!(held, Held::Op(_)))),
        ];
        // A date and a time of day may stand apart, and its parts as well.
        let dates = all.has(|held| *held == Held::Time(None));
        let is_wrong = |(name, count): &(&str, usize)| {
            *count != 1 && !(*name == "time" && *count > 0 && dates == *count)
        };
        if let Some((name, count)) = needed.into_iter().find(is_wrong) {
            let reason = format!("'{name}' is named {count} times, not once");
            return Err(UnknownColumns(reason));
        }
        Ok(all)
    }
}

/// Keeps a word in its place, and gives the number of that.
fn choose(word: &str, place: Option<(&mut Word, u8)>) -> Result<u8, String> {
    let (kept, number) = place.ok_or_else(|| format!("more than {MOST_WORDS} columns have '='"))?;
    let most = kept.len();
    let kept = kept.get_mut(..word.len());
    kept.ok_or_else(|| format!("'{word}' is longer than {most} letters"))?
        .copy_from_slice(word.as_bytes());
    Ok(number)
}

fn held(item: &str) -> Result<Held, String> {
    let (name, unit) = item.split_once(':').map_or((item, None), |(name, unit)| (name, Some(unit)));
    Ok(match (name, unit) {
        ("-", None) => Held::Unused,
        ("device", None) => Held::Device,
        ("stream", None) => Held::Stream,
        ("op", None) => Held::Op(Ops::Words),
        ("op", Some("1=read")) => Held::Op(Ops::Digits(b'1')),
        ("op", Some("0=read")) => Held::Op(Ops::Digits(b'0')),
        ("op", Some("scsi")) => Held::Op(Ops::Scsi),
        ("time", Some("date")) => Held::Time(None),
        ("time", unit) => Held::Time(Some(time_unit(name, unit)?)),
        ("latency", unit) => Held::Latency(time_unit(name, unit)?),
        ("offset", unit) => Held::Offset(place_unit(name, unit)?),
        ("size", unit) => Held::Size(place_unit(name, unit)?),
        _ => return Err(format!("'{item}' is not what a column holds")),
    })
}

/// Units of time, as powers of ten in nanoseconds.
pub(super) const TIMES: [(&str, u8); 6] =
    [("s", 9), ("ms", 6), ("us", 3), ("µs", 3), ("100ns", 2), ("ns", 0)];

fn time_unit(name: &str, unit: Option<&str>) -> Result<u8, String> {
    let unit = unit.ok_or_else(|| format!("'{name}' has no unit, such as {name}:ms"))?;
    let known = TIMES.into_iter().find(|(known, _)| *known == unit);
    known.map(|(_, power)| power).ok_or_else(|| format!("'{unit}' is not the unit of a time"))
}

fn place_unit(name: &str, unit: Option<&str>) -> Result<u8, String> {
    match unit {
        Some("bytes") => Ok(0),
        Some("sectors") => Ok(9),
        Some("KiB") => Ok(10),
        Some(unit) => Err(format!("'{unit}' is not a unit of bytes")),
        None => Err(format!("'{name}' has no unit, such as {name}:bytes")),
    }
}

/// Lines whose columns are divided by what [`Columns::separator`] finds in the first.
struct Delimited {
    columns: Columns,
    separator: Option<u8>,
    names: Names,
    dates: Dates,
    lost: Lost,
}

impl LineParser for Delimited {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let line = line.trim_ascii();
        if is_of_bpftrace(line) || self.lost.says(line) {
            return Ok(Line::Other);
        }
        let columns = self.columns;
        let separator = *self.separator.get_or_insert_with(|| columns.separator(line));
        let fields = fields(line, separator)?;
        if !columns.fit(fields.len()) {
            return Err(format!("{} columns, not {}", fields.len(), columns.count));
        }
        Ok(self.request(&fields, separator != b',')?.map_or(Line::Other, Line::Request))
    }

    fn notes(&self) -> Vec<String> {
        self.lost.note().into_iter().collect()
    }
}

/// `Attaching 2 probes...` stands above what bpftrace's scripts print.
fn is_of_bpftrace(line: &[u8]) -> bool {
    let mut words = field::Columns::blanks(line);
    matches!(words.next(), Some(b"Attaching" | b"Attached"))
        && words.next().is_some_and(|count| count.iter().all(u8::is_ascii_digit))
        && words.next().is_some_and(|what| what.starts_with(b"probe"))
}

impl Delimited {
    /// The request of a line; `None` of a command that is none.
    fn request(&mut self, fields: &[&[u8]], comma: bool) -> Result<Option<Request>, Reason> {
        let (mut at, mut offset, mut size, mut latency) = (0, 0, 0, 0);
        let (mut op, mut device, mut stream) = (Op::Read, Vec::new(), None);
        let mut dates = Vec::new();
        let chosen = &self.columns.chosen;
        let is_other = |held: &Held, field: &[u8]| match held {
            Held::Only(number) => {
                let word = chosen.get(usize::from(*number)).map_or(&[][..], |word| word);
                !word.starts_with(field) || word.get(field.len()) > Some(&0)
            }
            _ => false,
        };
        if self.columns.held.iter().zip(fields).any(|(held, field)| is_other(held, field)) {
            return Ok(None);
        }
        for (held, field) in self.columns.held.iter().zip(fields) {
            match *held {
                Held::Unused | Held::Only(_) => {}
                Held::Time(None) => dates.push(*field),
                Held::Time(Some(unit)) => at = time(field, "time", unit, comma)?,
                Held::Latency(_) if field.is_empty() => {}
                Held::Latency(unit) => latency = time(field, "latency", unit, comma)?,
                Held::Offset(unit) => offset = bytes(field, "offset", unit)?,
                Held::Size(unit) => size = bytes(field, "size", unit)?,
                Held::Op(ops) => match operation(field, ops)? {
                    Some(found) => op = found,
                    None => return Ok(None),
                },
                Held::Device => device.push(*field),
                Held::Stream => {
                    stream = Some(field::stream(field::unsigned(field, "stream")?, "stream")?)
                }
            }
        }
        match dates[..] {
            [] => {}
            _ => at = self.dates.read(&dates.join(&b' '))?,
        }
        if op == Op::Flush {
            (offset, size) = (0, 0);
        }
        let device = if device.is_empty() { 0 } else { self.names.number(&device)? };
        let stream = stream.unwrap_or_else(|| u32::from(device));
        let recorded_latency = NonZeroU64::new(latency);
        let request = field::request(at, op, offset, size)?;
        Ok(Some(Request { device, stream, recorded_latency, ..request }))
    }
}

/// The fields of a line; a separator within quotes is none.
fn fields(line: &[u8], separator: u8) -> Result<Vec<&[u8]>, Reason> {
    let mut quoted = false;
    let mut all: Vec<&[u8]> = line
        .split(|byte| {
            quoted ^= *byte == b'"';
            let divides = *byte == separator || (separator == b' ' && *byte == b'\t');
            divides && !quoted
        })
        .map(|field| field.trim_ascii())
        .map(|field| field.strip_prefix(b"\"").and_then(|f| f.strip_suffix(b"\"")).unwrap_or(field))
        .collect();
    if separator == b' ' {
        all.retain(|field| !field.is_empty());
    }
    let closed = line.iter().filter(|byte| **byte == b'"').count().is_multiple_of(2);
    if closed { Ok(all) } else { Err("a quote is not closed".to_owned()) }
}

/// A time, where a comma divides no columns also with a decimal comma.
fn time(field: &[u8], name: &str, unit: u8, comma: bool) -> Result<u64, Reason> {
    let unit = 10_u64.pow(u32::from(unit));
    match field.iter().position(|byte| *byte == b',') {
        Some(place) if comma && !field.contains(&b'.') => {
            let mut pointed = field.to_vec();
            pointed[place] = b'.';
            field::time(&pointed, name, unit)
        }
        _ => field::time(field, name, unit),
    }
}

/// A number of units as whole bytes, exactly: `4096.0` bytes, `0.5` KiB, `0x1000`.
fn bytes(field: &[u8], name: &str, unit: u8) -> Result<u64, Reason> {
    let wrong = |what: &str| format!("{name} is {what}: '{}'", shown(field));
    let text = std::str::from_utf8(field).map_err(|_| wrong("not a number"))?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part = part.trim_end_matches('0');
    let count = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| wrong("not a number"))?,
        None => field::unsigned(whole.as_bytes(), name)?,
    };
    let bytes = count.checked_mul(1 << unit).ok_or_else(|| wrong("too large"))?;
    if part.is_empty() {
        return Ok(bytes);
    }
    let halved = || wrong("no whole number of bytes");
    // What can be halved so often has no more decimals.
    let decimals = u8::try_from(part.len()).ok().filter(|decimals| *decimals <= unit);
    let ten = 10_u64.pow(decimals.ok_or_else(halved)?.into());
    let rest = field::unsigned(part.as_bytes(), name)? << unit;
    if rest.is_multiple_of(ten) { Ok(bytes + rest / ten) } else { Err(halved()) }
}

fn operation(field: &[u8], ops: Ops) -> Result<Option<Op>, Reason> {
    match (ops, field) {
        (Ops::Scsi, _) => return scsi(field),
        (Ops::Digits(read), [digit @ (b'0' | b'1')]) => {
            return Ok(Some(if *digit == read { Op::Read } else { Op::Write }));
        }
        _ => {}
    }
    Ok(Some(match field.to_ascii_lowercase().as_slice() {
        b"r" | b"rd" | b"read" => Op::Read,
        b"w" | b"wr" | b"write" => Op::Write,
        b"d" | b"t" | b"trim" | b"discard" | b"unmap" => Op::Trim,
        b"f" | b"flush" | b"sync" => Op::Flush,
        b"0" | b"1" => {
            return Err("op is a digit: say which is a read, op:1=read or op:0=read".to_owned());
        }
        _ if is_rwbs(field) => return kind(field),
        _ => return Err(format!("op is '{}', not read, write, trim or flush", shown(field))),
    }))
}

/// Whether letters are a kind with flags, as the kernel prints them: perhaps F before a kind, and
/// perhaps F, A, S, M and U behind it, in their order.
fn is_rwbs(field: &[u8]) -> bool {
    let field = field.strip_prefix(b"F").unwrap_or(field);
    let flags = match field {
        [b'Z', b'A' | b'R' | b'O' | b'C' | b'F', flags @ ..] => flags,
        [b'D', b'E', flags @ ..] => flags,
        [b'R' | b'W' | b'D' | b'F' | b'N', flags @ ..] => flags,
        _ => return false,
    };
    let mut known = b"FASMU".iter();
    flags.iter().all(|flag| known.any(|known| known == flag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::units::Nanos;
    use proptest::prelude::*;

    fn read(columns: &str, line: &str) -> Result<Request, Reason> {
        match columns.parse::<Columns>().unwrap().parser().line(line.as_bytes())? {
            Line::Request(request) => Ok(request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn any_separator_unit_and_word_is_read() {
        for (columns, line) in [
            ("time:s,device,offset:sectors,size:sectors,op:1=read", "1.5 7 16 8 1"),
            ("time:ms,op,offset:bytes,size:KiB", "1500,READ,8192,4"),
            ("op,-,size:bytes,offset:KiB,time:us", "\"r\";\"a;b\";4096;8;1500000,0"),
            ("time:100ns,op,offset:bytes,size:bytes,...", "15000000|Read|0x2000|4096|x|y"),
            ("time:ns, op:0=read, offset:bytes, size:bytes", "1500000000\t0\t8192\t4096"),
            ("time:s,op,offset:bytes,size:bytes", "1,5 R 8192 4096"),
        ] {
            let request = read(columns, line).unwrap();
            assert_eq!((request.at, request.op), (Nanos::from_millis(1500), Op::Read), "{line}");
            assert_eq!((request.offset, request.bytes), (8192, 4096), "{line}");
        }
        let columns = "time:us,op:scsi,size:bytes,offset:sectors";
        assert_eq!(read(columns, "1500000,0x28,4096,16").unwrap().op, Op::Read);
        let request = read(columns, "1500000,2A,4096,16").unwrap();
        assert_eq!((request.op, request.offset), (Op::Write, 8192));
        let mut parser = columns.parse::<Columns>().unwrap().parser();
        assert_eq!(parser.line(b"1500000,12,36,0"), Ok(Line::Other), "INQUIRY");
        assert!(parser.line(b"1500000,R,36,0").unwrap_err().contains("SCSI operation code"));
        let request = read("time:s,op,offset:bytes,size:bytes,latency:us,stream", "1,w,0,1,5,9");
        let request = request.unwrap();
        assert_eq!((request.op, request.stream), (Op::Write, 9));
        assert_eq!(request.recorded_latency.unwrap().get(), 5_000);
    }

    #[test]
    fn dates_and_numbers_of_other_programs_are_exact() {
        let columns = "time:date,op,offset:KiB,size:bytes";
        for (time, nanos) in [
            ("1970-01-02T00:00:00.123Z", 86_400_123_000_000),
            ("1970-01-02 00:00:00.5", 86_400_500_000_000),
            ("\"1970-01-02 02:00:00.000000001+02:00\"", 86_400_000_000_001),
        ] {
            let request = read(columns, &format!("{time},R,8.50,4096.0")).unwrap();
            assert_eq!((request.at, request.offset, request.bytes), (Nanos(nanos), 8704, 4096));
        }
        let sectors = "time:s,op,offset:sectors,size:sectors";
        let request = read(sectors, "1,R,0.001953125,7.5").unwrap();
        assert_eq!((request.offset, request.bytes), (1, 3840));
        for (line, said) in [
            ("1970-01-02,R,0,512", "time is '1970-01-02', no date since 1970 such as 2026-"),
            ("1969-12-31T00:00:00Z,R,0,512", "no date since 1970"),
            ("1,R,0,512", "no date since 1970"),
            ("1970-01-02T00:00:00Z,R,0,4096.5", "size is no whole number of bytes: '4096.5'"),
            ("1970-01-02T00:00:00Z,R,0.0001,512", "offset is no whole number of bytes"),
            ("1970-01-02T00:00:00Z,R,0x1.8,512", "offset is not a number: '0x1.8'"),
            ("1970-01-02T00:00:00Z,R,0,-512.0", "size is negative: '-512'"),
        ] {
            let reason = read(columns, line).unwrap_err();
            assert!(reason.contains(said), "{reason}");
        }
    }

    #[test]
    fn rows_with_other_words_are_passed_over() {
        let columns = "device,=Q,time:s,op,offset:sectors,size:sectors,-".parse::<Columns>();
        let mut parser = columns.unwrap().parser();
        for (line, is_one) in [
            ("8,0 Q 0.1 WS 8 8 dd", true),
            ("8,0 D 0.1 WS 8 8 dd", false),
            ("8,0 QX 0.1 R 8 8 dd", false),
            ("8,0 C x y z 8 dd", false),
            ("8,0 Q 0.1 N 8 8 dd", false),
        ] {
            let read = parser.line(line.as_bytes());
            assert_eq!(matches!(read, Ok(Line::Request(_))), is_one, "{line}: {read:?}");
            assert!(is_one || read == Ok(Line::Other), "{line}: {read:?}");
        }
        let columns = "time:s,op,offset:bytes,size:bytes";
        for (kind, op) in [("RA", Op::Read), ("FWS", Op::Write), ("WFSM", Op::Write)] {
            assert_eq!(read(columns, &format!("1,{kind},0,512")).unwrap().op, op, "{kind}");
        }
        for kind in ["RENAME", "WX", "RSA", "S"] {
            let reason = read(columns, &format!("1,{kind},0,512")).unwrap_err();
            assert!(reason.contains("not read, write, trim or flush"), "{reason}");
        }
    }

    #[test]
    fn a_date_may_stand_apart_or_in_other_forms() {
        let columns = "time:date,time:date,op,offset:bytes,size:bytes";
        for line in [
            "1970-01-02,00:00:00.5,R,0,512",
            "1970/01/02 00:00:00.5 R 0 512",
            "01/13/1970;00:00:00,5;R;0;512",
            "[02/Jan/1970:00:00:00.5 +0000] R 0 512",
            "02-Jan-1970,00:00:00.5,R,0,512",
            "\"Jan 2,\",\"1970 00:00:00.5\",R,0,512",
            "19700102 000000.5 R 0 512",
        ] {
            let at = read(columns, line).unwrap().at.0 % 86_400_000_000_000;
            assert_eq!(at, 500_000_000, "{line}");
        }
        for (line, days) in
            [("Fri Jan 2 00:00:00 1970 R 0 512", 1), ("Mar 1 00:00:00 R 0 512", 424)]
        {
            let dates = line.split(' ').count() - 3;
            let columns = "time:date,".repeat(dates) + "op,offset:bytes,size:bytes";
            assert_eq!(read(&columns, line).unwrap().at.0, days * 86_400_000_000_000, "{line}");
        }
        let reason = read(columns, "03/04/2026,00:00:00,R,0,512").unwrap_err();
        assert!(reason.contains("day and month may be taken for each other"), "{reason}");
        // What a date before it has told, it tells no more.
        for (known, days) in [("01/31/1970", 1), ("31/01/1970", -29)] {
            let mut parser = columns.parse::<Columns>().unwrap().parser();
            let mut at = |date: &str| match parser.line(format!("{date},0:00:00,R,0,8").as_bytes())
            {
                Ok(Line::Request(request)) => request.at.0.cast_signed() / 86_400_000_000_000,
                other => panic!("{other:?}"),
            };
            let known = at(known);
            assert_eq!(at("02/01/1970") - known, days);
        }
        assert!("time:date,time:s,op,offset:bytes,size:bytes".parse::<Columns>().is_err());
    }

    #[test]
    fn columns_of_the_device_name_it_together() {
        let columns = "time:s,device,op,offset:bytes,size:bytes,device".parse::<Columns>().unwrap();
        let mut parser = columns.parser();
        let devices = ["1,a,R,0,512,0", "1,a,R,0,512,1", "1,a,R,0,512,0", "1,b,R,0,512,0"];
        let devices = devices.map(|line| match parser.line(line.as_bytes()) {
            Ok(Line::Request(request)) => request.device,
            other => panic!("{other:?}"),
        });
        assert_eq!(devices, [0, 1, 0, 2]);
    }

    #[test]
    fn what_bpftrace_says_is_no_row() {
        let mut parser =
            "time:ns,op,offset:sectors,size:sectors".parse::<Columns>().unwrap().parser();
        for line in ["Attaching 2 probes...", "Lost 12 events", "Attached 1 probe"] {
            assert_eq!(parser.line(line.as_bytes()), Ok(Line::Other), "{line}");
        }
        assert!(matches!(parser.line(b"1,R,0,8"), Ok(Line::Request(_))));
        assert!(parser.notes()[0].starts_with("12 events were lost"), "{:?}", parser.notes());
        assert!(parser.line(b"Attaching,R,0,8").is_err() && parser.line(b"Lost 12").is_err());
    }

    #[test]
    fn faults_are_named() {
        for (columns, said) in [
            ("time,offset:bytes,size:bytes,op", "'time' has no unit, such as time:ms"),
            ("time:min,offset:bytes,size:bytes,op", "'min' is not the unit of a time"),
            ("time:s,offset:blocks,size:bytes,op", "'blocks' is not a unit of bytes"),
            ("time:s,offset:bytes,op", "'size' is named 0 times, not once"),
            ("time:s,time:s,offset:bytes,size:bytes,op", "'time' is named 2 times"),
            ("...,time:s", "'...' is not the last"),
            ("lba", "'lba' is not what a column holds"),
        ] {
            let error = columns.parse::<Columns>().unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("100ns"), "{error}");
        }
        let columns = "time:s,op,offset:bytes,size:bytes";
        for (line, said) in [
            ("1,R,0", "3 columns, not 4"),
            ("1,R,0,512,7", "5 columns, not 4"),
            ("1,1,0,512", "op:1=read or op:0=read"),
            ("1,X,0,512", "op is 'X'"),
            ("1,R,0x,512", "offset is not a number: '0x'"),
            ("1,R,\"0,512", "a quote is not closed"),
        ] {
            let reason = read(columns, line).unwrap_err();
            assert!(reason.contains(said), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_line_and_no_columns_panic(line in ".{0,40}", columns in "[a-z0-9:=,.-]{0,40}") {
            let _ = columns.parse::<Columns>();
            let all = "time:s,op:1=read,offset:KiB,size:sectors,latency:ms,device,stream,...";
            let _ = all.parse::<Columns>().unwrap().parser().line(line.as_bytes());
        }
    }
}
