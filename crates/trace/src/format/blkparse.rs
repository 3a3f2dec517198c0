//! The default text output of `blkparse` (blktrace).

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use super::names::Names;
use crate::request::{Op, Request};

/// `  8,0    3    1   0.000000000   697  Q   W 223490 + 8 [kjournald]`: device, processor,
/// sequence number, seconds, process, action, kind, first sector, sectors (512 B).
///
/// The queue events (`Q`) are the arrivals. Latency is not taken: a completion (`C`) may cover
/// several queued requests that were merged, and would have to be awaited.
#[derive(Default)]
pub(crate) struct Blkparse {
    devices: Names,
    summary: bool,
    events: u64,
    queued: u64,
}

/// Every action that `blkparse` prints, besides two-letter `UT`.
const ACTIONS: &[u8] = b"QGIDCMFAXPUTBSRm";

impl LineParser for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        if self.summary || line.starts_with(b"CPU") || line.starts_with(b"Total (") {
            // The totals stand at the end of the output.
            self.summary = true;
            return if self.events > 0 {
                Ok(Line::Other)
            } else {
                Err("totals of blkparse without any event before them".to_owned())
            };
        }
        let mut columns = Columns::blanks(line);
        let device = columns.want("device")?;
        major_minor(device)?;
        columns.unsigned("processor")?;
        columns.unsigned("sequence number")?;
        let at = field::time(columns.want("timestamp")?, "timestamp", 1_000_000_000)?;
        let process = field::stream(columns.unsigned("process")?, "process")?;
        let action = columns.want("action")?;
        if action != b"Q" {
            return self.other(action);
        }
        let Some(op) = kind(columns.want("kind")?)? else { return Ok(Line::Other) };
        let (op, offset, size) = extent(&mut columns, op)?;
        let request = field::request(at, op, offset, size)?;
        let device = self.devices.number(&[device])?;
        self.events += 1;
        self.queued += 1;
        Ok(Line::Request(Request { device, stream: process, ..request }))
    }

    fn end(&self) -> Result<(), Reason> {
        if self.events > 0 && self.queued == 0 {
            return Err(format!(
                "{} events, but none of them is a queue event (Q), the arrival of a request; \
                 run blkparse without an action filter",
                self.events
            ));
        }
        Ok(())
    }
}

impl Blkparse {
    fn other(&mut self, action: &[u8]) -> Result<Line, Reason> {
        if action == b"UT" || matches!(action, [one] if ACTIONS.contains(one)) {
            self.events += 1;
            return Ok(Line::Other);
        }
        Err(format!("action is '{}', not one of blkparse's (Q, G, I, D, C, ...)", shown(action)))
    }
}

fn major_minor(device: &[u8]) -> Result<(), Reason> {
    let mut parts = device.split(|byte| *byte == b',');
    let mut number = || parts.next().is_some_and(|part| field::unsigned(part, "device").is_ok());
    if number() && number() && parts.next().is_none() {
        return Ok(());
    }
    Err(format!("device is '{}', not major,minor such as 8,0", shown(device)))
}

/// The RWBS column: what the request does, `None` where it moves no data (N, zone commands).
fn kind(rwbs: &[u8]) -> Result<Option<Op>, Reason> {
    if rwbs.is_empty() || !rwbs.iter().all(u8::is_ascii_uppercase) {
        return Err(format!("kind is '{}', not letters such as R, WS or D", shown(rwbs)));
    }
    // F first is a flush ahead of the rest, F last forces the write through (blktrace, RWBS).
    let main = rwbs.iter().copied().find(|letter| *letter != b'F').unwrap_or(b'F');
    Ok(match main {
        b'R' => Some(Op::Read),
        b'W' => Some(Op::Write),
        b'D' => Some(Op::Trim),
        b'F' => Some(Op::Flush),
        _ => None,
    })
}

/// `sector + sectors`; without it, or with none, the request is a bare flush.
fn extent(columns: &mut Columns<'_>, op: Op) -> Result<(Op, u64, u64), Reason> {
    let Some(sector) = columns.next().filter(|text| !text.starts_with(b"[")) else {
        return Ok((Op::Flush, 0, 0));
    };
    let offset = field::sectors(field::unsigned(sector, "sector")?, "sector")?;
    match columns.want("+")? {
        b"+" => {}
        text => return Err(format!("'+' was expected after the sector, not '{}'", shown(text))),
    }
    let size = field::sectors(columns.unsigned("size")?, "size")?;
    Ok(if size == 0 { (Op::Flush, 0, 0) } else { (op, offset, size) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::units::Nanos;

    #[test]
    fn queue_events_are_the_arrivals() {
        let text = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    3        3     0.000002197   697  P   N [kjournald]
  8,0    3        4     0.000003000   697  Q  FWFS 223498 + 8 [kjournald]
  8,16   1        5     0.000004000   698  Q FWS [fsync]
  8,0    1        6     0.000005000   699  Q   D 1024 + 2048 [fstrim]
  8,0    1        7     0.000006000   700  Q  RA 5 + 8 [cat]
  8,0    1        8     0.009507758   697  C   W 223490 + 8 [0]
  8,0    1        0     0.009600000     0  m   N cfq697 arm_idle
CPU0 (8,0):
 Reads Queued:           0,        0KiB";
        let mut parser = Blkparse::default();
        let mut all = Vec::new();
        for line in text.lines() {
            if let Line::Request(r) = parser.line(line.as_bytes()).unwrap() {
                all.push((r.at, r.op, r.offset, r.bytes, r.device, r.stream));
            }
        }
        let expected = [
            (Nanos(0), Op::Write, 223_490 * 512, 4096, 0, 697),
            (Nanos(3000), Op::Write, 223_498 * 512, 4096, 0, 697),
            (Nanos(4000), Op::Flush, 0, 0, 1, 698),
            (Nanos(5000), Op::Trim, 1024 * 512, 1 << 20, 0, 699),
            (Nanos(6000), Op::Read, 5 * 512, 4096, 0, 700),
        ];
        assert_eq!(all, expected);
        assert_eq!(parser.end(), Ok(()));
    }

    #[test]
    fn a_file_without_arrivals_is_refused() {
        let mut parser = Blkparse::default();
        let line = b"8,0 1 8 0.009507758 697 C W 223490 + 8 [0]";
        assert_eq!(parser.line(line), Ok(Line::Other));
        assert!(parser.end().unwrap_err().contains("queue event (Q)"));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("sda 1 1 0.0 1 Q W 0 + 8", "device is 'sda'"),
            ("8,0 1 1 zero 1 Q W 0 + 8", "timestamp is not a number: 'zero'"),
            ("8,0 1 1 0.0 1 Y W 0 + 8", "action is 'Y'"),
            ("8,0 1 1 0.0 1 Q W 0 - 8", "'+' was expected"),
            ("8,0 1 1 0.0 1 Q W 0 + x", "size is not a whole number: 'x'"),
            ("8,0 1 1 0.0 1 Q 17 0 + 8", "kind is '17'"),
        ] {
            let reason = Blkparse::default().line(line.as_bytes()).unwrap_err();
            assert!(reason.contains(said), "{reason}");
        }
    }
}
