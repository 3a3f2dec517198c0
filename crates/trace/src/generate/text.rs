//! Text forms in TOML that are not plain units: rates, shares, one size or several.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ebb_policy::units::{Bytes, UnitError, parse_ratio};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::format::field::shown;

/// How fast requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As fast as the threads get them done: `"max"`.
    Max,
    /// Requests per second: `"18000 IOPS"` or a bare number.
    Iops(f64),
    /// Share of what the server can do at most (PACER §III-A3): `"10%"`.
    Pressure(f64),
}

/// Requests per second that are told apart from none and from all at once.
pub(super) const RATES: RangeInclusive<f64> = 1e-9..=1e9;
/// The same for messages.
pub(super) const RATES_SAID: &str =
    "a rate is above 0, from 1e-9 to 1e9 IOPS, such as \"18000 IOPS\"";
/// Pressures as shares.
const PRESSURES: RangeInclusive<f64> = 1e-9..=10.0;

/// A text that is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// No number.
    #[error("'{0}' is not a rate: write \"max\", \"18000 IOPS\", 50k or a pressure such as 10%")]
    Form(String),
    /// A number out of range.
    #[error("'{0}' is out of range: {RATES_SAID}; a pressure is from 1e-7% to 1000%")]
    Range(String),
}

impl FromStr for Rate {
    type Err = RateError;
    fn from_str(text: &str) -> Result<Self, RateError> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("max") {
            return Ok(Self::Max);
        }
        if let Some(percent) = trimmed.strip_suffix('%') {
            return match number(percent).map(|percent| percent / 100.0) {
                Some(share) if PRESSURES.contains(&share) => Ok(Self::Pressure(share)),
                Some(_) => Err(RateError::Range(shown(text.as_bytes()))),
                None => Err(RateError::Form(shown(text.as_bytes()))),
            };
        }
        match any_iops(text) {
            Some(iops) if RATES.contains(&iops) => Ok(Self::Iops(iops)),
            Some(_) => Err(RateError::Range(shown(text.as_bytes()))),
            None => Err(RateError::Form(shown(text.as_bytes()))),
        }
    }
}

/// Requests per second above zero: "18000", "50k", "1.5 M IOPS".
#[must_use]
pub fn iops(text: &str) -> Option<f64> {
    any_iops(text).filter(|iops| *iops > 0.0)
}

fn any_iops(text: &str) -> Option<f64> {
    let trimmed = text.trim();
    let end = trimmed.len().saturating_sub(4);
    let has_unit = trimmed.is_char_boundary(end) && trimmed[end..].eq_ignore_ascii_case("iops");
    let bare = if has_unit { trimmed[..end].trim_end() } else { trimmed };
    let (digits, factor) = match bare.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => bare.strip_suffix('M').map_or((bare, 1.0), |digits| (digits, 1e6)),
    };
    number(digits).map(|number| number * factor)
}

fn number(text: &str) -> Option<f64> {
    let value: f64 = text.trim().replace('_', "").parse().ok()?;
    value.is_finite().then_some(value)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Iops(rate) => write!(f, "{rate} IOPS"),
            Self::Pressure(share) => write!(f, "{}%", share * 100.0),
        }
    }
}
impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = from.deserialize_any(TextOrNumber)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A share from 0 to 1: `0.7` or `"70%"`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// A text that is no share.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ShareError {
    /// No number or percentage.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Above one.
    #[error("'{0}' is more than all: a share lies between 0 and 1 (100%)")]
    Above(String),
}

impl FromStr for Share {
    type Err = ShareError;
    fn from_str(text: &str) -> Result<Self, ShareError> {
        match parse_ratio(text)? {
            share if share > 1.0 => Err(ShareError::Above(text.to_owned())),
            share => Ok(Self(share)),
        }
    }
}
impl Serialize for Share {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.0)
    }
}
impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextOrNumber)?.parse().map_err(de::Error::custom)
    }
}

/// A text, or a number as its text.
struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

/// Block sizes that come equally often: `"8 KiB"` or `["4 KiB", "16 KiB"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocks(pub Vec<Bytes>);

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Blocks;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"8 KiB\", or a list of sizes")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Blocks, E> {
                text.parse().map(|size| Blocks(vec![size])).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Blocks, A::Error> {
                let mut sizes = Vec::new();
                while let Some(size) = list.next_element()? {
                    sizes.push(size);
                }
                Ok(Blocks(sizes))
            }
        }
        from.deserialize_any(OneOrMany)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_their_three_forms_and_print_them_again() {
        for (text, rate) in [
            ("max", Rate::Max),
            ("18000 IOPS", Rate::Iops(18_000.0)),
            ("18_000iops", Rate::Iops(18_000.0)),
            ("250", Rate::Iops(250.0)),
            ("50k", Rate::Iops(50_000.0)),
            ("1.5 M IOPS", Rate::Iops(1.5e6)),
            ("10%", Rate::Pressure(0.1)),
        ] {
            assert_eq!(text.parse(), Ok(rate));
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_with_examples() {
        for text in ["", "fast", "NaN", "inf IOPS", "10 €", "€"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("is not a rate") && error.contains("18000 IOPS"), "{error}");
        }
        for text in ["-3", "0", "0 IOPS", "1e-10", "2000 M", "1e300", "0%", "1e-8%", "1001%"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("out of range: a rate is above 0"), "{error}");
        }
        let long = format!("0.{}1", "0".repeat(300));
        assert!(long.parse::<Rate>().unwrap_err().to_string().len() < 200);
    }
}
