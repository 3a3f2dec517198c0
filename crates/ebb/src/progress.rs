//! Progress on a terminal, on standard error only.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

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
