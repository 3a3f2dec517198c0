//! Once running, neither a policy nor the guard touches the heap.

mod common;

use common::{Weather, budget, server};
use ebb_policy::registry::{ENTRIES, Settings, make};
use ebb_policy::{Controls, Guard, Limits, PowerState};

#[test]
fn stepping_any_policy_and_the_guard_allocates_nothing() {
    let topology = server(32);
    let ssd_budget = Some(budget(&topology, 0.4));
    let settings = Settings { ssd_budget, ..Settings::default() };
    for entry in ENTRIES {
        let mut policy = make(entry.name, &topology, &settings).unwrap();
        let mut guard = Guard::new(&topology, Limits { ssd_budget, ..Limits::default() });
        let mut controls = Controls::native(&topology);
        let mut weather = Weather::new(&topology, 7, 0.02);
        let mut states: Vec<PowerState> = controls.drives().to_vec();
        let allocated = allocation_counter::measure(|| {
            for _ in 0..3000 {
                weather.next(&states);
                controls.begin(weather.signals.now);
                policy.step(&weather.signals, &mut controls);
                guard.check(&weather.signals, &mut controls);
                let writes = Guard::drive_writes(&states, &controls).count();
                assert!(writes <= states.len());
                states.copy_from_slice(controls.drives());
            }
        });
        assert_eq!(allocated.count_total, 0, "{}", entry.name);
    }
}

/// The measurement itself can fail.
#[test]
fn an_allocation_is_seen() {
    let allocated = allocation_counter::measure(|| drop(std::hint::black_box(vec![1_u8; 100])));
    assert_eq!(allocated.count_total, 1);
}
