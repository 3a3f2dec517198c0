//! How a drive's cap is set: by its power state, or, where it takes a power limit (NVMe Base 2.3,
//! Feature 23h), by that, in steps between the caps of its power states.

use ebb_policy::units::Watts;
use ebb_policy::{PowerState, PowerStateSpec, ladder};

use crate::nvme::wire::{Identity, limited, power_limit};

/// What a policy's power states are of a drive.
#[derive(Debug, Clone, PartialEq)]
pub enum Cap {
    /// Its own.
    State,
    /// Limits, from the highest to the lowest.
    Limit(Vec<Watts>),
}

impl Cap {
    /// Of a drive with this identity.
    #[must_use]
    pub fn of(identity: &Identity) -> Self {
        let limits = identity.limits_power.then(|| ladder::limits(&identity.caps())).flatten();
        let is_said = |limit: &Watts| power_limit(*limit).is_some();
        limits.filter(|limits| limits.iter().all(is_said)).map_or(Self::State, Self::Limit)
    }

    /// The states that a policy sees of a drive with this identity.
    #[must_use]
    pub fn states(&self, identity: &Identity) -> Vec<PowerStateSpec> {
        let Self::Limit(limits) = self else { return identity.caps() };
        ladder::states(limits, &identity.states)
    }

    /// What a drive that rests draws in each of these.
    #[must_use]
    pub fn idle(&self, identity: &Identity) -> Vec<Option<Watts>> {
        let Self::Limit(limits) = self else { return identity.idle.clone() };
        let own = identity.idle.iter().zip(&identity.states);
        let idle = own.filter(|(_, state)| !state.operational).map(|(idle, _)| *idle);
        let awake = identity.idle.first().copied().flatten();
        vec![awake; limits.len()].into_iter().chain(idle).collect()
    }

    /// What is written there for a state.
    #[must_use]
    pub fn text(&self, state: PowerState) -> String {
        let Self::Limit(limits) = self else { return state.to_string() };
        let last = limits.last().copied().unwrap_or_default();
        let limit = limits.get(usize::from(state)).copied().unwrap_or(last);
        power_limit(limit).unwrap_or_default().to_string()
    }

    /// Whether a state may be asked for where `found` was: a state or limit found is kept, unless
    /// limits may be raised.
    #[must_use]
    pub fn may(&self, state: PowerState, found: &str, raises: bool) -> bool {
        raises || state > self.state(found.parse().unwrap_or_default())
    }

    /// The state that a value stands for: of a limit between two steps that above it, for the drive
    /// may draw so much.
    #[must_use]
    pub fn state(&self, value: u32) -> PowerState {
        let Self::Limit(limits) = self else { return value as PowerState };
        let Some(limit) = limited(value) else { return 0 };
        // Limits are in hundredths of a watt.
        let above = limits.iter().take_while(|step| step.0 + 0.005 >= limit.0).count();
        above.saturating_sub(1) as PowerState
    }
}

#[cfg(test)]
mod tests {
    use ebb_policy::units::Nanos;

    use super::*;

    fn identity(caps: &[f64], limits_power: bool) -> Identity {
        let state = |watts: &f64| PowerStateSpec {
            max_power: Watts(*watts),
            operational: *watts > 5.0,
            entry: Nanos::ZERO,
            exit: Nanos::ZERO,
        };
        Identity {
            serial: String::new(),
            model: String::new(),
            states: caps.iter().map(state).collect(),
            absurd: None,
            idle: caps.iter().map(|watts| Some(Watts(watts / 10.0))).collect(),
            warning: None,
            limits_power,
            apst: false,
        }
    }

    #[test]
    fn a_limit_is_set_in_steps_between_the_drives_own_caps() {
        let drive = identity(&[25.0, 14.0, 8.5, 2.0], true);
        let cap = Cap::of(&drive);
        let states = cap.states(&drive);
        let caps: Vec<_> = states.iter().map(|state| state.max_power.0).collect();
        assert_eq!((caps.len(), caps[0], caps[17], caps[18]), (19, 25.0, 8.5, 2.0));
        assert!(caps.windows(2).all(|pair| pair[0] > pair[1]));
        assert!(!states[18].operational);
        assert_eq!(cap.idle(&drive)[17..], [Some(Watts(2.5)), Some(Watts(0.2))]);
        for state in 0..18 {
            assert_eq!(cap.state(cap.text(state).parse().unwrap()), state);
        }
        // No limit, one above all, between two steps, below all.
        let of = |watts: f64| cap.state(power_limit(Watts(watts)).unwrap());
        assert_eq!((cap.state(0), of(40.0), of(24.5), of(5.0)), (0, 0, 0, 17));
    }

    #[test]
    fn others_have_their_own_states() {
        for drive in [identity(&[25.0, 14.0], false), identity(&[25.0, 2.0], true)] {
            let cap = Cap::of(&drive);
            assert_eq!((&cap, cap.states(&drive)), (&Cap::State, drive.states.clone()));
            assert_eq!((cap.text(1), cap.state(1)), ("1".to_owned(), 1));
        }
    }
}
