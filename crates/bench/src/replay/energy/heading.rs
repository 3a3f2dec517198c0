//! What a heading of a meter's lines names: columns of time and of watts, and their units.

use ebb_trace::format::words as camel_words;

/// Columns by their places.
#[derive(Debug, Clone, PartialEq)]
pub struct Heading {
    /// How many there are.
    pub count: usize,
    /// Those of the time, a date before its time of day, and the seconds of their unit.
    pub time: (Vec<usize>, f64),
    /// With the watts of its unit.
    pub power: (usize, f64),
    /// Whether the watts have a unit.
    pub has_unit: bool,
    /// The one that names the unit of each row.
    pub unit: Option<usize>,
    /// Those that tell one metered thing from another.
    pub sources: Vec<usize>,
}

impl Heading {
    /// Watts alone, or a time and watts.
    pub fn none(count: usize) -> Result<Self, String> {
        let (time, power) = match count {
            1 => (Vec::new(), 0),
            2 => (vec![0], 1),
            _ => return Err("more than a time and watts, and no heading".to_owned()),
        };
        let (time, power, sources) = ((time, 1.0), (power, 1.0), Vec::new());
        Ok(Self { count, time, power, has_unit: false, unit: None, sources })
    }

    /// Of the names of columns.
    pub fn of(names: &[String]) -> Result<Self, String> {
        let unit = names.iter().position(|name| is_word_of(name, &["unit", "units"]));
        let (time, power) = (times(names)?, power(names)?);
        let has_unit =
            unit.is_some() || !words(&names[power.0]).next_back().is_some_and(is_power_word);
        let sources = (0..names.len()).filter(|at| is_source(&names[*at])).collect();
        Ok(Self { count: names.len(), time, power, has_unit, unit, sources })
    }

    /// Of names above a row of units, which may stand in brackets.
    pub fn with_units(names: &[String], units: &[String]) -> Result<Self, String> {
        let both = names.iter().zip(units).map(|(name, unit)| match bare(unit) {
            "" => name.clone(),
            unit => format!("{name} [{unit}]"),
        });
        Self::of(&both.collect::<Vec<_>>())
    }
}

/// Whether a heading of this one name is one of watts.
pub fn is_power(name: &str) -> bool {
    power_unit(name).is_some()
}

/// Whether fields can be the units below a heading: none has a digit or says that there is no
/// value.
pub fn are_units(fields: &[String]) -> bool {
    let is_none = |field: &String| {
        let plain = bare(field).to_ascii_lowercase();
        matches!(plain.as_str(), "-" | "n/a" | "na" | "nan" | "none" | "null" | "inf")
    };
    let is_unit = |field: &String| !field.contains(|c: char| c.is_ascii_digit()) && !is_none(field);
    fields.iter().all(is_unit) && fields.iter().any(|field| !bare(field).is_empty())
}

fn bare(unit: &str) -> &str {
    unit.trim_matches(|letter: char| "()[]{} ".contains(letter))
}

/// Watts of a unit.
pub fn watts(unit: &str) -> Option<f64> {
    Some(match bare(unit).to_lowercase().as_str() {
        "w" | "watt" | "watts" => 1.0,
        // Not "MW".
        "mw" | "milliwatt" | "milliwatts" if !bare(unit).starts_with('M') => 1e-3,
        "kw" | "kilowatt" | "kilowatts" => 1e3,
        "uw" | "µw" | "μw" | "microwatt" | "microwatts" => 1e-6,
        _ => {
            // turbostat's PkgWatt; prefixes of units are one letter or end in a vowel.
            let prefix = unit.strip_suffix("Watt")?;
            let is_name = prefix.len() > 1 && !prefix.ends_with(['a', 'e', 'i', 'o', 'u']);
            return is_name.then_some(1.0);
        }
    })
}

/// The one column of measured power; of several, the one that is named by that alone.
fn power(names: &[String]) -> Result<(usize, f64), String> {
    let all: Vec<_> = names
        .iter()
        .enumerate()
        .filter_map(|(at, name)| power_unit(name).map(|(unit, plain)| (at, unit, plain)))
        .collect();
    let measured: Vec<_> = all.iter().filter(|(at, ..)| is_measured(&names[*at])).collect();
    let plain: Vec<_> = measured.iter().filter(|(.., plain)| *plain).collect();
    match (&measured[..], &plain[..]) {
        ([(at, unit, _)], _) | (_, [(at, unit, _)]) => Ok((*at, *unit)),
        ([], _) if all.is_empty() => {
            Err("the heading names no column of watts, such as power_w or 'Power [W]'".to_owned())
        }
        ([], _) => Err("the heading's watts are not measured power in a unit of its own, but a \
                        limit, an extreme, a deviation, a share or per something: leave them out, \
                        and name measured power as in power_w"
            .to_owned()),
        _ => Err("several columns of watts: leave one, or name one power_w alone".to_owned()),
    }
}

/// Watts of the unit that a name ends with, and whether it says nothing else.
fn power_unit(name: &str) -> Option<(f64, bool)> {
    let words: Vec<&str> = words(name).collect();
    let (unit, rest) = words.split_last()?;
    let unit = match is_power_word(unit) {
        // Of nothing but power, not of a factor or of what is apparent.
        true => rest.is_empty().then_some(1.0),
        false => watts(unit),
    };
    Some((unit?, rest.iter().all(|word| is_power_word(word))))
}

fn is_power_word(word: &str) -> bool {
    word.eq_ignore_ascii_case("power")
}

/// Last words of the names of columns that tell metered things apart.
const SOURCES: [&str; 17] = [
    "channel", "core", "device", "domain", "gpu", "host", "hostname", "index", "node", "outlet",
    "package", "plug", "port", "psu", "sensor", "slot", "socket",
];

/// Whether a column tells one metered thing from another: `outlet`, `gpu_id`.
fn is_source(name: &str) -> bool {
    let all = camel_words(name);
    let mut words = all.iter().map(String::as_str).rev().skip_while(|word| NUMBERS.contains(word));
    words.next().is_some_and(|word| SOURCES.contains(&word))
}

/// What may stand behind them.
const NUMBERS: [&str; 6] = ["id", "name", "no", "nr", "number", "uuid"];

/// What may be counted in watts and is not the power that is drawn.
const OTHERS: [&str; 27] = [
    "apparent",
    "budget",
    "cap",
    "capacity",
    "deviation",
    "err",
    "error",
    "limit",
    "limits",
    "max",
    "maximum",
    "min",
    "minimum",
    "nominal",
    "peak",
    "per",
    "rated",
    "rating",
    "reactive",
    "sd",
    "setpoint",
    "std",
    "stddev",
    "target",
    "tdp",
    "threshold",
    "uncertainty",
];

/// Whether a name with a unit of power is of measured power, and the unit stands for itself: not
/// `ops/W`, `% of 500 W`, `0.1 W`, `x10_w`.
fn is_measured(name: &str) -> bool {
    let is_number = |word: &&str| word.trim_start_matches(['x', 'X']).parse::<u64>().is_ok();
    // In brackets the unit is alone.
    let unit = name.rfind(['(', '[', '{']).map_or(name, |at| &name[at..]);
    let alone = unit.len() == name.len() || words(unit).count() == 1;
    alone
        && !name.contains(['/', '%'])
        && !camel_words(name).iter().any(|word| OTHERS.contains(&word.as_str()))
        && !words(unit).rev().nth(1).is_some_and(|word| is_number(&word))
}

/// The columns of the time, and the seconds of their unit.
fn times(names: &[String]) -> Result<(Vec<usize>, f64), String> {
    let all: Vec<_> = names
        .iter()
        .enumerate()
        .filter_map(|(at, name)| time_unit(name).map(|(unit, plain)| (at, unit, plain)))
        .collect();
    let plain: Vec<_> = all.iter().filter(|(.., plain)| *plain).collect();
    let is_date = |at: usize| is_word_of(&names[at], &["date"]);
    match (&all[..], &plain[..]) {
        ([], _) => Ok((Vec::new(), 1.0)),
        ([(at, unit, _)], _) | (_, [(at, unit, _)]) => Ok((vec![*at], *unit)),
        (_, [(date, ..), (time, ..)]) | (_, [(time, ..), (date, ..)])
            if is_date(*date) && !is_date(*time) =>
        {
            Ok((vec![*date, *time], 1.0))
        }
        _ => Err("several columns of time: leave one, or a date and a time of day".to_owned()),
    }
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

fn is_word_of(name: &str, known: &[&str]) -> bool {
    let mut words = words(name);
    let first = words.next().is_some_and(|word| known.contains(&word.to_lowercase().as_str()));
    first && words.next().is_none()
}

fn words(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}
