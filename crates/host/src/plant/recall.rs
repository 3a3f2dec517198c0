//! Cores and frequencies come back between two cycles, where the policy has asked for that
//! ([`Control::Recall`]) and a crowd of requests has come.

use std::time::{Duration, Instant};

use ebb_policy::units::Nanos;
use ebb_policy::{Applied, Control, Decision, InForce, Outcome};

use crate::plant::Host;
use crate::sense::crowd::{Came, Watch};

/// Why, in decisions.
const REASON: &str = "host:recalled";

/// What a crowd has brought back.
#[derive(Debug, Clone, PartialEq)]
pub struct Recalled {
    /// What changed, and what became of it.
    pub decisions: Vec<(Decision, Outcome)>,
    /// What was seen, and how long the rest took.
    pub text: String,
}

impl Host {
    /// Time to the next [`Self::look`]; `None` where nothing is to be looked for: nothing is parked
    /// or slowed, or nobody has asked for it.
    #[must_use]
    pub fn pace(&self) -> Option<Duration> {
        self.crowd.pace()
    }

    /// How often it has looked for a crowd so far, and the CPU time that one look takes.
    #[must_use]
    pub fn looks(&self) -> (u64, Nanos) {
        self.crowd.looks()
    }

    /// Looks for a crowd; where there is one, everything that is parked or slowed is back when this
    /// returns. The next cycle's signals tell the policy.
    pub fn look(&mut self) -> Option<Recalled> {
        let came = self.crowd.look()?;
        self.crowd.begin(None);
        let (began, at) = (Instant::now(), self.since());
        let all = self.all_back();
        let mut applied = Applied::new(&self.topology);
        let mut tell = |control: Control, part: usize, outcome: Outcome| {
            applied.set(control, part, outcome);
        };
        self.acting.as_mut()?.recall(&all, at, &mut tell);
        let of = |decision: Decision| {
            let outcome = applied.of(decision.control, usize::from(decision.part));
            (Decision { reason: REASON, ..decision }, outcome)
        };
        let decisions = all.decisions(&self.given, at).map(of).collect();
        self.given = all;
        Some(Recalled { decisions, text: text(&came, began.elapsed()) })
    }

    /// Waits for a crowd from now on where something is saved that can be recalled.
    pub(super) fn begin_watch(&mut self, given: &InForce, applied: &mut Applied) {
        self.given.clone_from(given);
        let parts = 0..given.count(Control::Recall);
        if !self.crowd.is_able() {
            let asked = parts.filter(|part| given.is_given(Control::Recall, *part));
            asked.for_each(|part| applied.set(Control::Recall, part, Outcome::Refused));
            return;
        }
        let Some(acting) = &self.acting else { return };
        let crowd = |group: usize| {
            let most = given.recall.at(group).given?;
            Some(f64::from(most) * f64::from(acting.active(group).max(1)))
        };
        // Which group's requests they are is not known: the least of all.
        let most = parts.filter_map(crowd).reduce(f64::min);
        let (parked, slowed) = acting.saving();
        let is_less = self.all_back().decisions(given, self.now).next().is_some();
        let rest = parked + self.away.len();
        let watch = Watch {
            most: most.unwrap_or_default(),
            in_use: self.machine.cpus.cpus.len().saturating_sub(rest),
            saving: parked + slowed,
        };
        let is_on = most.is_some() && is_less && watch.saving > 0;
        self.crowd.begin(is_on.then_some(watch));
    }

    /// What is given, with all cores, as fast as they were found or the ceilings allow.
    fn all_back(&self) -> InForce {
        let released = InForce::new(&self.topology);
        let (active_cores, frequency) = (released.active_cores, released.frequency);
        InForce { active_cores, frequency, ..self.given.clone() }
    }
}

fn text(came: &Came, took: Duration) -> String {
    let Came { crowd, usual, watch } = came;
    format!(
        "recalled: {crowd:.0} requests in flight and tasks without a CPU, {usual:.1} are usual, \
         {:.0} more bring everything back; that took {:.1} ms",
        watch.most,
        took.as_secs_f64() * 1e3
    )
}
