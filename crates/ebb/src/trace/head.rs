//! `ebb trace head`: the first requests as Ebb reads them.

use std::io::{self, Write};

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::input::FileReport;
use ebb_cli::out;
use ebb_trace::{Op, Request, Source};

use super::args::HeadArgs;
use super::{open, skipped};

#[derive(Serialize, JsonSchema)]
#[schemars(title = "ebb trace head --json", extend("additionalProperties" = true))]
struct Head {
    #[schemars(extend("const" = 1))]
    schema: u32,
    files: Vec<FileReport>,
    requests: Vec<Row>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
struct Row {
    at_ns: u64,
    #[schemars(extend("enum" = ["read", "write", "flush", "trim"]))]
    op: &'static str,
    offset: u64,
    bytes: u32,
    device: u16,
    stream: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_latency_ns: Option<u64>,
}

impl Row {
    fn new(request: &Request) -> Self {
        let op = match request.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Trim => "trim",
        };
        Self {
            at_ns: request.at.0,
            op,
            offset: request.offset,
            bytes: request.bytes,
            device: request.device,
            stream: request.stream,
            recorded_latency_ns: request.recorded_latency.map(std::num::NonZero::get),
        }
    }
}

/// Runs the command.
pub fn run(args: &HeadArgs) -> Result<()> {
    let (mut source, watch) = open(&args.input)?;
    if args.input.json {
        let mut requests = Vec::new();
        each(source.as_mut(), args.lines, |row| {
            requests.push(row);
            Ok(true)
        })?;
        return out::json(&Head { schema: 1, files: watch.reports(), requests });
    }
    let mut to = out::stdout();
    writeln!(
        to,
        "{:>16}  {:<5} {:>18} {:>10} {:>6} {:>10} {:>14}",
        "time, s", "op", "offset", "bytes", "device", "stream", "latency, µs"
    )?;
    each(source.as_mut(), args.lines, |row| {
        if !to.is_read() {
            return Ok(false);
        }
        let latency = row
            .recorded_latency_ns
            .map_or("–".to_owned(), |nanos| format!("{:.3}", nanos as f64 * 1e-3));
        let at = row.at_ns as f64 * 1e-9;
        writeln!(
            to,
            "{at:>16.9}  {:<5} {:>18} {:>10} {:>6} {:>10} {latency:>14}",
            row.op, row.offset, row.bytes, row.device, row.stream
        )?;
        Ok(true)
    })?;
    skipped(&mut to, &watch.reports())?;
    Ok(to.flush()?)
}

/// Calls `take` with the first `count` requests, while it wants more; reads no further than their
/// batch.
fn each(
    source: &mut dyn Source,
    count: u64,
    mut take: impl FnMut(Row) -> io::Result<bool>,
) -> Result<()> {
    let mut left = count;
    let mut batch = Vec::new();
    while left > 0 {
        batch.clear();
        // What was read before an error is still shown.
        let filled = source.fill(&mut batch);
        for request in batch.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            if !take(Row::new(request))? {
                return Ok(());
            }
            left -= 1;
        }
        if left > 0 {
            filled?;
        }
        if batch.is_empty() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
crate::schema::written!("trace-head-1", Head);
