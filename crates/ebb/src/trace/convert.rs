//! `ebb trace convert`: a trace in another format.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use ebb_trace::write::WRITABLE;
use ebb_trace::{Format, TraceError, write};

use super::{open, skipped};
use crate::args::ConvertArgs;
use crate::exit::{Unwritten, check_folder, usage};
use crate::input::FileReport;
use crate::out;
use crate::text::grouped;

#[derive(Serialize)]
struct Converted {
    schema: u32,
    output: String,
    format: String,
    requests: u64,
    files: Vec<FileReport>,
}

/// Runs the command.
pub fn run(args: &ConvertArgs) -> Result<()> {
    let format = format(args)?;
    check_folder("--output", &args.output)?;
    let output = args.output.display().to_string();
    let to = args.output.canonicalize().ok();
    if to.is_some() && args.input.files.iter().any(|file| file.canonicalize().ok() == to) {
        return Err(usage(format!("--output {output} is also read: name another file")));
    }
    let (mut source, watch) = open(&args.input)?;
    let requests = write(source.as_mut(), &args.output, format).map_err(|error| {
        // The writer names the file it writes: failing there is not the input's fault.
        let ours = matches!(&error, TraceError::Io { file, .. } if *file == output);
        let error = anyhow::Error::from(error);
        if ours { error.context(Unwritten(output.clone())) } else { error }
    })?;
    let files = watch.reports();
    if args.input.json {
        let format = format.to_string();
        return out::json(&Converted { schema: 1, output, format, requests, files });
    }
    let mut to = out::stdout();
    writeln!(to, "{output}: {} requests written as {format}", grouped(requests as f64))?;
    skipped(&mut to, &files)?;
    Ok(to.flush()?)
}

fn format(args: &ConvertArgs) -> Result<Format> {
    let by_name = match args.output.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => Format::EbbCsv,
        _ => Format::Parquet,
    };
    let format = args.output_format.unwrap_or(by_name);
    if WRITABLE.contains(&format) {
        return Ok(format);
    }
    let names = WRITABLE.map(Format::name).join(", ");
    Err(usage(format!("--output-format {format} cannot be written; choose from: {names}")))
}
