//! CSV tables written by pandas, R and spreadsheets: separators, rows and spellings of cells.

use super::column::Column;
use super::column::{ColumnKind, Field};
use csv::StringRecord;
use std::io::Read;

/// Cell separators: of a CSV, of a spreadsheet's CSV in locales with decimal commas, and of tab-separated text.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// Spellings of a missing value, in columns that cannot hold such a word.
const NOTHING: [&str; 13] =
    ["NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "NaT", "None", "NULL", "null"];

/// Columns of hex digits, which other programs may take for numbers: all digits, or with a single `e`.
const HEX: [Column; 4] = [Column::RUN_ID, Column::GIT_COMMIT, Column::DATA_DIGEST, Column::CHECKSUM];
/// Number of digits of such an id.
const HEX_DIGITS: usize = 12;

/// Smallest integer that spreadsheets write in scientific notation, with six digits.
const ROUNDED_FROM: f64 = 1e11;
/// 2^53: below it, `f64` represents every integer exactly.
const WHOLE_TO: f64 = 9_007_199_254_740_992.0;

/// A table with a header.
pub(super) struct Sheet<'a> {
    text: &'a [u8],
    reader: csv::Reader<&'a [u8]>,
    /// Names of the columns.
    pub header: StringRecord,
    separator: u8,
    decimals: Decimals,
}

/// Lines of the first number with a decimal point and of the first with a decimal comma.
#[derive(Default)]
struct Decimals {
    point: Option<u64>,
    comma: Option<u64>,
}

fn reader<R: Read>(text: R, separator: u8) -> csv::Reader<R> {
    let mut builder = csv::ReaderBuilder::new();
    builder.delimiter(separator).flexible(true).from_reader(text)
}

/// Returns the separator with which the table that begins with `text` has a column called `name`.
fn separator(text: &[u8], name: &str) -> csv::Result<Option<u8>> {
    for separator in SEPARATORS {
        let mut reader = reader(text, separator);
        let mut header = reader.byte_headers()?.iter();
        if header.any(|found| found.trim_ascii() == name.as_bytes()) {
            return Ok(Some(separator));
        }
    }
    Ok(None)
}

/// Whether the table that begins with `text` has a column called `name`.
pub(super) fn has_column(text: &[u8], name: &str) -> csv::Result<bool> {
    Ok(separator(text, name)?.is_some())
}

impl<'a> Sheet<'a> {
    /// Opens the table `text` with the separator that gives it a column called `name`.
    pub fn open(text: &'a [u8], name: &str) -> csv::Result<Self> {
        let separator = separator(text, name)?.unwrap_or(b',');
        let mut reader = reader(text, separator);
        Ok(Self { text, header: reader.headers()?.clone(), reader, separator, decimals: Decimals::default() })
    }

    /// Reads the next non-empty row; returns false at the end.
    pub fn read(&mut self, row: &mut StringRecord) -> csv::Result<bool> {
        while self.reader.read_record(row)? {
            // The reader counts a line when it passes the line feed, which after CR LF has not happened yet.
            if let Some(at) = row.position().filter(|at| self.text.get(at.byte() as usize) == Some(&b'\n')) {
                let mut at = at.clone();
                at.set_line(at.line() + 1);
                row.set_position(Some(at));
            }
            if row.iter().any(|cell| !cell.trim().is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Pads or truncates `row` to the number of columns. Spreadsheets write empty cells after the last column, and omit
    /// trailing cells, which is accepted for columns that `may_lack` a value.
    pub fn fit(&self, row: &mut StringRecord, may_lack: impl Fn(usize) -> bool) -> Result<(), String> {
        let (len, columns) = (row.len(), self.header.len());
        let wrong = || format!("{len} values under {columns} columns");
        if row.iter().skip(columns).any(|cell| !cell.trim().is_empty()) {
            return Err(wrong());
        }
        row.truncate(columns);
        // The last line of a truncated file has no line end.
        let is_last = self.reader.position().byte() >= self.text.len() as u64;
        let cut = is_last && !self.text.ends_with(b"\n") && !self.text.ends_with(b"\r");
        if len < columns && (cut || !(len..columns).all(may_lack)) {
            return Err(wrong());
        }
        (len..columns).for_each(|_| row.push_field(""));
        Ok(())
    }

    /// Parses a cell of `column` in line `line`.
    pub fn parse(&mut self, column: Column, text: &str, line: u64) -> Result<Field, String> {
        let kind = column.spec().kind;
        if is_nothing(kind, text) {
            return Ok(Field::Absent);
        }
        if HEX.contains(&column) && is_number_of_digits(text) {
            return Err(format!(
                "`{text}` is a number, which a program made of {HEX_DIGITS} hex digits that look like one; have it read this \
                 column of the original file as text (pandas: read_csv(..., dtype={{\"{}\": str}}); a spreadsheet: import it as text)",
                column.name()
            ));
        }
        if !is_number(kind) {
            return kind.parse(text).or_else(|why| flag(kind, text).ok_or(why));
        }
        let pointed = self.with_point(text);
        self.decimals.meet(&pointed, pointed != text, self.separator, line)?;
        let wrong = |why: String| {
            if text.contains(',') {
                format!("{why}; a decimal comma is read where cells are separated by semicolons")
            } else {
                why
            }
        };
        match kind.parse(&pointed) {
            Ok(found) => Ok(found),
            Err(why) => match kind {
                ColumnKind::Count => whole(&pointed).unwrap_or(Err(why)).map_err(wrong),
                _ => Err(wrong(why)),
            },
        }
    }

    /// Returns `text` with a decimal comma replaced by a point, if commas are not the separator.
    fn with_point(&self, text: &str) -> String {
        let comma = self.separator != b',' && text.matches(',').count() == 1;
        if comma && !text.contains('.') {
            text.replace(',', ".")
        } else {
            text.to_owned()
        }
    }
}

impl Decimals {
    /// Returns an error if the file mixes decimal points and decimal commas: one of the two must be a thousands
    /// separator.
    fn meet(&mut self, text: &str, comma: bool, separator: u8, line: u64) -> Result<(), String> {
        if separator == b',' || !text.contains('.') {
            return Ok(());
        }
        let (own, other) = if comma { (&mut self.comma, self.point) } else { (&mut self.point, self.comma) };
        own.get_or_insert(line);
        match other {
            None => Ok(()),
            Some(other) => Err(format!(
                "a number with a decimal {}, and line {other} has one with a decimal {}: a spreadsheet took one of the two for \
                 something else; import the file with the decimal sign that it was written with",
                if comma { "comma" } else { "point" },
                if comma { "point" } else { "comma" },
            )),
        }
    }
}

fn is_number(kind: ColumnKind) -> bool {
    match kind {
        ColumnKind::Count | ColumnKind::Real | ColumnKind::AtLeastZero | ColumnKind::Share => true,
        ColumnKind::Flag | ColumnKind::Word | ColumnKind::OneOf(_) => false,
    }
}

/// Whether `text` denotes a missing value. In columns of numbers `NaN` is a value.
fn is_nothing(kind: ColumnKind, text: &str) -> bool {
    let held = match kind {
        ColumnKind::OneOf(names) => names.contains(&text),
        ColumnKind::Real | ColumnKind::AtLeastZero | ColumnKind::Share => text == "NaN",
        ColumnKind::Count | ColumnKind::Flag | ColumnKind::Word => false,
    };
    !held && NOTHING.contains(&text)
}

/// Whether `text` is an id of hex digits that another program converted to a number.
fn is_number_of_digits(text: &str) -> bool {
    let whole = text.len() == HEX_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    !whole && text.replace(',', ".").parse::<f64>().is_ok()
}

/// Parses a flag in the spellings of pandas, spreadsheets and R.
fn flag(kind: ColumnKind, text: &str) -> Option<Field> {
    if kind != ColumnKind::Flag {
        return None;
    }
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "1.0" => Some(Field::Flag(true)),
        "false" | "0" | "0.0" => Some(Field::Flag(false)),
        _ => None,
    }
}

/// Parses an integer from a column of floating-point numbers, such as `12.0` or `1e+05`; `None` for other text.
fn whole(text: &str) -> Option<Result<Field, String>> {
    let number: f64 = text.parse().ok()?;
    if !number.is_finite() || number < 0.0 || number.fract() != 0.0 {
        return None;
    }
    let powers = text.contains(['e', 'E']) && number >= ROUNDED_FROM;
    Some(if powers || number > WHOLE_TO {
        Err(format!("`{text}` may have lost digits: write it in full, as the number of a cell without decimals"))
    } else {
        Ok(Field::Count(number as u64))
    })
}
