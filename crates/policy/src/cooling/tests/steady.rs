//! No oscillation: at a steady load the fans come to rest.

use super::*;

/// Peak to peak duty, and turns by more than 1 % of duty, that are tolerated in 10 min at rest.
/// `eadc` comes to rest anywhere, also where a reading toggles between two digits.
/// None is stated for `dtm`, which never stops moving work to and fro.
const BOUNDS: [(&str, f64, usize); 4] =
    [("dlb", 0.05, 2), ("jetc", 0.05, 2), ("eadc", 0.05, 20), ("eadc-plus", 0.05, 20)];

proptest! {
    #![proptest_config(seeded(24))]
    /// The bound of `docs/policies/eadc.md`.
    #[test]
    fn at_a_steady_load_the_fans_come_to_rest(
        physics in any_physics(0.10..0.25, 150.0..500.0, 5.0..15.0),
        jobs in 2..17_usize,
    ) {
        for (name, swing, most) in BOUNDS {
            let mut jobs = vec![compute(1.0); jobs];
            jobs.push(query());
            let mut plant = Plant::new(physics.clone(), jobs);
            plant.curve = Some(fig5());
            let mut looped = looped(name, plant);
            looped.run(3600);
            let (low, high, turns) = looped.swing(600);
            prop_assert!(high - low <= swing, "{name}: {low} to {high}");
            prop_assert!(turns <= most, "{name}: {turns} turns");
        }
    }
}
