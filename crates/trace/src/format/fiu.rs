//! FIU's traces (Koller, Rangaswami, Verma et al., FAST'10; SNIA IOTTA 391 and 414).

use super::alibaba::read_or_write;
use super::field::{self, Columns, Line, LineParser, Reason};
use super::names::Names;
use crate::request::Request;

/// `329131208190249 4892 syslogd 904265560 8 W 6 0 531e779d39068ae5`: nanoseconds, process,
/// command, first sector, sectors (512 B), R or W, major and minor number, digest of the data.
///
/// A command may contain blanks, so the columns behind it are counted from the right.
#[derive(Default)]
pub(crate) struct Fiu {
    devices: Names,
}

impl LineParser for Fiu {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let columns: Vec<&[u8]> = Columns::blanks(line).collect();
        let [at, process, _, .., sector, size, op, major, minor, digest] = columns[..] else {
            return Err(format!("{} columns, not nine", columns.len()));
        };
        let at = field::unsigned(at, "timestamp")?;
        let stream = field::stream(field::unsigned(process, "process")?, "process")?;
        let offset = field::sectors(field::unsigned(sector, "sector")?, "sector")?;
        let size = field::sectors(field::unsigned(size, "size")?, "size")?;
        let op = read_or_write(op)?;
        field::unsigned(major, "major number")?;
        field::unsigned(minor, "minor number")?;
        if !digest.iter().all(u8::is_ascii_hexdigit) {
            return Err("the last column is no digest in hexadecimal".to_owned());
        }
        let device = self.devices.number(&[major, minor])?;
        Ok(Line::Request(Request { device, stream, ..field::request(at, op, offset, size)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    #[test]
    fn a_command_may_have_blanks() {
        let mut parser = Fiu::default();
        for line in
            ["89968195792462 20782 gzip 283193184 8 R 6 0 56f1", "5 20782 a b 283193184 8 R 6 0 0"]
        {
            let Line::Request(request) = parser.line(line.as_bytes()).unwrap() else { panic!() };
            assert_eq!((request.stream, request.op, request.device), (20_782, Op::Read, 0));
            assert_eq!((request.offset, request.bytes), (283_193_184 * 512, 4096));
        }
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("1 2 x 8 8 R 6 0", "8 columns, not nine"),
            ("1 2 x 8 8 Q 6 0 ab", "type is 'Q', not R or W"),
            ("1.5 2 x 8 8 R 6 0 ab", "timestamp is not a whole number: '1.5'"),
            ("1 2 x 8 8 R 6 0 xy", "the last column is no digest in hexadecimal"),
        ] {
            assert_eq!(Fiu::default().line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
