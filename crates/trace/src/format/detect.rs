//! Which format a file is in, from its first bytes.

use super::doubt::{beyond, doubt, heading};
use super::field::{Columns, Reason, columns, is_comment, is_heading};
use super::{Format, Line, in_sectors, vscsi};
use crate::request::Request;

/// What the first bytes of a file show.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Detected {
    /// One format.
    Format(Format),
    /// One whose units cannot be, or several that nothing tells apart: what to do.
    Doubt(String),
    /// None that is known.
    None,
}

/// The format of a file that begins with `head`; `whole` says that there is nothing after it.
///
/// The binary formats are known by their marks. Of the text formats the one wins whose parser
/// accepts most of the whole lines; their columns differ in number, separator or kind, but for
/// [`five_numbers`].
pub(crate) fn detect(head: &[u8], whole: bool) -> Detected {
    if head.starts_with(b"PAR1") {
        return Detected::Format(Format::Parquet);
    }
    if vscsi::version(head).is_some() {
        return Detected::Format(Format::Vscsi);
    }
    let (mut best, mut most) = (None, 0);
    for format in Format::ALL {
        let accepted = accepted(format, head, whole).count();
        if accepted > most {
            (best, most) = (Some(format), accepted);
        }
    }
    let found = match best {
        None => {
            let row = || lines(head, whole).map(|(_, line)| line).find(|line| !is_heading(line));
            let found = indexed(head, whole).or_else(|| row().and_then(beyond));
            found.map_or(Detected::None, Detected::Doubt)
        }
        Some(Format::MsrCut) => five_numbers(head, whole, most),
        Some(format) => match doubt(format, requests(format, head, whole)) {
            Some(reason) => Detected::Doubt(reason),
            None => Detected::Format(format),
        },
    };
    let contradiction = named(head, whole).zip(best).and_then(|(all, format)| heading(format, all));
    contradiction.map_or(found, Detected::Doubt)
}

/// What to do about a first column that numbers the rows, as `write.csv` of R and `to_csv` of
/// pandas write it, in front of those of a known format.
fn indexed(head: &[u8], whole: bool) -> Option<String> {
    let number = |row| std::str::from_utf8(columns(row).next()?).ok()?.parse::<u64>().ok();
    let mut rows: Vec<_> = lines(head, whole).map(|(_, line)| line).collect();
    // A heading has no number there, and perhaps no name.
    if rows.first().is_some_and(|row| number(row).is_none()) {
        rows.remove(0);
    }
    let numbers: Vec<_> = rows.iter().map(|row| number(row)).collect::<Option<_>>()?;
    let first = numbers.first().filter(|first| **first < 2)?;
    if !(*first..).zip(&numbers).all(|(wanted, number)| wanted == *number) {
        return None;
    }
    let rest = rows.into_iter().map(|line| {
        let comma = memchr::memchr(b',', line)?;
        Some([&line[comma + 1..], b"\n"].concat())
    });
    let rest: Vec<u8> = rest.collect::<Option<Vec<_>>>()?.concat();
    let Detected::Format(format) = detect(&rest, true) else { return None };
    Some(format!(
        "its first column numbers the rows, and the others are those of {format}: leave it out \
         (write.csv(..., row.names = FALSE), to_csv(index=False)), or pipe it in: cut -d, -f2- \
         FILE | ebb … --format {format} -"
    ))
}

/// The line that names columns: the first or, as numpy.savetxt writes it, a comment above it of as
/// many columns.
fn named(head: &[u8], whole: bool) -> Option<&[u8]> {
    let (number, first) = lines(head, whole).next()?;
    let count = columns(first).count();
    let comments = head.split(|byte| *byte == b'\n').take(number - 1);
    let comments = comments.filter_map(|line| line.trim_ascii().strip_prefix(b"#"));
    let all = comments.filter(|line| columns(line).count() == count);
    Some(first)
        .filter(|line| is_heading(line))
        .or_else(|| all.filter(|line| is_heading(line)).last())
}

/// Requests that are closer than 10 µs if their times are in ns, and than 10 s if in ms.
const DENSE: u64 = 10_000;

/// Arrival, device, place, size and 1 for a read, divided by blanks, in `most` lines: `msr-cut`
/// counts ms and bytes, `disksim` ms and sectors, `mqsim` whole ns and sectors. What is no multiple
/// of a sector is not in bytes; what is finer than a nanosecond is not in ms; whole times closer
/// than [`DENSE`] can be either.
fn five_numbers(head: &[u8], whole: bool, most: usize) -> Detected {
    let in_bytes = requests(Format::MsrCut, head, whole).all(|request| in_sectors(&request));
    let whole_times = accepted(Format::Mqsim, head, whole).count() == most;
    let doubt = |what: &str| Detected::Doubt(what.to_owned());
    let decimals = |line| {
        let time = Columns::blanks(line).next().unwrap_or_default();
        time.iter().rev().position(|byte| *byte == b'.').unwrap_or(0)
    };
    // More than nine are noise of floating point.
    if lines(head, whole).any(|(_, line)| (7..=9).contains(&decimals(line))) {
        return doubt(
            "times with 7 to 9 decimals are finer than a nanosecond if they are in ms, as disksim \
             and msr-cut have them; if they are in seconds, say so and what the rest is, as in \
             --columns time:s,device,offset:sectors,size:sectors,op:1=read; otherwise name the \
             format with --format",
        );
    }
    let times: Vec<u64> =
        requests(Format::Mqsim, head, whole).map(|request| request.at.0).collect();
    let span = times.iter().max().zip(times.iter().min()).map_or(0, |(last, first)| last - first);
    let dense = span < DENSE * times.len().saturating_sub(1).max(1) as u64;
    match (in_bytes, whole_times) {
        (true, true) => doubt(
            "its first lines fit mqsim (ns, sectors), disksim (ms, sectors) and msr-cut (ms, \
             bytes); name the format with --format mqsim, --format disksim or --format msr-cut",
        ),
        (false, true) if dense => doubt(
            "its first lines fit mqsim (ns, sectors) and disksim (ms, sectors); name the format \
             with --format mqsim or --format disksim",
        ),
        (true, false) => Detected::Format(Format::MsrCut),
        (false, true) => Detected::Format(Format::Mqsim),
        (false, false) => Detected::Format(Format::Disksim),
    }
}

/// The first line that no format takes.
pub(crate) struct Nearest<'a> {
    /// Its number.
    pub(crate) line: usize,
    /// Its text.
    pub(crate) text: &'a [u8],
    /// The format that takes it but for one column, and what that says of it.
    pub(crate) fault: Option<(Format, Reason)>,
}

/// The first line of a `head` that fits no format; `None` where it has none.
pub(crate) fn nearest(head: &[u8], whole: bool) -> Option<Nearest<'_>> {
    let lines = lines(head, whole).collect::<Vec<_>>();
    let &(line, text) = match lines[..] {
        [(_, first), ref second, ..] if is_heading(first) => second,
        _ => lines.first()?,
    };
    let fault = |format: Format| Some((format, format.parser()?.line(text).err()?));
    let near = |format: &Format| edits(text).any(|line| takes(*format, &line));
    let fault = Format::ALL.into_iter().filter(near).find_map(fault);
    Some(Nearest { line, text, fault })
}

/// Whether `line` is a record of `format`.
fn takes(format: Format, line: &[u8]) -> bool {
    let parsed = format.parser().and_then(|mut parser| parser.line(line).ok());
    matches!(parsed, Some(Line::Request(_) | Line::Other))
}

/// What stands in some column of some format.
const VALUES: [&[u8]; 7] = [b"0", b"1", b"512", b"0.1", b"R", b"Read", b"sda"];
/// No format has as many columns.
const COLUMNS: usize = 32;

/// `line` with one column replaced, left out or added at the end.
fn edits(line: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let separator = if line.contains(&b',') { &b","[..] } else { &b" "[..] };
    let columns: Vec<&[u8]> = columns(line).take(COLUMNS).collect();
    let places = 0..=columns.len();
    let edit = move |(place, value): (usize, Option<&'static [u8]>)| {
        let before = columns.iter().take(place).copied();
        let after = columns.iter().skip(place + 1).copied();
        before.chain(value).chain(after).collect::<Vec<_>>().join(separator)
    };
    let values = || VALUES.into_iter().map(Some).chain([None]);
    places.flat_map(move |place| values().map(move |value| (place, value))).map(edit)
}

/// The lines of `head` that the parser of `format` takes for what it knows.
fn accepted(format: Format, head: &[u8], whole: bool) -> impl Iterator<Item = Line> {
    let mut parser = format.parser();
    lines(head, whole).filter_map(move |(_, line)| parser.as_mut()?.line(line).ok())
}

/// The requests among them.
fn requests(format: Format, head: &[u8], whole: bool) -> impl Iterator<Item = Request> {
    accepted(format, head, whole).filter_map(|line| match line {
        Line::Request(request) => Some(request),
        Line::Header | Line::Other => None,
    })
}

/// The whole lines of `head` that are neither blank nor comments, with their numbers.
fn lines(head: &[u8], whole: bool) -> impl Iterator<Item = (usize, &[u8])> {
    let end = if whole {
        head.len()
    } else {
        memchr::memrchr(b'\n', head).map_or(head.len(), |newline| newline + 1)
    };
    let all = head[..end].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let numbered = all.enumerate().map(|(index, line)| (index + 1, line));
    numbered.filter(|(_, line)| !line.is_empty() && !is_comment(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{darshan, ebb_csv};

    #[test]
    fn each_text_format_is_known_by_its_lines() {
        let biosnoop = "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)\n\
                        0.000004    supervise      1950   xvda1   W 13092560   4096       0.74\n";
        let darshan = format!("{}\n2.7599,2.759941,0,0,R,0,32\n", darshan::HEADING);
        let ebb = format!("{}\n0,R,0,512,0,0,\n", ebb_csv::HEADING);
        for (format, text) in [
            (Format::Msr, "128172299571726563,prxy,0,Write,1105182720,512,2072\n"),
            (Format::MsrCut, "0.000 0 3242508288 4096 0\n45.304 0 11403917312 512 0\n"),
            (Format::Mqsim, "938513000 4 264719034 16 0\n938828000 3 197570570 16 0\n"),
            (Format::Tencent, "1538323200,12910952,128,0,1063\n"),
            (Format::TencentReplay, "0.000,104,1,4096,42414080,0.097,4096\n"),
            (Format::Alibaba, "0,R,126703661056,4096,1577808000000046\n"),
            (Format::Spc, "0,20941264,8192,W,0.551706\n"),
            (Format::Fio, "fio version 3 iolog\n2 sdb add\n"),
            (Format::Fio, "fio version 2 iolog\n/dev/sdb add\n"),
            (Format::Blkparse, "  8,0    3    1   0.000000000   697  G   W 223490 + 8 [x]\n"),
            (Format::Biosnoop, biosnoop),
            (Format::Darshan, &darshan),
            (Format::EbbCsv, &ebb),
            (Format::Disksim, "0.000 0 303567 7 0\n1.130 0 303574 8 1\n"),
            (Format::Disksim, "0.000 0 512 512 30\n1.130 0 1024 512 1f\n"),
            (Format::Fiu, "329131208190249 4892 syslogd 904265560 8 W 6 0 531e779d39068ae5\n"),
            (Format::Systor, "1455592061.1,0.000114,R,0,125116776448,8192\n"),
            (Format::VscsiCsv, "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n"),
            (Format::Etw, "BeginHeader\n  DiskRead,  TimeStamp,  Process Name ( PID)\n"),
        ] {
            assert_eq!(detect(text.as_bytes(), true), Detected::Format(format), "{text}");
            let cut = format!("{text}{}", &text[..text.len() / 2]);
            assert_eq!(detect(cut.as_bytes(), false), Detected::Format(format), "{text}");
            let with_a_bad_line = format!("{text}{text}nonsense,,\n");
            assert_eq!(
                detect(with_a_bad_line.as_bytes(), true),
                Detected::Format(format),
                "{text}"
            );
        }
    }

    #[test]
    fn seconds_are_not_taken_for_milliseconds() {
        for text in ["242.504709548 0 1000 8 1\n", "0.5 0 0 512 1\n1.2345678 0 512 512 1\n"] {
            let Detected::Doubt(reason) = detect(text.as_bytes(), true) else { panic!("{text}") };
            assert!(reason.contains("--columns time:s,"), "{reason}");
        }
        let noise = "0.30000000000000004 0 1000 8 1\n";
        assert_eq!(detect(noise.as_bytes(), true), Detected::Format(Format::Disksim));
    }

    #[test]
    fn milliseconds_are_not_taken_for_nanoseconds() {
        for text in ["0 0 64 8 1\n1300 0 128 8 0\n", "5 0 64 8 1\n", "0 0 8 8 1\n9999 0 8 8 1\n"] {
            let Detected::Doubt(reason) = detect(text.as_bytes(), true) else { panic!("{text}") };
            assert!(reason.contains("--format mqsim or --format disksim"), "{reason}");
        }
        let text = "0 0 8 8 1\n10000 0 8 8 1\n";
        assert_eq!(detect(text.as_bytes(), true), Detected::Format(Format::Mqsim));
    }

    #[test]
    fn a_column_that_numbers_the_rows_is_told() {
        let rows = ["128172299571726563,prxy,0,Write,1105182720,512,2072"; 2];
        for (heading, first) in
            [("\"\",\"ts\",\"host\"\n", "\"1\",\"2\""), ("Unnamed: 0,ts\n", "0,1"), ("", "0,1")]
        {
            let numbered = first.split(',').zip(rows).map(|(n, row)| format!("{n},{row}\n"));
            let text = heading.to_owned() + &numbered.collect::<String>();
            let Detected::Doubt(reason) = detect(text.as_bytes(), true) else { panic!("{text}") };
            assert!(reason.contains("those of msr") && reason.contains("cut -d, -f2-"), "{reason}");
        }
        let text = format!("7,{}\n9,{}\n", rows[0], rows[1]);
        assert_eq!(detect(text.as_bytes(), true), Detected::None);
    }

    #[test]
    fn nonsense_is_no_format() {
        for text in ["", "\n\n", "hello world\n", "1,2\n", "a,b,c,d,e\n", "{\"a\":1}\n"] {
            assert_eq!(detect(text.as_bytes(), true), Detected::None, "{text}");
        }
    }
}
