//! Who stays when the one that acts is gone: crashed, killed, or hung.
//!
//! The supervisor starts the worker and hears from it after every cycle. When the worker ends
//! without having set everything back, or is not heard of, the supervisor does it. When the
//! supervisor ends, the worker notices by their socket and sets everything back itself. What is
//! left when both are killed is what `ebb restore` is for: systemd runs it after every end and at
//! every start of the machine (`packaging/systemd`).

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ebb_cli::out;
use ebb_host::{Lock, Machine, State};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::systemd::Systemd;
use crate::restore;

/// A worker that was not heard of for so long, or for so many periods, hangs.
const SILENCE: Duration = Duration::from_secs(10);
const PERIODS: u32 = 5;
/// Before its first cycle it finds and asks all drives, of which each may keep it for a while.
const START: Duration = Duration::from_secs(60);
/// Who takes cores from the load must not wait behind it.
const NICE: i32 = -20;
/// Calls that tell where a worker hangs.
const CALLS: usize = 8;
/// One that runs, and does not wait, does so in this.
const MOMENT: Duration = Duration::from_millis(200);
/// A worker that was told to end, or killed, is waited for so long.
const PATIENCE: Duration = Duration::from_secs(15);

/// Acts on the machine by a worker, until told to end. It is heard of once in each `period`, and
/// has said itself why it ended with one of the codes `told`.
pub fn supervise(folder: &Path, machine: &Machine, period: Duration, told: &[i32]) -> Result<()> {
    let lock = Lock::take(&machine.sys).context("nothing was changed")?;
    let state = State::open(folder).context("nothing was changed")?;
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket")?;
    let silence = SILENCE.max(period * PERIODS);
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot watch for signals")?;
    restore::others(machine, folder)?;
    // What an earlier start has left is nobody's choice: it is set back before anything else. What
    // fails stays saved, and this one begins from what was found then.
    if let Err(error) = restore::all(machine, &state, None) {
        out::note(format_args!("{error:#}"));
    }
    // It takes CAP_SYS_NICE; without it control may come late.
    let _ = setpriority_process(None, NICE);
    // The worker keeps the lock if it outlives this process.
    let started = lock.shared_with(|| worker(theirs)).context("cannot share the lock")?;
    let mut child = started.context("cannot start the worker")?;
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    let forward = thread::spawn(move || {
        for signal in &mut signals {
            let signal = if signal == SIGHUP { Signal::HUP } else { Signal::TERM };
            let _ = kill_process(pid, signal);
        }
    });
    let silent = listen(&ours, START.max(silence), silence)?;
    if let Some(silence) = silent {
        let at = whereabouts(child.id());
        out::note(format_args!("the worker was silent for {silence:?}: it is killed{at}"));
        let _ = child.kill();
    }
    let ended = wait(&mut child);
    handle.close();
    let _ = forward.join();
    match ended {
        Some(status) if status.success() && silent.is_none() => Ok(()),
        ended => {
            if let Some(code) = ended.and_then(|status| status.code())
                && told.contains(&code)
            {
                // It has set all back, as far as it could.
                if let Err(error) = restore::all(machine, &state, None) {
                    out::note(format_args!("{error:#}"));
                }
                out::finish();
                std::process::exit(code)
            }
            let how = ended.map_or("does not end".to_owned(), |status| status.to_string());
            out::note(format_args!("the worker ended before its time ({how}); setting all back"));
            restore::all(machine, &state, None)?;
            bail!("the worker ended before its time: {how}");
        }
    }
}

/// The supervisor of this process, a worker.
///
/// # Errors
/// Where it has none.
pub fn of_worker() -> Result<UnixStream> {
    let supervisor = std::io::stdin().as_fd().try_clone_to_owned();
    let supervisor = UnixStream::from(supervisor.context("cannot reach the supervisor")?);
    // A supervisor that is stopped is not waited for.
    supervisor.set_nonblocking(true).context("cannot reach the supervisor")?;
    Ok(supervisor)
}

fn worker(socket: UnixStream) -> std::io::Result<Child> {
    let args = std::env::args_os().skip(1);
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ebb").args(args).arg("--worker").stdin(Stdio::from(OwnedFd::from(socket)));
    command.spawn()
}
/// Hears the worker until it ends, or is silent for `start` before its first line or for `silence`
/// after it: for how long it was. Each line is its state, for systemd.
fn listen(
    worker: &UnixStream,
    start: Duration,
    silence: Duration,
) -> std::io::Result<Option<Duration>> {
    let mut systemd = Systemd::default();
    let mut patience = start;
    worker.set_read_timeout(Some(patience))?;
    let mut lines = BufReader::new(worker);
    let mut last = Instant::now();
    loop {
        let mut line = String::new();
        match lines.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Ok(_) => last = Instant::now(),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) if last.elapsed() < patience => continue,
            Err(_) => return Ok(Some(patience)),
        }
        if patience != silence {
            patience = silence;
            worker.set_read_timeout(Some(patience))?;
        }
        systemd.tell(line.trim());
    }
}

/// What keeps a process, as far as the kernel says: its state, calls from the innermost one on, how
/// long it runs in a moment from now on, and how long it has waited for a CPU in all. The stack
/// is shown to CAP_SYS_ADMIN alone.
fn whereabouts(pid: u32) -> String {
    let text = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let state = text("stat").and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    // `[<0>] futex_wait+0x66/0x120`
    let stack = text("stack").unwrap_or_default();
    let calls = stack.lines().filter_map(|line| line.rsplit_once(' ')?.1.split('+').next());
    let calls: Vec<_> = calls.take(CALLS).collect();
    // What it ran and what it waited, in nanoseconds.
    let times = || -> Option<[Duration; 2]> {
        let stat = text("schedstat")?;
        let mut times =
            stat.split(' ').map_while(|time| time.parse().ok().map(Duration::from_nanos));
        Some([times.next()?, times.next()?])
    };
    let times = times().and_then(|[ran, _]| {
        thread::sleep(MOMENT);
        let [now, waited] = times()?;
        let (ran, waited) = (now.saturating_sub(ran), waited.as_secs_f64());
        Some(format!(
            "; it ran {ran:.1?} of {MOMENT:?} and has waited {waited:.1} s for a CPU in all"
        ))
    });
    let calls =
        if calls.is_empty() { String::new() } else { format!(", in {}", calls.join(" < ")) };
    let state = state.map(|state| format!(" (state {state}{calls})"));
    state.unwrap_or_default() + &times.unwrap_or_default()
}

/// Waits for the worker to end; one that the kernel keeps is not waited for for ever.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if begun.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_what_keeps_a_process() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let begun = Instant::now();
        let told = loop {
            let told = whereabouts(child.id());
            if told.contains("(state S") || begun.elapsed() > Duration::from_secs(20) {
                break told;
            }
            thread::sleep(Duration::from_millis(10));
        };
        // Shown to CAP_SYS_ADMIN alone, which root in a container may lack.
        let stack = std::fs::read_to_string(format!("/proc/{}/stack", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(told.contains("(state S") && told.ends_with(" s for a CPU in all"), "{told}");
        assert_eq!(told.contains(", in "), stack.is_ok_and(|stack| !stack.is_empty()), "{told}");
        assert_eq!(whereabouts(child.id()), "");
    }
}
