//! The sum of drive caps stays within the budget at every instant, also between two device
//! writes and while one is under way, for every policy that manages drives.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Weather, budget, server};
use ebb_policy::registry::{ENTRIES, Settings, make};
use ebb_policy::ssd::{CAP_TOLERANCE, PowerDesc};
use ebb_policy::topology::DriveSpec;
use ebb_policy::units::Watts;
use ebb_policy::{Guard, InForce, Limits, Plant, Policy, Request, Signals, Topology};
use proptest::prelude::*;

const CSV: &str = "devices/nvme_power_states/nvme_power_states.csv";

/// Drives that take one write at a time.
struct Drives {
    desc: PowerDesc,
    budget: Watts,
    weather: Weather,
}

impl Drives {
    /// Carries out the first `done` writes. While a write is under way its drive counts with
    /// the larger of both caps. A sum that starts above the budget (drives uncapped before the
    /// first step, or reset by somebody) may only fall until it is within.
    fn write(&mut self, in_force: &InForce, done: usize) -> Result<(), TestCaseError> {
        let states = &mut self.weather.states;
        let writes: Vec<_> = in_force.drive_writes(states).take(done).collect();
        for (d, ps) in writes {
            let before = self.desc.sum(states);
            let (old, new) = (self.desc.cap(d, states[d]), self.desc.cap(d, ps));
            let under_way = before - old + old.max(new);
            let allowed = before.max(self.budget) + CAP_TOLERANCE;
            prop_assert!(under_way <= allowed, "{under_way} of {allowed} at drive {d}");
            states[d] = ps;
        }
        Ok(())
    }
}

/// A run of `periods`, with or without the guard, in which a plant may fail to finish its writes
/// and drives are reset to state 0 now and then.
fn run(
    topology: &Topology,
    policy: &mut dyn Policy,
    (budget, guarded, seed): (Watts, bool, u64),
    events: &[(usize, Option<usize>)],
) -> Result<(), TestCaseError> {
    let (mut signals, mut request) = (Signals::new(topology), Request::new(topology));
    let mut guard = Guard::new(topology, Limits { ssd_budget: Some(budget), ..Limits::default() });
    let weather = Weather::new(topology, seed, 0.02);
    let mut plant = Drives { desc: PowerDesc::new(topology), budget, weather };
    for (done, reset) in events {
        if let Some(drive) = reset {
            plant.weather.states[drive % topology.drives.len()] = 0;
        }
        plant.weather.sense(&mut signals);
        policy.step(&signals, &mut request);
        if guarded {
            signals.in_force.clone_from(guard.enforce(&request, &signals));
        } else {
            signals.in_force.follow(&request);
        }
        let given = plant.desc.sum(&signals.in_force.states().collect::<Vec<_>>());
        prop_assert!(given <= budget + CAP_TOLERANCE, "{given} given of {budget}");
        plant.write(&signals.in_force, *done)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_sum_of_caps_never_exceeds_the_budget(
        drives in 1..20_usize,
        share in 0.0..1.0_f64,
        guarded: bool,
        seed: u64,
        events in prop::collection::vec(
            (prop_oneof![3 => Just(usize::MAX), 1 => 0..8_usize],
             prop::option::weighted(0.02, 0..20_usize)),
            100..200,
        ),
    ) {
        let topology = server(drives);
        let budget = budget(&topology, share);
        let settings = Settings { ssd_budget: Some(budget), ..Settings::default() };
        for entry in ENTRIES {
            let owns_drives = entry.name == "sspc" || entry.name.starts_with("pacman");
            if owns_drives || guarded {
                let mut policy = make(entry.name, &topology, &settings).unwrap();
                run(&topology, &mut *policy, (budget, guarded, seed), &events)?;
            }
        }
    }
}

/// A server with one drive of each model whose declared power states were collected.
fn collected_drives() -> Option<Topology> {
    let data = std::env::var_os("EBB_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let text = fs::read_to_string(data.join(CSV)).ok()?;
    let mut topology = server(0);
    for line in text.lines().skip(1) {
        // From the right: a model's name may hold commas.
        let fields: Vec<_> = line.rsplit(',').collect();
        let (max_power, operational) = (fields[8].parse().unwrap_or(f64::NAN), fields[9] == "1");
        if fields[10] == "0" {
            topology.drives.push(DriveSpec { states: Vec::new(), ..DriveSpec::default() });
        }
        let states = &mut topology.drives.last_mut()?.states;
        assert_eq!(fields[10], states.len().to_string(), "{line}");
        states.push(crate::common::state(max_power, operational));
    }
    Some(topology)
}

#[test]
fn real_drives_keep_every_budget() {
    let Some(topology) = collected_drives() else {
        println!("skipped: no {CSV}");
        return;
    };
    assert_eq!(topology.drives.len(), 19);
    for drive in &topology.drives {
        let caps = drive.operational();
        assert!(caps.windows(2).all(|w| w[1].max_power <= w[0].max_power), "{caps:?}");
    }
    for (seed, share) in [0.0, 0.1, 0.35, 0.7, 1.0].into_iter().enumerate() {
        let budget = budget(&topology, share);
        let settings = Settings { ssd_budget: Some(budget), ..Settings::default() };
        for name in ["sspc", "pacman", "pacman-mean", "pacman-ema", "pacman-plus"] {
            let mut policy = make(name, &topology, &settings).unwrap();
            let events = vec![(usize::MAX, None); 400];
            run(&topology, &mut *policy, (budget, true, seed as u64), &events).unwrap();
        }
    }
}
