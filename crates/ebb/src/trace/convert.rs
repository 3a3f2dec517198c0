//! `ebb trace convert`: a trace in another format.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::input::FileReport;
use ebb_cli::text::grouped;
use ebb_cli::{Unwritten, out, output, usage};
use ebb_trace::write::WRITABLE;
use ebb_trace::{Format, OutputFile, TraceError, write_to};

use super::args::ConvertArgs;
use super::{open, skipped};

/// The name of standard output.
const STDOUT: &str = "-";

#[derive(Serialize, JsonSchema)]
#[schemars(title = "ebb trace convert --json", extend("additionalProperties" = true))]
struct Converted {
    #[schemars(extend("const" = 1))]
    schema: u32,
    output: String,
    format: String,
    requests: u64,
    files: Vec<FileReport>,
}

/// Runs the command.
pub fn run(args: &ConvertArgs) -> Result<()> {
    let path = &args.output;
    let is_stdout = path == Path::new(STDOUT) || output::is_stdout(path);
    let name = if is_stdout { "standard output".to_owned() } else { path.display().to_string() };
    let format = format(args)?;
    if is_stdout && args.input.json {
        return Err(usage(format!("--json would stand within the trace: both go to {name}")));
    }
    if !is_stdout {
        output::check("--output", path)?;
        output::apart(&args.input.files, &[("--output", path)])?;
    }
    let (mut source, watch) = open(&args.input)?;
    let unwritten = |error: io::Error| anyhow::Error::from(error).context(Unwritten(name.clone()));
    let opened = if is_stdout { OutputFile::stdout() } else { OutputFile::create(path) };
    let mut to = opened.map_err(unwritten)?;
    let requests = write_to(source.as_mut(), &mut to, &name, format).map_err(|error| {
        // The writer names the file it writes: failing there is not the input's fault.
        let ours = matches!(&error, TraceError::Io { file, .. } if *file == name);
        let error = anyhow::Error::from(error);
        if ours { error.context(Unwritten(name.clone())) } else { error }
    });
    let done = requests.and_then(|requests| {
        to.finish().map_err(unwritten)?;
        Ok(requests)
    });
    let requests = match done {
        Ok(requests) => requests,
        // As everywhere, a reader that leaves early is no failure.
        Err(error) if is_stdout && is_closed(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    let files = watch.reports();
    if args.input.json {
        let format = format.to_string();
        return out::json(&Converted { schema: 1, output: name, format, requests, files });
    }
    let mut text = Vec::new();
    writeln!(text, "{name}: {} requests written as {format}", grouped(requests as f64))?;
    skipped(&mut text, &files)?;
    if is_stdout {
        out::note(String::from_utf8_lossy(&text).trim_end());
        return Ok(());
    }
    let mut to = out::stdout();
    to.write_all(&text)?;
    Ok(to.flush()?)
}

fn is_closed(error: &anyhow::Error) -> bool {
    let closed = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref() {
        Some(TraceError::Io { source, .. }) => source.kind() == io::ErrorKind::BrokenPipe,
        _ => {
            let cause: Option<&io::Error> = cause.downcast_ref();
            cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        }
    };
    error.chain().any(closed)
}

/// The format that the options name, or the file's ending.
fn format(args: &ConvertArgs) -> Result<Format> {
    let path = &args.output;
    let name = path.display();
    let names = WRITABLE.map(Format::name).join(", ");
    let ending = path.extension().and_then(|ending| ending.to_str());
    if matches!(ending, Some("gz" | "zst" | "xz" | "bz2" | "zip")) {
        return Err(usage(format!(
            "--output {name}: what Ebb writes is not compressed from outside; name it .parquet, \
             which is compressed within, or pipe CSV: ebb trace convert … -o - | zstd > {name}"
        )));
    }
    let format = match (args.output_format, ending) {
        (Some(format), _) => format,
        (None, Some("parquet")) => Format::Parquet,
        (None, Some("csv")) => Format::EbbCsv,
        (None, _) if path == Path::new(STDOUT) || (path.exists() && !path.is_file()) => {
            Format::EbbCsv
        }
        (None, _) => {
            return Err(usage(format!(
                "--output {name}: the ending says no format; end it in .parquet or .csv, or give \
                 --output-format: {names}"
            )));
        }
    };
    if WRITABLE.contains(&format) {
        return Ok(format);
    }
    Err(usage(format!("--output-format {format} cannot be written; choose from: {names}")))
}

#[cfg(test)]
crate::schema::written!("trace-convert-1", Converted);
