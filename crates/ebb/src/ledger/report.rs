//! `ebb report`: what a ledger says of an interval, first in a sentence, then by hour, day or
//! month.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use ebb_cli::{out, usage};
use jiff::{Timestamp, Zoned};
use schemars::JsonSchema;
use serde::Serialize;

use super::moment::moment;
use super::tried::{Tried, tried};
use super::{AS_FOUND, Amount, Amounts, FILE, Key, Ledger, POSSIBLE, Pair, SAVED, SETTLING, range};

const JOULES_PER_KWH: f64 = 3.6e6;

/// Signals of power, the whole server first, and what they are of.
const PARTS: [(&str, &str); 4] = [
    ("power", "the server"),
    ("cpu_power", "its processors"),
    ("ssd_power", "its drives"),
    ("fan_power", "its fans"),
];

/// Options of `ebb report`.
///
/// Says what the ledger of `ebb run` has of an interval: the energy that was taken, measured or
/// modelled, and what was saved of it, in one sentence and then by hour, day or month.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// From when: monday, today, yesterday, a date, a date with a time, or how long ago.
    #[arg(long, value_name = "WHEN", default_value = "7 days")]
    since: String,
    /// Until when [default: now].
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// What the rest is told by, in local time.
    #[arg(long, value_enum, default_value_t = By::Day)]
    by: By,
    /// The ledger, as given to `ebb run`.
    #[arg(long, value_name = "FILE", default_value = FILE)]
    ledger: PathBuf,
    /// Print JSON (docs/json-schema/report-1.json).
    #[arg(long)]
    json: bool,
}

/// What a report is divided into.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum By {
    Hour,
    Day,
    Month,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// How one is written; an hour with its zone, for one comes twice when clocks are put back.
    fn form(self) -> &'static str {
        match self {
            Self::Hour => "%Y-%m-%dT%H:%M%:z",
            Self::Day => "%Y-%m-%d",
            Self::Month => "%Y-%m",
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ebb report --json")]
struct Report {
    #[schemars(extend("const" = 1))]
    schema: u32,
    #[schemars(extend("format" = "date-time"))]
    since: String,
    #[schemars(extend("format" = "date-time"))]
    until: String,
    /// Length of the interval.
    hours: f64,
    /// All of it in a sentence.
    text: String,
    energy: Vec<Energy>,
    /// What blocks as found say, by policy and meter; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trial: Vec<Tried>,
    by: By,
    /// Hours, days or months with energy, the oldest first.
    parts: Vec<Part>,
}

/// Energy of one kind.
#[derive(Debug, Serialize, JsonSchema)]
struct Energy {
    /// A signal of power; of what was saved, the profile whose cores stand for this machine's.
    of: String,
    /// Possible: what would have been saved, had Ebb acted; settling: nothing is known yet; as
    /// found: of a trial, nothing is saved.
    #[schemars(
        extend("enum" = ["measured", "modelled", "saved", "possible", "settling", "as found"])
    )]
    kind: String,
    /// Time that it is known of.
    hours: f64,
    /// At least and at most; absent of what is settling.
    #[serde(skip_serializing_if = "Option::is_none")]
    kwh: Option<[f64; 2]>,
}

/// An hour, a day or a month.
#[derive(Debug, Serialize, JsonSchema)]
struct Part {
    /// Its begin in local time, such as 2026-11-23T14:00+01:00, 2026-11-23 or 2026-11.
    of: String,
    energy: Vec<Energy>,
}

/// Prints it.
///
/// # Errors
/// Without a ledger, or where an interval is none.
pub fn run(args: &ReportArgs) -> Result<()> {
    let now = Zoned::now();
    let at = |text: &str| moment(text, &now).map_err(usage);
    let since = at(&args.since).context("--since")?;
    let until =
        args.until.as_deref().map_or(Ok(now.clone()), |text| at(text).context("--until"))?;
    if since >= until {
        return Err(usage(format!("nothing lies between {} and {}", shown(&since), shown(&until))));
    }
    let hour = |at: &Zoned| at.timestamp().as_second().div_euclid(3600);
    let second = |hour: i64| hour as f64 * 3600.0;
    let (first, end) = (hour(&since), hour(&until) + 1);
    let (amounts, pairs) = Ledger::read(&args.ledger)
        .and_then(|ledger| {
            Ok((ledger.amounts(first, end)?, ledger.pairs(second(first), second(end))?))
        })
        .with_context(|| {
            let file = args.ledger.display();
            format!("{file}: no ledger to read; ebb run --ledger keeps one, and root may read it")
        })?;
    let report = Report::new(&since, &until, args.by, &amounts, &pairs);
    if args.json { out::json(&report) } else { out::print(report.table()) }
}

fn shown(at: &Zoned) -> String {
    at.strftime("%a %Y-%m-%d %H:%M").to_string()
}

/// Whether an amount is more than time.
fn is_energy(kind: &str) -> bool {
    ![SETTLING, AS_FOUND].contains(&kind)
}

/// The amounts of all hours together.
fn sums(amounts: impl IntoIterator<Item = (Key, Amount)>) -> Vec<Energy> {
    let mut sums = BTreeMap::<_, Amount>::new();
    for ((_, of, kind), amount) in amounts {
        *sums.entry((of, kind)).or_default() += amount;
    }
    let energy = |((of, kind), Amount { seconds, least_j, most_j }): ((String, String), _)| {
        let kwh = [least_j, most_j].map(|joules| joules / JOULES_PER_KWH);
        Energy { of, hours: seconds / 3600.0, kwh: is_energy(&kind).then_some(kwh), kind }
    };
    sums.into_iter().map(energy).collect()
}

impl Report {
    fn new(since: &Zoned, until: &Zoned, by: By, amounts: &Amounts, pairs: &[Pair]) -> Self {
        let of = |hour: i64| {
            let at = Timestamp::from_second(hour * 3600).unwrap_or_default();
            at.to_zoned(since.time_zone().clone()).strftime(by.form()).to_string()
        };
        let amounts: Vec<_> = amounts.iter().map(|(key, amount)| (key.clone(), *amount)).collect();
        let parts = amounts.chunk_by(|(one, _), (next, _)| of(one.0) == of(next.0));
        let parts = parts.map(|part| Part { of: of(part[0].0.0), energy: sums(part.to_vec()) });
        let hours = (until.timestamp().as_second() - since.timestamp().as_second()) as f64 / 3600.0;
        let energy = sums(amounts.iter().cloned());
        let trial = tried(pairs);
        Self {
            schema: 1,
            since: since.timestamp().to_string(),
            until: until.timestamp().to_string(),
            hours,
            text: sentence(since, until, hours, &energy, &trial),
            energy,
            trial,
            by,
            parts: parts.collect(),
        }
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header([self.by.name(), "of", "kind", "hours", "kWh"]);
        for Part { of: part, energy } in &self.parts {
            for Energy { of, kind, hours, kwh } in energy {
                let kwh = kwh.map_or("–".to_owned(), |kwh| range(&kwh));
                table.add_row([part, of, kind, &format!("{hours:.1}"), &kwh]);
            }
        }
        if self.parts.is_empty() {
            self.text.clone() + "\n"
        } else {
            format!("{}\n\n{table}\n", self.text)
        }
    }
}

/// What an operator passes on: how much, of what, since when, and how it is known.
fn sentence(
    since: &Zoned,
    until: &Zoned,
    hours: f64,
    energy: &[Energy],
    trial: &[Tried],
) -> String {
    let head = format!("From {} to {}", shown(since), shown(until));
    let mut told = Vec::new();
    for (signal, name) in PARTS {
        for Energy { kind, hours: known, kwh, .. } in energy.iter().filter(|one| one.of == signal) {
            let kwh = kwh.as_ref().map(range).unwrap_or_default();
            told.push(format!("{name} took {kwh} kWh ({kind}, {known:.1} of {hours:.1} h)"));
        }
        if signal == "power" && !told.is_empty() {
            break;
        }
    }
    // Of several policies nobody knows for how long each was at work.
    let is_one = trial.len() == 1;
    let at_work = energy.iter().filter(|one| one.kind == SAVED).map(|one| one.hours).sum();
    told.extend(trial.iter().map(|one| one.text(is_one.then_some(at_work))));
    // What was measured needs no model.
    let is_measured = is_one && trial.iter().all(|one| one.saved_w.interval.is_some());
    let mut is_known = is_measured;
    for (kind, verb) in [(SAVED, "Ebb saved"), (POSSIBLE, "Ebb only observed and would have saved")]
    {
        let its = energy.iter().filter(|one| one.kind == kind);
        for Energy { of, hours: known, kwh, .. } in its.filter(|_| !is_measured) {
            let kwh = kwh.as_ref().map(range).unwrap_or_default();
            is_known = true;
            told.push(format!(
                "{verb} {kwh} kWh of the cores' energy against the settings found (modelled with \
                 the cores of {of}, {known:.1} h)"
            ));
        }
    }
    if !is_known && energy.iter().any(|one| one.kind == SETTLING) {
        told.push("what Ebb saves is not known yet: its policy was still settling".to_owned());
    } else if !is_known && !energy.is_empty() {
        told.push("what Ebb saves is not known: the cores' load is not sensed".to_owned());
    }
    match told.is_empty() {
        true => format!(
            "{head} nothing was recorded; a running ebb run --ledger writes after 20 s, and then \
             every 5 minutes."
        ),
        false => format!("{head}, {}.", told.join("; ")),
    }
}

#[cfg(test)]
crate::schema::written!("report-1", Report);

#[cfg(test)]
mod tests {
    use super::*;

    const KWH: f64 = JOULES_PER_KWH;

    type Row<'a> = (&'a str, &'a str, &'a str, f64, f64, f64);

    fn report(rows: &[Row<'_>]) -> Report {
        report_by(By::Day, rows)
    }

    fn report_by(by: By, rows: &[Row<'_>]) -> Report {
        let since: Zoned = "2026-11-23T00:00:00+01:00[+01:00]".parse().unwrap();
        let until: Zoned = "2026-11-25T00:00:00+01:00[+01:00]".parse().unwrap();
        let row = |&(at, of, kind, hours, least, most): &Row<'_>| {
            let at: Zoned = format!("{at}:00:00+01:00[+01:00]").parse().unwrap();
            let key = (at.timestamp().as_second() / 3600, of.to_owned(), kind.to_owned());
            let seconds = 3600.0 * hours;
            (key, Amount { seconds, least_j: KWH * least, most_j: KWH * most })
        };
        Report::new(&since, &until, by, &rows.iter().map(row).collect(), &[])
    }

    #[test]
    fn a_sentence_says_how_each_figure_is_known() {
        let told = report(&[
            ("2026-11-23T00", "power", "measured", 1.0, 0.2, 0.2),
            ("2026-11-23T00", "cpu_power", "measured", 1.0, 0.1, 0.1),
            ("2026-11-23T00", "generic-1u", SETTLING, 0.1, 0.0, 0.0),
            ("2026-11-23T00", "generic-1u", SAVED, 0.9, 0.01, 0.02),
            ("2026-11-24T23", "power", "measured", 1.0, 0.3, 0.3),
        ]);
        assert_eq!(
            told.text,
            "From Mon 2026-11-23 00:00 to Wed 2026-11-25 00:00, the server took 0.500 kWh \
             (measured, 2.0 of 48.0 h); Ebb saved 0.010 to 0.020 kWh of the cores' energy against \
             the settings found (modelled with the cores of generic-1u, 0.9 h)."
        );
        let days: Vec<_> = told.parts.iter().map(|day| (&*day.of, day.energy.len())).collect();
        assert_eq!(days, [("2026-11-23", 4), ("2026-11-24", 1)]);
    }

    #[test]
    fn energy_is_added_up_by_hour_day_or_month() {
        let rows = [
            ("2026-09-30T23", "power", "measured", 1.0, 0.1, 0.1),
            ("2026-10-01T00", "power", "measured", 0.5, 0.2, 0.2),
            ("2026-10-01T00", "power", "modelled", 0.5, 0.4, 0.4),
            ("2026-10-01T07", "power", "measured", 1.0, 0.8, 0.8),
            ("2026-10-31T23", "power", "measured", 1.0, 1.6, 1.6),
        ];
        let told = |by: By| -> Vec<(String, Vec<f64>)> {
            let parts = report_by(by, &rows).parts.into_iter();
            let kwh = |one: &Energy| (1e6 * one.kwh.unwrap()[1]).round() / 1e6;
            parts.map(|part| (part.of, part.energy.iter().map(kwh).collect())).collect()
        };
        let is = |of: &str, kwh: &[f64]| (of.to_owned(), kwh.to_vec());
        assert_eq!(told(By::Month), [is("2026-09", &[0.1]), is("2026-10", &[2.6, 0.4])]);
        assert_eq!(
            told(By::Day),
            [is("2026-09-30", &[0.1]), is("2026-10-01", &[1.0, 0.4]), is("2026-10-31", &[1.6])]
        );
        let hours = told(By::Hour);
        assert_eq!((hours.len(), &hours[1]), (4, &is("2026-10-01T00:00+01:00", &[0.2, 0.4])));
    }

    /// Central Europe goes back from 3 to 2 o'clock on 2026-10-25.
    #[test]
    fn an_hour_that_comes_twice_is_two() {
        let at: Timestamp = "2026-10-25T00:00:00Z".parse().unwrap();
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let first = at.as_second() / 3600;
        let amounts = (first..first + 3).map(|hour| {
            let key = (hour, "power".to_owned(), "measured".to_owned());
            (key, Amount { seconds: 3600.0, least_j: KWH, most_j: KWH })
        });
        let since = at.to_zoned(zone);
        let report = Report::new(&since, &since, By::Hour, &amounts.collect(), &[]);
        let hours: Vec<_> = report.parts.iter().map(|part| &*part.of).collect();
        let told = ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T03:00+01:00"];
        assert_eq!(hours, told);
    }

    #[test]
    fn what_is_modelled_stays_apart_and_what_has_not_settled_is_no_figure() {
        let told = report(&[
            ("2026-11-23T00", "ssd_power", "measured", 1.0, 0.2, 0.2),
            ("2026-11-23T00", "ssd_power", "modelled", 2.0, 0.3, 0.3),
            ("2026-11-23T00", "generic-1u", SETTLING, 0.1, 0.0, 0.0),
        ]);
        let text = &told.text;
        assert!(text.contains("its drives took 0.200 kWh (measured, 1.0 of 48.0 h);"), "{text}");
        assert!(text.contains("its drives took 0.300 kWh (modelled, 2.0 of 48.0 h);"), "{text}");
        assert!(text.ends_with("not known yet: its policy was still settling."), "{text}");
        assert!(told.energy.iter().all(|one| one.kwh.is_none() == (one.kind == SETTLING)));
        assert!(report(&[]).text.contains("nothing was recorded;"));
    }
}
