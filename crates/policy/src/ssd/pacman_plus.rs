//! PACMAN-plus: our own variant. It keeps PACMAN's idea (caps follow measured power, §V-A) and
//! mends what its closed loop shows:
//!
//! * PACMAN raises a drive by one state per 5 s: 20 s from PS4 to PS0 while the burst lasts.
//!   Here a drive at its cap is served in the same `m_interval`, by as many states as fit.
//! * PACMAN takes power only from drives that do not use theirs. A drive that was idle while
//!   others took the budget stays at its lowest cap for as long as they are busy, far below
//!   SSPC. Here no drive that needs power is held below its SSPC cap for longer than one period.
//! * PACMAN gives what it saved to whom draws most. Here it goes to whom it serves most bytes.
//!
//! Each `m_interval`: what every drive wants, then who gets it.

use crate::PolicyError;
use crate::ssd::pacman::{N, Samples};
use crate::ssd::{CAP_TOLERANCE, PowerDesc, Sspc};
use crate::topology::{PowerState, Topology};
use crate::units::Watts;
use crate::{Policy, Request, Signals};

/// A drive that draws this share of what drives like it draw at most in its state is held back by
/// it. Drives that their caps hold back are less than 1 % apart.
const AT_CEILING: f64 = 0.98;

/// Share of a cap that a drive held back by it draws at least, before any was seen.
const LEAST_CEILING: f64 = 0.9;

/// Divides the budget by measured power and bytes, every period.
#[derive(Debug, Clone)]
pub struct PacmanPlus {
    budget: Watts,
    desc: PowerDesc,
    /// SSPC's states: what each drive may always have.
    fair: Vec<PowerState>,
    /// The first drive with the same caps: what is learnt of one holds for all like it.
    like: Vec<usize>,
    /// The most that drives like it drew in each state.
    ceilings: Vec<Vec<Watts>>,
    started: bool,
    power: Samples,
    /// Of the last `m_interval`, one per drive: power, bytes so far, the state at its end.
    sample: Vec<Option<Watts>>,
    bytes: Vec<Option<u64>>,
    was: Vec<PowerState>,
    /// For how many samples, idle ones left out, each drive could do with less than its share.
    light: Vec<usize>,
    /// What each drive wants.
    want: Vec<PowerState>,
    /// Bytes per watt above its lowest cap when it last drew more than that; infinite until it did,
    /// so that it is tried.
    worth: Vec<f64>,
    /// What each gets.
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
        let caps = |d| (0..=desc.deepest(d)).map(|ps| desc.cap(d, ps)).collect::<Vec<_>>();
        let caps: Vec<_> = (0..drives).map(caps).collect();
        let like = |d| caps.iter().position(|other| *other == caps[d]).unwrap_or(d);
        Ok(Self {
            budget: budget.unwrap_or_else(|| desc.sum(&vec![0; drives])),
            like: (0..drives).map(like).collect(),
            ceilings: caps
                .iter()
                .map(|of| of.iter().map(|cap| *cap * LEAST_CEILING).collect())
                .collect(),
            desc,
            started: false,
            power: Samples::new(drives),
            sample: vec![None; drives],
            bytes: vec![None; drives],
            was: fair.clone(),
            light: vec![0; drives],
            want: fair.clone(),
            worth: vec![f64::INFINITY; drives],
            ps: fair.clone(),
            fair,
        })
    }

    /// What each drive wants and what its watts are worth. The state that counts is the reported
    /// one: a write may take longer than a period.
    fn measure(&mut self, signals: &Signals) {
        for d in 0..self.ps.len() {
            let reported = signals.drives.get(d).and_then(|drive| drive.state);
            let state = reported.unwrap_or(signals.in_force.state(d)).min(self.desc.deepest(d));
            if let Some(power) = self.sample[d].filter(|_| self.was[d] == state) {
                let ceiling = &mut self.ceilings[self.like[d]][usize::from(state)];
                *ceiling = ceiling.max(power.min(self.desc.cap(d, state)));
            }
            self.was[d] = state;
        }
        for d in 0..self.ps.len() {
            self.want[d] = self.wanted(d);
            let deepest = self.desc.deepest(d);
            let lowest = self.desc.cap(d, deepest);
            let above = self.sample[d].unwrap_or_default() - lowest;
            // Near its lowest cap a drive shows little of what it does with more.
            if above * 2.0 > self.desc.cap(d, deepest.saturating_sub(1)) - lowest {
                self.worth[d] = self.bytes[d].unwrap_or(0) as f64 / above.0;
            }
            self.bytes[d] = None;
        }
    }

    /// What drive `d` wants, its fair share where it cannot be read. One that serves in bursts
    /// draws little on average and needs more within them: below its share it goes when it is idle,
    /// or after PACMAN's window.
    fn wanted(&mut self, d: usize) -> PowerState {
        let Some(power) = self.sample[d] else { return self.fair[d] };
        let want = self.suits(d, power);
        let idle = self.bytes[d] == Some(0);
        if !idle {
            self.light[d] = if want > self.fair[d] { self.light[d] + 1 } else { 0 };
        }
        if idle || self.light[d] >= N { want } else { want.min(self.fair[d]) }
    }

    /// The fastest state if that of drive `d` holds it back at `power`, else the deepest that would
    /// not.
    fn suits(&self, d: usize, power: Watts) -> PowerState {
        let ceilings = &self.ceilings[self.like[d]];
        let holds_back = |ps: PowerState| power > ceilings[usize::from(ps)] * AT_CEILING;
        if holds_back(self.was[d]) {
            return 0;
        }
        (0..=self.desc.deepest(d)).rev().find(|ps| !holds_back(*ps)).unwrap_or(0)
    }

    /// First what is wanted of the fair shares (their sum fits by construction), then what is
    /// wanted beyond them, then the rest back to the idle drives, against the next burst.
    fn divide(&mut self) {
        for d in 0..self.ps.len() {
            self.ps[d] = self.want[d].max(self.fair[d]);
        }
        let left = self.budget - self.desc.sum(&self.ps);
        let left = raise(&self.desc, &mut self.ps, &self.want, &self.worth, left);
        raise(&self.desc, &mut self.ps, &self.fair, &self.worth, left);
    }
}

/// Raises drives towards their `goal` as far as `left` watts go, state by state: where a watt is
/// worth most, of equals the lowest cap, then the lower index. What a drive serves for a watt above
/// its lowest cap rises with its cap, so that of like drives those that have it keep it.
fn raise(
    desc: &PowerDesc,
    ps: &mut [PowerState],
    goal: &[PowerState],
    worth: &[f64],
    mut left: Watts,
) -> Watts {
    loop {
        let step = |d: usize| desc.cap(d, ps[d] - 1) - desc.cap(d, ps[d]);
        let fits = |d: &usize| ps[*d] > goal[*d] && step(*d) <= left + CAP_TOLERANCE;
        let order = |a: &usize, b: &usize| {
            let lower = desc.cap(*b, ps[*b]).0.total_cmp(&desc.cap(*a, ps[*a]).0);
            worth[*a].total_cmp(&worth[*b]).then(lower).then(b.cmp(a))
        };
        let Some(d) = (0..ps.len()).filter(fits).max_by(order) else { return left };
        left -= step(d);
        ps[d] -= 1;
    }
}

impl Policy for PacmanPlus {
    fn name(&self) -> &'static str {
        "pacman-plus"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        // The period before the first step was under other caps: SSPC, as PACMAN starts.
        if self.started {
            for (bytes, drive) in self.bytes.iter_mut().zip(&signals.drives) {
                if let (Some(read), Some(written)) = (drive.read_bytes, drive.written_bytes) {
                    *bytes = Some(bytes.unwrap_or(0) + read + written);
                }
            }
            if self.power.add(&signals.drives, signals.period) {
                for (sample, power) in self.sample.iter_mut().zip(self.power.take()) {
                    *sample = power;
                }
                self.measure(signals);
                self.divide();
            }
        }
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

    fn idle() -> DriveSignals {
        let (power, none) = (Some(Watts(IDLE)), Some(0));
        DriveSignals { power, read_bytes: none, written_bytes: none, ..Default::default() }
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
        let settled = &states[20].1;
        assert!(states[20..].iter().all(|(_, ps)| ps == settled));
    }

    #[test]
    fn watts_go_where_they_serve_most_bytes() {
        let server = pm1743s(4);
        let mut plus = PacmanPlus::new(&server, Some(Watts(56.0))).unwrap();
        let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
        let mut states = Vec::new();
        for _ in 0..20 {
            // Two idle, two that take all they get; a watt serves the last one twice as much.
            for (d, gain) in [0.0, 0.0, 1.0, 2.0].into_iter().enumerate() {
                let cap = server.drives[d].cap(signals.in_force.state(d)).0;
                let power = if gain > 0.0 { cap } else { IDLE };
                signals.drives[d].power = Some(Watts(power));
                signals.drives[d].read_bytes = Some((gain * (power - 8.0) * 1e8) as u64);
                signals.drives[d].written_bytes = Some(0);
            }
            states.push(step(&mut plus, &mut signals, &mut request));
        }
        assert_eq!(states[19], [4, 4, 3, 1], "9 + 9 + 14 + 21 W of 56");
        assert!(states[3..].iter().all(|ps| *ps == states[19]), "caps rest: {states:?}");
    }

    /// 7 W on average may be 14 W and 5 W by turns.
    #[test]
    fn a_drive_that_serves_in_bursts_keeps_its_share() {
        let server = pm1743s(2);
        let mut plus = PacmanPlus::new(&server, Some(Watts(28.0))).unwrap();
        let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
        for t in 0..40 {
            let cap = server.drives[1].cap(signals.in_force.state(1)).0;
            for (d, power) in [if t % 6 == 0 { 12.0 } else { 7.0 }, cap].into_iter().enumerate() {
                let (power, served) = (Some(Watts(power)), Some(1 << 20));
                signals.drives[d].power = power;
                (signals.drives[d].read_bytes, signals.drives[d].written_bytes) = (served, served);
            }
            assert_eq!(step(&mut plus, &mut signals, &mut request), [3, 3]);
        }
    }

    /// Firmware may hold a drive well below its cap.
    #[test]
    fn a_drive_is_at_its_cap_where_others_like_it_stop() {
        let server = pm1743s(3);
        let mut plus = PacmanPlus::new(&server, Some(Watts(42.0))).unwrap();
        let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
        signals.drives[2] = idle();
        for _ in 0..3 {
            for (d, load) in [99.0, 12.7, IDLE].into_iter().enumerate() {
                let cap = server.drives[d].cap(signals.in_force.state(d)).0;
                signals.drives[d].power = Some(Watts(f64::min(load, 0.93 * cap)));
            }
            step(&mut plus, &mut signals, &mut request);
        }
        let states: Vec<_> = signals.in_force.states().collect();
        assert_eq!(states, [2, 3, 4], "18 W; 12.7 W are less than 98 % of 13; idle");
    }

    #[test]
    fn an_unreadable_drive_keeps_its_static_share() {
        let server = pm1743s(3);
        let mut plus = PacmanPlus::new(&server, Some(Watts(42.0))).unwrap();
        let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
        signals.drives[1] = idle();
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
        signals.drives.fill(idle());
        // It takes the 9 W of its PS4, which says nothing of what it could use.
        signals.drives[0].power = Some(Watts(9.0));
        signals.drives[0].state = Some(4);
        step(&mut plus, &mut signals, &mut request);
        for _ in 0..30 {
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
                    let held_back = power[d] > desc.cap(d, before[d]).0 * AT_CEILING;
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
