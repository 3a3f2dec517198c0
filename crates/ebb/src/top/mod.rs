//! `ebb top`: what a daemon does, in a terminal, as it goes on.
//!
//! One thread asks the daemon, one reads keys, and the main one draws what they tell; so a daemon
//! that does not answer keeps nobody from leaving. However it ends, the terminal is as before.

mod page;
mod sheet;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use ebb_cli::{out, text, usage};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::{Line, Text};
use ratatui::{DefaultTerminal, Frame};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use crate::run::status::Status;
use crate::status::{self, Daemon};

/// Time from an answer to the next question.
const EVERY: Duration = Duration::from_secs(1);
/// Signals are looked for so often.
const LOOK: Duration = Duration::from_millis(200);
/// Columns of a frame that no terminal shows.
const WIDTH: usize = 100;

/// Options of `ebb top`.
///
/// Shows what a running `ebb run` or `ebb serve` does, anew each second, until `q` is pressed: of
/// `ebb run` its state, power by part, saving, what is in force and why, refusals, sensors and the
/// last decisions, of `ebb serve` what `ebb status` shows. It only shows. Without an address it
/// asks the daemon that `ebb status` would ask.
#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    daemon: Daemon,
    /// Print one frame and end; the only way where standard output is no terminal.
    #[arg(long)]
    once: bool,
}

/// Shows it until told to end.
///
/// # Errors
/// Where nobody answers at first, or there is no terminal.
pub fn run(args: TopArgs) -> Result<()> {
    let TopArgs { daemon, once } = args;
    if !once && !io::stdout().is_terminal() {
        let text = "standard output is no terminal; `ebb top --once` prints one frame, and \
                    `ebb status --json` is for programs";
        return Err(usage(text.to_owned()));
    }
    let seen = Seen::new(daemon.ask()?)?;
    if once {
        let line = |line: &Line<'_>| line.to_string().trim_end().to_owned() + "\n";
        return out::print(seen.lines(WIDTH).iter().map(line).collect::<String>());
    }
    let ended = Arc::<AtomicBool>::default();
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        flag::register(signal, ended.clone()).context("cannot watch for signals")?;
    }
    let mut screen = Screen::open().context("cannot use the terminal")?;
    let (to, heard) = sync_channel(1);
    let (also, keys) = (to.clone(), || io::Result::Ok(Heard::Input(event::read()?)));
    let threads = [
        tell("ebb asks", to, move || {
            thread::sleep(EVERY);
            Ok(Heard::Status(daemon.ask().and_then(Seen::new)))
        })?,
        tell("ebb keys", also, keys)?,
    ];
    screen.show(View::new(seen), &heard, &threads, &ended)
}

/// What one of the threads tells.
enum Heard {
    Status(Result<Seen>),
    Input(Event),
}

/// Tells what `next` says, from a thread of its own.
fn tell(
    name: &str,
    to: SyncSender<Heard>,
    next: impl Fn() -> io::Result<Heard> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let body = move || while next().is_ok_and(|heard| to.send(heard).is_ok()) {};
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// What a daemon has said.
enum Seen {
    Run(Box<Status>),
    /// As text for people.
    Serve(String),
}

impl Seen {
    fn new(mut status: Value) -> Result<Self> {
        escape(&mut status);
        Ok(match status["daemon"] == "run" {
            true => Self::Run(serde_json::from_value(status).context(status::OTHER)?),
            false => Self::Serve(status::text(status)?),
        })
    }

    fn lines(&self, width: usize) -> Vec<Line<'static>> {
        match self {
            Self::Run(status) => page::lines(status, width),
            Self::Serve(all) => all.lines().map(|line| line.to_owned().into()).collect(),
        }
    }
}

/// What stands in a name is not for the terminal to act on.
fn escape(value: &mut Value) {
    match value {
        Value::String(text) => *text = text::printable(text),
        Value::Array(all) => all.iter_mut().for_each(escape),
        Value::Object(all) => all.values_mut().for_each(escape),
        _ => {}
    }
}

/// What is shown.
struct View {
    seen: Seen,
    /// When that was said, and why nothing was said since.
    came: Instant,
    trouble: Option<String>,
    /// The first line that is shown, and how many there are room for.
    from: usize,
    room: usize,
}

impl View {
    fn new(seen: Seen) -> Self {
        Self { seen, came: Instant::now(), trouble: None, from: 0, room: 0 }
    }

    fn hear(&mut self, answer: Result<Seen>) {
        match answer {
            Ok(seen) => (self.seen, self.came, self.trouble) = (seen, Instant::now(), None),
            Err(error) => self.trouble = Some(text::printable(&format!("{error:#}"))),
        }
    }

    /// Does what a key is for; whether it is to end.
    fn press(&mut self, key: KeyEvent) -> bool {
        let page = self.room.max(1);
        match key.code {
            KeyCode::Char('c') => return key.modifiers.contains(KeyModifiers::CONTROL),
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Down | KeyCode::Char('j') => self.from += 1,
            KeyCode::Up | KeyCode::Char('k') => self.from = self.from.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.from += page,
            KeyCode::PageUp => self.from = self.from.saturating_sub(page),
            KeyCode::Home => self.from = 0,
            KeyCode::End => self.from = usize::MAX - page,
            _ => {}
        }
        false
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [body, foot] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
        let lines = self.seen.lines(body.width.into());
        self.room = body.height.into();
        self.from = self.from.min(lines.len().saturating_sub(self.room));
        let end = lines.len().min(self.from + self.room);
        let foot_line = match &self.trouble {
            Some(trouble) => {
                let since = self.came.elapsed().as_secs();
                Line::from(format!("no answer for {since} s: {trouble}").red())
            }
            None => {
                let place = format!("q quits, ↑ ↓ scroll; lines {} to {end} of ", self.from + 1);
                Line::from((place + &lines.len().to_string()).dim())
            }
        };
        let shown: Vec<_> = lines.into_iter().skip(self.from).take(self.room).collect();
        frame.render_widget(Text::from(shown), body);
        frame.render_widget(foot_line, foot);
    }
}

/// The terminal, which is as before when this is dropped, or something panics.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing.
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

impl Screen {
    fn open() -> io::Result<Self> {
        let opened = ratatui::try_init();
        if opened.is_err() {
            let _ = ratatui::try_restore();
        }
        Ok(Self(opened?))
    }

    fn show(
        &mut self,
        mut view: View,
        heard: &Receiver<Heard>,
        threads: &[JoinHandle<()>],
        ended: &AtomicBool,
    ) -> Result<()> {
        loop {
            self.0.draw(|frame| view.draw(frame)).context("the terminal has gone")?;
            match heard.recv_timeout(LOOK) {
                Ok(Heard::Status(answer)) => view.hear(answer),
                Ok(Heard::Input(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                    if view.press(key) {
                        return Ok(());
                    }
                }
                // Another size, or a look at the time.
                Ok(Heard::Input(_)) | Err(_) => {}
            }
            if ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            if threads.iter().any(JoinHandle::is_finished) {
                bail!("the terminal cannot be read any more");
            }
        }
    }
}
