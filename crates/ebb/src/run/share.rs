//! Shares in a configuration: numbers, or texts such as "20%".

use ebb_policy::units::{parse_ratio, parse_tolerance};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// A share: 0.2, "0.2" or "20%".
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Share")]
pub enum Written {
    Number(#[schemars(range(min = 0))] f64),
    Text(String),
}

impl Written {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// Reads a ratio.
pub fn ratio<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    parse_ratio(&Written::deserialize(from)?.text()).map_err(de::Error::custom)
}

/// Reads one that need not be there.
pub fn some_tolerance<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    tolerance(from).map(Some)
}

/// Reads a `plf`.
pub fn tolerance<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    parse_tolerance(&Written::deserialize(from)?.text()).map_err(de::Error::custom)
}
