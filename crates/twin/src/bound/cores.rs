//! Cores and frequency of a policy that knows the future.

use ebb_policy::cpu::DRIVES;
use ebb_policy::ssd::Apst;
use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{Policy, Request, Signals, Topology};

use crate::outcome::{Observer, Outcome, Sample};

/// A utilisation at which every core that does anything at all is on.
const LEAST: f64 = 1e-6;
/// Steps of the search for a utilisation: it is then known within 1.5 %.
const STEPS: u32 = 10;

/// Useful work in cores of each group in each control period of a run at full resources.
#[derive(Debug, Clone, Default)]
pub struct Worked(Vec<Vec<f64>>);

impl Observer for Worked {
    fn sample(&mut self, sample: &Sample<'_>) {
        let groups = sample.cycled.signals.groups.iter();
        let work = |u: Option<f64>, active: Option<u16>| Some(u? * f64::from(active?));
        let work = groups.map(|group| work(group.utilisation, group.active).unwrap_or(0.0));
        self.0.push(work.collect());
    }
}

/// In each control period so many cores of each group that the most work of this period and its
/// neighbours keeps them busy to one utilisation, all at one frequency. Both are the same
/// throughout, the highest utilisation and then the lowest frequency with which a run keeps the
/// tolerated mean latency; [`search`] tries them on the load itself.
///
/// A true optimum would choose both anew for each period and group. This is the best in hindsight
/// of two constants on a known load: what a causal policy gets when it needs neither to learn the
/// load nor to keep a reserve for what may come.
#[derive(Debug, Clone)]
pub struct ClairvoyantCores {
    /// Active cores by period and group.
    plan: Vec<Vec<u16>>,
    frequency: Hertz,
    idle_wake: Nanos,
    io_groups: Vec<usize>,
    drives: usize,
    period: usize,
}

impl ClairvoyantCores {
    fn new(
        topology: &Topology,
        worked: &Worked,
        utilisation: f64,
        frequency: Hertz,
        idle_wake: Nanos,
    ) -> Self {
        let speed = frequency / topology.max_frequency();
        let most = |t: usize, g: usize| {
            let near = worked.0.iter().skip(t.saturating_sub(1)).take(if t == 0 { 2 } else { 3 });
            near.map(|work| work[g]).fold(0.0, f64::max)
        };
        let cores = |t: usize, g: usize| {
            let group = &topology.groups[g];
            let wanted = (most(t, g) / (utilisation * speed)).ceil() as u16;
            wanted.clamp(group.min_cores.max(1).min(group.cores), group.cores)
        };
        let plan = |t| (0..topology.groups.len()).map(|g| cores(t, g)).collect();
        Self {
            plan: (0..worked.0.len()).map(plan).collect(),
            frequency,
            idle_wake,
            io_groups: topology.io_groups().collect(),
            drives: topology.drives.len(),
            period: 0,
        }
    }
}

impl Policy for ClairvoyantCores {
    fn name(&self) -> &'static str {
        "clairvoyant-cores"
    }

    fn step(&mut self, _signals: &Signals, request: &mut Request) {
        let reason = "clairvoyant-cores:plan";
        let Some(cores) = self.plan.get(self.period).or(self.plan.last()) else { return };
        for g in &self.io_groups {
            request.active_cores.ask(*g, cores[*g], reason);
            request.frequency.ask(*g, self.frequency, reason);
        }
        (0..self.drives).for_each(|d| request.idle_wake.ask(d, self.idle_wake, reason));
        self.period += 1;
    }
}

/// The best of these policies for the load that `native` and `worked` are of: `simulate` runs one
/// of them on it. Drives enter the idle states that `pacer-plus` lets them.
///
/// # Errors
/// Those of `simulate`.
pub fn search<E>(
    topology: &Topology,
    plf: f64,
    (native, worked): (&Outcome, &Worked),
    mut simulate: impl FnMut(ClairvoyantCores) -> Result<Outcome, E>,
) -> Result<ClairvoyantCores, E> {
    let limit = native.mean_latency() * (1.0 + plf);
    let idle_wake = Apst::allowed(DRIVES * plf, native.mean_latency());
    let policy = |u, f| ClairvoyantCores::new(topology, worked, u, f, idle_wake);
    let mut keeps = |u, f| simulate(policy(u, f)).map(|outcome| outcome.mean_latency() <= limit);
    let highest = topology.max_frequency();
    let (mut utilisation, mut broken) = (LEAST, 1.0);
    for _ in 0..STEPS {
        let middle = f64::sqrt(utilisation * broken);
        *(if keeps(middle, highest)? { &mut utilisation } else { &mut broken }) = middle;
    }
    let frequencies = &topology.frequencies;
    let (mut low, mut high) = (0, frequencies.len() - 1);
    while low < high {
        let middle = (low + high) / 2;
        if keeps(utilisation, frequencies[middle])? { high = middle } else { low = middle + 1 }
    }
    Ok(policy(utilisation, frequencies[high]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    /// Bunches that no mean tells of: a thousandth of a core's work, and latency asks for many.
    #[test]
    fn as_many_cores_are_kept_as_latency_asks_for() {
        let topology = Profile::load("dorado-6000").unwrap().topology();
        let run = |cores: u16| {
            let mut run = Outcome::empty(hdrhistogram::Histogram::new(3).unwrap(), 0);
            (run.requests, run.latency_sum) = (1, 1000 + 10_000 / u128::from(cores));
            run
        };
        let worked = Worked(vec![vec![1e-3; 3]; 4]);
        let highest = topology.max_frequency();
        let simulate = |policy: ClairvoyantCores| {
            let slow = policy.frequency < highest;
            Ok::<_, ()>(run(if slow { 1 } else { policy.plan[0][0] }))
        };
        let native = run(topology.groups[0].cores);
        let found = search(&topology, 0.2, (&native, &worked), simulate).unwrap();
        assert!((22..=24).contains(&found.plan[0][0]), "{:?}", found.plan[0]);
    }

    #[test]
    fn cores_are_there_for_this_period_and_its_neighbours() {
        let topology = Profile::load("dorado-6000").unwrap().topology();
        let worked = Worked([1.0, 1.0, 8.0, 1.0, 1.0].map(|w| vec![w; 3]).to_vec());
        let highest = topology.max_frequency();
        let policy = ClairvoyantCores::new(&topology, &worked, 0.5, highest, Nanos::ZERO);
        let group = |g: usize| policy.plan.iter().map(|cores| cores[g]).collect::<Vec<_>>();
        assert_eq!(group(0), [4, 16, 16, 16, 4], "4 are the fewest");
        assert_eq!(group(1), [2, 16, 16, 16, 2]);
        let half = ClairvoyantCores::new(&topology, &worked, 0.5, highest * 0.5, Nanos::ZERO);
        assert_eq!(half.plan[2], [32, 16, 32]);
    }
}
