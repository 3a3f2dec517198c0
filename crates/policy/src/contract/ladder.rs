//! Power limits of a drive (NVMe Base 2.3, Feature 23h) as the power states that a policy sees.

use super::topology::{PowerState, PowerStateSpec};
use super::units::{Nanos, Watts};

/// From one limit to the next.
const STEP: Watts = Watts(1.0);

/// Limits from the highest to the lowest cap of a drive's own operational states, in equal steps of
/// at most a watt if there is room for them. None where all caps are the same: that says nothing
/// of the lowest limit that the drive takes.
#[must_use]
pub fn limits(own: &[PowerStateSpec]) -> Option<Vec<Watts>> {
    let caps = || own.iter().filter(|state| state.operational).map(|state| state.max_power);
    let (most, least) = (caps().reduce(Watts::max)?, caps().reduce(Watts::min)?);
    let steps = ((most - least) / STEP).ceil().min(f64::from(PowerState::MAX / 2));
    let step = |number: u32| most - (most - least) * (f64::from(number) / steps);
    (least < most).then(|| (0..=steps as u32).map(step).collect())
}

/// The states that a policy sees: the limits, then the drive's own idle states.
#[must_use]
pub fn states(limits: &[Watts], own: &[PowerStateSpec]) -> Vec<PowerStateSpec> {
    let (operational, entry, exit) = (true, Nanos::ZERO, Nanos::ZERO);
    let state = |max_power: &Watts| {
        let max_power = *max_power;
        PowerStateSpec { max_power, operational, entry, exit }
    };
    let idle = own.iter().filter(|state| !state.operational);
    limits.iter().map(state).chain(idle.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(caps: &[f64]) -> Vec<PowerStateSpec> {
        let state = |watts: &f64| PowerStateSpec {
            max_power: Watts(*watts),
            operational: *watts > 5.0,
            entry: Nanos::from_micros(1),
            exit: Nanos::from_millis(60),
        };
        caps.iter().map(state).collect()
    }

    #[test]
    fn limits_are_steps_between_the_drives_own_caps() {
        let own = own(&[25.0, 14.0, 8.5, 2.0]);
        let limits = limits(&own).unwrap();
        assert_eq!((limits.len(), limits[0].0, limits[17].0), (18, 25.0, 8.5));
        assert!(limits.windows(2).all(|pair| (0.9..=1.0).contains(&(pair[0] - pair[1]).0)));
        let states = states(&limits, &own);
        assert!(states[..18].iter().zip(&limits).all(|(state, limit)| {
            state.operational && state.max_power == *limit && state.exit == Nanos::ZERO
        }));
        assert_eq!(states[18..], own[3..]);
    }

    #[test]
    fn a_wide_range_has_no_more_steps_than_states_have_numbers() {
        let limits = limits(&own(&[900.0, 10.0])).unwrap();
        assert!(limits.len() <= usize::from(PowerState::MAX) && limits.len() > 100);
        assert_eq!(limits.last(), Some(&Watts(10.0)));
    }

    #[test]
    fn a_single_cap_has_no_steps() {
        for caps in [&[][..], &[25.0], &[25.0, 25.0, 2.0], &[3.0]] {
            assert_eq!(limits(&own(caps)), None, "{caps:?}");
        }
    }
}
