//! One temperature sensor that lags, rounds, and may be lost, stuck or lying.
//!
//! The worst case is what it last said, plus the age of that times the steepest rise the
//! hardware can make (Oxide's hubris, `task/thermal`): a lost sensor makes control more careful
//! by itself.
//!
//! * **absurd**: not a number, or outside what a running machine can be. As if lost.
//! * **lying**: it jumps by more than heat can flow. Jumps add up, so the one that ends the lie
//!   makes it good again; a sensor that has jumped down counts with what it jumped added. When
//!   the load has just fallen it may fall further;
//! * **stuck**: it stands still although load and air have warmed the die (`soak.rs`). As if lost
//!   since then, but no hotter than what it did not follow can have brought about.
//!
//! What no single sensor can show stays open: an offset that creeps in, or one smaller than a
//! jump. The 10 K between the set point and the red line are for that.

use crate::Reading;
use crate::cooling::QUANTUM;
use crate::cooling::soak::Soak;
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
/// What is reckoned with in any case when a sensor is stuck, in kelvin.
const MARGIN: f64 = 10.0;
/// Kelvin by which load and air must have warmed the die before a reading that stands still is
/// doubted; time that it then has to move, in seconds: half as long again as the lag.
const CHANGE: f64 = 6.0;
const SOONEST: f64 = 15.0;
/// A quantum in so many seconds is a rise that does not end by itself: with a heat sink's time
/// constant of one to two minutes, several kelvin are still to come.
const RISING: f64 = 25.0;
/// Least time within which it then goes on, in seconds.
const FOLLOW: f64 = 30.0;
/// Longest time constant of a heat sink to reckon with, in seconds: a rise of a kelvin in a second
/// has so many to go.
const SINK: f64 = 250.0;
/// Span of the trend, in seconds.
const TREND: f64 = 15.0;
/// Readings kept for the trend.
const KEPT: usize = 16;

/// What should make a reading move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Causes {
    /// How busy the socket is, in any unit, averaged over some seconds.
    pub load: f64,
    /// Whether all of these are sensed now; what is not is as it was when it last was.
    pub sensed: bool,
    /// Relative resistance to the air (see `pi.rs`).
    pub air: f64,
    /// Temperature of the air at the inlet, °C.
    pub inlet: f64,
    /// Share of its rise over the inlet that a die may lose at once, as its load has just fallen.
    pub relief: f64,
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
    /// The last reading that a running machine can have.
    sane_at: f64,
    soak: Soak,
    /// Heat when the reading last moved, and by how many kelvin there is more now.
    moved_under: f64,
    more: f64,
    /// When that was, whether upwards, and if it was rising steadily: how long the next move may
    /// take, and how far it may still have had to go, in kelvin.
    moved_at: f64,
    up: bool,
    rising: Option<f64>,
    left: f64,
    /// Until when the reading must move, once load or air have changed so much.
    must_move: Option<f64>,
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
            sane_at: f64::MIN,
            soak: Soak::default(),
            moved_under: 0.0,
            more: 0.0,
            moved_at: now.seconds(),
            up: false,
            rising: None,
            left: 0.0,
            must_move: None,
            trend: [(0.0, 0.0); KEPT],
            next: 0,
            filled: 0,
        }
    }

    /// Takes what was read, if anything was; `sibling` is the [`Sensor::heat`] of one like it.
    pub fn update(
        &mut self,
        now: Nanos,
        reading: Option<Reading>,
        causes: Causes,
        sibling: Option<f64>,
    ) {
        let now = now.seconds();
        self.soak.update(now, causes, sibling);
        let reading = reading.map(|r| (r.at.seconds(), r.temperature.0));
        let number = |(at, t): &(f64, f64)| t.is_finite() && *at <= now;
        let Some((at, temperature)) = reading.filter(number) else { return };
        if self.heard.is_some_and(|(before, _)| at <= before) {
            return;
        }
        self.jump(at, temperature, causes);
        let last = self.heard.replace((at, temperature)).map_or(f64::MAX, |(_, last)| last);
        // Nothing that runs is much colder than the air it takes in.
        if !(causes.inlet - 10.0..=130.0).contains(&temperature) {
            return;
        }
        self.sane_at = at;
        let moves = ((temperature - last).abs() < QUANTUM / 2.0, temperature > last);
        if !self.stands_still(now, moves) {
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
        if (-usual - relief..=usual).contains(&jump) && dt <= 2.0 * CURRENT && !ends {
            return;
        }
        // What it was in truth when that was known last, and where it may have come since.
        let (known, believed) = self.believed;
        let truth = believed - self.offset.max(0.0);
        let lost = self.soak.lost() * (truth - causes.inlet).max(0.0);
        let rate = JUMP_RATE * (at - known);
        let possible = truth - JUMP - relief - lost.min(rate)..=truth + JUMP + rate;
        if possible.contains(&temperature) {
            self.offset = 0.0;
        } else if !possible.contains(&(temperature - self.offset)) {
            self.offset = temperature - truth;
        }
    }

    /// Whether the reading stands still although there is so much more heat that it must not.
    fn stands_still(&mut self, now: f64, (still, up): (bool, bool)) -> bool {
        if !still {
            let took = now - self.moved_at;
            let rises = up && took <= RISING;
            self.rising = (rises && self.up).then_some((2.0 * took).max(FOLLOW));
            self.left = if rises { SINK / took.max(1.0) } else { 0.0 };
            (self.moved_at, self.up) = (now, up);
            (self.moved_under, self.must_move) = (self.soak.h(), None);
            return false;
        }
        let more = self.soak.since(self.moved_under);
        if more >= CHANGE {
            self.must_move.get_or_insert(now + SOONEST);
        } else if let Some(wait) = self.rising.filter(|_| more >= 2.0 * QUANTUM) {
            self.must_move.get_or_insert(self.moved_at + wait);
        } else if more < CHANGE / 3.0 || self.must_move.is_some_and(|until| now <= until) {
            // Once stuck it takes less heat to be so still.
            self.must_move = None;
        }
        self.more = more;
        self.must_move.is_some_and(|until| now > until)
    }

    /// Believes a reading. A sensor that lies low is corrected by what it jumped; one that lies
    /// high is safe.
    fn correct(&mut self, at: f64, temperature: f64, Causes { inlet, sensed, .. }: Causes) {
        let (least, most) = self.soak.bounds();
        if self.offset < 0.0 && temperature - self.offset > inlet + most {
            // No heat can have made it so hot: what jumped was no lie, or a smaller one.
            let honest = temperature > inlet + least;
            self.offset = if honest { 0.0 } else { (temperature - inlet - most).min(0.0) };
        }
        if self.offset == 0.0 && sensed {
            self.soak.learn(temperature - inlet, at - self.believed.0);
        }
        self.believe(at, temperature - self.offset.min(0.0));
    }

    fn believe(&mut self, at: f64, temperature: f64) {
        // Readings across a gap say nothing of a trend.
        if at - self.believed.0 > TREND {
            self.filled = 0;
        }
        self.believed = (at, temperature);
        self.soak.known();
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
        let age = now.seconds() - self.believed.0;
        let silent = now.seconds() - self.sane_at > 2.0 * CURRENT;
        let most = if silent { f64::MAX } else { MARGIN + self.left + 1.5 * self.more.max(0.0) };
        self.believed.1 + (SLEW * (age - CURRENT).max(0.0)).min(most)
    }

    /// Kelvin per unit of heat (`soak.rs`), once that is sure.
    pub fn heat(&self) -> Option<f64> {
        self.soak.learnt()
    }

    /// What `load` adds to the die before the sensor shows it, in kelvin.
    pub fn surge(&self, load: f64) -> f64 {
        self.soak.surge(load)
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
