//! The best known limits within a budget of the whole server for a load that is known.

use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Control, Policy, Request, Signals, Topology};

use super::descent::descend;
use crate::outcome::Outcome;

/// Equal parts of the time, each with a setting of its own; the last goes on to the end.
const SLOTS: usize = 4;
/// Steps of the number of cores, of CPU time within a whole, and of drives' rates.
const CORES: u16 = 8;
const TIMES: usize = 20;
const RATES: usize = 40;
/// A rate of the next step.
const RATE_STEP: f64 = 0.9;
/// Period of the CPU time.
const CPU_PERIOD: Nanos = Nanos::from_millis(100);
/// What of a budget may be drawn in a single control period.
const PEAK: f64 = 1.02;
/// Loads served that differ by no more than this share are the same: then latency decides.
const SAME: f64 = 0.005;

/// Steps of cores, of frequency, of CPU time and of rates, from the least.
type Setting = [usize; 4];

/// Cores, frequency, CPU time and rates of drives for each quarter of the time, with which a server
/// serves most within a budget, and of equals the fastest, as [`search`] found on the load itself.
///
/// No bound but a good plan in hindsight: it is the end of a descent, has the same rate for all
/// drives and slows all work alike.
#[derive(Debug, Clone)]
pub struct ClairvoyantBudget {
    topology: Topology,
    plan: [Setting; SLOTS],
    slot: Nanos,
    /// Bytes a second of each drive that are no limit.
    rate: f64,
}

impl ClairvoyantBudget {
    fn new(topology: &Topology, usual: &Outcome, plan: [Setting; SLOTS]) -> Self {
        let served = usual.bytes as f64 / usual.span.seconds().max(1e-9);
        Self {
            topology: topology.clone(),
            plan,
            slot: Nanos(usual.end.0 / SLOTS as u64),
            rate: 2.0 * served / topology.drives.len().max(1) as f64,
        }
    }
}

impl Policy for ClairvoyantBudget {
    fn name(&self) -> &'static str {
        "clairvoyant-budget"
    }

    fn owns(&self) -> &[Control] {
        use Control::*;
        &[CoreLimit, FrequencyLimit, CpuTime, CpuPeriod, ReadRate, WriteRate]
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let reason = "clairvoyant-budget:plan";
        let slot = signals.now.0 / self.slot.0.max(1);
        let [cores, frequency, time, rate] = self.plan[(slot as usize).min(SLOTS - 1)];
        let mut on = 0;
        for g in self.topology.io_groups() {
            let all = self.topology.groups[g].cores;
            let own = (all * (cores as u16 + 1)).div_ceil(CORES).clamp(1, all);
            on += own;
            request.core_limit.ask(g, own, reason);
            request.frequency_limit.ask(g, self.topology.frequencies[frequency], reason);
        }
        if time < TIMES - 1 {
            let share = (time + 1) as f64 / TIMES as f64;
            request.cpu_time.ask(0, share * f64::from(on), reason);
            request.cpu_period.ask(0, CPU_PERIOD, reason);
        } else {
            request.cpu_time.release(0);
            request.cpu_period.release(0);
        }
        for drive in 0..self.topology.drives.len() {
            for column in [&mut request.read_rate, &mut request.write_rate] {
                match RATES - 1 - rate {
                    0 => column.release(drive),
                    steps => column.ask(drive, self.rate * RATE_STEP.powi(steps as i32), reason),
                }
            }
        }
    }
}

/// What a run is worth; of two the first part that differs decides, and less is better.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Cost {
    /// Share of the budget by which it is exceeded.
    over: f64,
    /// What is not served of the usual load, in steps of [`SAME`].
    unserved: f64,
    p99: u64,
}

impl Cost {
    fn new(run: &Outcome, usual: &Outcome, budget: Watts) -> Self {
        let rate = |run: &Outcome| run.bytes as f64 / run.span.seconds().max(1e-9);
        let mean = run.energy.total() / run.span;
        let over = (mean / budget - 1.0).max(run.peak / (budget * PEAK) - 1.0).max(0.0);
        let unserved = ((1.0 - rate(run) / rate(usual).max(1e-9)) / SAME).round();
        Self { over, unserved, p99: run.latency.value_at_quantile(0.99) }
    }
}

/// The best of these policies within `budget` that was found for the load of which `usual` is a run
/// without one: the best constant setting, then better ones for parts of the time. `simulate` runs
/// one on that load.
///
/// # Errors
/// Those of `simulate`.
pub fn search<E>(
    topology: &Topology,
    budget: Watts,
    usual: &Outcome,
    mut simulate: impl FnMut(ClairvoyantBudget) -> Result<Outcome, E>,
) -> Result<ClairvoyantBudget, E> {
    let policy = |plan| ClairvoyantBudget::new(topology, usual, plan);
    let mut cost = |plan| simulate(policy(plan)).map(|run| Cost::new(&run, usual, budget));
    let steps = [usize::from(CORES), topology.frequencies.len(), TIMES, RATES];
    let of = |cores, frequency, time| [[cores, frequency, time, RATES - 1]; SLOTS];
    let mut best = of(0, 0, 0);
    let mut least = cost(best)?;
    let whole = (0..steps[0]).flat_map(|cores| (0..steps[1]).map(move |f| (cores, f, TIMES - 1)));
    let timed = (0..2).flat_map(|cores| (1..TIMES - 1).step_by(2).map(move |t| (cores, 0, t)));
    for plan in whole.chain(timed).map(|(cores, frequency, time)| of(cores, frequency, time)) {
        let found = cost(plan)?;
        if found < least {
            (best, least) = (plan, found);
        }
    }
    // One step of one of the four, or one up and another down.
    let by = |up: Option<usize>, down: Option<usize>| {
        move |mut setting: Setting| {
            up.into_iter().for_each(|at| setting[at] = (setting[at] + 1).min(steps[at] - 1));
            down.into_iter().for_each(|at| setting[at] = setting[at].saturating_sub(1));
            setting
        }
    };
    let pairs = (0..4).flat_map(|up| (0..4).map(move |down| (up, down)));
    let moves: Vec<_> = pairs
        .map(|(up, down)| if up == down { (Some(up), None) } else { (Some(up), Some(down)) })
        .chain((0..4).map(|down| (None, Some(down))))
        .map(|(up, down)| by(up, down))
        .collect();
    let moves: Vec<&dyn Fn(Setting) -> Setting> = moves.iter().map(|by| by as _).collect();
    Ok(policy(descend((best, least), &moves, cost)?))
}

#[cfg(test)]
mod tests {
    use ebb_policy::units::Joules;
    use hdrhistogram::Histogram;

    use super::*;
    use crate::Profile;

    /// A run of 400 s that draws and serves by the sum of its steps.
    fn run(plan: Option<&ClairvoyantBudget>) -> Outcome {
        let mut run = Outcome::empty(Histogram::new(3).unwrap(), 0);
        (run.end, run.span) = (Nanos::from_secs(400), Nanos::from_secs(400));
        let all = [[7, 6, TIMES - 1, RATES - 1]; SLOTS];
        for [cores, frequency, time, rate] in plan.map_or(all, |plan| plan.plan) {
            // The load of each second quarter is small.
            run.bytes += 100 * (cores + frequency + time + rate) as u64;
            let watts = 100.0 + 10.0 * cores as f64 + frequency as f64 + time as f64;
            run.energy.cpu += Joules(100.0 * (watts + rate as f64));
            run.peak = run.peak.max(Watts(watts + rate as f64));
        }
        run
    }

    #[test]
    fn within_the_budget_what_serves_most_for_its_watts_is_found() {
        let topology = Profile::load("pass-10").unwrap().topology();
        let usual = run(None);
        let budget = Watts(180.0);
        let simulate = |plan: ClairvoyantBudget| Ok::<_, ()>(run(Some(&plan)));
        let mut found = search(&topology, budget, &usual, simulate).unwrap();
        let best = run(Some(&found));
        assert!(best.energy.total() / best.span <= budget, "{found:?}");
        // Cores are dear here: they are given up first.
        assert!(best.bytes as f64 > 0.85 * usual.bytes as f64, "{found:?}");
        let mut request = Request::new(&topology);
        found.step(&Signals::new(&topology), &mut request);
        assert!(request.core_limit.get(0).unwrap() < 8);
    }
}
