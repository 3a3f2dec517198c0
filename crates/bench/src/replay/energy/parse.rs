//! What external meters print: a line is watts, or a time and watts; anything else is counted and
//! passed over.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use ebb_policy::units::Watts;
use ebb_trace::times::{Moment, moment_of, unknown};

use super::heading::{Heading, are_units, is_power, watts};

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
    /// Names of columns, their units, a comment, nothing.
    Other,
}

/// Reads lines.
#[derive(Debug, Clone, Default)]
pub struct Parser {
    /// What a heading has named.
    names: Option<Vec<String>>,
    /// And what that means, or why it cannot be used.
    heading: Option<Result<Heading, String>>,
    /// Units were below it.
    has_units: bool,
    /// The time of the last sample.
    last: Option<f64>,
    /// Times had no zone: they are taken in the machine's.
    pub local: bool,
    /// Watts had no unit.
    pub bare: bool,
    /// What tells the first row's source, and whether another came since.
    source: (Option<Vec<String>>, bool),
    /// Samples since the last heading.
    rows: usize,
    /// Why no row can be used any more.
    pub useless: Option<String>,
}

impl Parser {
    /// Begins another output of the same meter.
    pub fn renew(&mut self) {
        let (source, useless) = (std::mem::take(&mut self.source), self.useless.take());
        *self = Self { source, useless, ..Self::default() };
    }

    /// Whether a sample was read.
    pub fn begun(&self) -> bool {
        self.last.is_some()
    }

    /// One line.
    ///
    /// # Errors
    /// Why it is no sample.
    pub fn line(&mut self, line: &str) -> Result<Line, String> {
        // Meters on serial lines pad with NUL, or end each line so.
        let is_padding = |it: char| matches!(it, '\0' | '\u{feff}') || it.is_whitespace();
        let line = line.trim_matches(is_padding);
        if line.is_empty() || line.starts_with('#') {
            return Ok(Line::Other);
        }
        if line.contains('\0') {
            let mut pairs = line.as_bytes().chunks(2);
            let is_wide = pairs.all(|pair| pair.len() < 2 || pair.contains(&0) && pair != [0, 0]);
            let why = match is_wide {
                true => {
                    "text in UTF-16: have it written in UTF-8, or pipe it through iconv -f \
                         UTF-16 -t UTF-8"
                }
                false => "a NUL in it: part of it was lost",
            };
            return Err(why.to_owned());
        }
        let (fields, comma) = fields(line)?;
        if self.names(&fields) {
            return Ok(Line::Other);
        }
        if let Some(reason) = &self.useless {
            return Err(reason.clone());
        }
        let bare;
        let heading = match &self.heading {
            Some(heading) => heading.as_ref().map_err(Clone::clone)?,
            None => {
                bare = Heading::none(fields.len())?;
                &bare
            }
        };
        let heading = heading.clone();
        if self.is_part(&heading, &fields)? {
            return Ok(Line::Other);
        }
        match fields.len() {
            there if there < heading.count => return Err("too few columns".to_owned()),
            there if there > heading.count => return Err("a column too many".to_owned()),
            _ => {}
        }
        let field = |at: usize| fields.get(at).map_or("", String::as_str);
        let (power, unit) = heading.power;
        let unit = match heading.unit {
            Some(own) => watts(field(own)).ok_or("its unit is not W, mW, kW or µW")?,
            None => unit,
        };
        let (watts, named) = power_of(&decimal(field(power), comma)?, unit)?;
        let (places, unit) = &heading.time;
        let time: Vec<&str> = places.iter().map(|at| field(*at)).collect();
        let unix = match &time[..] {
            [] => None,
            parts => Some(unix(&parts.join(" "), *unit, comma)?),
        };
        self.local |= unix.is_some_and(|(_, local)| local);
        let unix = unix.map(|(unix, _)| unix);
        if unix.is_some() && unix <= self.last {
            return Err("not after the line before".to_owned());
        }
        self.last = unix.or(Some(f64::NEG_INFINITY));
        self.bare |= !named && !heading.has_unit;
        self.rows += 1;
        Ok(Line::Sample { unix, watts })
    }

    /// Whether a row is of a part of what another row is the sum of: `-`, in turbostat.
    ///
    /// Rows of several sources are of no use: which belong together is not known. A column that
    /// counts rows never has a value again.
    fn is_part(&mut self, heading: &Heading, fields: &[String]) -> Result<bool, String> {
        let source: Option<Vec<String>> =
            heading.sources.iter().map(|at| fields.get(*at).cloned()).collect();
        let Some(source) = source.filter(|source| !source.is_empty()) else { return Ok(false) };
        let (first, others) = &mut self.source;
        let first = first.get_or_insert_with(|| source.clone());
        if first.iter().all(|field| field == "-") {
            return Ok(source != *first);
        }
        if source == *first && *others {
            let names = self.names.as_deref().unwrap_or_default();
            let told = heading.sources.iter().filter_map(|at| names.get(*at));
            let told = told.map(String::as_str).collect::<Vec<_>>().join(", ");
            let reason = format!(
                "rows of several sources, told apart by {told}: have one logged, or their sum"
            );
            self.useless = Some(reason.clone());
            return Err(reason);
        }
        *others |= source != *first;
        Ok(false)
    }

    /// Takes a heading or the units below it; whether the line was one of them.
    fn names(&mut self, fields: &[String]) -> bool {
        match &self.names {
            Some(names) if names == fields => {
                let timed =
                    matches!(&self.heading, Some(Ok(heading)) if !heading.time.0.is_empty());
                if self.rows > 1 && !timed {
                    self.useless = Some(
                        "several rows below each heading, and no time: they are of several \
                         sources that nothing tells apart; have one logged (turbostat --Summary)"
                            .to_owned(),
                    );
                }
                self.rows = 0;
                true
            }
            _ if self.last.is_some() => false,
            None if is_heading(fields) => {
                self.heading = Some(Heading::of(fields));
                self.names = Some(fields.to_vec());
                true
            }
            Some(names) if names.len() == fields.len() && !self.has_units && are_units(fields) => {
                self.heading = Some(Heading::with_units(names, fields));
                self.has_units = true;
                true
            }
            _ => false,
        }
    }
}

/// Two names or more, or one that means watts: no field is a number.
fn is_heading(fields: &[String]) -> bool {
    let named = |field: &String| field.starts_with(char::is_alphabetic);
    let all = fields.iter().all(named);
    all && (fields.len() > 1 || fields.iter().any(|field| is_power(field)))
}

/// The fields of a line, and whether a comma is a decimal point in them: a line with a tab, a
/// semicolon or a bar is divided by that alone, one of nothing but numbers by blanks.
fn fields(line: &str) -> Result<(Vec<String>, bool), String> {
    if line.split_whitespace().all(|word| word.parse::<f64>().is_ok()) {
        return Ok((line.split_whitespace().map(str::to_owned).collect(), false));
    }
    let separator = ['\t', ';', '|'].into_iter().find(|mark| line.contains(*mark)).unwrap_or(',');
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
        return Err("a quote is not closed".to_owned());
    }
    fields.iter_mut().for_each(|field| *field = field.trim().to_owned());
    // Some loggers end each line with a separator.
    if fields.len() > 1 && fields.last().is_some_and(String::is_empty) {
        fields.pop();
    }
    Ok((fields, separator != ','))
}

/// The number with a decimal point.
fn decimal(text: &str, comma: bool) -> Result<String, String> {
    match (comma, text.matches(',').count(), text.contains('.')) {
        (_, 0, _) => Ok(text.to_owned()),
        (true, 1, false) => Ok(text.replace(',', ".")),
        _ => Err("a comma that is not a decimal point".to_owned()),
    }
}

/// Watts, and whether the text names their unit.
fn power_of(text: &str, unit: f64) -> Result<(f64, bool), String> {
    let named = || text.parse::<Watts>().ok().map(|watts| (watts.0, true));
    let plain = text.parse::<f64>().ok().map(|number| (number * unit, false));
    let (watts, named) = plain
        .or_else(named)
        .ok_or("no number (fields are divided by tabs, semicolons, bars or commas)")?;
    let wrong = match watts {
        _ if !watts.is_finite() => "not finite",
        _ if watts < 0.0 => "negative",
        _ if watts > MOST => "above 100 kW",
        _ => return Ok((watts, named)),
    };
    Err(wrong.to_owned())
}

/// Unix seconds, or a date with a time of day, and whether that had no zone.
fn unix(text: &str, unit: f64, comma: bool) -> Result<(f64, bool), String> {
    if let Ok(number) = decimal(text, comma).and_then(|t| t.parse::<f64>().map_err(|_| t)) {
        let in_unit = |unit: f64| UNIX.contains(&(number * unit));
        return match [1.0, 1e-3, 1e-6, 1e-9].into_iter().find(|other| in_unit(*other)) {
            _ if in_unit(unit) => Ok((number * unit, false)),
            Some(other) if other < 1.0 => Err(
                "the time is no Unix second, but could be one in ms, us or ns: name its column \
                 with the unit, as in timestamp_ms"
                    .to_owned(),
            ),
            _ => Err("the time is no Unix second".to_owned()),
        };
    }
    // Which of day and month comes first tells what lies closer to now.
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
    // So does which year it is where a date has none.
    let year = Timestamp::now().to_zoned(TimeZone::UTC).year();
    let all = [true, false].into_iter().flat_map(|first| (-1..=1).map(move |off| (first, off)));
    let read = all.filter_map(|(month_first, off)| moment_of(text, month_first, Some(year + off)));
    let seconds = read.map(seconds).filter(|(seconds, _)| UNIX.contains(seconds));
    seconds.min_by(|a, b| (a.0 - now).abs().total_cmp(&(b.0 - now).abs())).ok_or_else(|| {
        if let Some(why) = unknown(text) {
            return why;
        }
        "no time: write Unix seconds, or a date with a time of day such as 2026-11-29T10:12:00Z"
            .to_owned()
    })
}

/// Unix seconds of a moment, and whether it has no zone: then it is in the machine's.
fn seconds(moment: Moment) -> (f64, bool) {
    let nanos = moment.nanos - i128::from(moment.ahead.unwrap_or(0)) * 1_000_000_000;
    let local = || {
        let civil = jiff::Timestamp::from_nanosecond(nanos).ok()?.to_zoned(TimeZone::UTC);
        let zoned = civil.datetime().to_zoned(TimeZone::system()).ok()?;
        Some(zoned.timestamp().as_nanosecond())
    };
    let known = moment.ahead.map(|_| nanos).or_else(local).unwrap_or(nanos);
    (known as f64 * 1e-9, moment.ahead.is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(lines: &[&str]) -> Vec<Result<Line, String>> {
        let mut parser = Parser::default();
        lines.iter().map(|line| parser.line(line)).collect()
    }

    fn sample(unix: Option<f64>, watts: f64) -> Result<Line, String> {
        Ok(Line::Sample { unix, watts })
    }

    #[test]
    fn watts_come_alone_or_with_their_time() {
        let bare = ["50", "50.5 W", "0.05 kW", "", "# a comment"];
        let other = || Ok(Line::Other);
        let [a, b, c] = [50.0, 50.5, 50.0].map(|watts| sample(None, watts));
        let wanted = [a, b, c, other(), other()];
        assert_eq!(all(&bare), wanted);
        let timed = ["1700000000.5,12", "2023-11-14T22:13:22Z; 13"];
        let times = [1_700_000_000.5, 1_700_000_002.0].map(Some);
        assert_eq!(all(&timed), [sample(times[0], 12.0), sample(times[1], 13.0)]);
        let named = ["volts,Watts,unix_s", "230,7,1700000000"];
        assert_eq!(all(&named)[1], sample(Some(1.7e9), 7.0));
    }

    #[test]
    fn nonsense_is_named() {
        let refused = |line: &str| all(&[line])[0].clone().unwrap_err();
        for (line, why) in [
            ("hello", "no number (fields are divided by tabs, semicolons, bars or commas)"),
            ("NaN", "not finite"),
            ("inf", "not finite"),
            ("-3", "negative"),
            ("1e9", "above 100 kW"),
            ("12,50", "the time is no Unix second"),
            (
                "10:00:00,50",
                "no time: write Unix seconds, or a date with a time of day such as \
                             2026-11-29T10:12:00Z",
            ),
            ("1700000000", "above 100 kW"),
            (
                "2026-11-29 10:12:00 CEST;50",
                "'CEST' is no name of a time zone that means one thing: write its offset, such as \
                 +0100, or times in UTC",
            ),
        ] {
            assert_eq!(refused(line), why, "{line}");
        }
        let back = all(&["1700000001,5", "1700000001,6", "1700000000,7", "1700000002,8"]);
        assert!(back[1].is_err() && back[2].is_err() && back[3].is_ok(), "{back:?}");
        assert_eq!(all(&["watts,time", "5"])[1], Err("too few columns".to_owned()));
        assert_eq!(all(&["watts,time", "5,1700000000,1"])[1], Err("a column too many".to_owned()));
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
            assert_eq!(all(&[line])[0], wanted, "{line}");
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
            ("timestamp, power.draw [W], power.limit [W]", "2023/11/14 22:13:20Z, 7 W, 350 W"),
            ("No.;Date;Time;P-1[W]", "1;14.11.2023;22:13:20+0000;7,0"),
            ("time,power,unit", "1700000000,7000,mW"),
            ("time,W,MB/W,power_avg_w", "1700000000,7,41.2,9"),
            ("epoch\tPkgWatt\tBzy_MHz", "1700000000\t7\t2400"),
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
            ("time,start_time,timestamp,power_w", "1,2,3,7"),
            ("time,power factor", "1700000000,1"),
            ("time,power (0.1 W)", "1700000000,70"),
            ("time,power_x10_w", "1700000000,70"),
            ("time,power (% of 500 W)", "1700000000,70"),
            ("time,ssj_ops/watt", "1700000000,70"),
            ("timestamp, power.limit [W]", "1700000000, 350 W"),
            ("time,TDP (W)", "1700000000,150"),
            ("time,PowerLimit (W)", "1700000000,350"),
            ("time,PeakWatt", "1700000000,350"),
            ("time,std_w", "1700000000,8"),
            ("time,power,unit", "1700000000,7,kVA"),
        ] {
            let read = all(&[heading, line, line]);
            assert!(read[1].is_err() && read[2].is_err(), "{heading}: {read:?}");
        }
    }

    #[test]
    fn rows_of_several_sources_are_of_no_use() {
        for lines in [
            &["time,outlet,power_w", "1700000000,1,50", "1700000000,2,60", "1700000001,1,50"][..],
            &["time, gpu_id, power [W]", "1700000000.1,0,5", "1700000000.2,1,6", "1700000001,0,5"],
            &["PkgWatt", "100", "60", "40", "PkgWatt", "100"],
        ] {
            let read = all(lines);
            let reason = read[lines.len() - 1].clone().unwrap_err();
            assert!(reason.contains("several sources"), "{reason}");
        }
        // Which each command's output has once.
        let mut parser = Parser::default();
        let rows = ["time,index,power_w", "1700000000,0,5", "1700000001,1,6"];
        rows.iter().for_each(|line| assert!(parser.line(line).is_ok()));
        parser.renew();
        assert!(parser.line(rows[0]).is_ok() && parser.line(rows[1]).is_err());
        // A column may count rows, and another row may have the sum.
        let rows = ["index,time,power_w", "0,1700000000,5", "1,1700000001,5", "2,1700000002,5"];
        assert!(all(&rows).iter().all(Result::is_ok));
        let heading = "Package\tCore\tCPU\tPkgWatt";
        let rows = [heading, "-\t-\t-\t100", "0\t0\t0\t60", "0\t1\t1", "1\t0\t2\t40", heading];
        let sums: Vec<_> = all(&rows).into_iter().filter(|line| *line != Ok(Line::Other)).collect();
        assert_eq!(sums, [sample(None, 100.0)]);
    }

    #[test]
    fn blanks_and_bars_divide_and_a_missing_unit_is_told() {
        let wanted = sample(Some(1_795_615_044.5), 35.4);
        for line in ["1795615044.5 35.4", "1795615044.5|35.4", " 1795615044.5   35.4 "] {
            assert_eq!(all(&[line])[0], wanted, "{line}");
        }
        let bare = |lines: &[&str]| {
            let mut parser = Parser::default();
            lines.iter().for_each(|line| assert!(parser.line(line).is_ok(), "{line}"));
            parser.bare
        };
        assert!(bare(&["time,power", "1700000000,7"]) && bare(&["1700000000,7"]));
        assert!(!bare(&["time,power_w", "1700000000,7"]) && !bare(&["7 W"]));
        assert!(!bare(&["time,power", "s,W", "1700000000,7"]));
    }

    #[test]
    fn a_row_below_the_heading_names_units() {
        for (units, line) in [
            ("s,mW", "1700000000,7000"),
            ("[s],[kW]", "1700000000,0.007"),
            (",W", "1700000000,7"),
            ("ms,W", "1700000000000,7"),
        ] {
            let read = all(&["Time,Power", units, line]);
            assert_eq!(read[1], Ok(Line::Other), "{units}");
            let Ok(Line::Sample { unix, watts }) = read[2] else { panic!("{units}: {read:?}") };
            assert!((watts - 7.0).abs() < 1e-9 && unix == Some(1.7e9), "{units}: {read:?}");
        }
        let read = all(&["Time,Power", "s,hp", "1700000000,7"]);
        assert!(read[2].is_err(), "{read:?}");
        // Without a value yet, or named once more.
        for between in ["N/A,N/A", "Time,Power", "1700000000,"] {
            assert_eq!(
                all(&["Time,Power", between, "1700000001,7"])[2],
                sample(Some(1_700_000_001.0), 7.0)
            );
        }
    }

    #[test]
    fn times_of_other_loggers_are_read_or_named() {
        let mut parser = Parser::default();
        let Ok(Line::Sample { unix: Some(unix), .. }) = parser.line("2023-11-14 22:13:20.5,7")
        else {
            panic!("{parser:?}")
        };
        // In the machine's zone, which lies within a day of Greenwich.
        assert!((unix - 1_700_000_000.5).abs() < 86_400.0 && parser.local);
        let ms = all(&["timestamp,power_w", "1700000000000,7"]);
        assert!(ms[1].clone().unwrap_err().contains("timestamp_ms"), "{ms:?}");
        let now = Timestamp::now().to_zoned(TimeZone::UTC);
        let [seconds, day] = ["%s", "%b %d %H:%M:%S"].map(|form| now.strftime(form).to_string());
        let line = format!("{day} UTC;7");
        let Ok(Line::Sample { unix: Some(unix), .. }) = all(&[&line])[0] else { panic!("{line}") };
        assert!((unix - seconds.parse::<f64>().unwrap()).abs() < 1e-3, "{line}");
        let wide = all(&["1\x002\x00.\x005\x00"]);
        assert!(wide[0].clone().unwrap_err().contains("iconv -f UTF-16"), "{wide:?}");
        for line in ["12.5\0", "\0\0\0\u{feff}12.5 W\0\r", "12.5\r\0"] {
            assert_eq!(
                all(&[line.trim_start_matches('\0'), line])[0],
                sample(None, 12.5),
                "{line:?}"
            );
        }
        let lost = all(&["1\0\0\0 2.5"]);
        assert!(lost[0].clone().unwrap_err().contains("a NUL in it"), "{lost:?}");
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
