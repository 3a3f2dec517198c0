//! `ebb report`: what a ledger says of an interval, first in a sentence, then day by day.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use super::moment::moment;
use super::{Amount, Amounts, FILE, Key, Ledger, POSSIBLE, SAVED, SETTLING};
use crate::exit::usage;
use crate::out;

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
/// modelled, and what was saved of it, in one sentence and then day by day.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// From when: monday, today, yesterday, a date, a date with a time, or how long ago.
    #[arg(long, value_name = "WHEN", default_value = "7 days")]
    since: String,
    /// Until when [default: now].
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// The ledger, as given to `ebb run`.
    #[arg(long, value_name = "FILE", default_value = FILE)]
    ledger: PathBuf,
    /// Print JSON (docs/json-schema/report-1.json).
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    since: String,
    until: String,
    /// Length of the interval.
    hours: f64,
    text: String,
    energy: Vec<Energy>,
    days: Vec<Day>,
}

/// Energy of one kind.
#[derive(Debug, Serialize)]
struct Energy {
    /// A signal of power, or the profile whose cores stand for this machine's.
    of: String,
    kind: String,
    /// Time that it is known of.
    hours: f64,
    /// Absent while nothing has settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    kwh: Option<[f64; 2]>,
}

#[derive(Debug, Serialize)]
struct Day {
    date: String,
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
    let read = Ledger::read(&args.ledger)
        .and_then(|ledger| ledger.amounts(hour(&since), hour(&until) + 1))
        .with_context(|| {
            let file = args.ledger.display();
            format!("{file}: no ledger to read; ebb run --ledger keeps one, and root may read it")
        })?;
    let report = Report::new(&since, &until, &read);
    if args.json { out::json(&report) } else { out::print(report.table()) }
}

fn shown(at: &Zoned) -> String {
    at.strftime("%a %Y-%m-%d %H:%M").to_string()
}

/// The amounts of all hours together.
fn sums(amounts: impl IntoIterator<Item = (Key, Amount)>) -> Vec<Energy> {
    let mut sums = BTreeMap::<_, Amount>::new();
    for ((_, of, kind), amount) in amounts {
        *sums.entry((of, kind)).or_default() += amount;
    }
    let energy = |((of, kind), Amount { seconds, least_j, most_j })| {
        let kwh = [least_j, most_j].map(|joules| joules / JOULES_PER_KWH);
        Energy { of, hours: seconds / 3600.0, kwh: (kind != SETTLING).then_some(kwh), kind }
    };
    sums.into_iter().map(energy).collect()
}

impl Report {
    fn new(since: &Zoned, until: &Zoned, amounts: &Amounts) -> Self {
        let mut days = BTreeMap::<String, Amounts>::new();
        for (key, amount) in amounts {
            let at = Timestamp::from_second(key.0 * 3600).unwrap_or_default();
            let date = at.to_zoned(since.time_zone().clone()).date().to_string();
            days.entry(date).or_default().insert(key.clone(), *amount);
        }
        let hours = (until.timestamp().as_second() - since.timestamp().as_second()) as f64 / 3600.0;
        let energy = sums(amounts.clone());
        Self {
            schema: 1,
            since: since.timestamp().to_string(),
            until: until.timestamp().to_string(),
            hours,
            text: sentence(since, until, hours, &energy),
            energy,
            days: days.into_iter().map(|(date, all)| Day { date, energy: sums(all) }).collect(),
        }
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(["day", "of", "kind", "hours", "kWh"]);
        for Day { date, energy } in &self.days {
            for Energy { of, kind, hours, kwh } in energy {
                let kwh = kwh.map_or("–".to_owned(), |kwh| range(&kwh));
                table.add_row([date, of, kind, &format!("{hours:.1}"), &kwh]);
            }
        }
        if self.days.is_empty() {
            self.text.clone() + "\n"
        } else {
            format!("{}\n\n{table}\n", self.text)
        }
    }
}

/// Three decimals are a watt for an hour.
fn range([least, most]: &[f64; 2]) -> String {
    // None is printed as -0.000.
    let [least, most] = [least, most].map(|kwh| format!("{kwh:.3}").replace("-0.000", "0.000"));
    if least == most { least } else { format!("{least} to {most}") }
}

/// What an operator passes on: how much, of what, since when, and how it is known.
fn sentence(since: &Zoned, until: &Zoned, hours: f64, energy: &[Energy]) -> String {
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
    let mut is_known = false;
    for (kind, verb) in [(SAVED, "Ebb saved"), (POSSIBLE, "Ebb only observed and would have saved")]
    {
        for Energy { of, hours: known, kwh, .. } in energy.iter().filter(|one| one.kind == kind) {
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
        true => format!("{head} nothing was recorded."),
        false => format!("{head}, {}.", told.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KWH: f64 = JOULES_PER_KWH;

    fn report(rows: &[(&str, &str, &str, f64, f64, f64)]) -> Report {
        let since: Zoned = "2026-11-23T00:00:00+01:00[+01:00]".parse().unwrap();
        let until: Zoned = "2026-11-25T00:00:00+01:00[+01:00]".parse().unwrap();
        let row = |&(at, of, kind, hours, least, most): &(&str, &str, &str, f64, f64, f64)| {
            let at: Zoned = format!("{at}:00:00+01:00[+01:00]").parse().unwrap();
            let key = (at.timestamp().as_second() / 3600, of.to_owned(), kind.to_owned());
            let seconds = 3600.0 * hours;
            (key, Amount { seconds, least_j: KWH * least, most_j: KWH * most })
        };
        Report::new(&since, &until, &rows.iter().map(row).collect())
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
        let dates: Vec<_> = told.days.iter().map(|day| (&*day.date, day.energy.len())).collect();
        assert_eq!(dates, [("2026-11-23", 4), ("2026-11-24", 1)]);
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
        assert!(report(&[]).text.ends_with("nothing was recorded."));
    }
}
