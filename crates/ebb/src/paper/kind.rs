//! How a number of the twin is related to the one beside it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a number set the profile or only checks it. They never mix: no constant is chosen
/// because it moves a row of another kind than the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A component figure that set a constant of the profile.
    Calibrated,
    /// A result of one machine and one load, made as the text states them; what it leaves open is
    /// assumed, and nothing is fitted.
    AsStated,
    /// The same under a load that is harder than the paper's own.
    Stress,
    /// A stated number beside another comparison than the one it was stated for, because of what
    /// else the text says: a reading of the paper, which validates nothing.
    Reinterpreted,
    /// A result of the baseline, which values that the text leaves open were fitted to; or these.
    Fitted,
    /// A result of the treatment, over all that the baseline leaves open.
    Predicted,
    /// What follows from other numbers of the same text.
    Arithmetic,
    /// What no paper states: the twin's alone.
    Modelled,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::AsStated => "as stated",
            Self::Stress => "stress",
            Self::Reinterpreted => "reinterpreted",
            Self::Fitted => "fitted",
            Self::Predicted => "predicted",
            Self::Arithmetic => "arithmetic",
            Self::Modelled => "modelled",
        }
    }

    /// What it means, for people; kinds that every report explains have none.
    pub fn meaning(self) -> Option<&'static str> {
        match self {
            Self::Calibrated | Self::AsStated => None,
            Self::Stress => Some("a load harder than the paper's, so its number does not apply."),
            Self::Reinterpreted => Some(
                "the paper's number beside another comparison than stated, because other\n  \
                 parts of the text suggest it. It validates nothing.",
            ),
            Self::Fitted => Some(
                "a result of the baseline that open values were fitted to, or one of\n  \
                 these values.",
            ),
            Self::Predicted => Some(
                "follows from inputs and the fit; no value was set by it. The range is over\n  \
                 open values and seeds. Not identified: it contains the number, but is \
                 wider\n  than a tenth of it, or of what remains where percent less are stated.",
            ),
            Self::Arithmetic => {
                Some("follows from other numbers of the same text, within their rounding.")
            }
            Self::Modelled => Some("the twin's alone; the text states nothing."),
        }
    }
}
