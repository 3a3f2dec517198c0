//! The time series as files: one row per policy and control period, as CSV or Parquet, the same
//! columns in both.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::column::{Column, Columns, Kind};
use crate::recorder::Recorded;

/// Version of the columns' names and types.
pub const SCHEMA: &str = "ebb-series-2";
/// Key of the metadata under which the columns are described, a JSON object by name.
pub const COLUMNS_KEY: &str = "ebb.columns";
/// Rows of one row group.
const GROUP: usize = 16_384;

/// Writes the rows of all runs as CSV; an absent value is an empty field.
///
/// # Errors
/// When rows cannot be read back, or `to` cannot be written.
pub fn csv<'a>(
    to: &mut impl Write,
    columns: &Columns,
    runs: impl Iterator<Item = &'a mut Recorded>,
) -> io::Result<()> {
    let names: Vec<_> = columns.all.iter().map(|column| quoted(&column.name)).collect();
    let kinds: Vec<Kind> = columns.all.iter().map(Column::kind).collect();
    writeln!(to, "policy,{}", names.join(","))?;
    for Recorded { policy, rows, .. } in runs {
        let Some(rows) = rows else { continue };
        let policy = quoted(policy);
        rows.each(|row| {
            to.write_all(policy.as_bytes())?;
            for (value, kind) in row.iter().zip(&kinds) {
                match kind {
                    _ if value.is_nan() => to.write_all(b",")?,
                    Kind::Flag => write!(to, ",{}", *value != 0.0)?,
                    _ => write!(to, ",{value}")?,
                }
            }
            to.write_all(b"\n")
        })?;
    }
    Ok(())
}

/// A field of a CSV file (RFC 4180): in quotes where it has a comma or a quote.
fn quoted(field: &str) -> Cow<'_, str> {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")).into(),
        false => field.into(),
    }
}

/// Writes the rows of all runs as Parquet. `about` becomes the file's metadata, beside the
/// description of the columns; an absent value is null.
///
/// # Errors
/// When rows cannot be read back, or `to` cannot be written.
pub fn parquet<'a>(
    to: &mut (impl Write + Send),
    columns: &Columns,
    about: &[(&str, String)],
    runs: impl Iterator<Item = &'a mut Recorded>,
) -> io::Result<()> {
    let described = columns.all.iter().map(|column| (column.name.as_str(), column));
    let described = serde_json::to_string(&described.collect::<Described<'_>>())?;
    let metadata = [("ebb.schema", SCHEMA.to_owned()), (COLUMNS_KEY, described)];
    let metadata = metadata.iter().chain(about);
    let metadata = metadata.map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(metadata.collect()))
        .build();
    let schema = schema(columns).map_err(io::Error::other)?;
    let to = SerializedFileWriter::new(to, schema, Arc::new(properties));
    let mut to = to.map_err(io::Error::other)?;
    let kinds: Vec<Kind> = columns.all.iter().map(Column::kind).collect();
    for Recorded { policy, rows, .. } in runs {
        let Some(rows) = rows else { continue };
        let mut held: Vec<Vec<f64>> = vec![Vec::with_capacity(GROUP); kinds.len()];
        rows.each(|row| {
            held.iter_mut().zip(row).for_each(|(column, value)| column.push(*value));
            if held[0].len() < GROUP {
                return Ok(());
            }
            group(&mut to, policy, &kinds, &mut held).map_err(io::Error::other)
        })?;
        group(&mut to, policy, &kinds, &mut held).map_err(io::Error::other)?;
    }
    to.close().map_err(io::Error::other)?;
    Ok(())
}

type Described<'a> = std::collections::BTreeMap<&'a str, &'a Column>;

/// The policy as text, every other column as optional.
fn schema(columns: &Columns) -> Result<TypePtr, ParquetError> {
    let mut fields = vec![Arc::new(
        Type::primitive_type_builder("policy", Physical::BYTE_ARRAY)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::String))
            .build()?,
    )];
    for column in &columns.all {
        let small = LogicalType::integer(16, false);
        let (physical, logical) = match column.kind() {
            Kind::Whole => (Physical::INT64, None),
            Kind::Small => (Physical::INT32, Some(small)),
            Kind::Flag => (Physical::BOOLEAN, None),
            Kind::Real => (Physical::DOUBLE, None),
        };
        let column = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        fields.push(Arc::new(column.build()?));
    }
    Ok(Arc::new(Type::group_type_builder("timeseries").with_fields(fields).build()?))
}

/// Writes the rows that are held and empties them.
fn group<W: Write + Send>(
    to: &mut SerializedFileWriter<W>,
    policy: &str,
    kinds: &[Kind],
    held: &mut [Vec<f64>],
) -> Result<(), ParquetError> {
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
    for (values, kind) in held.iter_mut().zip(kinds) {
        let Some(mut column) = group.next_column()? else { break };
        match kind {
            Kind::Whole => write::<Int64Type>(&mut column, values, |value| value as i64)?,
            Kind::Small => write::<Int32Type>(&mut column, values, |value| value as i32)?,
            Kind::Flag => write::<BoolType>(&mut column, values, |value| value != 0.0)?,
            Kind::Real => write::<DoubleType>(&mut column, values, |value| value)?,
        }
        column.close()?;
        values.clear();
    }
    group.close()?;
    Ok(())
}

fn write<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[f64],
    typed: impl Fn(f64) -> T::T,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(!value.is_nan())).collect();
    let there = values.iter().filter(|value| !value.is_nan());
    let there: Vec<T::T> = there.map(|value| typed(*value)).collect();
    column.typed::<T>().write_batch(&there, Some(&levels), None)?;
    Ok(())
}
