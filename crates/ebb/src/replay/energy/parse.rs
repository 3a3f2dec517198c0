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
    /// What a heading has named, or why it cannot be used.
    heading: Option<Result<Heading, &'static str>>,
    /// The time of the last sample.
    last: Option<f64>,
}

/// Columns by their places.
#[derive(Debug, Clone, Copy)]
struct Heading {
    count: usize,
    /// With the seconds of its unit.
    time: Option<(usize, f64)>,
    /// With the watts of its unit.
    power: (usize, f64),
}

impl Heading {
    /// Watts alone, or a time and watts.
    fn none(count: usize) -> Result<Self, &'static str> {
        match count {
            1 => Ok(Self { count, time: None, power: (0, 1.0) }),
            2 => Ok(Self { count, time: Some((0, 1.0)), power: (1, 1.0) }),
            _ => Err("more than a time and watts, and no heading"),
        }
    }

    fn of(names: &[String]) -> Result<Self, &'static str> {
        let time = only(names, time_unit, "several columns of time")?;
        let power = only(names, power_unit, "several columns of watts")?;
        let power = power.ok_or("the heading names no column of watts, such as power_w")?;
        Ok(Self { count: names.len(), time, power })
    }
}

/// The one column that has a unit; of several, the one that is named by that alone.
fn only(
    names: &[String],
    unit: fn(&str) -> Option<(f64, bool)>,
    several: &'static str,
) -> Result<Option<(usize, f64)>, &'static str> {
    let found = names.iter().enumerate().filter_map(|(at, name)| Some((at, unit(name)?)));
    let found: Vec<(usize, (f64, bool))> = found.collect();
    let plain: Vec<_> = found.iter().filter(|(_, (_, plain))| *plain).collect();
    match (&found[..], &plain[..]) {
        ([], _) => Ok(None),
        ([(at, (unit, _))], _) | (_, [(at, (unit, _))]) => Ok(Some((*at, *unit))),
        _ => Err(several),
    }
}

/// Watts of the unit that a name ends with, and whether it says nothing else.
fn power_unit(name: &str) -> Option<(f64, bool)> {
    let words: Vec<&str> = words(name).collect();
    let (unit, rest) = words.split_last()?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        // Of nothing but power, not of a factor or of what is apparent.
        "power" if rest.is_empty() => 1.0,
        "w" | "watt" | "watts" => 1.0,
        // Not "MW".
        "mw" | "milliwatt" | "milliwatts" if !unit.starts_with('M') => 1e-3,
        "kw" | "kilowatt" | "kilowatts" => 1e3,
        "uw" | "microwatt" | "microwatts" => 1e-6,
        _ => return None,
    };
    Some((unit, rest.iter().all(|word| word.eq_ignore_ascii_case("power"))))
}

/// Seconds of the unit that a name of a time ends with, and whether it says nothing else.
fn time_unit(name: &str) -> Option<(f64, bool)> {
    let words: Vec<String> = words(name).map(str::to_ascii_lowercase).collect();
    let is_time = |word: &String| {
        matches!(word.as_str(), "time" | "timestamp" | "date" | "datetime" | "unix" | "epoch")
    };
    if !words.iter().any(is_time) {
        return None;
    }
    let unit = match words.last()?.as_str() {
        "ms" | "milliseconds" | "millis" => 1e-3,
        "us" | "microseconds" | "micros" => 1e-6,
        "ns" | "nanoseconds" | "nanos" => 1e-9,
        _ => 1.0,
    };
    Some((unit, words.iter().filter(|word| !is_time(word)).count() <= 1))
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

impl Parser {
    /// One line.
    ///
    /// # Errors
    /// Why it is no sample.
    pub fn line(&mut self, line: &str) -> Result<Line, &'static str> {
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(Line::Other);
        }
        let (fields, comma) = fields(line)?;
        if self.heading.is_none() && self.last.is_none() && is_heading(&fields) {
            self.heading = Some(Heading::of(&fields));
            return Ok(Line::Other);
        }
        let heading = match self.heading {
            Some(heading) => heading?,
            None => Heading::none(fields.len())?,
        };
        match fields.len() {
            there if there < heading.count => return Err("too few columns"),
            there if there > heading.count => return Err("a column too many"),
            _ => {}
        }
        let field = |at: usize| fields.get(at).map_or("", String::as_str);
        let (power, unit) = heading.power;
        let watts = watts(&decimal(field(power), comma)?, unit)?;
        let unix = match heading.time {
            Some((time, unit)) => Some(unix(&decimal(field(time), comma)?, unit)?),
            None => None,
        };
        if unix.is_some() && unix <= self.last {
            return Err("not after the line before");
        }
        self.last = unix.or(Some(f64::NEG_INFINITY));
        Ok(Line::Sample { unix, watts })
    }
}

/// Two names or more, or one that means watts: no field is a number.
fn is_heading(fields: &[String]) -> bool {
    let named = |field: &String| field.starts_with(char::is_alphabetic);
    let all = fields.iter().all(named);
    all && (fields.len() > 1 || fields.iter().any(|field| power_unit(field).is_some()))
}

/// The fields of a line, and whether a comma is a decimal point in them: a line with a tab or a
/// semicolon is divided by that alone.
fn fields(line: &str) -> Result<(Vec<String>, bool), &'static str> {
    let separator = ['\t', ';'].into_iter().find(|mark| line.contains(*mark)).unwrap_or(',');
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            _ if letter == separator && !quoted => fields.push(String::new()),
            _ => fields.last_mut().ok_or("no field")?.push(letter),
        }
    }
    if quoted {
        return Err("a quote is not closed");
    }
    fields.iter_mut().for_each(|field| *field = field.trim().to_owned());
    // Some loggers end each line with a separator.
    if fields.len() > 1 && fields.last().is_some_and(String::is_empty) {
        fields.pop();
    }
    Ok((fields, separator != ','))
}

/// The number with a decimal point.
fn decimal(text: &str, comma: bool) -> Result<String, &'static str> {
    match (comma, text.matches(',').count(), text.contains('.')) {
        (_, 0, _) => Ok(text.to_owned()),
        (true, 1, false) => Ok(text.replace(',', ".")),
        _ => Err("a comma that is not a decimal point"),
    }
}

fn watts(text: &str, unit: f64) -> Result<f64, &'static str> {
    let named = || text.parse::<Watts>().ok().map(|watts| watts.0);
    let plain = text.parse::<f64>().ok().map(|number| number * unit);
    let watts = plain.or_else(named).ok_or("no number")?;
    match watts {
        _ if !watts.is_finite() => Err("not finite"),
        _ if watts < 0.0 => Err("negative"),
        _ if watts > MOST => Err("above 100 kW"),
        _ => Ok(watts),
    }
}

/// Unix seconds, or a date and time as RFC 3339 has it.
fn unix(text: &str, unit: f64) -> Result<f64, &'static str> {
    let dated = || text.parse::<Timestamp>().ok().map(|time| time.as_nanosecond() as f64 * 1e-9);
    let seconds = text.parse::<f64>().ok().map(|number| number * unit).or_else(dated);
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
        assert_eq!(all(&["watts,time", "5,1700000000,1"])[1], Err("a column too many"));
    }

    #[test]
    fn a_semicolon_is_no_comma() {
        let wanted = sample(Some(1_795_615_044.5), 35.4);
        for line in [
            "1795615044,5;35,4",
            "1795615044.5;35.4",
            "1795615044,5\t35,4",
            "\u{feff}1795615044,5 ; 35,4 W;\r",
            "\"1795615044.5\",\"35.4\"",
            "2026-11-25T13:57:24.5Z;35,4",
        ] {
            assert_eq!(all(&[line]), [wanted], "{line}");
        }
        for line in [
            "1795615044,5,35,4",
            "1795615044,35,4",
            "2026-11-25T13:57:24Z,35,4",
            "1795615044;1.035,4",
            "1795615044;1,035,4",
            "1795615044,\"35,4\"",
            "1795615044;35,4;7",
            "1795615044,\"35",
        ] {
            assert!(all(&[line])[0].is_err(), "{line}");
        }
    }

    #[test]
    fn headings_name_columns_and_units() {
        let time = Some(1_700_000_000.0);
        for (heading, line) in [
            ("timestamp_ms;power_mW;volts", "1700000000000;7000;230"),
            ("Time (s),Voltage (V),Active Power (kW)", "1700000000,230,0.007"),
            ("date;apparent_power_va;power_factor;power_w", "2023-11-14T22:13:20Z;9;0,9;7,0"),
            ("Power,Unix,power_min_w,power_max_w", "7,1700000000,1,9"),
            ("\"time\",\"watts\"", "1700000000,7"),
        ] {
            let read = all(&[heading, line]);
            assert_eq!(read[0], Ok(Line::Other), "{heading}");
            let Ok(Line::Sample { unix, watts }) = read[1] else { panic!("{heading}: {read:?}") };
            assert!((watts - 7.0).abs() < 1e-9 && unix == time, "{heading}: {read:?}");
        }
        for (heading, line) in [
            ("time,energy_wh", "1700000000,7"),
            ("time,power_MW", "1700000000,7"),
            ("time,power_va", "1700000000,7"),
            ("time,outlet1_w,outlet2_w", "1700000000,7,8"),
            ("date,time,power_w", "2023-11-14,22:13:20,7"),
            ("time,power factor", "1700000000,1"),
        ] {
            let read = all(&[heading, line, line]);
            assert!(read[1].is_err() && read[2].is_err(), "{heading}: {read:?}");
        }
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
