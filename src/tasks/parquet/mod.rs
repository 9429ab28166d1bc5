//! Columns of a Parquet file: one of bytes, alone or with a column of integers.

use crate::error::{Error, Result};
use crate::files;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{get_column_reader, get_typed_column_reader};
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as Parquet};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

/// Number of rows decoded at once, which bounds the memory that a broken file can request by its row counts.
const CHUNK: usize = 1024;

/// Supported encodings: the common ones for bytes and integers.
const READ: [Encoding; 4] =
    [Encoding::PLAIN, Encoding::PLAIN_DICTIONARY, Encoding::RLE_DICTIONARY, Encoding::DELTA_BINARY_PACKED];

/// Reads the rows of the file at `path`: column `content` (a leaf of bytes, such as `text` or `img.bytes`) with the
/// integer of column `label`.
pub(super) fn rows(path: &Path, content: &str) -> Result<Vec<(Vec<u8>, i64)>> {
    let beside = " and `label` (whole numbers)";
    guarded(path, content, beside, || {
        let (reader, mut rows) = (open(path)?, Vec::new());
        for group in 0..reader.num_row_groups() {
            let contents = bytes(&reader, group, content)?;
            let labels = numbers(&reader, group, "label")?;
            let held = [(contents.len(), content), (labels.len(), "label")];
            check_complete(&reader, group, &held)?;
            rows.extend(contents.into_iter().zip(labels));
        }
        Ok(rows)
    })
}

/// Reads column `content` of the file at `path`, a leaf of bytes, and passes the values of each row group to `take`,
/// together with the share of all rows read so far.
pub(super) fn each_group(
    path: &Path,
    content: &str,
    mut take: impl FnMut(Vec<Vec<u8>>, f64) -> Result<()>,
) -> Result<()> {
    let reader = guarded(path, content, "", || open(path))?;
    let (mut held, all) = (0, reader.metadata().file_metadata().num_rows());
    for group in 0..reader.num_row_groups() {
        let values = guarded(path, content, "", || {
            let values = bytes(&reader, group, content)?;
            check_complete(&reader, group, &[(values.len(), content)])?;
            Ok(values)
        })?;
        held += values.len();
        take(values, held as f64 / all.max(1) as f64)?;
    }
    Ok(())
}

/// Checks that the columns of a row group have as many values as it declares; `columns` holds lengths and names.
fn check_complete(reader: &Reader, group: usize, columns: &[(usize, &str)]) -> Result<(), Fault> {
    let declared = reader.metadata().row_group(group).num_rows();
    if columns.iter().all(|(held, _)| *held as i64 == declared) {
        return Ok(());
    }
    let held = columns.iter().map(|(held, name)| format!("{held} of `{name}`"));
    let held = held.collect::<Vec<_>>().join(" and ");
    Err(Fault::Broken(format!("it has only {held} of {declared} rows")))
}

/// Advice for a valid file in an unsupported form.
const REWRITE: &str = "write it again with the defaults of pandas or pyarrow";

fn open(path: &Path) -> Result<Reader, Fault> {
    let mut file = files::open(path).map_err(Fault::Unread)?;
    let ends = ends(&mut file).map_err(|e| Fault::Unread(Error::io("read", path)(e)));
    let (first, last) = ends?;
    if files::is_pointer(&first) {
        return Err(Fault::Unread(Error::data(path, files::POINTER)));
    }
    if last == *b"PARE" {
        return Err(Fault::Form("encrypted".to_owned()));
    }
    Ok(Reader::new(file)?)
}

/// Returns up to 64 first bytes of a file and its last four, which identify the format of Parquet; zeros if the file is
/// shorter.
fn ends(file: &mut File) -> io::Result<(Vec<u8>, [u8; 4])> {
    let (mut first, mut last) = (Vec::new(), [0; 4]);
    file.take(64).read_to_end(&mut first)?;
    if first.len() >= last.len() {
        file.seek(SeekFrom::End(-4))?;
        file.read_exact(&mut last)?;
    }
    file.rewind()?;
    Ok((first, last))
}

/// Name of the compression of a column if it is not supported.
fn unread(compression: Compression) -> Option<&'static str> {
    match compression {
        Compression::BROTLI(_) => Some("brotli"),
        Compression::LZO => Some("lzo"),
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::LZ4
        | Compression::LZ4_RAW
        | Compression::ZSTD(_) => None,
    }
}

/// Runs `work`, which reads the file at `path`. The decoder trusts page headers and panics on contradictory ones, such
/// as an entry of a dictionary in a column without one; a panic becomes an error, and nothing that the decoder worked
/// on is used afterwards.
fn guarded<T>(path: &Path, content: &str, beside: &str, work: impl FnOnce() -> Result<T, Fault>) -> Result<T> {
    let contradiction = || Err(Fault::Broken("its pages contradict each other".to_owned()));
    catch_silently(work).unwrap_or_else(contradiction).map_err(|fault| fault.at(path, content, beside))
}

/// Returns the result of `f`, or `None` if it panics, without printing the panic's message.
fn catch_silently<T>(f: impl FnOnce() -> T) -> Option<T> {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let value = panic::catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    value.ok()
}

/// Reason for which a file cannot be read.
enum Fault {
    /// The system refused it.
    Unread(Error),
    /// The file is damaged.
    Broken(String),
    /// The file is valid, but has an unsupported form.
    Form(String),
    /// The file lacks the expected columns.
    Columns(String),
}

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::NYI(what) => Self::Form(what),
            error => Self::Broken(error.to_string()),
        }
    }
}

impl Fault {
    fn at(self, path: &Path, content: &str, beside: &str) -> Error {
        let reason = match self {
            Self::Unread(error) => return error,
            Self::Broken(why) => format!("not a complete Parquet file ({why}): get a new copy"),
            Self::Form(what) => format!("{what}, which dsf cannot read: {REWRITE}"),
            Self::Columns(why) => format!("{why}; expected `{content}` (text or bytes){beside}"),
        };
        Error::data(path, reason)
    }
}

type Reader = SerializedFileReader<File>;

fn bytes(reader: &Reader, group: usize, name: &str) -> Result<Vec<Vec<u8>>, Fault> {
    match physical(reader, name)? {
        (at, Type::BYTE_ARRAY) => {
            Ok(column::<ByteArrayType>(reader, group, at, name)?.iter().map(|v| v.data().to_vec()).collect())
        }
        (_, other) => Err(Fault::Columns(format!("column `{name}` is {other}"))),
    }
}

fn numbers(reader: &Reader, group: usize, name: &str) -> Result<Vec<i64>, Fault> {
    match physical(reader, name)? {
        (at, Type::INT64) => column::<Int64Type>(reader, group, at, name),
        (at, Type::INT32) => Ok(column::<Int32Type>(reader, group, at, name)?.into_iter().map(i64::from).collect()),
        (_, other) => Err(Fault::Columns(format!("column `{name}` is {other}"))),
    }
}

/// Index of the column `name` and the physical type of its values.
fn physical(reader: &Reader, name: &str) -> Result<(usize, Type), Fault> {
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let Some(at) = columns.iter().position(|c| c.path().string() == name) else {
        let names: Vec<String> = columns.iter().map(|c| c.path().string()).collect();
        let names = names.join(", ");
        return Err(Fault::Columns(format!("there is no column `{name}` among {names}")));
    };
    if columns[at].max_rep_level() > 0 {
        return Err(Fault::Columns(format!("column `{name}` holds lists")));
    }
    Ok((at, columns[at].physical_type()))
}

/// Values of column `at` in row group `group`. Null values are an error.
fn column<T: DataType>(reader: &Reader, group: usize, at: usize, name: &str) -> Result<Vec<T::T>, Fault> {
    let before: i64 = reader.metadata().row_groups()[..group].iter().map(|group| group.num_rows()).sum();
    let group = reader.get_row_group(group)?;
    if group.num_columns() <= at {
        let columns = group.num_columns();
        return Err(Fault::Broken(format!("a row group has {columns} columns")));
    }
    let stored = group.metadata().column(at);
    if let Some(name) = unread(stored.compression()) {
        return Err(Fault::Form(format!("compressed with {name}")));
    }
    let stored = stored.column_type();
    if stored != T::get_physical_type() {
        return Err(Fault::Broken(format!("`{name}` is stored as {stored}")));
    }
    let schema = reader.metadata().file_metadata().schema_descr();
    let pages = CheckedPages(group.get_column_page_reader(at)?);
    let mut column = get_typed_column_reader::<T>(get_column_reader(schema.column(at), Box::new(pages)));
    let mut values = Vec::new();
    loop {
        let mut levels = Vec::new();
        let (rows, present, _) = column.read_records(CHUNK, Some(&mut levels), None, &mut values)?;
        if present < rows {
            let whole = schema.column(at).max_def_level();
            let null = levels.iter().position(|level| *level < whole);
            let row = before as usize + values.len() - present + null.unwrap_or(0) + 1;
            return Err(Fault::Columns(format!("`{name}` is null in row {row}")));
        }
        if rows == 0 {
            return Ok(values);
        }
    }
}

/// Page reader that rejects pages for which the decoder would allocate more than the file has bytes: it allocates a
/// dictionary, and the lengths of a delta encoding, before it reads them.
struct CheckedPages(Box<dyn PageReader>);

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Parquet<Option<Page>> {
        let page = self.0.get_next_page()?;
        match &page {
            Some(Page::DictionaryPage { buf, num_values, .. }) if *num_values as usize > buf.len() => {
                Err(ParquetError::General(format!("a dictionary of {} bytes declares {num_values} entries", buf.len())))
            }
            Some(page) if !READ.contains(&page.encoding()) => {
                Err(ParquetError::NYI(format!("encoded as {}", page.encoding())))
            }
            _ => Ok(page),
        }
    }

    fn peek_next_page(&mut self) -> Parquet<Option<PageMetadata>> {
        self.0.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Parquet<()> {
        self.0.skip_next_page()
    }
}

impl Iterator for CheckedPages {
    type Item = Parquet<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

#[cfg(test)]
mod tests;
