use super::*;
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

const TEXTS: &str = "message m { optional binary text (UTF8); optional int64 label; }";
const PICTURES: &str = "message m { optional group img { optional binary bytes; optional binary path (UTF8); } \
     optional int64 label; }";

fn compressions() -> [Compression; 6] {
    [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ]
}

/// File with 8 rows in two row groups; every leaf of bytes holds `text of row i`.
fn written(schema: &str, compression: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(compression);
    written_by(schema, properties.build(), None)
}

/// File with the schema [`TEXTS`], whose texts are encoded by `encoding`.
fn written_in(encoding: Encoding) -> Vec<u8> {
    let properties = WriterProperties::builder().set_dictionary_enabled(false);
    let properties = properties.set_column_encoding("text".into(), encoding);
    written_by(TEXTS, properties.build(), None)
}

/// File written with `properties`, without text in row `null`, counted from 0.
fn written_by(schema: &str, properties: WriterProperties, null: Option<i64>) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(properties);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    for group in 0..2_i64 {
        let mut rows = writer.next_row_group().unwrap();
        while let Some(mut column) = rows.next_column().unwrap() {
            let numbers: Vec<i64> = (4 * group..4 * group + 4).collect();
            let levels = |n: i16| vec![n; 4];
            use parquet::column::writer::ColumnWriter::*;
            match column.untyped() {
                Int64ColumnWriter(w) => {
                    w.write_batch(&numbers, Some(&levels(1)), None).unwrap();
                }
                ByteArrayColumnWriter(w) => {
                    let depth = w.get_descriptor().max_def_level();
                    let of = |n: &i64| ByteArray::from(format!("text of row {n}").as_str());
                    let given = numbers.iter().filter(|n| Some(**n) != null);
                    let texts: Vec<ByteArray> = given.map(of).collect();
                    let level = |n: &i64| depth - i16::from(Some(*n) == null);
                    let levels: Vec<i16> = numbers.iter().map(level).collect();
                    w.write_batch(&texts, Some(&levels), None).unwrap();
                }
                _ => panic!("only bytes and numbers are written here"),
            }
            column.close().unwrap();
        }
        rows.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some.parquet");
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn expected() -> Vec<(Vec<u8>, i64)> {
    (0..8).map(|i| (format!("text of row {i}").into_bytes(), i)).collect()
}

#[test]
fn rows_come_back_from_plain_and_nested_columns_of_every_compression() {
    for compression in compressions() {
        for (schema, content) in [(TEXTS, "text"), (PICTURES, "img.bytes")] {
            let (_dir, path) = file(&written(schema, compression));
            assert_eq!(rows(&path, content).unwrap(), expected());
        }
    }
}

/// Asserts that a file of `bytes` is refused by its name, and gives the error.
fn refused(bytes: &[u8], content: &str) -> Diagnostic {
    let (_dir, path) = file(bytes);
    let at = rows(&path, content).fails("data");
    assert_eq!(at.path.as_ref(), Some(&path), "{at:?}");
    at
}

#[test]
fn other_columns_are_listed() {
    refused(&written(PICTURES, Compression::SNAPPY), "text").names(&["`text`", "img.bytes, img.path, label"]);
    refused(&written(TEXTS, Compression::SNAPPY), "label").names(&["`label`", "INT64"]);
}

#[test]
fn a_row_without_a_text_is_named() {
    for row in 0..8 {
        let properties = WriterProperties::builder().build();
        let at = refused(&written_by(TEXTS, properties, Some(row)), "text");
        at.names(&["`text`", &format!("row {}", row + 1)]);
    }
}

/// File written by pyarrow: `text of row i` in `text`, i in `label`.
const BROTLI: &[u8] = include_bytes!("brotli.parquet");

#[test]
fn a_whole_file_in_a_form_that_is_not_read_is_to_be_written_again() {
    refused(BROTLI, "text").names(&["brotli", "pyarrow"]);
    let mut encrypted = written(TEXTS, Compression::SNAPPY);
    let last = encrypted.len() - 1;
    encrypted[last] = b'E';
    refused(&encrypted, "text").names(&["pyarrow"]);
    refused(&written_in(Encoding::DELTA_BYTE_ARRAY), "text").names(&["DELTA_BYTE_ARRAY", "pyarrow"]);
}

#[test]
fn a_pointer_in_the_place_of_a_file_is_named() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    let at = refused(pointer, "text");
    at.names(&["`git lfs pull`"]);
}

#[test]
fn an_invalid_parquet_file_is_refused() {
    let whole = written(TEXTS, Compression::SNAPPY);
    for bytes in [&b""[..], b"<html>", &whole[..whole.len() / 2]] {
        refused(bytes, "text");
    }
}

/// Reader of one page.
struct One(Option<Page>);

impl Iterator for One {
    type Item = Parquet<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for One {
    fn get_next_page(&mut self) -> Parquet<Option<Page>> {
        Ok(self.0.take())
    }

    fn peek_next_page(&mut self) -> Parquet<Option<PageMetadata>> {
        Ok(None)
    }

    fn skip_next_page(&mut self) -> Parquet<()> {
        Ok(())
    }
}

#[test]
fn no_room_is_made_for_more_entries_than_a_page_has_bytes() {
    let dictionary = |num_values, encoding| {
        let page = Page::DictionaryPage { buf: vec![0; 8].into(), num_values, encoding, is_sorted: false };
        let page = CheckedPages(Box::new(One(Some(page)))).get_next_page();
        page.map(|page| page.is_some()).map_err(|e| e.to_string())
    };
    assert_eq!(dictionary(2, Encoding::PLAIN), Ok(true));
    let message = dictionary(u32::MAX, Encoding::PLAIN).unwrap_err();
    assert!(message.contains("4294967295"), "{message}");
    let message = dictionary(2, Encoding::DELTA_BYTE_ARRAY).unwrap_err();
    assert!(message.contains("DELTA_BYTE_ARRAY"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_files_give_rows_or_one_sentence(
        compression in prop::sample::select(compressions()[1..].to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = written(TEXTS, compression);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let (_dir, path) = file(&bytes);
        if let Err(error) = rows(&path, "text") {
            prop_assert_eq!(error.diagnostic().path, Some(path));
        }
    }
}
