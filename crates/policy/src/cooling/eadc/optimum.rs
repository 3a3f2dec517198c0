//! The optimal operational point (§VI-A, Fig. 8), found while running.
//!
//! Cool silicon leaks little and needs fast fans; hot silicon leaks much and needs slow ones. At
//! each temperature of a grid the sum of both is computed, and the least one is the target:
//!
//! ```text
//! P_cpu    = sigma A + I(T)                   idle power and leakage
//! J(T)     = I(T) + P_fan(duty(T))            Fig. 8's cumulative curve but for a constant
//! duty(T)  from  T - T_in = P_cpu(T) (R_0 + R_1 r(duty))             r of `air.rs`
//! ```
//!
//! What the paper measures on a bench is learned from what happens by itself:
//!
//! * **sigma**: power follows activity `A` at once and temperature slowly, so it comes from the
//!   changes from one period to the next.
//! * **I(T)**: `c + l exp(beta T)`, fitted to the means of what was seen at each temperature.
//!   Warming up once is enough. The result hardly depends on `beta` within the range of silicon,
//!   for the fit goes through what was measured around the optimum.
//! * **P_fan**: the cube law (§V-C) through what the fans draw now and their rated power.
//! * **R_0 + R_1 r**: their sum is what it is now, whenever the server has stood still for a while;
//!   the part of convection in it is assumed. An error in that is smaller at every step, for each
//!   target that is reached is a new place to start from.
//!
//! Nothing is held or tried out for the search's sake, and it goes on while the fan cap or
//! throttling decides: "the optimal operational point [...] dynamically changes based on workload".

use crate::Signals;
use crate::sense::air::{blowing, duty_of, resistance};
use crate::sense::estimate::Estimator;
use crate::sense::plausible::is_power;
use crate::sense::thresholds::SET_POINT;
use crate::sense::{LAG, QUANTUM, weight};
use crate::topology::Topology;
use crate::units::{Celsius, Watts};

/// Width of the grid, in kelvin: two quanta.
const STEP: f64 = 2.0 * QUANTUM;
/// Points of the grid; the last is the set point and the first is cool enough for any server.
const POINTS: usize = 21;
/// `beta`, per kelvin: leakage doubles within about 25 K in the servers that we know of.
const BETA: f64 = 0.028;
/// Least distance of the temperatures that say how leakage grows, in points of the grid.
const SPREAD: usize = 3;
/// Share of `R_1 r` in the resistance where the server stands: 0.6 to 0.8 in those that we know of.
/// It only says how much faster the fans must turn for a kelvin; a third more or less moves the
/// optimum by a kelvin or two.
const CONVECTION: f64 = 0.7;
/// How long a server must have stood still before its resistance can be told, in seconds: about
/// half the time constant of a heat sink after the last kelvin moved.
const STILL: f64 = 40.0;
/// What counts as standing still: kelvin, and relative change of air and of activity.
const WITHIN: f64 = 1.5 * QUANTUM;
const STEADY: f64 = 0.10;
/// Time constants in seconds: of `sigma`; of a temperature's mean; of the present state.
const SIGMA: f64 = 300.0;
const MEAN: f64 = 60.0;
const PRESENT: f64 = 10.0;
/// What another temperature must save to become the target: watts, and share of fans and leakage.
const WORTH: (f64, f64) = (0.2, 0.005);

/// A state of the server: air, its resistance, and what goes with them.
#[derive(Debug, Clone, Copy)]
struct State {
    temperature: f64,
    r: f64,
    activity: f64,
    /// `(T - T_in) / P_cpu`, K/W.
    theta: f64,
}

/// The search for the best temperature of the hottest socket.
#[derive(Debug, Clone)]
pub struct Optimum {
    /// The last point of the grid, °C.
    set_point: f64,
    /// Rated power of all fans, W, and their least duty.
    fans: (f64, f64),
    /// Power and activity one period ago, and the sums for `sigma`.
    before: Option<(f64, f64)>,
    products: (f64, f64),
    /// Power and activity as late as the sensors, and their means at each point of the grid: what
    /// is idle power follows from them once `sigma` is known.
    late: Option<(f64, f64)>,
    seen: [Option<(f64, f64)>; POINTS],
    /// The server now, since when it stands still, and where it did so then.
    now: Option<State>,
    still: f64,
    anchor: Option<State>,
    /// Point of the grid that is the target.
    target: usize,
}

impl Optimum {
    /// Starts at the set point.
    pub fn new(topology: &Topology, set_point: Celsius) -> Self {
        let rated = topology.fans.iter().map(|fan| fan.max_power.0).sum();
        Self {
            set_point: set_point.0,
            fans: (rated, topology.min_duty()),
            before: None,
            products: (0.0, 0.0),
            late: None,
            seen: [None; POINTS],
            now: None,
            still: 0.0,
            anchor: None,
            target: POINTS - 1,
        }
    }

    /// The temperature at a grid point.
    fn at(&self, point: usize) -> f64 {
        self.set_point - STEP * (POINTS - 1 - point) as f64
    }

    /// The temperature to hold.
    pub fn target(&self) -> f64 {
        self.at(self.target)
    }

    /// Takes one period, in which the fans were asked for `duty`. What it learns is learned of the
    /// air that they gave.
    pub fn update(&mut self, signals: &Signals, heat: &Estimator, duty: f64) {
        let dt = signals.period.seconds();
        let power = |power: Option<Watts>| power.filter(|power| is_power(*power));
        let sensed = power(signals.power.cpu).zip(power(signals.power.fans));
        let (Some((cpu, fans)), Some(hottest)) = (sensed, heat.hottest()) else { return };
        if dt <= 0.0 || cpu <= Watts(0.0) {
            return;
        }
        let Some(activity) = heat.work(signals) else {
            (self.before, self.still, self.anchor) = (None, 0.0, None);
            return;
        };
        self.learn_sigma(cpu.0, activity, dt);
        if !hottest.sound {
            (self.still, self.anchor) = (0.0, None);
            return;
        }
        self.learn_means((cpu.0, activity), hottest.now.0, dt);
        let rise = hottest.now.0 - heat.inlet();
        let (temperature, r, theta) = (hottest.now.0, resistance(heat.air()), rise / cpu.0);
        self.learn_resistance(State { temperature, r, activity, theta }, dt);
        if self.still >= STILL {
            self.choose((cpu.0, heat.inlet()), (duty, heat.air(), fans.0));
        }
    }

    /// Passes over a period that tells nothing.
    pub fn skip(&mut self) {
        (self.before, self.late, self.now) = (None, None, None);
        (self.still, self.anchor) = (0.0, None);
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

    /// A first-order lag follows a ramp as late as its time constant.
    fn learn_means(&mut self, now: (f64, f64), temperature: f64, dt: f64) {
        let follow = |mean: &mut (f64, f64), to: (f64, f64), time: f64| {
            mean.0 += (to.0 - mean.0) * weight(dt, time);
            mean.1 += (to.1 - mean.1) * weight(dt, time);
        };
        let point = (temperature - self.at(0)) / STEP;
        let late = self.late.get_or_insert(now);
        follow(late, now, LAG.seconds());
        if (-0.5..POINTS as f64 - 0.5).contains(&point) {
            let late = *late;
            follow(self.seen[point.round() as usize].get_or_insert(late), late, MEAN);
        }
    }

    fn learn_resistance(&mut self, state: State, dt: f64) {
        let anchor = *self.anchor.get_or_insert(state);
        let differs = |a: f64, b: f64| (a - b).abs() > STEADY * a.max(b);
        let moved = (state.temperature - anchor.temperature).abs() > WITHIN
            || differs(state.r, anchor.r)
            || differs(state.activity.max(0.1), anchor.activity.max(0.1));
        if moved {
            (self.still, self.anchor, self.now) = (0.0, Some(state), None);
            return;
        }
        self.still += dt;
        if self.still < STILL {
            return;
        }
        let now = self.now.get_or_insert(state);
        now.temperature = state.temperature;
        for (mean, value) in [(&mut now.theta, state.theta), (&mut now.r, state.r)] {
            *mean += (value - *mean) * weight(dt, PRESENT);
        }
    }

    /// `l` of `I(T)`, W, once temperatures far enough apart have been seen.
    fn leakage(&self) -> Option<f64> {
        let sigma = self.sigma();
        let idle =
            |seen: Option<(f64, f64)>| seen.map(|(power, activity)| power - sigma * activity);
        let known = || self.seen.iter().enumerate().filter_map(|(n, s)| Some((n, idle(*s)?)));
        let (first, last) = (known().next()?.0, known().next_back()?.0);
        if last - first < SPREAD {
            return None;
        }
        let count = known().count() as f64;
        let (sx, sy) = known().fold((0.0, 0.0), |s, (n, i)| (s.0 + growth(self.at(n)), s.1 + i));
        let (x0, y0) = (sx / count, sy / count);
        let (xy, xx) = known().fold((0.0, 0.0), |s, (n, i)| {
            let x = growth(self.at(n)) - x0;
            (s.0 + x * (i - y0), s.1 + x * x)
        });
        Some((xy / xx).max(0.0))
    }

    /// The point of the least `J`, with the fans that blow.
    fn choose(&mut self, (cpu, inlet): (f64, f64), (duty, air, fans): (f64, f64, f64)) {
        let (Some(now), Some(l)) = (self.now, self.leakage()) else { return };
        let slope = CONVECTION * now.theta / now.r;
        let leaks = |t: f64| l * growth(t);
        let blowing = blowing(duty, air);
        let duty = air / blowing;
        let cube = (self.fans.0 * blowing - fans).max(0.0) / (1.0 - duty.powi(3)).max(0.05);
        let j = |point: usize| {
            let t = self.at(point);
            let power = cpu + leaks(t) - leaks(now.temperature);
            let r = now.r + ((t - inlet) / power.max(1.0) - now.theta) / slope;
            let wanted = (duty_of(r) / blowing).max(self.fans.1);
            let air = fans + cube * (wanted.powi(3) - duty.powi(3));
            (r >= resistance(blowing)).then_some(leaks(t) + air)
        };
        let known = (0..POINTS).filter_map(|point| Some((point, j(point)?)));
        let Some((best, least)) = known.min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        let worth = WORTH.0.max(WORTH.1 * least);
        if j(self.target).is_none_or(|here| least < here - worth) {
            self.target = best;
        }
    }
}

/// `exp(beta T)`, 1 at EADC's set point.
fn growth(t: f64) -> f64 {
    (BETA * (t - SET_POINT.0)).exp()
}
