//! The results for people: policies side by side, each also relative to the first.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, presets};

use ebb_cli::text::{grouped, number, percent, seconds, short, wrapped};
use ebb_record::parts::{ClassSummary, PartSummary, ThermalSummary};
use ebb_record::sampled::{Interval, Sampled};
use ebb_record::verdict::ABOVE;
use ebb_record::{RunSummary, Summary};

use super::plan::{Plan, Requests};
use super::run::RunResult;

/// Columns of the screen where that is no terminal; at least two policies stand side by side.
const SCREEN: usize = 100;
/// Columns that names and the first policy take, and each further policy.
const FIRST: usize = 36;
const FURTHER: usize = 16;
/// Widest name of a policy on one line: a number and its change.
const WIDEST: usize = 16;

/// Parts of a load that are shown at most; JSON has all.
const PARTS: usize = 6;

/// What a reader of a closed loop's latencies must know.
const CLOSED: &str = "each client sends its next request when one is answered, so a \
    slower server gets fewer requests and latency leaves out what those would have waited; see \
    the IOPS";

/// Which direction is better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Lower,
    Higher,
    Neither,
}

/// What a value is, and how it is told against the first policy's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Against {
    /// A quantity, in percent of it.
    Ratio,
    /// A whole number, likewise.
    Count,
    /// Not at all, as the width of an interval.
    Alone,
    /// By the difference in this unit: a share of degrees above freezing says nothing.
    Difference(&'static str),
}

impl Against {
    /// The value for people, at least as fine as its difference; [`Against::Count`] and those of
    /// a thousand or more are whole.
    fn show(self, value: f64) -> String {
        match self {
            Self::Count => grouped(value),
            Self::Ratio | Self::Alone => number(value),
            Self::Difference(_) => format!("{value:.2}"),
        }
    }

    /// `value` against `reference`; nothing where there is no ratio.
    fn tell(self, value: f64, reference: f64) -> Option<String> {
        match self {
            Self::Ratio | Self::Count => {
                (reference != 0.0).then(|| percent(value / reference - 1.0))
            }
            Self::Alone => None,
            Self::Difference(unit) => {
                let difference = value - reference;
                let text = format!("{difference:+.1} {unit}");
                Some(if difference.abs() < 0.05 { "=".to_owned() } else { text })
            }
        }
    }
}

type Value = Box<dyn Fn(&RunSummary) -> Option<f64>>;

/// One line of the table.
struct Row {
    name: String,
    better: Better,
    against: Against,
    value: Value,
}

/// What each policy would save, before anything else.
pub fn verdicts(to: &mut impl Write, summary: &Summary) -> io::Result<()> {
    for verdict in &summary.verdicts {
        writeln!(to, "{}", wrapped(&format!("Simulated: {}", verdict.text)))?;
    }
    if let Some(advice) = &summary.advice {
        writeln!(to, "{}", wrapped(&format!("Hint: {advice}.")))?;
    }
    if summary.verdicts.is_empty() && summary.advice.is_none() { Ok(()) } else { writeln!(to) }
}

/// What was simulated.
pub fn heading(to: &mut impl Write, plan: &Plan, summary: &Summary) -> io::Result<()> {
    let profile = &plan.server.profile;
    writeln!(to, "Simulated (digital twin) on {}\n{}", profile.name, profile.summary)?;
    let what = match &plan.requests {
        Requests::Traces { .. } => "trace",
        Requests::Generated(_) => "workload",
    };
    let first = summary.runs.first();
    let after = match summary.warmup_seconds {
        0.0 => String::new(),
        warmup => format!(", after {} that do not count", seconds(warmup)),
    };
    let requests = first.map_or(0.0, |run| run.requests.unwrap_or_default() as f64);
    let span = first.map_or(0.0, |run| run.seconds);
    writeln!(
        to,
        "{what} {}, seed {}, {} requests in {} under {}{after}",
        summary.workload,
        plan.seed,
        grouped(requests),
        seconds(span),
        first.map_or("", |run| &run.policy),
    )?;
    if summary.closed_loop {
        let parts = plan.closed_parts().join(", ");
        let of = if parts.is_empty() { parts } else { format!(" of {parts}") };
        writeln!(to, "{}", wrapped(&format!("closed loop{of}: {CLOSED}")))?;
    }
    if let Some(sampled) = &summary.sampled {
        writeln!(to, "{}", wrapped(&sample(sampled)))?;
    }
    if let Some(most) = summary.maximum_iops {
        let asked = summary.pressure.map_or(String::new(), |share| {
            format!("; {}% pressure is {} IOPS", short(share * 100.0), grouped(share * most))
        });
        writeln!(
            to,
            "maximum of this workload, measured under native: {} IOPS{asked}",
            grouped(most)
        )?;
    }
    Ok(())
}

/// What was simulated of a load, and what that cannot show.
fn sample(of: &Sampled) -> String {
    let unseen = of.highest_iops_not_simulated.map_or(String::new(), |iops| {
        format!(
            ", the busiest that were not {} IOPS: what comes only in windows that were not drawn \
             is not in these numbers",
            grouped(iops)
        )
    });
    format!(
        "sampled: {} of {} windows of {}, each after {} that do not count; {} of the requests in \
         {} of simulated time. Estimates for the whole load, ± the {}% interval; peak power and \
         max are of what was simulated. Its busiest 5 s had {} IOPS{unseen}",
        grouped(of.drawn as f64),
        grouped(of.windows as f64),
        seconds(of.window_seconds),
        seconds(of.lead_seconds),
        share(of.share),
        seconds(of.simulated_seconds),
        short(of.level * 100.0),
        grouped(of.highest_iops),
    )
}

/// The table.
pub fn print(to: &mut impl Write, summary: &Summary) -> io::Result<()> {
    let Some((first, others)) = summary.runs.split_first() else { return Ok(()) };
    let rows = rows(summary);
    // Those that do not fit get a table of their own, beside the first again.
    let screen = Table::new().width().map_or(SCREEN, usize::from);
    let mut chunks = others.chunks((screen.saturating_sub(FIRST) / FURTHER).max(1));
    let mut runs: Vec<&RunSummary> = vec![first];
    runs.extend(chunks.next().unwrap_or_default());
    one(to, &rows, &runs)?;
    for chunk in chunks {
        let runs: Vec<&RunSummary> = [first].into_iter().chain(chunk).collect();
        one(to, &rows, &runs)?;
    }
    Ok(())
}

fn one(to: &mut impl Write, rows: &[Row], runs: &[&RunSummary]) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_content_arrangement(ContentArrangement::Disabled);
    if !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) {
        table.force_no_tty();
    }
    let name = |run: &&RunSummary| Cell::new(broken(&run.policy));
    let names = runs.iter().map(name).map(|cell| cell.set_alignment(CellAlignment::Right));
    table.set_header([Cell::new("")].into_iter().chain(names));
    for row in rows {
        table.add_row(line(row, runs));
    }
    table.add_row(sla("mean to SLA limit", runs, |run| Some(to_limit(run.sla_excess?))));
    table.add_row(sla("worst 5 s to limit", runs, |run| Some(to_limit(run.sla_worst_window?))));
    table.add_row(sla("5 s above limit", runs, |run| {
        let above = run.sla_windows_above?;
        Some((share(above), above <= ABOVE))
    }));
    // Narrow, so that five policies fit into 100 columns.
    table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 1)));
    writeln!(to, "{table}")
}

/// The name of policies that run together, on several lines where it is wider than their numbers.
fn broken(name: &str) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for part in name.split_inclusive('+') {
        if width > 0 && width + part.len() > WIDEST {
            text.push('\n');
            width = 0;
        }
        text.push_str(part);
        width += part.len();
    }
    text
}

fn line(row: &Row, runs: &[&RunSummary]) -> Vec<Cell> {
    let mut cells = vec![Cell::new(&row.name)];
    let reference = runs.first().and_then(|first| (row.value)(first));
    for (index, run) in runs.iter().enumerate() {
        let value = (row.value)(run);
        let text = value.map_or("–".to_owned(), |value| row.against.show(value));
        // A run that a trip cut short is compared with nothing, nor anything with it.
        let whole = run.trip.is_none() && runs[0].trip.is_none();
        let change = value.zip(reference).filter(|_| index > 0 && whole);
        // The first column has nothing to compare with.
        let cell = match change.and_then(|(value, reference)| row.against.tell(value, reference)) {
            Some(change) => Cell::new(format!("{text} {change:>7}")),
            None if index > 0 => Cell::new(format!("{text} {:>7}", "")),
            None => Cell::new(text),
        };
        let ratio = change.map(|(value, reference)| value / reference - 1.0);
        let ratio = ratio.filter(|ratio| ratio.is_finite());
        cells.push(coloured(cell, row.better, ratio).set_alignment(CellAlignment::Right));
    }
    cells
}

/// Green where more than 1 % better, red where worse.
fn coloured(cell: Cell, better: Better, change: Option<f64>) -> Cell {
    match (better, change) {
        (Better::Neither, _) | (_, None) => cell,
        (_, Some(change)) if change.abs() < 0.01 => cell,
        (_, Some(change)) if (change > 0.0) == (better == Better::Higher) => cell.fg(Color::Green),
        _ => cell.fg(Color::Red),
    }
}

/// A line of the SLA: `tell` gives what is shown, and whether that keeps it.
fn sla(
    name: &str,
    runs: &[&RunSummary],
    tell: impl Fn(&RunSummary) -> Option<(String, bool)>,
) -> Vec<Cell> {
    let mut cells = vec![Cell::new(name)];
    for (index, run) in runs.iter().enumerate() {
        let cell = match (index, tell(run)) {
            _ if run.trip.is_some() => Cell::new("tripped").fg(Color::Red),
            (0, _) => Cell::new("reference"),
            (_, None) => Cell::new("–"),
            (_, Some((text, true))) => Cell::new(text).fg(Color::Green),
            (_, Some((text, false))) => Cell::new(text).fg(Color::Red),
        };
        cells.push(cell.set_alignment(CellAlignment::Right));
    }
    cells
}

/// How far below or above its limit something is, and whether it is not above.
fn to_limit(excess: f64) -> (String, bool) {
    let side = if excess <= 0.0 { "below" } else { "above" };
    (format!("{} {side}", share(excess.abs())), excess <= 0.0)
}

/// A share in percent.
fn share(share: f64) -> String {
    format!("{}%", short((share * 1000.0).round() * 0.1))
}

fn rows(summary: &Summary) -> Vec<Row> {
    use Better::{Higher, Lower, Neither};
    type Of = fn(&RunSummary) -> Option<f64>;
    let with = |name: &str, better, against, value: Of| Row {
        name: name.to_owned(),
        better,
        against,
        value: Box::new(value),
    };
    let row = |name: &str, better, value: Of| with(name, better, Against::Ratio, value);
    let count = |name: &str, better, value: Of| with(name, better, Against::Count, value);
    let mut rows = Vec::new();
    if summary.runs.iter().any(|run| run.trip.is_some()) {
        rows.push(row("tripped at, s", Neither, |run| Some(run.trip?.at_s)));
    }
    rows.extend(energy(summary));
    rows.push(row("mean power, W", Lower, |run| run.mean_watts));
    let sampled = summary.sampled.is_some();
    let sure = |value: Of| with("  ±", Neither, Against::Alone, value);
    if sampled {
        rows.push(sure(|run| Some(half(run.interval?.mean_watts))));
    }
    if summary.runs.iter().any(|run| run.startup_watts.is_some()) {
        rows.push(row("start-up, W", Neither, |run| run.startup_watts));
    }
    rows.push(row("peak power, W", Lower, |run| run.peak_watts));
    rows.push(count("requests", Neither, |run| Some(run.requests? as f64)));
    rows.push(row("IOPS", Higher, |run| run.iops));
    rows.push(row("IOPS/W", Higher, |run| run.iops_per_watt));
    rows.push(row("MB/J", Higher, |run| Some(run.bytes_per_joule? * 1e-6)));
    rows.push(row("latency mean, µs", Lower, |run| run.latency_us.mean));
    if sampled {
        rows.push(sure(|run| Some(half(run.interval?.latency_mean_us?))));
    }
    rows.push(row("latency p50, µs", Lower, |run| run.latency_us.p50));
    rows.push(row("latency p99, µs", Lower, |run| run.latency_us.p99));
    if sampled {
        rows.push(sure(|run| Some(half(run.interval?.latency_p99_us?))));
    }
    rows.push(row("latency p99.9, µs", Lower, |run| run.latency_us.p99_9));
    if sampled {
        rows.push(sure(|run| Some(half(run.interval?.latency_p99_9_us?))));
    }
    rows.push(row("latency max, µs", Neither, |run| run.latency_us.max));
    rows.extend(parts(summary));
    if summary.runs.iter().any(|run| run.thermal.is_some()) {
        rows.extend(heat(energy_unit(summary)));
    }
    rows.extend(classes(summary));
    if summary.runs.iter().any(|run| run.disks.is_some()) {
        rows.push(count("seeks", Neither, |run| Some(run.disks?.seeks as f64)));
        rows.push(with("vibration loss, %", Lower, Against::Difference("pt"), |run| {
            Some(100.0 * run.disks?.vibration_loss?)
        }));
        rows.push(count("revolutions lost", Lower, |run| Some(run.disks?.retries as f64)));
        rows.push(count("spin-ups", Lower, |run| Some(run.disks?.spin_ups as f64)));
    }
    if summary.ssd_budget_watts.is_some() {
        rows.push(row("over budget, s", Lower, |run| run.seconds_over_budget));
        rows.push(row("caps at most, W", Neither, |run| run.most_capped_watts));
    }
    rows
}

/// Half the width of an interval.
fn half([low, high]: Interval) -> f64 {
    (high - low) / 2.0
}

/// Parts of the load.
fn parts(summary: &Summary) -> Vec<Row> {
    use Better::{Higher, Lower};
    type Of = fn(&PartSummary, f64) -> Option<f64>;
    let columns: [(&str, Better, Of); 3] = [
        ("MB/s", Higher, |part, seconds| Some(part.bytes as f64 * 1e-6 / seconds)),
        ("mean, µs", Lower, |part, _| part.latency_us?.mean),
        ("p99, µs", Lower, |part, _| part.latency_us?.p99),
    ];
    let present = summary.runs.first().map(|run| run.parts.as_slice()).unwrap_or_default();
    let present = if present.len() > PARTS { &[] } else { present };
    let rows = present.iter().enumerate().flat_map(|(at, part)| {
        columns.map(|(what, better, of)| Row {
            name: format!("{} {what}", part.name),
            better,
            against: Against::Ratio,
            value: Box::new(move |run| of(run.parts.get(at)?, run.seconds)),
        })
    });
    rows.collect()
}

/// Temperatures, fans and throttling.
fn heat((unit, scale): (&str, f64)) -> Vec<Row> {
    use Against::{Difference, Ratio};
    use Better::{Lower, Neither};
    let row = |name: &str, better, against, value: fn(&ThermalSummary) -> f64| Row {
        name: name.to_owned(),
        better,
        against,
        value: Box::new(move |run| run.thermal.as_ref().map(value)),
    };
    vec![
        row("socket at most, °C", Neither, Difference("K"), |heat| heat.hottest_socket_celsius),
        row("socket mean, °C", Neither, Difference("K"), |heat| heat.mean_socket_celsius),
        row("drive at most, °C", Neither, Difference("K"), |heat| heat.hottest_drive_celsius),
        // Points of percent: a percentage of a percentage is read wrongly.
        row("fan duty, %", Neither, Difference("pt"), |heat| heat.mean_fan_duty * 100.0),
        Row {
            name: format!("leakage, {unit}"),
            better: Lower,
            against: Ratio,
            value: Box::new(move |run| Some(run.thermal.as_ref()?.leakage_joules * scale)),
        },
        row("vibration amplitude", Neither, Ratio, |heat| heat.mean_vibration),
        row("cores throttled, s", Lower, Ratio, |heat| heat.socket_throttled_seconds),
        row("drives throttled, s", Lower, Ratio, |heat| heat.drive_throttled_seconds),
    ]
}

/// Jobs by class.
fn classes(summary: &Summary) -> Vec<Row> {
    use Against::{Count, Ratio};
    use Better::{Higher, Lower};
    type Of = fn(&ClassSummary) -> Option<f64>;
    let present = summary.runs.first().map(|run| run.classes.as_slice()).unwrap_or_default();
    let rows = present.iter().flat_map(|class| {
        let all = || summary.runs.iter().flat_map(|run| &run.classes);
        let of_class = || all().filter(|other| other.class == class.class);
        let late = of_class().any(|class| class.missed > 0);
        let promised = late || of_class().any(|class| class.met > 0);
        let waited = of_class().any(|class| class.mean_admission_seconds > Some(0.0));
        let columns: [(bool, &str, Better, Against, Of); 7] = [
            (true, "ended", Higher, Count, |class| Some(class.ended as f64)),
            (promised, "in time", Higher, Count, |class| Some(class.met as f64)),
            (late, "late", Lower, Count, |class| Some(class.missed as f64)),
            (waited, "let in after, s", Lower, Ratio, |class| class.mean_admission_seconds),
            (true, "delay, s", Lower, Ratio, |class| class.mean_delay_seconds),
            (true, "disk wait, s", Lower, Ratio, |class| Some(class.disk_wait_seconds)),
            (true, "throttled, s", Lower, Ratio, |class| Some(class.throttled_seconds)),
        ];
        let name = format!("{:?}", class.class).to_lowercase();
        let class = class.class;
        let shown = columns.into_iter().filter(|(shown, ..)| *shown);
        shown.map(move |(_, what, better, against, of)| Row {
            name: format!("{name} {what}"),
            better,
            against,
            value: Box::new(move |run: &RunSummary| {
                run.classes.iter().find(|other| other.class == class).and_then(of)
            }),
        })
    });
    rows.collect()
}

/// The unit of energy that suits the first run's total, and what a joule is in it.
fn energy_unit(summary: &Summary) -> (&'static str, f64) {
    let first = summary.runs.first().and_then(|run| run.energy_joules.get("total"));
    match first.copied().unwrap_or(0.0) {
        1e7.. => ("MJ", 1e-6),
        1e4.. => ("kJ", 1e-3),
        _ => ("J", 1.0),
    }
}

/// Energy by component, without components that draw nothing.
fn energy(summary: &Summary) -> Vec<Row> {
    let of = |run: &RunSummary, name: &str| run.energy_joules.get(name).copied();
    let (unit, scale) = energy_unit(summary);
    let names = ["total", "cpu", "ssd", "memory", "nic", "fans", "other", "psu_loss"];
    let drawn = |name: &&str| summary.runs.iter().any(|run| of(run, name) != Some(0.0));
    let row = |name: &'static str| {
        let label = match name {
            "total" => format!("energy, {unit}"),
            "psu_loss" => "  supply loss".to_owned(),
            "ssd" if summary.runs.iter().any(|run| run.disks.is_some()) => "  disks".to_owned(),
            name => format!("  {name}"),
        };
        let value =
            move |run: &RunSummary| run.energy_joules.get(name).map(|joules| joules * scale);
        Row { name: label, better: Better::Lower, against: Against::Ratio, value: Box::new(value) }
    };
    names.into_iter().filter(drawn).map(row).collect()
}

/// What a reader must know beside the numbers.
pub fn notes(to: &mut impl Write, summary: &Summary, results: &[RunResult]) -> io::Result<()> {
    if !summary.unfinished.is_empty() {
        let missing = summary.unfinished.join(", ");
        let text = format!("INTERRUPTED: partial results. Not finished: {missing}.");
        writeln!(to, "{}", wrapped(&text))?;
    }
    if summary.runs.len() > 1
        && let Some(limit) = summary.runs[0].sla_limit_us
    {
        writeln!(
            to,
            "SLA: mean latency at most {} µs, {}% above {}'s (--plf {}).",
            number(limit),
            short(summary.plf * 100.0),
            summary.runs[0].policy,
            summary.plf
        )?;
    }
    if let Some(budget) = summary.ssd_budget_watts {
        writeln!(
            to,
            "Budget of the drives: {} W; \"over budget\": control periods (0.5 s) above it.",
            short(budget)
        )?;
    }
    for run in results {
        let Some(trip) = run.outcome.trip else { continue };
        let end = "Its numbers end there and are not compared.";
        writeln!(to, "{}: {trip}.\n  {end}", run.recorded.policy)?;
    }
    for note in &summary.notes {
        writeln!(to, "{}", wrapped(&format!("Note: {note}.")))?;
    }
    let end = results.iter().map(|run| run.outcome.end.seconds()).fold(0.0, f64::max);
    faults(to, summary, end)?;
    for file in &summary.traces {
        for note in &file.notes {
            writeln!(to, "{}", wrapped(&format!("{}: {note}", file.file)))?;
        }
        if file.malformed > 0 {
            let (line, reason) = file.reasons.first().cloned().unwrap_or_default();
            writeln!(
                to,
                "{}: {} malformed records passed over, the first at {line}: {reason}",
                file.file, file.malformed
            )?;
        }
    }
    Ok(())
}

/// Faults told one by one; more are in the JSON and the log of decisions.
const FAULTS: usize = 12;

/// The injected faults, which are the same under every policy that ran as long; `end` is that of
/// the longest run.
fn faults(to: &mut impl Write, summary: &Summary, end: f64) -> io::Result<()> {
    let (Some(seed), lists) = (summary.faults_seed, summary.runs.iter()) else { return Ok(()) };
    let longest = lists.filter_map(|run| run.faults.as_deref()).max_by_key(|list| list.len());
    let all = longest.unwrap_or_default();
    let mut options = format!("--faults {seed}");
    if summary.faults_wide == Some(true) {
        options.push_str(" --faults-wide");
    }
    if let Some(until) = summary.faults_until_s {
        options.push_str(&format!(" --faults-until \"{until} s\""));
    }
    let count = all.len();
    writeln!(to, "Injected faults ({options}), the same under every policy: {count}")?;
    for fault in all.iter().take(FAULTS) {
        let until = match fault.until_s < end {
            true => format!("{:>6.1} s", fault.until_s),
            false => " the end".to_owned(),
        };
        writeln!(to, "  {:>7.1} s to {until}  {}", fault.from_s, fault.what)?;
    }
    if all.len() > FAULTS {
        writeln!(to, "  and {} more (--json, --decisions FILE)", all.len() - FAULTS)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperatures_are_told_apart_by_kelvins_and_counts_are_whole() {
        let kelvins = Against::Difference("K");
        let told = |value, reference| kelvins.tell(value, reference).unwrap();
        assert_eq!(
            [told(86.31, 89.5), told(40.0, 40.04), told(10.0, 0.0)],
            ["-3.2 K", "=", "+10.0 K"]
        );
        assert_eq!(Against::Ratio.tell(2.0, 4.0).unwrap(), "-50.0%");
        assert_eq!(Against::Ratio.tell(2.0, 0.0), None);
        assert_eq!(
            (Against::Count.show(1.0), Against::Ratio.show(1.0)),
            ("1".into(), "1.000".into())
        );
        assert!(
            heat(("J", 1.0))
                .iter()
                .filter(|row| row.name.contains("°C"))
                .all(|row| row.against == kelvins)
        );
    }
}
