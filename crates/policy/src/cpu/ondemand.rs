//! Linux's *ondemand* governor, the baseline of PACER's evaluation (§III-C; §V, (b)).
//!
//! The paper prints `f_target = f_max · T_idle / T_total`, which would run an idle server at full
//! speed; its prose and the kernel mean the busy share. This is the kernel's law
//! (`drivers/cpufreq/cpufreq_ondemand.c`, `od_update`, with the default tunables):
//!
//! ```text
//! load > up_threshold    f = f_max
//! otherwise              f = f_min + load · (f_max − f_min), to the closest available one
//! ```
//!
//! where `load` is that of the busiest core of the frequency domain. Departures: a core group is
//! the frequency domain; the sampling period is ours (500 ms, the kernel's is some 10 ms); and
//! `load` is useful work. To the kernel a polling core is always busy, so on a server that polls
//! the real governor would never leave `f_max`.

use crate::cpu::closest;
use crate::topology::Topology;
use crate::units::Hertz;
use crate::{Policy, Request, Signals};

/// `up_threshold`: the kernel's default, 80 %.
pub const UP_THRESHOLD: f64 = 0.8;

/// The governor. Sets frequencies only; never parks a core.
#[derive(Debug, Clone)]
pub struct Ondemand {
    frequencies: Vec<Hertz>,
}

impl Ondemand {
    /// A governor for every core group of `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        Self { frequencies: topology.frequencies.clone() }
    }

    /// The kernel's law for one frequency domain.
    fn target(&self, load: f64) -> Option<Hertz> {
        let (min, max) = (*self.frequencies.first()?, *self.frequencies.last()?);
        if load > UP_THRESHOLD {
            return Some(max);
        }
        // `CPUFREQ_RELATION_C`.
        Some(closest(&self.frequencies, min + (max - min) * load))
    }
}

impl Policy for Ondemand {
    fn name(&self) -> &'static str {
        "ondemand"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let groups = request.frequency.len();
        for (g, group) in signals.groups.iter().enumerate().take(groups) {
            // Without a reading the governor does nothing; nor does the kernel's.
            let load = group.busiest.or(group.utilisation).filter(|u| (0.0..=1.05).contains(u));
            let Some(frequency) = load.and_then(|load| self.target(load)) else { continue };
            let busy = load.is_some_and(|load| load > UP_THRESHOLD);
            let reason = if busy { "ondemand:busy" } else { "ondemand:load" };
            request.frequency.ask(g, frequency, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Control;
    use crate::topology::{CoreRole, GroupSpec};

    fn topology() -> Topology {
        let group = |role| GroupSpec { role, cores: 8, min_cores: 1, socket: None };
        Topology {
            groups: vec![group(CoreRole::FrontEnd), group(CoreRole::ResourceVolume)],
            frequencies: [1.0e9, 1.5e9, 2.0e9].map(Hertz).to_vec(),
            ..Topology::default()
        }
    }

    /// What is asked for after one step with these loads of the busiest cores.
    fn run(busiest: [Option<f64>; 2]) -> Request {
        let topology = topology();
        let mut signals = Signals::new(&topology);
        let mut request = Request::new(&topology);
        for (group, busiest) in signals.groups.iter_mut().zip(busiest) {
            group.busiest = busiest;
            group.utilisation = busiest.map(|u| u / 2.0);
        }
        Ondemand::new(&topology).step(&signals, &mut request);
        request
    }

    #[test]
    fn the_kernel_s_law() {
        for (load, f) in [
            (0.0, 1.0e9),
            (0.2, 1.0e9),
            (0.25, 1.0e9), // 1.25 GHz: equally close, the lower
            (0.3, 1.5e9),
            (0.75, 1.5e9),
            (0.8, 2.0e9), // 1.8 GHz
            (0.801, 2.0e9),
            (1.0, 2.0e9),
        ] {
            assert_eq!(run([Some(load), None]).frequency.get(0), Some(Hertz(f)), "load {load}");
        }
    }

    #[test]
    fn each_group_follows_its_own_busiest_core() {
        let request = run([Some(0.1), Some(0.9)]);
        assert_eq!(request.frequency.get(0), Some(Hertz(1.0e9)));
        assert_eq!(request.frequency.get(1), Some(Hertz(2.0e9)));
    }

    #[test]
    fn nothing_sensed_or_nonsense_changes_nothing() {
        for load in [None, Some(f64::NAN), Some(-1.0), Some(7.0)] {
            assert!(!run([load, load]).asks(Control::Frequency));
        }
    }

    proptest! {
        #[test]
        fn frequency_grows_with_load_and_no_core_is_parked(a in 0.0..1.0, b in 0.0..1.0) {
            let request = run([Some(f64::min(a, b)), Some(f64::max(a, b))]);
            prop_assert!(request.frequency.get(0) <= request.frequency.get(1));
            prop_assert!(!request.asks(Control::ActiveCores));
        }
    }
}
