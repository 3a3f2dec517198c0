//! Ebb's own form of a trace: one row a request, in Parquet, which most data tools read.
//!
//! Columns are found by name and may be 32 or 64 bits wide; `device`, `stream` and `latency_ns`
//! may be absent. Reading holds one page and [`ROWS`] decoded rows of each column.

mod arrow;

use std::io;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::basic::{Compression, ConvertedType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::field::{self, Fault, Line, Reason, Records};
use crate::request::{Op, Request};

/// The schema that is written. `op` is 0 read, 1 write, 2 flush, 3 trim.
pub(crate) const SCHEMA: &str = "message ebb_trace {
    required int64 at_ns (INTEGER(64,false));
    required int32 op (INTEGER(8,false));
    required int64 offset (INTEGER(64,false));
    required int32 bytes (INTEGER(32,false));
    required int32 device (INTEGER(16,false));
    required int32 stream (INTEGER(32,false));
    optional int64 latency_ns (INTEGER(64,false));
}";

/// Names of the columns, in the order of [`SCHEMA`].
const NAMES: [&str; 7] = ["at_ns", "op", "offset", "bytes", "device", "stream", "latency_ns"];
/// The first so many must be there.
const NEEDED: usize = 4;
/// Rows decoded at once.
const ROWS: usize = 4096;

/// The rows of a file.
pub(crate) struct Rows<R: ChunkReader + 'static> {
    file: SerializedFileReader<R>,
    /// Where each of [`NAMES`] stands in the file.
    places: [Option<usize>; NAMES.len()],
    group: usize,
    left_in_group: usize,
    columns: Vec<Option<Column>>,
    decoded: usize,
    next: usize,
    row: u64,
}

/// One column of the current row group and its decoded values.
struct Column {
    reader: Values,
    levels: Vec<i16>,
    optional: bool,
    unsigned: bool,
    values: Vec<Option<i64>>,
}

enum Values {
    Narrow(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Wide(ColumnReaderImpl<Int64Type>, Vec<i64>),
}

impl<R: ChunkReader + 'static> Rows<R> {
    /// Reads the index of the file and checks its columns.
    pub(crate) fn open(from: R) -> Result<Self, Reason> {
        let file = guarded(|| SerializedFileReader::new(from))
            .map_err(|error| format!("not a readable Parquet file: {error}"))?;
        let about = file.metadata().file_metadata();
        let schema = about.schema_descr();
        let arrow = about.key_value_metadata().into_iter().flatten();
        let arrow =
            arrow.filter(|one| one.key == arrow::KEY).filter_map(|one| one.value.as_deref());
        let durations: Vec<_> = arrow.flat_map(arrow::durations).collect();
        let is_other = |(name, unit): &&(String, &str)| NAMES.contains(&&**name) && *unit != "ns";
        if let Some((name, unit)) = durations.iter().find(is_other) {
            return Err(format!("column '{name}' is a duration in {unit}: write it in ns"));
        }
        let mut places = [None; NAMES.len()];
        for (index, column) in schema.columns().iter().enumerate() {
            let Some(name) = NAMES.iter().position(|name| *name == column.path().string()) else {
                continue;
            };
            if !matches!(column.physical_type(), Type::INT32 | Type::INT64)
                || column.max_rep_level() > 0
                || column.max_def_level() > 1
            {
                return Err(format!("column '{}' does not hold whole numbers", NAMES[name]));
            }
            let codecs = file.metadata().row_groups().iter();
            let codecs = codecs.filter_map(|group| group.columns().get(index));
            let codecs = codecs.map(|chunk| chunk.compression());
            plain(NAMES[name], column, codecs)?;
            places[name] = Some(index);
        }
        if let Some(missing) = places[..NEEDED].iter().position(Option::is_none) {
            return Err(format!(
                "column '{}' is missing; a trace has {}",
                NAMES[missing],
                NAMES.join(", ")
            ));
        }
        let columns = Vec::new();
        Ok(Self { file, places, group: 0, left_in_group: 0, columns, decoded: 0, next: 0, row: 0 })
    }

    /// Decodes the next rows; `false` at the end of the file.
    fn decode(&mut self) -> Result<bool, ParquetError> {
        while self.left_in_group == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(false);
            }
            let group = self.file.get_row_group(self.group)?;
            self.left_in_group = usize::try_from(group.metadata().num_rows())
                .map_err(|_| ParquetError::General("a negative number of rows".to_owned()))?;
            self.columns.clear();
            for place in self.places {
                self.columns.push(place.map(|place| Column::new(&*group, place)).transpose()?);
            }
            self.group += 1;
        }
        let rows = self.left_in_group.min(ROWS);
        for column in self.columns.iter_mut().flatten() {
            column.decode(rows)?;
        }
        self.left_in_group -= rows;
        (self.decoded, self.next) = (rows, 0);
        Ok(true)
    }

    /// The value of a column in the current row; `None` where it is null or absent.
    fn value(&self, name: usize) -> Result<Option<u64>, Reason> {
        let Some(Some(column)) = self.columns.get(name) else { return Ok(None) };
        match column.values.get(self.next).copied().flatten() {
            Some(value) if column.unsigned => Ok(Some(value.cast_unsigned())),
            Some(value) => u64::try_from(value)
                .map(Some)
                .map_err(|_| format!("{} is negative: '{value}'", NAMES[name])),
            None => Ok(None),
        }
    }

    fn needed(&self, name: usize) -> Result<u64, Reason> {
        self.value(name)?.ok_or_else(|| format!("{} is null", NAMES[name]))
    }

    fn request(&self) -> Result<Request, Reason> {
        let op = match self.needed(1)? {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Flush,
            3 => Op::Trim,
            other => return Err(format!("op is {other}, not 0 to 3 (read, write, flush, trim)")),
        };
        let request = field::request(self.needed(0)?, op, self.needed(2)?, self.needed(3)?)?;
        Ok(Request {
            device: field::device(self.value(4)?.unwrap_or(0), "device")?,
            stream: field::stream(self.value(5)?.unwrap_or(0), "stream")?,
            recorded_latency: self.value(6)?.and_then(NonZeroU64::new),
            ..request
        })
    }
}

/// Refuses a column of numbers that count something else than their name says, or that are packed
/// in a way that is not read.
fn plain(
    name: &str,
    column: &ColumnDescriptor,
    mut codecs: impl Iterator<Item = Compression>,
) -> Result<(), Reason> {
    use {Compression as Codec, ConvertedType as C};
    let kind = match C::from(column.logical_type_ref().cloned()) {
        C::NONE => column.converted_type(),
        kind => kind,
    };
    // Times in ns have no such type (parquet-format, LogicalTypes.md).
    let is_number = matches!(
        kind,
        C::NONE
            | C::INT_8
            | C::INT_16
            | C::INT_32
            | C::INT_64
            | C::UINT_8
            | C::UINT_16
            | C::UINT_32
            | C::UINT_64
    );
    if !is_number {
        return Err(format!(
            "column '{name}' is of type {kind}: write it as plain whole numbers, times in ns"
        ));
    }
    let is_read =
        |codec: &Codec| matches!(codec, Codec::UNCOMPRESSED | Codec::SNAPPY | Codec::ZSTD(_));
    match codecs.find(|codec| !is_read(codec)) {
        Some(codec) => Err(format!(
            "column '{name}' is compressed with {}: write the file with snappy or zstd",
            codec.to_string().split('(').next().unwrap_or_default()
        )),
        None => Ok(()),
    }
}

impl Column {
    fn new(
        group: &dyn parquet::file::reader::RowGroupReader,
        place: usize,
    ) -> Result<Self, ParquetError> {
        let descriptor = group.metadata().column(place).column_descr();
        let unsigned = matches!(
            descriptor.converted_type(),
            ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64
        );
        let optional = descriptor.max_def_level() > 0;
        let reader = match group.get_column_reader(place)? {
            ColumnReader::Int32ColumnReader(reader) => Values::Narrow(reader, Vec::new()),
            ColumnReader::Int64ColumnReader(reader) => Values::Wide(reader, Vec::new()),
            _ => return Err(ParquetError::General("not a column of whole numbers".to_owned())),
        };
        Ok(Self { reader, levels: Vec::new(), optional, unsigned, values: Vec::new() })
    }

    fn decode(&mut self, rows: usize) -> Result<(), ParquetError> {
        let Self { reader, levels, optional, unsigned, values } = self;
        levels.clear();
        values.clear();
        match reader {
            Values::Narrow(reader, raw) => {
                raw.clear();
                read_all(reader, rows, levels, raw)?;
                let widen = |value: &i32| match unsigned {
                    true => i64::from(value.cast_unsigned()),
                    false => i64::from(*value),
                };
                place(values, rows, *optional, levels, raw.iter().map(widen))
            }
            Values::Wide(reader, raw) => {
                raw.clear();
                read_all(reader, rows, levels, raw)?;
                place(values, rows, *optional, levels, raw.iter().copied())
            }
        }
    }
}

/// The library panics on some damaged files (found by fuzzing: a page that refers to a dictionary
/// that is not there); for a trace that is an error like any other. What was being decoded is not
/// used after one: the reader ends there.
fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(ParquetError::General("the file is damaged: its pages contradict its index".to_owned()))
    })
}

fn read_all<T: parquet::data_type::DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    levels: &mut Vec<i16>,
    raw: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    let mut done = 0;
    while done < rows {
        let (read, _, _) = reader.read_records(rows - done, Some(levels), None, raw)?;
        if read == 0 {
            return Err(ParquetError::General("a column is shorter than its group".to_owned()));
        }
        done += read;
    }
    Ok(())
}

/// Lays out the values so that nulls stand where the levels say.
fn place(
    values: &mut Vec<Option<i64>>,
    rows: usize,
    optional: bool,
    levels: &[i16],
    mut raw: impl Iterator<Item = i64>,
) -> Result<(), ParquetError> {
    if optional {
        values.extend(levels.iter().map(|level| if *level > 0 { raw.next() } else { None }));
    } else {
        values.extend(raw.map(Some));
    }
    if values.len() == rows {
        Ok(())
    } else {
        Err(ParquetError::General("a column's levels do not fit its values".to_owned()))
    }
}

impl<R: ChunkReader + 'static> Records for Rows<R> {
    fn next(&mut self) -> Result<Option<Line>, Fault> {
        if self.next == self.decoded {
            let decoded = guarded(|| self.decode()).map_err(|error| {
                Fault::Stream(io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
            })?;
            if !decoded {
                return Ok(None);
            }
        }
        self.row += 1;
        let request = self.request();
        self.next += 1;
        request.map(|request| Some(Line::Request(request))).map_err(Fault::Record)
    }

    fn position(&self) -> u64 {
        self.row
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::basic::Compression as Codec;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    /// Parquet has no durations: libraries of Arrow say so beside the columns.
    #[test]
    fn a_duration_in_another_unit_is_refused() {
        let open = |arrow: &str| {
            let about = KeyValue::new(arrow::KEY.to_owned(), arrow.to_owned());
            let about = WriterProperties::builder().set_key_value_metadata(Some(vec![about]));
            let (mut bytes, schema) = (Vec::new(), parse_message_type(SCHEMA).unwrap());
            let writer =
                SerializedFileWriter::new(&mut bytes, schema.into(), about.build().into()).unwrap();
            writer.close().unwrap();
            Rows::open(Bytes::from(bytes)).map(drop)
        };
        let error = open(arrow::MICROS).unwrap_err();
        assert_eq!(error, "column 'at_ns' is a duration in us: write it in ns");
        assert_eq!(open(arrow::PLAIN), Ok(()));
    }

    #[test]
    fn columns_that_count_something_else_or_are_packed_otherwise_are_refused() {
        let check = |kind: &str, codec| {
            let schema = parse_message_type(&format!("message t {{ required {kind}; }}")).unwrap();
            let schema = SchemaDescriptor::new(schema.into());
            plain("at_ns", &schema.column(0), [Codec::SNAPPY, codec].into_iter())
        };
        for kind in [
            "int64 at_ns",
            "int64 at_ns (INTEGER(64,false))",
            "int32 at_ns (INTEGER(8,true))",
            "int64 at_ns (TIMESTAMP(NANOS,true))",
        ] {
            assert_eq!(check(kind, Codec::UNCOMPRESSED), Ok(()), "{kind}");
        }
        for (kind, said) in [
            ("int64 at_ns (TIMESTAMP(MICROS,false))", "TIMESTAMP_MICROS"),
            ("int64 at_ns (TIMESTAMP_MILLIS)", "TIMESTAMP_MILLIS"),
            ("int64 at_ns (TIME(MICROS,true))", "TIME_MICROS"),
            ("int64 at_ns (DECIMAL(15,3))", "DECIMAL"),
            ("int32 at_ns (DATE)", "DATE"),
        ] {
            let reason = check(kind, Codec::UNCOMPRESSED).unwrap_err();
            assert!(reason.starts_with(&format!("column 'at_ns' is of type {said}: ")), "{reason}");
        }
        let reason = check("int64 at_ns", Codec::LZ4_RAW).unwrap_err();
        assert!(reason.contains("compressed with LZ4_RAW: write the file with snappy"), "{reason}");
    }
}
