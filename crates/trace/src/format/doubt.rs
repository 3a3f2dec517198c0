//! Whether the units that a format has by custom can be those of a file.

use std::ops::Range;

use jiff::SignedDuration;
use jiff::civil::Date;

use super::columns::{Columns, TIMES};
use super::heading::contradiction;
use super::{Format, Line, SECTOR};
use crate::request::Request;

/// Years in which traces begin.
const YEARS: Range<i16> = 1990..2100;

/// Why the units of a `format` that nobody named are in doubt where a file begins with `requests`,
/// and what to do.
pub(super) fn doubt(format: Format, requests: impl Iterator<Item = Request>) -> Option<String> {
    let columns = format.columns()?;
    let requests: Vec<Request> = requests.filter(|request| request.bytes > 0).collect();
    let found = sectors(columns, &requests);
    let found = clock(format, columns, requests.first()?.at.0.into()).or(found);
    found.map(|found| said(format, found))
}

/// The same of a heading that contradicts the format.
pub(super) fn heading(format: Format, names: &[u8]) -> Option<String> {
    contradiction(names, format.columns()?).map(|found| said(format, found))
}

fn said(format: Format, (what, instead): (String, String)) -> String {
    format!(
        "{what}, as {format} has it: state the units, as in --columns {instead}, or confirm those \
         of {format} with --format {format}"
    )
}

/// A clock that tells the date begins in a year without traces, and in another unit would not; `at`
/// is its first time. One that begins near 0 was moved there: its unit is noted.
fn clock(format: Format, columns: &str, at: u128) -> Option<(String, String)> {
    let zero = format.clock()?;
    let begins = year(zero, at)?;
    if YEARS.contains(&begins) {
        return None;
    }
    let unit = columns.split(',').find_map(|column| column.strip_prefix("time:"))?;
    let nanos = |power: u8| 10_u128.pow(power.into());
    let (_, power) = TIMES.into_iter().find(|(name, _)| *name == unit)?;
    let count = at / nanos(power);
    let (other, year) = TIMES.into_iter().find_map(|(name, power)| {
        let year = year(1970, count * nanos(power))?;
        YEARS.contains(&year).then_some((name, year))
    })?;
    let instead = columns.replace(&format!("time:{unit}"), &format!("time:{other}"));
    let what = format!(
        "its first time is in {begins} (in {other} it is in {year}) if it is in {unit} since {zero}"
    );
    Some((what, instead))
}

/// What to do about a `line` that fits no format, where it is one of a format whose clock tells the
/// date but for the unit of that, how a number is written or what divides the columns.
pub(super) fn beyond(line: &[u8]) -> Option<String> {
    Format::ALL.into_iter().find_map(|format| {
        let (columns, zero) = (format.columns()?, format.clock()?);
        let unit = columns.split(',').find_map(|column| column.strip_prefix("time:"))?;
        TIMES.into_iter().find_map(|(other, _)| {
            let instead = columns.replace(&format!("time:{unit}"), &format!("time:{other}"));
            let parsed = instead.parse::<Columns>().ok()?.parser().line(line).ok()?;
            let Line::Request(request) = parsed else { return None };
            let begins = year(if other == unit { zero } else { 1970 }, request.at.0.into())?;
            let what = match other == unit {
                true => apart(format, line),
                false => format!(
                    "its first time is no date in {unit} since {zero}, and in {other} it is in \
                     {begins}"
                ),
            };
            YEARS.contains(&begins).then(|| {
                format!(
                    "its columns are those of {format}, {what}: state them, --columns {instead}"
                )
            })
        })
    })
}

/// What is not the format's own in a line that has its columns: these formats have commas.
fn apart(format: Format, line: &[u8]) -> String {
    let reason = || format.parser()?.line(line).err();
    match reason().filter(|_| line.contains(&b',')) {
        Some(reason) => format!("but {reason}"),
        None => "only what divides its columns is not".to_owned(),
    }
}

/// The year in which a clock of ns is at `nanos` that was 0 when the year `zero` began.
fn year(zero: i16, nanos: u128) -> Option<i16> {
    let seconds = i64::try_from(nanos / 1_000_000_000).ok()?;
    let date = Date::constant(zero, 1, 1).at(0, 0, 0, 0);
    date.checked_add(SignedDuration::from_secs(seconds)).ok().map(|date| date.year())
}

/// Numbers of sectors are hardly all multiples of 512, numbers of bytes are.
fn sectors(columns: &str, requests: &[Request]) -> Option<(String, String)> {
    let counted = |name: &str| columns.contains(&format!("{name}:sectors"));
    let (offsets, sizes) = (counted("offset"), counted("size"));
    let numbers = || {
        requests.iter().flat_map(|Request { offset, bytes, .. }| {
            let offset = offsets.then_some(offset / SECTOR);
            offset.into_iter().chain(sizes.then_some(u64::from(*bytes) / SECTOR))
        })
    };
    let bytes = numbers().any(|number| number > 0) && numbers().all(|n| n.is_multiple_of(SECTOR));
    let what = if sizes { "offsets and sizes are" } else { "offsets are" };
    let what = format!("its first {what} multiples of 512, as if they were not in sectors");
    bytes.then(|| (what, columns.replace("sectors", "bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, Source, open_bytes};

    fn read(text: &str, options: &OpenOptions) -> Result<Vec<Request>, String> {
        let mut all = Vec::new();
        let reader = open_bytes("t", text.as_bytes().to_vec(), options);
        let read = reader.and_then(|mut reader| reader.fill(&mut all));
        read.map(|()| all).map_err(|error| error.to_string())
    }

    fn refused(text: &str) -> String {
        read(text, &OpenOptions::default()).unwrap_err()
    }

    const BYTES: &str =
        "1538323200,66105098240,65536,0,1063\n1538323201,66105163776,65536,1,1063\n";

    #[test]
    fn bytes_are_not_taken_for_sectors() {
        let error = refused(BYTES);
        assert!(error.contains("offsets and sizes are multiples of 512"), "{error}");
        let columns = "time:s,offset:bytes,size:bytes,op:0=read,device";
        assert!(error.contains(&format!("--columns {columns}, or")), "{error}");
        let stated = OpenOptions { columns: columns.parse().ok(), ..OpenOptions::default() };
        let read_so = read(BYTES, &stated).unwrap();
        assert_eq!((read_so[0].offset, read_so[1].bytes), (66_105_098_240, 65_536));
        let named = OpenOptions { format: Some(Format::Tencent), ..OpenOptions::default() };
        assert_eq!(read(BYTES, &named).unwrap()[0].bytes, 32 << 20);
        assert!(refused("0,66105098240,8192,W,0.551706\n").contains("first offsets are multiples"));
        for sectors in [
            "1538323200,66105098240,65536,0,1063\n1538323201,66105163776,8,1,1063\n",
            "0,0,8192,W,0.5\n",
            "1538323200,512,0,0,1\n1538323200,8,512,0,1\n",
        ] {
            read(sectors, &OpenOptions::default()).unwrap();
        }
    }

    #[test]
    fn a_clock_begins_when_traces_do() {
        for (text, begins, instead) in [
            ("419,W,0,4096,1577808144360\n", "in 1970 (in ms it is in 2019)", "time:ms"),
            ("419,W,0,4096,1577808144\n", "in 1970 (in s it is in 2019)", "time:s"),
            ("1166372003,hm,0,Read,0,512,4\n", "in 1601 (in s it is in 2006)", "time:s,"),
            ("1166372003061629,hm,0,Read,0,512,4\n", "(in us it is in 2006)", "time:us,"),
        ] {
            let error = refused(text);
            assert!(error.contains(begins) && error.contains(instead), "{error}");
            assert!(error.contains("or confirm those of"), "{error}");
        }
        for (text, instead) in [
            ("419,W,0,4096,1577808144360767000\n", "device,op,offset:bytes,size:bytes,time:ns"),
            ("1538323200123,12910952,128,0,1063\n", "time:ms,offset:sectors,size:sectors,"),
            ("t,r,o,l,p,s\n1455592061106,0.0001,R,0,125116776448,8192\n", "time:ms,latency:s"),
        ] {
            let error = refused(text);
            assert!(error.contains("no date in") && error.contains(instead), "{error}");
        }
        // Those that were moved to 0 are what they were.
        for moved in [
            "419,W,0,4096,7\n",
            "54,8,8,0,1063\n",
            "0.5,0.1,R,0,0,4096\n",
            "1000,hm,0,Read,4096,4096,5\n",
        ] {
            read(moved, &OpenOptions::default()).unwrap();
        }
    }

    #[test]
    fn what_divides_columns_may_be_another() {
        for text in ["128166372003061629\thm\t0\tRead\t0\t512\t4\n", "1577808144360767;W;0;512;7"] {
            let error = refused(text);
            let of_msr = error.contains("those of msr, only what divides its columns is not");
            assert_eq!(of_msr, text.contains("hm"), "{error}");
        }
        for (text, said) in [
            ("1538323200.5,12910952,128,0,1063\n", "tencent, but timestamp is not a whole number"),
            ("128166372003061629,hm,0,Read,0x1000,512,4\n", "of msr, but offset is not a whole"),
        ] {
            let error = refused(text);
            assert!(error.contains(said) && error.contains("--columns time:"), "{error}");
        }
        let text = "419;W;5613568;4096;1577808144360767\n";
        let error = refused(text);
        let columns = error.split("--columns ").nth(1).unwrap();
        let stated = OpenOptions { columns: columns.parse().ok(), ..OpenOptions::default() };
        assert_eq!(read(text, &stated).unwrap()[0].offset, 5_613_568);
    }

    #[test]
    fn a_heading_is_evidence() {
        let rows = "1538323200,12910952,128,0,1063\n1538323201,8,9,1,7\n";
        let error = refused(&format!("ts_ms,lba,len,is_write,dev\n{rows}"));
        assert!(error.contains("has 'ts_ms' in the place of time in s"), "{error}");
        assert!(error.contains("--columns time:ms,offset:sectors,size:sectors,op:0=read,device,"));
        read(&format!("ts,lba,len,rw,dev\n{rows}"), &OpenOptions::default()).unwrap();
    }

    /// What the columns of a format say is what its parser does.
    #[test]
    fn columns_read_as_the_format_does() {
        for text in [
            "128166372003061629,hm,0,Read,383496192,32768,413\n\
             128166372003061630,hm,1,Write,0,512,0\n",
            "0.000 0 3242508288 4096 0\n45.304 1 11403917312 512 1\n",
            "938513000 0 264719034 16 0\n939513000 1 264719034 8 1\n",
            "1538323200,12910952,128,0,1063\n1538323201,8,8,1,1088\n",
            "0.000,104,1,4096,42414080,0.097,4096\n0.000,104,0,512,0,1.097,512\n",
            "419,W,5613568,4096,1577808144360767\n725,R,0,512,1577808144361044\n",
            "0,20941264,8192,W,0.551706,x\n1,8,512,R,0.552706,x\n",
            "329131208190249 4892 syslogd 904265560 8 W 6 0 531e779d39068ae5\n",
            "1455592061.1,0.000114,R,0,125116776448,8192\n1455592061.2,,W,1,0,512\n",
            "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,512,0\n",
        ] {
            let reader = open_bytes("t", text.as_bytes().to_vec(), &OpenOptions::default());
            let format = reader.unwrap().format();
            let columns = format.columns().unwrap_or_else(|| panic!("{format} has none"));
            let stated = OpenOptions { columns: columns.parse().ok(), ..OpenOptions::default() };
            let read = |options: &OpenOptions| {
                let all = read(text, options).unwrap().into_iter();
                all.map(|request| Request { stream: 0, ..request }).collect::<Vec<_>>()
            };
            assert_eq!(read(&stated), read(&OpenOptions::default()), "{format}");
        }
    }
}
