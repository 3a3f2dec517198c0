//! Freq Adaptor: the fine-grained method, DVFS (§IV-C).
//!
//! The paper prints `f_desired = f_cur + γ · loss_distance`. A positive loss distance is slack, and
//! with slack this would *raise* the frequency, although the adaptor is there to use the slack up
//! ("refines the system's power consumption, aligning it with ... plf") and the Core Adaptor's
//! formula of the same shape turns slack into fewer cores. The sign is a slip; here
//!
//! ```text
//! f_desired = f_cur − γ · loss_distance
//! ```
//!
//! `γ` is left to be chosen. If latency were all CPU time, and so proportional to 1/f, the loss
//! would reach `plf` at f = f_cur · (1 + loss_cur) / (1 + plf), which is the law above with
//! `γ = f_cur · plf / (1 + plf)`. That is the default: one step never exceeds `plf` by more than
//! queueing adds, for any `plf`. The setting scales it.
//!
//! The way down goes to the closest available frequency: since a part of the latency is not CPU
//! time, half a step too far mostly keeps `plf`, and where it does not, `memory.rs` remembers. The
//! way up goes to the next one above, so at least one step when `plf` is broken.

use crate::units::Hertz;

/// `γ` in hertz: `share` of the step that uses `plf` up where latency is proportional to 1/f.
pub(super) fn gamma(share: f64, f_cur: Hertz, plf: f64) -> Hertz {
    f_cur * (share * plf / (1.0 + plf))
}

/// `f_desired = f_cur − γ · loss_distance`.
pub(super) fn desired(f_cur: Hertz, gamma: Hertz, loss_distance: f64) -> Hertz {
    f_cur - gamma * loss_distance
}

/// The lowest frequency at which the busiest group, at utilisation `u` now, stays below `u_max`.
pub(super) fn bearable(f_cur: Hertz, u: f64, u_max: f64) -> Hertz {
    f_cur * (u / u_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::pacer::loss::{loss_cur, loss_distance};

    #[test]
    fn slack_lowers_and_loss_raises() {
        let f = Hertz(2e9);
        assert_eq!(desired(f, Hertz(1e8), 0.5), Hertz(1.95e9));
        assert_eq!(desired(f, Hertz(1e8), -0.5), Hertz(2.05e9));
        assert_eq!(desired(f, Hertz(1e8), 0.0), f);
    }

    #[test]
    fn one_step_reaches_plf_where_latency_is_all_cpu_time() {
        for plf in [0.05, 0.2, 1.0] {
            let (f, loss) = (Hertz(2.6e9), plf / 4.0);
            let next = desired(f, gamma(1.0, f, plf), loss_distance(plf, loss));
            let latency = (1.0 + loss) * (f / next);
            assert!((loss_cur(latency, 1.0) - plf).abs() < 1e-9);
        }
    }

    #[test]
    fn utilisation_bounds_the_frequency() {
        assert_eq!(bearable(Hertz(2e9), 0.35, 0.7), Hertz(1e9));
    }
}
