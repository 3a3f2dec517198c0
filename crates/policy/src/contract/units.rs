//! Physical units as types, with the text forms used in configuration (`"224 W"`, `"500 ms"`).

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text that is not a quantity of the wanted unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a {quantity}: write {form}, such as \"{example}\"")]
pub struct UnitError {
    text: String,
    quantity: &'static str,
    form: String,
    example: &'static str,
}

fn unit_error(
    text: &str,
    units: &[(&str, f64)],
    quantity: &'static str,
    example: &'static str,
) -> UnitError {
    let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
    let form = format!("a number and a unit ({})", names.join(", "));
    UnitError { text: text.to_owned(), quantity, form, example }
}

/// Splits `"224 W"` into its number and the factor of its unit.
fn parse(
    text: &str,
    units: &[(&str, f64)],
    quantity: &'static str,
    example: &'static str,
) -> Result<f64, UnitError> {
    let error = || unit_error(text, units, quantity, example);
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | '_')))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.replace('_', "").parse().map_err(|_| error())?;
    let unit = unit.trim();
    let factor = units.iter().find(|(name, _)| is_same(name, unit, units));
    let value = number * factor.ok_or_else(error)?.1;
    if value.is_finite() { Ok(value) } else { Err(error()) }
}

/// Whether `unit` is `name`, but for case: `KW` is `kW`. Of the prefixes m and M it counts, for a
/// billion lies between them.
fn is_same(name: &str, unit: &str, units: &[(&str, f64)]) -> bool {
    let is_prefixed = |rest: &str| units.iter().any(|(base, _)| *base == rest);
    let prefix = name.strip_prefix(['m', 'M']).filter(|rest| is_prefixed(rest));
    name.eq_ignore_ascii_case(unit)
        && (prefix.is_none() || name.as_bytes().first() == unit.as_bytes().first())
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $quantity:literal, $unit:literal, $example:literal,
     [$(($text:literal, $factor:literal)),+]) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
        pub struct $name(pub f64);

        impl $name {
            /// The larger of the two.
            #[must_use]
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }
            /// The smaller of the two.
            #[must_use]
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }
        }
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
                Self(values.map(|value| value.0).sum())
            }
        }
        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse(text, &[$(($text, $factor)),+], $quantity, $example).map(Self)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match f.precision() {
                    Some(digits) => write!(f, "{:.digits$} {}", self.0, $unit),
                    None => write!(f, "{} {}", self.0, $unit),
                }
            }
        }
        text_serde!($name);
    };
}

/// For people as text with its unit; in binary forms the number alone, bit for bit.
macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                if to.is_human_readable() { to.collect_str(self) } else { self.0.serialize(to) }
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                if !from.is_human_readable() {
                    return Deserialize::deserialize(from).map(Self);
                }
                String::deserialize(from)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

quantity!(/// Power in watts.
    Watts, "power", "W", "224 W", [("W", 1.0), ("mW", 1e-3), ("kW", 1e3), ("uW", 1e-6)]);
quantity!(/// Energy in joules.
    Joules, "energy", "J", "12 J",
    [("J", 1.0), ("nJ", 1e-9), ("uJ", 1e-6), ("mJ", 1e-3), ("kJ", 1e3), ("MJ", 1e6),
     ("Wh", 3600.0)]);
quantity!(/// Frequency in hertz.
    Hertz, "frequency", "Hz", "2.6 GHz",
    [("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)]);
quantity!(/// Temperature in degrees Celsius.
    Celsius, "temperature", "C", "70 C", [("C", 1.0), ("°C", 1.0)]);
quantity!(/// Rotational speed in revolutions per minute.
    Rpm, "rotational speed", "rpm", "2400 rpm", [("rpm", 1.0), ("krpm", 1e3)]);

impl Mul<Nanos> for Watts {
    type Output = Joules;
    fn mul(self, time: Nanos) -> Joules {
        Joules(self.0 * time.seconds())
    }
}
impl Div<Nanos> for Joules {
    type Output = Watts;
    fn div(self, time: Nanos) -> Watts {
        Watts(self.0 / time.seconds())
    }
}

/// A span of time, or an instant since the start of a run, in whole nanoseconds (584 years).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all; the start of a run.
    pub const ZERO: Self = Self(0);

    /// Whole microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }
    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }
    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }
    /// Seconds with a fraction; a negative or absurd value saturates.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }
    /// In seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }
    /// The same as the number that is printed shortest: 57.5 and not 57.50000000000001.
    #[must_use]
    pub fn decimal(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// In microseconds.
    #[must_use]
    pub fn micros(self) -> f64 {
        self.0 as f64 * 1e-3
    }
    /// `self - other`, or zero if that would be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
impl FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, f64)] = &[
            ("ns", 1e-9),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("ms", 1e-3),
            ("s", 1.0),
            ("sec", 1.0),
            ("min", 60.0),
            ("h", 3600.0),
            ("d", 86400.0),
        ];
        let seconds = parse(text, UNITS, "duration", "500 ms")?;
        if (0.0..1e9).contains(&seconds) {
            Ok(Self::from_seconds(seconds))
        } else {
            Err(unit_error(text, UNITS, "duration", "500 ms"))
        }
    }
}
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "0 s"),
            n if n % 1_000_000_000 == 0 => write!(f, "{} s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{} ms", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{} us", n / 1_000),
            n => write!(f, "{n} ns"),
        }
    }
}
text_serde!(Nanos);

/// A size or an amount of data in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, f64)] = &[
            ("B", 1.0),
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("GiB", 1_073_741_824.0),
            ("TiB", 1_099_511_627_776.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
        ];
        let bytes = parse(text, UNITS, "size", "8 KiB")?;
        if (0.0..1e19).contains(&bytes) {
            Ok(Self(bytes as u64))
        } else {
            Err(unit_error(text, UNITS, "size", "8 KiB"))
        }
    }
}
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut index = 0;
        let mut value = self.0;
        while index + 1 < NAMES.len() && value != 0 && value.is_multiple_of(1024) {
            value /= 1024;
            index += 1;
        }
        write!(f, "{value} {}", NAMES[index])
    }
}
text_serde!(Bytes);

/// A share between 0 and 1, written `0.2` or `"20%"`; may exceed 1 where a ratio can.
///
/// # Errors
/// When the text is neither a number nor a percentage, or is negative.
pub fn parse_ratio(text: &str) -> Result<f64, UnitError> {
    let value = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|value| value / 100.0),
        None => text.trim().parse(),
    };
    match value {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => {
            let form = "a share or a percentage".to_owned();
            Err(UnitError { text: text.to_owned(), quantity: "ratio", form, example: "20%" })
        }
    }
}

/// A tolerated rise of the latency: a ratio up to 10, which is 1000 %.
///
/// # Errors
/// When the text is no ratio, or more: who writes 20 means 20 %.
pub fn parse_tolerance(text: &str) -> Result<f64, String> {
    let ratio = parse_ratio(text).map_err(|error| error.to_string())?;
    if ratio <= 10.0 {
        return Ok(ratio);
    }
    Err(format!("'{text}' is more than 1000%: write a percentage with its sign, such as \"20%\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_their_text_forms() {
        assert_eq!("224 W".parse(), Ok(Watts(224.0)));
        assert_eq!("0.5kW".parse(), Ok(Watts(500.0)));
        assert_eq!("2.6 GHz".parse(), Ok(Hertz(2.6e9)));
        assert_eq!("500 ms".parse(), Ok(Nanos::from_millis(500)));
        assert_eq!("5 min".parse(), Ok(Nanos::from_secs(300)));
        assert_eq!("8 KiB".parse(), Ok(Bytes(8192)));
        assert_eq!(parse_ratio("20%"), Ok(0.2));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "W", "224", "224 V", "1e999 W", "--3 W"] {
            assert!(text.parse::<Watts>().is_err(), "{text}");
        }
        assert!("-1 s".parse::<Nanos>().is_err());
        assert!("-4 KiB".parse::<Bytes>().is_err());
        assert!(parse_ratio("-1%").is_err());
        assert_eq!(parse_tolerance("1000%"), Ok(10.0));
        assert!(parse_tolerance("20").unwrap_err().contains("20%"));
        assert!(parse_tolerance("1e308").is_err());
        let message = "224 V".parse::<Watts>().unwrap_err().to_string();
        assert!(message.contains("224 V") && message.contains("224 W"), "{message}");
        assert!(message.contains("(W, mW, kW, uW)"), "{message}");
        let message = "5 parsec".parse::<Nanos>().unwrap_err().to_string();
        assert!(message.contains("ns, us, µs, ms, s, sec, min, h, d"), "{message}");
    }

    #[test]
    fn a_thousandth_is_no_million() {
        assert_eq!("2 MJ".parse(), Ok(Joules(2e6)));
        assert_eq!("2 mJ".parse(), Ok(Joules(2e-3)));
        assert_eq!("2 mW".parse(), Ok(Watts(2e-3)));
        for text in ["1 MW", "1 Mw"] {
            assert!(text.parse::<Watts>().unwrap_err().to_string().contains("kW"), "{text}");
        }
        assert!("1 mHz".parse::<Hertz>().is_err() && "1 Ms".parse::<Nanos>().is_err());
        // What has one meaning may be written in any case.
        assert_eq!("1 KW".parse(), Ok(Watts(1e3)));
        assert_eq!("1 Min".parse(), Ok(Nanos::from_secs(60)));
        assert_eq!("1 mib".parse(), Ok(Bytes(1 << 20)));
        assert_eq!("2.6 Ghz".parse(), Ok(Hertz(2.6e9)));
    }

    #[test]
    fn display_reads_back() {
        for nanos in [0, 7, 500_000_000, 1_500, 3_000_000_000] {
            assert_eq!(Nanos(nanos).to_string().parse(), Ok(Nanos(nanos)));
        }
        assert_eq!(Nanos::from_millis(57_500).decimal().to_string(), "57.5");
        for bytes in [0, 1, 4096, 3 << 40, 5000] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
    }
}
