//! The best known fan duty and frequency for a load that is known.

use ebb_policy::sense::SET_POINT;
use ebb_policy::units::{Hertz, Joules, Nanos};
use ebb_policy::{Policy, QosClass, Request, Signals, Topology};

use super::descent::descend;
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
    fn new(topology: &Topology, usual: &Outcome, plan: [Setting; SLOTS]) -> Self {
        Self {
            plan,
            slot: Nanos(usual.end.0 / SLOTS as u64),
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
    /// than in `usual`; no die hotter than the set point of EADC, or than there.
    fn new(run: &Outcome, usual: &Outcome, plf: f64) -> Self {
        let urgent = |job: &JobTotal| matches!(job.class, QosClass::Vital | QosClass::Critical);
        let seconds = |job: &JobTotal| job.delay().map(Nanos::seconds);
        let jobs = run.jobs.iter().zip(&usual.jobs).filter(|(job, _)| urgent(job));
        let jobs = jobs.filter_map(|(now, then)| {
            Some((seconds(now).unwrap_or(f64::INFINITY), seconds(then)?))
        });
        let users = (!usual.latency.is_empty()).then(|| (run.mean_latency(), usual.mean_latency()));
        let late = jobs.chain(users).map(|(now, then)| now / (then * (1.0 + plf)) - 1.0);
        let die = |run: &Outcome| run.thermal.map_or(0.0, |thermal| thermal.hottest_socket.0);
        let hot = die(run) / die(usual).max(SET_POINT.0) - 1.0;
        let tripped = if run.trip.is_some() { f64::INFINITY } else { 0.0 };
        let excess = late.fold(tripped, f64::max).max(hot);
        Self { excess: excess.max(0.0), energy: run.energy.total() }
    }
}

/// The cheapest of these policies that was found for the load of which `usual` is a run under the
/// default policy: the best constant setting, then better ones for halves of the time, quarters
/// and so on. `simulate` runs one on that load.
///
/// # Errors
/// Those of `simulate`.
pub fn search<E>(
    topology: &Topology,
    plf: f64,
    usual: &Outcome,
    mut simulate: impl FnMut(ClairvoyantFans) -> Result<Outcome, E>,
) -> Result<ClairvoyantFans, E> {
    let policy = |plan| ClairvoyantFans::new(topology, usual, plan);
    let mut cost = |plan| simulate(policy(plan)).map(|run| Cost::new(&run, usual, plf));
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
    let by = |duty: isize, top: isize| {
        move |Setting { duty: from, top: at }: Setting| Setting {
            duty: from.saturating_add_signed(duty).min(DUTIES - 1),
            top: at.saturating_add_signed(top).min(tops - 1),
        }
    };
    let moves = [by(1, 0), by(-1, 0), by(0, 1), by(0, -1)];
    let moves: Vec<&dyn Fn(Setting) -> Setting> = moves.iter().map(|by| by as _).collect();
    Ok(policy(descend((best, least), &moves, cost)?))
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;
    use crate::Profile;

    /// A run that costs so much more the further its settings are from what is best at the time.
    fn run(plan: Option<&ClairvoyantFans>, best: impl Fn(usize) -> (usize, usize)) -> Outcome {
        let mut run = Outcome::empty(Histogram::new(3).unwrap(), 0);
        run.end = Nanos::from_secs(1600);
        let settings = plan.map_or(&[][..], |plan| &plan.plan);
        let off = settings.iter().enumerate().map(|(slot, setting)| {
            let (duty, top) = best(slot);
            setting.duty.abs_diff(duty).pow(2) + setting.top.abs_diff(top).pow(2)
        });
        run.energy.fans = Joules(1e3 + off.sum::<usize>() as f64);
        run
    }

    #[test]
    fn what_is_best_at_each_time_is_found_and_asked_for() {
        let topology = Profile::load("eadc-e4").unwrap().topology();
        let best = |slot: usize| (3 + slot / 3, 5 - slot / 4);
        let simulate = |plan: ClairvoyantFans| Ok::<_, ()>(run(Some(&plan), best));
        let mut found = search(&topology, 0.1, &run(None, best), simulate).unwrap();
        for slot in 0..SLOTS {
            let mut signals = Signals::new(&topology);
            signals.now = Nanos::from_secs(100 * slot as u64 + 50);
            let mut request = Request::new(&topology);
            found.step(&signals, &mut request);
            let (duty, top) = best(slot);
            let least = topology.min_duty();
            let duty = least + (1.0 - least) * duty as f64 / 12.0;
            assert!((request.fan_duty.get(0).unwrap() - duty).abs() < 1e-9, "slot {slot}");
            assert_eq!(request.frequency.get(0), Some(topology.frequencies[top]));
        }
    }

    #[test]
    fn no_energy_is_worth_a_trip() {
        let topology = Profile::load("eadc-e4").unwrap().topology();
        let trip = crate::outcome::Trip {
            socket: 0,
            at: Nanos::from_secs(1),
            temperature: ebb_policy::units::Celsius(105.0),
        };
        // Slow fans draw less, and trip.
        let simulate = |plan: ClairvoyantFans| {
            let slow = plan.plan.iter().any(|setting| setting.duty < 5);
            Ok::<_, ()>(Outcome { trip: slow.then_some(trip), ..run(Some(&plan), |_| (0, 0)) })
        };
        let found = search(&topology, 0.1, &run(None, |_| (0, 0)), simulate).unwrap();
        assert_eq!(found.plan, [Setting { duty: 5, top: 0 }; SLOTS]);
    }
}
