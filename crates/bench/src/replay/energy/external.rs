//! Meters outside the machine: a file that grows, a command that prints.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::accuracy::Accuracy;
use super::integral::Curve;
use super::parse::{Line, Parser};
use super::sampler::{About, Clock, Running, Sink};

/// The end of a file that is read at first: what was metered long before is of no use.
const TAIL: u64 = 16 << 20;
/// The beginning of a longer file, in which names of columns stand before the first sample.
const HEAD: u64 = 64 << 10;
/// No line of a meter is longer.
const LONGEST: u64 = 4096;
/// Why such a one is none.
const LONG: &str = "longer than a line of a meter";
/// Lines of a command that are read and not yet taken.
const MOST_WAITING: usize = 1024;
/// How often a command may fail before it is given up.
const FAILURES: u32 = 5;

/// A file of samples that another program appends to.
///
/// # Errors
/// When it cannot be read.
pub fn file(
    path: &Path,
    accuracy: Option<Accuracy>,
    clock: Clock,
    every: Duration,
) -> Result<Running, String> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| format!("--meter-csv {name}: {error}"))?;
    let of = format!("external meter, by {name}");
    let about = About { name: "csv", of, accuracy, external: true };
    let mut tail = Tail::new(file);
    let work = move |sink: &Sink| {
        while !sink.is_over() {
            if let Err(error) = tail.read(sink, clock) {
                sink.fail(error.to_string());
                return;
            }
            std::thread::sleep(every.min(Duration::from_millis(100)));
        }
    };
    Ok(Running::start(about, Sink::new(Curve::Power(Vec::new())), work))
}

/// A growing file, and how far it was read.
struct Tail {
    file: File,
    lines: Lines,
    at: u64,
    /// The beginning of a line that is not complete.
    rest: Vec<u8>,
    /// That line was longer than any, and what comes of it is of no use.
    cut: bool,
    /// Nothing was read yet: what stands there has no time of its arrival.
    first: bool,
}

/// What ends a line: some meters send the one, some the other, most both.
fn is_end(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Reads a line with its end; without one where it is too long, or nothing follows.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<()> {
    while line.len() < LONGEST as usize {
        let bytes = from.fill_buf()?;
        let end = bytes.iter().position(is_end);
        let taken = end.map_or(bytes.len(), |at| at + 1);
        line.extend_from_slice(&bytes[..taken]);
        from.consume(taken);
        if end.is_some() || taken == 0 {
            break;
        }
    }
    Ok(())
}

impl Tail {
    fn new(file: File) -> Self {
        let lines = Lines::default();
        Self { file, lines, at: 0, rest: Vec::new(), cut: false, first: true }
    }

    fn read(&mut self, sink: &Sink, clock: Clock) -> std::io::Result<()> {
        let length = self.file.metadata()?.len();
        if length < self.at {
            // It was begun anew.
            (self.at, self.rest, self.cut) = (0, Vec::new(), false);
            self.lines = Lines::default();
        }
        if self.first && length > TAIL {
            self.skip_to(length - TAIL)?;
        }
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = std::mem::take(&mut self.rest);
        let read = self.file.by_ref().take(TAIL).read_to_end(&mut bytes)?;
        self.at += read as u64;
        let complete = bytes.iter().rposition(is_end).map_or(0, |at| at + 1);
        self.rest = bytes.split_off(complete);
        let old = std::mem::take(&mut self.first);
        let cut = complete > 0 && std::mem::take(&mut self.cut);
        let ended = bytes.split_last().map(|(_, lines)| lines.split(is_end));
        for line in ended.into_iter().flatten().skip(usize::from(cut)) {
            let line = String::from_utf8_lossy(line);
            self.lines.take(&line, sink, |unix| match unix {
                Some(unix) => Some(clock.of_unix(unix)),
                None => (!old).then(|| clock.now()),
            });
        }
        if self.rest.len() as u64 > LONGEST {
            self.rest.clear();
            if !std::mem::replace(&mut self.cut, true) {
                sink.skip(LONG, "");
            }
        }
        Ok(())
    }

    /// Goes on at the first line behind `at`, with what the head of the file says of its columns.
    fn skip_to(&mut self, at: u64) -> std::io::Result<()> {
        let mut from = BufReader::new(&self.file);
        let mut line = Vec::new();
        let parser = &mut self.lines.parser;
        while !parser.begun() && from.stream_position()? < HEAD {
            line.clear();
            if from.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let _ = parser.line(&String::from_utf8_lossy(&line)); // It is of no use any more.
        }
        from.seek(SeekFrom::Start(at))?;
        self.at = at + from.by_ref().take(LONGEST).read_until(b'\n', &mut line)? as u64;
        self.lines.first = First::Seen;
        Ok(())
    }
}

/// What is known of the first line: whoever begins to listen to a meter that talks hears the end of
/// a line, such as `23.5` of `123.5`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum First {
    /// It is still to come.
    #[default]
    Awaited,
    /// It is a sample, perhaps the end of one: it counts until there is another. Whether it was
    /// handed on.
    Doubted(bool),
    /// It counts for nothing.
    Seen,
}

/// The lines of one output of a meter.
#[derive(Debug, Default)]
struct Lines {
    parser: Parser,
    first: First,
}

impl Lines {
    /// Begins another output.
    fn renew(&mut self) {
        self.parser.renew();
        self.first = First::Awaited;
    }

    /// Whether there was a sample.
    fn has_sample(&self) -> bool {
        self.parser.begun() || matches!(self.first, First::Doubted(_))
    }

    /// Hands on a line: a sample with the time that `when` makes of its own one.
    fn take(&mut self, line: &str, sink: &Sink, when: impl Fn(Option<f64>) -> Option<f64>) {
        // What a half line says of times and columns is forgotten with it.
        let known = (self.first == First::Awaited).then(|| self.parser.clone());
        let told = self.parser.line(line);
        let parser = &self.parser;
        match told {
            Ok(Line::Sample { unix, watts }) => {
                if self.first == First::Doubted(true) {
                    sink.retract();
                }
                let at = when(unix);
                let is_own = at.is_some_and(|at| sink.push(at, watts));
                sink.assume(parser.local, parser.bare);
                self.first = known.map_or(First::Seen, |known| {
                    self.parser = known;
                    First::Doubted(is_own)
                });
            }
            Ok(Line::Other) => sink.other(line),
            Err(why) if parser.useless.is_some() => sink.fail(why),
            Err(why) => sink.skip(&why, line),
        }
        if self.first == First::Awaited {
            self.first = First::Seen;
        }
    }
}

/// A command that prints samples: one and ends, to be run again, or more and more.
pub fn command(text: &str, accuracy: Option<Accuracy>, clock: Clock, every: Duration) -> Running {
    let of = format!("external meter, by '{text}'");
    let about = About { name: "command", of, accuracy, external: true };
    let text = text.to_owned();
    let work = move |sink: &Sink| {
        let (mut failures, mut all) = (0, Lines::default());
        while !sink.is_over() {
            let begun = Instant::now();
            all.renew();
            match once(&text, &mut all, sink, clock) {
                Ok(()) => failures = 0,
                Err(why) => {
                    failures += 1;
                    sink.skip(&why, "");
                    if failures == FAILURES {
                        sink.fail(format!("failed {FAILURES} times: {why}"));
                        return;
                    }
                }
            }
            while !sink.is_over() && begun.elapsed() < every {
                std::thread::sleep(every.min(Duration::from_millis(20)));
            }
        }
    };
    Running::start(about, Sink::new(Curve::Power(Vec::new())), work)
}

/// Runs it to its end, or until nobody wants samples any more.
fn once(text: &str, all: &mut Lines, sink: &Sink, clock: Clock) -> Result<(), String> {
    let mut child = Command::new("sh")
        .args(["-c", text])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot run sh: {error}"))?;
    let lines = lines(&mut child, clock);
    let mut take = |at: f64, line: &str| {
        all.take(line, sink, |unix| Some(unix.map_or(at, |unix| clock.of_unix(unix))));
        all.has_sample()
    };
    let (mut last, mut several) = (None, false);
    while !sink.is_over() {
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok((at, Heard::Line(line))) => several = take(at, &line),
            Ok((_, Heard::Long)) => sink.skip(LONG, ""),
            Ok((at, Heard::End(line))) => last = Some((at, line)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if sink.is_over() {
        end(&mut child);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    match last {
        // It printed this, and ended.
        Some((at, line)) if status.success() && !several => {
            take(at, &line);
        }
        Some((_, line)) if !sink.is_over() => sink.skip("its end was lost", &line),
        _ => {}
    }
    if status.success() || sink.is_over() { Ok(()) } else { Err(format!("it ended with {status}")) }
}

/// What comes of a command.
enum Heard {
    Line(String),
    /// What is longer than a line.
    Long,
    /// The last one, without an end.
    End(String),
}

/// Its lines with the times at which they came.
fn lines(child: &mut Child, clock: Clock) -> Receiver<(f64, Heard)> {
    // A meter that talks faster than it is heard waits.
    let (sender, receiver) = sync_channel(MOST_WAITING);
    if let Some(from) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut cut = false;
            loop {
                let mut line = Vec::new();
                if read_line(&mut from, &mut line).is_err() || line.is_empty() {
                    return;
                }
                let (ended, long) = (line.last().is_some_and(is_end), line.len() as u64 >= LONGEST);
                let text = || String::from_utf8_lossy(&line).into_owned();
                // What follows of a line that is cut is no line.
                let was_cut = std::mem::replace(&mut cut, false);
                cut = !ended && (was_cut || long);
                let heard = match ended {
                    _ if was_cut => continue,
                    true => Heard::Line(text()),
                    false if long => Heard::Long,
                    false => Heard::End(text()),
                };
                if sender.send((clock.now(), heard)).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

/// Ends the command and what it has started.
fn end(child: &mut Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    for signal in [Signal::TERM, Signal::KILL] {
        let _ = kill_process_group(group, signal); // It may have ended by itself.
        for _ in 0..50 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn tail(path: &Path) -> Tail {
        Tail::new(File::open(path).unwrap())
    }

    fn watts() -> std::sync::Arc<Sink> {
        Sink::new(Curve::Power(Vec::new()))
    }

    /// Whoever opens a serial line or a socket hears the end of a line first.
    #[test]
    fn the_end_of_a_line_is_no_sample_once_there_is_another() {
        // Not so close together that they count as one.
        let heard = |parts: &[&str], end: &str| {
            let print = |part: &&str| format!("printf '{part}'; sleep 0.01; ");
            let command = parts.iter().map(print).collect::<String>() + end;
            let sink = watts();
            let ended = once(&command, &mut Lines::default(), &sink, Clock::new());
            (sink.values(), ended.is_ok())
        };
        let long = "head -c 9000 /dev/zero | tr '\\0' 7; echo; echo 3";
        for (parts, end, values) in [
            (&["23.5\\n", "123.5\\n", "123.6\\n"][..], "", &[123.5, 123.6][..]),
            // Half a date is another date: what comes later is not before it.
            (&["26-11-29T10:12:00Z;3\\n", "2023-11-29T10:12:01Z;13\\n"], "", &[13.0]),
            (&["3.5 W\\n", "\\n13.5 W\\n"], "", &[13.5]),
            // One alone is all that it says, with an end or without.
            (&["23.5\\n"], "", &[23.5]),
            (&["23.5"], "", &[23.5]),
            (&["watts\\n", "23.5"], "", &[23.5]),
            (&["watts\\n", "23.5\\n", "24.5\\n"], "", &[23.5, 24.5]),
            (&["\\n", "23.5\\n", "24.5\\n"], "", &[23.5, 24.5]),
            // So is the beginning of the last.
            (&["23.5\\n", "123.5\\n", "12"], "", &[123.5]),
            // A line that is cut is none, in whatever parts it comes.
            (&["1\\n", "2\\n"], long, &[2.0, 3.0]),
        ] {
            assert_eq!(heard(parts, end), (values.to_vec(), true), "{parts:?}");
        }
        assert_eq!(heard(&["12"], "exit 1"), (Vec::new(), false), "its connection broke");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let (sink, mut tail, clock) = (watts(), tail(file.path()), Clock::new());
        for (part, values) in [
            ("", &[][..]),
            ("23.5\n", &[23.5]),
            ("123.5\n", &[123.5]),
            (&"7".repeat(5000), &[123.5]),
            ("7.5\n124.5\n", &[123.5, 124.5]),
        ] {
            file.write_all(part.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            tail.read(&sink, clock).unwrap();
            assert_eq!(sink.values(), values, "{part:.20}");
        }
    }

    #[test]
    fn the_end_of_a_long_file_is_read_with_its_heading() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let line = |at: u64| format!("{}.0,5000.0\n", 1_700_000_000 + at);
        let lines = TAIL / line(0).len() as u64 + 1000;
        write!(file, "# a meter\nunix_s,power_mw\n").unwrap();
        let all: String = (0..lines).map(line).collect();
        file.write_all(all.as_bytes()).unwrap();
        let sink = Sink::new(Curve::Power(Vec::new()));
        let mut tail = tail(file.path());
        for _ in 0..2 {
            tail.read(&sink, Clock::new()).unwrap();
            let values = sink.values();
            assert!(values.len() as u64 > lines - 2000 && values.iter().all(|w| *w == 5.0));
        }
        writeln!(file, "1800000000,6000").unwrap();
        tail.read(&sink, Clock::new()).unwrap();
        assert_eq!(sink.values().last(), Some(&6.0));
    }

    #[test]
    fn a_line_ends_with_either_and_halves_are_put_together() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let sink = Sink::new(Curve::Power(Vec::new()));
        let mut tail = tail(file.path());
        for (part, count) in [
            ("unix_s,power_w\r1700000001,5\r", 1),
            ("1700000002,5\r\n17000000", 2),
            ("03,5\0\r", 3),
            ("\n1700000004,", 3),
            ("5\n", 4),
        ] {
            file.write_all(part.as_bytes()).unwrap();
            tail.read(&sink, Clock::new()).unwrap();
            assert_eq!(sink.values(), vec![5.0; count], "{part:?}");
        }
        let mut from = BufReader::with_capacity(4, &b"1\r2.25 W\r\n3"[..]);
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            read_line(&mut from, &mut line).unwrap();
            match line.is_empty() {
                true => break,
                false => lines.push(String::from_utf8(line).unwrap()),
            }
        }
        assert_eq!(lines, ["1\r", "2.25 W\r", "\n", "3"]);
    }

    #[test]
    fn a_file_that_is_begun_anew_has_its_own_heading() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let sink = Sink::new(Curve::Power(Vec::new()));
        let mut tail = tail(file.path());
        write!(file, "unix_s,power_w\n1700000001,50\n1700000002,50\n").unwrap();
        tail.read(&sink, Clock::new()).unwrap();
        file.as_file().set_len(0).unwrap();
        file.rewind().unwrap();
        tail.read(&sink, Clock::new()).unwrap();
        write!(file, "unix_s,power_mw\n1700000003,50000\n").unwrap();
        tail.read(&sink, Clock::new()).unwrap();
        assert_eq!(sink.values(), [50.0; 3]);
    }
}
