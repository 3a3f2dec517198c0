//! The fan loop of the baselines that do not think about fans: "proportional-integral (PI)" (EADC
//! §VII). It is `pi.rs`, as good a one as we know how to build: a baseline that oscillates would
//! flatter what it is compared with.

use crate::cooling::pi::Pi;
use crate::cooling::{Interval, duty, set_fans};
use crate::sense::estimate::Estimator;
use crate::sense::thresholds::Thresholds;
use crate::topology::Topology;
use crate::units::Celsius;
use crate::{Request, Signals};

/// A fan loop that keeps the hottest socket at a target by what the sensors say.
#[derive(Debug, Clone)]
pub(super) struct DefaultFans {
    pub heat: Estimator,
    pi: Pi,
    interval: Interval,
    min_duty: f64,
    set_point: Celsius,
}

impl DefaultFans {
    pub fn new(topology: &Topology, thresholds: Thresholds) -> Self {
        Self {
            heat: Estimator::new(topology),
            pi: Pi::default(),
            interval: Interval::default(),
            min_duty: topology.min_duty(),
            set_point: thresholds.set_point,
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
        self.heat.update(signals);
        let dt = self.interval.due(signals.period)?;
        let error = self.heat.hottest()?.now - self.set_point;
        set_fans(request, self.pi.step(now, error.0, dt, (self.min_duty, 1.0)), reason);
        Some(dt)
    }
}
