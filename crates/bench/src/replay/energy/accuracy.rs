//! How far a meter may be off.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use ebb_policy::units::Watts;

/// A share of the reading, and so many watts besides.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Accuracy {
    /// Of the reading, 0 to 1.
    pub share: f64,
    /// In watts.
    pub watts: f64,
}

impl Accuracy {
    /// The least and the most that `joules`, metered over `seconds`, can have been.
    pub fn bounds(&self, joules: f64, seconds: f64) -> (f64, f64) {
        let off = self.share * joules + self.watts * seconds;
        ((joules - off).max(0.0), joules + off)
    }
}

impl FromStr for Accuracy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no accuracy: write \"0.5 %\", \"2 W\" or \"0.5 % + 2 W\"");
        let mut accuracy = Self::default();
        for part in text.split('+') {
            let part = part.trim();
            match part.strip_suffix('%') {
                Some(percent) => {
                    let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
                    accuracy.share += percent / 100.0;
                }
                None => accuracy.watts += part.parse::<Watts>().map_err(|_| wrong())?.0,
            }
        }
        let Self { share, watts } = accuracy;
        let good = (0.0..1.0).contains(&share) && (0.0..1e6).contains(&watts);
        if good { Ok(accuracy) } else { Err(wrong()) }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = format!("{:.4}", self.share * 100.0);
        let share = share.trim_end_matches('0').trim_end_matches('.');
        match (self.share > 0.0, self.watts > 0.0) {
            (true, true) => write!(f, "{share} % + {} W", self.watts),
            (false, true) => write!(f, "{} W", self.watts),
            _ => write!(f, "{share} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_told() {
        for (text, share, watts) in
            [("0.5 %", 0.005, 0.0), ("2 W", 0.0, 2.0), ("0.5% + 500 mW", 0.005, 0.5)]
        {
            let accuracy: Accuracy = text.parse().unwrap();
            assert!((accuracy.share - share).abs() < 1e-12 && accuracy.watts == watts, "{text}");
            assert_eq!(accuracy.to_string().parse(), Ok(accuracy));
        }
        for wrong in ["", "%", "1", "-1 %", "100 %", "nan %", "-2 W", "1 J", "1 % + "] {
            assert!(wrong.parse::<Accuracy>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_interval_holds_what_the_meter_may_have_missed() {
        let accuracy = Accuracy { share: 0.01, watts: 0.5 };
        assert_eq!(accuracy.bounds(1000.0, 10.0), (985.0, 1015.0));
        assert_eq!(accuracy.bounds(1.0, 10.0).0, 0.0, "never less than nothing");
    }
}
