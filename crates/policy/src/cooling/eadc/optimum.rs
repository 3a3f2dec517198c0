//! The optimal operational point (§VI-A, Fig. 8), found while running.
//!
//! Cool silicon leaks little and needs fast fans; hot silicon leaks much and needs slow ones. Fan
//! power can be measured. Leakage cannot, but what follows from it can: power follows activity
//! within a second, and temperature within a minute. So of the power of the processors,
//!
//! ```text
//! P_cpu = sigma A + P_idle(T)        sigma from changes within a period, where T stands still
//! J(T)  = P_cpu - sigma (A - A_ref) + P_fan
//! ```
//!
//! `J` is the cumulative curve of Fig. 8 but for a constant. Its points are measured one by one:
//! the target temperature is held until nothing moves, `J` is averaged, and a pattern search over
//! a grid of 2 K goes on from the best point, with strides of 8, 4 and 2 K. Nothing is assumed
//! about the shape of the leakage or of the fans' power but that the sum has one minimum. When
//! the load changes the curve is another one and the search starts again where it stands: "the
//! optimal operational point [...] dynamically changes based on workload".
//!
//! The search is not run while the fan cap or throttling is what decides.

use crate::cooling::estimate::Estimate;
use crate::cooling::{QUANTUM, SET_POINT, weight};
use crate::topology::Topology;
use crate::{CoreRole, Signals};

/// Width of the grid, in kelvin: two quanta.
const STEP: f64 = 2.0 * QUANTUM;
/// Points of the grid; the last is the set point and the first is cool enough for any server.
const POINTS: usize = 21;
/// Strides of the pattern search, in steps.
const STRIDES: [usize; 3] = [4, 2, 1];
/// How long the target must have been held before and while `J` is averaged, in seconds: the
/// time constant of a heat sink, within which what is left of a transient is a third.
const SETTLE: f64 = 60.0;
const AVERAGE: f64 = 20.0;
/// Distance at which a target counts as reached, in kelvin: the loop rests anywhere within a
/// quantum and a half of it, and comes closer only slowly.
const REACHED: f64 = 2.5;
/// How long a target may be out of reach before the search turns away from it, in seconds.
const UNREACHED: f64 = 300.0;
/// How long a found optimum is trusted before its neighbours are measured again, in seconds.
const TRUSTED: f64 = 600.0;
/// Time constants in seconds: of `sigma`; of the activity that says whether the load changed.
const SIGMA: f64 = 300.0;
const ACTIVITY: f64 = 60.0;
/// Relative change of the activity that makes another curve.
const CHANGED: f64 = 0.10;

/// The search for the best temperature of the hottest socket.
#[derive(Debug, Clone)]
pub struct Optimum {
    /// Groups whose activity counts, and whether the jobs' does in addition.
    jobs: bool,
    /// `J` by grid point, W.
    curve: [Option<f64>; POINTS],
    /// Where the search is, and the ends that can be reached.
    at: usize,
    lowest: usize,
    highest: usize,
    /// Power and activity one period ago, and the sums for `sigma`.
    before: Option<(f64, f64)>,
    products: (f64, f64),
    /// Slow mean of the activity, and the one that the curve belongs to.
    activity: f64,
    reference: Option<f64>,
    /// Seconds since the target was set, for which it has been held, and since the search ended.
    tried: f64,
    held: f64,
    found: f64,
    /// Sum and number of values of `J` being averaged.
    sum: (f64, f64),
}

/// The temperature at a grid point.
fn at(point: usize) -> f64 {
    SET_POINT.0 - STEP * (POINTS - 1 - point) as f64
}

impl Optimum {
    /// Starts at the set point.
    pub fn new(topology: &Topology) -> Self {
        let compute = topology.groups.iter().any(|group| group.role == CoreRole::Compute);
        Self {
            jobs: !compute,
            curve: [None; POINTS],
            at: POINTS - 1,
            lowest: 0,
            highest: POINTS - 1,
            before: None,
            products: (0.0, 0.0),
            activity: 0.0,
            reference: None,
            tried: 0.0,
            held: 0.0,
            found: 0.0,
            sum: (0.0, 0.0),
        }
    }

    /// The temperature to hold: the grid point under test while searching, else the best known.
    pub fn target(&self, searching: bool) -> f64 {
        at(if searching { self.at } else { self.best().unwrap_or(self.at) })
    }

    /// Takes one period. `free` says that the target alone decides the fan speed; the fans are at
    /// `duty` between `low` and full.
    pub fn update(
        &mut self,
        signals: &Signals,
        hottest: Estimate,
        (free, duty, low): (bool, f64, f64),
    ) {
        let dt = signals.period.seconds();
        let (Some(cpu), Some(fans)) = (signals.power.cpu, signals.power.fans) else { return };
        if dt <= 0.0 || !cpu.0.is_finite() || !fans.0.is_finite() {
            return;
        }
        let activity = self.activity(signals);
        self.learn_sigma(cpu.0, activity, dt);
        self.activity += (activity - self.activity) * weight(dt, ACTIVITY);
        self.watch_load(dt);
        if !free || !hottest.sound {
            (self.held, self.tried, self.sum) = (0.0, 0.0, (0.0, 0.0));
            return;
        }
        self.tried += dt;
        let here = (hottest.now.0 - at(self.at)).abs() <= REACHED && hottest.rate == 0.0;
        self.held = if here { self.held + dt } else { 0.0 };
        if !here {
            self.sum = (0.0, 0.0);
            self.give_up(hottest.now.0, duty, low);
        } else if self.held > SETTLE {
            let j = cpu.0 - self.sigma() * (activity - self.reference.unwrap_or(activity)) + fans.0;
            self.sum = (self.sum.0 + j, self.sum.1 + dt);
            if self.sum.1 >= AVERAGE {
                self.measured(self.sum.0 / (self.sum.1 / dt));
            }
        }
    }

    /// Work in cores' worth.
    fn activity(&self, signals: &Signals) -> f64 {
        let groups = signals.groups.iter();
        let cores = groups.map(|g| g.utilisation.unwrap_or(0.0) * f64::from(g.active)).sum::<f64>();
        let jobs = signals.jobs.iter().filter(|job| job.present);
        cores + if self.jobs { jobs.map(|job| job.cpu).sum::<f64>() } else { 0.0 }
    }

    /// `sigma`, W per core's worth of work.
    fn sigma(&self) -> f64 {
        if self.products.1 > 1e-3 { (self.products.0 / self.products.1).max(0.0) } else { 0.0 }
    }

    fn learn_sigma(&mut self, power: f64, activity: f64, dt: f64) {
        if let Some((power0, activity0)) = self.before.replace((power, activity)) {
            let (dp, da) = (power - power0, activity - activity0);
            let keep = 1.0 - weight(dt, SIGMA);
            self.products = (self.products.0 * keep + dp * da, self.products.1 * keep + da * da);
        }
    }

    /// Starts anew when the activity has changed.
    fn watch_load(&mut self, dt: f64) {
        let now = self.activity;
        let reference = *self.reference.get_or_insert(now);
        if (now - reference).abs() > CHANGED * now.max(reference).max(0.1) {
            self.reference = Some(now);
            self.curve = [None; POINTS];
            (self.lowest, self.highest) = (0, POINTS - 1);
            (self.tried, self.held, self.found, self.sum) = (0.0, 0.0, 0.0, (0.0, 0.0));
        } else if self.settled() {
            self.found += dt;
            if self.found > TRUSTED {
                self.forget_neighbours();
            }
        }
    }

    /// A target that the fans cannot bring about, at either end of their range, ends the grid.
    fn give_up(&mut self, temperature: f64, duty: f64, low: f64) {
        if self.tried < UNREACHED {
            return;
        }
        let nearest = ((temperature - at(0)) / STEP).round().clamp(0.0, (POINTS - 1) as f64);
        let nearest = nearest as usize;
        if duty <= low + 1e-3 && nearest < self.at {
            self.highest = nearest.max(self.lowest);
        } else if duty >= 1.0 - 1e-3 && nearest > self.at {
            self.lowest = nearest.min(self.highest);
        }
        self.at = self.at.clamp(self.lowest, self.highest);
        (self.tried, self.held) = (0.0, 0.0);
    }

    fn measured(&mut self, j: f64) {
        self.curve[self.at] = Some(j);
        self.at = self.next();
        (self.tried, self.held, self.found, self.sum) = (0.0, 0.0, 0.0, (0.0, 0.0));
    }

    fn best(&self) -> Option<usize> {
        let known = |point: &usize| self.curve[*point].is_some();
        let j = |point: usize| self.curve[point].unwrap_or(f64::MAX);
        (self.lowest..=self.highest).filter(known).min_by(|a, b| j(*a).total_cmp(&j(*b)))
    }

    /// The next point to measure: an unknown neighbour of the best one, far ones first, unless one
    /// nearer on the same side is already known to be worse; the best one itself when there is
    /// none.
    fn next(&self) -> usize {
        let Some(best) = self.best() else { return self.at };
        let between = |point: usize| point.min(best) + 1..point.max(best);
        STRIDES
            .iter()
            .flat_map(|stride| [best.checked_sub(*stride), Some(best + stride)])
            .flatten()
            .filter(|point| (self.lowest..=self.highest).contains(point))
            .filter(|point| between(*point).all(|nearer| self.curve[nearer].is_none()))
            .find(|point| self.curve[*point].is_none())
            .unwrap_or(best)
    }

    /// Whether every neighbour of the best point is known to be worse.
    pub fn settled(&self) -> bool {
        self.best().is_some_and(|best| self.next() == best && self.at == best)
    }

    fn forget_neighbours(&mut self) {
        let keep = self.best();
        for (point, j) in self.curve.iter_mut().enumerate() {
            if keep.is_some_and(|best| best.abs_diff(point) == 1) {
                *j = None;
            }
        }
        self.at = self.next();
        (self.tried, self.held, self.found) = (0.0, 0.0, 0.0);
    }
}
