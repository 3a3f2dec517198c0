//! No oscillation: at a steady load the fans come to rest.

use super::*;

/// Servers with light and heavy heat sinks, strong and weak fans, both kinds of lag.
fn any_physics() -> impl Strategy<Value = Physics> {
    (20.0..35.0_f64, 0.10..0.25_f64, 0.08..0.16_f64, 150.0..500.0_f64, 5.0..15.0_f64, any::<bool>())
        .prop_map(|(ambient, conduction, convection, capacity, lag, dead_time)| Physics {
            ambient,
            conduction,
            convection,
            capacity,
            lag,
            dead_time,
            ..Physics::default()
        })
}

/// Peak to peak duty, and turns by more than 1 % of duty, that are tolerated in 10 min at rest.
/// `eadc` measures the neighbours of its optimum anew, and turns at most once in a sensor lag. None
/// is stated for `dtm`, which never
/// stops moving work to and fro.
const BOUNDS: [(&str, f64, usize); 3] = [("dlb", 0.05, 2), ("jetc", 0.05, 2), ("eadc", 0.20, 60)];

proptest! {
    #![proptest_config(seeded(24))]
    /// The bound of `docs/policies/eadc.md`.
    #[test]
    fn at_a_steady_load_the_fans_come_to_rest(physics in any_physics(), jobs in 2..17_usize) {
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
