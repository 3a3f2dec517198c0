//! `DiskSim`'s ASCII traces (Bucy et al., CMU-PDL-08-101), which `FlashSim` and others read too.

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use crate::request::{Op, Request};

/// `18.250 0 4307312 64 1`: arrival in ms, device, first block, blocks (512 B), flags in
/// hexadecimal, of which the lowest bit is a read.
pub(crate) struct Disksim;

impl LineParser for Disksim {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::blanks(line);
        let at = field::time(columns.want("arrival time")?, "arrival time", 1_000_000)?;
        let device = field::device(columns.unsigned("device")?, "device")?;
        let offset = field::sectors(columns.unsigned("block")?, "block")?;
        let size = field::sectors(columns.unsigned("size")?, "size")?;
        let op = if flags(columns.want("flags")?)? & 1 == 1 { Op::Read } else { Op::Write };
        columns.end()?;
        let request = field::request(at, op, offset, size)?;
        Ok(Line::Request(Request { device, stream: u32::from(device), ..request }))
    }
}

fn flags(text: &[u8]) -> Result<u32, Reason> {
    let digits = std::str::from_utf8(text).unwrap_or("");
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let signed = digits.starts_with('+');
    let value = u32::from_str_radix(digits, 16).ok().filter(|_| !signed);
    value.ok_or_else(|| format!("flags are '{}', not a hexadecimal number", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::units::Nanos;

    #[test]
    fn times_are_ms_and_blocks_sectors() {
        for (line, op) in
            [("18.250 2 4307312 64 1", Op::Read), ("18.25 2 4307312 64 c0", Op::Write)]
        {
            let Line::Request(request) = Disksim.line(line.as_bytes()).unwrap() else { panic!() };
            assert_eq!((request.at, request.op, request.device), (Nanos(18_250_000), op, 2));
            assert_eq!((request.offset, request.bytes), (4_307_312 * 512, 32_768));
        }
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("0,5 0 1 8 1", "arrival time is not a number: '0,5'"),
            ("0.5 0 1 8 R", "flags are 'R', not a hexadecimal number"),
            ("0.5 0 1 8", "column 'flags' is missing"),
            ("0.5 0 1 8 1 9", "a column too many: '9'"),
        ] {
            assert_eq!(Disksim.line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
