//! The power budget of the drives: never exceeded, and more of it is never worse.

use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Limits, PowerState, Signals, Topology};
use ebb_trace::Workload;
use ebb_twin::{Change, Observer, Outcome, Profile, Run, Sample, run};
use proptest::prelude::*;

use crate::common::{Demand, Shifting, job};

const POLICIES: [&str; 5] = ["sspc", "pacman", "pacman-mean", "pacman-ema", "pacman-plus"];
/// Sums of watts are rounded.
const ROUNDING: f64 = 1e-6;

/// Holds each period's power against the caps in force: those of its start or those of its end,
/// whichever are higher.
struct Caps {
    topology: Topology,
    states: Vec<PowerState>,
    budget: Watts,
    /// Largest excess of a drive over its own cap, of all drives over the budget.
    drive_excess: f64,
    sum_excess: f64,
    changes: usize,
}

impl Caps {
    fn new(profile: &Profile, budget: f64) -> Self {
        let topology = profile.topology();
        let states = Vec::with_capacity(topology.drives.len());
        let (drive_excess, sum_excess) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        Self { topology, states, budget: Watts(budget), drive_excess, sum_excess, changes: 0 }
    }
}

impl Observer for Caps {
    fn sample(&mut self, sample: &Sample<'_>) {
        let mut sum = 0.0;
        for (d, signal) in sample.cycled.signals.drives.iter().enumerate() {
            let (drive, power) = (&self.topology.drives[d], signal.power.unwrap().0);
            sum += power;
            let after = drive.cap(signal.state.unwrap());
            // Nothing is known of the state at the start of the first period.
            let before = self.states.get(d).map_or(drive.cap(0), |ps| drive.cap(*ps));
            self.drive_excess = self.drive_excess.max(power - before.max(after).0);
        }
        self.sum_excess = self.sum_excess.max(sum - self.budget.0);
        self.states.clear();
        self.states.extend(sample.cycled.signals.drives.iter().map(|signal| signal.state.unwrap()));
        let Signals { in_force, now, .. } = sample.cycled.signals;
        self.changes += sample.cycled.in_force.decisions(in_force, *now).count();
    }
}

/// A run of `policy` alone: the guard enforces nothing.
fn capped(
    profile: &Profile,
    policy: &str,
    budget: f64,
    workload: Shifting,
    duration: Nanos,
) -> (Outcome, Caps) {
    let budget_watts = Some(Watts(budget));
    let settings = Settings { ssd_budget: budget_watts, ..Settings::default() };
    let policy = make(policy, &profile.topology(), &settings).unwrap();
    let mut caps = Caps::new(profile, budget);
    let workload = Workload::Closed(Box::new(workload));
    let job = Run { ssd_budget: budget_watts, ..job(profile, policy, workload, Some(duration)) };
    (run(job, &mut caps).unwrap(), caps)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// Caps at every instant, between two device writes too; the measured power of every period;
    /// that of every drive. Drives hold a cap by themselves within a regulation window far
    /// shorter than a period, so nothing but rounding is tolerated.
    #[test]
    fn the_budget_is_kept_at_every_instant(
        which in 0..POLICIES.len(),
        budget in 144.0f64..400.0,
        kib in 512u32..2048,
        reads in 0.0f64..=1.0,
        seed in any::<u64>(),
    ) {
        let profile = Profile::load("asg-1115s").unwrap();
        let workload = Shifting::new(16, kib << 10, reads, seed);
        let policy = POLICIES[which];
        let (outcome, caps) =
            capped(&profile, policy, budget, workload, Nanos::from_millis(18_300));
        prop_assert!(outcome.most_capped.0 <= budget + ROUNDING, "{}", outcome.most_capped);
        prop_assert!(outcome.most_capped.0 >= 144.0);
        prop_assert_eq!(outcome.over_budget, Nanos::ZERO, "{}", policy);
        prop_assert!(caps.sum_excess <= ROUNDING, "{policy}: {} W over", caps.sum_excess);
        prop_assert!(caps.drive_excess <= ROUNDING, "{policy}: {} W", caps.drive_excess);
    }
}

/// The same server, whose drives take a power limit.
fn limited() -> Profile {
    let folder = tempfile::tempdir().unwrap();
    let drive = include_str!("../../profiles/drives/pm1743.toml");
    let drive = drive.replacen("[drive]\n", "[drive]\npower_limit = true\n", 1);
    std::fs::write(folder.path().join("drive.toml"), drive).unwrap();
    let text = Profile::shipped_text("asg-1115s").unwrap();
    let file = folder.path().join("my.toml");
    std::fs::write(&file, text.replacen("\"pm1743\"", "\"drive.toml\"", 1)).unwrap();
    Profile::load(file.to_str().unwrap()).unwrap()
}

/// Between the sums of their own caps (18 and 21 W), drives that take limits use the budget up.
#[test]
fn limits_serve_more_within_a_budget_between_the_states() {
    let budget = 16.0 * 19.9;
    let workload = || saturating(2 << 20, 0.0, &[Demand::All]);
    let run = |profile: &Profile, policy: &str| {
        let (outcome, caps) = capped(profile, policy, budget, workload(), Nanos::from_secs(11));
        assert_eq!(outcome.over_budget, Nanos::ZERO, "{policy}: {} W", caps.sum_excess);
        assert!(caps.drive_excess <= ROUNDING, "{policy}: {} W", caps.drive_excess);
        assert!(outcome.most_capped.0 <= budget + ROUNDING, "{policy}: {}", outcome.most_capped);
        (outcome.most_capped.0, outcome.iops())
    };
    let (own, limited) = (Profile::load("asg-1115s").unwrap(), limited());
    for policy in ["sspc", "pacman-plus"] {
        let (states, limits) = (run(&own, policy), run(&limited, policy));
        assert!(limits.0 > budget - 16.0, "{policy}: {limits:?} of {budget} W");
        assert!(limits.1 >= states.1 * (1.0 - NOISE), "{policy}: {limits:?} {states:?}");
    }
    let (states, limits) = (run(&own, "sspc"), run(&limited, "sspc"));
    assert!(limits.1 > states.1 * 1.03, "a uniform cap: {limits:?} {states:?}");
}

/// A budget that is just what the caps sum to, with every drive at its cap: the tightest case.
#[test]
fn drives_at_their_caps_are_not_over_a_budget_of_the_same_sum() {
    let profile = Profile::load("asg-1115s").unwrap();
    for (budget, reads) in [(144.0, 0.0), (224.0, 0.0), (224.0, 0.6), (288.0, 0.3)] {
        let workload = saturating(2 << 20, reads, &[Demand::All]);
        let (outcome, caps) = capped(&profile, "sspc", budget, workload, Nanos::from_secs(3));
        assert_eq!(outcome.over_budget, Nanos::ZERO, "{budget} W: {} W", caps.sum_excess);
        assert!(caps.sum_excess > -0.1 * budget, "{budget} W is not needed: {}", caps.sum_excess);
        assert!(caps.drive_excess <= ROUNDING, "{}", caps.drive_excess);
    }
}

/// A policy that ignores the budget is held to it by the guard.
#[test]
fn the_guard_keeps_the_budget_whatever_the_policy_asks() {
    let profile = Profile::load("asg-1115s").unwrap();
    let budget = Some(Watts(200.0));
    let workload = Workload::Closed(Box::new(saturating(2 << 20, 0.0, &[Demand::All])));
    let native = Box::new(ebb_policy::cpu::Native);
    let job = Run {
        limits: Limits { ssd_budget: budget, ..Limits::default() },
        ssd_budget: budget,
        ..job(&profile, native, workload, Some(Nanos::from_secs(3)))
    };
    let mut caps = Caps::new(&profile, 200.0);
    let outcome = run(job, &mut caps).unwrap();
    assert!(outcome.most_capped <= Watts(200.0), "{}", outcome.most_capped);
    assert_eq!(outcome.over_budget, Nanos::ZERO);
    assert!(caps.sum_excess <= 0.0);
}

/// Sum of caps in force at the end of each period.
struct Capped(Vec<PowerState>, Vec<f64>);

impl Observer for Capped {
    fn sample(&mut self, sample: &Sample<'_>) {
        let cap = |signal: &ebb_policy::DriveSignals| signal.state;
        self.0.clear();
        self.0.extend(sample.cycled.signals.drives.iter().filter_map(cap));
        let caps = [25.0, 21.0, 18.0, 14.0, 9.0];
        self.1.push(self.0.iter().map(|ps| caps[usize::from(*ps)]).sum());
    }
}

/// A budget that shrinks and grows again while the policy runs: kept from the next period on, and
/// used again when it is back.
#[test]
fn a_budget_may_change_while_the_policy_runs() {
    let profile = Profile::load("asg-1115s").unwrap();
    let make = |policy: &str, watts: f64| {
        let settings = Settings { ssd_budget: Some(Watts(watts)), ..Settings::default() };
        make(policy, &profile.topology(), &settings).unwrap()
    };
    for policy in POLICIES {
        let change = |seconds, watts| Change {
            at: Nanos::from_secs(seconds),
            policy: Some(make(policy, watts)),
            ssd_budget: Some(Watts(watts)),
            limit: Some(Watts(watts)),
            server_budget: None,
        };
        let workload = Workload::Closed(Box::new(saturating(2 << 20, 0.0, &[Demand::All])));
        let job = Run {
            limits: Limits { ssd_budget: Some(Watts(288.0)), ..Limits::default() },
            ssd_budget: Some(Watts(288.0)),
            changes: vec![change(6, 150.0), change(12, 288.0)],
            ..job(&profile, make(policy, 288.0), workload, Some(Nanos::from_secs(18)))
        };
        let mut capped = Capped(Vec::new(), Vec::new());
        let outcome = run(job, &mut capped).unwrap();
        // Samples end periods: the change at 6 s is in force in the one that ends at 6.5 s.
        let between = |from: usize, to: usize| &capped.1[from..to];
        assert!(between(2, 12).iter().all(|sum| *sum > 270.0), "{policy}: {:?}", capped.1);
        assert!(between(12, 24).iter().all(|sum| *sum <= 150.0), "{policy}: {:?}", capped.1);
        assert!(between(26, 36).iter().all(|sum| *sum > 270.0), "{policy}: {:?}", capped.1);
        assert!(outcome.over_budget <= ebb_policy::PERIOD, "{policy}: {}", outcome.over_budget);
    }
}

/// Drives with the demands of `pattern` by turns, the same all the time.
fn saturating(bytes: u32, reads: f64, pattern: &[Demand]) -> Shifting {
    let demand = (0..16).map(|drive| vec![pattern[drive % pattern.len()]]).collect();
    Shifting { demand, ..Shifting::new(16, bytes, reads, 5) }
}

/// Noise: media latencies and who of the clients comes first change with every cap, and PACMAN
/// moves caps at most once in 5 s, so the last move may come too late to pay.
const NOISE: f64 = 0.01;

/// Every drive busy, and every second one idle so that there is something to move.
#[test]
fn more_budget_never_means_less_throughput() {
    let profile = Profile::load("asg-1115s").unwrap();
    for (policy, pattern) in POLICIES.iter().flat_map(|policy| {
        [(policy, &[Demand::All][..]), (policy, &[Demand::All, Demand::Nothing][..])]
    }) {
        let mut before = (0.0, 0.0);
        for budget in [144.0, 190.0, 224.0, 300.0, 400.0] {
            let workload = saturating(2 << 20, 0.0, pattern);
            let seconds = Nanos::from_secs(11);
            let (outcome, caps) = capped(&profile, policy, budget, workload, seconds);
            let iops = outcome.iops();
            let least = before.1 * (1.0 - NOISE);
            assert!(iops >= least, "{policy}: {iops} at {budget} W, after {before:?}");
            before = (budget, iops);
            if *policy != "sspc" && budget == 224.0 && pattern.contains(&Demand::Nothing) {
                assert!(caps.changes > 0, "{policy} moved no cap");
            }
        }
    }
}
