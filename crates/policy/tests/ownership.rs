//! A policy changes only what the registry says that it owns.

mod common;

use common::{Weather, budget, heated};
use ebb_policy::registry::{ENTRIES, Owned, Settings, make};
use ebb_policy::{Controls, PowerState};

#[test]
fn no_policy_sets_what_it_does_not_own() {
    let topology = heated(4);
    let settings = Settings { ssd_budget: Some(budget(&topology, 0.4)), ..Settings::default() };
    for entry in ENTRIES {
        let mut policy = make(entry.name, &topology, &settings).unwrap();
        let mut controls = Controls::native(&topology);
        let mut weather = Weather::new(&topology, 11, 0.05);
        let mut seen = Vec::new();
        for _ in 0..4000 {
            let states: Vec<PowerState> = controls.drives().to_vec();
            weather.next(&states);
            controls.begin(weather.signals.now);
            policy.step(&weather.signals, &mut controls);
            for decision in controls.decisions() {
                let control = Owned::of(decision.control);
                assert!(entry.owns.contains(&control), "{} sets {control}", entry.name);
                if !seen.contains(&control) {
                    seen.push(control);
                }
            }
        }
        // And what it owns it uses, so that the table keeps nobody out for nothing.
        if entry.name == "eadc" || entry.name == "dtm" {
            assert_eq!(seen.len(), entry.owns.len(), "{}: {seen:?}", entry.name);
        }
    }
}
