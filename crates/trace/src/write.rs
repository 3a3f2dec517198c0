//! Traces into files: Parquet and CSV without loss, the MSR cut form and MQSim for other tools.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use crate::format::Format;
use crate::format::ebb_csv::HEADING;
use crate::format::parquet::SCHEMA;
use crate::output::OutputFile;
use crate::request::{Op, Request, Source, TraceError};

/// Rows of one row group in Parquet: what is held in memory while writing.
const GROUP: usize = 131_072;

/// The formats that [`write()`] knows.
pub const WRITABLE: [Format; 4] = [Format::Parquet, Format::EbbCsv, Format::MsrCut, Format::Mqsim];

/// Writes all that `source` still has to a file and returns the number of requests. A regular
/// file appears under its name only when it is complete; see [`crate::output`].
///
/// # Errors
/// When `source` fails, the file cannot be written, or the format cannot be written or cannot
/// hold a request: flushes and trims in the MSR cut form and MQSim, parts of sectors in MQSim.
pub fn write(
    source: &mut dyn Source,
    path: impl AsRef<Path>,
    format: Format,
) -> Result<u64, TraceError> {
    let name = path.as_ref().display().to_string();
    let io = |source| TraceError::Io { file: name.clone(), source };
    let mut to = OutputFile::create(path).map_err(io)?;
    let count = write_to(source, &mut to, &name, format)?;
    to.finish().map_err(io)?;
    Ok(count)
}

/// Writes all that `source` still has to `to`, which errors call `name`; returns the number of
/// requests.
///
/// # Errors
/// As [`write()`].
pub fn write_to(
    source: &mut dyn Source,
    to: impl Write + Send,
    name: &str,
    format: Format,
) -> Result<u64, TraceError> {
    match format {
        Format::Parquet => parquet(source, to, name),
        _ if WRITABLE.contains(&format) => text(source, to, name, format),
        _ => {
            let names = WRITABLE.map(Format::name).join(", ");
            let reason = format!("'{format}' cannot be written; {names} can");
            Err(TraceError::Format { file: name.to_owned(), reason })
        }
    }
}

fn text(
    source: &mut dyn Source,
    mut to: impl Write,
    name: &str,
    format: Format,
) -> Result<u64, TraceError> {
    let io = |source| TraceError::Io { file: name.to_owned(), source };
    if format == Format::EbbCsv {
        writeln!(to, "{HEADING}").map_err(io)?;
    }
    let mut batch = Vec::new();
    let mut count = 0;
    loop {
        batch.clear();
        source.fill(&mut batch)?;
        if batch.is_empty() {
            return Ok(count);
        }
        for request in &batch {
            count += 1;
            if format != Format::EbbCsv {
                fits(request, format).map_err(|reason| TraceError::Format {
                    file: name.to_owned(),
                    reason: format!("request {count}: {reason}"),
                })?;
            }
            line(&mut to, request, format).map_err(io)?;
        }
    }
}

/// Whether a text format other than our own can hold a request.
fn fits(request: &Request, format: Format) -> Result<(), String> {
    if !matches!(request.op, Op::Read | Op::Write) {
        return Err(format!("{format} has reads and writes only, this is a {:?}", request.op));
    }
    let whole = request.offset.is_multiple_of(512) && request.bytes.is_multiple_of(512);
    if format == Format::Mqsim && !whole {
        return Err("mqsim counts in sectors of 512 bytes, this is not a number of them".to_owned());
    }
    Ok(())
}

fn line(to: &mut impl Write, request: &Request, format: Format) -> io::Result<()> {
    let Request { at, offset, bytes, device, op, stream, recorded_latency } = *request;
    let read = u8::from(op == Op::Read);
    match format {
        Format::MsrCut => {
            let (ms, below) = (at.0 / 1_000_000, at.0 % 1_000_000);
            writeln!(to, "{ms}.{below:06} {device} {offset} {bytes} {read}")
        }
        Format::Mqsim => {
            writeln!(to, "{} {device} {} {} {read}", at.0, offset / 512, bytes / 512)
        }
        _ => {
            let letter = match op {
                Op::Read => 'R',
                Op::Write => 'W',
                Op::Flush => 'F',
                Op::Trim => 'T',
            };
            write!(to, "{},{letter},{offset},{bytes},{device},{stream},", at.0)?;
            match recorded_latency {
                Some(latency) => writeln!(to, "{latency}"),
                None => writeln!(to),
            }
        }
    }
}

fn parquet(source: &mut dyn Source, to: impl Write + Send, name: &str) -> Result<u64, TraceError> {
    let failed = |error: ParquetError| TraceError::Io {
        file: name.to_owned(),
        source: io::Error::other(error.to_string()),
    };
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
    let properties = Arc::new(properties());
    let mut to = SerializedFileWriter::new(to, schema, properties).map_err(failed)?;
    let mut rows = Vec::with_capacity(GROUP);
    let mut count = 0;
    loop {
        let before = rows.len();
        source.fill(&mut rows)?;
        let ended = rows.len() == before;
        while rows.len() >= GROUP || (ended && !rows.is_empty()) {
            let size = rows.len().min(GROUP);
            group(&mut to, &rows[..size]).map_err(failed)?;
            rows.drain(..size);
            count += size as u64;
        }
        if ended {
            break;
        }
    }
    to.close().map_err(failed)?;
    Ok(count)
}

/// Times grow by little, which delta encoding stores in few bits; the rest repeats.
fn properties() -> WriterProperties {
    let at = ColumnPath::from("at_ns");
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_column_dictionary_enabled(at.clone(), false)
        .set_column_encoding(at, Encoding::DELTA_BINARY_PACKED)
        .build()
}

/// Writes one row group, column by column in the order of the schema.
fn group<W: Write + Send>(
    to: &mut SerializedFileWriter<W>,
    rows: &[Request],
) -> Result<(), ParquetError> {
    let mut group = to.next_row_group()?;
    let mut wide: Vec<i64> = Vec::with_capacity(rows.len());
    let mut narrow: Vec<i32> = Vec::with_capacity(rows.len());
    let mut index = 0;
    while let Some(mut column) = group.next_column()? {
        wide.clear();
        narrow.clear();
        let mut levels = None;
        match index {
            0 => wide.extend(rows.iter().map(|row| row.at.0.cast_signed())),
            1 => narrow.extend(rows.iter().map(|row| row.op as i32)),
            2 => wide.extend(rows.iter().map(|row| row.offset.cast_signed())),
            3 => narrow.extend(rows.iter().map(|row| row.bytes.cast_signed())),
            4 => narrow.extend(rows.iter().map(|row| i32::from(row.device))),
            5 => narrow.extend(rows.iter().map(|row| row.stream.cast_signed())),
            _ => {
                let known = |row: &Request| row.recorded_latency;
                wide.extend(rows.iter().filter_map(known).map(|n| n.get().cast_signed()));
                levels = Some(rows.iter().map(|row| i16::from(known(row).is_some())).collect());
            }
        }
        values(&mut column, &wide, &narrow, levels)?;
        column.close()?;
        index += 1;
    }
    group.close()?;
    Ok(())
}

fn values(
    column: &mut SerializedColumnWriter<'_>,
    wide: &[i64],
    narrow: &[i32],
    levels: Option<Vec<i16>>,
) -> Result<(), ParquetError> {
    fn all<T: DataType>(
        to: &mut ColumnWriterImpl<'_, T>,
        from: &[T::T],
        levels: Option<Vec<i16>>,
    ) -> Result<(), ParquetError> {
        to.write_batch(from, levels.as_deref(), None).map(|_| ())
    }
    match column.untyped() {
        ColumnWriter::Int64ColumnWriter(to) => all::<Int64Type>(to, wide, levels),
        ColumnWriter::Int32ColumnWriter(to) => all::<Int32Type>(to, narrow, levels),
        _ => Err(ParquetError::General("the schema has whole numbers only".to_owned())),
    }
}
