//! Drive-load feed-forward (ours): a heavy write burst raises the airflow before the drives are
//! too warm. A drive takes minutes to warm up, so its power says it first.
//!
//! A drive's heat balance is
//!
//! ```text
//! C dT/dt = P - G (T - T_in) / r        r: resistance to the air at this duty (air.rs), 1 at full
//! ```
//!
//! `C` and `G` are learned from what is sensed: over a window the energy `E`, the warming `ΔT` and
//! `X = ∫ (T - T_in)/r dt` are known, `E = C ΔT + G X`, and least squares over the last hours give
//! both. A window is long enough for a warming of several steps of a reading: rounding in shorter
//! ones passes for warming that takes no energy, and a drive that warms slowly would seem to be
//! cooled well. Then the power of the last seconds says how warm the drive is going to be:
//!
//! ```text
//! T(h) = T + (T_end - T) (1 - exp(-h G / (C r)))        T_end = T_in + P r / G
//! ```
//!
//! The floor under the fan duty is the one with which no drive is too warm two minutes from now.
//! So a short burst, or one that cool drives can take, costs no air. `T` is what the same balance
//! makes of the last readings, so that a reading that toggles does not move the fans.
//!
//! A drive whose power nobody measures, or whose balance is not known yet, gets more air the
//! closer it comes to its limit: later, and more of it.

use crate::sense::air::{blowing, duty_for, resistance};
use crate::sense::drives::{Drives, MARGIN};
use crate::sense::plausible::{is_drive_temperature, is_inlet, is_power};
use crate::sense::{QUANTUM, weight};
use crate::topology::Topology;
use crate::{DriveSignals, Signals};

/// `h`, in seconds: some times what the fans need to speed up, and the least that a drive of some
/// hundred grams needs to warm by what a burst adds.
const AHEAD: f64 = 120.0;
/// Time constant of the power now, in seconds: clear of single requests.
const FAST: f64 = 3.0;
/// A window ends when the temperature has moved by so many kelvin, at the earliest and the latest
/// after so many seconds; how long windows are remembered, in seconds.
const MOVED: f64 = 3.0 * QUANTUM;
const SHORTEST: f64 = 30.0;
const LONGEST: f64 = 600.0;
const MEMORY: f64 = 3600.0;
/// `C` before anything is known, in J/K: between an SSD (150) and a 3.5-inch disk (600). It counts
/// as much as one window in which the temperature moved by one kelvin.
const CAPACITY: f64 = 300.0;
/// Time constant with which readings correct what the balance makes of them, in seconds.
const CORRECTED: f64 = 180.0;
/// How fast the floor sinks, in duty per second: one unit in two minutes, as `h`.
const SINK: f64 = 1.0 / AHEAD;

/// One drive's heat balance.
#[derive(Debug, Clone, Default)]
struct Balance {
    /// Power of the last seconds, W.
    power: Option<f64>,
    /// The open window: its length, `E` and `X`; the temperature at its start.
    open: (f64, f64, f64),
    from: Option<f64>,
    /// Sums of ΔT², ΔT X, X², ΔT E, X E over the windows.
    sums: [f64; 5],
    /// `T`, °C, at most a step of the reading away from it.
    seen: Option<f64>,
}

impl Balance {
    /// Takes `dt` seconds at `watts` and `t` degrees, `rise` = (T - T_in)/r.
    fn learn(&mut self, watts: f64, t: f64, rise: f64, dt: f64) {
        let power = self.power.get_or_insert(watts);
        *power += (watts - *power) * weight(dt, FAST);
        let warming = self.learned().map_or(0.0, |(c, g)| (watts - g * rise) / c * dt);
        let seen = self.seen.unwrap_or(t) + warming;
        let seen = seen + (t - seen) * weight(dt, CORRECTED);
        self.seen = Some(seen.clamp(t - QUANTUM, t + QUANTUM));
        let from = *self.from.get_or_insert(t);
        let (span, energy, x) = &mut self.open;
        (*span, *energy, *x) = (*span + dt, *energy + watts * dt, *x + rise * dt);
        let warming = t - from;
        if *span >= LONGEST || *span >= SHORTEST && warming.abs() >= MOVED {
            let (energy, x) = (*energy, *x);
            let keep = 1.0 - weight(*span, MEMORY);
            let new = [warming * warming, warming * x, x * x, warming * energy, x * energy];
            for (sum, new) in self.sums.iter_mut().zip(new) {
                *sum = *sum * keep + new;
            }
            self.skip();
        }
    }

    /// Something was not sensed: starts another window.
    fn skip(&mut self) {
        (self.open, self.from) = ((0.0, 0.0, 0.0), None);
    }

    /// `C` and `G`, J/K and W/K; `None` until the drive was warmer than the air for a while.
    fn learned(&self) -> Option<(f64, f64)> {
        let [tt, tx, xx, te, xe] = self.sums;
        let (tt, te) = (tt + 1.0, te + CAPACITY);
        let det = tt * xx - tx * tx;
        let (c, g) = ((te * xx - xe * tx) / det, (tt * xe - tx * te) / det);
        (det > 0.0 && c > 0.0 && g > 0.0).then_some((c, g))
    }

    /// The most resistance of `1` (full speed) to `r` that keeps the drive below `most` until
    /// [`AHEAD`] with the air at `inlet`; `None` before its balance is known.
    fn bearable(&self, most: f64, inlet: f64, r: f64) -> Option<f64> {
        let (watts, t, (c, g)) = (self.power?, self.seen?, self.learned()?);
        let ahead = |r: f64| {
            let end = inlet + watts * r / g;
            t + (end - t) * -(-AHEAD * g / (c * r)).exp_m1()
        };
        let (mut low, mut high) = (1.0, r);
        if ahead(high) <= most {
            return Some(high);
        }
        for _ in 0..12 {
            let mid = (low + high) / 2.0;
            if ahead(mid) > most { high = mid } else { low = mid }
        }
        Some(low)
    }
}

/// A floor under the fan duty for the drives' sake.
#[derive(Debug, Clone)]
pub struct FeedForward {
    drives: Vec<Balance>,
    heat: Drives,
    /// Mean of the air at the inlet, °C.
    inlet: Option<f64>,
    floor: f64,
    over: bool,
}

impl FeedForward {
    /// For the drives of `topology`.
    pub fn new(topology: &Topology) -> Self {
        Self {
            drives: vec![Balance::default(); topology.drives.len()],
            heat: Drives::new(topology, None),
            inlet: None,
            floor: 0.0,
            over: false,
        }
    }

    /// Takes one period in which the fans were asked for `duty` and gave `air`; returns the floor,
    /// and whether a drive comes so close to its limit that no fan cap may hold this air back.
    pub fn update(&mut self, signals: &Signals, duty: f64, air: f64) -> (f64, bool) {
        let dt = signals.period.seconds();
        let r = resistance(air);
        let inlet = signals.cooling.inlet.map(|reading| reading.temperature);
        let inlet = inlet.filter(|inlet| is_inlet(*inlet)).map(|inlet| {
            let mean = self.inlet.unwrap_or(inlet.0);
            mean + (inlet.0 - mean) * weight(dt, CORRECTED)
        });
        self.inlet = inlet;
        self.heat.update(signals);
        let slow = self.heat.slow();
        let mut least = slow;
        let drives = signals.drives.iter().zip(&mut self.drives).zip(self.heat.worst());
        for ((drive, balance), worst) in drives {
            if worst.is_none() {
                // Gone: another may come in its place.
                *balance = Balance::default();
            }
            let ahead = if let (Some((watts, t)), Some(inlet)) = (sensed(drive), inlet) {
                balance.learn(watts, t, (t - inlet) / r, dt);
                worst.and_then(|(_, limit)| balance.bearable(limit - MARGIN, inlet, slow))
            } else {
                balance.skip();
                None
            };
            let now = || worst.map(|(t, limit)| self.heat.by_temperature(t - limit));
            least = least.min(ahead.or_else(now).unwrap_or(slow));
        }
        // Given back only well below the margin, where the floor holds it.
        let from = if self.over { -2.0 * MARGIN } else { -MARGIN };
        self.over = self.heat.over().is_some_and(|over| over >= from);
        // Those that blow have to make up for those that do not.
        let needed = || (duty_for(1.0, least) / blowing(duty, air)).min(1.0);
        let wanted = if least < slow { needed() } else { 0.0 };
        self.floor = wanted.max(self.floor - SINK * dt);
        (self.floor, self.over)
    }
}

/// Power and temperature, if both are there and possible.
fn sensed(drive: &DriveSignals) -> Option<(f64, f64)> {
    let watts = drive.power.filter(|power| is_power(*power))?;
    let temperature = drive.temperature.filter(|t| is_drive_temperature(*t))?;
    Some((watts.0, temperature.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::DriveSpec;
    use crate::units::{Celsius, Nanos, Watts};
    use crate::{PERIOD, Reading};

    #[test]
    fn a_drive_that_is_pulled_out_needs_no_air() {
        let limit = Some(Celsius(70.0));
        let drive = DriveSpec { limit, ..DriveSpec::default() };
        let topology = Topology { drives: vec![drive; 2], ..Topology::default() };
        let (mut feed, mut signals) = (FeedForward::new(&topology), Signals::new(&topology));
        signals.period = PERIOD;
        let mut seconds = |seconds: u64, temperature: Option<f64>| {
            let mut floor = (0.0, false);
            let end = signals.now + Nanos::from_secs(seconds);
            while signals.now < end {
                signals.now += PERIOD;
                let inlet = Reading { at: signals.now, temperature: Celsius(30.0) };
                signals.cooling.inlet = Some(inlet);
                for (drive, t) in signals.drives.iter_mut().zip([temperature, Some(40.0)]) {
                    drive.temperature = t.map(Celsius);
                    drive.power = t.map(|_| Watts(12.0));
                }
                floor = feed.update(&signals, 0.5, 0.5);
            }
            floor
        };
        let (floor, over) = seconds(600, Some(70.0));
        assert!(floor > 0.5 && over, "{floor}");
        let (floor, over) = seconds(60, None);
        assert!(floor > 0.5 && over, "it is not gone yet: {floor}");
        assert_eq!(seconds(200, None), (0.0, false));
        // And back again.
        let (floor, over) = seconds(10, Some(70.0));
        assert!(floor > 0.5 && over, "{floor}");
    }
}
