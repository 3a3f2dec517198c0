//! What external meters print: a line is watts, or a time and watts; anything else is counted and
//! passed over.

use jiff::Timestamp;

use ebb_policy::units::Watts;

/// No meter of one server says more.
const MOST: f64 = 100e3;
/// Unix seconds from 2001 to 2286: neither milliseconds nor times since some start.
const UNIX: std::ops::Range<f64> = 1e9..1e10;

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Line {
    /// A sample, with Unix seconds where the meter tells them.
    Sample {
        /// When.
        unix: Option<f64>,
        /// How much.
        watts: f64,
    },
    /// Names of columns, a comment, nothing.
    Other,
}

/// Reads lines.
#[derive(Debug, Default)]
pub struct Parser {
    /// Places of time and watts, once a heading has named them.
    columns: Option<(Option<usize>, usize)>,
    /// The time of the last sample.
    last: Option<f64>,
}

impl Parser {
    /// One line.
    ///
    /// # Errors
    /// Why it is no sample.
    pub fn line(&mut self, line: &str) -> Result<Line, &'static str> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(Line::Other);
        }
        let fields: Vec<&str> = line.split([',', ';', '\t']).map(str::trim).collect();
        if self.columns.is_none() && self.last.is_none() && self.heading(&fields) {
            return Ok(Line::Other);
        }
        let standard = if fields.len() == 1 { (None, 0) } else { (Some(0), 1) };
        let (time, power) = self.columns.unwrap_or(standard);
        let watts = watts(fields.get(power).ok_or("too few columns")?)?;
        let unix = match time {
            Some(time) => Some(unix(fields.get(time).ok_or("too few columns")?)?),
            None => None,
        };
        if unix.is_some() && unix <= self.last {
            return Err("not after the line before");
        }
        self.last = unix.or(Some(f64::NEG_INFINITY));
        Ok(Line::Sample { unix, watts })
    }

    /// Takes a line of names for what it is.
    fn heading(&mut self, fields: &[&str]) -> bool {
        let place = |names: &[&str]| {
            let is_one = |field: &&str| names.contains(&field.to_ascii_lowercase().as_str());
            fields.iter().position(is_one)
        };
        let Some(power) = place(&["watts", "watt", "power_w", "power", "w"]) else { return false };
        let time = place(&["unix_s", "unix", "timestamp", "time", "time_s", "date"]);
        self.columns = Some((time, power));
        true
    }
}

fn watts(text: &str) -> Result<f64, &'static str> {
    let named = || text.parse::<Watts>().ok().map(|watts| watts.0);
    let watts = text.parse::<f64>().ok().or_else(named).ok_or("no number")?;
    match watts {
        _ if !watts.is_finite() => Err("not finite"),
        _ if watts < 0.0 => Err("negative"),
        _ if watts > MOST => Err("above 100 kW"),
        _ => Ok(watts),
    }
}

/// Unix seconds, or a date and time as RFC 3339 has it.
fn unix(text: &str) -> Result<f64, &'static str> {
    let dated = || text.parse::<Timestamp>().ok().map(|time| time.as_nanosecond() as f64 * 1e-9);
    let seconds = text.parse::<f64>().ok().or_else(dated);
    seconds.filter(|seconds| UNIX.contains(seconds)).ok_or("no time in Unix seconds or RFC 3339")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(lines: &[&str]) -> Vec<Result<Line, &'static str>> {
        let mut parser = Parser::default();
        lines.iter().map(|line| parser.line(line)).collect()
    }

    fn sample(unix: Option<f64>, watts: f64) -> Result<Line, &'static str> {
        Ok(Line::Sample { unix, watts })
    }

    #[test]
    fn watts_come_alone_or_with_their_time() {
        let bare = ["50", "50.5 W", "0.05 kW", "", "# a comment"];
        let other = Ok(Line::Other);
        let wanted = [sample(None, 50.0), sample(None, 50.5), sample(None, 50.0), other, other];
        assert_eq!(all(&bare), wanted);
        let timed = ["1700000000.5,12", "2023-11-14T22:13:22Z; 13"];
        let times = [1_700_000_000.5, 1_700_000_002.0].map(Some);
        assert_eq!(all(&timed), [sample(times[0], 12.0), sample(times[1], 13.0)]);
        let named = ["volts,Watts,unix_s", "230,7,1700000000"];
        assert_eq!(all(&named)[1], sample(Some(1.7e9), 7.0));
    }

    #[test]
    fn nonsense_is_named() {
        let refused = |line: &str| all(&[line])[0].unwrap_err();
        for (line, why) in [
            ("hello", "no number"),
            ("NaN", "not finite"),
            ("inf", "not finite"),
            ("-3", "negative"),
            ("1e9", "above 100 kW"),
            ("12,50", "no time in Unix seconds or RFC 3339"),
            ("1700000000000,50", "no time in Unix seconds or RFC 3339"),
            ("1700000000", "above 100 kW"),
        ] {
            assert_eq!(refused(line), why, "{line}");
        }
        let back = all(&["1700000001,5", "1700000001,6", "1700000000,7", "1700000002,8"]);
        assert!(back[1].is_err() && back[2].is_err() && back[3].is_ok(), "{back:?}");
        assert_eq!(all(&["watts,time", "5"])[1], Err("too few columns"));
    }

    proptest! {
        #[test]
        fn no_line_panics_and_every_sample_is_possible(
            lines in proptest::collection::vec(".{0,40}", 0..8),
        ) {
            let mut parser = Parser::default();
            for line in &lines {
                if let Ok(Line::Sample { watts, .. }) = parser.line(line) {
                    prop_assert!((0.0..=MOST).contains(&watts));
                }
            }
        }
    }
}
