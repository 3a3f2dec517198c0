//! What readers promise whatever the format: where a fault is, what is skipped, what is bounded.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_trace::{
    Format, OpenOptions, Reader, Request, Source, TraceError, open, open_bytes, open_stream,
};

const EBB: &str = "at_ns,op,offset,bytes,device,stream,latency_ns";
const DARSHAN: &str = "start_s,end_s,rank,file_id,op,offset,length";
const BIOSNOOP: &str = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)";
const FIO: &str = "fio version 3 iolog";

fn opened(text: &str, lenient: bool) -> Result<Reader, TraceError> {
    open_bytes("t", text.as_bytes().to_vec(), &OpenOptions { lenient, ..OpenOptions::default() })
}

fn all(reader: &mut Reader) -> Result<Vec<Request>, TraceError> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        reader.fill(&mut all)?;
        if all.len() == before {
            return Ok(all);
        }
    }
}

fn error_of(text: &str) -> String {
    opened(text, false).and_then(|mut reader| all(&mut reader)).unwrap_err().to_string()
}

/// Two good lines of each text format, with the heading it needs.
fn good() -> Vec<(Format, &'static str, [&'static str; 2])> {
    use Format as F;
    vec![
        (
            F::Msr,
            "",
            ["128166372003061629,h,0,Read,0,512,5", "128166372003061639,h,0,Write,512,512,5"],
        ),
        (F::MsrCut, "", ["0.100 0 0 512 1", "0.200 0 512 512 0"]),
        (F::Mqsim, "", ["0 0 0 1 1", "20000 0 1 1 0"]),
        (F::Tencent, "", ["1538323200,0,8,0,1063", "1538323201,8,8,1,1063"]),
        (F::TencentReplay, "", ["0.0,90,1,512,0,0.1,512", "0.0,90,0,512,512,0.2,512"]),
        (F::Alibaba, "", ["0,R,0,512,1577808144360767", "0,W,512,512,1577808144361044"]),
        (F::Spc, "", ["0,0,512,R,0.1", "0,1,512,W,0.2"]),
        (F::Fio, FIO, ["1 sda read 0 512", "2 sda write 512 512"]),
        (F::Blkparse, "", ["8,0 1 1 0.1 9 Q R 0 + 1 [x]", "8,0 1 2 0.2 9 Q W 1 + 1 [x]"]),
        (F::Biosnoop, BIOSNOOP, ["0.1 x 1 sda R 0 512 0.1", "0.2 x 1 sda W 1 512 0.1"]),
        (F::Darshan, DARSHAN, ["0.1,0.2,0,0,R,0,512", "0.2,0.3,0,0,W,512,512"]),
        (F::EbbCsv, EBB, ["0,R,0,512,0,0,", "9,W,512,512,0,0,7"]),
    ]
}

#[test]
fn times_a_century_apart_are_refused_where_they_stand() {
    let year = 365 * 86_400 * 1_000_000_000_u64;
    for (times, line, said) in [
        ([0, u64::MAX, 1], 3, "585 years after another request"),
        ([0, 101 * year, 1], 3, "101 years after another request"),
        // Files in order of completion are put in order within a window.
        ([300 * year, 1, 2], 3, "years before another request"),
    ] {
        let lines = times.map(|at| format!("{},h,0,Read,0,512,5\n", at / 100));
        let msr = format!("Timestamp,Hostname\n{}", lines.concat());
        let opened = |lenient| {
            let format = Some(Format::Msr);
            let options = OpenOptions { format, lenient, ..OpenOptions::default() };
            open_bytes("t", msr.as_bytes().to_vec(), &options).unwrap()
        };
        let error = all(&mut opened(false)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("t:{line}: ")) && error.contains(said), "{error}");
        let mut lenient = opened(true);
        assert_eq!(all(&mut lenient).unwrap().len() as u64 + lenient.skipped().malformed, 3);
    }
    let text = format!("{EBB}\n0,R,0,512,0,0,\n{},R,0,512,0,0,\n", 99 * year);
    assert_eq!(all(&mut opened(&text, false).unwrap()).unwrap()[1].at.0, 99 * year);
}

#[test]
fn a_malformed_line_stops_with_file_line_and_reason() {
    for (format, heading, [first, second]) in good() {
        let lines = if heading.is_empty() { 3 } else { 4 };
        let text = format!("{heading}\n{first}\nbroken\n{second}\n").trim_start().to_owned();
        let error = error_of(&text);
        assert!(error.starts_with(&format!("t:{}: ", lines - 1)), "{format}: {error}");
    }
}

#[test]
fn blank_lines_and_windows_line_ends_count_as_lines_and_do_no_harm() {
    for (format, heading, [first, second]) in good() {
        let text = format!("{heading}\r\n\r\n{first}\r\n\n{second}\r\nbroken");
        let (lines, mut reader) = (6, opened(&text, true).unwrap());
        assert_eq!(reader.format(), format);
        assert_eq!(all(&mut reader).unwrap().len(), 2, "{format}");
        assert_eq!(reader.skipped().malformed, 1);
        assert_eq!(reader.skipped().reasons[0].0, lines);
    }
}

/// R quotes words, pandas everything if it is told to.
#[test]
fn fields_between_commas_may_be_quoted() {
    for (format, heading, lines) in good() {
        let text = |quote: fn(&str) -> String| {
            let line = |line: &str| line.split(',').map(quote).collect::<Vec<_>>().join(",");
            [heading, lines[0], lines[1]].map(line).join("\n").trim_start().to_owned()
        };
        if !lines[0].contains(',') || format == Format::Blkparse {
            continue;
        }
        let bare = all(&mut opened(&text(str::to_owned), false).unwrap()).unwrap();
        let words = |field: &str| match field.parse::<f64>() {
            Ok(_) => field.to_owned(),
            Err(_) => format!("\"{field}\""),
        };
        for quoted in [text(|field| format!("\"{field}\"")), text(words)] {
            let quoted = quoted.replace("\"\"", "");
            let mut reader = opened(&quoted, false).unwrap();
            assert_eq!((reader.format(), all(&mut reader).unwrap()), (format, bare.clone()));
        }
    }
}

#[test]
fn the_first_request_is_at_zero_and_detection_agrees() {
    for (format, heading, [first, second]) in good() {
        let mut reader =
            opened(format!("{heading}\n{first}\n{second}").trim_start(), false).unwrap();
        assert_eq!(reader.format(), format);
        let all = all(&mut reader).unwrap();
        assert_eq!(all[0].at.0, 0, "{format}");
        assert!(all[1].at > all[0].at, "{format}");
    }
}

#[test]
fn a_lenient_reader_counts_and_keeps_the_first_reasons() {
    let mut text = "0 0 0 1 1\n".to_owned();
    for number in 1..=10 {
        text += &format!("{number}00000 0 0 -{number} 1\n{number}00000 0 0 1 1\n");
    }
    let mut reader = opened(&text, true).unwrap();
    assert_eq!(all(&mut reader).unwrap().len(), 11);
    let skipped = reader.skipped();
    assert_eq!((skipped.malformed, skipped.reasons.len()), (10, 5));
    assert_eq!(skipped.reasons[1], (4, "size is negative: '-2'".to_owned()));
}

#[test]
fn time_running_backwards_names_both_times() {
    let error = error_of("100000 0 0 1 1\n900000 0 0 1 1\n300000 0 0 1 1\n");
    assert!(error.starts_with("t:3: time runs backwards: 0.000200000 s after 0.000800000 s"));
    let mut reader =
        opened("100000 0 0 1 1\n900000 0 0 1 1\n30000 0 0 1 1\n950000 0 0 1 1\n", true).unwrap();
    assert_eq!(all(&mut reader).unwrap().len(), 3);
}

#[test]
fn rows_in_order_of_completion_are_sorted_within_the_window() {
    let mut text = String::new();
    for number in 0..1000 {
        let swapped = (number / 100) * 100 + (99 - number % 100);
        text += &format!("0.000,100,1,4096,0,{swapped}.000,4096\n");
    }
    let all = all(&mut opened(&text, false).unwrap()).unwrap();
    assert_eq!(all.len(), 1000);
    assert!(all.is_sorted_by_key(|request| request.at));
}

#[test]
fn rows_farther_out_of_order_than_the_window_are_refused() {
    let mut text = String::new();
    for number in 1..=70_000 {
        text += &format!("0,1,1,4096,0,{number},4096\n");
    }
    text += "0,1,1,4096,0,0,4096\n";
    let error = error_of(&text);
    assert!(error.starts_with("t:70001: time runs backwards"), "{error}");
    assert!(error.contains("65536 records") && error.contains("sort the file"), "{error}");
}

#[test]
fn what_is_no_trace_is_refused_with_the_names_of_the_formats() {
    assert_eq!(error_of(""), "t: the file is empty");
    assert!(error_of("\u{0}\u{0}\u{0}\u{0}").contains("binary data"));
    for text in ["hello\n", "1,2,3\n4,5,6\n"] {
        let error = error_of(text);
        assert!(error.contains("--format") && error.contains("tencent-replay"), "{error}");
    }
    let named = OpenOptions { format: Some(Format::Spc), ..OpenOptions::default() };
    let error = all(&mut open_bytes("t", Vec::new(), &named).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "t: there is no request in it");
    let error = open("/no/such/trace", &OpenOptions::default()).err().unwrap().to_string();
    assert!(error.starts_with("/no/such/trace: "), "{error}");
    let error = open(env!("CARGO_MANIFEST_DIR"), &OpenOptions::default()).err().unwrap();
    assert!(error.to_string().contains("directory"), "{error}");
}

fn many(count: usize) -> String {
    (0..count)
        .map(|n| format!("{} {} {} 8 {}\n", n * 97_700, n % 5, n * 7919 % 100_003, n % 2))
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

#[test]
fn gzip_and_zstd_are_undone_by_their_magic_not_their_name() {
    let text = many(20_000);
    let plain = all(&mut opened(&text, false).unwrap()).unwrap();
    let (first, second) = text.as_bytes().split_at(text.len() / 2);
    let frames = [zstd::encode_all(first, 3).unwrap(), zstd::encode_all(second, 3).unwrap()];
    let twice = [gzip(&gzip(text.as_bytes())), gzip(&frames.concat())];
    let once = [gzip(text.as_bytes()), [gzip(first), gzip(second)].concat(), frames.concat()];
    for packed in once.into_iter().chain(twice) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        std::fs::write(&path, packed).unwrap();
        let mut reader = open(&path, &OpenOptions::default()).unwrap();
        assert!(all(&mut reader).unwrap() == plain);
    }
}

#[test]
fn a_truncated_archive_names_the_file_and_how_far_it_went() {
    let text = many(50_000);
    for mut packed in [gzip(text.as_bytes()), zstd::encode_all(text.as_bytes(), 3).unwrap()] {
        packed.truncate(packed.len() * 3 / 4);
        for lenient in [false, true] {
            let options = OpenOptions { lenient, ..OpenOptions::default() };
            let mut reader = open_bytes("cut.gz", packed.clone(), &options).unwrap();
            let mut read = Vec::new();
            let error = loop {
                let before = read.len();
                match reader.fill(&mut read) {
                    Ok(()) => assert!(read.len() > before, "the end came without an error"),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(read.len() > 10_000);
            let end = format!("after {} requests were read", read.len());
            assert!(error.starts_with("cut.gz: the file ends early (truncated?)"), "{error}");
            assert!(error.ends_with(&end), "{error}");
            let count = read.len();
            assert!(reader.fill(&mut read).is_ok() && read.len() == count);
        }
    }
    let error = open_bytes("cut.gz", gzip(b"x")[..12].to_vec(), &OpenOptions::default());
    assert!(matches!(error, Err(TraceError::Io { .. })));
}

#[test]
fn zeros_in_a_text_are_told_as_what_they_are() {
    let text = [many(20_000).as_bytes(), &[0; 4096], b"\n1 2 3 8 0\n"].concat();
    let mut reader = open_bytes("t", text, &OpenOptions::default()).unwrap();
    let error = all(&mut reader).unwrap_err().to_string();
    assert!(error.contains("t:20001: zeros in place of text"), "{error}");
}

#[test]
fn a_vscsi_file_that_ends_inside_a_record_says_so() {
    let mut bytes = Vec::new();
    for number in 0..4_u64 {
        bytes.extend([1, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0x28, 0, 0, 1]);
        bytes.extend([number.to_le_bytes(), (number * 1000).to_le_bytes()].concat());
    }
    let mut reader = open_bytes("t", bytes.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(reader.format(), Format::Vscsi);
    assert_eq!(all(&mut reader).unwrap().len(), 4);
    bytes.truncate(4 * 32 - 7);
    let mut reader = open_bytes("t", bytes, &OpenOptions::default()).unwrap();
    let error = all(&mut reader).unwrap_err().to_string();
    assert!(error.starts_with("t:4: the file ends inside a record: 25 of 32 bytes"), "{error}");
}

/// Makes `lines` lines, one read at a time, and counts the bytes it was asked for.
struct Endless {
    line: u64,
    lines: u64,
    given: Arc<AtomicU64>,
}

impl Read for Endless {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let mut used = 0;
        while self.line < self.lines {
            let text = format!("{} 0 {} 8 1\n", self.line * 10_000, self.line);
            if used + text.len() > to.len() {
                break;
            }
            to[used..used + text.len()].copy_from_slice(text.as_bytes());
            used += text.len();
            self.line += 1;
        }
        self.given.fetch_add(used as u64, Ordering::Relaxed);
        Ok(used)
    }
}

#[test]
fn memory_stays_flat_however_long_the_trace() {
    let given = Arc::new(AtomicU64::new(0));
    let source = Endless { line: 0, lines: 200_000, given: given.clone() };
    let mut reader = open_stream("t", source, &OpenOptions::default()).unwrap();
    let (mut batch, mut count, mut used) = (Vec::new(), 0, 0);
    loop {
        batch.clear();
        reader.fill(&mut batch).unwrap();
        if batch.is_empty() {
            break;
        }
        assert!(batch.len() <= ebb_trace::reader::BATCH);
        let line = |r: &Request| format!("{} 0 {} 8 1\n", r.at.0, r.offset / 512).len() as u64;
        used += batch.iter().map(line).sum::<u64>();
        count += batch.len();
        // What was taken from the file and not yet handed out fits the reader's buffers.
        let ahead = given.load(Ordering::Relaxed) - used;
        assert!(ahead <= 512 * 1024, "{ahead} bytes held after {count} requests");
    }
    assert_eq!(count, 200_000);
}

#[test]
fn what_is_there_is_given_before_more_is_waited_for() {
    struct Live(Option<Vec<u8>>);
    impl Read for Live {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let lines = self.0.take().ok_or_else(|| std::io::Error::other("it would wait"))?;
            let (now, later) = lines.split_at(lines.len().min(to.len()));
            to[..now.len()].copy_from_slice(now);
            self.0 = Some(later.to_vec()).filter(|later| !later.is_empty());
            Ok(now.len())
        }
    }
    let lines: String = (0..80).map(|at| format!("0,{at},512,W,0.{at:03}\n")).collect();
    let live = Live(Some(lines.into_bytes()));
    let mut reader = open_stream("t", live, &OpenOptions::default()).unwrap();
    let mut read = Vec::new();
    while read.len() < 80 {
        reader.fill(&mut read).unwrap();
    }
    assert!(reader.fill(&mut read).unwrap_err().to_string().contains("it would wait"));
}

#[test]
fn archives_say_what_to_do_with_them() {
    let text = many(200_000);
    let mut to = zstd::Encoder::new(Vec::new(), 1).unwrap();
    to.set_parameter(zstd::zstd_safe::CParameter::WindowLog(28)).unwrap();
    to.long_distance_matching(true).unwrap();
    to.write_all(text.as_bytes()).unwrap();
    let long = to.finish().unwrap();
    let cut = gzip(b"0,1,512,W,0.5\n")[..16].to_vec();
    for (packed, said) in [(long, "zstd -dc --long=31 FILE"), (cut, "ends early (truncated?)")] {
        let error = open_bytes("t", packed, &OpenOptions::default());
        let error = error.and_then(|mut reader| all(&mut reader)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_line_without_end_is_refused_and_a_lenient_reader_goes_on_after_it() {
    let text = format!("0 0 0 8 1\n20000 0 0 8 1\n{}\n", "7".repeat(1_000_000));
    let text = format!("{text}40000 0 0 8 1\n");
    assert!(error_of(&text).starts_with("t:3: the line is longer than 64 KiB"));
    let mut reader = opened(&text, true).unwrap();
    assert_eq!(all(&mut reader).unwrap().len(), 3);
    assert_eq!(reader.skipped().reasons[0].0, 3);
}
