//! Dynamic thermal management after Choi et al. (ISLPED 2007), as EADC §VII tells it: "migrate
//! workloads proactively to alleviate the maximum core temperature and the memory activity is
//! throttled when the temperatures approach the emergency threshold. They use the default
//! workload-independent PI based fan actuator".
//!
//! Of Choi et al. we could read the abstract only. Ours: the margin for a move, one move per
//! sensor lag, and where throttling starts and ends. There is no control for memory activity
//! here; the share of the time that the hot socket's jobs may run limits their memory accesses
//! too, together with everything else they do.

use crate::cooling::default_fans::DefaultFans;
use crate::cooling::placement::Placement;
use crate::sense::thresholds::Thresholds;
use crate::topology::Topology;
use crate::{Policy, Request, Signals};

/// Difference of temperatures that is worth a move, in kelvin: clear of rounding and noise.
const MARGIN: f64 = 4.0;
/// Distance to the emergency threshold that counts as approaching it, in kelvin: two quanta.
const APPROACH: f64 = 2.0;
/// Share of the time that is left to a hot socket's jobs. All at once and late, a deeper cut would
/// swing the die by more than the distance to the red line before the sensor shows it.
const THROTTLED: f64 = 0.75;

/// The controller.
#[derive(Debug, Clone)]
pub struct Dtm {
    fans: DefaultFans,
    placement: Placement,
    thresholds: Thresholds,
    /// Sockets whose jobs are throttled.
    throttled: Vec<bool>,
}

impl Dtm {
    /// DTM for `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let thresholds = Thresholds::new(topology);
        Self {
            fans: DefaultFans::new(topology, thresholds),
            placement: Placement::new(topology),
            thresholds,
            throttled: vec![false; usize::from(topology.sockets)],
        }
    }

    /// Reactive, and all or nothing per socket, with the set point as hysteresis.
    fn throttle(&mut self, signals: &Signals, request: &mut Request) {
        let Thresholds { set_point, emergency, .. } = self.thresholds;
        for (s, throttled) in self.throttled.iter_mut().enumerate() {
            // A sensor that is lost is the fans' matter.
            let Some(t) = self.fans.heat.socket(s).filter(|t| t.sound) else { continue };
            if t.now.0 >= emergency.0 - APPROACH {
                *throttled = true;
            } else if t.now <= set_point {
                *throttled = false;
            }
        }
        for (j, job) in signals.jobs.iter().enumerate().take(request.job_share.len()) {
            let hot = self.throttled.get(usize::from(job.socket)).copied().unwrap_or(false);
            let share = if hot && job.present { THROTTLED } else { 1.0 };
            request.job_share.ask(j, share, "dtm:near-emergency");
        }
    }
}

impl Policy for Dtm {
    fn name(&self) -> &'static str {
        "dtm"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let Some(dt) = self.fans.step(signals, request, "dtm:temperature") else { return };
        let seen = (signals, &self.fans.heat, dt);
        self.placement.off_the_hottest(seen, MARGIN, request, "dtm:hottest-socket");
        self.throttle(signals, request);
    }
}
