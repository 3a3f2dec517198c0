//! A policy changes only what the registry says that it owns.

use crate::common::{Weather, budget, heated};
use ebb_policy::registry::{ENTRIES, Settings, make};
use ebb_policy::units::Watts;
use ebb_policy::{Control, Guard, Limits, Plant, Request, Signals};

#[test]
fn no_policy_sets_what_it_does_not_own() {
    let topology = heated(4);
    let settings = Settings { ssd_budget: Some(budget(&topology, 0.4)), ..Settings::default() };
    for entry in ENTRIES {
        let mut policy = make(entry.name, &topology, &settings).unwrap();
        assert_eq!(policy.owns(), entry.owns, "{}", entry.name);
        let (mut signals, mut request) = (Signals::new(&topology), Request::new(&topology));
        let mut guard = Guard::new(&topology, Limits::default());
        let mut weather = Weather::new(&topology, 11, 0.05);
        let mut seen = Vec::new();
        for _ in 0..4000 {
            weather.sense(&mut signals);
            signals.server_budget = Some(Watts(600.0));
            policy.step(&signals, &mut request);
            signals.in_force.clone_from(guard.enforce(&request, &signals));
            for control in Control::ALL.iter().filter(|control| request.asks(**control)) {
                assert!(entry.owns.contains(control), "{} sets {control}", entry.name);
                if !seen.contains(control) {
                    seen.push(*control);
                }
            }
        }
        // And what it owns it uses, so that the table keeps nobody out for nothing.
        if entry.name == "eadc" || entry.name == "dtm" {
            assert_eq!(seen.len(), entry.owns.len(), "{}: {seen:?}", entry.name);
        }
    }
}
