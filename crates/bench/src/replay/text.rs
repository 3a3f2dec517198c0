//! The results for people.

use std::fmt::Write;

use ebb_cli::text::{grouped, number, seconds, wrapped};

use super::report::{EnergyReport, PUNCTUAL_NS, Repeat, Report};
use crate::latency::nanos;
use crate::measured::table;

/// All of it.
pub fn text(report: &Report) -> String {
    let mut text = report.heading();
    text.push('\n');
    for repeat in &report.repeats {
        let part = if repeat.complete { "" } else { ", ended early" };
        let _ = write!(text, "\nRepeat {}, {}{part}", repeat.repeat, seconds(repeat.seconds));
        let _ = writeln!(text, "\n{}", table(&repeat.total, &repeat.by_op, []));
        for line in arrivals(repeat).into_iter().chain(failures(repeat)) {
            let _ = writeln!(text, "{}", wrapped(&line));
        }
        for energy in &repeat.energy {
            let _ = writeln!(text, "{}", wrapped(&joules(energy)));
        }
    }
    if let (Some(median), 2..) = (&report.median, report.repeats.len()) {
        let _ = write!(
            text,
            "\nMedian of {} complete repeats: {} MB/s, {} IOPS",
            median.repeats,
            number(median.mb_per_s),
            grouped(median.iops)
        );
        for energy in &median.energy {
            if let (Some(joules), Some(per)) = (energy.joules, energy.bytes_per_joule) {
                let per = number(per * 1e-6);
                let _ = write!(text, "; {} J, {per} MB/J by {}", number(joules), energy.meter);
            }
        }
        text.push('\n');
    }
    if !report.notes.is_empty() {
        text.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(text, "{}", wrapped(note));
    }
    text
}

/// How well due times were kept.
fn arrivals(repeat: &Repeat) -> Vec<String> {
    let Some(deviation) = &repeat.deviation_ns else { return Vec::new() };
    let mut lines = vec![format!(
        "arrivals: issued after they were due by {} (median), {} (p99), {} at most",
        nanos(deviation.p50 as f64),
        nanos(deviation.p99 as f64),
        nanos(deviation.max as f64)
    )];
    if deviation.p99 > PUNCTUAL_NS {
        lines.push(format!(
            "warning: more than 1 % came over {} late; the cores are shared or slow to wake up: \
             give the streams idle cores (--cores), a longer --spin, or fewer of them",
            nanos(PUNCTUAL_NS as f64)
        ));
    }
    if repeat.held_back > 0 {
        lines.push(format!(
            "warning: {} requests had to wait for others to be answered: the target does not keep \
             up, or --queue-depth is too small",
            grouped(repeat.held_back as f64)
        ));
    }
    lines
}

fn failures(repeat: &Repeat) -> Vec<String> {
    let mut lines: Vec<_> = repeat
        .errors
        .iter()
        .map(|error| format!("{} {}s failed: {}", error.count, error.op, error.what))
        .collect();
    if repeat.unsent > 0 {
        lines.push(format!("{} requests were never issued", grouped(repeat.unsent as f64)));
    }
    lines
}

fn joules(energy: &EnergyReport) -> String {
    let EnergyReport { of, origin, .. } = energy;
    let mut line = match (energy.joules, energy.watts) {
        (Some(joules), Some(watts)) => {
            let mut line = format!("energy: {} J", number(joules));
            if let Some((low, high)) = energy.joules_interval {
                let _ = write!(line, " ({} to {})", number(low), number(high));
            }
            let _ = write!(line, ", {} W", number(watts));
            if let Some(per) = energy.bytes_per_joule {
                let _ = write!(line, ", {} MB/J", number(per * 1e-6));
            }
            if let Some((low, high)) = energy.bytes_per_joule_interval {
                let _ = write!(line, " ({} to {})", number(low * 1e-6), number(high * 1e-6));
            }
            let samples = match *origin {
                "measured" => format!("; {} samples", energy.samples),
                _ => String::new(),
            };
            format!("{line}, {origin}: {of}{samples}")
        }
        _ => format!(
            "energy: not known of {of}: its samples cover {} of the time counted",
            seconds(energy.covered_seconds)
        ),
    };
    if !energy.gaps_s.is_empty() {
        let lost: f64 = energy.gaps_s.iter().map(|(from, to)| to - from).sum();
        let count = energy.gaps_s.len();
        let _ = write!(line, "; {count} gaps without samples, {} together", seconds(lost));
    }
    let skipped: u64 = energy.skipped.values().sum();
    if skipped > 0 {
        let reasons: Vec<_> =
            energy.skipped.iter().map(|(why, count)| format!("{count} × {why}")).collect();
        let _ = write!(line, "; {skipped} lines passed over ({})", reasons.join(", "));
    }
    if let Some(failure) = &energy.failure {
        let _ = write!(line, "; it ended: {failure}");
    }
    line
}
