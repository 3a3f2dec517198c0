//! libCacheSim's CSV of VMware SCSI traces.

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use super::vscsi;
use crate::request::Op;

/// The first line by which the format is known.
pub(crate) const HEADING: &[u8] = b"version,time,op,size,lbn";

/// `1,5633898,2a,512,42932745`: version of the binary record, seconds, SCSI operation code in
/// hexadecimal, size in bytes, first sector (512 B).
///
/// The binary form counts microseconds, this one rounds them to whole seconds (checked against
/// libCacheSim's sample, which is there in both forms): see [`crate::transform::spread`].
#[derive(Default)]
pub(crate) struct VscsiCsv {
    heading: bool,
}

impl LineParser for VscsiCsv {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        if !self.heading {
            if !Columns::commas(line).eq(Columns::commas(HEADING)) {
                let heading = String::from_utf8_lossy(HEADING);
                return Err(format!("the file begins with '{}', not '{heading}'", shown(line)));
            }
            self.heading = true;
            return Ok(Line::Header);
        }
        let mut columns = Columns::commas(line);
        columns.unsigned("version")?;
        let at = field::ticks(columns.unsigned("time")?, "time", 1_000_000_000)?;
        let op = operation(columns.want("op")?)?;
        let size = columns.unsigned("size")?;
        let offset = field::sectors(columns.unsigned("lbn")?, "lbn")?;
        columns.end()?;
        Ok(match op {
            None => Line::Other,
            Some(Op::Flush) => Line::Request(field::request(at, Op::Flush, 0, 0)?),
            Some(op) => Line::Request(field::request(at, op, offset, size)?),
        })
    }
}

/// What a SCSI operation code does; `None` of one that is no request.
pub(super) fn operation(text: &[u8]) -> Result<Option<Op>, Reason> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    let code = std::str::from_utf8(digits).ok().and_then(|text| u16::from_str_radix(text, 16).ok());
    match code {
        Some(code) => vscsi::command(code),
        None => Err(format!("op is '{}', not a SCSI operation code such as 2a", shown(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::units::Nanos;

    #[test]
    fn times_are_seconds_and_blocks_sectors() {
        let mut parser = VscsiCsv::default();
        assert_eq!(parser.line(HEADING), Ok(Line::Header));
        let Ok(Line::Request(request)) = parser.line(b"1,5633898,28,6656,40409911") else {
            panic!()
        };
        assert_eq!((request.at, request.op), (Nanos::from_secs(5_633_898), Op::Read));
        assert_eq!((request.offset, request.bytes), (40_409_911 * 512, 6656));
        assert_eq!(parser.line(b"1,5633898,12,36,0"), Ok(Line::Other));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("1,5,R,512,0", "op is 'R', not a SCSI operation code such as 2a"),
            ("1,5,128,512,0", "0x128 is not a SCSI operation code"),
            ("1,5633898368802,2a,512,0", "time is too large: '5633898368802'"),
            ("1,5,2a,512", "column 'lbn' is missing"),
        ] {
            let mut parser = VscsiCsv { heading: true };
            assert_eq!(parser.line(line.as_bytes()), Err(said.to_owned()));
        }
        assert!(VscsiCsv::default().line(b"1,5,2a,512,0").is_err());
    }
}
