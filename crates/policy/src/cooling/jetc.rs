//! Joint energy, thermal and cooling management after Ayoub et al. (HPCA 2012): placement and
//! fan speed decided together, at the lowest fan speed that keeps the limit. It knows nothing of
//! disks.
//!
//! * **CPU actuator**: "saves cooling energy by reducing the hot spots between and within the CPU
//!   sockets": `Placement::by_heat`, before the fans. Within a socket there is one sensor here.
//! * **Memory actuator** (clustering of pages): nothing here can move pages. Left out.
//! * **Fans**: JETC "tends to operate closer to peak thermal bounds than the default" and "allows
//!   average temperatures to rise above the thermal set point" (EADC §VII). No number is given;
//!   ours is two quanta above it, three below the emergency threshold. The temperature it acts on
//!   is one sensor lag ahead ("Predict and act", EADC's [24]).

use crate::cooling::pi::Pi;
use crate::cooling::placement::Placement;
use crate::cooling::{Interval, duty, set_fans};
use crate::sense::QUANTUM;
use crate::sense::estimate::Estimator;
use crate::sense::thresholds::Thresholds;
use crate::topology::Topology;
use crate::units::Celsius;
use crate::{Policy, Request, Signals};

/// What JETC lets the hottest socket reach above the set point.
const ABOVE: Celsius = Celsius(2.0 * QUANTUM);
/// Difference of temperatures that is worth a move, in kelvin: clear of rounding and noise.
const MARGIN: f64 = 3.0;

/// The controller.
#[derive(Debug, Clone)]
pub struct Jetc {
    heat: Estimator,
    pi: Pi,
    placement: Placement,
    interval: Interval,
    min_duty: f64,
    target: Celsius,
}

impl Jetc {
    /// JETC for `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        Self {
            heat: Estimator::new(topology),
            pi: Pi::default(),
            placement: Placement::new(topology),
            interval: Interval::default(),
            min_duty: topology.min_duty(),
            target: Thresholds::new(topology).set_point + ABOVE,
        }
    }
}

impl Policy for Jetc {
    fn name(&self) -> &'static str {
        "jetc"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let now = duty(signals);
        self.heat.update(signals);
        let Some(dt) = self.interval.due(signals.period) else { return };
        let Some(hottest) = self.heat.hottest() else { return };
        let seen = (signals, &self.heat, dt);
        self.placement.by_heat(seen, MARGIN, request, "jetc:hot-spot");
        let error = hottest.ahead - self.target;
        let next = self.pi.step(now, error.0, dt, (self.min_duty, 1.0));
        set_fans(request, next, "jetc:temperature");
    }
}
