//! Hand-worked phases of Algorithm 2 and what PACMAN promises over any power history.

use proptest::prelude::*;

use super::*;
use crate::ssd::testing::{any_topology, pm1743, step, topology};

fn pm1743s(drives: usize) -> Topology {
    topology(&vec![pm1743().to_vec(); drives])
}

/// Runs Algorithm 2 on PM1743 drives that hold `ps` and are estimated at `p_est` watts.
fn phase(ps: &mut [PowerState], p_est: &[f64], p_save: f64) -> f64 {
    let desc = PowerDesc::new(&pm1743s(ps.len()));
    let scores: Vec<_> = p_est
        .iter()
        .enumerate()
        .map(|(d, p)| p.is_finite().then(|| Scores::of(&desc, d, ps[d], Watts(*p))))
        .collect();
    control(&desc, &scores, ps, &mut Vec::new(), Watts(p_save)).0
}

/// One server under one policy, its drives obeying at once.
struct Bench {
    pacman: Pacman,
    signals: Signals,
    request: Request,
}

impl Bench {
    /// After the first step: SSPC in force.
    fn new(topology: &Topology, budget: f64) -> Self {
        let pacman = Pacman::new(topology, Some(Watts(budget))).unwrap();
        let (signals, request) = (Signals::new(topology), Request::new(topology));
        let mut bench = Self { pacman, signals, request };
        bench.period(&vec![None; topology.drives.len()]);
        bench
    }

    fn period(&mut self, power: &[Option<f64>]) {
        for (d, power) in power.iter().enumerate() {
            self.signals.drives[d].power = power.map(Watts);
        }
        let states = step(&mut self.pacman, &mut self.signals, &mut self.request);
        for (drive, ps) in self.signals.drives.iter_mut().zip(states) {
            drive.state = Some(ps);
        }
    }

    /// One `p_interval` of steady power.
    fn window(&mut self, power: &[f64]) -> Vec<PowerState> {
        let power: Vec<_> = power.iter().map(|p| Some(*p)).collect();
        for _ in 0..N {
            self.period(&power);
        }
        self.drives()
    }

    fn drives(&self) -> Vec<PowerState> {
        self.signals.in_force.states().collect()
    }
}

#[test]
fn idle_drives_donate_and_busy_ones_get() {
    // 14 W each. Two idle drives give 5 W each; the busiest two take 4 W each; 2 W remain,
    // too little for the third at 4 W: there the loop breaks.
    let mut ps = [3; 5];
    let left = phase(&mut ps, &[5.0, 13.5, 14.0, 5.0, 13.0], 0.0);
    assert_eq!(ps, [4, 2, 2, 4, 3]);
    assert_eq!(left, 2.0);
}

#[test]
fn the_residual_pays_in_the_next_phase() {
    let mut ps = [4, 2, 2, 4, 3];
    // The 2 W left above and 4 W from drive 1: drive 4 takes 4, drive 2 would need 3.
    let left = phase(&mut ps, &[5.0, 10.0, 16.0, 5.0, 13.9], 2.0);
    assert_eq!(ps, [4, 3, 2, 4, 2]);
    assert_eq!(left, 2.0);
}

#[test]
fn power_goes_to_the_smallest_s_up_first() {
    // 4 W are enough for one drive: the one nearest its cap (S_up 1 W, against 3 and 2).
    let mut ps = [3, 3, 3];
    assert_eq!(phase(&mut ps, &[11.0, 13.0, 12.0], 4.0), 0.0);
    assert_eq!(ps, [3, 2, 3]);
    // With equal need, the lower index.
    let mut ps = [3, 3, 3];
    phase(&mut ps, &[13.0, 13.0, 13.0], 4.0);
    assert_eq!(ps, [2, 3, 3]);
}

#[test]
fn the_first_drive_too_expensive_ends_the_phase() {
    // Drive 0 needs 4 W for its next state; drive 1 would need only 3 W, which is there.
    let mut ps = [3, 2];
    assert_eq!(phase(&mut ps, &[14.0, 17.0], 3.0), 3.0);
    assert_eq!(ps, [3, 2]);
}

#[test]
fn what_nobody_takes_goes_back_to_who_gave_it() {
    let mut ps = [3, 3];
    assert_eq!(phase(&mut ps, &[5.0, 5.0], 0.0), 0.0);
    assert_eq!(ps, [3, 3]);
}

#[test]
fn one_state_per_phase_and_never_out_of_the_operational_ones() {
    let mut ps = [0, 4];
    assert_eq!(phase(&mut ps, &[2.0, 2.0], 0.0), 4.0);
    assert_eq!(ps, [1, 4], "state 5 is non-operational; 4 W do not buy 5 W");
}

#[test]
fn a_drive_without_an_estimate_keeps_its_cap() {
    let mut ps = [3, 3, 3];
    assert_eq!(phase(&mut ps, &[f64::NAN, 5.0, 13.0], 10.0), 6.0);
    assert_eq!(ps[0], 3);
}

#[test]
fn starts_from_sspc_and_keeps_it_for_a_whole_window() {
    let mut bench = Bench::new(&pm1743s(4), 56.0);
    assert_eq!(bench.drives(), [3; 4]);
    let power = [Some(14.0), Some(14.0), Some(5.0), Some(5.0)];
    for _ in 0..N - 1 {
        bench.period(&power);
        assert_eq!(bench.drives(), [3; 4]);
    }
    bench.period(&power);
    assert_eq!(bench.drives(), [2, 2, 4, 4], "2 W left cannot buy 5 W back");
    let reasons: Vec<_> =
        (0..4).map(|d| bench.request.power_state.wish(d).unwrap().reason).collect();
    let (needed, unused) = ("pacman:power-needed", "pacman:power-unused");
    assert_eq!(reasons, [needed, needed, unused, unused]);
}

#[test]
fn slack_left_by_sspc_is_used() {
    let mut bench = Bench::new(&pm1743s(2), 32.0);
    assert_eq!(bench.drives(), [3, 3], "28 W of 32");
    assert_eq!(bench.window(&[13.0, 14.0]), [3, 2]);
}

#[test]
fn an_unreadable_drive_is_left_alone_and_still_counted() {
    let mut bench = Bench::new(&pm1743s(3), 42.0);
    for _ in 0..4 * N {
        bench.period(&[None, Some(5.0), Some(14.0)]);
    }
    assert_eq!(bench.drives(), [3, 4, 2], "14 + 9 + 18 W of 42");
}

#[test]
fn a_reading_that_is_no_number_does_not_spoil_the_window() {
    let mut bench = Bench::new(&pm1743s(2), 28.0);
    bench.period(&[Some(f64::NAN), Some(f64::INFINITY)]);
    for _ in 1..N {
        bench.period(&[Some(5.0), Some(14.0)]);
    }
    assert_eq!(bench.drives(), [4, 2]);
}

#[test]
fn a_state_changed_behind_our_back_counts_at_its_real_cap() {
    let mut bench = Bench::new(&pm1743s(3), 42.0);
    let power = [Some(5.0), Some(5.0), Some(14.0)];
    for _ in 0..N - 1 {
        bench.period(&power);
    }
    // Drive 0 was reset to 25 W: 11 W over, and the 5 W that drive 1 gives do not cover that.
    bench.signals.drives[0].state = Some(0);
    bench.period(&power);
    assert_eq!(bench.drives(), [3, 4, 3]);
}

#[test]
fn without_a_budget_nothing_changes() {
    let server = pm1743s(3);
    let mut pacman = Pacman::new(&server, None).unwrap();
    let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
    signals.drives[0].power = Some(Watts(4.0));
    signals.drives[1].power = Some(Watts(24.0));
    for _ in 0..5 * N {
        assert_eq!(step(&mut pacman, &mut signals, &mut request), [0; 3]);
    }
}

proptest! {
    #[test]
    fn states_stay_operational_and_caps_within_the_budget(
        server in any_topology(),
        share in 0.0..1.0_f64,
        power in prop::collection::vec(
            prop::option::weighted(0.9, prop_oneof![9 => 0.0..40.0_f64, 1 => Just(f64::NAN)]),
            12 * 60,
        ),
    ) {
        let desc = PowerDesc::new(&server);
        let least = server.lowest_drive_budget();
        let budget = least + (desc.sum(&vec![0; desc.drives()]) - least) * share;
        let mut bench = Bench::new(&server, budget.0);
        for power in power.chunks(12) {
            bench.period(&power[..desc.drives()]);
            let states = bench.drives();
            prop_assert!(desc.sum(&states) <= budget + CAP_TOLERANCE);
            for (d, ps) in states.iter().enumerate() {
                prop_assert!(desc.mp(d, *ps).is_some());
            }
        }
    }

    /// `P_save` in and out of Algorithm 2 differ by exactly what the caps changed by.
    #[test]
    fn no_watt_is_made_or_lost(
        ps in prop::collection::vec(0..5_u8, 1..20),
        p_est in prop::collection::vec(0.0..30.0_f64, 20),
        p_save in 0.0..50.0_f64,
    ) {
        let desc = PowerDesc::new(&pm1743s(ps.len()));
        let mut after = ps.clone();
        let left = phase(&mut after, &p_est[..ps.len()], p_save);
        let freed = (desc.sum(&ps) - desc.sum(&after)).0;
        prop_assert!((left - p_save - freed).abs() < 1e-9);
        prop_assert!(left >= -CAP_TOLERANCE.0);
        prop_assert!(after.iter().zip(&ps).all(|(a, b)| a.abs_diff(*b) <= 1));
    }

    /// More power to share never leaves a drive with a lower cap.
    #[test]
    fn more_power_never_caps_lower(
        ps in prop::collection::vec(0..5_u8, 1..20),
        p_est in prop::collection::vec(0.0..30.0_f64, 20),
        p_save in 0.0..50.0_f64,
        more in 0.0..50.0_f64,
    ) {
        let (mut poor, mut rich) = (ps.clone(), ps.clone());
        phase(&mut poor, &p_est[..ps.len()], p_save);
        phase(&mut rich, &p_est[..ps.len()], p_save + more);
        prop_assert!(rich.iter().zip(&poor).all(|(r, p)| r <= p));
    }
}
