//! No oscillation: at a steady load the fans come to rest.

use super::*;

/// Peak to peak duty, and turns by more than 1 % of duty, that are tolerated in 10 min at rest.
/// None is stated for `dtm`, which never stops moving work to and fro.
pub const BOUNDS: [(&str, f64, usize); 4] =
    [("dlb", 0.03, 6), ("jetc", 0.03, 6), ("eadc", 0.04, 6), ("eadc-plus", 0.04, 6)];

/// A server with heat sinks and lags from wider ranges, and how many jobs it runs.
pub fn any_rest() -> impl Strategy<Value = (Physics, usize)> {
    (any_physics(0.10..0.25, 150.0..500.0, 5.0..15.0), 2..17_usize)
}

/// Swing and turns of the duty in 10 min, after an hour.
pub fn at_rest(name: &str, physics: &Physics, jobs: usize) -> (f64, usize) {
    let mut jobs = vec![compute(1.0); jobs];
    jobs.push(query());
    let mut plant = Plant::new(physics.clone(), jobs);
    plant.curve = Some(fig5());
    let mut looped = looped(name, plant);
    looped.run(3600);
    let (low, high, turns) = looped.swing(600);
    (high - low, turns)
}

proptest! {
    #![proptest_config(seeded(24))]
    /// The bound of `docs/policies/eadc.md`.
    #[test]
    fn at_a_steady_load_the_fans_come_to_rest((physics, jobs) in any_rest()) {
        for (name, most, most_turns) in BOUNDS {
            let (swing, turns) = at_rest(name, &physics, jobs);
            prop_assert!(swing <= most, "{name}: {swing}");
            prop_assert!(turns <= most_turns, "{name}: {turns} turns");
        }
    }
}
