//! What a run tells: one stream of events, of which everybody reads who wants to know.
//!
//! Control only hands events over. Each reader has a thread and a queue with a bound; what finds no
//! room there is lost to that reader, and counted. So nobody who reads can delay a cycle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use ebb_host::{Notice, Recalled};
use ebb_policy::units::{Joules, Nanos, Watts};
use ebb_policy::{Applied, Cycled, InForce, Signals, Topology, registry};
use ebb_record::recording::{Found, Governed};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ledger::Pair;

/// So many events wait for a reader at most: half a minute of cycles at the usual period.
const WAITING: usize = 64;

/// A reader's stack: it makes text.
const STACK: usize = 512 << 10;

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It looks for what is there.
    Starting,
    /// It decides and changes nothing.
    Observing,
    /// It would act, and was told to give everything back for now.
    Paused,
    /// It acts.
    Acting,
    /// It acts, but some controls do not follow.
    Degraded(usize),
    /// The signals cannot be believed: everything is as it was found.
    Native(&'static str),
}

impl State {
    /// Their names.
    pub const NAMES: &[&str] = &["starting", "observing", "paused", "acting", "degraded", "native"];

    /// Its name, one of [`Self::NAMES`].
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Observing => "observing",
            Self::Paused => "paused",
            Self::Acting => "acting",
            Self::Degraded(_) => "degraded",
            Self::Native(_) => "native",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Degraded(count) => write!(f, ": {count} controls do not follow"),
            Self::Native(reason) => write!(f, ": {reason}"),
            _ => Ok(()),
        }
    }
}

/// The parts of the machine that a run begins with, at its start or when they have changed.
#[derive(Debug, Default)]
pub struct Begun {
    /// Since the start of the run, as all times here.
    pub at: Nanos,
    /// The parts.
    pub topology: Topology,
    /// Whether decisions are only what would be done.
    pub would: bool,
    /// Whose cores stand for this machine's where a saving is estimated.
    pub profile: String,
    /// Where users' latency comes from.
    pub latency: &'static str,
    /// What could not be had.
    pub missing: Vec<String>,
    /// Why signals are not there and what to do, by their names.
    pub lacks: Vec<(&'static str, String)>,
    /// The configuration, as TOML.
    pub config: String,
    /// What steers the frequency of each group.
    pub governed: Vec<Option<Governed>>,
    /// Why no latency shows what waits for CPUs.
    pub unseen: Option<String>,
}

/// A policy as it was made.
#[derive(Debug, Default)]
pub struct Made {
    /// So many were made before it for these parts.
    pub nth: u64,
    /// Its name, with all parameters.
    pub policy: String,
    /// What it was made with.
    pub settings: registry::Settings,
}

/// One order of `ebb ctl`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Ordered {
    pub what: String,
    /// From the start of the run; absent of one without an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_s: Option<f64>,
}

/// What a run goes by.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The policy.
    pub policy: String,
    /// The tolerated loss.
    pub plf: f64,
    /// Most that the caps of all drives may sum to.
    pub ssd_budget: Option<Watts>,
    /// Most that the whole server may draw.
    pub server_budget: Option<Watts>,
    /// Feeds of the server's supplies that have no input.
    pub lost_feeds: Vec<String>,
    /// Until when everything is as found, since the start of the run, for the trial.
    pub as_found_until: Option<Nanos>,
    /// What `ebb ctl` has ordered of that.
    pub orders: Vec<Ordered>,
}

/// One cycle.
#[derive(Debug)]
pub struct Tick {
    /// What the run has begun with.
    pub begun: Arc<Begun>,
    /// So many cycles came before since then.
    pub number: u64,
    /// What decided.
    pub made: Arc<Made>,
    /// When.
    pub at: Nanos,
    /// Time of day, seconds since 1970.
    pub unix_s: f64,
    /// What it goes by.
    pub settings: Arc<Settings>,
    /// What was sensed, with what was in force meanwhile.
    pub signals: Signals,
    /// What was sensed, where that is what would have been.
    pub found: Option<Box<Found>>,
    /// What is in force from now on.
    pub in_force: InForce,
    /// What the machine made of it.
    pub applied: Applied,
    /// Where it stands.
    pub state: State,
    /// What an operator should know.
    pub notices: Vec<Notice>,
    /// How much later than planned it began.
    pub late: Nanos,
    /// The mean saving since these parts began, at least and at most, where there is an estimate.
    pub saving: Option<[Watts; 2]>,
    /// What this cycle's period has saved of it.
    pub saved: Option<[Joules; 2]>,
    /// By how much the mean latency would have risen so far, as a share; nothing while it acts.
    pub loss: Option<f64>,
}

impl Tick {
    /// As the cycle left it.
    pub fn cycled(&self) -> Cycled<'_> {
        let native = match self.state {
            State::Native(reason) => Some(reason),
            _ => None,
        };
        let Self { signals, in_force, applied, .. } = self;
        Cycled { signals, in_force, applied, native }
    }
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A run on these parts begins.
    Begun(Arc<Begun>),
    /// A cycle was done.
    Tick(Box<Tick>),
    /// Something came back between two cycles; the times of its decisions count from [`Begun::at`].
    Recalled(Recalled),
    /// The machine has changed; standard error has heard of it.
    Changed {
        /// When.
        at: Nanos,
        /// In words.
        text: String,
    },
    /// What a block as found says beside those before and after it.
    Tried {
        /// When.
        at: Nanos,
        /// What.
        pair: Pair,
    },
    /// What all of it came to, or how it is done.
    Summary {
        /// When.
        at: Nanos,
        /// In words.
        text: String,
    },
}

/// Reads events, one after the other, in a thread of its own. It may be slow, and waits for nobody.
pub trait Reader: Send + 'static {
    /// Hears one; so many were `lost` to this reader until now.
    fn hear(&mut self, event: &Arc<Event>, lost: u64);
}

struct Outlet {
    to: Option<SyncSender<Arc<Event>>>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// All readers.
#[derive(Default)]
pub struct Stream(Vec<Outlet>);

impl Stream {
    /// With one more, which hears what is told from now on.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn with(mut self, mut reader: impl Reader) -> std::io::Result<Self> {
        let (to, events) = sync_channel::<Arc<Event>>(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let body = move || {
            for event in events {
                reader.hear(&event, counted.load(Ordering::Relaxed));
            }
        };
        let thread = thread::Builder::new().name("ebb events".into()).stack_size(STACK);
        let thread = Some(thread.spawn(body)?);
        self.0.push(Outlet { to: Some(to), lost, thread });
        Ok(self)
    }

    /// Tells all readers, without waiting for any.
    pub fn tell(&self, event: Event) {
        let event = Arc::new(event);
        for Outlet { to, lost, .. } in &self.0 {
            if to.as_ref().is_some_and(|to| to.try_send(event.clone()).is_err()) {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// What was told is still heard.
impl Drop for Stream {
    fn drop(&mut self) {
        for outlet in &mut self.0 {
            outlet.to = None;
            let _ = outlet.thread.take().map(JoinHandle::join);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Hears an event each time it may.
    struct Slow {
        begins: Sender<()>,
        may: Receiver<()>,
        heard: Arc<Mutex<Vec<(Nanos, u64)>>>,
    }

    impl Reader for Slow {
        fn hear(&mut self, event: &Arc<Event>, lost: u64) {
            let _ = self.begins.send(());
            let _ = self.may.recv();
            let Event::Summary { at, .. } = &**event else { return };
            self.heard.lock().unwrap().push((*at, lost));
        }
    }

    fn summary(at: usize) -> Event {
        Event::Summary { at: Nanos(at as u64), text: String::new() }
    }

    #[test]
    fn a_reader_that_stands_still_loses_events_that_are_counted_and_the_others_none() {
        let (begins, begun) = channel();
        let (go_on, may) = channel::<()>();
        let [slow, quick] = <[Arc<Mutex<Vec<_>>>; 2]>::default();
        let stream = Stream::default();
        let stream = stream.with(Slow { begins, may, heard: slow.clone() }).unwrap();
        let (ignored, _) = channel();
        let (_, free) = channel();
        let all = Slow { begins: ignored, may: free, heard: quick.clone() };
        let stream = stream.with(all).unwrap();
        stream.tell(summary(0));
        begun.recv().unwrap();
        // It holds one, and as many as there is room for wait.
        for at in 1..WAITING + 10 {
            stream.tell(summary(at));
            while quick.lock().unwrap().len() <= at {
                thread::yield_now();
            }
        }
        drop(go_on);
        drop(stream);
        let slow = slow.lock().unwrap();
        assert_eq!(slow.len(), WAITING + 1);
        assert_eq!(slow.last(), Some(&(Nanos(WAITING as u64), 9)));
        assert!(quick.lock().unwrap().iter().all(|(_, lost)| *lost == 0));
    }
}
