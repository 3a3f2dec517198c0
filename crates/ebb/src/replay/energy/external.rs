//! Meters outside the machine: a file that grows, a command that prints.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::accuracy::Accuracy;
use super::integral::Curve;
use super::parse::{Line, Parser};
use super::sampler::{About, Clock, Running, Sink};

/// The end of a file that is read at first: what was metered long before is of no use.
const TAIL: u64 = 16 << 20;
/// No line of a meter is longer.
const LONGEST: u64 = 4096;
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
    let mut tail = Tail { file, at: 0, rest: Vec::new(), first: true };
    let work = move |sink: &Sink| {
        let mut parser = Parser::default();
        while !sink.is_over() {
            if let Err(error) = tail.read(&mut parser, sink, clock) {
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
    at: u64,
    /// The beginning of a line that is not complete.
    rest: Vec<u8>,
    /// Nothing was read yet: what stands there has no time of its arrival.
    first: bool,
}

impl Tail {
    fn read(&mut self, parser: &mut Parser, sink: &Sink, clock: Clock) -> std::io::Result<()> {
        let length = self.file.metadata()?.len();
        if length < self.at {
            (self.at, self.rest) = (0, Vec::new()); // It was begun anew.
        }
        if self.first {
            self.at = length.saturating_sub(TAIL);
        }
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = std::mem::take(&mut self.rest);
        let read = self.file.by_ref().take(TAIL).read_to_end(&mut bytes)?;
        self.at += read as u64;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.rest = bytes.split_off(complete);
        if self.rest.len() as u64 > LONGEST {
            self.rest.clear();
            sink.skip("longer than a line of a meter");
        }
        let old = std::mem::take(&mut self.first);
        for line in bytes.split(|byte| *byte == b'\n') {
            match parser.line(&String::from_utf8_lossy(line)) {
                Ok(Line::Sample { unix: Some(unix), watts }) => {
                    sink.push(clock.of_unix(unix), watts);
                }
                Ok(Line::Sample { unix: None, watts }) if !old => sink.push(clock.now(), watts),
                Ok(_) => {}
                Err(why) => sink.skip(why),
            }
        }
        Ok(())
    }
}

/// A command that prints samples: one and ends, to be run again, or more and more.
pub fn command(text: &str, accuracy: Option<Accuracy>, clock: Clock, every: Duration) -> Running {
    let of = format!("external meter, by '{text}'");
    let about = About { name: "command", of, accuracy, external: true };
    let text = text.to_owned();
    let work = move |sink: &Sink| {
        let mut failures = 0;
        while !sink.is_over() {
            let begun = Instant::now();
            match once(&text, sink, clock) {
                Ok(()) => failures = 0,
                Err(why) => {
                    failures += 1;
                    sink.skip(&why);
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
fn once(text: &str, sink: &Sink, clock: Clock) -> Result<(), String> {
    let mut child = Command::new("sh")
        .args(["-c", text])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot run sh: {error}"))?;
    let lines = lines(&mut child, clock);
    let mut parser = Parser::default();
    while !sink.is_over() {
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok((at, line)) => match parser.line(&line) {
                Ok(Line::Sample { unix, watts }) => {
                    sink.push(unix.map_or(at, |unix| clock.of_unix(unix)), watts);
                }
                Ok(Line::Other) => {}
                Err(why) => sink.skip(why),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if sink.is_over() {
        end(&mut child);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() || sink.is_over() { Ok(()) } else { Err(format!("it ended with {status}")) }
}

/// Its lines with the times at which they came.
fn lines(child: &mut Child, clock: Clock) -> Receiver<(f64, String)> {
    let (sender, receiver) = channel();
    if let Some(from) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            loop {
                let mut line = Vec::new();
                // A line without an end is cut: the parser refuses what is left of it.
                match from.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                    Ok(1..) => {}
                    _ => return,
                }
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send((clock.now(), line)).is_err() {
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
