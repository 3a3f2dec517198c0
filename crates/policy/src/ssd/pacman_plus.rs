//! PACMAN-plus: our own variant. It keeps PACMAN's idea (caps follow measured power, §V-A) and
//! mends what its closed loop shows:
//!
//! * PACMAN raises a drive by one state per 5 s: 20 s from PS4 to PS0 while the burst lasts.
//!   Here a drive at its cap is served in the same `m_interval`, by as many states as fit.
//! * PACMAN takes power only from drives that do not use theirs. A drive that was idle while
//!   others took the budget stays at its lowest cap for as long as they are busy, far below
//!   SSPC. Here no drive that needs power is held below its SSPC cap for longer than one period.
//!
//! Each `m_interval`: what every drive wants, then a max-min fair division of the budget. It is a
//! function of the wants alone, so caps rest while they do.

use crate::PolicyError;
use crate::ssd::pacman::{N, Samples};
use crate::ssd::{CAP_TOLERANCE, PowerDesc, Sspc};
use crate::topology::{PowerState, Topology};
use crate::units::Watts;
use crate::{Policy, Request, Signals};

/// Share of its cap above which a drive is taken to be held back by it: under a cap the mean
/// over a period stays a little below. A design choice, not a fitted one.
const AT_CAP: f64 = 0.9;

/// Divides the budget max-min fairly by measured power, every period.
#[derive(Debug, Clone)]
pub struct PacmanPlus {
    budget: Watts,
    desc: PowerDesc,
    /// SSPC's states: what each drive may always have.
    fair: Vec<PowerState>,
    started: bool,
    power: Samples,
    /// The last `m_interval`'s.
    sample: Vec<Option<Watts>>,
    /// The state each drive wanted in each `m_interval` of PACMAN's window, for which it keeps
    /// what it last wanted; a ring, `N` for each drive.
    wants: Vec<PowerState>,
    slot: usize,
    /// Scratch, one per drive.
    want: Vec<PowerState>,
    ps: Vec<PowerState>,
}

impl PacmanPlus {
    /// For `budget`, or every drive in state 0 without one.
    ///
    /// # Errors
    /// A budget below the sum of the drives' lowest caps.
    pub fn new(topology: &Topology, budget: Option<Watts>) -> Result<Self, PolicyError> {
        let fair = Sspc::new(topology, budget)?.states().to_vec();
        let desc = PowerDesc::new(topology);
        let drives = desc.drives();
        Ok(Self {
            budget: budget.unwrap_or_else(|| desc.sum(&vec![0; drives])),
            desc,
            started: false,
            power: Samples::new(drives),
            sample: vec![None; drives],
            wants: vec![PowerState::MAX; drives * N],
            slot: 0,
            want: fair.clone(),
            ps: fair.clone(),
            fair,
        })
    }

    /// The state a drive wants by its last period: the fastest if its cap holds it back, else
    /// the deepest that would not; its fair share where it cannot be read.
    fn wanted(&self, d: usize, in_force: PowerState, power: Option<Watts>) -> PowerState {
        let Some(power) = power else { return self.fair[d] };
        let holds_back = |ps: PowerState| power > self.desc.cap(d, ps) * AT_CAP;
        if holds_back(in_force) {
            return 0;
        }
        (0..=self.desc.deepest(d)).rev().find(|ps| !holds_back(*ps)).unwrap_or(0)
    }

    /// What each drive wants: the fastest state that it wanted in its window. The cap that
    /// counts is the reported one: a write may take longer than a period.
    fn measure(&mut self, signals: &Signals) {
        for d in 0..self.ps.len() {
            let reported = signals.drives.get(d).and_then(|drive| drive.state);
            let in_force = reported.unwrap_or(signals.in_force.state(d));
            self.wants[d * N + self.slot] = self.wanted(d, in_force, self.sample[d]);
            let window = &self.wants[d * N..(d + 1) * N];
            self.want[d] = window.iter().copied().min().unwrap_or(0).min(self.desc.deepest(d));
        }
        self.slot = (self.slot + 1) % N;
    }

    /// First what is wanted of the fair shares (their sum fits by construction), then what is
    /// wanted beyond them, then the rest back to the idle drives, against the next burst.
    fn divide(&mut self) {
        for d in 0..self.ps.len() {
            self.ps[d] = self.want[d].max(self.fair[d]);
        }
        let left = self.budget - self.desc.sum(&self.ps);
        let left = raise(&self.desc, &mut self.ps, &self.want, left);
        raise(&self.desc, &mut self.ps, &self.fair, left);
    }
}

/// Raises each drive towards its `goal`, lowest caps first, as far as `left` watts go.
fn raise(desc: &PowerDesc, ps: &mut [PowerState], goal: &[PowerState], mut left: Watts) -> Watts {
    for level in desc.levels().iter().rev().copied() {
        for d in 0..ps.len() {
            let next = desc.state_at(d, level).max(goal[d]);
            let delta = desc.cap(d, next) - desc.cap(d, ps[d]);
            if next < ps[d] && delta <= left + CAP_TOLERANCE {
                left -= delta;
                ps[d] = next;
            }
        }
    }
    left
}

impl Policy for PacmanPlus {
    fn name(&self) -> &'static str {
        "pacman-plus"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        if self.started && self.power.add(&signals.drives, signals.period) {
            for (sample, power) in self.sample.iter_mut().zip(self.power.take()) {
                *sample = power;
            }
            self.measure(signals);
            self.divide();
        }
        // The period before the first step was under other caps: SSPC, as PACMAN starts.
        self.started = true;
        for (d, ps) in self.ps.iter().copied().enumerate() {
            let raised = ps < signals.in_force.state(d);
            let why = if raised { "pacman-plus:power-needed" } else { "pacman-plus:power-unused" };
            request.power_state.ask(d, ps, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    use super::*;
    use crate::DriveSignals;
    use crate::ssd::Pacman;
    use crate::ssd::testing::{any_topology, pm1743, step, topology};

    /// What a PM1743-like drive takes when idle (modelled: no cap goes below it).
    const IDLE: f64 = 5.0;

    /// Drives that would take `load` watts and get at most their cap; returns each drive's
    /// power and state, period by period.
    fn run(
        policy: &mut dyn Policy,
        server: &Topology,
        load: &[Vec<f64>],
    ) -> Vec<(Vec<f64>, Vec<PowerState>)> {
        let (mut signals, mut request) = (Signals::new(server), Request::new(server));
        let mut period = |load: &Vec<f64>| {
            let power: Vec<f64> = load
                .iter()
                .zip(signals.in_force.states())
                .zip(&server.drives)
                .map(|((load, ps), drive)| load.clamp(IDLE, drive.cap(ps).0.max(IDLE)))
                .collect();
            for (d, power) in power.iter().enumerate() {
                signals.drives[d].power = Some(Watts(*power));
                signals.drives[d].state = Some(signals.in_force.state(d));
            }
            (power, step(policy, &mut signals, &mut request))
        };
        load.iter().map(&mut period).collect()
    }

    fn pm1743s(drives: usize) -> Topology {
        topology(&vec![pm1743().to_vec(); drives])
    }

    /// Half a minute with two of four drives busy, half a minute with all of them.
    fn late_burst() -> Vec<Vec<f64>> {
        let mut load = vec![vec![24.0, 24.0, 5.0, 5.0]; 60];
        load.extend(vec![vec![24.0; 4]; 60]);
        load
    }

    #[test]
    fn a_late_drive_gets_its_share_where_pacman_starves_it() {
        let server = pm1743s(4);
        let budget = Some(Watts(56.0));
        let mut pacman = Pacman::new(&server, budget).unwrap();
        let states = run(&mut pacman, &server, &late_burst());
        assert_eq!(states[59].1, [2, 2, 4, 4], "18 + 18 + 9 + 9 W of 56");
        assert_eq!(states[119].1, [2, 2, 4, 4], "half a minute after all became busy");
        let mut plus = PacmanPlus::new(&server, budget).unwrap();
        let states = run(&mut plus, &server, &late_burst());
        assert_eq!(states[59].1, [2, 2, 4, 4]);
        assert_eq!(states[60].1, [3, 3, 3, 3], "one period after");
    }

    #[test]
    fn a_burst_gets_all_that_fits_in_one_period() {
        let server = pm1743s(4);
        let mut load = vec![vec![5.0; 4]; 30];
        load.extend(vec![vec![24.0, 5.0, 5.0, 5.0]; 4]);
        let mut plus = PacmanPlus::new(&server, Some(Watts(56.0))).unwrap();
        let states = run(&mut plus, &server, &load);
        assert_eq!(states[29].1, [3; 4], "nobody needs it: against the next burst");
        assert_eq!(states[30].1, [0, 4, 4, 4], "25 + 9 + 9 + 9 W of 56");
    }

    #[test]
    fn caps_rest_under_a_steady_load() {
        let server = pm1743s(8);
        let mut plus = PacmanPlus::new(&server, Some(Watts(112.0))).unwrap();
        let load = vec![vec![24.0, 17.0, 12.0, 8.0, 5.0, 5.0, 20.0, 24.0]; 80];
        let states = run(&mut plus, &server, &load);
        let settled = &states[2 * N].1;
        assert!(states[2 * N..].iter().all(|(_, ps)| ps == settled));
    }

    #[test]
    fn an_unreadable_drive_keeps_its_static_share() {
        let server = pm1743s(3);
        let mut plus = PacmanPlus::new(&server, Some(Watts(42.0))).unwrap();
        let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
        signals.drives[1].power = Some(Watts(5.0));
        signals.drives[2].power = Some(Watts(13.9));
        for _ in 0..2 {
            step(&mut plus, &mut signals, &mut request);
        }
        assert_eq!(step(&mut plus, &mut signals, &mut request), [3, 4, 2]);
    }

    #[test]
    fn a_drive_that_is_slow_to_obey_keeps_its_claim() {
        let server = pm1743s(3);
        let mut plus = PacmanPlus::new(&server, Some(Watts(43.0))).unwrap();
        let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
        signals.drives.fill(DriveSignals { power: Some(Watts(5.0)), ..Default::default() });
        // It takes the 9 W of its PS4, which says nothing of what it could use.
        signals.drives[0].power = Some(Watts(9.0));
        signals.drives[0].state = Some(4);
        step(&mut plus, &mut signals, &mut request);
        for _ in 0..3 * N {
            assert_eq!(step(&mut plus, &mut signals, &mut request), [0, 4, 4]);
        }
    }

    /// Bursty loads: each drive idle or busy for a few seconds at a time.
    fn any_load(drives: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
        let phase = (4..40_usize, prop_oneof![Just(IDLE), 8.0..26.0_f64]);
        let drive = prop::collection::vec(phase, 30).prop_map(|phases| {
            let load = phases.into_iter().flat_map(|(n, load)| std::iter::repeat_n(load, n));
            load.take(120).collect::<Vec<_>>()
        });
        prop::collection::vec(drive, drives).prop_map(|by_drive| {
            (0..120).map(|t| by_drive.iter().map(|d| d[t]).collect()).collect()
        })
    }

    proptest! {
        #[test]
        fn caps_within_the_budget_and_no_needy_drive_below_its_share(
            server in any_topology(),
            share in 0.0..1.0_f64,
            load in any_load(12),
        ) {
            let desc = PowerDesc::new(&server);
            let least = server.lowest_drive_budget();
            let budget = least + (desc.sum(&vec![0; desc.drives()]) - least) * share;
            let mut plus = PacmanPlus::new(&server, Some(budget)).unwrap();
            let fair = plus.fair.clone();
            let load: Vec<Vec<f64>> = load.iter().map(|l| l[..desc.drives()].to_vec()).collect();
            let runs = run(&mut plus, &server, &load);
            for t in 1..runs.len() {
                let ((_, before), (power, after)) = (&runs[t - 1], &runs[t]);
                prop_assert!(desc.sum(after) <= budget + CAP_TOLERANCE);
                for d in 0..desc.drives() {
                    let held_back = power[d] > desc.cap(d, before[d]).0 * AT_CAP;
                    prop_assert!(!held_back || after[d] <= fair[d], "drive {d} at {t}");
                }
            }
        }
    }

    /// Over many bursty loads the drives get more of the power they can use than with PACMAN,
    /// and than with SSPC. The watts here are modelled as a proxy of work done.
    #[test]
    fn delivers_more_than_pacman_under_bursts() {
        let server = pm1743s(16);
        let budget = Some(Watts(224.0));
        let (mut sspc, mut pacman, mut plus) = (0.0, 0.0, 0.0);
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..20 {
            let load = any_load(16).new_tree(&mut runner).unwrap().current();
            let delivered = |policy: &mut dyn Policy| {
                let periods = run(policy, &server, &load);
                periods.iter().flat_map(|(power, _)| power).map(|p| p - IDLE).sum::<f64>()
            };
            sspc += delivered(&mut Sspc::new(&server, budget).unwrap());
            pacman += delivered(&mut Pacman::new(&server, budget).unwrap());
            plus += delivered(&mut PacmanPlus::new(&server, budget).unwrap());
        }
        println!("delivered over SSPC: pacman {}, plus {}", pacman / sspc, plus / sspc);
        assert!(plus > pacman && plus > sspc, "{sspc} {pacman} {plus}");
    }
}
