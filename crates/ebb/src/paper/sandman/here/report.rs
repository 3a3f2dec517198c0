//! What was measured here: every point, and medians over the rounds beside busy polling's.

use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use ebb_cli::text;
use schemars::JsonSchema;
use serde::Serialize;

use super::point::{Latencies, Point, Residency};
use super::{BASE, SCHEDULERS};

/// Cache lines that take this much longer belong to cores that moved apart: near and far differ
/// by a factor of six and more.
const APART: f64 = 2.0;
/// What every row is.
const KIND: &str = "measured here";

/// Where and how it was measured.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Machine {
    pub cpu_model: String,
    #[schemars(length(min = 1))]
    pub target_cpus: Vec<usize>,
    #[schemars(length(min = 1))]
    pub load_cpus: Vec<usize>,
    pub rounds: u16,
    /// Counted of each point.
    pub duration_s: f64,
    pub seed: u64,
}

/// A ratio to busy polling in the same rounds.
#[derive(Debug, Serialize, JsonSchema)]
struct Over {
    /// Absent where there were no requests.
    latency: Option<Latencies>,
    /// Absent where busy polling used nothing that was seen.
    power: Option<f64>,
}

/// A scheduler at a load: medians over the rounds.
#[derive(Debug, Serialize, JsonSchema)]
struct Row {
    #[schemars(extend("const" = "measured here"))]
    kind: &'static str,
    #[schemars(extend("enum" = ["idle", "stable", "bursts", "raid-5", "cloud"]))]
    figure: &'static str,
    load: String,
    scheduler: &'static str,
    iops: Option<f64>,
    latency_us: Option<Latencies>,
    unsent: u64,
    cores: Residency,
    /// Measured: by RAPL, whole packages, the load's cores included; modelled: from the
    /// residencies, the target's cores above the idle machine.
    #[schemars(extend("enum" = ["measured", "modelled"]))]
    energy_source: &'static str,
    power_w: f64,
    /// Medians of ratios to busy polling, over the rounds alike.
    over_static: Option<Over>,
    /// Rounds in which a cache line took about as long between the cores for both.
    rounds_alike: usize,
}

/// Version 1. Sandman's experiments, measured on this machine's cores; nothing of the twin and
/// nothing of the paper is in it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ebb paper sandman --here --json")]
pub struct Report {
    #[schemars(extend("const" = 1))]
    schema: u32,
    #[schemars(extend("const" = "measured here"))]
    kind: &'static str,
    machine: Machine,
    /// A scheduler at a load: medians over the rounds.
    rows: Vec<Row>,
    /// Each in each round.
    points: Vec<Point>,
    /// What could not be measured, and why.
    left_out: Vec<String>,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[odd / 2],
        even => (values[even / 2 - 1] + values[even / 2]) / 2.0,
    }
}

/// Medians of percentiles, where there are any.
fn latencies(all: impl Iterator<Item = Latencies>) -> Option<Latencies> {
    let all: Vec<Latencies> = all.collect();
    let middle = |value: fn(&Latencies) -> f64| median(all.iter().map(value));
    let medians =
        Latencies { p50: middle(|l| l.p50), p99: middle(|l| l.p99), p999: middle(|l| l.p999) };
    (!all.is_empty()).then_some(medians)
}

/// Whether the cores were about as far from each other all the time.
fn alike(one: &Point, other: &Point) -> bool {
    let times = [one.cache_line_ns, other.cache_line_ns].concat();
    let (least, most) = (times.iter().min(), times.iter().max());
    least.zip(most).is_some_and(|(least, most)| *most as f64 <= APART * (*least).max(1) as f64)
}

impl Row {
    /// The points are of one scheduler and one load; `base` are busy polling's at that load.
    fn of(points: &[&Point], base: &[&Point]) -> Option<Self> {
        let first = points.first()?;
        let middle = |value: fn(&Point) -> f64| median(points.iter().map(|point| value(point)));
        let share =
            |value: fn(&Residency) -> f64| median(points.iter().map(|point| value(&point.cores)));
        let pairs = || {
            points.iter().filter_map(|point| {
                let same = base.iter().find(|other| other.round == point.round)?;
                alike(point, same).then_some((*point, *same))
            })
        };
        let rounds_alike = pairs().count();
        let over = Over {
            latency: latencies(pairs().filter_map(|(point, base)| {
                let (own, base) = (point.latency_us?, base.latency_us?);
                let [p50, p99, p999] =
                    [(own.p50, base.p50), (own.p99, base.p99), (own.p999, base.p999)]
                        .map(|(own, base)| own / base);
                Some(Latencies { p50, p99, p999 })
            })),
            power: Some(median(pairs().map(|(point, base)| point.power_w / base.power_w)))
                .filter(|ratio| ratio.is_finite()),
        };
        Some(Self {
            kind: KIND,
            figure: first.figure,
            load: first.load.clone(),
            scheduler: first.scheduler,
            iops: first.iops.map(|_| middle(|point| point.iops.unwrap_or(0.0))),
            latency_us: latencies(points.iter().filter_map(|point| point.latency_us)),
            unsent: points.iter().map(|point| point.unsent).sum(),
            cores: Residency {
                busy: share(|cores| cores.busy),
                wasted: share(|cores| cores.wasted),
                dozing: share(|cores| cores.dozing),
                blocked: share(|cores| cores.blocked),
                napping: share(|cores| cores.napping),
            },
            energy_source: first.energy_source,
            power_w: middle(|point| point.power_w),
            over_static: (rounds_alike > 0).then_some(over),
            rounds_alike,
        })
    }
}

impl Report {
    /// From all points, in the order of the first round.
    pub fn new(machine: Machine, points: Vec<Point>, left_out: Vec<String>) -> Self {
        let mut loads: Vec<(&str, &str)> = Vec::new();
        for point in &points {
            let load = (point.figure, &*point.load);
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        let mut rows = Vec::new();
        for load in loads {
            let of = |scheduler: &str| -> Vec<&Point> {
                let same = |point: &&Point| {
                    (point.figure, &*point.load, point.scheduler) == (load.0, load.1, scheduler)
                };
                points.iter().filter(same).collect()
            };
            let base = of(BASE);
            rows.extend(SCHEDULERS.into_iter().filter_map(|name| Row::of(&of(name), &base)));
        }
        Self { schema: 1, kind: KIND, machine, rows, points, left_out }
    }

    /// For people: a table for each load.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let Machine { cpu_model, target_cpus, load_cpus, rounds, duration_s, seed } = &self.machine;
        let _ = writeln!(
            out,
            "MEASURED HERE, not simulated: {cpu_model}; target on CPUs {target_cpus:?}, load on \
             {load_cpus:?}\n{rounds} rounds, {} a point, seed {seed}; medians over the rounds; \
             latencies in us, from the intended start",
            text::seconds(*duration_s),
        );
        for rows in
            self.rows.chunk_by(|one, next| (one.figure, &one.load) == (next.figure, &next.load))
        {
            let _ = writeln!(out, "\n{}, {} ({KIND})", rows[0].figure, rows[0].load);
            let _ = writeln!(out, "{}", table(rows).trim_fmt());
        }
        out.push('\n');
        for line in self.notes() {
            let _ = writeln!(out, "{line}");
        }
        out
    }

    fn notes(&self) -> Vec<String> {
        let lines = self.points.iter().flat_map(|point| point.cache_line_ns);
        let (least, most) = lines.fold((u64::MAX, 0), |(l, m), ns| (l.min(ns), m.max(ns)));
        let mut notes = vec![
            format!(
                "x: ratio to static, busy polling, in the same round; only over rounds 'alike', in \
                 which a cache line\n   took about as long between the cores both times (here \
                 {least} to {most} ns)"
            ),
            "busy, asleep: shares of the target's core time; the rest is polling in vain".into(),
        ];
        let source = self.rows.first().map(|row| row.energy_source);
        notes.push(match source {
            Some("measured") => "W: MEASURED by RAPL, of whole packages: the load's cores, which \
                                 poll all the time, included"
                .into(),
            _ => "W: MODELLED, not measured: RAPL is not at hand; from the core states and a \
                  profile of another machine's\n   cores, above the idle machine, of the target's \
                  cores only"
                .into(),
        });
        if self.machine.target_cpus.len() == 1 {
            notes.push(
                "The target has one core: no scheduler can consolidate or spread threads, and only \
                 how that core waits\n   differs"
                    .into(),
            );
        }
        let unsent: u64 = self.rows.iter().map(|row| row.unsent).sum();
        if unsent > 0 {
            notes.push(format!(
                "{unsent} requests were due and never sent: the latencies of these loads are of \
                 the others"
            ));
        }
        notes.push("governor: left out, because nothing here sets frequencies".into());
        notes.extend(self.left_out.iter().cloned());
        notes
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "scheduler",
        "IOPS",
        "p50",
        "p99",
        "p99.9",
        "p50 x",
        "p99 x",
        "p99.9 x",
        "busy",
        "asleep",
        "W",
        "W x",
        "alike",
    ]);
    let rounds = |row: &Row| row.rounds_alike.to_string();
    for row in rows {
        let none = || "–".to_owned();
        let mut cells = vec![row.scheduler.to_owned(), row.iops.map_or_else(none, text::grouped)];
        let three = |of: Option<Latencies>, show: fn(f64) -> String| {
            of.map_or([none(), none(), none()], |l| [l.p50, l.p99, l.p999].map(show))
        };
        cells.extend(three(row.latency_us, |micros| format!("{micros:.1}")));
        let over = row.over_static.as_ref();
        cells.extend(three(over.and_then(|over| over.latency), |ratio| format!("{ratio:.2}")));
        let cores = &row.cores;
        let asleep = cores.dozing + cores.blocked + cores.napping;
        cells.extend([cores.busy, asleep].map(|share| format!("{:.1} %", 100.0 * share)));
        cells.push(format!("{:.2}", row.power_w));
        cells.push(
            over.and_then(|over| over.power).map_or_else(none, |ratio| format!("{ratio:.2}")),
        );
        cells.push(rounds(row));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
crate::schema::written!("paper-here-1", Report);
