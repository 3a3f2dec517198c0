//! Meters at work, each in a thread of its own, and what they came to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use ebb_cli::text::printable;

use super::accuracy::Accuracy;
use super::integral::{Curve, Integral, Point};

/// The one clock of a replay: seconds since its start.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    /// Unix seconds at the start.
    pub unix: f64,
}

impl Clock {
    /// It begins now.
    pub fn new() -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { start: Instant::now(), unix: since.as_secs_f64() }
    }

    /// A moment on it.
    pub fn at(&self, instant: Instant) -> f64 {
        instant.saturating_duration_since(self.start).as_secs_f64()
    }

    /// Now on it.
    pub fn now(&self) -> f64 {
        self.at(Instant::now())
    }

    /// A time of day on it.
    pub fn of_unix(&self, unix: f64) -> f64 {
        unix - self.unix
    }

    /// How far the time of day has been set meanwhile, in seconds.
    pub fn drift(&self) -> f64 {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        since.as_secs_f64() - self.unix - self.now()
    }
}

/// What a meter is.
#[derive(Debug, Clone)]
pub struct About {
    /// Its kind, such as `rapl`.
    pub name: &'static str,
    /// What it meters, for people.
    pub of: String,
    /// How far it may be off, where that is known.
    pub accuracy: Option<Accuracy>,
    /// Whether its samples come by themselves, perhaps late.
    pub external: bool,
}

/// What a meter has told so far.
#[derive(Debug)]
struct Told {
    curve: Curve,
    skipped: BTreeMap<String, u64>,
    /// How many samples the last one stands for besides itself.
    merged: f64,
    /// The first line that was refused or, without one, was no sample.
    first: Option<String>,
    /// Its times had no zone, its watts no unit.
    assumed: (bool, bool),
    failure: Option<String>,
}

/// Samples of power that are closer together, in seconds, count as one of their mean: what is kept
/// does not grow with how fast a meter talks.
const CLOSEST: f64 = 1e-3;

/// Where a meter puts what it reads.
#[derive(Debug)]
pub struct Sink {
    told: Mutex<Told>,
    news: Condvar,
    stop: AtomicBool,
}

impl Sink {
    /// For samples of this kind.
    pub fn new(curve: Curve) -> Arc<Self> {
        let (skipped, first, failure) = (BTreeMap::new(), None, None);
        let told = Told { curve, skipped, merged: 0.0, first, assumed: (false, false), failure };
        Arc::new(Self {
            told: Mutex::new(told),
            news: Condvar::new(),
            stop: AtomicBool::new(false),
        })
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more sample; whether it is one of its own.
    pub fn push(&self, at: f64, value: f64) -> bool {
        let mut told = self.told();
        let Told { curve, merged, .. } = &mut *told;
        let is_power = matches!(curve, Curve::Power(_));
        let (Curve::Power(points) | Curve::Energy(points)) = curve;
        let before = points.len();
        match points.last_mut() {
            Some(last) if at <= last.at => {}
            Some(last) if is_power && at - last.at < CLOSEST => {
                *merged += 1.0;
                last.value += (value - last.value) / (*merged + 1.0);
            }
            _ => {
                *merged = 0.0;
                points.push(Point { at, value });
            }
        }
        self.news.notify_all();
        points.len() > before
    }

    /// Takes the last sample back, which was one of its own.
    pub fn retract(&self) {
        let (Curve::Power(points) | Curve::Energy(points)) = &mut self.told().curve;
        points.pop();
    }

    /// Something that was no sample, and the line where it is one.
    pub fn skip(&self, why: &str, line: &str) {
        let mut told = self.told();
        if told.skipped.is_empty() {
            told.first = None; // It tells more than a heading.
        }
        *told.skipped.entry(why.to_owned()).or_default() += 1;
        drop(told);
        self.other(line);
    }

    /// A line that belongs to samples, such as a heading.
    pub fn other(&self, line: &str) {
        if !line.trim().is_empty() {
            let short = || line.trim().chars().take(60).collect();
            self.told().first.get_or_insert_with(short);
        }
    }

    /// Times without a zone are taken in the machine's, power without a unit in watts.
    pub fn assume(&self, local: bool, watts: bool) {
        self.told().assumed = (local, watts);
    }

    /// Why no more will come.
    pub fn fail(&self, why: String) {
        self.told().failure.get_or_insert(why);
        self.news.notify_all();
    }

    /// Whether it should end.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The values of all samples.
    #[cfg(test)]
    pub fn values(&self) -> Vec<f64> {
        self.told().curve.points().iter().map(|point| point.value).collect()
    }

    /// Waits for a sample at or after `at`, or a failure; returns whether there is one.
    fn wait(&self, at: f64, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut told = self.told();
        loop {
            if told.curve.points().last().is_some_and(|last| last.at >= at) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || told.failure.is_some() {
                return false;
            }
            let waited = self.news.wait_timeout(told, left);
            told = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A meter at work.
pub struct Running {
    /// What it is.
    pub about: About,
    sink: Arc<Sink>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Lets `work` fill `sink` in a thread of its own until that is over.
    pub fn start(about: About, sink: Arc<Sink>, work: impl FnOnce(&Sink) + Send + 'static) -> Self {
        let own = sink.clone();
        let thread = std::thread::spawn(move || work(&own));
        Self { about, sink, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.sink.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // One that panicked has said so.
        }
    }
}

/// What a meter came to in a window.
#[derive(Debug, Clone)]
pub struct Taken {
    /// Which.
    pub about: About,
    /// The energy.
    pub integral: Integral,
    /// Lines and readings that were no samples, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Why it tells nothing any more.
    pub failure: Option<String>,
}

/// All meters of a replay.
pub struct Sampler {
    /// Their clock.
    pub clock: Clock,
    meters: Vec<Running>,
}

/// How long the first and the last sample of an external meter are waited for.
const PATIENCE: Duration = Duration::from_secs(5);

impl Sampler {
    /// With meters that are at work.
    pub fn new(clock: Clock, meters: Vec<Running>) -> Self {
        Self { clock, meters }
    }

    /// The meters.
    pub fn meters(&self) -> impl Iterator<Item = &About> {
        self.meters.iter().map(|meter| &meter.about)
    }

    /// Waits until every external meter has told something.
    ///
    /// # Errors
    /// The first that tells nothing, and what it said instead.
    pub fn ready(&self) -> Result<(), String> {
        for meter in self.meters.iter().filter(|meter| meter.about.external) {
            if !meter.sink.wait(f64::NEG_INFINITY, PATIENCE) {
                let told = meter.sink.told();
                let skipped = told.skipped.iter().map(|(why, count)| format!("{count} × {why}"));
                let skipped = skipped.collect::<Vec<_>>().join(", ");
                let first = told.first.as_deref().map(printable);
                let first = first.map(|line| format!("; the first line is '{line}'"));
                let why = match (&told.failure, skipped.is_empty(), first.unwrap_or_default()) {
                    (Some(failure), ..) => failure.clone(),
                    (None, false, first) => {
                        format!("only lines that are no watts: {skipped}{first}")
                    }
                    (None, true, first) if first.is_empty() => {
                        format!("nothing within {} s", PATIENCE.as_secs())
                    }
                    (None, true, first) => format!(
                        "only headings and comments within {} s{first}; a line of a sample is \
                         watts, or a time and watts",
                        PATIENCE.as_secs()
                    ),
                };
                return Err(format!("{}: {why}", meter.about.of));
            }
        }
        Ok(())
    }

    /// What every meter came to from `from` to `to`; waits for samples that come late.
    pub fn take(&self, from: Instant, to: Instant) -> Vec<Taken> {
        let (from, to) = (self.clock.at(from), self.clock.at(to));
        let one = |meter: &Running| {
            meter.sink.wait(to, PATIENCE);
            let told = meter.sink.told();
            let mut about = meter.about.clone();
            let (local, watts) = told.assumed;
            if local {
                about.of.push_str(", its times in this machine's zone");
            }
            if watts {
                about.of.push_str(", power without a unit taken in W");
            }
            let points = told.curve.points();
            let off = match (points.first(), points.last()) {
                (Some(first), _) if first.at > to => Some((first.at - to, "after")),
                (_, Some(last)) if last.at < from => Some((from - last.at, "before")),
                _ => None,
            };
            if let (Some((seconds, side)), None) = (off, &told.failure) {
                let off = format!(", all its samples {seconds:.0} s {side} (is its clock right?)");
                about.of.push_str(&off);
            }
            if told.curve.is_nothing() {
                about.of.push_str(", which says 0 W all the time (does it measure this machine?)");
            }
            Taken {
                about,
                integral: told.curve.integral(from, to),
                skipped: told.skipped.clone(),
                failure: told.failure.clone(),
            }
        };
        self.meters.iter().map(one).collect()
    }

    /// All samples of each meter.
    pub fn curves(&self) -> impl Iterator<Item = (&About, Curve)> {
        self.meters.iter().map(|meter| (&meter.about, meter.sink.told().curve.clone()))
    }
}
