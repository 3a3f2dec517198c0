//! What a controller is.

use super::control::Control;
use super::request::Request;
use super::signals::Signals;
use super::units::Watts;

/// A controller: a pure function from what was sensed to what is asked for.
pub trait Policy: Send {
    /// The name by which the registry, the reports and the command line know it.
    fn name(&self) -> &'static str;

    /// The controls that it sets; it asks for no others.
    fn owns(&self) -> &[Control] {
        Control::ALL
    }

    /// One control period, of whatever length [`Signals::period`] says. `request` holds what it
    /// asked for so far, which stands until it asks for something else; what is in force instead
    /// is in [`Signals::in_force`].
    fn step(&mut self, signals: &Signals, request: &mut Request);
}

/// Why a policy could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error("unknown policy '{name}'; choose from: {valid}")]
    Unknown {
        /// As asked for.
        name: String,
        /// All names.
        valid: String,
    },
    /// The budget is below what the drives can be capped to.
    #[error(
        "SSD budget {budget} is impossible: the lowest power states of the {drives} drives sum \
         to {lowest}; give at least that"
    )]
    Budget {
        /// As asked for.
        budget: Watts,
        /// Sum of the lowest caps.
        lowest: Watts,
        /// Number of drives.
        drives: usize,
    },
    /// The budget is below what the server can be held to.
    #[error(
        "server budget {budget} is impossible: if its meter failed, this server could be held to \
         no less than {least}; give at least that"
    )]
    ServerBudget {
        /// As asked for.
        budget: Watts,
        /// What the safest setting draws by nameplate.
        least: Watts,
    },
    /// Two policies want to set the same.
    #[error(
        "policies '{first}' and '{second}' cannot run together: both set {control}; choose one \
         of them, or run them one after the other"
    )]
    Common {
        /// The one named first.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// What both own.
        control: Control,
    },
    /// What is stated of a policy's parameters is not to be understood.
    #[error("'{text}' is no parameter of {policy}; it takes {valid}: write such as a(x=0.5, y=2)")]
    Stated {
        /// Of which policy.
        policy: &'static str,
        /// As stated.
        text: String,
        /// The names that it takes.
        valid: String,
    },
    /// A parameter out of its range.
    #[error("{parameter} = {value} is out of range: {valid}")]
    Parameter {
        /// Its name.
        parameter: &'static str,
        /// As asked for.
        value: f64,
        /// What would be valid.
        valid: &'static str,
    },
}

impl PolicyError {
    /// Refuses a parameter unless `ok`.
    pub(crate) fn unless(
        ok: bool,
        parameter: &'static str,
        value: f64,
        valid: &'static str,
    ) -> Result<(), Self> {
        if ok { Ok(()) } else { Err(Self::Parameter { parameter, value, valid }) }
    }

    /// Refuses a parameter that is not within `low` to `high`.
    pub(crate) fn within(
        parameter: &'static str,
        value: f64,
        low: f64,
        high: f64,
        valid: &'static str,
    ) -> Result<(), Self> {
        Self::unless((low..=high).contains(&value), parameter, value, valid)
    }
}
