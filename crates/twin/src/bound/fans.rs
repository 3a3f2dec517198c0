//! Fan duty and frequency of a policy that knows the future.

use ebb_policy::sense::SET_POINT;
use ebb_policy::units::{Hertz, Joules, Nanos};
use ebb_policy::{Policy, QosClass, Request, Signals, Topology};

use crate::outcome::{JobTotal, Outcome};

/// Equal parts of the time, each with a setting of its own; the last goes on to the end.
const SLOTS: usize = 16;
/// Fan duties that are tried, from the least to full speed; of constant settings every second one.
const DUTIES: usize = 13;

/// Places of a fan duty and of the highest frequency allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    duty: usize,
    top: usize,
}

/// A duty for all fans and a frequency for all cores in each sixteenth of the time, with which a
/// server draws least until all is done, as [`search`] found on the load itself.
///
/// No optimum but a good plan in hindsight: it is the end of a descent, moves no job and tells no
/// sockets apart.
#[derive(Debug, Clone)]
pub struct ClairvoyantFans {
    plan: [Setting; SLOTS],
    slot: Nanos,
    least: f64,
    frequencies: Vec<Hertz>,
}

impl ClairvoyantFans {
    fn new(topology: &Topology, native: &Outcome, plan: [Setting; SLOTS]) -> Self {
        Self {
            plan,
            slot: Nanos(native.end.0 / SLOTS as u64),
            least: topology.min_duty().min(1.0),
            frequencies: topology.frequencies.clone(),
        }
    }
}

impl Policy for ClairvoyantFans {
    fn name(&self) -> &'static str {
        "clairvoyant-fans"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let reason = "clairvoyant-fans:plan";
        let slot = signals.now.0 / self.slot.0.max(1);
        let Setting { duty, top } = self.plan[(slot as usize).min(SLOTS - 1)];
        let duty = self.least + (1.0 - self.least) * duty as f64 / (DUTIES - 1) as f64;
        (0..request.fan_duty.len()).for_each(|fan| request.fan_duty.ask(fan, duty, reason));
        for group in 0..request.frequency.len() {
            request.frequency.ask(group, self.frequencies[top], reason);
        }
    }
}

/// What a run costs; of two the first part that differs decides.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Cost {
    /// By how much it breaks what is tolerated.
    excess: f64,
    energy: Joules,
}

impl Cost {
    /// Users' mean latency, and the time of each job that somebody waits for, may be `plf` longer
    /// than in `native`; no die hotter than the set point of EADC, or than there.
    fn new(run: &Outcome, native: &Outcome, plf: f64) -> Self {
        let urgent = |job: &JobTotal| matches!(job.class, QosClass::Vital | QosClass::Critical);
        let end = |job: &JobTotal, end| (job.ended.unwrap_or(end) - job.arrived).seconds();
        let jobs = run.jobs.iter().zip(&native.jobs).filter(|(job, _)| urgent(job));
        let jobs = jobs.map(|(now, then)| (end(now, run.end), end(then, native.end)));
        let users = (native.requests > 0).then(|| (run.mean_latency(), native.mean_latency()));
        let late = jobs.chain(users).map(|(now, then)| now / (then * (1.0 + plf)) - 1.0);
        let die = |run: &Outcome| run.thermal.map_or(0.0, |thermal| thermal.hottest_socket.0);
        let hot = die(run) / die(native).max(SET_POINT.0) - 1.0;
        let tripped = if run.trip.is_some() { f64::INFINITY } else { 0.0 };
        let excess = late.fold(tripped, f64::max).max(hot);
        Self { excess: excess.max(0.0), energy: run.energy.total() }
    }
}

/// The cheapest of these policies that was found for the load of which `native` is a run at full
/// resources: the best constant setting, then better ones for halves of the time, quarters, and so
/// on. `simulate` runs one on that load.
///
/// # Errors
/// Those of `simulate`.
pub fn search<E>(
    topology: &Topology,
    plf: f64,
    native: &Outcome,
    mut simulate: impl FnMut(ClairvoyantFans) -> Result<Outcome, E>,
) -> Result<ClairvoyantFans, E> {
    let policy = |plan| ClairvoyantFans::new(topology, native, plan);
    let mut cost = |plan| simulate(policy(plan)).map(|run| Cost::new(&run, native, plf));
    let tops = topology.frequencies.len();
    let mut best = [Setting { duty: DUTIES - 1, top: tops - 1 }; SLOTS];
    let mut least = cost(best)?;
    for (duty, top) in (0..DUTIES).step_by(2).flat_map(|duty| (0..tops).map(move |top| (duty, top)))
    {
        let plan = [Setting { duty, top }; SLOTS];
        let found = cost(plan)?;
        if found < least {
            (best, least) = (plan, found);
        }
    }
    for parts in (0..).map(|level| 1 << level).take_while(|parts| *parts <= SLOTS) {
        let mut better = true;
        while std::mem::take(&mut better) {
            for (part, (duty, top)) in
                (0..parts).flat_map(|part| [(1, 0), (-1, 0), (0, 1), (0, -1)].map(|by| (part, by)))
            {
                let mut plan = best;
                for setting in &mut plan[part * SLOTS / parts..(part + 1) * SLOTS / parts] {
                    setting.duty = setting.duty.saturating_add_signed(duty).min(DUTIES - 1);
                    setting.top = setting.top.saturating_add_signed(top).min(tops - 1);
                }
                if plan == best {
                    continue;
                }
                let found = cost(plan)?;
                if found < least {
                    (best, least, better) = (plan, found, true);
                }
            }
        }
    }
    Ok(policy(best))
}
