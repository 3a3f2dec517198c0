//! `ebb probe wake`: entry and wake-up latency of every strategy, ring messages, moves.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, LineStyle, Table};
use ebb_target::reactor::Strategy;
use ebb_target::reactor::probe::{self, Way};
use ebb_target::reactor::topology;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::progress::Progress;
use ebb_cli::{out, usage};

/// Options of `ebb probe wake`.
#[derive(Debug, Args)]
pub struct WakeArgs {
    /// Two CPUs: the second sleeps, the first wakes it [default: the first two available].
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Number of wake-ups per strategy, and of moves.
    #[arg(long, value_name = "NUMBER", default_value_t = 5000,
        value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    samples: u64,
    /// Print JSON (docs/json-schema/probe-wake-1.json).
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

/// A distribution of times, in nanoseconds.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
struct Spread {
    samples: u64,
    min_ns: u64,
    median_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Spread {
    fn of(times: &[u64]) -> Result<Self> {
        let mut histogram = Histogram::<u64>::new(3)?;
        for time in times {
            histogram.record(*time)?;
        }
        Ok(Self {
            samples: histogram.len(),
            min_ns: histogram.min(),
            median_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Row {
    name: &'static str,
    /// Whether a store of the sender is all it takes.
    #[schemars(extend("enum" = ["store", "store, then system call", "system call"]))]
    woken_by: &'static str,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Outcome {
    Measured {
        /// To sleep and straight out again.
        entry: Spread,
        /// What ringing costs the sender.
        sender: Spread,
        /// From before the sender publishes to the sleeper running.
        wake: Spread,
    },
    Unavailable {
        /// Why this machine does not have it.
        unavailable: String,
    },
}

/// Version 1. Everything was measured on the machine it ran on.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ebb probe wake --json")]
struct Report {
    #[schemars(extend("const" = 1))]
    schema: u32,
    #[schemars(extend("const" = "measured on this machine"))]
    provenance: &'static str,
    cpu_model: String,
    /// The one that wakes, the one that sleeps.
    cpus: [usize; 2],
    /// What the runtime dozes by on this machine.
    chosen: &'static str,
    ways: Vec<Row>,
    /// Each sample the mean of 1000 hops.
    cache_line_one_way: Spread,
    /// Put in and taken out; each sample the mean of 500.
    message_on_one_core: Spread,
    /// From core to core, both polling; each sample the mean of 1000.
    message_across: Spread,
    /// End of a thread's last poll on one core to the start of its first on the other.
    move_to_polling: Spread,
    /// The same where the other core dozed.
    move_to_dozing: Spread,
}

/// Measures and prints.
pub fn run(args: &WakeArgs) -> Result<()> {
    let cpus = cpus(args.cpus.as_deref())?;
    let report = measure(args, cpus)?;
    if args.json { out::json(&report) } else { out::print(text(&report)) }
}

fn cpus(given: Option<&str>) -> Result<[usize; 2]> {
    let wrong = |why: &str| usage(format!("--cpus {}: {why}", given.unwrap_or("")));
    let list = match given {
        Some(text) => ebb_policy::cpus::list(text).ok_or_else(|| wrong("write such as 0,1"))?,
        None => topology::allowed().context("cannot read which CPUs this process may use")?,
    };
    match (list.as_slice(), given) {
        (&[sender, sleeper], Some(_)) if sender != sleeper => Ok([sender, sleeper]),
        (_, Some(_)) => Err(wrong("name two different CPUs, such as 0,1")),
        (&[sender, sleeper, ..], None) => Ok([sender, sleeper]),
        (_, None) => Err(usage("this takes two CPUs, and this process may use only one")),
    }
}

fn measure(args: &WakeArgs, cpus: [usize; 2]) -> Result<Report> {
    let ways: Vec<Way> = Way::all().collect();
    let windows = (args.samples / 10).max(10);
    let bar = Progress::new(args.quiet || args.json).bar("probe wake", Some(ways.len() as u64 + 4));
    let mut rows = Vec::new();
    for way in ways {
        bar.set_message(way.name());
        let outcome = match way.check() {
            Ok(()) => {
                let times = probe::wake(way, cpus, args.samples)?;
                let (entry, sender) = (Spread::of(&times.entry)?, Spread::of(&times.sender)?);
                Outcome::Measured { entry, sender, wake: Spread::of(&times.wake)? }
            }
            Err(missing) => Outcome::Unavailable { unavailable: missing.reason.to_owned() },
        };
        rows.push(Row { name: way.name(), woken_by: woken_by(way), outcome });
        bar.inc(1);
    }
    let step = |name: &'static str| {
        bar.inc(1);
        bar.set_message(name);
    };
    step("cache line");
    let line = probe::ping_pong(cpus, windows)?;
    step("messages");
    let message = probe::message(cpus, windows)?;
    step("moves");
    let move_to_polling = Spread::of(&probe::moves(cpus, args.samples, None)?)?;
    step("moves that wake");
    let best = Strategy::best();
    let move_to_dozing = Spread::of(&probe::moves(cpus, args.samples, Some(best))?)?;
    bar.finish_and_clear();
    Ok(Report {
        schema: 1,
        provenance: "measured on this machine",
        cpu_model: cpu_model(Path::new("/proc/cpuinfo")),
        cpus,
        chosen: best.name(),
        ways: rows,
        cache_line_one_way: Spread::of(&line)?,
        message_on_one_core: Spread::of(&message.local)?,
        message_across: Spread::of(&message.across)?,
        move_to_polling,
        move_to_dozing,
    })
}

fn woken_by(way: Way) -> &'static str {
    match way {
        Way::Doze(Strategy::Futex { .. }) => "store, then system call",
        Way::Doze(_) => "store",
        Way::Block => "system call",
    }
}

/// The CPU's name, with a hint where a hypervisor stands between: it adds to every wake-up that
/// goes through the kernel.
pub fn cpu_model(cpuinfo: &Path) -> String {
    let text = fs::read_to_string(cpuinfo).unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim())
    };
    let model = value("model name").unwrap_or("unknown CPU");
    let guest = value("flags").is_some_and(|f| f.split(' ').any(|flag| flag == "hypervisor"));
    if guest { format!("{model}, virtual machine") } else { model.to_owned() }
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    let [sender, sleeper] = report.cpus;
    let _ = writeln!(
        out,
        "Measured on this machine ({}): cpu {sleeper} sleeps, cpu {sender} wakes it.\n",
        report.cpu_model
    );
    let mut table = table(&["sleep", "woken by", "entry", "sender", "wake-up", "p99", "max"], 2);
    for row in &report.ways {
        if let Outcome::Measured { entry, sender, wake } = &row.outcome {
            let times = [entry.median_ns, sender.median_ns, wake.median_ns];
            let times = times.into_iter().chain([wake.p99_ns, wake.max_ns]).map(time);
            table.add_row([row.name, row.woken_by].map(str::to_owned).into_iter().chain(times));
        }
    }
    let _ = writeln!(out, "{table}");
    for row in &report.ways {
        if let Outcome::Unavailable { unavailable } = &row.outcome {
            let _ = writeln!(out, "{}: not available: {unavailable}", row.name);
        }
    }
    let _ = writeln!(out, "The runtime dozes by {} here.\n", report.chosen);
    let rows = [
        ("cache line, one way (mean of 1000)", report.cache_line_one_way),
        ("ring message on one core (mean of 500)", report.message_on_one_core),
        ("ring message across (mean of 1000)", report.message_across),
        ("move of a thread to a polling core", report.move_to_polling),
        ("move of a thread to a dozing core", report.move_to_dozing),
    ];
    let mut table = self::table(&["", "min", "median", "p99", "max"], 1);
    for (name, spread) in rows {
        let times = [spread.min_ns, spread.median_ns, spread.p99_ns, spread.max_ns].map(time);
        table.add_row([name.to_owned()].into_iter().chain(times));
    }
    let _ = writeln!(out, "{table}");
    out.push_str(
        "Entry: in and straight out again. Sender: what ringing costs it. Wake-up: from before \
         the\nsender publishes to the sleeper running (median). Cores of shared machines move \
         apart and together:\ncompare only what one run measured.\n",
    );
    out
}

fn table(header: &[&str], names: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_header(header.to_vec());
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
crate::schema::written!("probe-wake-1", Report);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_two_different_ones() {
        assert_eq!(cpus(Some("3,1")).unwrap_or_default(), [3, 1]);
        for wrong in ["0", "1,1", "0-2", "a", ""] {
            let error = cpus(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains("--cpus") && error.contains("0,1"), "{error}");
        }
    }

    #[test]
    fn a_guest_is_told_from_a_host() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpuinfo");
        fs::write(&file, "model name\t: Some CPU\nflags\t\t: fpu hypervisor sse\n").unwrap();
        assert_eq!(cpu_model(&file), "Some CPU, virtual machine");
        fs::write(&file, "model name\t: Some CPU\nflags\t\t: fpu sse\n").unwrap();
        assert_eq!(cpu_model(&file), "Some CPU");
    }

    #[test]
    fn times_have_units() {
        assert_eq!([30, 12_345, 20_000_000].map(time), ["30 ns", "12.3 us", "20.0 ms"]);
    }
}
