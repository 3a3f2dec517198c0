//! What a die has done that its sensor has not shown yet.
//!
//! A reading says what the die was one lag ago; what load and air have been since then is known. So
//! the dead time is bridged as in Smith's predictor (*Closer control of loops with dead time*,
//! 1957): by the difference of a model now and the same model one lag ago.
//!
//! ```text
//! rise(t) = a load(t) + b sink(t)        sink: load * resistance, soaked up with R C
//! unseen  = rise(now) - rise(now - lag)
//! ```
//!
//! `a`, from die to heat sink, and `b`, from heat sink to air, come by least squares from what the
//! sensor says one lag later, held together for as long as the load has not told them apart. It
//! errs on the warm side: all of the lag is taken to be dead time, the heat sink to be cold at
//! first, and what comes out counts [`GENEROUS`] times.

use crate::cooling::sensor::Causes;
use crate::cooling::soak::{GENEROUS, LEARN, SOAK};
use crate::cooling::{LAG, weight};

/// Time constant of a die on its heat sink, in seconds.
const DIE: f64 = 2.0;
/// Seconds between two states that are kept, and how many cover the lag and a reading's age.
const STEP: f64 = 1.0;
const KEPT: usize = (LAG.0 / 1_000_000_000) as usize + 1;
/// Sound readings before anything is said, in seconds. A few: the first load step may be the worst.
const SOONEST: f64 = 10.0;
/// How much `a` and `b` are held together: the weight of their difference, a share of the data's.
const ALIKE: f64 = 0.02;

/// Load of a socket in any unit, over the die's time constant, and what its heat sink holds.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    load: f64,
    sink: f64,
}

/// The model of one socket.
#[derive(Debug, Clone, Default)]
pub struct Unseen {
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
}

impl Unseen {
    /// Time has come to `now` (seconds) under `causes`.
    pub fn update(&mut self, now: f64, causes: Causes) {
        let (load, sink) = (causes.at_once, causes.at_once * causes.air);
        let Some(before) = self.at.replace(now) else {
            (self.state, self.kept_at) = (State { load, sink: 0.0 }, now);
            return;
        };
        let dt = (now - before).max(0.0);
        self.state.load += (load - self.state.load) * weight(dt, DIE);
        self.state.sink += (sink - self.state.sink) * weight(dt, SOAK * causes.air);
        let steps = ((now - self.kept_at).max(0.0) / STEP).floor();
        self.kept_at += steps * STEP;
        for _ in 0..KEPT.min(steps as usize) {
            self.kept[self.next] = self.state;
            self.next = (self.next + 1) % KEPT;
            self.filled = (self.filled + 1).min(KEPT);
        }
    }

    /// What a reading of now shows.
    fn shown(&self) -> State {
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
    }

    /// `a` and `b`; none before there is something to tell them by.
    fn model(&self) -> (f64, f64) {
        let [ll, ls, ss] = self.squares;
        let alike = ALIKE * (ll + ss);
        let (ll, ls, ss) = (ll + alike, ls - alike, ss + alike);
        let determinant = ll * ss - ls * ls;
        let [l, s] = self.products;
        let (a, b) = ((l * ss - s * ls) / determinant, (s * ll - l * ls) / determinant);
        let known = self.learnt >= SOONEST && determinant > 0.0;
        if known { (a.max(0.0), b.max(0.0)) } else { (0.0, 0.0) }
    }

    /// Kelvin by which the die may be warmer than a reading of now shows; not below zero.
    pub fn kelvin(&self) -> f64 {
        let (State { load, sink }, shown, (a, b)) = (self.state, self.shown(), self.model());
        GENEROUS * (a * (load - shown.load) + b * (sink - shown.sink)).max(0.0)
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
        unseen: Unseen,
    }

    impl Die {
        fn new(period: f64) -> Self {
            let (state, past) = (State::default(), Vec::new());
            Self { now: 0.0, period, state, past, unseen: Unseen::default() }
        }

        fn rise(&self) -> f64 {
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
                let causes = Causes { at_once: load, air, ..Causes::test(load) };
                self.unseen.update(self.now, causes);
                self.unseen.learn(self.said().round(), self.period);
                self.past.push(self.rise());
            }
        }

        /// What is counted as unseen, as a share of what is.
        fn counted(&self) -> f64 {
            let unseen = self.rise() - self.said();
            assert!(unseen > 2.0, "{unseen}");
            self.unseen.kelvin() / unseen
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
            assert!(die.unseen.kelvin() < 1.0, "{period}: {}", die.unseen.kelvin());
            die.run(6.0, 12.0, 2.0);
            assert!((1.3..1.7).contains(&die.counted()), "{period}: {}", die.counted());
            die.run(300.0, 12.0, 2.0);
            assert!(die.unseen.kelvin() < 1.0, "{period}: {}", die.unseen.kelvin());
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
        assert_eq!(die.unseen.kelvin(), 0.0);
        let mut die = learnt(0.5);
        die.run(100.0, 12.0, 1.0);
        die.run(5.0, 0.0, 1.0);
        assert_eq!(die.unseen.kelvin(), 0.0);
        assert_eq!(Unseen::default().kelvin(), 0.0);
    }
}
