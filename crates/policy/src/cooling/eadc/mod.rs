//! Environment Aware Data Control: cooling that knows what fan vibration costs the disks (EADC
//! §VI). A finite state machine "triggered by thermal, power and tachometer feedback":
//!
//! ```text
//!              disks busy                     too hot at the cap
//!   thermal ──────────────► capped ──────────────────────────────► throttling
//!  (Z1, JETC) ◄────────────       ◄──────────────────────────────
//!                disks idle         jobs have their time back          │ emergency threshold
//!                                                                      ▼
//!                                                   DVFS, as the last resort
//! ```
//!
//! | file | idea |
//! |---|---|
//! | `curve.rs` | the characterisation curve, zones Z1 and Z2 by slope, Fig. 5 |
//! | `disks.rs` | significant disk activity, how much each job uses the disks |
//! | `cpu_cap.rs` | how much of the processors' work may be done, by temperature |
//! | `throttle.rs` | progressive throttling of the jobs that use the disks least |
//! | `stability.rs` | the global controller over fans and CPU cap, §VI-C |
//! | `optimum.rs` | the optimal operating temperature, §VI-A and Fig. 8 |
//! | `admission.rs` | admission by QoS class and thermal state |
//! | `dvfs.rs` | the last resort |
//! | `feed_forward.rs` | airflow for drives before they are too warm (ours) |
//! | `plus.rs`, `observer.rs` | `eadc-plus` (ours): one choice in place of these loops |
//!
//! Departures from the paper:
//!
//! * **"Control returns to the default JETC policy"** while disks are idle: its placement and its
//!   look-ahead do, at the temperature of §VI-A instead of JETC's own. The two sections ask for
//!   different ones, and JETC's is the one that §VII faults.
//! * **Placement** is JETC's throughout; the paper says nothing of its own.
//! * **10 ms scheduling** is the plant's: a policy sets each job's share of the time, the plant
//!   cuts it into slices.
//! * **Without a curve** there is no zone Z2 and no cap: nothing is assumed about disks that
//!   nobody has characterised.

mod admission;
mod cpu_cap;
mod curve;
mod disks;
mod dvfs;
mod feed_forward;
mod observer;
mod optimum;
mod params;
mod plus;
mod stability;
mod throttle;

pub use curve::{Curve, CurveError};
pub use params::EadcParams;
pub use plus::{EadcPlus, PlusParams};

use crate::cooling::pi::{Gains, Pi};
use crate::cooling::placement::Placement;
use crate::cooling::{Interval, duty, set_fans};
use crate::guard::MIN_JOB_SHARE;
use crate::sense::estimate::{Estimate, Estimator};
use crate::topology::Topology;
use crate::units::{Celsius, Hertz};
use crate::{Policy, PolicyError, Request, Signals};

use admission::Admission;
use cpu_cap::CpuCap;
use disks::Disks;
use dvfs::Dvfs;
use feed_forward::FeedForward;
use optimum::Optimum;
use stability::{Fans, Stability};
use throttle::Throttle;

/// The controller.
#[derive(Debug, Clone)]
pub struct Eadc {
    curve: Option<Curve>,
    min_duty: f64,
    highest: Hertz,
    interval: Interval,
    heat: Estimator,
    pi: Pi,
    set_point: Celsius,
    target: f64,
    /// Duty floor for the drives, and whether one of them needs it above the cap.
    drives: (f64, bool),
    hot_spot: f64,
    disks: Disks,
    cap: CpuCap,
    throttle: Throttle,
    stability: Stability,
    optimum: Optimum,
    placement: Placement,
    admission: Admission,
    dvfs: Dvfs,
    feed_forward: FeedForward,
}

impl Eadc {
    /// EADC for `topology`, whose disks were characterised by `curve`.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(
        topology: &Topology,
        curve: Option<Curve>,
        params: &EadcParams,
    ) -> Result<Self, PolicyError> {
        params.validate()?;
        let thresholds = params.thresholds(topology);
        let gains = |p: f64, reset: f64| Gains { p, i: p / reset };
        let of_cap = gains(params.cap_gain, params.cap_reset);
        Ok(Self {
            curve,
            min_duty: topology.min_duty(),
            highest: topology.max_frequency(),
            interval: Interval::default(),
            heat: Estimator::new(topology),
            pi: Pi::new(gains(params.fan_gain, params.fan_reset)),
            set_point: thresholds.set_point,
            target: thresholds.set_point.0,
            drives: (0.0, false),
            hot_spot: params.hot_spot,
            disks: Disks::new(topology),
            cap: CpuCap::new((MIN_JOB_SHARE, thresholds.set_point), of_cap, params.cap_rise),
            throttle: Throttle::new(topology.jobs),
            stability: Stability::default(),
            optimum: Optimum::new(topology, thresholds.set_point),
            placement: Placement::new(topology),
            admission: Admission::new(thresholds),
            dvfs: Dvfs::new(topology, thresholds),
            feed_forward: FeedForward::new(topology),
        })
    }

    /// What has to be watched in every period.
    fn sense(&mut self, signals: &Signals, duty: f64) {
        let in_force = &signals.in_force;
        self.heat.update(signals);
        self.disks.update(signals);
        self.drives = self.feed_forward.update(signals, duty, self.heat.air());
        // What work draws at another frequency would count as leakage.
        if in_force.ceiling(None) < self.highest {
            self.optimum.skip();
        } else {
            self.optimum.update(signals, &self.heat, duty);
        }
    }

    /// The most that the fans may have in this interval. "During periods of significant disk
    /// activity, we only allow fans to spin as fast as the specified limit" (§VI-B): the knee of
    /// the curve, where zone Z2 begins, whatever the temperature.
    fn limit(&self) -> f64 {
        let knee = self.curve.as_ref().filter(|_| self.disks.busy()).map_or(1.0, Curve::knee);
        let (floor, over) = self.drives;
        knee.max(self.min_duty).max(if over { floor } else { 0.0 })
    }

    /// Fans and CPU cap, decided together.
    fn cool(
        &mut self,
        (duty, limit, dt): (f64, f64, f64),
        hottest: Estimate,
        request: &mut Request,
    ) {
        // Nobody is throttled while the fans could still do it without harm to the disks.
        let throttled = self.cap.throttled();
        let low = if throttled { limit } else { self.min_duty.max(self.drives.0).min(limit) };
        let target = self.optimum.target();
        if target != self.target {
            self.target = target;
            self.pi.restart();
        }
        let (hot, mut pi) = (hottest.ahead.0, self.pi);
        // The loop may ask for more than the limit: that is what throttling answers to.
        let wanted = pi.step(duty, hot - target, dt, (low, 1.0));
        // Nobody is throttled for a sensor that is lost.
        let read = self.heat.hottest_read().map_or(self.set_point, |t| t.ahead);
        self.cap.propose(read, dt);
        let fans = Fans { duty, wanted, limit };
        let (next, turn) = self.stability.decide(fans, &self.cap, dt);
        // An answer that had to wait is still owed: the loop keeps the error it last acted on.
        if next == wanted || next >= limit {
            self.pi = pi;
        }
        self.cap.settle(turn, dt);
        let next = if throttled { next } else { next.max(low) };
        set_fans(request, next, self.reason(next, limit));
    }

    fn reason(&self, duty: f64, limit: f64) -> &'static str {
        if duty >= limit && limit < 1.0 {
            "eadc:disk-driven"
        } else if duty <= self.drives.0 {
            "eadc:drive-load"
        } else {
            "eadc:temperature-driven"
        }
    }
}

impl Policy for Eadc {
    fn name(&self) -> &'static str {
        "eadc"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let now = duty(signals);
        self.sense(signals, now);
        let Some(dt) = self.interval.due(signals.period) else { return };
        let Some(hottest) = self.heat.hottest() else { return };
        let limit = self.limit();
        self.cool((now, limit, dt), hottest, request);
        self.throttle.apply(self.cap.now(), &self.disks, signals, request);
        self.dvfs.step(&self.heat, dt, request);
        let seen = (signals, &self.heat, dt);
        self.placement.by_heat(seen, self.hot_spot, request, "eadc:hot-spot");
        let read = self.heat.hottest_read().map_or(self.set_point, |t| t.now);
        let state = (read, self.cap.throttled());
        self.admission.decide((signals, &self.disks, dt), state, request);
    }
}
