//! fio's I/O logs, versions 2 and 3 (fio documentation, "Trace file format").

use super::field::{self, Columns, Line, LineParser, Reason, Unknown, shown};
use super::names::Names;
use crate::request::{Op, Request};

/// Version 2: `file action [offset length]`; it has no clock but its `wait`s.
/// Version 3: `microseconds file action [offset length]`.
#[derive(Default)]
pub(crate) struct Fio {
    version: Option<u8>,
    files: Names,
    waited: u64,
    unknown: Unknown,
}

/// For a message.
const ACTIONS: &str = "read, write, trim, sync, datasync, add, open or close";

impl LineParser for Fio {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        match self.version {
            Some(version) => self.action(line, version),
            None => {
                self.version = Some(match line.trim_ascii() {
                    b"fio version 2 iolog" => 2,
                    b"fio version 3 iolog" => 3,
                    other => {
                        return Err(format!(
                            "the file begins with '{}', not 'fio version 2 iolog' or 'fio version \
                             3 iolog'",
                            shown(other)
                        ));
                    }
                });
                Ok(Line::Header)
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        let waits = self.version == Some(2) && self.waited > 0;
        let clock = (self.version == Some(2)).then(|| match waits {
            false => "version 2 without a wait has no times: everything arrives at once, unless a \
                      replay has a --pace of its own"
                .to_owned(),
            true => "version 2 has no times but its waits, taken as \u{b5}s since the one before, \
                     as fio's documentation has them; fio's own replay takes them as ms since its \
                     start: write version 3, or use a --pace in a replay"
                .to_owned(),
        });
        self.unknown.note("actions").into_iter().chain(clock).collect()
    }
}

impl Fio {
    fn action(&mut self, line: &[u8], version: u8) -> Result<Line, Reason> {
        let mut columns = Columns::blanks(line);
        let at = match version {
            2 => self.waited,
            _ => field::ticks(columns.unsigned("timestamp")?, "timestamp", 1_000)?,
        };
        let file = columns.want("file name")?;
        let op = match columns.want("action")? {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Trim,
            // As in fio itself, these are one kind (`ddir_sync`).
            b"sync" | b"datasync" | b"sync_file_range" | b"syncfs" => Op::Flush,
            b"add" | b"open" | b"close" => return Ok(Line::Other),
            b"wait" if version == 2 => {
                // Counted from the last `wait`, so they add up.
                let micros = columns.unsigned("wait")?;
                let waited = micros.checked_mul(1_000).and_then(|n| self.waited.checked_add(n));
                self.waited = waited.ok_or_else(|| format!("wait is too large: '{micros}'"))?;
                return Ok(Line::Other);
            }
            text => return self.unknown.count(text, "action", ACTIONS),
        };
        let (offset, size) = match op {
            Op::Flush => (0, 0),
            _ => {
                let extent = (columns.unsigned("offset")?, columns.unsigned("length")?);
                columns.end()?;
                extent
            }
        };
        let request = field::request(at, op, offset, size)?;
        let device = self.files.number(&[file])?;
        Ok(Line::Request(Request { device, stream: u32::from(device), ..request }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (u64, Op, u64, u32, u16);

    fn requests(text: &str) -> Result<Vec<Row>, Reason> {
        let mut parser = Fio::default();
        let mut all = Vec::new();
        for line in text.lines() {
            if let Line::Request(r) = parser.line(line.as_bytes())? {
                all.push((r.at.0, r.op, r.offset, r.bytes, r.device));
            }
        }
        Ok(all)
    }

    #[test]
    fn version_3_has_microseconds() {
        let text = "fio version 3 iolog\n2 sdb add\n872 sdb open\n878 sdb write 0 16384\n\
                    888 sdc read 4096 512\n890 sdb sync 0 0\n891 sdb trim 0 65536\n900 sdb close";
        let expected = [
            (878_000, Op::Write, 0, 16_384, 0),
            (888_000, Op::Read, 4096, 512, 1),
            (890_000, Op::Flush, 0, 0, 0),
            (891_000, Op::Trim, 0, 65_536, 0),
        ];
        assert_eq!(requests(text).unwrap(), expected);
    }

    #[test]
    fn version_2_has_waits_that_add_up() {
        let text = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 0 4096\n\
                    /dev/sdb wait 500 0\n/dev/sdb write 8192 4096\n/dev/sdb wait 500 0\n\
                    /dev/sdb datasync";
        let expected = [
            (0, Op::Read, 0, 4096, 0),
            (500_000, Op::Write, 8192, 4096, 0),
            (1_000_000, Op::Flush, 0, 0, 0),
        ];
        assert_eq!(requests(text).unwrap(), expected);
    }

    #[test]
    fn unknown_actions_are_passed_over_and_told() {
        let mut parser = Fio::default();
        for line in ["fio version 3 iolog", "5 sdb wait 100 0", "6 sdb copy 0 1", "6 sdb copy 2 3"]
        {
            assert!(parser.line(line.as_bytes()).is_ok());
        }
        assert_eq!(
            parser.notes(),
            ["rows of unknown actions were passed over: 2 × copy, 1 × wait"]
        );
    }

    #[test]
    fn faults_are_named() {
        for (text, said) in [
            ("sdb add", "'fio version 2 iolog'"),
            ("fio version 3 iolog\n5 sdb 100 0", "action is '100'"),
            ("fio version 3 iolog\n5 sdb read 0 100 7", "a column too many: '7'"),
            ("fio version 3 iolog\n5 sdb read 100", "column 'length' is missing"),
            ("fio version 3 iolog\nsdb read 0 100", "timestamp is not a whole number: 'sdb'"),
            ("fio version 2 iolog\nsdb wait -5", "wait is negative: '-5'"),
        ] {
            let reason = requests(text).unwrap_err();
            assert!(reason.contains(said), "{reason}");
        }
    }
}
