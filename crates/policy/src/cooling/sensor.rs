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
//! * **stuck**: it does not move although the load or the air has changed so much that it must, or
//!   although it was rising and nothing has changed that could end that. As if lost since then,
//!   but no hotter than what it did not follow can have brought about.
//!
//! What no single sensor can show stays open: an offset that creeps in, or one smaller than a
//! jump. The 10 K between the set point and the red line are for that.

use crate::Reading;
use crate::cooling::QUANTUM;
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
/// Longest time constant of a heat sink to reckon with, in seconds: a rise of a kelvin in a second
/// has so many to go.
const SINK: f64 = 250.0;
/// Time after which the heat of before is gone, in seconds.
const COOLED: f64 = 300.0;
/// What is reckoned with in any case when a sensor is stuck, in kelvin.
const MARGIN: f64 = 10.0;
/// Share of its rise over the inlet that a die may lose at once when its load ends.
const RELIEF: f64 = 0.25;
/// Change, in kelvin, that load or air must bring about before a reading that stands still is
/// doubted, and within how many seconds it must then move: a quarter of six quanta comes within a
/// third of a heat sink's time constant.
const CHANGE: f64 = 6.0;
const FOLLOW: f64 = 30.0;
/// Before this no sensor can be called stuck, in seconds: half as long again as the lag.
const SOONEST: f64 = 15.0;
/// A quantum in so many seconds is a rise that does not end by itself: with a heat sink's time
/// constant of one to two minutes, several kelvin are still to come.
const RISING: f64 = 25.0;
/// Span of the trend, in seconds.
const TREND: f64 = 15.0;
/// Readings kept for the trend.
const KEPT: usize = 16;

/// What should make a reading move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Causes {
    /// How busy the socket is, in any unit, averaged over some seconds.
    pub load: f64,
    /// Relative resistance to the air (see `pi.rs`).
    pub air: f64,
    /// Temperature of the air at the inlet, °C.
    pub inlet: f64,
    /// The load has fallen in the last seconds.
    pub relieved: bool,
}

/// A sensor and what is believed of it. Times in seconds since the start of the run.
#[derive(Debug, Clone)]
pub struct Sensor {
    /// The last reading, believed or not.
    heard: Option<(f64, f64)>,
    /// The last believed one.
    believed: (f64, f64),
    /// Sum of jumps that heat cannot explain.
    offset: f64,
    /// What was in force when the reading last moved, and when that was.
    moved_under: Option<Causes>,
    moved_at: f64,
    /// Whether that was upwards.
    up: bool,
    /// If it was rising steadily: how long the next move may take.
    rising: Option<f64>,
    /// How far a rise may still have had to go, in kelvin.
    left: f64,
    /// Since when there has been less heat.
    cooler: Option<f64>,
    /// Most that what it did not follow can have heated by, in kelvin.
    most: f64,
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
            moved_under: None,
            moved_at: now.seconds(),
            up: false,
            rising: None,
            left: 0.0,
            cooler: None,
            most: MARGIN,
            must_move: None,
            trend: [(0.0, 0.0); KEPT],
            next: 0,
            filled: 0,
        }
    }

    /// Takes what was read, if anything was.
    pub fn update(&mut self, now: Nanos, reading: Option<Reading>, causes: Causes) {
        let now = now.seconds();
        // Nothing that runs is much colder than the air it takes in.
        let sane = |r: &Reading| (causes.inlet - 10.0..=130.0).contains(&r.temperature.0);
        let reading = reading.filter(sane).map(|r| (r.at.seconds(), r.temperature.0));
        let Some((at, temperature)) = reading.filter(|(at, _)| *at <= now) else { return };
        if self.heard.is_some_and(|(before, _)| at <= before) {
            return;
        }
        let step = self.heard.map_or(f64::MAX, |(_, before)| temperature - before);
        let moved = (step.abs() >= QUANTUM / 2.0, step > 0.0);
        self.jump(at, temperature, causes);
        self.heard = Some((at, temperature));
        self.follow(now, temperature, moved, causes);
        let stuck = self.must_move.is_some_and(|until| now > until);
        if !stuck {
            // A sensor that lies low is corrected by what it jumped; one that lies high is safe.
            self.believe(at, temperature - self.offset.min(0.0));
        }
    }

    fn jump(&mut self, at: f64, temperature: f64, causes: Causes) {
        let Some((before, last)) = self.heard else { return };
        let (dt, jump) = (at - before, temperature - last);
        let relief = causes.relieved && jump < 0.0 && self.offset >= 0.0;
        let relief = if relief { RELIEF * (last - causes.inlet).max(0.0) } else { 0.0 };
        if self.offset < 0.0 && jump > JUMP {
            // The end of a lie, be it after a gap.
            self.offset = (self.offset + jump).min(0.0);
        } else if jump.abs() > JUMP + JUMP_RATE * dt + relief {
            self.offset += jump;
        }
    }

    /// Keeps an eye on whether the reading moves when it must.
    fn follow(&mut self, now: f64, temperature: f64, (moved, up): (bool, bool), causes: Causes) {
        let under = *self.moved_under.get_or_insert(causes);
        // At rest the rise over the inlet goes with the load, and about half of it with the air.
        let load = causes.load.max(1e-9) / under.load.max(1e-9) - 1.0;
        let air = (causes.air / under.air - 1.0) / 2.0;
        let ends = load < -0.01 || air < -0.01;
        if moved {
            let took = now - self.moved_at;
            let alike = up && self.up && took <= RISING && !ends;
            self.rising = alike.then_some((2.0 * took).max(FOLLOW));
            self.left = if up && took <= RISING { SINK / took.max(1.0) } else { 0.0 };
            (self.moved_under, self.must_move, self.up) = (Some(causes), None, up);
            (self.moved_at, self.most, self.cooler) = (now, MARGIN, None);
            return;
        }
        // Either for itself: where one makes up for the other it does so later, not at once.
        let above = (temperature - causes.inlet).max(0.0);
        let change = load.abs().max(air.abs()) * above;
        if change >= CHANGE {
            // The larger the change the sooner it shows, but not before the lag has passed.
            let until = now + (FOLLOW * CHANGE / change).max(SOONEST);
            self.must_move = Some(self.must_move.unwrap_or(f64::MAX).min(until));
        } else if let Some(wait) = self.rising
            && !ends
        {
            self.must_move.get_or_insert(self.moved_at + wait);
        } else if self.must_move.is_some_and(|until| now <= until) {
            self.must_move = None;
        }
        let heat = (1.0 + load) * (1.0 + air) - 1.0;
        let due = 1.5 * heat.max(0.0) * above + self.left;
        self.most = self.most.max(MARGIN + due);
        // With less heat for so long it cannot be warmer than it said, stuck or not.
        let cooler = self.cooler.take().unwrap_or(now);
        self.cooler = (heat <= 0.0).then_some(cooler);
        if heat <= 0.0 && now - cooler > COOLED {
            (self.must_move, self.rising, self.left) = (None, None, 0.0);
            self.most = MARGIN;
        }
    }

    fn believe(&mut self, at: f64, temperature: f64) {
        // Readings across a gap say nothing of a trend.
        if at - self.believed.0 > TREND {
            self.filled = 0;
        }
        self.believed = (at, temperature);
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
        let silent = self.heard.is_none_or(|(at, _)| now.seconds() - at > 2.0 * CURRENT);
        let most = if silent { f64::MAX } else { self.most };
        self.believed.1 + (SLEW * (age - CURRENT).max(0.0)).min(most)
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
