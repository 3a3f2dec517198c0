//! What one control period costs: every policy with the guard, by number of drives.
//!
//! `cargo bench -p ebb-policy`. The random signals are drawn outside the measured part.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Weather, budget, server};
use ebb_policy::registry::{ENTRIES, Settings, make};
use ebb_policy::units::Watts;
use ebb_policy::{BestEffortSignals, Guard, Limits, Plant, Request, Signals, Steward};

fn main() {
    divan::main();
}

fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// A load, a meter that agrees with the model of this server, and a budget below it: who keeps it
/// would hold the least setting otherwise, which costs nothing to find.
fn steady(signals: &mut Signals) {
    signals.server_budget = Some(Watts(270.0));
    (signals.power.total, signals.power.cpu) = (Some(Watts(285.0)), Some(Watts(150.0)));
    for drive in &mut signals.drives {
        (drive.read_bytes, drive.written_bytes) = (Some(4 << 20), Some(1 << 20));
    }
    let bytes = (signals.drives.len() as u64 * 5) << 20;
    (signals.io.bytes, signals.io.completed) = (Some(bytes), Some(bytes / 8192));
    let bytes = bytes / 4;
    signals.best_effort = BestEffortSignals { requests: Some(bytes >> 17), bytes: Some(bytes) };
}

/// One policy step and one check by the guard. The mean over many periods is the number to read:
/// PACMAN predicts and controls in every tenth only.
#[divan::bench(args = names(), consts = [16, 32, 256], sample_count = 20, sample_size = 500)]
fn step<const DRIVES: usize>(bencher: divan::Bencher, name: &str) {
    let topology = server(DRIVES);
    let ssd_budget = Some(budget(&topology, 0.4));
    let settings = Settings { ssd_budget, ..Settings::default() };
    let Ok(mut policy) = make(name, &topology, &settings) else { return };
    let mut guard = Guard::new(&topology, Limits { ssd_budget, ..Limits::default() });
    let (mut sensed, mut request) = (Signals::new(&topology), Request::new(&topology));
    let mut weather = Weather::new(&topology, 7, 0.0);
    let owns = ENTRIES.iter().find(|entry| entry.name == name).map(|entry| entry.owns);
    let is_capping =
        owns.is_some_and(|owns| owns.iter().any(|c| c.row().steward == Steward::Server));
    bencher
        .with_inputs(|| {
            weather.sense(&mut sensed);
            // Drives that obey: their state is what was given, which is not known here.
            sensed.drives.iter_mut().for_each(|drive| drive.state = None);
            if is_capping {
                steady(&mut sensed);
            }
            sensed.clone()
        })
        .bench_local_refs(|signals| {
            signals.in_force.clone_from(guard.in_force());
            policy.step(signals, &mut request);
            guard.enforce(&request, signals);
        });
}
