//! Lines as blkparse prints them.

use ebb_policy::units::Nanos;

use super::*;
use crate::{OpenOptions, Source, open_bytes};

/// Linux 4.3 to 4.11 queue the rest of a split request once more, newer ones do not.
#[test]
fn the_rest_of_a_split_request_counts_once() {
    let mut parser = Blkparse::default();
    let mut requests = |lines: &[&str]| {
        let line = |line: &&str| parser.line(format!("8,0 1 1 0.0 {line} [dd]").as_bytes());
        lines.iter().map(line).filter(|line| matches!(line, Ok(Line::Request(_)))).count()
    };
    let split = ["9 Q W 0 + 2048", "9 X W 0 / 512", "9 Q W 512 + 1536"];
    let again = ["9 X W 512 / 1024", "9 Q W 1024 + 1024", "9 D W 0 + 512"];
    assert_eq!(requests(&[&split[..], &again[..]].concat()), 1);
    assert_eq!(requests(&["9 Q W 1024 + 1024"]), 1, "later the same place is another request");
    let mut on_parts = |device: &str, event: &str| {
        let line = format!("{device} 1 1 0.0 {event} [dd]");
        usize::from(matches!(parser.line(line.as_bytes()), Ok(Line::Request(_))))
    };
    let volume = on_parts("253,0", "7 Q W 0 + 16") + on_parts("253,0", "7 X W 0 / 8");
    let parts = on_parts("8,0", "7 A W 64 + 8 <- (253,0) 0") + on_parts("8,0", "7 Q W 64 + 8");
    assert_eq!((volume, parts, on_parts("253,0", "7 Q W 8 + 8")), (1, 0, 0));
    let mut requests = |lines: &[&str]| {
        let line = |line: &&str| parser.line(format!("8,0 1 1 0.0 {line} [dd]").as_bytes());
        lines.iter().map(line).filter(|line| matches!(line, Ok(Line::Request(_)))).count()
    };
    assert_eq!(requests(&["9 Q W 0 + 16", "9 X W 0 / 8", "9 Q R 8 + 16", "8 Q W 8 + 8"]), 3);
    assert!(parser.notes()[0].starts_with("3 queue events (Q) are not counted"));
}

#[test]
fn totals_of_processes_end_the_events() {
    let mut parser = Blkparse::default();
    assert!(parser.line(b"a (1)").is_err(), "before any event");
    for line in ["8,0 1 1 0.0 9 Q W 0 + 8 [dd]", "kjournald (697)", " Reads Queued: 1, 4KiB"] {
        assert!(parser.line(line.as_bytes()).is_ok(), "{line}");
    }
}

/// The totals of each device say how many events its buffers did not hold.
#[test]
fn events_that_were_lost_are_told() {
    let text = "\
8,0 1 1 0.0 9 Q W 0 + 8 [dd]
CPU0 (8,0):
Skips: 3 forward (1,234 -  12.3%)
Skips: 0 forward (0 -   0.0%)";
    let mut parser = Blkparse::default();
    parser.survey(text.as_bytes());
    assert!(text.lines().all(|line| parser.line(line.as_bytes()).is_ok()));
    assert!(parser.notes()[0].starts_with("1234 events were lost"), "{:?}", parser.notes());
}

/// blktrace writes to standard error, which may go to the same file, before or after the events.
#[test]
fn statistics_of_blktrace_are_passed_over() {
    let events = "8,0 1 1 0.0 9 Q W 0 + 8 [dd]\n8,0 1 2 0.1 9 Q W 8 + 8 [dd]\n";
    let told = "=== sda ===\n  CPU  0:      1234 events,       58 KiB data\n  Total:      1234 \
                events (dropped 12),       58 KiB data\n\nYou have 12 (  1.0%) dropped events\n\
                Consider using a larger buffer size (-b) and/or more buffers (-n)\n";
    for text in [format!("{told}{events}"), format!("{events}{told}")] {
        let mut parser = Blkparse::default();
        parser.survey(text.as_bytes());
        let lines = text.lines().filter(|line| !line.is_empty());
        let read: Vec<_> = lines.map(|line| parser.line(line.as_bytes()).unwrap()).collect();
        assert_eq!(read.iter().filter(|line| matches!(line, Line::Request(_))).count(), 2);
        assert!(parser.notes()[0].starts_with("12 events were lost"), "{:?}", parser.notes());
    }
    for line in ["=== sda", "Total: 5 events", "You have mail", "CPUs"] {
        assert!(Blkparse::default().line(line.as_bytes()).is_err(), "{line}");
    }
}

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
    assert!(parser.end().unwrap_err().contains("queued (Q) or issued"));
    for lenient in [false, true] {
        let options = OpenOptions { lenient, ..OpenOptions::default() };
        let mut reader = open_bytes("t", [&line[..], b"\n"].concat(), &options).unwrap();
        let error = reader.fill(&mut Vec::new()).unwrap_err().to_string();
        // There is nothing to pass over.
        assert!(error.contains("-a queue") && !error.contains("--lenient"), "{error}");
    }
}

#[test]
fn faults_are_named() {
    for (line, said) in [
        ("sda 1 1 0.0 1 Q W 0 + 8", "device is 'sda'"),
        ("8,0 1 1 zero 1 Q W 0 + 8", "timestamp is not a number: 'zero'"),
        ("8,0 1 1 0.0 1 17 W 0 + 8", "action is '17'"),
        ("8,0 1 1 0.0 1 Q W 0 + 8 9", "a column too many: '9'"),
        ("8,0 1 1 0.0 1 Q W 0 - 8", "'+' was expected"),
        ("8,0 1 1 0.0 1 Q W 0 + x", "size is not a whole number: 'x'"),
        ("8,0 1 1 0.0 1 Q 17 0 + 8", "kind is '17'"),
    ] {
        let reason = Blkparse::default().line(line.as_bytes()).unwrap_err();
        assert!(reason.contains(said), "{reason}");
    }
}

/// When, what, the first sector and sectors.
type Row = (u64, Op, u64, u32);

/// Requests and notes of a whole output.
fn read(text: &str) -> (Vec<Row>, Vec<String>) {
    let (mut parser, mut all) = (Blkparse::default(), Vec::new());
    parser.survey(text.as_bytes());
    for line in text.lines() {
        if let Line::Request(r) = parser.line(line.as_bytes()).unwrap() {
            all.push((r.at.0, r.op, r.offset / 512, r.bytes / 512));
        }
    }
    assert_eq!(parser.end(), Ok(()));
    (all, parser.notes())
}

#[test]
fn issues_are_the_arrivals_where_nothing_is_queued() {
    let (all, notes) = read(
        "8,0 1 1 0.1 7 D W 8 + 8 [x]\n8,0 1 1 0.2 0 C W 8 + 8 [0]\n8,0 1 1 0.3 7 D FN [x]\n\
         8,0 1 1 0.4 7 D R 36 (12 00 00 00 24 00 ..) [hald]\n",
    );
    assert_eq!(all, [(100_000_000, Op::Write, 8, 8), (300_000_000, Op::Flush, 0, 0)]);
    assert!(notes[0].contains("no queue events"), "{notes:?}");
    let (all, notes) = read("8,0 1 1 0.1 7 D W 8 + 8 [x]\n8,0 1 1 0.2 0 Q R 16 + 8 [x]\n");
    assert_eq!((all, notes), (vec![(200_000_000, Op::Read, 16, 8)], vec![]));
}

/// A device that is busy returns a request, which is issued once more.
#[test]
fn a_request_that_is_issued_again_counts_once() {
    let text = "\
8,0 0 1 0.1 7 D W 2048 + 8 [x]
8,0 0 2 0.2 7 R W 2048 + 8 [0]
8,0 0 3 0.3 7 D W 4096 + 8 [x]
8,0 0 4 0.4 9 D W 2048 + 8 [kworker]
8,0 0 5 0.5 0 C W 2048 + 8 [0]
8,0 0 6 0.6 7 D W 2048 + 8 [x]
8,0 0 7 0.7 7 D FN [x]
8,0 0 8 0.8 7 R FN [0]
8,0 0 9 0.9 7 D FN [x]
";
    let (all, notes) = read(text);
    let arrivals: Vec<_> = all.iter().map(|(at, ..)| at / 100_000_000).collect();
    assert_eq!(arrivals, [1, 3, 6, 7]);
    assert!(notes[1].starts_with("2 issues (D) are not counted"), "{notes:?}");
    // Where requests are queued, what is issued is none.
    let queued = format!("8,0 0 0 0.0 7 Q W 2048 + 8 [x]\n{text}8,0 0 0 1.0 7 Q W 2048 + 8 [x]\n");
    assert_eq!((read(&queued).0.len(), read(&queued).1), (2, vec![]));
}

#[test]
fn a_stack_of_devices_counts_once() {
    let stack = "\
253,1 1 1 0.0 9 Q W 0 + 8 [dd]
253,0 1 1 0.1 9 A W 64 + 8 <- (253,1) 0
253,0 1 1 0.1 9 Q W 64 + 8 [dd]
  8,2 1 1 0.2 9 A W 512 + 8 <- (253,0) 64
  8,0 1 1 0.2 9 A W 2560 + 8 <- (8,2) 512
  8,0 1 1 0.2 9 Q W 2560 + 8 [dd]
 8,16 1 1 0.3 9 Q W 1 + 8 [dd]
";
    let (all, notes) = read(stack);
    assert_eq!(all, [(0, Op::Write, 0, 8), (300_000_000, Op::Write, 1, 8)]);
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[1].starts_with("1 requests of 8,0 are not counted: they are those of 253,0"));
    // A partition has no queue events of its own, nor has a volume that is not traced.
    let lower: String = stack.lines().skip(3).map(|line| format!("{line}\n")).collect();
    assert_eq!((read(&lower).0.len(), read(&lower).1), (2, vec![]));
    // Wherever it stands in the file.
    let mut parser = Blkparse::default();
    let requests = stack
        .lines()
        .chain(stack.lines())
        .filter(|line| matches!(parser.line(line.as_bytes()), Ok(Line::Request(_))));
    assert_eq!(requests.count(), 4);
}

#[test]
fn a_volume_that_is_traced_in_part_loses_nothing() {
    // 253,0 is on 8,0 and on a disk that is not traced; 8,0 has requests of its own.
    let (all, notes) = read(
        "\
253,0 0 1 0.1 1 Q W 8 + 8 [a]
253,0 0 2 0.2 1 Q W 16 + 8 [a]
  8,0 0 3 0.2 1 A W 4096 + 8 <- (253,0) 16
  8,0 0 4 0.3 2 Q W 512 + 8 [b]
  8,0 0 5 0.3 1 Q W 4096 + 8 [a]
  8,0 0 6 0.4 2 Q W 4096 + 8 [b]
253,0 0 7 0.5 1 Q FWS [a]
  8,2 0 8 0.5 1 A FWS 0 + 0 <- (253,0) 0
  8,0 0 9 0.5 1 Q FWS [a]
  8,0 0 9 0.6 1 Q FWS [a]
",
    );
    let arrivals: Vec<_> = all.iter().map(|(at, ..)| at / 100_000_000).collect();
    assert_eq!(arrivals, [1, 2, 3, 4, 5, 6]);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("2 requests of 8,0 are not counted"), "{notes:?}");
}

#[test]
fn remapped_requests_that_do_not_arrive_are_forgotten() {
    let mut parser = Blkparse::default();
    assert!(parser.line(b"9,0 0 1 0.1 1 Q W 0 + 8 [a]").is_ok());
    let mut line = |text: String| parser.line(text.as_bytes()).unwrap();
    for sector in 0..100_000 {
        line(format!("8,0 0 1 0.1 1 A W {sector} + 8 <- (9,0) 0"));
    }
    let mut counts = |sector| {
        let line = line(format!("8,0 0 1 0.1 1 Q W {sector} + 8 [a]"));
        matches!(line, Line::Request(_))
    };
    assert_eq!([0, 98_000, 99_999, 99_999].map(&mut counts), [true, false, false, true]);
}

#[test]
fn zones_and_unknown_actions_are_told_apart() {
    let (all, notes) = read(
        "8,0 1 1 0.1 7 Q ZA 8 + 8 [x]\n8,0 1 1 0.1 7 ZP N [x]\n8,0 1 1 0.1 7 ZQ N [x]\n\
         8,0 1 1 0.2 7 Q ZRA 0 + 8 [x]\n8,0 1 1 0.2 7 Q R [x]\n",
    );
    assert_eq!(all, [(100_000_000, Op::Write, 8, 8)]);
    assert_eq!(notes, ["rows of unknown actions were passed over: 1 × ZQ"]);
}

#[test]
fn a_line_that_is_cut_off_is_no_request() {
    let mut parser = Blkparse::default();
    assert!(parser.line(b"8,0 1 1 0.1 7 Q W 8 + 256 [x]").is_ok());
    for line in ["Q W 8 + 25", "Q W 8 +", "Q R 8", "Q W"] {
        let reason = parser.line(format!("8,0 1 1 0.1 7 {line}").as_bytes()).unwrap_err();
        assert!(reason.contains("cut off") || line.ends_with('+'), "{line}: {reason}");
    }
}

#[test]
fn another_output_may_follow_the_totals() {
    let one = "8,0 1 1 0.1 7 Q W 8 + 8 [x]\nCPU0 (8,0):\n Reads Queued:  0,  0KiB\n";
    assert_eq!(read(&format!("Input file sda.blktrace.0 added\n{one}{one}")).0.len(), 2);
}
