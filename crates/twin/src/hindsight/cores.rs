//! The best cores and frequency that were found for a load that is known.

use ebb_policy::units::{Hertz, Joules, Nanos};
use ebb_policy::{Policy, Request, Signals, Topology};

use crate::outcome::{Observer, Outcome, Sample};

/// A utilisation at which every core that does anything at all is on.
const LEAST: f64 = 1e-6;
/// Steps from all of the capacity to the least; the utilisation is then known within 1.4 %.
const STEPS: u32 = 1000;

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

/// What the cores of a group are sized by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// A utilisation, at the most work of each control period and its neighbours.
    Work,
    /// A utilisation, at the most work of any period: constant, unlike shares of the groups.
    Peak,
    /// A share of all cores, the same in all groups and periods.
    Share,
}

/// A plan: the cores of each group in each control period, and one frequency and one longest
/// wake-up of the drives throughout.
#[derive(Debug, Clone, PartialEq)]
pub struct ClairvoyantCores {
    /// Active cores by period and group.
    cores: Vec<Vec<u16>>,
    frequency: Hertz,
    /// `None`: the idle states that the drives were found with.
    idle_wake: Option<Nanos>,
    io_groups: Vec<usize>,
    drives: usize,
    period: usize,
}

impl ClairvoyantCores {
    /// So many of [`STEPS`] away from all of the capacity.
    fn new(
        topology: &Topology,
        worked: &Worked,
        (by, step): (By, u32),
        frequency: Hertz,
        idle_wake: Option<Nanos>,
    ) -> Self {
        let (speed, depth) =
            (frequency / topology.max_frequency(), f64::from(step) / f64::from(STEPS));
        let peaks = peaks(worked, topology.groups.len());
        let wanted = |t: usize, g: usize| {
            let near = worked.0.iter().skip(t.saturating_sub(1)).take(if t == 0 { 2 } else { 3 });
            let work = match by {
                By::Share => return f64::from(topology.groups[g].cores) * (1.0 - depth),
                By::Work => near.map(|work| work[g]).fold(0.0, f64::max),
                By::Peak => peaks[g],
            };
            work / (LEAST.powf(1.0 - depth) * speed)
        };
        let cores = |t: usize, g: usize| {
            let group = &topology.groups[g];
            let least = group.min_cores.max(1).min(group.cores);
            (wanted(t, g).ceil() as u16).clamp(least, group.cores)
        };
        let plan = |t| (0..topology.groups.len()).map(|g| cores(t, g)).collect();
        Self {
            cores: (0..worked.0.len()).map(plan).collect(),
            frequency,
            idle_wake,
            io_groups: topology.io_groups().collect(),
            drives: topology.drives.len(),
            period: 0,
        }
    }
}

/// The most work of each group.
fn peaks(worked: &Worked, groups: usize) -> Vec<f64> {
    let most = |g: usize| worked.0.iter().map(|work| work[g]).fold(0.0, f64::max);
    (0..groups).map(most).collect()
}

impl Policy for ClairvoyantCores {
    fn name(&self) -> &'static str {
        "clairvoyant-cores"
    }

    fn step(&mut self, _signals: &Signals, request: &mut Request) {
        let reason = "clairvoyant-cores:plan";
        let Some(cores) = self.cores.get(self.period).or(self.cores.last()) else { return };
        for g in &self.io_groups {
            request.active_cores.ask(*g, cores[*g], reason);
            request.frequency.ask(*g, self.frequency, reason);
        }
        if let Some(wake) = self.idle_wake {
            (0..self.drives).for_each(|drive| request.idle_wake.ask(drive, wake, reason));
        }
        self.period += 1;
    }
}

/// The plan that drew least of those tried that keep the tolerated mean latency, for the load that
/// `native` and `worked` are of: `simulate` runs one on it. Tried are, at each frequency and each
/// idle state of the drives, cores that follow the work of each period and cores that stay, by
/// utilisation or as a share. So no constant setting of all groups does better.
///
/// It is the best that is known, not the best that there is: that would choose anew in each period
/// and group.
///
/// # Errors
/// Those of `simulate`.
pub fn search<E>(
    topology: &Topology,
    plf: f64,
    (native, worked): (&Outcome, &Worked),
    simulate: impl FnMut(ClairvoyantCores) -> Result<Outcome, E>,
) -> Result<ClairvoyantCores, E> {
    let all = |f, wake| ClairvoyantCores::new(topology, worked, (By::Share, 0), f, wake);
    let highest = topology.max_frequency();
    let limit = native.mean_latency() * (1.0 + plf);
    let best = (native.energy.total(), all(highest, None));
    let mut search = Search { limit, best, simulate };
    let wakes = topology.drives.iter().flat_map(|drive| &drive.idle_wakes);
    let mut wakes: Vec<_> = wakes.map(|wake| Some(*wake)).chain([None]).collect();
    wakes.sort_unstable();
    wakes.dedup();
    for wake in wakes.into_iter().rev() {
        for frequency in topology.frequencies.iter().rev() {
            if search.run(&all(*frequency, wake))? != Kept::Yes {
                break;
            }
            for by in [By::Work, By::Peak, By::Share] {
                search.descend(|step| {
                    ClairvoyantCores::new(topology, worked, (by, step), *frequency, wake)
                })?;
            }
        }
    }
    Ok(search.best.1)
}

/// Whether a plan keeps the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
    /// Nor would one with more capacity be any better.
    NoAndDear,
}

/// What was found so far.
struct Search<F> {
    limit: f64,
    best: (Joules, ClairvoyantCores),
    simulate: F,
}

impl<E, F: FnMut(ClairvoyantCores) -> Result<Outcome, E>> Search<F> {
    fn run(&mut self, plan: &ClairvoyantCores) -> Result<Kept, E> {
        let outcome = (self.simulate)(plan.clone())?;
        let energy = outcome.energy.total();
        if outcome.mean_latency() > self.limit {
            return Ok(if energy < self.best.0 { Kept::No } else { Kept::NoAndDear });
        }
        if energy < self.best.0 {
            self.best = (energy, plan.clone());
        }
        Ok(Kept::Yes)
    }

    /// Looks for the least capacity that keeps the limit; latency rises as capacity falls.
    fn descend(&mut self, plan: impl Fn(u32) -> ClairvoyantCores) -> Result<(), E> {
        let (mut kept, mut broken) = ((0, plan(0)), (STEPS, plan(STEPS)));
        if self.run(&broken.1)? == Kept::Yes {
            return Ok(());
        }
        while kept.1 != broken.1 && broken.0 - kept.0 > 1 {
            let middle = (kept.0 + broken.0) / 2;
            let tried = (middle, plan(middle));
            let keeps = match tried.1 {
                ref same if *same == kept.1 => Kept::Yes,
                ref same if *same == broken.1 => Kept::No,
                ref other => self.run(other)?,
            };
            match keeps {
                Kept::Yes => kept = tried,
                Kept::No => broken = tried,
                Kept::NoAndDear => break,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    /// A run that takes and draws what `cost` says of its plan, in ns and J.
    fn run((latency, joules): (f64, f64)) -> Outcome {
        let mut run = Outcome::empty(hdrhistogram::Histogram::new(3).unwrap(), 0);
        run.latency_sum = latency as u128;
        run.latency.record(latency as u64).unwrap();
        run.energy.cpu = Joules(joules);
        run
    }

    /// Bunches that no mean tells of: a thousandth of a core's work, and latency asks for many.
    #[test]
    fn as_many_cores_are_kept_as_latency_asks_for() {
        let topology = Profile::load("dorado-6000").unwrap().topology();
        let highest = topology.max_frequency();
        let cost = |cores: u16, f: Hertz| {
            let slow = f64::from(u8::from(f < highest)) * 1e6;
            (1000.0 + 10_000.0 / f64::from(cores) + slow, f64::from(cores))
        };
        let worked = Worked(vec![vec![1e-3; 3]; 4]);
        let native = run(cost(topology.groups[0].cores, highest));
        let simulate =
            |plan: ClairvoyantCores| Ok::<_, ()>(run(cost(plan.cores[0][0], plan.frequency)));
        let found = search(&topology, 0.2, (&native, &worked), simulate).unwrap();
        assert_eq!(found.cores[0][0], 23, "{:?}", found.cores[0]);
    }

    #[test]
    fn cores_are_there_for_this_period_and_its_neighbours() {
        let topology = Profile::load("dorado-6000").unwrap().topology();
        let worked = Worked([1.0, 1.0, 8.0, 1.0, 1.0].map(|w| vec![w; 3]).to_vec());
        let highest = topology.max_frequency();
        // A millionth to this power is a half.
        let half = (STEPS as f64 * (1.0 - 0.5_f64.ln() / LEAST.ln())) as u32;
        let plan = |by, f| ClairvoyantCores::new(&topology, &worked, (by, half), f, None);
        let group = |plan: &ClairvoyantCores, g: usize| {
            plan.cores.iter().map(|cores| cores[g]).collect::<Vec<_>>()
        };
        let following = plan(By::Work, highest);
        assert_eq!(group(&following, 0), [4, 17, 17, 17, 4], "4 are the fewest");
        assert_eq!(group(&following, 1), [3, 16, 16, 16, 3]);
        assert_eq!(group(&plan(By::Peak, highest), 0), [17; 5]);
    }

    /// Of many random costs that rise with a fall of capacity none has a constant that does better.
    #[test]
    fn no_constant_does_better() {
        let topology = Profile::load("pass-10").unwrap().topology();
        let (highest, all) = (topology.max_frequency(), topology.groups[0].cores);
        let worked = Worked(vec![vec![0.7; topology.groups.len()]; 3]);
        for seed in 1..40_u32 {
            let any = |n: u32| {
                f64::from((seed * n).wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24)
            };
            let (queueing, service, dynamic) = (5.0 * any(3), 2.0 * any(5), 9.0 * any(7));
            let cost = |cores: u16, f: Hertz| {
                let (speed, cores) = (f / highest, f64::from(cores));
                let latency = 1e6 * (1.0 + service / speed + queueing / (cores * speed));
                (latency, cores * (1.0 + dynamic * speed.powi(3)))
            };
            let native = run(cost(all, highest));
            let limit = native.mean_latency() * 1.2;
            let simulate =
                |plan: ClairvoyantCores| Ok::<_, ()>(run(cost(plan.cores[0][0], plan.frequency)));
            let found = search(&topology, 0.2, (&native, &worked), simulate).unwrap();
            let drawn = cost(found.cores[0][0], found.frequency).1;
            let least = topology.groups[0].min_cores.max(1);
            for (f, cores) in
                topology.frequencies.iter().flat_map(|f| (least..=all).map(move |n| (*f, n)))
            {
                let (latency, watts) = cost(cores, f);
                assert!(latency > limit || watts >= drawn, "{seed}: {cores} at {f:?}");
            }
        }
    }
}
