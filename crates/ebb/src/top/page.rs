//! What `ebb top` shows of a run: what its live page shows, as lines.

use std::cmp::Reverse;

use ebb_cli::text;
use ebb_policy::live::SENSES;
use ebb_policy::table::SIGNALS;
use ebb_policy::{Control, ControlRow, Unit};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use super::sheet::{Sheet, words, wrapped};
use crate::run::board::Change;
use crate::run::sensors::Sensor;
use crate::run::status::{Power, Refusal, Setting, Status, ago};

/// Signals of power, the whole server first, and what they are of.
const PARTS: [(&str, &str); 4] = [
    ("power", "at the wall"),
    ("cpu_power", "processors"),
    ("ssd_power", "drives"),
    ("fan_power", "fans"),
];

/// So many parts are named in a line, or one more; of others it says how many.
const NAMED: usize = 2;

/// All of it, for a terminal of `width` columns.
pub fn lines(status: &Status, width: usize) -> Vec<Line<'static>> {
    let mut all = head(status, width);
    let sections = [
        ("POWER", power(status, width)),
        ("TO LOOK AT", remarks(status, width)),
        ("IN FORCE", in_force(status, width)),
        ("REFUSED SINCE THE START", refusals(status, width)),
        ("SENSORS", sensors(status, width)),
        ("LAST DECISIONS", decisions(status, width)),
    ];
    for (title, section) in sections {
        if !section.is_empty() {
            all.push(Line::default());
            all.push(Line::from(title.bold()));
            all.extend(section);
        }
    }
    all
}

/// A text on lines of its own.
fn text(text: impl Into<Span<'static>>, width: usize) -> Vec<Line<'static>> {
    wrapped(Vec::new(), words(&text.into()), 2, width)
}

fn head(status: &Status, width: usize) -> Vec<Line<'static>> {
    let Status { state, policy, uptime_s, cycles, .. } = status;
    let name = state.split(':').next().unwrap_or_default();
    let state = match name {
        "acting" => state.clone().green(),
        "degraded" | "native" => state.clone().red(),
        _ => state.clone().yellow(),
    };
    let since = format!("for {}; policy {}", ago(uptime_s - status.state_since_s), policy);
    let told = words(&"ebb run:".into()).chain(words(&state.bold())).chain(words(&since.into()));
    let mut all = wrapped(Vec::new(), told, 2, width);
    let budget = |watts: Option<f64>, what| {
        watts.map_or(String::new(), |watts| format!(", {what} up to {} W", text::short(watts)))
    };
    let limits = format!(
        "tolerated loss {} %{}{}; up {}, {} cycles, the last at {}",
        text::short(100.0 * status.plf),
        budget(status.ssd_budget_w, "drives' caps"),
        budget(status.server_budget_w, "the server"),
        ago(*uptime_s),
        text::grouped(*cycles as f64),
        clock(status.unix_s)
    );
    all.extend(self::text(limits, width));
    for order in &status.orders {
        let end = order.ends_s.map(|ends| format!(", for {} more", ago(ends - uptime_s)));
        let order = format!("by ebb ctl: {}{}", order.what, end.unwrap_or_default());
        all.extend(self::text(order.yellow(), width));
    }
    all
}

/// Time of day, where this runs.
fn clock(unix_s: f64) -> String {
    let at = Timestamp::from_second(unix_s as i64).unwrap_or_default();
    at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

/// The same of a time from the start of the run.
fn at(status: &Status, at_s: f64) -> String {
    clock(status.unix_s - status.uptime_s + at_s)
}

fn power(status: &Status, width: usize) -> Vec<Line<'static>> {
    let whole =
        |signal: &str| status.power.iter().find(|one| one.of.is_none() && one.signal == signal);
    let row = |(signal, name): (&str, &'static str)| match whole(signal) {
        Some(Power { watts, source, .. }) => {
            [name.into(), format!("{watts:.1} W").bold(), source.clone().into()]
        }
        None => [name.into(), "–".into(), "not known".dim()],
    };
    let mut all = Sheet::new(["part", "power", "source"], PARTS.map(row)).lines(width);
    let saving = match &status.saving {
        Some(saving) => saving.text(),
        None => "saving not known: cores' load or frequency is not sensed".to_owned(),
    };
    all.extend(text(saving, width));
    let lose = status.would_lose.map(|share| {
        let percent = text::short((1000.0 * share).round() / 10.0);
        format!("mean latency would have been {percent} % higher so far, modelled")
    });
    all.extend(lose.into_iter().flat_map(|lose| text(lose, width)));
    all
}

fn remarks(status: &Status, width: usize) -> Vec<Line<'static>> {
    let notices = status
        .notices
        .iter()
        .rev()
        .map(|one| format!("{} {}: {}", at(status, one.at_s), one.of, one.text));
    let lost = (status.events_lost > 0)
        .then(|| format!("{} events were lost: the machine is too busy", status.events_lost));
    let missing = status.missing.iter().cloned();
    let all = lost.into_iter().chain(notices).chain(missing);
    all.flat_map(|one| text(one, width)).collect()
}

fn in_force(status: &Status, width: usize) -> Vec<Line<'static>> {
    let Some(first) = status.controls.first() else {
        return text("everything is as it was found", width);
    };
    let rest = |one: &Setting| Setting { of: None, ..one.clone() };
    let rows = status.controls.chunk_by(|one, other| rest(one) == rest(other)).map(|alike| {
        let Setting { control, asked, given, applied, since_s, reason, .. } = &alike[0];
        let shown = Span::from(set(control, *given));
        [
            title(control).into(),
            named(alike.iter().filter_map(|one| one.of.as_ref())).into(),
            set(control, *asked).into(),
            if given == asked { shown } else { shown.yellow() },
            became(applied.as_deref()),
            since_s.map(|since| ago(status.uptime_s - since)).unwrap_or_default().into(),
            reason.clone().into(),
        ]
    });
    let head = ["control", "of", "asked", "given", "applied", "for", "why"];
    let would = "nothing is set: this is what would be".dim();
    let mut all = if first.applied.is_none() { text(would, width) } else { Vec::new() };
    all.extend(Sheet::new(head, rows).lines(width));
    all
}

fn refusals(status: &Status, width: usize) -> Vec<Line<'static>> {
    let rows = status.refusals.iter().map(|Refusal { control, by, count }| {
        let times = text::grouped(*count as f64).red();
        [title(control).into(), times, format!("by the {by}").into()]
    });
    Sheet::new(["control", "times", "by"], rows).lines(width)
}

fn sensors(status: &Status, width: usize) -> Vec<Line<'static>> {
    let (mut known, absent): (Vec<_>, Vec<_>) =
        status.sensors.iter().partition(|one| one.known > 0);
    // What needs a look comes first.
    known.sort_by_key(|one| Reverse(one.without.len()));
    let row = |one: &Sensor| {
        let source = match one.modelled {
            0 => "measured".to_owned(),
            all if all == one.known => "modelled".to_owned(),
            some => format!("{some} of {} modelled", one.known),
        };
        let age = if one.oldest_s > 0.0 { ago(one.oldest_s) } else { "now".to_owned() };
        [one.signal.clone().into(), range(one).into(), source.into(), age.into(), health(one)]
    };
    let head = ["signal", "value", "source", "age", "health"];
    let mut all = Sheet::new(head, known.into_iter().map(row)).lines(width);
    // Signals that are absent for the same reason are one line.
    let mut whys: Vec<(String, Vec<&str>)> = Vec::new();
    for one in absent {
        let why = match one.reasons.is_empty() {
            true => format!("a server has it from {}", from(&one.signal)),
            false => one.reasons.join("; "),
        };
        match whys.iter_mut().find(|(is, _)| *is == why) {
            Some((_, names)) => names.push(&one.signal),
            None => whys.push((why, vec![&one.signal])),
        }
    }
    let absent = |(why, names): (String, Vec<&str>)| format!("no {}: {why}", names.join(", "));
    all.extend(whys.into_iter().map(absent).flat_map(|absent| text(absent.dim(), width)));
    all
}

/// What a signal comes from on a server, by the table.
fn from(signal: &str) -> String {
    let row = SIGNALS.iter().find(|row| row.name == signal);
    let sense = row.and_then(|row| SENSES.iter().find(|one| one.signals.contains(&row.signal)));
    sense.and_then(|sense| sense.from).unwrap_or("nowhere").replace('`', "")
}

fn range(sensor: &Sensor) -> String {
    let unit = SIGNALS.iter().find(|row| row.name == sensor.signal).map(|row| row.unit);
    let value = |value: Option<f64>| value.map_or("–".to_owned(), |value| worth(value, unit));
    match sensor.least == sensor.most {
        true => value(sensor.least),
        false => format!("{} to {}", value(sensor.least), value(sensor.most)),
    }
}

fn health(sensor: &Sensor) -> Span<'static> {
    let Sensor { parts, known, without, .. } = sensor;
    match without.is_empty() {
        true => "known".green(),
        false => {
            let reasons = sensor.reasons.join("; ");
            format!("{known} of {parts}; not {}; {reasons}", named(without)).yellow()
        }
    }
}

fn decisions(status: &Status, width: usize) -> Vec<Line<'static>> {
    let rest = |one: &Change| Change { of: None, ..one.clone() };
    let rows = status.changes.chunk_by(|one, other| rest(one) == rest(other)).map(|alike| {
        let Change { at_s, control, from, to, reason, applied, .. } = &alike[0];
        [
            at(status, *at_s).into(),
            title(control).into(),
            named(alike.iter().filter_map(|one| one.of.as_ref())).into(),
            set(control, *from).into(),
            set(control, *to).into(),
            became(applied.as_deref()),
            reason.clone().into(),
        ]
    });
    let mut rows: Vec<_> = rows.collect();
    rows.reverse();
    let head = ["at", "control", "of", "from", "to", "applied", "why"];
    let mut all = Sheet::new(head, rows).lines(width);
    all.push(format!("{} since the start", text::grouped(status.decided as f64)).dim().into());
    all
}

/// Names of parts: a few, and how many more.
fn named<'a>(parts: impl IntoIterator<Item = &'a String>) -> String {
    let parts: Vec<_> = parts.into_iter().map(String::as_str).collect();
    match parts.len().saturating_sub(NAMED) {
        0 | 1 => parts.join(", "),
        more => format!("{} and {more} more", parts[..NAMED].join(", ")),
    }
}

fn known(control: &str) -> Option<&'static ControlRow> {
    Control::ALL.iter().map(|control| control.row()).find(|row| row.name == control)
}

fn title(control: &str) -> String {
    known(control).map_or(control, |row| row.title).to_owned()
}

/// A setting of a control.
fn set(control: &str, value: Option<f64>) -> String {
    let unit = known(control).map(|row| row.unit);
    value.map_or("released".to_owned(), |value| worth(value, unit))
}

fn became(applied: Option<&str>) -> Span<'static> {
    match applied {
        None => "–".into(),
        Some("done") => "done".into(),
        Some(other) => other.to_owned().red(),
    }
}

fn worth(value: f64, unit: Option<Unit>) -> String {
    let short = text::short(value);
    match unit {
        Some(Unit::Share) => format!("{} %", text::short(100.0 * value)),
        Some(Unit::Hertz) => format!("{:.2} GHz", value / 1e9),
        Some(Unit::Seconds) => text::seconds(value),
        Some(Unit::Bytes) => text::bytes(value),
        Some(Unit::BytesPerSecond) => format!("{}/s", text::bytes(value)),
        Some(Unit::Flag) => if value == 0.0 { "no" } else { "yes" }.to_owned(),
        Some(Unit::Mode) => if value == 0.0 { "normal" } else { "race" }.to_owned(),
        Some(Unit::Count | Unit::Index) | None => short,
        Some(unit @ (Unit::PerSecond | Unit::Watts | Unit::Celsius | Unit::Rpm)) => {
            format!("{short} {}", unit.symbol())
        }
    }
}
