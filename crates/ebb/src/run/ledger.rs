//! Keeps the ledger of a run: what each cycle has told of energy, added up by the hour.

use std::path::PathBuf;
use std::sync::Arc;

use ebb_cli::out;
use ebb_policy::registry;
use ebb_policy::table::SIGNALS;
use ebb_policy::units::Nanos;
use ebb_policy::{Domain, Unit};

use super::events::{Event, Reader, Settings, Tick};
use crate::ledger::{self, AS_FOUND, Amount, Amounts, Ledger, POSSIBLE, Pair, SAVED, SETTLING};

/// What is told within this time waits in memory: so much a loss of power can cost, and a drive is
/// not kept awake for it.
const EVERY: Nanos = Nanos::from_secs(300);
/// What is told first is there sooner, for who has just started it.
const FIRST: Nanos = Nanos::from_secs(20);

/// So many amounts wait for a full disk at most: days of them.
const WAITING: usize = 1000;

/// Adds to a ledger.
pub struct Keeper {
    file: PathBuf,
    ledger: Option<Ledger>,
    /// What waits, and the time that it is of.
    amounts: Amounts,
    waited: Nanos,
    /// What the trial has said and is not on the disk yet.
    pairs: Vec<Pair>,
    /// What was lost: amounts, and events that never got here.
    lost: u64,
    unheard: u64,
    trouble: Option<String>,
    parts: Parts,
}

/// What a run has begun with.
#[derive(Default)]
struct Parts {
    would: bool,
    profile: String,
    /// What it goes by, since when, and the requests completed since.
    by: Option<Arc<Settings>>,
    since: Nanos,
    completed: u64,
    /// Whether its policy has settled.
    settled: bool,
}

impl Parts {
    /// Follows the settings, and whether their policy has settled.
    fn follow(&mut self, tick: &Tick) {
        let Settings { policy, plf, ssd_budget, server_budget, .. } = &*tick.settings;
        let budgets = (*ssd_budget, *server_budget);
        let alike = |by: &Arc<Settings>| {
            (&by.policy, by.plf, (by.ssd_budget, by.server_budget)) == (policy, *plf, budgets)
        };
        if self.by.as_ref().is_some_and(|by| !alike(by)) {
            (self.since, self.completed, self.settled) = (tick.at, 0, false);
        }
        self.by = Some(Arc::clone(&tick.settings));
        self.completed += tick.signals.io.completed.unwrap_or_default();
        if self.settled {
            return;
        }
        let lasted = tick.at.saturating_sub(self.since);
        let iops = self.completed as f64 / lasted.max(tick.signals.period).seconds();
        let stated = registry::Settings {
            plf: *plf,
            ssd_budget: *ssd_budget,
            server_budget: *server_budget,
            ..registry::Settings::default()
        };
        let settling = registry::settling(policy, &stated, iops);
        self.settled = settling.is_ok_and(|settling| lasted >= settling.after);
    }
}

impl Keeper {
    /// Of the ledger in `file`, which is opened when the run begins.
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            ledger: None,
            amounts: Amounts::new(),
            waited: Nanos::ZERO,
            pairs: Vec::new(),
            lost: 0,
            unheard: 0,
            trouble: None,
            parts: Parts::default(),
        }
    }

    fn count(&mut self, tick: &Tick) {
        let signals = &tick.signals;
        // The hour is the wall clock's; how long a cycle took is not.
        let hour = (tick.unix_s / 3600.0).floor() as i64;
        let seconds = signals.period.seconds();
        let mut add = |of: &str, kind: &str, [least_j, most_j]: [f64; 2]| {
            let key = (hour, of.to_owned(), kind.to_owned());
            *self.amounts.entry(key).or_default() += Amount { seconds, least_j, most_j };
        };
        let powers = SIGNALS.iter().filter(|row| {
            row.domain == Domain::Server && row.unit == Unit::Watts && row.name.ends_with("power")
        });
        for row in powers {
            if let Some(watts) = (row.read)(signals, 0) {
                let kind = signals.sources.of(row.signal, 0).origin.name();
                add(row.name, kind, [watts * seconds; 2]);
            }
        }
        self.parts.follow(tick);
        let Parts { would, profile, settled, .. } = &self.parts;
        let is_as_found = tick.settings.as_found_until.is_some();
        if let Some(saved) = tick.saved {
            match (settled, would) {
                _ if is_as_found => add(profile, AS_FOUND, [0.0; 2]),
                (false, _) => add(profile, SETTLING, [0.0; 2]),
                (true, true) => add(profile, POSSIBLE, saved.map(|energy| energy.0)),
                (true, false) => add(profile, SAVED, saved.map(|energy| energy.0)),
            }
        }
        self.waited += signals.period;
    }

    /// Puts on the disk what waits. What cannot be put there waits on, as far as there is room.
    fn commit(&mut self) {
        self.waited = Nanos::ZERO;
        if self.amounts.is_empty() && self.pairs.is_empty() && self.ledger.is_some() {
            return;
        }
        let done = match self.ledger.as_mut() {
            Some(ledger) => ledger.add(&self.amounts, &self.pairs),
            None => Ledger::open(&self.file)
                .and_then(|ledger| self.ledger.insert(ledger).add(&self.amounts, &self.pairs)),
        };
        match done {
            Ok(()) => {
                self.amounts.clear();
                self.pairs.clear();
                if self.trouble.take().is_some() {
                    self.say(&format!("is written again; {} amounts were lost", self.lost));
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &rusqlite::Error) {
        // Another time it is opened anew.
        self.ledger = None;
        if ledger::is_broken(error) {
            match ledger::set_aside(&self.file) {
                Ok(aside) => {
                    self.say(&format!("is broken ({error}): it is {} now", aside.display()));
                    return self.commit();
                }
                Err(refused) => self.say(&format!("is broken and stays: {refused}")),
            }
        }
        if self.amounts.len() + self.pairs.len() > WAITING {
            self.lost += (self.amounts.len() + self.pairs.len()) as u64;
            self.amounts.clear();
            self.pairs.clear();
        }
        let error = error.to_string();
        if self.trouble.as_ref() != Some(&error) {
            self.say(&format!("cannot be written: {error}; nothing else depends on it"));
            self.trouble = Some(error);
        }
    }

    fn say(&self, text: &str) {
        out::note(format_args!("the ledger {} {text}", self.file.display()));
    }
}

impl Reader for Keeper {
    fn hear(&mut self, event: &Arc<Event>, lost: u64) {
        match &**event {
            Event::Begun(begun) => {
                let (would, profile) = (begun.would, begun.profile.clone());
                self.parts = Parts { would, profile, since: begun.at, ..Parts::default() };
                // A file that cannot be had is told of at once.
                self.commit();
                self.waited = EVERY.saturating_sub(FIRST);
            }
            Event::Tick(tick) => self.count(tick),
            Event::Tried { pair, .. } => self.pairs.push(pair.clone()),
            Event::Recalled(_) | Event::Changed { .. } | Event::Summary { .. } => {}
        }
        if self.waited >= EVERY {
            if lost > self.unheard {
                self.unheard = lost;
                self.say(&format!("lacks {lost} cycles: the machine was too busy"));
            }
            self.commit();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.commit();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ebb_policy::units::{Joules, Watts};
    use ebb_policy::{Applied, InForce, Signals, Topology};

    use super::super::events::{Begun, Settings, State};
    use super::*;

    fn parts(would: bool) -> Arc<Begun> {
        Arc::new(Begun { would, profile: "generic-1u".to_owned(), ..Begun::default() })
    }

    fn begun(would: bool) -> Arc<Event> {
        Arc::new(Event::Begun(parts(would)))
    }

    /// Half a second at `at` seconds, with 100 W at the wall and 1 to 2 J saved.
    fn tick(at: u64, unix_s: f64) -> Arc<Event> {
        tick_by("pacer", at, unix_s)
    }

    fn tick_by(policy: &str, at: u64, unix_s: f64) -> Arc<Event> {
        let topology = Topology::default();
        let mut signals = Signals::new(&topology);
        signals.period = Nanos::from_millis(500);
        signals.power.total = Some(Watts(100.0));
        let settings = Settings { policy: policy.to_owned(), plf: 0.2, ..Settings::default() };
        Arc::new(Event::Tick(Box::new(Tick {
            begun: parts(false),
            number: at,
            made: Arc::default(),
            at: Nanos::from_secs(at),
            unix_s,
            settings: Arc::new(settings),
            signals,
            found: None,
            in_force: InForce::new(&topology),
            applied: Applied::new(&topology),
            state: State::Observing,
            notices: Vec::new(),
            late: Nanos::ZERO,
            saving: None,
            saved: Some([1.0, 2.0].map(Joules)),
            loss: None,
        })))
    }

    fn kept(file: &Path) -> Vec<(i64, String, f64)> {
        let ledger = Ledger::read(file).unwrap();
        let amounts = ledger.amounts(i64::MIN, i64::MAX).unwrap();
        amounts.into_iter().map(|((hour, _, kind), one)| (hour, kind, one.most_j)).collect()
    }

    #[test]
    fn a_clock_that_jumps_counts_nothing_twice_and_what_has_not_settled_has_no_energy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger");
        let mut keeper = Keeper::new(file.clone());
        keeper.hear(&begun(false), 0);
        for (at, hour) in [(0, 10.0), (1, 500.0), (10_000, 10.5), (10_001, 9.9)] {
            keeper.hear(&tick(at, 3600.0 * hour), 0);
        }
        // Another policy has to settle as well.
        keeper.hear(&tick_by("pacer-cores", 10_002, 3600.0 * 11.0), 0);
        // An end puts on the disk what waits.
        assert_eq!(kept(&file), []);
        drop(keeper);
        let is = |hour: i64, kind: &str, joules: f64| (hour, kind.to_owned(), joules);
        assert_eq!(
            kept(&file),
            [
                is(9, SAVED, 2.0),
                is(9, "measured", 50.0),
                is(10, SAVED, 2.0),
                is(10, SETTLING, 0.0),
                is(10, "measured", 100.0),
                is(11, SETTLING, 0.0),
                is(11, "measured", 50.0),
                is(500, SETTLING, 0.0),
                is(500, "measured", 50.0),
            ]
        );
    }

    #[test]
    fn what_cannot_be_written_waits_and_a_broken_ledger_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/ledger");
        let mut keeper = Keeper::new(file.clone());
        keeper.hear(&begun(true), 0);
        let goes_on = |keeper: &mut Keeper, from: u64, time: Nanos| {
            let ticks = from..from + time.0 / Nanos::from_millis(500).0;
            ticks.for_each(|at| keeper.hear(&tick(at, 3600.0), 0));
        };
        goes_on(&mut keeper, 10_000, FIRST);
        assert!(keeper.trouble.is_some() && keeper.amounts.len() == 2);
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        goes_on(&mut keeper, 20_000, EVERY);
        assert!(keeper.trouble.is_none() && keeper.amounts.is_empty());
        let both = [(1, POSSIBLE.to_owned(), 1280.0), (1, "measured".to_owned(), 32_000.0)];
        assert_eq!(kept(&file), both);
        // For days: it does not grow without end.
        keeper.ledger = None;
        keeper.file = folder.path().join("none/ledger");
        for hour in 0..2000 {
            keeper.hear(&tick(30_000, 3600.0 * f64::from(hour)), 0);
            if hour % 100 == 0 {
                keeper.commit();
            }
        }
        assert!(keeper.amounts.len() <= WAITING + 200 && keeper.lost > 0);
        std::fs::write(&file, [b'x'; 5000]).unwrap();
        keeper.file = file.clone();
        keeper.commit();
        assert!(folder.path().join("new/ledger.broken").exists() && !kept(&file).is_empty());
    }
}
