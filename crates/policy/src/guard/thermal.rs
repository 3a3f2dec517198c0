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
//! What is compared is the worst case of `cooling/estimate.rs`: a sensor that is lost, stuck or
//! lying grows hotter by its age, and so ends in `full` by itself.

use crate::cooling::{Estimate, Estimator, INTERVAL, MIN_JOB_SHARE, SET_POINT, SLOW_DOWN, air};
use crate::guard::Limits;
use crate::topology::Topology;
use crate::units::{Celsius, Hertz};
use crate::{Controls, FanControl, QosClass, Signals};

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Calm,
    Full,
    Red,
}

/// Keeps the thermal limits.
#[derive(Debug)]
pub struct Thermal {
    heat: Estimator,
    emergency: Celsius,
    red_line: Celsius,
    recovery: u32,
    state: State,
    /// Periods in a row at or below the set point.
    cool: u32,
    min_duty: Vec<f64>,
    frequencies: (Hertz, Hertz),
    sockets: u16,
}

impl Thermal {
    pub fn new(topology: &Topology, limits: &Limits) -> Self {
        Self {
            heat: Estimator::new(topology),
            emergency: limits.emergency,
            red_line: limits.red_line,
            recovery: limits.recovery_periods.max(1),
            state: State::Calm,
            cool: 0,
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
        self.judge();
        for (fan, before) in before.iter().enumerate() {
            self.bound_fan(fan, signals, *before, distrust, controls);
        }
        self.bound_ceilings(distrust, topology, controls);
        self.bound_jobs(distrust, controls);
    }

    fn judge(&mut self) {
        let Some(Estimate { now, ahead, .. }) = self.heat.hottest() else { return };
        self.cool = if now <= SET_POINT { self.cool.saturating_add(1) } else { 0 };
        self.state = match self.state {
            _ if ahead >= self.red_line => State::Red,
            State::Red if ahead >= self.emergency => State::Red,
            State::Red => State::Full,
            _ if now >= self.emergency => State::Full,
            State::Full if self.cool < self.recovery => State::Full,
            _ => State::Calm,
        };
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
            (State::Calm, Some(reason), _) => (FanControl::Firmware, reason),
            (State::Calm, None, FanControl::Firmware) => return,
            (State::Calm, None, FanControl::Duty(duty)) => {
                let last = before.duty().or(reported).filter(|d| (0.0..=1.0).contains(d));
                let slowest = last.unwrap_or(1.0) - SLOW_DOWN * interval;
                if !duty.is_finite() {
                    (FanControl::Duty(1.0), "guard:absurd-request")
                } else if duty > 1.0 {
                    (FanControl::Duty(1.0), "guard:max-duty")
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
        &self,
        distrust: Option<&'static str>,
        topology: &Topology,
        controls: &mut Controls,
    ) {
        let (lowest, highest) = self.frequencies;
        for socket in 0..controls.frequency_caps().len() {
            let asked = controls.frequency_caps()[socket];
            let (ceiling, reason) = match (self.state, distrust) {
                (State::Red, _) => (lowest, "guard:red-line"),
                (_, Some(reason)) => (highest, reason),
                _ if !asked.0.is_finite() => (highest, "guard:absurd-request"),
                _ => {
                    let below = topology.frequencies.iter().rev().find(|f| **f <= asked);
                    (below.copied().unwrap_or(lowest), "guard:unavailable-frequency")
                }
            };
            controls.set_frequency_cap(socket, ceiling, reason);
        }
    }

    fn bound_jobs(&self, distrust: Option<&'static str>, controls: &mut Controls) {
        for job in 0..controls.job_shares().len() {
            let asked = controls.job_shares()[job];
            let (share, reason) = match (self.state, distrust) {
                (State::Red, _) => (MIN_JOB_SHARE, "guard:red-line"),
                (_, Some(reason)) => (1.0, reason),
                _ if !asked.is_finite() => (1.0, "guard:absurd-request"),
                _ => (asked.clamp(MIN_JOB_SHARE, 1.0), "guard:job-share"),
            };
            controls.set_job_share(job, share, reason);
            let socket = controls.job_sockets()[job];
            if let Some(reason) = distrust {
                controls.set_job_socket(job, None, reason);
            } else if socket.is_some_and(|socket| socket >= self.sockets) {
                controls.set_job_socket(job, None, "guard:no-such-socket");
            }
        }
        for class in QosClass::ALL {
            match (self.state, distrust) {
                (State::Red, _) => controls.set_admit(class, false, "guard:red-line"),
                (_, Some(reason)) => controls.set_admit(class, true, reason),
                _ => {}
            }
        }
    }
}
