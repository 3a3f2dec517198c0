//! Progress on a terminal, on standard error only.

use std::io::IsTerminal;
use std::time::Duration;

use ebb_policy::units::Nanos;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::input::Watch;

/// Parts of a trace that a bar counts.
const PARTS: f64 = 10_000.0;

/// Bars for work that runs at the same time; none where nobody looks.
pub struct Progress(MultiProgress);

impl Progress {
    /// Shown unless `quiet` or standard error is not a terminal.
    pub fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(8)
        } else {
            ProgressDrawTarget::hidden()
        };
        Self(MultiProgress::with_draw_target(target))
    }

    /// A bar of `length` steps, or a spinner where the end is not known.
    pub fn bar(&self, label: &str, length: Option<u64>) -> ProgressBar {
        let (bar, template) = match length {
            Some(length) => (
                ProgressBar::new(length),
                "{prefix:<20} [{bar:32}] {percent:>3}%  {eta:>4} left  {msg}",
            ),
            None => (ProgressBar::new_spinner(), "{prefix:<20} {spinner} {elapsed:>4}  {msg}"),
        };
        // The templates are constants: a bar without its style still counts.
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("━━╌");
        let bar = self.0.add(bar.with_style(style).with_prefix(label.to_owned()));
        if !self.0.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        bar
    }
}

/// How far a run or the reading of a trace has come.
pub struct Track {
    bar: ProgressBar,
    /// Files by whose reading the end is known, rather than by the time simulated.
    files: Option<Watch>,
}

impl Track {
    /// By simulated time; the bar counts milliseconds.
    pub fn time(bar: ProgressBar) -> Self {
        Self { bar, files: None }
    }

    /// By what was read of the files that `watch` knows.
    pub fn trace(progress: &Progress, label: &str, watch: &Watch) -> Self {
        let known = watch.share_read().is_some();
        let bar = progress.bar(label, known.then_some(PARTS as u64));
        Self { bar, files: Some(watch.clone()) }
    }

    /// Shows that `now` is reached on the run's clock, and how many requests were handled.
    pub fn reached(&self, now: Nanos, requests: u64) {
        self.show(Some(now), requests);
    }

    /// Shows how many requests were read.
    pub fn read(&self, requests: u64) {
        self.show(None, requests);
    }

    fn show(&self, now: Option<Nanos>, requests: u64) {
        if self.bar.is_hidden() {
            return;
        }
        match (&self.files, now) {
            (Some(files), _) => {
                let share = files.share_read().unwrap_or(0.0);
                self.bar.set_position((share * PARTS) as u64);
            }
            (None, Some(now)) => self.bar.set_position(now.0 / 1_000_000),
            (None, None) => {}
        }
        let millions = requests as f64 * 1e-6;
        let simulated = now.map(|now| format!("{:.1} s simulated, ", now.seconds()));
        let simulated = simulated.unwrap_or_default();
        self.bar.set_message(format!("{simulated}{millions:.2} M requests"));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
