//! `ebb top` in a terminal. `script`, which every Debian has, makes one.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::Copy;
use super::metrics::Run;
use crate::common::{fails, path, prints};
use crate::serve::Serve;

const PATIENCE: Duration = Duration::from_secs(60);
/// Begins and ends the screen that leaves the one before as it was.
const OTHER: &str = "\u{1b}[?1049h";
const OWN: &str = "\u{1b}[?1049l";

/// A terminal in which a shell runs `ebb top`.
struct Screen {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
    folder: TempDir,
}

impl Screen {
    fn new(address: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let line = format!(
            "cd {}; stty rows 20 cols 60; stty -a >before; \
             sh -c 'echo $$ >pid.new; mv pid.new pid; exec {} top {address}'; \
             echo $? >code; stty -a >after",
            folder.path().display(),
            env!("CARGO_BIN_EXE_ebb"),
        );
        let mut command = Command::new("script");
        command.args(["--quiet", "--command", &line, "/dev/null"]).env("TERM", "xterm");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::<Mutex<String>>::default();
        let to = shown.clone();
        thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut some) {
                *to.lock().unwrap() += &String::from_utf8_lossy(&some[..count]);
            }
        });
        Self { child, keys, shown, folder }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until more than `before` bytes were shown, with `word` in the rest.
    fn until(&self, before: usize, word: &str) {
        let begun = Instant::now();
        while !self.shown()[before..].contains(word) {
            assert!(begun.elapsed() < PATIENCE, "{word}: {:?}", &self.shown()[before..]);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn file(&self, name: &str) -> String {
        let file = self.folder.path().join(name);
        let begun = Instant::now();
        while !file.exists() {
            assert!(begun.elapsed() < PATIENCE, "{name}: {:?}", self.shown());
            thread::sleep(Duration::from_millis(20));
        }
        fs::read_to_string(file).unwrap()
    }

    /// Asserts that it ends with this code and leaves the terminal as it was.
    fn ends(mut self, code: i32) {
        self.file("after");
        self.child.wait().unwrap();
        assert_eq!(self.file("code").trim(), code.to_string(), "{:?}", self.shown());
        assert_eq!(self.file("after"), self.file("before"));
        let shown = self.shown();
        let places = [OTHER, OWN].map(|sign| shown.rfind(sign));
        assert!(places[0].is_some() && places[0] < places[1], "{shown:?}");
        assert!(shown.rfind("\u{1b}[?25h") > shown.rfind("\u{1b}[?25l"), "its cursor: {shown:?}");
    }
}

#[test]
fn it_goes_on_until_q_is_pressed() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc"]);
    run.until(|samples| samples.keys().any(|series| series.contains("value=\"given\"")));
    let mut screen = Screen::new(&run.metrics);
    screen.until(0, "observing");
    let before = screen.shown().len();
    screen.keys.write_all(b"\x1b[F").unwrap();
    screen.until(before, "start");
    // A daemon that ends is named, and what it has said stays.
    let before = screen.shown().len();
    drop(run);
    screen.until(before, "answer");
    screen.keys.write_all(b"q").unwrap();
    screen.ends(0);
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc"]);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let screen = Screen::new(&run.metrics);
        screen.until(0, "quits");
        let pid = Pid::from_raw(screen.file("pid").trim().parse().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        screen.ends(0);
    }
}

#[test]
fn without_a_terminal_it_prints_one_frame_or_refuses() {
    let copy = Copy::new();
    let socket = path(copy.folder.path(), "socket");
    let run = Run::start(&copy, &["--policy", "eadc", "--control", &socket]);
    run.until(|samples| samples.keys().any(|series| series.contains("value=\"given\"")));
    assert!(Path::new(&socket).exists());
    for daemon in [&["--socket", &socket][..], &[&run.metrics]] {
        let frame = prints(&[&["top", "--once"][..], daemon].concat());
        for words in [
            "ebb run: observing for ",
            "nothing is set: this is what would be",
            "fan0, fan1",
            "saving not known",
            "socket temperature",
        ] {
            assert!(frame.replace('_', " ").contains(words), "{words}: {frame}");
        }
        assert!(!frame.contains('\u{1b}'), "{frame:?}");
    }
    let (code, error) = fails(&["top", &run.metrics]);
    assert!(code == 2 && error.contains("no terminal; `ebb top --once`"), "{error}");
    let (code, error) = fails(&["top", "--once", "127.0.0.1:1"]);
    assert!(code == 1 && error.contains("no status from 127.0.0.1:1"), "{error}");
    let serve = Serve::start(&[]);
    let frame = prints(&["top", "--once", &serve.metrics]);
    assert!(frame.contains("scheduler sandman-plus"), "{frame}");
}
