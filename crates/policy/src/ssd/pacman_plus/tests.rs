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

/// Drives that take all they get; bytes for each watt beyond idle as in `worth`, and all of them
/// busy for the same share of the time. The states after a while, at rest.
fn at_rest(worth: &[f64], busy: f64, budget: f64) -> Vec<PowerState> {
    let server = pm1743s(worth.len());
    let mut plus = PacmanPlus::new(&server, Some(Watts(budget))).unwrap();
    let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
    let mut states = Vec::new();
    for _ in 0..20 {
        for (d, worth) in worth.iter().enumerate() {
            let power = server.drives[d].cap(signals.in_force.state(d)).0;
            signals.drives[d] = DriveSignals {
                power: Some(Watts(power * busy + IDLE * (1.0 - busy))),
                state: Some(signals.in_force.state(d)),
                utilisation: Some(busy),
                read_bytes: Some((worth * busy * (power - IDLE) * 1e8) as u64),
                written_bytes: Some(0),
                ..Default::default()
            };
        }
        states.push(step(&mut plus, &mut signals, &mut request));
    }
    assert!(states[8..].iter().all(|ps| *ps == states[19]), "caps rest: {states:?}");
    states[19].clone()
}

#[test]
fn saturated_drives_give_watts_to_those_that_serve_more_with_them() {
    assert_eq!(at_rest(&[1.0; 4], 1.0, 56.0), [3; 4], "alike: alike");
    assert_eq!(at_rest(&[1.0, 1.0, 8.0, 8.0], 1.0, 56.0), [4, 4, 2, 2], "9, 9, 18, 18 W of 56");
    assert_eq!(at_rest(&[1.0, 1.0, 8.0, 8.0], 0.9, 56.0), [3; 4], "who waits keeps its share");
}

#[test]
fn a_drive_that_still_rises_has_not_shown_what_it_needs() {
    let mut demand = Demand::new();
    let mut add = |power: f64, ceiling: f64| {
        let [power, least, ceiling] = [power, IDLE, ceiling].map(Watts);
        demand.add(Sample { busy: Some(1.0), power, bytes: None, least, idle: least, ceiling }, 0);
        demand.power_under(Watts(25.0)).0
    };
    assert_eq!(add(9.0, 9.0), 25.0);
    assert_eq!(add(11.0, 25.0), 25.0, "on its way up");
    assert_eq!(add(20.0, 25.0), 25.0);
    assert_eq!(add(20.1, 25.0), 20.1, "there");
    assert_eq!(add(9.0, 9.0), 20.1, "held back, but what it needs is known");
    assert!(add(21.0, 21.0) > 20.1, "no longer");
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
    for _ in 0..6 {
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
    for _ in 0..3 {
        signals.drives[2].power = Some(server.drives[2].cap(signals.in_force.state(2)));
        step(&mut plus, &mut signals, &mut request);
    }
    assert_eq!(signals.in_force.states().collect::<Vec<_>>(), [3, 4, 2]);
}

#[test]
fn a_drive_that_is_slow_to_obey_keeps_its_claim() {
    let server = pm1743s(3);
    let mut plus = PacmanPlus::new(&server, Some(Watts(43.0))).unwrap();
    let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
    signals.drives.fill(idle());
    // It takes the 9 W of its PS4, which says nothing of what it could use.
    let (power, state) = (Some(Watts(9.0)), Some(4));
    signals.drives[0] = DriveSignals { power, state, ..Default::default() };
    step(&mut plus, &mut signals, &mut request);
    for _ in 0..30 {
        assert_eq!(step(&mut plus, &mut signals, &mut request), [0, 4, 4]);
    }
}

/// The states after each period of drives with caps of 25, 15 and 11 W that stand still for 60 ms
/// at each change, busy throughout with `load` watts each.
fn slow_to_change(load: &[f64], budget: f64) -> Vec<Vec<PowerState>> {
    let mut server = topology(&vec![vec![25.0, 15.0, 11.0]; load.len()]);
    for state in server.drives.iter_mut().flat_map(|drive| &mut drive.states) {
        (state.entry, state.exit) = (Nanos::ZERO, Nanos::from_millis(60));
    }
    let mut plus = PacmanPlus::new(&server, Some(Watts(budget))).unwrap();
    let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
    let mut period = |t: usize| {
        for (d, load) in load.iter().enumerate() {
            let state = signals.in_force.state(d);
            // What loads are does not repeat to the watt.
            let noise = ((t * 7 + d * 3) % 5) as f64 * 0.02;
            let power = (load + noise).min(server.drives[d].cap(state).0);
            signals.drives[d] = DriveSignals {
                power: Some(Watts(power)),
                state: Some(state),
                utilisation: Some(1.0),
                read_bytes: Some(((power - IDLE) * 1e8) as u64),
                written_bytes: Some(0),
                ..Default::default()
            };
        }
        step(&mut plus, &mut signals, &mut request)
    };
    (0..60).map(&mut period).collect()
}

#[test]
fn caps_that_hold_nobody_back_are_left_alone_under_any_budget() {
    for budget in [88.0, 90.0, 95.0, 101.2, 110.0, 125.0, 150.0, 175.0, 200.0] {
        let states = slow_to_change(&[9.71; 8], budget);
        assert!(states.iter().all(|ps| *ps == states[0]), "{budget} W: {states:?}");
    }
}

#[test]
fn a_change_that_takes_time_is_made_once_where_it_pays() {
    let states = slow_to_change(&[24.0, 24.0, 9.7, 9.7, 9.7, 9.7, 9.7, 9.7], 120.0);
    let settled = &states[20];
    assert_eq!(settled[..2], [0, 0], "{settled:?}");
    let changes = states.windows(2).filter(|two| two[0] != two[1]).count();
    assert!(changes <= 3, "{states:?}");
}

#[test]
fn more_budget_serves_no_fewer_bytes() {
    let load = [24.0, 24.0, 17.0, 13.0, 9.7, 9.7, 9.0, 9.0];
    let served = |budget: u32| {
        let states = slow_to_change(&load, f64::from(budget));
        let caps = [25.0, 15.0, 11.0];
        let watts = |(load, ps): (&f64, &PowerState)| load.min(caps[usize::from(*ps)]) - IDLE;
        states[59].iter().zip(&load).map(|(ps, load)| watts((load, ps))).sum::<f64>()
    };
    let served: Vec<f64> = (88..=200).step_by(4).map(served).collect();
    assert!(served.windows(2).all(|two| two[1] >= two[0] * 0.98), "{served:?}");
}

/// What a stripe serves for `periods` as a share of what it would if its caps were left alone, and
/// how often they change. Every drive serves what the slowest one allows, and none while one of
/// them changes its state: one after another, 60 ms each.
fn stripe(drives: usize, budget: f64, periods: usize) -> (f64, usize) {
    let caps = [25.0, 15.0, 11.0];
    let mut server = topology(&vec![caps.to_vec(); drives]);
    for state in server.drives.iter_mut().flat_map(|drive| &mut drive.states) {
        (state.entry, state.exit) = (Nanos::ZERO, Nanos::from_millis(60));
    }
    let mut plus = PacmanPlus::new(&server, Some(Watts(budget))).unwrap();
    let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
    let mut states = step(&mut plus, &mut signals, &mut request);
    let fair = caps[usize::from(states[0])] - IDLE;
    let (mut served, mut changes) = (0.0, 0);
    let mut changed = 0;
    for _ in 0..periods {
        let serving = (1.0 - f64::from(changed) * 0.06 / 0.5).max(0.0);
        let slowest = caps[usize::from(*states.iter().max().unwrap())] - IDLE;
        for (drive, state) in signals.drives.iter_mut().zip(&states) {
            *drive = DriveSignals {
                power: Some(Watts(IDLE + slowest * serving)),
                state: Some(*state),
                utilisation: Some(serving),
                read_bytes: Some((slowest * serving * 1e8) as u64),
                written_bytes: Some(0),
                ..Default::default()
            };
        }
        served += slowest * serving / fair;
        let before = std::mem::replace(&mut states, step(&mut plus, &mut signals, &mut request));
        changed = before.iter().zip(&states).map(|(a, b)| u32::from(a != b)).sum();
        changes += usize::from(changed > 0);
    }
    (served / periods as f64, changes)
}

#[test]
fn a_stripe_that_cannot_be_raised_as_a_whole_is_left_alone() {
    for budget in [90.0, 100.0, 110.0, 125.0, 150.0, 180.0, 195.0] {
        let (share, changes) = stripe(8, budget, 240);
        assert!(share > 0.97 && changes <= 8, "{budget} W: {share}, {changes} changes");
        let (later, more) = stripe(8, budget, 2400);
        assert!(later > 0.99 && more <= changes + 8, "{budget} W: {later}, {more} changes");
    }
}

/// Drawing nearly all of a cap is no proof of wanting more.
#[test]
fn a_trial_that_changed_nothing_is_remembered() {
    let server = pm1743s(4);
    let mut plus = PacmanPlus::new(&server, Some(Watts(56.0))).unwrap();
    // Near the 9 W of PS4 after a rest, beside two that take what they get.
    let mut load = vec![vec![24.0, 24.0, 5.0, 5.0]; 30];
    load.extend(vec![vec![24.0, 24.0, 8.3, 8.3]; 50]);
    let states = run(&mut plus, &server, &load);
    assert_eq!(states[79].1[2..], [4, 4], "8.3 W of 9 W");
    assert!(states[60..].iter().all(|(_, ps)| *ps == states[79].1));
}

/// Bursty loads: each drive idle or busy for a few seconds at a time.
fn any_load(drives: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
    let phase = (4..40_usize, prop_oneof![Just(IDLE), 8.0..26.0_f64]);
    let drive = prop::collection::vec(phase, 30).prop_map(|phases| {
        let load = phases.into_iter().flat_map(|(n, load)| std::iter::repeat_n(load, n));
        load.take(120).collect::<Vec<_>>()
    });
    prop::collection::vec(drive, drives)
        .prop_map(|by_drive| (0..120).map(|t| by_drive.iter().map(|d| d[t]).collect()).collect())
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
                let held_back = power[d] > desc.cap(d, before[d]).0 * FULL;
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
