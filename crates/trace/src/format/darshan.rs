//! Darshan's extended tracing (DXT, POSIX module) as CSV.

use std::num::NonZeroU64;

use super::field::{self, Columns, Line, LineParser, Reason};
use super::{alibaba::read_or_write, names::Names};
use crate::request::Request;

/// The first line by which the format is known.
pub(crate) const HEADING: &str = "start_s,end_s,rank,file_id,op,offset,length";
const SECOND: u64 = 1_000_000_000;

/// `2.7599,2.759941,0,0,R,0,32`: seconds of start and end since the job began, MPI rank, file, R
/// or W, offset in bytes, length in bytes. Files are the devices, ranks the streams. Calls of
/// length 0 (reads at the end of a file) reach no device and are passed over.
#[derive(Default)]
pub(crate) struct Darshan {
    files: Names,
}

impl LineParser for Darshan {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        if Columns::commas(line).eq(Columns::commas(HEADING.as_bytes())) {
            return Ok(Line::Header);
        }
        let mut columns = Columns::commas(line);
        let at = field::time(columns.want("start_s")?, "start_s", SECOND)?;
        let end = field::time(columns.want("end_s")?, "end_s", SECOND)?;
        let stream = field::stream(columns.unsigned("rank")?, "rank")?;
        let file = columns.want("file_id")?;
        field::unsigned(file, "file_id")?;
        let op = read_or_write(columns.want("op")?)?;
        let offset = columns.unsigned("offset")?;
        let size = columns.unsigned("length")?;
        columns.end()?;
        let latency = end.checked_sub(at).ok_or("end_s lies before start_s")?;
        if size == 0 {
            return Ok(Line::Other);
        }
        let request = field::request(at, op, offset, size)?;
        let device = self.files.number(&[file])?;
        let recorded_latency = NonZeroU64::new(latency);
        Ok(Line::Request(Request { device, stream, recorded_latency, ..request }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    #[test]
    fn calls_have_rank_and_latency() {
        let mut parser = Darshan::default();
        assert_eq!(parser.line(HEADING.as_bytes()), Ok(Line::Header));
        let line = b"12.942906,13.561544,23,1,R,1996488704,16777216";
        let Line::Request(request) = parser.line(line).unwrap() else { panic!() };
        assert_eq!((request.stream, request.op, request.bytes), (23, Op::Read, 16 << 20));
        assert_eq!(request.recorded_latency.unwrap().get(), 618_638_000);
        assert_eq!(parser.line(b"1.0,1.1,0,0,R,64,0"), Ok(Line::Other));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("2.0,1.0,0,0,R,0,32", "end_s lies before start_s"),
            ("1.0,2.0,0,x,R,0,32", "file_id is not a whole number: 'x'"),
            ("1.0,2.0,0,0,R,0,-1", "length is negative: '-1'"),
            ("nan,2.0,0,0,R,0,1", "start_s is not a number: 'nan'"),
        ] {
            assert_eq!(Darshan::default().line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
