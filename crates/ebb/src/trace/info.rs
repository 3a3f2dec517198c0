//! `ebb trace info`: a trace in numbers.

use std::io::Write;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::input::FileReport;
use ebb_cli::out;
use ebb_cli::text::{bytes, grouped, number, seconds};
use ebb_trace::stats::{Summary, summarise};

use super::args::InfoArgs;
use super::{open, skipped};

#[derive(Serialize, JsonSchema)]
#[schemars(title = "ebb trace info --json", extend("minimum" = 0, "additionalProperties" = true))]
struct Info<'a> {
    #[schemars(extend("const" = 1))]
    schema: u32,
    files: &'a [FileReport],
    #[serde(flatten)]
    summary: &'a Summary,
}

/// Runs the command.
pub fn run(args: &InfoArgs) -> Result<()> {
    let (mut source, watch) = open(&args.input)?;
    let summary = summarise(source.as_mut())?;
    let files = watch.reports();
    if args.input.json {
        return out::json(&Info { schema: 1, files: &files, summary: &summary });
    }
    let mut to = out::stdout();
    for file in &files {
        writeln!(to, "{} ({})", file.file, file.format)?;
    }
    for (name, value) in lines(&summary) {
        writeln!(to, "  {name:<20} {value}")?;
    }
    skipped(&mut to, &files)?;
    Ok(to.flush()?)
}

fn lines(summary: &Summary) -> Vec<(&'static str, String)> {
    let mut mix = format!("{} reads ({})", count(summary.reads), share(summary.read_share));
    mix.push_str(&format!(", {} writes", count(summary.writes)));
    for (many, name) in [(summary.flushes, "flushes"), (summary.trims, "trims")] {
        if many > 0 {
            mix.push_str(&format!(", {} {name}", count(many)));
        }
    }
    let mut lines = vec![
        ("requests", format!("{} in {}", count(summary.requests), seconds(summary.seconds))),
        ("operations", mix),
        (
            "rate",
            format!(
                "{} IOPS on average, {} in the busiest second, {}/s",
                number(summary.iops),
                count(summary.peak_iops),
                bytes(summary.bytes_per_second.round())
            ),
        ),
        (
            "data",
            format!(
                "{} read, {} written, {}{} touched",
                bytes(summary.read_bytes as f64),
                bytes(summary.written_bytes as f64),
                if summary.footprint_is_exact { "" } else { "about " },
                bytes(summary.footprint_bytes as f64)
            ),
        ),
        (
            "sizes",
            format!(
                "mean {}, median {}, 95% up to {}, largest {}",
                bytes(summary.size_mean.round()),
                bytes(f64::from(summary.size_p50)),
                bytes(f64::from(summary.size_p95)),
                bytes(f64::from(summary.size_max))
            ),
        ),
        ("most frequent", top(summary)),
        ("sequential", share(summary.sequential_share)),
        ("devices, streams", format!("{}, {}", summary.devices, summary.streams)),
        ("highest byte", bytes(summary.highest_byte as f64)),
        ("longest gap", seconds(summary.longest_gap_seconds)),
    ];
    lines.extend(gaps(summary).into_iter().map(|gap| ("", gap)));
    if let Some(latency) = &summary.recorded_latency {
        let text = format!(
            "mean {} µs, p50 {}, p99 {}, p99.9 {}, max {} (recorded in {} requests)",
            number(latency.mean),
            number(latency.p50),
            number(latency.p99),
            number(latency.p99_9),
            number(latency.max),
            count(latency.count)
        );
        lines.push(("recorded latency", text));
    }
    lines
}

fn share(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn count(count: u64) -> String {
    grouped(count as f64)
}

/// The most frequent sizes.
fn top(summary: &Summary) -> String {
    let top: Vec<_> = summary
        .top_sizes
        .iter()
        .take(4)
        .map(|(size, part)| format!("{} {}", bytes(f64::from(*size)), share(*part)))
        .collect();
    top.join(", ")
}

/// Times without arrivals.
fn gaps(summary: &Summary) -> Vec<String> {
    summary
        .gaps
        .iter()
        .filter(|gap| gap.count > 0)
        .map(|gap| {
            let least = seconds(gap.at_least_seconds);
            format!(
                "{} of {least} or more ({} of time)",
                count(gap.count),
                share(gap.share_of_time)
            )
        })
        .collect()
}

#[cfg(test)]
crate::schema::written!("trace-info-1", Info<'static>);
