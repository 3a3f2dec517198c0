//! "During periods of significant disk activity, we only allow fans to spin as fast as the
//! specified limit. During periods of low disk activity, the limit on fan speed is lifted"
//! (§VI-B). The limit is the knee of the curve, where zone Z2 begins. EADC holds it whatever the
//! temperature: jobs are throttled, and "as the last resort" frequencies lowered.
//!
//! Ours, for `eadc-plus`, yields. When throttling alone cannot keep the set point, the fans get
//! more, one setting of Z2 at a time: "at thresholds between some fan step n and n+1, the
//! controller assigns the minimum fan speed". Near the emergency threshold no disk matters and the
//! limit is gone until it is cool; when that happens again soon it comes back a setting higher, or
//! it would happen for ever.

use crate::cooling::eadc::Curve;
use crate::sense::thresholds::Thresholds;
use crate::sense::{LAG, QUANTUM};
use crate::units::Celsius;

/// Distance below the set point at which a fan step is given back, in kelvin: more than what
/// one step moves the temperature by where fans are fast.
const RELAXED: Celsius = Celsius(5.0);
/// How long it must have been so, in seconds: heat sinks are slow, and a step given back too soon
/// comes again.
const PATIENCE: f64 = 300.0;
/// Emergencies that follow each other sooner are no accident, in seconds.
const AGAIN: f64 = 600.0;

/// The limit in force.
#[derive(Debug, Clone)]
pub struct FanCap {
    /// Those at which it yields, if it does.
    yields: Option<Thresholds>,
    /// Settings above the knee.
    level: usize,
    /// Seconds since the level changed, and for which it could be lower.
    since: f64,
    relaxed: f64,
    /// Seconds since the last emergency began, if there was one.
    last: Option<f64>,
    emergency: bool,
}

impl FanCap {
    /// One that yields at these thresholds, or never.
    pub fn new(yields: Option<Thresholds>) -> Self {
        let (level, since, relaxed) = (0, 0.0, 0.0);
        Self { yields, level, since, relaxed, last: None, emergency: false }
    }

    /// The limit for an interval of `dt` seconds. `hot` is the temperature, `exhausted` says that
    /// no job can be throttled further.
    pub fn limit(
        &mut self,
        curve: &Curve,
        busy: bool,
        (hot, exhausted): (Celsius, bool),
        dt: f64,
    ) -> f64 {
        let Some(Thresholds { set_point, emergency, .. }) = self.yields else {
            return if busy { curve.knee() } else { 1.0 };
        };
        let before = self.emergency;
        self.emergency = hot >= emergency - Celsius(QUANTUM)
            || (before && hot > set_point - Celsius(2.0 * QUANTUM));
        if !busy {
            *self = Self { emergency: self.emergency, ..Self::new(self.yields) };
            return 1.0;
        }
        self.since += dt;
        self.last = self.last.map(|last| last + dt);
        let again = self.emergency && !before && self.last.is_some_and(|last| last < AGAIN);
        if self.emergency && !before {
            self.last = Some(0.0);
        }
        self.relaxed = if hot < set_point - RELAXED { self.relaxed + dt } else { 0.0 };
        let settled = self.since >= 2.0 * LAG.seconds();
        let failed = again || (exhausted && hot > set_point);
        if settled && failed && self.level + 1 < curve.levels().len() {
            (self.level, self.since) = (self.level + 1, 0.0);
        } else if self.relaxed >= PATIENCE && self.level > 0 {
            (self.level, self.since, self.relaxed) = (self.level - 1, 0.0, 0.0);
        }
        if self.emergency {
            return 1.0;
        }
        curve.levels().get(self.level).copied().unwrap_or(1.0)
    }

    /// Whether the limit has been given up because of the temperature.
    pub fn emergency(&self) -> bool {
        self.emergency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn the_papers_cap_is_held_whatever_the_temperature_and_ours_yields() {
        let curve = Curve::new(vec![(0.0, 1.0), (0.4, 1.0), (0.6, 0.8), (1.0, 0.4)]).unwrap();
        let limits = |yields: Option<Thresholds>| {
            let mut cap = FanCap::new(yields);
            let mut limit = |hot| cap.limit(&curve, true, (Celsius(hot), false), 1.0);
            [80.0, 91.0, 80.0].map(&mut limit)
        };
        assert_eq!(limits(None), [0.4; 3]);
        let usual = Thresholds::new(&Topology::default());
        assert_eq!(limits(Some(usual)), [0.4, 1.0, 0.4]);
        assert_eq!(FanCap::new(None).limit(&curve, false, (Celsius(91.0), false), 1.0), 1.0);
    }
}
