//! The time series: one row per policy and control period, as CSV or Parquet.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::plan::Plan;
use super::record::Columns;
use super::run::RunResult;
use crate::exit::{Unwritten, check_folder, usage};

/// Rows of one row group in Parquet.
const GROUP: usize = 16_384;

/// Where the series goes, and in which form.
pub struct Target<'a> {
    path: &'a Path,
    parquet: bool,
}

impl<'a> Target<'a> {
    /// The form follows from the ending.
    pub fn new(path: &'a Path) -> Result<Self> {
        check_folder("--timeseries", path)?;
        let ending = path.extension().and_then(|ending| ending.to_str());
        let parquet = match ending {
            Some("parquet") => true,
            Some("csv") => false,
            _ => {
                return Err(usage(format!(
                    "--timeseries {}: the name must end in .csv or .parquet",
                    path.display()
                )));
            }
        };
        Ok(Self { path, parquet })
    }

    /// Writes the rows of all runs, in the order of the policies. The file appears under its
    /// name only when it is complete.
    pub fn write(&self, plan: &Plan, results: &mut [RunResult]) -> Result<()> {
        let columns = Columns::new(&plan.server.topology);
        let partial = PathBuf::from(format!("{}.partial", self.path.display()));
        let written = if self.parquet {
            parquet(&partial, &columns, results)
        } else {
            csv(&partial, &columns, results)
        };
        let done = written.and_then(|()| Ok(std::fs::rename(&partial, self.path)?));
        if done.is_err() {
            // Nothing half-written stays; the error to tell is the first one.
            let _ = std::fs::remove_file(&partial);
        }
        done.with_context(|| Unwritten(self.path.display().to_string()))
    }
}

fn csv(path: &Path, columns: &Columns, results: &mut [RunResult]) -> Result<()> {
    let mut to = BufWriter::new(File::create(path)?);
    writeln!(to, "policy,{}", columns.names.join(","))?;
    for result in results {
        let RunResult { policy, rows: Some(rows), .. } = result else { continue };
        rows.each(|row| {
            to.write_all(policy.as_bytes())?;
            for value in row {
                // An absent value is an empty field.
                if value.is_nan() { to.write_all(b",")? } else { write!(to, ",{value}")? }
            }
            Ok(to.write_all(b"\n")?)
        })?;
    }
    to.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(())
}

fn parquet(path: &Path, columns: &Columns, results: &mut [RunResult]) -> Result<()> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let file = File::create(path)?;
    let mut to = SerializedFileWriter::new(file, schema(columns)?, Arc::new(properties))?;
    for result in results {
        let RunResult { policy, rows: Some(rows), .. } = result else { continue };
        let mut held: Vec<Vec<f64>> = vec![Vec::with_capacity(GROUP); columns.names.len()];
        rows.each(|row| {
            held.iter_mut().zip(row).for_each(|(column, value)| column.push(*value));
            if held[0].len() == GROUP { group(&mut to, policy, &mut held) } else { Ok(()) }
        })?;
        group(&mut to, policy, &mut held)?;
    }
    to.into_inner()?.sync_all()?;
    Ok(())
}

/// The policy as text, every other column as an optional double.
fn schema(columns: &Columns) -> Result<Arc<Type>> {
    let mut fields = vec![Arc::new(
        Type::primitive_type_builder("policy", Physical::BYTE_ARRAY)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::String))
            .build()?,
    )];
    for name in &columns.names {
        let column = Type::primitive_type_builder(name, Physical::DOUBLE)
            .with_repetition(Repetition::OPTIONAL);
        fields.push(Arc::new(column.build()?));
    }
    Ok(Arc::new(Type::group_type_builder("timeseries").with_fields(fields).build()?))
}

/// Writes the rows that are held and empties them.
fn group(to: &mut SerializedFileWriter<File>, policy: &str, held: &mut [Vec<f64>]) -> Result<()> {
    let count = held.first().map_or(0, Vec::len);
    if count == 0 {
        return Ok(());
    }
    let mut group = to.next_row_group()?;
    if let Some(mut column) = group.next_column()? {
        let names = vec![ByteArray::from(policy); count];
        column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
        column.close()?;
    }
    for values in held {
        let Some(mut column) = group.next_column()? else { break };
        let levels: Vec<i16> = values.iter().map(|value| i16::from(!value.is_nan())).collect();
        values.retain(|value| !value.is_nan());
        column.typed::<DoubleType>().write_batch(values, Some(&levels), None)?;
        column.close()?;
        values.clear();
    }
    group.close()?;
    Ok(())
}
