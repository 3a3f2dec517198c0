//! MQSim's ASCII traces (Tavakkol et al., FAST'18).

use super::field::{self, Columns, Line, LineParser, Reason};
use super::msr::one_is_read;
use crate::request::Request;

/// `938513000 4 264719034 16 0`: arrival in ns, device, first sector, sectors (512 B), 1 for a
/// read and 0 for a write.
pub(crate) struct Mqsim;

impl LineParser for Mqsim {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::blanks(line);
        let at = columns.unsigned("arrival time")?;
        let device = field::device(columns.unsigned("device")?, "device")?;
        let offset = field::sectors(columns.unsigned("start sector")?, "start sector")?;
        let size = field::sectors(columns.unsigned("size")?, "size")?;
        let op = one_is_read(columns.want("type")?)?;
        columns.end()?;
        let request = field::request(at, op, offset, size)?;
        Ok(Line::Request(Request { device, stream: u32::from(device), ..request }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    #[test]
    fn sectors_become_bytes() {
        let Line::Request(request) = Mqsim.line(b"938513000 4 264719034 16 0").unwrap() else {
            panic!()
        };
        assert_eq!((request.device, request.op), (4, Op::Write));
        assert_eq!((request.offset, request.bytes), (264_719_034 * 512, 8192));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("1.5 0 0 16 1", "arrival time is not a whole number: '1.5'"),
            ("1 0 0 8388608 1", "size is 4294967296 bytes; a request has less than 4 GiB"),
            ("1 0 36028797018963968 8 1", "start sector is too large: 36028797018963968 sectors"),
            ("1 0 0 8", "column 'type' is missing"),
        ] {
            assert_eq!(Mqsim.line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
