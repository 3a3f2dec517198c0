//! How far a die rises over the inlet for the load of its socket and the air: what a reading of
//! it is held against.
//!
//! ```text
//! rise(t) = a load(t) + b sink(t)        sink: load * resistance, soaked up with R C
//! ```
//!
//! `a`, from die to heat sink, and `b`, from heat sink to air, come by least squares from what the
//! sensor says one lag later, held together for as long as the load has not told them apart. It is
//! a second-order model of a server that nobody measured, and so counts [`GENEROUS`] times or less.
//! Sockets are built alike: while its own readings are few, another's model counts if it is warmer.
//!
//! * **Unseen** is what a die has done that its sensor has not shown yet. A reading says what it
//!   was one lag ago; what load and air have been since then is known. So the dead time is bridged
//!   as in Smith's predictor (*Closer control of loops with dead time*, 1957), by the difference of
//!   a model now and the same model one lag ago. It errs on the warm side: all of the lag is taken
//!   to be dead time, and the heat sink to be cold at first.
//! * **Bounds** are the least and the most that load and air can make of a die, and what it can
//!   have lost since it was known: what tells apart heat and a sensor that lies.

use crate::cooling::sensor::Causes;
use crate::cooling::{LAG, weight};

/// `R C` of a heat sink at full fan speed, in seconds: 0.15 K/W and 300 J/K.
const SOAK: f64 = 45.0;
/// Time constant of a die on its heat sink, in seconds.
const DIE: f64 = 2.0;
/// Seconds between two states that are kept, and how many cover the lag and a reading's age.
const STEP: f64 = 1.0;
const KEPT: usize = (LAG.0 / 1_000_000_000) as usize + 1;
/// Time constant of what is learnt, in seconds; a few of the heat sink's.
const LEARN: f64 = 600.0;
/// Sound readings before anything is said, in seconds. A few: the first load step may be the worst.
const SOONEST: f64 = 10.0;
/// Sound readings before what it can be at most is known, in seconds.
const ENOUGH: f64 = 300.0;
/// How far the truth may be from the model: by that factor, twice if it is another socket's, and so
/// many kelvin.
pub const GENEROUS: f64 = 1.5;
const MARGIN: f64 = 10.0;
/// How much `a` and `b` are held together: the weight of their difference, a share of the data's.
const ALIKE: f64 = 0.02;

/// Load of a socket in any unit, over the die's time constant, and what its heat sink holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct State {
    load: f64,
    sink: f64,
}

impl State {
    /// Goes a share of the way to `other`.
    pub fn follow(&mut self, other: Self, share: f64) {
        self.load += (other.load - self.load) * share;
        self.sink += (other.sink - self.sink) * share;
    }
}

/// `a` and `b`, in kelvin per unit; whether they are more than how a heat sink warms up that nobody
/// knew before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Model {
    a: f64,
    b: f64,
    sure: bool,
}

impl Model {
    fn rise(self, State { load, sink }: State) -> f64 {
        self.a * load + self.b * sink
    }

    /// The one that is sure, or else the one that warms a die more.
    pub fn or(self, other: Self) -> Self {
        let rank = |model: Self| (model.sure, model.a + model.b);
        if rank(self) >= rank(other) { self } else { other }
    }
}

/// The model of one socket.
#[derive(Debug, Clone, Default)]
pub struct Rise {
    at: Option<f64>,
    state: State,
    /// States at the last steps, a ring whose oldest is `next`; when the last of them was.
    kept: [State; KEPT],
    next: usize,
    filled: usize,
    kept_at: f64,
    /// Weighted means of products: load with load, load with sink, sink with sink; of the rise with
    /// load and with sink.
    squares: [f64; 3],
    products: [f64; 2],
    /// Seconds of sound readings so far.
    learnt: f64,
    /// What they tell; nothing before there is something to tell it by. What those of another
    /// socket tell.
    model: Model,
    sibling: Model,
    /// The state when the temperature was known last, and the coolest since.
    known: State,
    coolest: State,
}

impl Rise {
    /// Time has come to `now` (seconds) under `causes`; `sibling` is the model of another socket.
    pub fn update(&mut self, now: f64, causes: Causes, sibling: Model) {
        self.sibling = sibling;
        let (load, sink) = (causes.load, causes.load * causes.air);
        let Some(before) = self.at.replace(now) else {
            (self.state, self.kept_at) = (State { load, sink: 0.0 }, now);
            return;
        };
        let dt = (now - before).max(0.0);
        self.state.load += (load - self.state.load) * weight(dt, DIE);
        self.state.sink += (sink - self.state.sink) * weight(dt, SOAK * causes.air);
        if self.between(self.coolest, self.state) < 0.0 {
            self.coolest = self.state;
        }
        let steps = ((now - self.kept_at).max(0.0) / STEP).floor();
        self.kept_at += steps * STEP;
        for _ in 0..KEPT.min(steps as usize) {
            self.kept[self.next] = self.state;
            self.next = (self.next + 1) % KEPT;
            self.filled = (self.filled + 1).min(KEPT);
        }
    }

    /// The state now.
    pub fn now(&self) -> State {
        self.state
    }

    /// The one that a reading of now shows.
    pub fn shown(&self) -> State {
        self.kept[self.next]
    }

    /// A sound sensor says that it was `rise` kelvin over the inlet, `dt` seconds after the last.
    pub fn learn(&mut self, rise: f64, dt: f64) {
        if dt <= 0.0 || self.filled < KEPT {
            return;
        }
        self.learnt += dt;
        let weight = dt / self.learnt.min(LEARN).max(dt);
        let State { load, sink } = self.shown();
        let mix = |mean: &mut f64, product: f64| *mean += (product - *mean) * weight;
        let squares = [load * load, load * sink, sink * sink];
        self.squares.iter_mut().zip(squares).for_each(|(mean, product)| mix(mean, product));
        let products = [load * rise, sink * rise];
        self.products.iter_mut().zip(products).for_each(|(mean, product)| mix(mean, product));
        if self.learnt >= SOONEST {
            self.model = self.solve();
        }
    }

    fn solve(&self) -> Model {
        let [ll, ls, ss] = self.squares;
        let alike = ALIKE * (ll + ss);
        let (ll, ls, ss) = (ll + alike, ls - alike, ss + alike);
        let determinant = ll * ss - ls * ls;
        if determinant <= 0.0 {
            return Model::default();
        }
        let [l, s] = self.products;
        let (a, b) = ((l * ss - s * ls) / determinant, (s * ll - l * ls) / determinant);
        let (a, b) = (a.max(0.0), b.max(0.0));
        // Never sure where nobody tells the load.
        Model { a, b, sure: self.learnt >= ENOUGH && a + b > 0.0 }
    }

    /// The temperature is known at this moment.
    pub fn known(&mut self) {
        (self.known, self.coolest) = (self.state, self.state);
    }

    /// What its own readings tell.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Kelvin by which the die is warmer in one state than in another.
    pub fn between(&self, from: State, to: State) -> f64 {
        let model = if self.model.sure { self.model } else { self.model.or(self.sibling) };
        model.rise(to) - model.rise(from)
    }

    /// Kelvin by which the die may be warmer than a reading of now shows; not below zero.
    pub fn unseen(&self) -> f64 {
        GENEROUS * self.between(self.shown(), self.state).max(0.0)
    }

    /// Most of its rise that a die can have lost since its temperature was known.
    pub fn lost(&self) -> f64 {
        let (coolest, known) = (self.model.rise(self.coolest), self.model.rise(self.known));
        (1.0 - coolest / (GENEROUS * known).max(1e-9)).max(0.0)
    }

    /// A sure model, and how many times it may be more or less.
    fn sure(&self) -> Option<(Model, f64)> {
        let models = [(self.model, GENEROUS), (self.sibling, GENEROUS.powi(2))];
        models.into_iter().find(|(model, _)| model.sure)
    }

    /// The most that the die can rise now, in kelvin; no most before enough is known.
    pub fn most(&self) -> f64 {
        self.sure().map_or(f64::MAX, |(model, times)| model.rise(self.state) * times + MARGIN)
    }

    /// What a reading of now should show, and the least that it can, in kelvin; no least before
    /// enough is known.
    pub fn expected(&self) -> (f64, f64) {
        let Some((model, times)) = self.sure() else { return (0.0, f64::MIN) };
        let (shown, now) = (model.rise(self.shown()), model.rise(self.state));
        (shown, shown.min(now) / times - MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A die of 1.2 and 2.0 K per unit of load and heat sink; its sensor says what was 10 s ago.
    struct Die {
        now: f64,
        period: f64,
        state: State,
        past: Vec<f64>,
        rise: Rise,
    }

    impl Die {
        fn new(period: f64) -> Self {
            let (state, past) = (State::default(), Vec::new());
            Self { now: 0.0, period, state, past, rise: Rise::default() }
        }

        fn truth(&self) -> f64 {
            1.2 * self.state.load + 2.0 * self.state.sink
        }

        fn said(&self) -> f64 {
            let ago = (10.0 / self.period).round() as usize;
            self.past.len().checked_sub(ago).map_or(0.0, |at| self.past[at])
        }

        fn run(&mut self, seconds: f64, load: f64, air: f64) {
            for _ in 0..(seconds / self.period).round() as u64 {
                self.now += self.period;
                self.state.load += (load - self.state.load) * weight(self.period, 1.5);
                let sink = load * air - self.state.sink;
                self.state.sink += sink * weight(self.period, 60.0 * air);
                let causes = Causes { air, ..Causes::test(load) };
                self.rise.update(self.now, causes, Model::default());
                self.rise.learn(self.said().round(), self.period);
                self.past.push(self.truth());
            }
        }

        /// What is counted as unseen, as a share of what is.
        fn counted(&self) -> f64 {
            let unseen = self.truth() - self.said();
            assert!(unseen > 2.0, "{unseen}");
            self.rise.unseen() / unseen
        }
    }

    /// Loads as a server has them, so long that both parts are told apart.
    fn learnt(period: f64) -> Die {
        let mut die = Die::new(period);
        for round in 0..12 {
            die.run(40.0, f64::from(round % 4 * 3), 2.0);
            die.run(60.0, f64::from(round % 3 * 4), 1.0);
        }
        die
    }

    #[test]
    fn a_load_step_is_known_before_the_sensor_shows_it() {
        for period in [0.25, 0.5, 2.0] {
            let mut die = learnt(period);
            die.run(200.0, 1.0, 2.0);
            assert!(die.rise.unseen() < 1.0, "{period}: {}", die.rise.unseen());
            die.run(6.0, 12.0, 2.0);
            assert!((1.3..1.7).contains(&die.counted()), "{period}: {}", die.counted());
            die.run(300.0, 12.0, 2.0);
            assert!(die.rise.unseen() < 1.0, "{period}: {}", die.rise.unseen());
        }
    }

    #[test]
    fn slower_fans_count_before_the_sensor_shows_them() {
        let mut die = learnt(0.5);
        die.run(300.0, 12.0, 1.0);
        die.run(9.0, 12.0, 3.0);
        assert!((1.2..2.0).contains(&die.counted()), "{}", die.counted());
    }

    #[test]
    fn after_one_steady_load_a_step_is_not_missed() {
        let mut die = Die::new(0.5);
        die.run(60.0, 3.0, 2.0);
        die.run(8.0, 12.0, 2.0);
        assert!((1.0..3.0).contains(&die.counted()), "{}", die.counted());
    }

    #[test]
    fn it_says_nothing_before_it_knows_anything_and_of_a_load_that_falls() {
        let mut die = Die::new(0.5);
        die.run(15.0, 12.0, 1.0);
        assert_eq!(die.rise.unseen(), 0.0);
        let mut die = learnt(0.5);
        die.run(100.0, 12.0, 1.0);
        die.run(5.0, 0.0, 1.0);
        assert_eq!(die.rise.unseen(), 0.0);
        assert_eq!(Rise::default().unseen(), 0.0);
    }

    #[test]
    fn where_nobody_tells_the_load_nothing_bounds_the_rise() {
        let most = |load: f64| {
            let mut rise = Rise::default();
            for second in 0..600 {
                rise.update(f64::from(second), Causes::test(load), Model::default());
                rise.learn(10.0, 1.0);
            }
            rise.most()
        };
        assert_eq!(most(0.0), f64::MAX);
        assert!((20.0..30.0).contains(&most(5.0)), "{}", most(5.0));
    }
}
