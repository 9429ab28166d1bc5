//! Two Parquet tables: `runs.parquet`, one row per run with the columns of a summary, and `epochs.parquet`, one row per
//! epoch.

use super::{numbers, ExportedRun};
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::store::{columns_with, ColumnKind, Field, Record, COLUMNS};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result as Parquet};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes both tables into the folder `to`, creating it if it is missing, and returns their paths.
pub fn parquet(runs: &[ExportedRun], to: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(to).map_err(Error::io("create", to))?;
    let tables = [("runs", of_runs(runs)), ("epochs", of_epochs(runs))];
    let written = tables.into_iter().map(|(name, columns)| {
        let path = to.join(format!("{name}.parquet"));
        let failed = |e: ParquetError| Error::io("write", &path)(io::Error::other(e));
        write_atomic(&path, &encoded(name, &columns).map_err(failed)?)?;
        Ok(path)
    });
    written.collect()
}

/// A column: name, type, and one value per row.
struct ParquetColumn {
    name: &'static str,
    kind: ColumnKind,
    values: Vec<Field>,
}

fn of_runs(runs: &[ExportedRun]) -> Vec<ParquetColumn> {
    let records: Vec<Record> = runs.iter().map(ExportedRun::record).collect();
    let places = columns_with(&records).into_iter();
    let column = |place: usize| ParquetColumn {
        name: COLUMNS[place].name,
        kind: COLUMNS[place].kind,
        values: records.iter().map(|row| row.at(place).clone()).collect(),
    };
    places.map(column).collect()
}

fn of_epochs(runs: &[ExportedRun]) -> Vec<ParquetColumn> {
    let rows = || runs.iter().flat_map(|run| run.epochs.iter().map(move |epoch| (run, epoch)));
    let column = |name, kind, values| ParquetColumn { name, kind, values };
    let ids = rows().map(|(run, _)| Field::from(run.id)).collect();
    let epochs = rows().map(|(_, row)| Field::from(row.epoch)).collect();
    let mut columns = vec![column("run_id", ColumnKind::Word, ids), column("epoch", ColumnKind::Count, epochs)];
    let each: Vec<_> = rows().map(|(_, row)| numbers(row)).collect();
    let names = each.first().map(|numbers| numbers.map(|(name, _)| name));
    for (i, name) in names.into_iter().flatten().enumerate() {
        let values = each.iter().map(|numbers| Field::from(numbers[i].1));
        columns.push(column(name, ColumnKind::Real, values.collect()));
    }
    columns
}

/// Encodes a table in one row group.
fn encoded(name: &str, columns: &[ParquetColumn]) -> Parquet<Vec<u8>> {
    let fields: String = columns.iter().map(declared).collect();
    let schema = Arc::new(parse_message_type(&format!("message {name} {{ {fields}}}"))?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression);
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build()))?;
    let mut group = file.next_row_group()?;
    for column in columns {
        let mut writer = group.next_column()?.expect("a writer a declared column");
        write(writer.untyped(), &column.values)?;
        writer.close()?;
    }
    group.close()?;
    file.into_inner()
}

/// Returns the column's line in the schema. Integers have 64 bits, which seeds may need.
fn declared(column: &ParquetColumn) -> String {
    let name = column.name;
    match column.kind {
        ColumnKind::Count => format!("optional int64 {name} (INTEGER(64,false)); "),
        ColumnKind::Real | ColumnKind::AtLeastZero | ColumnKind::Share => format!("optional double {name}; "),
        ColumnKind::Flag => format!("optional boolean {name}; "),
        ColumnKind::Word | ColumnKind::OneOf(_) => format!("optional binary {name} (UTF8); "),
    }
}

fn write(writer: &mut ColumnWriter, values: &[Field]) -> Parquet<()> {
    let present = |field: &Field| i16::from(*field != Field::Absent);
    let levels: Vec<i16> = values.iter().map(present).collect();
    let levels = Some(&levels[..]);
    match writer {
        ColumnWriter::Int64ColumnWriter(writer) => {
            let bits = |field: &Field| match field {
                Field::Count(count) => Some(i64::from_ne_bytes(count.to_ne_bytes())),
                _ => None,
            };
            let values: Vec<i64> = values.iter().filter_map(bits).collect();
            writer.write_batch(&values, levels, None)
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let values: Vec<f64> = values.iter().filter_map(Field::number).collect();
            writer.write_batch(&values, levels, None)
        }
        ColumnWriter::BoolColumnWriter(writer) => {
            let flag = |field: &Field| match field {
                Field::Flag(flag) => Some(*flag),
                _ => None,
            };
            let values: Vec<bool> = values.iter().filter_map(flag).collect();
            writer.write_batch(&values, levels, None)
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let held = values.iter().filter(|field| **field != Field::Absent);
            let values: Vec<ByteArray> = held.map(|field| field.text().into()).collect();
            writer.write_batch(&values, levels, None)
        }
        _ => unreachable!("`declared` knows no other type"),
    }
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::samples::sample;
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use std::fs::File;

    fn read(path: &Path) -> (Vec<String>, Vec<parquet::record::Row>) {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let columns = reader.metadata().file_metadata().schema_descr().columns();
        let names = columns.iter().map(|c| c.name().to_owned()).collect();
        let rows = reader.get_row_iter(None).unwrap();
        (names, rows.map(|row| row.unwrap()).collect())
    }

    #[test]
    fn runs_and_epochs_are_read_back_with_their_types() {
        let [first, second] = [sample(u64::MAX), sample(7)];
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("new/folder");
        let written = parquet(&[first.done(), second.begun()], &to).unwrap();
        let (names, rows) = read(&written[0]);
        let at = |name: &str| names.iter().position(|known| known == name).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_ulong(at("seed")).unwrap(), u64::MAX);
        assert_eq!(rows[0].get_double(at("accuracy")).unwrap(), 0.5);
        assert_eq!(rows[0].get_string(at("mixer")).unwrap(), "linear");
        assert!(rows[0].get_bool(at("positions")).unwrap());
        assert_eq!(rows[1].get_string(at("run_id")).unwrap(), second.begun().id);
        assert!(rows[1].get_double(at("accuracy")).is_err(), "not finished");
        assert!(!names.contains(&"tokenizer".to_owned()), "{names:?}");
        let (names, rows) = read(&written[1]);
        assert_eq!(names[..4], ["run_id", "epoch", "train_loss", "test_loss"]);
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[1].get_ulong(1).unwrap(), 2);
        assert_eq!(rows[1].get_double(2).unwrap(), 1.0);
        assert!(rows[1].get_double(3).unwrap().is_nan());
        assert!(rows[1].get_double(8).is_err(), "no validation split");
    }

    #[test]
    fn runs_without_an_epoch_have_an_empty_table_of_them() {
        let sample = sample(1);
        let run = ExportedRun { epochs: &[], ..sample.begun() };
        let folder = tempfile::tempdir().unwrap();
        let written = parquet(&[run], folder.path()).unwrap();
        let (names, rows) = read(&written[1]);
        assert_eq!((names.len(), rows.len()), (2, 0));
    }
}
