//! One temperature sensor that lags, rounds, and may be lost, stuck or lying.
//!
//! The worst case is what it last said, plus the age of that times the steepest rise the
//! hardware can make (Oxide's hubris, `task/thermal`): a lost sensor makes control more careful
//! by itself, up to the most that load and air can do to the die (`rise.rs`).
//!
//! * **absurd**: not a number, or outside what a running machine can be. As if lost.
//! * **lying**: it jumps by more than heat can flow and the load explains. Jumps add up, so the one
//!   that ends the lie makes it good again; a sensor that has jumped down counts with what it
//!   jumped added. When the load has just fallen it may fall further, but not to where no die is
//!   under the load that is left;
//! * **stuck**: it stands still although load and air have warmed the die (`still.rs`). As if lost
//!   since then.
//!
//! What no single sensor can show stays open: an offset that creeps in, or one smaller than a
//! jump. The 10 K between the set point and the red line are for that.

use crate::Reading;
use crate::cooling::QUANTUM;
use crate::cooling::rise::{Model, Rise};
use crate::cooling::still::Still;
use crate::units::Nanos;

/// Steepest rise to reckon with while nothing is known, K/s: 240 W (EADC §V-A) into the
/// 240 J/K of a half-kilogramme heat sink with its die.
const SLEW: f64 = 1.0;
/// Age up to which a reading is current: two intervals.
const CURRENT: f64 = 2.0;
/// A reading may differ from the one before by this much and [`JUMP_RATE`] times the time.
const JUMP: f64 = 6.0;
/// In K/s: twice the slew, for the die is faster than its heat sink.
const JUMP_RATE: f64 = 2.0;
/// How long a rise of the load explains a rising reading, in seconds: twice the lag. Before
/// anything is known the first load may explain any.
const ROSE: f64 = 20.0;
/// Time constant with which sound readings confirm that a lie is over, in seconds.
const CONFIRMED: f64 = 60.0;
/// What no silicon that runs can be above, °C.
const HOTTEST: f64 = 130.0;
/// Span of the trend, in seconds.
const TREND: f64 = 15.0;
/// Readings kept for the trend.
const KEPT: usize = 16;

/// What should make a reading move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Causes {
    /// How busy the socket is, in any unit, with what its cores count at rest.
    pub load: f64,
    /// Whether all of these are sensed now; what is not is as it was when it last was.
    pub sensed: bool,
    /// Relative resistance to the air (see `pi.rs`).
    pub air: f64,
    /// Temperature of the air at the inlet, °C, and of the coldest die that it may cool.
    pub inlet: f64,
    pub coldest: f64,
    /// Share of its rise over the inlet that a die may lose at once, as its load has just fallen.
    pub relief: f64,
}

#[cfg(test)]
impl Causes {
    /// A steady load at full fan speed.
    pub fn test(load: f64) -> Self {
        let (inlet, coldest) = (20.0, 10.0);
        Self { load, sensed: true, air: 1.0, inlet, coldest, relief: 0.0 }
    }
}

/// A sensor and what is believed of it. Times in seconds since the start of the run.
#[derive(Debug, Clone)]
pub struct Sensor {
    /// The last reading, believed or not.
    heard: Option<(f64, f64)>,
    /// The last believed one.
    believed: (f64, f64),
    /// How far it is from the truth, by the jumps that heat cannot explain.
    offset: f64,
    /// The last one below zero that was given up, fading as sound readings confirm that.
    given_up: f64,
    rise: Rise,
    /// Time of the last period. The most that the die was warmer than its reading shortly before,
    /// in kelvin.
    at: f64,
    rose: f64,
    still: Still,
    /// What load and air cannot bring the die above, °C.
    most: f64,
    /// Believed readings, a ring.
    trend: [(f64, f64); KEPT],
    next: usize,
    filled: usize,
}

impl Sensor {
    /// A sensor that nothing is known of at `now`; taken to have said `temperature` then.
    pub fn new(now: Nanos, temperature: f64) -> Self {
        Self {
            heard: None,
            believed: (now.seconds(), temperature),
            offset: 0.0,
            given_up: 0.0,
            rise: Rise::default(),
            at: now.seconds(),
            rose: HOTTEST,
            still: Still::new(),
            most: f64::MAX,
            trend: [(0.0, 0.0); KEPT],
            next: 0,
            filled: 0,
        }
    }

    /// Takes what was read, if anything was; `sibling` is the [`Sensor::model`] of one like it.
    pub fn update(&mut self, now: Nanos, reading: Option<Reading>, causes: Causes, sibling: Model) {
        let now = now.seconds();
        self.rise.update(now, causes, sibling);
        let dt = now - self.at;
        self.at = now;
        self.rose = self.rise.unseen().max(self.rose * (-dt / ROSE).exp());
        self.most = if causes.sensed { causes.inlet + self.rise.most() } else { f64::MAX };
        let reading = reading.map(|r| (r.at.seconds(), r.temperature.0));
        let number = |(at, t): &(f64, f64)| t.is_finite() && *at <= now;
        let Some((at, temperature)) = reading.filter(number) else { return };
        if self.heard.is_some_and(|(before, _)| at <= before) {
            return;
        }
        // Nothing that runs is much colder than the air it takes in.
        if !(causes.coldest..=HOTTEST).contains(&temperature) {
            return;
        }
        self.jump(at, temperature, causes);
        self.heard = Some((at, temperature));
        self.still.read(at, temperature, &self.rise);
        if !self.still.is_stuck() {
            self.correct(at, temperature, causes);
        }
    }

    /// Notices a reading that cannot come after the last one, and the end of such.
    fn jump(&mut self, at: f64, temperature: f64, causes: Causes) {
        let Some((before, last)) = self.heard else { return };
        let (dt, jump) = (at - before, temperature - last);
        let relief = if self.offset < 0.0 { 0.0 } else { causes.relief };
        let relief = relief * (last - causes.inlet).max(0.0);
        let usual = JUMP + JUMP_RATE * dt;
        let ends = self.offset < 0.0 && jump > JUMP;
        if (-usual - relief..=usual + self.rose).contains(&jump) && dt <= 2.0 * CURRENT && !ends {
            return;
        }
        // What it was in truth when that was known last, and where it may have come since.
        let (known, believed) = self.believed;
        let high = self.offset.max(0.0);
        let truth = believed - high;
        let lost = self.rise.lost() * (truth - causes.inlet).max(0.0);
        let rate = JUMP_RATE * (at - known);
        let possible = truth - JUMP - relief - lost.min(rate)..=truth + JUMP + rate + self.rose;
        if possible.contains(&temperature) {
            self.offset = 0.0;
        } else if !possible.contains(&(temperature - self.offset)) {
            self.offset = temperature - truth;
        }
        if self.offset.max(0.0) != high {
            // No heat, and so no trend.
            (self.next, self.filled) = (0, 0);
        }
    }

    /// Believes a reading. A sensor that lies low is corrected by what it jumped; one that lies
    /// high is safe.
    fn correct(&mut self, at: f64, temperature: f64, Causes { inlet, sensed, .. }: Causes) {
        let (most, (expected, least)) = (inlet + self.rise.most(), self.rise.expected());
        let honest = temperature - inlet > least;
        if self.offset < 0.0 && temperature - self.offset > most {
            // No heat can have made it so hot: what jumped was no lie, or a smaller one.
            self.given_up = self.offset;
            self.offset = if honest { 0.0 } else { (temperature - most).min(0.0) };
        } else if self.offset == 0.0 && sensed && !honest {
            // No die is so cold under such a load: what fell with the load was not all of it heat.
            self.offset = (temperature - inlet - expected).min(self.given_up);
        }
        if self.offset == 0.0 && sensed {
            // Of a gap nothing is known.
            let dt = (at - self.believed.0).min(2.0 * CURRENT);
            self.given_up *= (-dt / CONFIRMED).exp();
            self.rise.learn(temperature - inlet, dt);
        }
        self.believe(at, temperature - self.offset.min(0.0));
    }

    fn believe(&mut self, at: f64, temperature: f64) {
        self.believed = (at, temperature);
        self.rise.known();
        self.trend[self.next] = self.believed;
        self.next = (self.next + 1) % KEPT;
        self.filled = (self.filled + 1).min(KEPT);
    }

    /// Whether the last reading is current and believed.
    pub fn is_sound(&self, now: Nanos) -> bool {
        self.filled > 0 && now.seconds() - self.believed.0 <= 2.0 * CURRENT
    }

    /// The worst case at `now`.
    pub fn worst(&self, now: Nanos) -> f64 {
        let (at, temperature) = self.believed;
        let rise = (SLEW * (now.seconds() - at - CURRENT)).max(0.0);
        if self.is_sound(now) {
            temperature + rise + self.still.doubt(now.seconds())
        } else {
            (temperature + rise.max(self.still.warmer())).min(self.most)
        }
    }

    /// How far the die rises, by what was read.
    pub fn model(&self) -> Model {
        self.rise.model()
    }

    /// The worst case at `now` with what the sensor has not shown yet, or would not.
    pub fn unseen(&self, now: Nanos) -> f64 {
        if !self.is_sound(now) {
            return (self.worst(now) + self.rise.unseen()).min(self.most);
        }
        let suspect = self.still.suspect() - self.still.doubt(now.seconds());
        self.worst(now) + self.rise.unseen().max(suspect)
    }

    /// How fast it changes, in K/s, by least squares over the last [`TREND`]. Zero unless it has
    /// moved by two quanta: one may be rounding. EADC extends the band-limited predictor of its
    /// reference [24]; on readings in whole kelvin its coefficients amplify nothing but rounding.
    pub fn rate(&self) -> f64 {
        let kept = || {
            let from = self.believed.0 - TREND;
            self.trend[..self.filled].iter().filter(move |(at, _)| *at >= from)
        };
        let n = kept().count() as f64;
        let (low, high) =
            kept().fold((f64::MAX, f64::MIN), |(low, high), (_, t)| (low.min(*t), high.max(*t)));
        if n < 3.0 || high - low < 2.0 * QUANTUM {
            return 0.0;
        }
        let (x, y) = kept().fold((0.0, 0.0), |(x, y), (at, t)| (x + at / n, y + t / n));
        let (xy, xx) = kept().fold((0.0, 0.0), |(xy, xx), (at, t)| {
            (xy + (at - x) * (t - y), xx + (at - x) * (at - x))
        });
        if xx > 0.0 { xy / xx } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Celsius;

    /// A sensor at a steady load that says these, one a second; the worst case after each.
    fn says(readings: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let mut sensor = Sensor::new(Nanos::ZERO, 60.0);
        let causes = Causes { inlet: 25.0, coldest: 15.0, ..Causes::test(5.0) };
        let read = |(second, t): (u64, f64)| {
            let now = Nanos::from_secs(second + 1);
            let reading = Reading { at: now, temperature: Celsius(t) };
            sensor.update(now, Some(reading), causes, Model::default());
            sensor.worst(now)
        };
        (0..).zip(readings).map(read).collect()
    }

    /// Ten minutes at 40 K over 25 °C of inlet, toggling; then another load and other readings for
    /// two minutes. The worst case at the end.
    fn then(load: f64, relief: f64, reading: f64) -> f64 {
        let mut sensor = Sensor::new(Nanos::ZERO, 60.0);
        for second in 1..=720 {
            let (now, falls) = (Nanos::from_secs(second), second > 600);
            let causes = Causes { inlet: 25.0, coldest: 15.0, ..Causes::test(10.0) };
            let causes = if falls { Causes { load, relief, ..causes } } else { causes };
            let t = if falls { reading } else { 65.0 } + (second % 2) as f64;
            sensor.update(
                now,
                Some(Reading { at: now, temperature: Celsius(t) }),
                causes,
                Model::default(),
            );
        }
        sensor.worst(Nanos::from_secs(720))
    }

    #[test]
    fn a_lie_that_begins_as_the_load_falls_is_found_out() {
        // Of 40 K at most half may go at once; 32 K are left in the end, of which it says 2: 57 °C,
        // or what it was before the load fell.
        assert!((55.0..68.0).contains(&then(8.0, 0.5, 27.0)), "{}", then(8.0, 0.5, 27.0));
        assert!(then(0.5, 0.5, 45.0) < 47.0, "so much heat can be gone: {}", then(0.5, 0.5, 45.0));
        // Work of which a core at the same load draws half as much.
        assert!(then(9.0, 0.5, 45.0) < 47.0, "{}", then(9.0, 0.5, 45.0));
    }

    #[test]
    fn a_jump_is_no_trend() {
        let mut sensor = Sensor::new(Nanos::ZERO, 60.0);
        for second in 1..=110 {
            let (now, lies) = (Nanos::from_secs(second), second > 100);
            let t = if lies { 86.0 } else { 64.0 } + (second % 2) as f64;
            let reading = Some(Reading { at: now, temperature: Celsius(t) });
            sensor.update(now, reading, Causes::test(5.0), Model::default());
            assert!(sensor.rate() < 0.2, "{second} s: {} K/s", sensor.rate());
        }
        assert!(sensor.worst(Nanos::from_secs(110)) > 85.0, "it counts all the same");
    }

    #[test]
    fn one_absurd_reading_changes_nothing_for_a_lie_that_comes_later() {
        let toggles = |n: usize| (0..n).map(|second| 60.0 + (second % 2) as f64);
        for absurd in [255.0, 131.0, 0.0, -273.0, f64::NAN] {
            let lie = std::iter::repeat_n(35.0, 10);
            let worst = says(toggles(400).chain([absurd]).chain(toggles(100)).chain(lie));
            assert!(worst[400] < 62.0, "{absurd}: {}", worst[400]);
            assert!(worst[501..].iter().all(|worst| *worst > 58.0), "{absurd}: {worst:?}");
        }
    }
}
