//! One socket's heat, observed: what temperature it goes to, at any fan duty and any power.
//!
//! ```text
//! T = T_sink + P R (1 - V)        C dT_sink/dt = P - (T_sink - T_in) / (R v)
//! T_end = T_in + P R (1 - V + v)        v = V r / r(1/2)
//! ```
//!
//! `P` is the socket's power, `r` the air's relative resistance (`sense/air.rs`), and `R`, kelvin
//! per watt at half speed, is what is learnt: by how much the reading departs from the model (a
//! Luenberger observer). So a trend that is still hidden in the sink is known before the sensor has
//! all of it, and nothing has to stand still to be learnt from.

use crate::sense::air::resistance;
use crate::sense::{LAG, weight};

/// `V`: share of convection in the resistance at half speed; 0.6 to 0.8 in the servers that we know
/// of. The rest is conduction to the heat sink, and warms nothing that takes long.
const CONVECTION: f64 = 0.7;
/// `C`: heat capacity of a heat sink, J/K: 0.3 kg of aluminium.
const CAPACITY: f64 = 270.0;
/// The model follows the readings within 20 s, twice their lag, per second.
const FOLLOW: f64 = 0.05;
/// What a socket at full load is at most above the air at half speed before more is known, in
/// kelvin: a poor heat sink.
const GUESS: f64 = 90.0;
/// How long it is read until `R` is told from how hot it is and how fast it warms up, in seconds:
/// from half of that on, when the sensor no longer lags behind.
const FIRST: f64 = 60.0;
/// Bounds of `R`, K/W: no heat sink is outside of them.
const LEAST: f64 = 0.01;
const MOST: f64 = 20.0;

/// The observer of one socket.
#[derive(Debug, Clone, Copy)]
pub struct Observer {
    /// `T_sink`, and what the sensor reads of `T` for its lag.
    state: Option<(f64, f64)>,
    /// `R`.
    resistance: f64,
    first: First,
}

/// The first readings: for how long, joules, and kelvin times seconds and seconds in each of the
/// two quarters at the end.
#[derive(Debug, Clone, Copy, Default)]
struct First {
    seconds: f64,
    joules: f64,
    quarters: [(f64, f64); 2],
}

/// `v` at `duty`.
fn convection(duty: f64) -> f64 {
    CONVECTION * resistance(duty) / resistance(0.5)
}

impl Observer {
    /// Of a socket that is taken to draw `full` watts at full load.
    pub fn new(full: f64) -> Self {
        Self { state: None, resistance: GUESS / full.max(1.0), first: First::default() }
    }

    /// Whether `R` is no guess.
    pub fn is_known(&self) -> bool {
        self.first.seconds >= FIRST
    }

    /// Takes a first reading; the last one tells `R`: what does not warm the sink is blown away.
    fn begin(&mut self, read: f64, power: f64, (inlet, v): (f64, f64), dt: f64) {
        let first = &mut self.first;
        first.seconds += dt;
        if first.seconds > FIRST / 2.0 {
            let quarter = &mut first.quarters[usize::from(first.seconds > 0.75 * FIRST)];
            *quarter = (quarter.0 + read * dt, quarter.1 + dt);
            first.joules += power * dt;
        }
        if !self.is_known() {
            return;
        }
        let [(early, before), (late, after)] = self.first.quarters;
        let (start, end, span) = (early / before, late / after, before + after);
        let blown = self.first.joules / span - CAPACITY * (end - start) / (span / 2.0);
        let told = ((start + end) / 2.0 - inlet) / (blown * (1.0 - CONVECTION + v));
        if blown > 0.0 && told < self.resistance {
            self.resistance = told.max(LEAST);
        }
    }

    /// Takes `dt` seconds at this `power` and `air`, at whose end the sensor reads `read`.
    pub fn update(&mut self, read: f64, power: f64, (inlet, air): (f64, f64), dt: f64) {
        let v = convection(air);
        if !self.is_known() {
            self.begin(read, power, (inlet, v), dt);
        }
        let r = self.resistance;
        let at_rest = inlet + (read - inlet) * v / (1.0 - CONVECTION + v);
        let (sink, model) = self.state.unwrap_or((at_rest, read));
        let tau = (CAPACITY * r * v).max(dt);
        let sink = sink + (inlet + power * r * v - sink) * dt / tau;
        let model =
            model + (sink + power * r * (1.0 - CONVECTION) - model) * weight(dt, LAG.seconds());
        let error = read - model;
        let follow = error * (FOLLOW * dt).min(1.0);
        self.state = Some((sink + follow, model + follow));
        // As fast as keeps temperature and end from swinging.
        let learn = (1.0 / tau + FOLLOW).powi(2) * tau / 4.0;
        let watts = (power * (1.0 - CONVECTION + v)).max(1e-3);
        self.resistance = (r + learn * dt * error / watts).clamp(LEAST, MOST);
    }

    /// Nothing is read: what was learnt stays.
    pub fn lose(&mut self) {
        self.state = None;
    }

    /// `T_end` at this power and duty, °C.
    pub fn end(&self, power: f64, inlet: f64, duty: f64) -> f64 {
        inlet + power * self.resistance * (1.0 - CONVECTION + convection(duty))
    }

    /// `T` at this power, at once; `end` while nothing is read.
    pub fn start(&self, power: f64, end: f64) -> f64 {
        let conduction = power * self.resistance * (1.0 - CONVECTION);
        self.state.map_or(end, |(sink, _)| sink + conduction)
    }

    /// Which share of the way to `T_end` it is after so many seconds, and on average until then.
    pub fn way(&self, seconds: f64, duty: f64) -> (f64, f64) {
        let spans = seconds / (CAPACITY * self.resistance * convection(duty));
        let then = 1.0 - (-spans).exp();
        (then, 1.0 - then / spans.max(1e-6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink that is not as guessed, read late and in whole kelvin.
    fn observed(
        capacity: f64,
        conduction: f64,
        total: f64,
        mut each: impl FnMut(u32, f64, Observer),
    ) {
        let (power, inlet, air) = (100.0, 30.0, 0.7);
        let v = total * convection(air) / CONVECTION * (1.0 - conduction / total);
        let mut observer = Observer::new(100.0);
        let (mut sink, mut sensor) = (40.0, 40.0);
        for second in 0..600 {
            sink += (power - (sink - inlet) / v) / capacity;
            sensor += (sink + power * conduction - sensor) / 10.0;
            observer.update(f64::round(sensor), power, (inlet, air), 1.0);
            let end = inlet + power * (conduction + v);
            each(second, observer.end(power, inlet, air) - end, observer);
        }
    }

    #[test]
    fn it_knows_where_a_socket_goes_before_the_socket_is_there() {
        for (capacity, conduction) in [(200.0, 0.15), (270.0, 0.22), (350.0, 0.3)] {
            observed(capacity, conduction, 0.75, |second, off, _| {
                let what = format!("{capacity} J/K, {conduction} K/W: {off} after {second} s");
                let most = match second {
                    0..60 => f64::INFINITY,
                    60..300 => 16.0,
                    _ => 4.0,
                };
                assert!(off.abs() < most, "{what}");
            });
        }
    }

    /// With a sink that is a tenth of what was guessed.
    #[test]
    fn what_stands_still_is_known_from_its_first_readings() {
        let mut observer = Observer::new(50.0);
        for _ in 0..60 {
            assert!(!observer.is_known());
            observer.update(45.0, 100.0, (25.0, 0.4), 1.0);
        }
        assert!(observer.is_known());
        let end = observer.end(100.0, 25.0, 0.4);
        assert!((end - 45.0).abs() < 2.0, "{end}");
    }

    #[test]
    fn it_knows_other_powers_and_duties_and_the_way_there() {
        let mut last = Observer::new(100.0);
        observed(270.0, 0.18, 0.6, |_, _, observer| last = observer);
        let other = 30.0 + 40.0 * (0.18 + 0.6 * convection(0.3));
        assert!((last.end(40.0, 30.0, 0.3) - other).abs() < 3.0);
        let (soon, mean) = last.way(1.0, 0.3);
        assert!(soon < 0.02 && mean < soon, "{soon}, {mean}");
        let (late, mean) = last.way(f64::INFINITY, 0.3);
        assert!(late == 1.0 && mean == 1.0, "{late}, {mean}");
        // Less power cools the die at once by what it was above the sink.
        let (now, then) = (last.start(100.0, 0.0), last.start(40.0, 0.0));
        assert!((now - then - 60.0 * 0.18).abs() < 1.0, "{now}, {then}");
        last.lose();
        assert_eq!(last.start(40.0, 55.0), 55.0);
    }
}
