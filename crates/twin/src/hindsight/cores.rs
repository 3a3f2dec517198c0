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

/// What a plan has to keep, as verdicts judge it.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    /// Tolerated rise of the mean latency.
    pub plf: f64,
    /// Share of the windows in which the mean may rise by more.
    pub above: f64,
}

/// The plan that drew least of those tried that keep the promise, for the load that `native` and
/// `worked` are of: `simulate` runs one on it. Tried are, at each frequency and each idle state of
/// the drives, cores that follow the work of each period and cores that stay, by utilisation or as
/// a share.
///
/// It is the best that is known, not the best that there is: that would choose anew in each period
/// and group.
///
/// # Errors
/// Those of `simulate`.
pub fn search<E>(
    topology: &Topology,
    promise: Promise,
    (native, worked): (&Outcome, &Worked),
    simulate: impl FnMut(ClairvoyantCores) -> Result<Outcome, E>,
) -> Result<ClairvoyantCores, E> {
    let plan = |by, step, f, wake| ClairvoyantCores::new(topology, worked, (by, step), f, wake);
    let all = plan(By::Share, 0, topology.max_frequency(), None);
    let mut search = Search { native, promise, best: (native.energy.total(), all), simulate };
    let wakes = topology.drives.iter().flat_map(|drive| &drive.idle_wakes);
    let mut wakes: Vec<_> = wakes.map(|wake| Some(*wake)).chain([None]).collect();
    wakes.sort_unstable();
    wakes.dedup();
    for wake in wakes.iter().rev() {
        for frequency in &topology.frequencies {
            // Where no number of cores keeps it, none that changes would.
            if search.scan(|step| plan(By::Share, step, *frequency, *wake))? {
                search.scan(|step| plan(By::Peak, step, *frequency, *wake))?;
                search.scan(|step| plan(By::Work, step, *frequency, *wake))?;
            }
        }
    }
    Ok(search.best.1)
}

/// How a plan did.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tried {
    Kept,
    /// It broke the promise by so much.
    Broke(f64),
    /// It did as well, and drew no less than the best plan: nor would one with more capacity.
    BrokeAndDear,
}

/// What was found so far.
struct Search<'a, F> {
    native: &'a Outcome,
    promise: Promise,
    best: (Joules, ClairvoyantCores),
    simulate: F,
}

impl<E, F: FnMut(ClairvoyantCores) -> Result<Outcome, E>> Search<'_, F> {
    fn run(&mut self, plan: ClairvoyantCores) -> Result<Tried, E> {
        let outcome = (self.simulate)(plan.clone())?;
        let (energy, factor) = (outcome.energy.total(), 1.0 + self.promise.plf);
        let excess = outcome.mean_latency() / (self.native.mean_latency() * factor) - 1.0;
        let above = outcome.windows.above(&self.native.windows, factor);
        let above = above.map_or(0.0, |above| above.share - self.promise.above);
        let broken = excess.max(0.0) + above.max(0.0);
        let cheap = energy < self.best.0;
        Ok(match (broken > 0.0, cheap) {
            (false, _) => {
                if cheap {
                    self.best = (energy, plan);
                }
                Tried::Kept
            }
            (true, true) => Tried::Broke(broken),
            (true, false) => Tried::BrokeAndDear,
        })
    }

    /// Looks for the least capacity that keeps the promise; whether any does, and is not dear. Less
    /// capacity draws less, but latency need not rise as it falls: cores with more work sleep less
    /// deeply, and too few queue. So twice the capacity is tried again and again, from the least.
    fn scan(&mut self, plan: impl Fn(u32) -> ClairvoyantCores) -> Result<bool, E> {
        let steps = steps(&plan);
        let mut broke: Vec<f64> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let tried = self.run(plan(*step))?;
            match tried {
                Tried::Broke(by) => broke.push(by),
                _ if at == 0 => return Ok(tried == Tried::Kept),
                Tried::Kept => return self.between(&plan, true, [*step, steps[at - 1]]),
                Tried::BrokeAndDear => {
                    if self.between(&plan, false, [*step, steps[at - 1]])? {
                        return Ok(true);
                    }
                    break;
                }
            }
        }
        let nearest = (0..broke.len()).min_by(|a, b| broke[*a].total_cmp(&broke[*b]));
        match nearest {
            Some(at) if at > 0 && at + 1 < broke.len() => {
                self.around(&plan, broke[at], [steps[at + 1], steps[at], steps[at - 1]])
            }
            _ => Ok(false),
        }
    }

    /// Looks on both sides of a step that comes nearer to the promise than its neighbours with
    /// `more` capacity and with `less` do.
    fn around(
        &mut self,
        plan: &impl Fn(u32) -> ClairvoyantCores,
        mut by: f64,
        [mut more, mut near, mut less]: [u32; 3],
    ) -> Result<bool, E> {
        while less - more > 2 {
            let halves = [u32::midpoint(more, near), u32::midpoint(near, less)];
            let mut found = [f64::INFINITY; 2];
            for (half, found) in halves.into_iter().zip(&mut found) {
                let tried = plan(half);
                if [more, near, less].iter().any(|step| tried == plan(*step)) {
                    continue;
                }
                match self.run(tried)? {
                    Tried::Kept => return self.between(plan, true, [half, less]),
                    Tried::Broke(by) => *found = by,
                    Tried::BrokeAndDear => {}
                }
            }
            (more, near, less) = match found {
                [other, own] if own < by && own <= other => (near, halves[1], less),
                [own, _] if own < by => (more, halves[0], near),
                _ => (halves[0], near, halves[1]),
            };
            by = by.min(found[0]).min(found[1]);
        }
        Ok(false)
    }

    /// Looks for the least capacity that keeps the promise between a step with `more`, that does
    /// or is dear, and one with `less` that does not.
    fn between(
        &mut self,
        plan: &impl Fn(u32) -> ClairvoyantCores,
        mut kept: bool,
        [mut more, mut less]: [u32; 2],
    ) -> Result<bool, E> {
        while less - more > 1 {
            let middle = u32::midpoint(more, less);
            let tried = plan(middle);
            if tried == plan(more) {
                more = middle;
            } else if tried == plan(less) {
                less = middle;
            } else {
                match self.run(tried)? {
                    Tried::Broke(_) => less = middle,
                    Tried::BrokeAndDear if kept => break,
                    tried => (kept, more) = (tried == Tried::Kept, middle),
                }
            }
        }
        Ok(kept)
    }
}

/// Steps whose plans have about twice the capacity of the one before, from the least to all.
fn steps(plan: &impl Fn(u32) -> ClairvoyantCores) -> Vec<u32> {
    let capacity = |step| -> u64 { plan(step).cores.iter().flatten().map(|n| u64::from(*n)).sum() };
    let (mut steps, all) = (vec![STEPS], capacity(0));
    while let Some(last) = steps.last().copied().filter(|last| capacity(*last) < all) {
        let (twice, mut more, mut less) = (2 * capacity(last), 0, last);
        // Capacity falls from step to step.
        while less - more > 1 {
            let middle = u32::midpoint(more, less);
            if capacity(middle) >= twice { more = middle } else { less = middle }
        }
        steps.push(more);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::windows::{WINDOW, Windows};

    const PROMISE: Promise = Promise { plf: 0.2, above: 0.05 };

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
        let found = search(&topology, PROMISE, (&native, &worked), simulate).unwrap();
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

    /// Of many random costs none has a constant that does better: latency rises as capacity falls,
    /// or first falls as cores that have more to do sleep less deeply.
    #[test]
    fn no_constant_does_better() {
        let topology = Profile::load("pass-10").unwrap().topology();
        let (highest, all) = (topology.max_frequency(), topology.groups[0].cores);
        let worked = Worked(vec![vec![0.7; topology.groups.len()]; 3]);
        for seed in 1..80_u32 {
            let any = |n: u32| {
                f64::from((seed * n).wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24)
            };
            let (queueing, service, dynamic) = (5.0 * any(3), 2.0 * any(5), 9.0 * any(7));
            let (waking, plf) = (f64::from(seed % 2) * 9.0 * any(11), 0.2 * any(13));
            let cost = |cores: u16, f: Hertz| {
                let (speed, cores) = (f / highest, f64::from(cores));
                let wait = queueing / (cores * speed) + waking * cores / f64::from(all);
                let latency = 1e6 * (1.0 + service / speed + wait);
                (latency, cores * (1.0 + dynamic * speed.powi(3)))
            };
            let native = run(cost(all, highest));
            let limit = native.mean_latency() * (1.0 + plf);
            let simulate =
                |plan: ClairvoyantCores| Ok::<_, ()>(run(cost(plan.cores[0][0], plan.frequency)));
            let promise = Promise { plf, ..PROMISE };
            let found = search(&topology, promise, (&native, &worked), simulate).unwrap();
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

    /// A plan that is slow in one window of ten keeps the mean, and not the promise.
    #[test]
    fn what_is_kept_in_the_mean_alone_is_not_kept() {
        let topology = Profile::load("pass-10").unwrap().topology();
        let all = topology.groups[0].cores;
        let worked = Worked(vec![vec![0.1; topology.groups.len()]; 3]);
        let simulate = |cores: u16| {
            let mut outcome = run((1000.0, f64::from(cores)));
            outcome.windows = Windows::default();
            for at in 0..1000 {
                let slow = cores < all / 2 && at < 100;
                outcome.windows.add(at * WINDOW.0 / 100, if slow { 1500 } else { 1000 });
            }
            outcome
        };
        let native = simulate(all);
        let found = |above| {
            let promise = Promise { above, ..PROMISE };
            let simulate = |plan: ClairvoyantCores| Ok::<_, ()>(simulate(plan.cores[0][0]));
            search(&topology, promise, (&native, &worked), simulate).unwrap().cores[0][0]
        };
        assert_eq!((found(0.05), found(0.15)), (all / 2, 1));
    }
}
