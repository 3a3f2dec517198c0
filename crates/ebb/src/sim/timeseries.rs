//! The time series: one row per policy and control period, as CSV or Parquet.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use ebb_trace::OutputFile;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::plan::Plan;
use super::record::Columns;
use super::run::RunResult;
use crate::exit::usage;
use crate::output;

/// Rows of one row group in Parquet.
const GROUP: usize = 16_384;

/// Where the series goes, and in which form.
pub struct Target<'a> {
    path: &'a Path,
    parquet: bool,
}

impl<'a> Target<'a> {
    /// The form follows from the ending; pipes and devices without one get CSV.
    pub fn new(path: &'a Path) -> Result<Self> {
        output::check("--timeseries", path)?;
        let ending = path.extension().and_then(|ending| ending.to_str());
        let parquet = match ending {
            Some("parquet") => true,
            Some("csv") => false,
            None if path.exists() && !path.is_file() => false,
            _ => {
                return Err(usage(format!(
                    "--timeseries {}: the name must end in .csv or .parquet",
                    path.display()
                )));
            }
        };
        Ok(Self { path, parquet })
    }

    /// Writes the rows of all runs, in the order of the policies.
    pub fn write(&self, plan: &Plan, results: &mut [RunResult]) -> Result<()> {
        let columns = Columns::new(&plan.server.topology);
        let write = if self.parquet { parquet } else { csv };
        output::write(self.path, |to| write(to, &columns, results))
    }
}

fn csv(to: &mut OutputFile, columns: &Columns, results: &mut [RunResult]) -> Result<()> {
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
    Ok(())
}

fn parquet(to: &mut OutputFile, columns: &Columns, results: &mut [RunResult]) -> Result<()> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut to = SerializedFileWriter::new(to, schema(columns)?, Arc::new(properties))?;
    for result in results {
        let RunResult { policy, rows: Some(rows), .. } = result else { continue };
        let mut held: Vec<Vec<f64>> = vec![Vec::with_capacity(GROUP); columns.names.len()];
        rows.each(|row| {
            held.iter_mut().zip(row).for_each(|(column, value)| column.push(*value));
            if held[0].len() == GROUP { group(&mut to, policy, &mut held) } else { Ok(()) }
        })?;
        group(&mut to, policy, &mut held)?;
    }
    to.close()?;
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
fn group<W: Write + Send>(
    to: &mut SerializedFileWriter<W>,
    policy: &str,
    held: &mut [Vec<f64>],
) -> Result<()> {
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
