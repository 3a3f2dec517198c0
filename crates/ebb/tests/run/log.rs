//! Nobody who reads the log, or does not, is waited for.

use std::fs::File;
use std::io::{Read, pipe};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Copy, ends};

/// A pipe that is full and that nobody reads, until it is dropped.
fn stalled() -> (std::io::PipeReader, Stdio) {
    let (reader, writer) = pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut full = &writer;
    while std::io::Write::write(&mut full, &[b'.'; 1024]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).unwrap();
    (reader, writer.into())
}

fn ebb(args: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(args).env("NO_COLOR", "1");
    command
}

fn waits_for_the_fan(copy: &Copy, is: &str) {
    let begun = Instant::now();
    while copy.fan() != is {
        assert!(begun.elapsed() < Duration::from_secs(20), "the fan is {}", copy.fan());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Both streams of worker and supervisor are full from the start: it acts, ends when told to, and
/// sets everything back.
#[test]
fn a_reader_that_stalls_stops_nothing() {
    let copy = Copy::new();
    let before = copy.all();
    copy.put("proc/4242/comm", "fancontrol");
    let ((_out, output), (_err, errors)) = (stalled(), stalled());
    let args = copy.run(&["--apply", "--json", "--samples"]);
    let mut child = ebb(&args).stdout(output).stderr(errors).spawn().unwrap();
    waits_for_the_fan(&copy, "1");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let told = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    std::fs::remove_dir_all(copy.folder.path().join("root/proc/4242")).unwrap();
    assert_eq!(copy.all(), before);
}

#[test]
fn lines_that_are_lost_are_counted() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        return println!("skipped: no /dev/full");
    };
    let copy = Copy::new();
    let args = copy.run(&["--apply", "--json", "--samples", "--duration", "2 s"]);
    let child = ebb(&args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let (code, told) = ends(child);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("lines of standard output were lost"), "{told}");
    assert_eq!(copy.fan(), "5");
}

/// A log that has reached the limit of a file (`ulimit -f`, `LimitFSIZE=`) ends neither worker nor
/// supervisor, which hold settings.
#[test]
fn a_log_at_its_limit_stops_nothing() {
    let copy = Copy::new();
    let before = copy.all();
    let log = copy.folder.path().join("log");
    std::fs::write(&log, [b'.'; 128 << 10]).unwrap();
    let limited = |args: &[String]| {
        let log = || File::options().append(true).open(&log).unwrap();
        let limit = ["-c", "ulimit -f 128 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ebb")];
        Command::new("sh").args(limit).args(args).stdout(log()).stderr(log()).spawn().unwrap()
    };
    let mut child = limited(&copy.run(&["--apply", "--json", "--samples"]));
    waits_for_the_fan(&copy, "1");
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::metadata(&log).unwrap().len(), 128 << 10);
    std::fs::remove_file(&log).unwrap();
    assert_eq!(copy.all(), before);
}

/// Who observes does it for its reader; who acts goes on.
#[test]
fn a_reader_that_has_gone_ends_what_only_observes() {
    let copy = Copy::new();
    let start = |more: &[&str]| {
        let args = copy.run(more);
        let mut child = ebb(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 1];
        let mut reader = child.stdout.take().unwrap();
        reader.read_exact(&mut first).unwrap();
        child
    };
    for more in [&["--json", "--samples"][..], &[]] {
        let begun = Instant::now();
        let (code, told) = ends(start(more));
        assert_eq!((code, &*told), (Some(0), ""));
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    let child = start(&["--apply", "--json", "--samples"]);
    waits_for_the_fan(&copy, "1");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(copy.fan(), "1");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let (code, told) = ends(child);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(copy.fan(), "5");
}
