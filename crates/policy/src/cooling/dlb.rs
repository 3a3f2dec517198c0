//! Dynamic load balancing, the paper's default baseline: "thread migration to minimize the length
//! difference between task queues, but does not monitor temperatures. It uses a
//! proportional-integral (PI) fan controller and keeps all modules active" (EADC §VII).
//!
//! The fan loop is `pi.rs`, as good a one as we know how to build: a baseline that oscillates
//! would flatter what it is compared with.

use crate::cooling::estimate::Estimator;
use crate::cooling::pi::Pi;
use crate::cooling::placement::Placement;
use crate::cooling::{Interval, air, duty, set_fans};
use crate::topology::Topology;
use crate::{Policy, Request, Signals};

/// A fan loop that keeps the hottest socket at a target by what the sensors say.
#[derive(Debug, Clone)]
pub(super) struct DefaultFans {
    pub heat: Estimator,
    pi: Pi,
    interval: Interval,
    min_duty: f64,
}

impl DefaultFans {
    pub fn new(topology: &Topology) -> Self {
        Self {
            heat: Estimator::new(topology),
            pi: Pi::default(),
            interval: Interval::default(),
            min_duty: min_duty(topology),
        }
    }

    /// One period; returns the length of the interval that it ended, if it ended one.
    pub fn step(
        &mut self,
        signals: &Signals,
        request: &mut Request,
        reason: &'static str,
    ) -> Option<f64> {
        let now = duty(signals);
        self.heat.update(signals, air(signals, &signals.in_force.fan_duty));
        let dt = self.interval.due(signals.period)?;
        let error = self.heat.hottest()?.now - self.heat.thresholds().set_point;
        set_fans(request, self.pi.step(now, error.0, dt, (self.min_duty, 1.0)), reason);
        Some(dt)
    }
}

/// The smallest duty at which every fan turns.
pub(super) fn min_duty(topology: &Topology) -> f64 {
    topology.fans.iter().map(|fan| fan.min_duty).fold(0.0, f64::max)
}

/// The controller.
#[derive(Debug, Clone)]
pub struct Dlb {
    fans: DefaultFans,
    placement: Placement,
}

impl Dlb {
    /// DLB for `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let (fans, placement) = (DefaultFans::new(topology), Placement::new(topology));
        Self { fans, placement }
    }
}

impl Policy for Dlb {
    fn name(&self) -> &'static str {
        "dlb"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        if self.fans.step(signals, request, "dlb:temperature").is_some() {
            self.placement.by_number(signals, request, "dlb:queue-length");
        }
    }
}
