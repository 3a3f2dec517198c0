//! The thermal side of the guard: whatever a policy asks, and whatever becomes of the sensors,
//! the silicon stays below the red line for as long as any fan can keep it there.
//!
//! ```text
//!          worst case at the emergency threshold        worst case one lag ahead at the red line
//!   calm ─────────────────────────────────────► full ─────────────────────────────────────► red
//!     ▲    fans at full speed                     │ ▲    and lowest frequency, jobs throttled, │
//!     │                                           │ │    nobody admitted                     │
//!     └── at the set point, recovery_periods long ┘ └──── one lag ahead below the emergency ───┘
//! ```
//!
//! What load and air have done counts before the sensor shows it (`rise.rs`), for what a load
//! adds to a die at once can be more than what lies between emergency and red line; but not beyond
//! where the hardware throttles, which sees the die itself.
//!
//! Drives are the fans' matter alone: full speed when one reaches its limit, whoever has the fans,
//! for a policy that took them took the board's care of the drives away too. From there on the fans
//! follow the drives' temperatures until none is near its limit, for a policy that cannot see them
//! would have them hot again, and the fans would swing.
//!
//! What is compared is the worst case of `cooling/estimate.rs` and `cooling/drives.rs`: a sensor
//! that is lost, stuck or lying grows hotter by its age, and so ends in `full` by itself.

use crate::cooling::drives::Drives;
use crate::cooling::{
    EMERGENCY, Estimate, Estimator, INTERVAL, MIN_JOB_SHARE, QUANTUM, SLOW_DOWN, Thresholds, air,
    weight,
};
use crate::guard::Limits;
use crate::topology::Topology;
use crate::units::{Celsius, Hertz};
use crate::{Controls, FanControl, QosClass, Signals};

/// What a reading that is rounded can hide.
const ROUNDING: Celsius = Celsius(QUANTUM);

/// Time constant of the duty for hot drives, in seconds: clear of a toggling digit, short against
/// the minutes in which a drive warms up.
const SMOOTH: f64 = 30.0;

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Calm,
    Full,
    Red,
}

/// A control that the guard may hold back: what was asked for and what it left of that. Whoever
/// does not set it again still asks for the same.
#[derive(Debug, Clone, Copy)]
struct Held<T> {
    asked: T,
    left: T,
}

impl<T: Copy + PartialEq> Held<T> {
    fn new(native: T) -> Self {
        Self { asked: native, left: native }
    }

    /// What is asked for, when this is what stands there.
    fn asked(&mut self, stands: T) -> T {
        if stands != self.left {
            self.asked = stands;
        }
        self.asked
    }
}

/// Keeps the thermal limits.
#[derive(Debug)]
pub struct Thermal {
    heat: Estimator,
    drives: Drives,
    /// Duty for the drives since one was at its limit; 0 when none is near it any more.
    drive_floor: f64,
    set_point: Celsius,
    emergency: Celsius,
    red_line: Celsius,
    recovery: u32,
    state: State,
    /// Periods in a row at or below the set point.
    cool: u32,
    /// Share of frequency, job time that is given back since red; 1 when all of it is. What comes
    /// back at once warms the die by more than can be told from a fire.
    rein: f64,
    /// The fans when it last was calm.
    fans: Vec<FanControl>,
    ceilings: Vec<Held<Hertz>>,
    shares: Vec<Held<f64>>,
    admit: [Held<bool>; QosClass::ALL.len()],
    min_duty: Vec<f64>,
    frequencies: (Hertz, Hertz),
    sockets: u16,
}

impl Thermal {
    pub fn new(topology: &Topology, limits: &Limits) -> Self {
        let thresholds = Thresholds::new(topology);
        let earlier = EMERGENCY - thresholds.emergency;
        Self {
            heat: Estimator::new(topology),
            drives: Drives::new(topology, limits.drive),
            drive_floor: 0.0,
            set_point: thresholds.set_point,
            emergency: limits.emergency - earlier,
            red_line: limits.red_line - earlier,
            recovery: limits.recovery_periods.max(1),
            state: State::Calm,
            cool: 0,
            rein: 1.0,
            fans: vec![FanControl::Firmware; topology.fans.len()],
            ceilings: vec![Held::new(topology.max_frequency()); usize::from(topology.sockets)],
            shares: vec![Held::new(1.0); usize::from(topology.jobs)],
            admit: [Held::new(true); QosClass::ALL.len()],
            min_duty: topology.fans.iter().map(|fan| fan.min_duty.clamp(0.0, 1.0)).collect(),
            frequencies: (topology.min_frequency(), topology.max_frequency()),
            sockets: topology.sockets,
        }
    }

    /// One period. `before` is what left the guard last, `distrust` why policies are not followed.
    pub fn bound(
        &mut self,
        signals: &Signals,
        before: &[FanControl],
        distrust: Option<&'static str>,
        topology: &Topology,
        controls: &mut Controls,
    ) {
        self.heat.update(signals, air(signals, before));
        self.drives.update(signals);
        let was = self.calm();
        self.judge();
        self.judge_drives(signals.period.seconds());
        self.release_fans(was, controls);
        let rise = SLOW_DOWN * signals.period.seconds();
        self.rein = if self.state == State::Red { 0.0 } else { (self.rein + rise).min(1.0) };
        for (fan, before) in before.iter().enumerate() {
            self.bound_fan(fan, signals, *before, distrust, controls);
        }
        self.bound_ceilings(distrust, topology, controls);
        self.bound_jobs(distrust, controls);
    }

    /// Whether the fans are left to whoever has them.
    fn calm(&self) -> bool {
        self.state == State::Calm && self.drive_floor < 1.0
    }

    fn judge(&mut self) {
        let Some(Estimate { now, ahead, unseen, .. }) = self.heat.hottest() else { return };
        // What is not seen is not known better than what is read.
        let near = self.emergency + Celsius(QUANTUM);
        // What red took is back before the fans slow down.
        let cool = now <= self.set_point && self.rein >= 1.0;
        self.cool = if cool { self.cool.saturating_add(1) } else { 0 };
        self.state = match self.state {
            _ if ahead.max(unseen) + ROUNDING >= self.red_line => State::Red,
            State::Red if ahead >= self.emergency => State::Red,
            State::Red => State::Full,
            _ if now >= self.emergency || unseen >= near => State::Full,
            State::Full if self.cool < self.recovery => State::Full,
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

    /// Gives fans that the board had back to it: no policy would.
    fn release_fans(&mut self, was: bool, controls: &mut Controls) {
        let calm = self.calm();
        if was && !calm {
            self.fans.copy_from_slice(controls.fans());
        } else if !was && calm {
            for (fan, before) in self.fans.iter().enumerate() {
                if *before == FanControl::Firmware && controls.fans()[fan] == FanControl::Duty(1.0)
                {
                    controls.set_fan(fan, FanControl::Firmware, "guard:released");
                }
            }
        }
    }

    fn bound_fan(
        &self,
        fan: usize,
        signals: &Signals,
        before: FanControl,
        distrust: Option<&'static str>,
        controls: &mut Controls,
    ) {
        // A controller moves once in its interval.
        let interval = signals.period.max(INTERVAL).seconds();
        let reported = signals.cooling.fans.get(fan).and_then(|fan| fan.duty);
        let (control, reason) = match (self.state, distrust, controls.fans()[fan]) {
            (State::Red, _, _) => (FanControl::Duty(1.0), "guard:red-line"),
            (State::Full, _, _) => (FanControl::Duty(1.0), "guard:emergency"),
            _ if self.drive_floor >= 1.0 => (FanControl::Duty(1.0), "guard:hot-drive"),
            (State::Calm, Some(reason), _) => (FanControl::Firmware, reason),
            (State::Calm, None, FanControl::Firmware) => return,
            (State::Calm, None, FanControl::Duty(duty)) => {
                let last = before.duty().or(reported).filter(|d| (0.0..=1.0).contains(d));
                let slowest = last.unwrap_or(1.0) - SLOW_DOWN * interval;
                if !duty.is_finite() {
                    (FanControl::Duty(1.0), "guard:absurd-request")
                } else if duty > 1.0 {
                    (FanControl::Duty(1.0), "guard:max-duty")
                } else if duty.max(slowest) < self.drive_floor {
                    (FanControl::Duty(self.drive_floor), "guard:hot-drive")
                } else if duty < slowest && slowest >= self.min_duty[fan] {
                    (FanControl::Duty(slowest), "guard:fan-rate")
                } else {
                    (FanControl::Duty(duty.max(self.min_duty[fan])), "guard:min-duty")
                }
            }
        };
        controls.set_fan(fan, control, reason);
    }

    /// Ceilings are frequencies that cores can run at; native is none.
    fn bound_ceilings(
        &mut self,
        distrust: Option<&'static str>,
        topology: &Topology,
        controls: &mut Controls,
    ) {
        let (lowest, highest) = self.frequencies;
        let most = if self.rein < 1.0 { lowest + (highest - lowest) * self.rein } else { highest };
        for (socket, held) in self.ceilings.iter_mut().enumerate() {
            let asked = held.asked(controls.frequency_caps()[socket]);
            let (asked, reason) = match distrust {
                Some(reason) => (highest, reason),
                None if !asked.0.is_finite() => (highest, "guard:absurd-request"),
                None if topology.frequencies.contains(&asked) => (asked, "guard:released"),
                None => (asked, "guard:unavailable-frequency"),
            };
            let (asked, reason) = match self.state {
                State::Red => (lowest, "guard:red-line"),
                _ if asked > most => (most, "guard:recovering"),
                _ => (asked, reason),
            };
            let below = topology.frequencies.iter().rev().find(|f| **f <= asked);
            let ceiling = below.copied().unwrap_or(lowest);
            controls.set_frequency_cap(socket, ceiling, reason);
            held.left = ceiling;
        }
    }

    fn bound_jobs(&mut self, distrust: Option<&'static str>, controls: &mut Controls) {
        let most = MIN_JOB_SHARE + (1.0 - MIN_JOB_SHARE) * self.rein;
        for (job, held) in self.shares.iter_mut().enumerate() {
            let asked = held.asked(controls.job_shares()[job]);
            let (asked, reason) = match distrust {
                Some(reason) => (1.0, reason),
                None if !asked.is_finite() => (1.0, "guard:absurd-request"),
                None => (asked.clamp(MIN_JOB_SHARE, 1.0), "guard:job-share"),
            };
            let (share, reason) = match self.state {
                State::Red => (MIN_JOB_SHARE, "guard:red-line"),
                _ if asked > most => (most, "guard:recovering"),
                _ => (asked, reason),
            };
            controls.set_job_share(job, share, reason);
            held.left = share;
            let socket = controls.job_sockets()[job];
            if let Some(reason) = distrust {
                controls.set_job_socket(job, None, reason);
            } else if socket.is_some_and(|socket| socket >= self.sockets) {
                controls.set_job_socket(job, None, "guard:no-such-socket");
            }
        }
        for (class, held) in QosClass::ALL.into_iter().zip(&mut self.admit) {
            let asked = held.asked(controls.admits(class)) || distrust.is_some();
            let (admit, reason) = match (self.state, distrust) {
                (State::Red, _) => (false, "guard:red-line"),
                _ if self.rein < 1.0 => (false, "guard:recovering"),
                (_, Some(reason)) => (asked, reason),
                _ => (asked, "guard:released"),
            };
            controls.set_admit(class, admit, reason);
            held.left = admit;
        }
    }
}
