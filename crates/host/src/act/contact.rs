//! First contact: before a policy starts, each kind of control is tried in one place, read back and
//! given back. What refuses is not used; a limit that reads back and does not bind is named.
//!
//! Where all was taken, that holds for this start of the machine and these places: it is remembered
//! beside the originals.

use std::thread;
use std::time::{Duration, Instant};

use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Control, Outcome};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::act::originals::State;
use crate::act::steering::{Notice, Steering};
use crate::find::machine::Machine;

/// Its name in the state folder.
const FILE: &str = "contact.json";
/// So many domains of a kind are tried until one works.
const TRIES: usize = 3;
/// So long a CPU is kept busy to see whether a ceiling binds.
const BUSY: Duration = Duration::from_millis(100);
/// A frequency or a power that is higher than its limit by more than this share is not bound.
const OVER: f64 = 0.1;
/// So long the packages draw more than they may until that is said: limits are averages over
/// seconds (`constraint_0_time_window_us`).
const LASTING: Nanos = Nanos::from_secs(30);

/// What became of the trial of one kind of control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was set, read back and given back.
    Works,
    /// It was not taken.
    Refused(String),
    /// It reads back, and nothing follows.
    DoesNotBind(String),
    /// It did not work, for a reason that may go: it is used once it has gone.
    NotYet(String),
}

impl Verdict {
    /// Whether what was written was taken.
    fn is_taken(&self) -> bool {
        matches!(self, Self::Works | Self::DoesNotBind(_))
    }
}

/// One kind of control, where it was tried, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Its name in the table, or the key of `[hold]`.
    pub of: String,
    /// Where.
    pub place: String,
    /// What became of it.
    pub verdict: Verdict,
}

impl std::fmt::Display for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { of, place, verdict } = self;
        match verdict {
            Verdict::Works => write!(f, "{of} works ({place})"),
            Verdict::Refused(why) => write!(f, "{of} is refused and not used: {place}: {why}"),
            Verdict::DoesNotBind(why) => write!(f, "{of} does not bind: {place}: {why}"),
            Verdict::NotYet(why) => write!(f, "{of} does not work yet: {place}: {why}"),
        }
    }
}

/// All trials of one start of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Contact {
    /// The start of the machine, and the places that Ebb acts in.
    pub of: Vec<String>,
    /// What was tried.
    pub trials: Vec<Trial>,
}

impl Contact {
    /// Whether what has this name was refused.
    #[must_use]
    pub fn is_refused(&self, name: &str) -> bool {
        let refused = |trial: &Trial| matches!(trial.verdict, Verdict::Refused(_));
        self.trials.iter().any(|trial| trial.of == name && refused(trial))
    }

    /// The controls that were refused.
    pub fn refused(&self) -> impl Iterator<Item = &'static Control> + '_ {
        Control::ALL.iter().filter(|control| self.is_refused(control.row().name))
    }

    /// What is remembered of `of` in `state`.
    #[must_use]
    pub fn load(state: &State, of: &[String]) -> Option<Self> {
        serde_json::from_slice(&state.other(FILE)?).ok().filter(|contact: &Self| contact.of == of)
    }

    /// Remembers it, if everything was taken: a refusal may have had a reason of that moment.
    /// Where that fails, the next start tries again.
    pub fn save(&self, state: &State) {
        if !self.trials.iter().all(|trial| trial.verdict.is_taken()) {
            return;
        }
        if let Ok(text) = serde_json::to_string_pretty(self) {
            let _ = state.put_other(FILE, &(text + "\n"));
        }
    }
}

/// Writes to make in one domain, in this order; given back in the opposite one. The first place is
/// the one that is named.
pub struct Attempt {
    /// Places and values.
    pub writes: Vec<(usize, String)>,
    /// A CPU whose frequency is then at most so many kHz.
    pub bounds: Option<(u16, f64)>,
}

/// Tries a kind of control, in one domain after the other until one works.
pub fn attempt(
    of: &str,
    attempts: impl IntoIterator<Item = Attempt>,
    machine: &Machine,
    steering: &mut Steering,
) -> Option<Trial> {
    let (mut last, mut left) = (None, Vec::new());
    for attempt in attempts.into_iter().take(TRIES) {
        let place = steering.place(attempt.writes.first()?.0).to_string();
        let (verdict, said) = one(&attempt, machine, steering);
        let is_taken = verdict.is_taken();
        last = Some(Trial { of: of.to_owned(), place, verdict });
        // What another domain is left at the last trial does not say.
        left.drain(..).for_each(|Notice { place, text }| steering.tell(place, text));
        if is_taken {
            break;
        }
        if attempt.writes.iter().any(|(at, _)| steering.is_changed(*at)) {
            left = said;
        }
    }
    last
}

/// What became of it, and what was said meanwhile.
fn one(attempt: &Attempt, machine: &Machine, steering: &mut Steering) -> (Verdict, Vec<Notice>) {
    let (now, others) = (Nanos::ZERO, steering.notices());
    let set = |steering: &mut Steering, at: usize, value: Option<&str>| {
        // What comes true later is waited for in each trial anew.
        steering.check(0, now, |_| true);
        let outcome = match value {
            Some(_) => steering.set(at, value, now),
            None => steering.take_back(at, now),
        };
        outcome == Outcome::Done
    };
    let taken = attempt.writes.iter().all(|(at, value)| set(steering, *at, Some(value)));
    let unbound = attempt.bounds.filter(|_| taken).and_then(|(cpu, most)| {
        let is = busy_frequency(machine, cpu)?;
        (is > most * (1.0 + OVER)).then(|| format!("cores run at {is:.0} kHz of {most:.0}"))
    });
    let back = attempt.writes.iter().rev();
    let back = back.fold(true, |done, (at, _)| set(steering, *at, None) && done);
    let is_set = attempt.writes.iter().any(|(at, _)| steering.is_set(*at));
    assert!(!back || !is_set, "what was tried is given back");
    let said = steering.notices();
    others.into_iter().for_each(|Notice { place, text }| steering.tell(place, text));
    let mut is_gone =
        |(at, _): &(usize, String)| steering.read(*at).is_err_and(|absent| absent.is_gone());
    let verdict = match (taken && back, unbound) {
        (false, _) if attempt.writes.iter().any(&mut is_gone) => {
            Verdict::NotYet("it has gone".to_owned())
        }
        (false, _) => {
            let said: Vec<_> = said.iter().map(|notice| notice.text.as_str()).collect();
            Verdict::Refused(said.join("; "))
        }
        (true, Some(why)) => Verdict::DoesNotBind(why),
        (true, None) => Verdict::Works,
    };
    (verdict, said)
}

/// What the frequency of `cpu` is after a while with work, in kHz: by the hardware where it says.
fn busy_frequency(machine: &Machine, cpu: u16) -> Option<f64> {
    let sys = &machine.sys;
    thread::scope(|scope| {
        let work = || {
            let mut set = CpuSet::new();
            set.set(usize::from(cpu));
            // A copy of a machine has no CPUs of its own to work on.
            let begun = Instant::now();
            if sys.is_fixture() || sched_setaffinity(None, &set).is_err() {
                return;
            }
            while begun.elapsed() < BUSY {
                std::hint::spin_loop();
            }
        };
        let _ = scope.spawn(work).join();
    });
    let folder = &machine.cpus.policies.iter().find(|policy| policy.cpus.contains(&cpu))?.folder;
    let read = |name: &str| sys.number::<f64>(format!("{folder}/{name}")).ok();
    ["cpuinfo_cur_freq", "scaling_cur_freq"].into_iter().find_map(read)
}

/// Sees whether the packages keep to the power that they are held to.
#[derive(Debug, Default)]
pub struct PowerWatch {
    over: Option<Nanos>,
    told: bool,
}

impl PowerWatch {
    /// What is to be said, once, of a `limit` of all packages together that reads back and does not
    /// bind.
    pub fn see(&mut self, limit: Watts, power: Option<Watts>, now: Nanos) -> Option<String> {
        let over = power.filter(|power| power.0 > limit.0 * (1.0 + OVER));
        let Some(power) = over else {
            self.over = None;
            return None;
        };
        let since = *self.over.get_or_insert(now);
        if self.told || now.saturating_sub(since) < LASTING {
            return None;
        }
        self.told = true;
        Some(format!(
            "it reads back and does not bind: the packages draw {power:.1} of {limit:.1} (a limit \
             that the firmware has locked, or another one over MMIO)"
        ))
    }
}
