//! Static storage power capping, PACMAN's baseline and its starting point (PACMAN §III): every
//! drive held to the same cap, the highest with which the sum of caps fits the budget.

use crate::PolicyError;
use crate::ssd::PowerDesc;
use crate::topology::{PowerState, Topology};
use crate::units::Watts;
use crate::{Policy, Request, Signals};

/// Holds every drive to one uniform cap.
#[derive(Debug, Clone)]
pub struct Sspc {
    states: Vec<PowerState>,
}

impl Sspc {
    /// The uniform cap for `budget`; state 0 without one.
    ///
    /// # Errors
    /// A budget below the sum of the drives' lowest caps.
    pub fn new(topology: &Topology, budget: Option<Watts>) -> Result<Self, PolicyError> {
        Ok(Self { states: PowerDesc::new(topology).uniform(budget)? })
    }

    /// The state of each drive.
    #[must_use]
    pub fn states(&self) -> &[PowerState] {
        &self.states
    }
}

impl Policy for Sspc {
    fn name(&self) -> &'static str {
        "sspc"
    }
    fn step(&mut self, _signals: &Signals, request: &mut Request) {
        for (d, ps) in self.states.iter().enumerate() {
            request.power_state.ask(d, *ps, "sspc:uniform-cap");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ssd::CAP_TOLERANCE;
    use crate::ssd::testing::{any_topology, pm1743, topology};

    fn states(topology: &Topology, budget: f64) -> Vec<PowerState> {
        Sspc::new(topology, Some(Watts(budget))).unwrap().states().to_vec()
    }

    #[test]
    fn the_papers_budget_gives_the_papers_state() {
        // §VI-A: 224 W over 16 PM1743 is PS3, 14 W each; Fig. 2.
        let server = topology(&[pm1743(); 16].map(|caps| caps.to_vec()));
        assert_eq!(states(&server, 224.0), [3; 16]);
        assert_eq!(states(&server, 287.9), [3; 16], "one deci-watt short of 18 W each");
        assert_eq!(states(&server, 288.0), [2; 16]);
        assert_eq!(states(&server, 144.0), [4; 16]);
        assert_eq!(states(&server, 1e4), [0; 16]);
    }

    #[test]
    fn without_a_budget_nothing_is_capped() {
        let server = topology(&[pm1743().to_vec(), vec![12.0, 8.0]]);
        assert_eq!(Sspc::new(&server, None).unwrap().states(), [0, 0]);
    }

    #[test]
    fn an_impossible_budget_says_what_would_be_possible() {
        let server = topology(&[pm1743(); 16].map(|caps| caps.to_vec()));
        let error = Sspc::new(&server, Some(Watts(143.0))).unwrap_err();
        assert_eq!(
            error,
            PolicyError::Budget { budget: Watts(143.0), lowest: Watts(144.0), drives: 16 }
        );
        for budget in [f64::NAN, f64::INFINITY] {
            let error = Sspc::new(&server, Some(Watts(budget))).unwrap_err();
            assert!(matches!(error, PolicyError::Parameter { parameter: "ssd_budget", .. }));
        }
    }

    #[test]
    fn unequal_drives_share_a_cap_in_watts_not_a_state_number() {
        // Kioxia CD8-V has 25 and 12 W only, PM1733 25 W only (device data sheets).
        let server = topology(&[pm1743().to_vec(), vec![25.0, 12.0], vec![25.0]]);
        assert_eq!(states(&server, 60.0), [1, 1, 0], "21 + 12 + 25 W");
        assert_eq!(states(&server, 46.0), [4, 1, 0], "9 + 12 + 25 W");
    }

    #[test]
    fn decimal_caps_fit_their_own_sum() {
        let server = topology(&[vec![27.5, 19.8, 9.9], vec![27.5, 19.8, 9.9], vec![19.8, 9.9]]);
        assert_eq!(states(&server, 59.4), [1, 1, 0]);
    }

    proptest! {
        #[test]
        fn fits_the_budget_and_never_caps_lower_for_more_of_it(
            server in any_topology(), low in 0.0..1.0_f64, more in 0.0..1.0_f64,
        ) {
            let desc = PowerDesc::new(&server);
            let least = server.lowest_drive_budget();
            let most = desc.sum(&vec![0; desc.drives()]);
            let budget = least + (most - least) * low;
            let larger = budget + (most - budget) * more;
            let states = desc.uniform(Some(budget)).unwrap();
            prop_assert!(desc.sum(&states) <= budget + CAP_TOLERANCE);
            let faster = desc.uniform(Some(larger)).unwrap();
            prop_assert!(faster.iter().zip(&states).all(|(f, s)| f <= s));
        }
    }
}
