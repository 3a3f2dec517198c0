//! Records a run: what each cycle was given, and what was decided.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebb_cli::out;
use ebb_policy::units::{Bytes, Nanos};
use ebb_record::recording::{self, Header, Writer};

use super::events::{Begun, Event, Made, Reader, Settings, Tick};

/// That something was lost is said once in this time.
const EVERY: Nanos = Nanos::from_secs(600);

/// Records.
pub struct Recorder {
    folder: PathBuf,
    writer: Writer,
    /// What the last cycle was of, and went by.
    of: Option<(Arc<Begun>, Arc<Made>, Arc<Settings>)>,
    /// Why it cannot be written.
    trouble: Option<String>,
    /// Events that did not get here, and when that was said.
    unheard: u64,
    said: Nanos,
}

impl Recorder {
    /// Into `folder`, of which the newest `keep` stays.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(folder: &Path, keep: Bytes) -> io::Result<Self> {
        let header = Header::new(env!("CARGO_PKG_VERSION"), option_env!("EBB_COMMIT"));
        let writer = Writer::new(folder, keep, header)?;
        let folder = folder.to_owned();
        let mut new =
            Self { folder, writer, of: None, trouble: None, unheard: 0, said: Nanos::ZERO };
        // A folder that cannot be had is told of at once.
        let ready = new.writer.ready();
        new.told(ready);
        Ok(new)
    }

    fn tick(&mut self, tick: &Tick) -> io::Result<()> {
        let unix_s = tick.unix_s;
        let of = (tick.begun.clone(), tick.made.clone(), tick.settings.clone());
        let last = self.of.replace(of);
        let is_same = last.as_ref().is_some_and(|(begun, ..)| Arc::ptr_eq(begun, &tick.begun));
        let mut done = Ok(());
        if !is_same {
            let Begun { at, topology, would, profile, missing, config, governed, unseen, .. } =
                &*tick.begun;
            done = self.writer.begun(recording::Begun {
                at: *at,
                unix_s,
                topology: topology.clone(),
                would: *would,
                profile: profile.clone(),
                missing: missing.clone(),
                config: config.clone(),
                governed: governed.clone(),
                unseen: unseen.clone(),
            });
        }
        let goes_by = last.filter(|_| is_same).is_some_and(|(_, made, settings)| {
            Arc::ptr_eq(&made, &tick.made) && Arc::ptr_eq(&settings, &tick.settings)
        });
        if !goes_by {
            let Made { nth, policy, settings } = &*tick.made;
            let orders = tick.settings.orders.iter().map(|order| order.what.clone()).collect();
            let made = recording::Made::new(*nth, policy, settings, orders);
            done = done.and(self.writer.made(made));
        }
        let (cycled, found) = (tick.cycled(), tick.found.as_deref());
        done.and(self.writer.frame(tick.number, unix_s, tick.late, &cycled, found))
    }

    fn told(&mut self, done: io::Result<()>) {
        let error = done.err().map(|error| error.to_string());
        if let Some(error) = error.filter(|error| self.trouble.as_ref() != Some(error)) {
            self.say(&format!("cannot be written: {error}; nothing else depends on it"));
            self.trouble = Some(error);
        }
    }

    fn say(&self, text: &str) {
        out::note(format_args!("the recording {} {text}", self.folder.display()));
    }
}

impl Reader for Recorder {
    fn hear(&mut self, event: &Arc<Event>, lost: u64) {
        let written = self.writer.blocks();
        let done = match &**event {
            Event::Tick(tick) => {
                let is_due = self.unheard == 0 || tick.at >= self.said + EVERY;
                if lost > self.unheard && is_due {
                    (self.unheard, self.said) = (lost, tick.at);
                    self.say(&format!("lacks {lost} cycles: the machine was too busy"));
                }
                self.tick(tick)
            }
            Event::Changed { at, text } => self.writer.note(*at, text),
            Event::Recalled(recalled) => {
                let at =
                    recalled.decisions.first().map_or(Nanos::ZERO, |(decision, _)| decision.at);
                let before = self.of.as_ref().map_or(Nanos::ZERO, |(begun, ..)| begun.at);
                self.writer.note(before + at, &recalled.text)
            }
            // The next cycle says what it is of.
            Event::Begun(_) | Event::Tried { .. } | Event::Summary { .. } => Ok(()),
        };
        if self.writer.blocks() > written && self.trouble.take().is_some() {
            self.say(&format!("is written again; {} cycles were lost", self.writer.lost()));
        }
        self.told(done);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let done = self.writer.flush();
        self.told(done);
    }
}
