//! The thermal side of the guard: whatever a policy asks, and whatever becomes of the sensors,
//! the silicon stays below the red line for as long as the fans can keep it there.
//!
//! ```text
//!          worst case at the emergency threshold             worst case at the red line
//!   calm ─────────────────────────────────────► full ─────────────────────────────────────► red
//!     ▲    fans at full speed                     │ ▲    and lowest frequency, jobs throttled, │
//!     │                                           │ │    nobody admitted                     │
//!     └──── at the set point, `recovery` long ────┘ └──────── below the emergency again ───────┘
//! ```
//!
//! The worst case of a socket is its reading + age × slew (`sense/sensor.rs`): one that is lost, or
//! stands still though it should have moved (`sense/stuck.rs`), ends in `full` by itself, and then
//! in `red`, but where the hardware throttles before that: it sees the die itself. Nothing is
//! learnt, and nothing of this is a policy's. What a sensor shows too late, or not at all, is left
//! to the distance between set point and red line, and to the hardware's throttling.
//!
//! Drives are the fans' matter alone: full speed when one reaches its limit, whoever has the fans,
//! for a policy that took them took the board's care of the drives away too. From there on the fans
//! follow the drives' temperatures until none is near its limit, for a policy that cannot see them
//! would have them hot again, and the fans would swing.

use crate::guard::{Limits, trust::lasting};
use crate::sense::air::Surroundings;
use crate::sense::drives::Drives;
use crate::sense::estimate::UNHEARD;
use crate::sense::load::Load;
use crate::sense::sensor::Sensor;
use crate::sense::stuck::StuckAt;
use crate::sense::thresholds::{EMERGENCY, Thresholds};
use crate::sense::{QUANTUM, weight};
use crate::topology::Topology;
use crate::units::{Celsius, Hertz, Nanos};
use crate::{InForce, QosClass, Request, Signals};

/// What a reading that is rounded can hide.
const ROUNDING: Celsius = Celsius(QUANTUM);
/// Time in which a controller moves the fans once (EADC §VI-B).
const INTERVAL: Nanos = Nanos::from_secs(1);

/// Time constant of the duty for hot drives, in seconds: clear of a toggling digit, short against
/// the minutes in which a drive warms up.
const SMOOTH: f64 = 30.0;

/// Least share of the time that a throttled job keeps: nothing starves, whoever throttles.
pub const MIN_JOB_SHARE: f64 = 0.1;

/// Most that fans slow down per second, as duty: full to a third takes 13 s, a little more than
/// the lag with which sensors show that it was too much. Speeding up is not limited.
pub const SLOW_DOWN: f64 = 0.05;

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Calm,
    Full,
    Red,
}

/// One socket's sensor, and the heat that it should show.
#[derive(Debug, Clone, Copy)]
struct Socket {
    sensor: Sensor,
    stuck: StuckAt,
}

/// Keeps the thermal limits.
#[derive(Debug)]
pub struct Thermal {
    sockets: Vec<Socket>,
    surroundings: Surroundings,
    load: Load,
    drives: Drives,
    /// Duty for the drives since one was at its limit; 0 when none is near it any more.
    drive_floor: f64,
    set_point: Celsius,
    emergency: Celsius,
    red_line: Celsius,
    /// Where the hardware throttles; never, where nobody knows.
    throttle: Celsius,
    recovery: Nanos,
    state: State,
    /// For how long it has been at or below the set point.
    cool: Nanos,
    /// Share of frequency, job time that is given back since red; 1 when all of it is. What comes
    /// back at once warms the die by more than can be told from a fire.
    rein: f64,
    min_duty: Vec<f64>,
    frequencies: (Hertz, Hertz),
}

impl Thermal {
    pub fn new(topology: &Topology, limits: &Limits) -> Self {
        let thresholds = Thresholds::new(topology);
        let earlier = EMERGENCY - thresholds.emergency;
        let sensor = Sensor::new(thresholds.set_point - UNHEARD);
        let socket = Socket { sensor, stuck: StuckAt::default() };
        Self {
            sockets: vec![socket; usize::from(topology.sockets)],
            surroundings: Surroundings::default(),
            load: Load::new(topology),
            drives: Drives::new(topology, limits.drive),
            drive_floor: 0.0,
            set_point: thresholds.set_point,
            emergency: limits.emergency - earlier,
            red_line: limits.red_line - earlier,
            throttle: topology.throttle.unwrap_or(Celsius(f64::MAX)),
            recovery: limits.recovery,
            state: State::Calm,
            cool: Nanos::ZERO,
            rein: 1.0,
            min_duty: topology.fans.iter().map(|fan| fan.min_duty.clamp(0.0, 1.0)).collect(),
            frequencies: (topology.min_frequency(), topology.max_frequency()),
        }
    }

    /// One period. `in_force` is what left the guard last, `distrust` why policies are not
    /// followed.
    pub fn bound(
        &mut self,
        signals: &Signals,
        distrust: Option<&'static str>,
        topology: &Topology,
        request: &Request,
        in_force: &mut InForce,
    ) {
        self.surroundings.update(signals, &in_force.fan_duty);
        self.drives.update(signals);
        let worst = self.worst(signals);
        self.judge(worst, signals.period);
        self.judge_drives(signals.period.seconds());
        let rise = SLOW_DOWN * signals.period.seconds();
        self.rein = if self.state == State::Red { 0.0 } else { (self.rein + rise).min(1.0) };
        in_force.emergency = self.state != State::Calm || self.drive_floor >= 1.0;
        for fan in 0..self.min_duty.len() {
            let last = in_force.fan_duty.value(fan);
            let ruling = self.fan(fan, signals, last, distrust, request.fan_duty.get(fan));
            in_force.fan_duty.give(fan, request.fan_duty.wish(fan), ruling);
        }
        self.bound_ceilings(distrust, topology, request, in_force);
        self.bound_jobs(distrust, topology, request, in_force);
    }

    /// The hottest that a socket may be; `None` where there are none.
    fn worst(&mut self, signals: &Signals) -> Option<Celsius> {
        let Self { sockets, surroundings, load, throttle, .. } = self;
        let worst = |(index, socket): (usize, &mut Socket)| {
            let now = signals.now;
            if let Some(heat) = load.heat(signals, index) {
                socket.stuck.heat(heat, surroundings.air(), signals.period.seconds());
            }
            let reading = signals.cooling.sockets.get(index).copied().flatten();
            let new = socket.sensor.read(now, reading, surroundings.coldest());
            if let Some(temperature) = new {
                socket.stuck.read(now, temperature, surroundings.inlet());
            }
            let since = socket.stuck.since().unwrap_or(now);
            let said = socket.sensor.said();
            said.max(socket.sensor.worst_since(now, since).min(*throttle))
        };
        sockets.iter_mut().enumerate().map(worst).reduce(Celsius::max)
    }

    fn judge(&mut self, worst: Option<Celsius>, period: Nanos) {
        let Some(worst) = worst else { return };
        // What red took is back before the fans slow down.
        let cool = worst <= self.set_point && self.rein >= 1.0;
        self.cool = lasting(self.cool, cool, period);
        let rested = cool && self.cool >= self.recovery;
        self.state = match self.state {
            _ if worst + ROUNDING >= self.red_line => State::Red,
            State::Red if worst >= self.emergency => State::Red,
            State::Red => State::Full,
            _ if worst >= self.emergency => State::Full,
            State::Full if !rested => State::Full,
            _ => State::Calm,
        };
    }

    fn judge_drives(&mut self, dt: f64) {
        let over = self.drives.over();
        let wanted = over.map_or(0.0, |over| self.drives.duty(over));
        self.drive_floor = if over.is_some_and(|over| over >= 0.0) {
            1.0
        } else if self.drive_floor == 0.0 || wanted == 0.0 {
            0.0
        } else {
            self.drive_floor + (wanted - self.drive_floor) * weight(dt, SMOOTH)
        };
    }

    /// What a fan is given instead of what is `asked` for, if it is; `last` is what it had.
    fn fan(
        &self,
        fan: usize,
        signals: &Signals,
        last: Option<f64>,
        distrust: Option<&'static str>,
        asked: Option<f64>,
    ) -> Option<(Option<f64>, &'static str)> {
        let full = |reason| Some((Some(1.0), reason));
        match self.state {
            State::Red => return full("guard:red-line"),
            State::Full => return full("guard:emergency"),
            State::Calm if self.drive_floor >= 1.0 => return full("guard:hot-drive"),
            State::Calm => {}
        }
        if let Some(reason) = distrust {
            return Some((None, reason));
        }
        let duty = asked?;
        // A controller moves once in its interval.
        let interval = signals.period.max(INTERVAL).seconds();
        let reported = signals.cooling.fans.get(fan).and_then(|fan| fan.duty);
        let last = last.or(reported).filter(|d| (0.0..=1.0).contains(d));
        let slowest = last.unwrap_or(1.0) - SLOW_DOWN * interval;
        let (duty, reason) = if !duty.is_finite() {
            (1.0, "guard:absurd-request")
        } else if duty > 1.0 {
            (1.0, "guard:max-duty")
        } else if duty.max(slowest) < self.drive_floor {
            (self.drive_floor, "guard:hot-drive")
        } else if duty < slowest && slowest >= self.min_duty[fan] {
            (slowest, "guard:fan-rate")
        } else {
            (duty.max(self.min_duty[fan]), "guard:min-duty")
        };
        Some((Some(duty), reason))
    }

    /// Ceilings are frequencies that cores can run at; native is none.
    fn bound_ceilings(
        &self,
        distrust: Option<&'static str>,
        topology: &Topology,
        request: &Request,
        in_force: &mut InForce,
    ) {
        let (lowest, highest) = self.frequencies;
        let most = if self.rein < 1.0 { lowest + (highest - lowest) * self.rein } else { highest };
        let below = |ceiling: Hertz| {
            let found = topology.frequencies.iter().rev().find(|f| **f <= ceiling);
            found.copied().unwrap_or(lowest)
        };
        for socket in 0..in_force.frequency_cap.len() {
            let (asked, reason) = match (distrust, request.frequency_cap.get(socket)) {
                (Some(reason), _) => (None, reason),
                (None, Some(asked)) if !asked.0.is_finite() => (None, "guard:absurd-request"),
                (None, asked) => (asked, "guard:unavailable-frequency"),
            };
            let ruling = match self.state {
                State::Red => (Some(lowest), "guard:red-line"),
                _ if asked.unwrap_or(highest) > most => (Some(below(most)), "guard:recovering"),
                _ => (asked.map(below), reason),
            };
            let wish = request.frequency_cap.wish(socket);
            in_force.frequency_cap.give(socket, wish, Some(ruling));
        }
    }

    fn bound_jobs(
        &self,
        distrust: Option<&'static str>,
        topology: &Topology,
        request: &Request,
        in_force: &mut InForce,
    ) {
        let most = MIN_JOB_SHARE + (1.0 - MIN_JOB_SHARE) * self.rein;
        for job in 0..in_force.job_share.len() {
            let (asked, reason) = match (distrust, request.job_share.get(job)) {
                (Some(reason), _) => (None, reason),
                (None, Some(asked)) if !asked.is_finite() => (None, "guard:absurd-request"),
                (None, asked) => {
                    (asked.map(|share| share.clamp(MIN_JOB_SHARE, 1.0)), "guard:job-share")
                }
            };
            let ruling = match self.state {
                State::Red => (Some(MIN_JOB_SHARE), "guard:red-line"),
                _ if asked.unwrap_or(1.0) > most => (Some(most), "guard:recovering"),
                _ => (asked, reason),
            };
            in_force.job_share.give(job, request.job_share.wish(job), Some(ruling));
            let missing = |socket: u16| socket >= topology.sockets;
            let ruling = match (distrust, request.job_socket.get(job)) {
                (Some(reason), _) => Some((None, reason)),
                (None, Some(socket)) if missing(socket) => Some((None, "guard:no-such-socket")),
                (None, _) => None,
            };
            in_force.job_socket.give(job, request.job_socket.wish(job), ruling);
        }
        for class in 0..QosClass::ALL.len() {
            let ruling = match (self.state, distrust) {
                (State::Red, _) => Some((Some(false), "guard:red-line")),
                _ if self.rein < 1.0 => Some((Some(false), "guard:recovering")),
                (_, Some(reason)) => Some((None, reason)),
                _ => None,
            };
            in_force.admit.give(class, request.admit.wish(class), ruling);
        }
    }
}
