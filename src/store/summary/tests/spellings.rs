//! Summaries that went through other programs: their spellings are read as the same values, or refused with an
//! explanation.

use super::super::*;
use super::{refused, summary_of, text_of};
use crate::error::testing::Fails;
use crate::error::{Diagnostic, Position};
use crate::store::column::ColumnKind;
use crate::store::samples::{config, diverged, done, failed, read, text_config};
use fastrand::Rng;

/// Rows of both tasks: done, diverged and failed.
fn records() -> Vec<Record> {
    let results = [
        done(1.0 / 3.0),
        done(1.0),
        diverged(),
        failed("out of memory, \"really\"\nat step 3"),
        failed("a loss was NaN"),
    ];
    let row = |(seed, result)| Record::new(&RunConfig { seed, ..config() }, &result);
    let mut rows: Vec<Record> = (0..).zip(results).map(row).collect();
    rows.push(Record::new(&text_config(), &read(17.42)));
    for row in &mut rows {
        row.set(Column::MICRO_BATCH_USED, 16u64);
        row.set(Column::DATA_DIGEST, "123456789012");
    }
    rows
}

/// Parses a table: its header, and its rows.
fn table(text: &str) -> Vec<StringRecord> {
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.has_headers(false).from_reader(text.as_bytes());
    reader.records().map(|line| line.unwrap()).collect()
}

/// Returns `table` with every cell replaced by `respell(column, cell)`.
fn respelt(table: &[StringRecord], separator: u8, mut respell: impl FnMut(Column, &str) -> String) -> String {
    let mut builder = csv::WriterBuilder::new();
    let mut writer = builder.delimiter(separator).from_writer(Vec::new());
    writer.write_record(&table[0]).unwrap();
    for row in &table[1..] {
        let cells = table[0].iter().zip(row).map(|(name, cell)| match Column::find(name) {
            Some(column) => respell(column, cell),
            None => cell.to_owned(),
        });
        writer.write_record(cells.collect::<Vec<_>>()).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

/// Returns a random alternative spelling of a cell.
fn other_spelling(column: Column, cell: &str, comma: bool, rng: &mut Rng) -> String {
    let any = |rng: &mut Rng, of: &[&str]| of[rng.usize(..of.len())].to_owned();
    let decimal = |text: String| if comma { text.replace('.', ",") } else { text };
    let none: &[&str] = &["", "NA", "N/A", "nan", "NaN", "None", "null", "<NA>", "#N/A", "NULL"];
    match (column.spec().kind, cell) {
        // The words are values in these columns.
        (ColumnKind::Real | ColumnKind::AtLeastZero | ColumnKind::Share, "") => any(rng, &["", "NA", "nan", "<NA>"]),
        (ColumnKind::OneOf(names), "") if names.contains(&"nan") => any(rng, &["", "NaN", "None"]),
        (_, "") => any(rng, none),
        // The reason implies it.
        (ColumnKind::OneOf(_), "nan") => any(rng, &["nan", ""]),
        (ColumnKind::Flag, "true") => any(rng, &["true", "True", "TRUE", "1", "1.0"]),
        (ColumnKind::Flag, _) => any(rng, &["false", "False", "FALSE", "0", "0.0"]),
        (ColumnKind::Count, digits) => {
            let number: f64 = digits.parse().unwrap();
            decimal(match rng.u8(..3) {
                0 => digits.to_owned(),
                1 => format!("{number:.1}"),
                _ if number < 1e11 => format!("{number:e}"),
                _ => digits.to_owned(),
            })
        }
        (ColumnKind::Real | ColumnKind::AtLeastZero | ColumnKind::Share, "NaN") => cell.to_owned(),
        (ColumnKind::Real | ColumnKind::AtLeastZero | ColumnKind::Share, number) => {
            let number: f64 = number.parse().unwrap();
            decimal(match rng.u8(..4) {
                0 => cell.to_owned(),
                1 => number.to_string(),
                2 => format!("{number:e}"),
                _ => format!("{number:E}"),
            })
        }
        (ColumnKind::Word | ColumnKind::OneOf(_), _) => cell.to_owned(),
    }
}

/// Returns the text of a table with additions that programs write around it.
fn surrounded(text: &str, separator: u8, rng: &mut Rng) -> String {
    let separator = char::from(separator).to_string();
    let (index, trailing) = (rng.usize(..3), rng.bool());
    let end = ["\n", "\r\n"][rng.usize(..2)];
    let mut out = ["", "\u{feff}"][rng.usize(..2)].to_owned();
    let (mut row, mut quoted) = (0, false);
    for line in text.lines() {
        // Line ends within quotes belong to a cell.
        if !quoted {
            out += &match (index, row) {
                (0, _) => String::new(),
                (1, 0) => format!("Unnamed: 0{separator}"),
                (_, 0) => separator.clone(),
                (_, row) => format!("{}{separator}", row - 1),
            };
            row += 1;
        }
        out += line;
        quoted ^= line.matches('"').count() % 2 == 1;
        if quoted {
            out += "\n";
            continue;
        }
        if trailing {
            out += &separator.repeat(2);
        }
        out += end;
    }
    if rng.bool() {
        out += &(separator.repeat(80) + end);
    }
    out
}

/// Returns `text` without its column of checksums, as the error message tells users who changed a row.
fn without_checksum(text: &str) -> String {
    let table = table(text);
    let at = table[0].iter().position(|name| name == Column::CHECKSUM.name()).unwrap();
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in &table {
        let kept = row.iter().enumerate().filter(|(i, _)| *i != at);
        writer.write_record(kept.map(|(_, cell)| cell)).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

#[test]
fn a_row_in_the_spellings_of_other_programs_is_the_row_that_was_written() {
    let records = records();
    let whole = text_of(&records);
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let separator = [b',', b';', b'\t'][rng.usize(..3)];
        let comma = separator != b',' && rng.bool();
        // A respelt file may keep its checksums, since no value was changed.
        let text = if rng.bool() { whole.clone() } else { without_checksum(&whole) };
        let respell = |column: Column, cell: &str| other_spelling(column, cell, comma, &mut rng);
        let text = respelt(&table(&text), separator, respell);
        let text = surrounded(&text, separator, &mut rng);
        let (_dir, path) = summary_of(&text);
        let found = read_summary(&path).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert!(found == records, "seed {seed}:\n{text}");
        assert!(is_summary(&path).unwrap(), "seed {seed}");
    }
}

#[test]
fn a_name_or_a_cause_that_reads_like_nothing_stays_what_it_is() {
    let mut row = Record::new(&config(), &failed("a loss was NaN"));
    row.set(Column::CAUSE, "nan");
    row.set(Column::STATE_MIXER, "none");
    row.set(Column::HOST, "none");
    let (_dir, path) = summary_of(&text_of(std::slice::from_ref(&row)));
    assert_eq!(read_summary(&path).unwrap(), [row]);
}

#[test]
fn a_value_that_was_changed_in_another_spelling_is_still_refused_by_its_checksum() {
    let text = text_of(&records()).replacen("true", "FALSE", 1);
    refused(&text, 2).names(&["`checksum`"]);
}

/// The refusal of a summary of one row in which `column` holds `cell`.
fn refusal_of(column: &str, cell: &str, separator: u8) -> Diagnostic {
    let text = without_checksum(&text_of(&records()[..1]));
    let text = respelt(
        &table(&text),
        separator,
        |found, own| if found.name() == column { cell.to_owned() } else { own.to_owned() },
    );
    refused(&text, 2)
}

#[test]
fn an_id_that_was_taken_for_a_number_is_refused_with_what_keeps_it() {
    for (column, cell) in [
        ("run_id", "1.23457E+11"),
        ("run_id", "inf"),
        ("run_id", "1.234e+16"),
        ("run_id", "1234567890"),
        ("run_id", "123456789012.0"),
        ("data_digest", "1.23457E+11"),
        ("git_commit", "1.0e+300"),
    ] {
        refusal_of(column, cell, b',').names(&[
            &format!("`{column}`"),
            &format!("`{cell}`"),
            &format!("dtype={{\"{column}\": str}}"),
        ]);
    }
    refusal_of("run_id", "1,23457E+11", b';').names(&["`run_id`"]);
    // As it was written.
    for id in ["123456789012", "000000000012", "1234e5678901", "12345678901e"] {
        let mut row = records().remove(0);
        row.set(Column::RUN_ID, id);
        let (_dir, path) = summary_of(&text_of(std::slice::from_ref(&row)));
        assert_eq!(read_summary(&path).unwrap()[0].run_id(), id);
    }
}

#[test]
fn a_number_that_is_not_sure_to_be_whole_is_refused() {
    for (column, cell) in [
        ("peak_memory_bytes", "1.23457E+11"),
        ("seed", "1.8446744073709552e+19"),
        ("n", "12.5"),
        ("n", "-3.0"),
        ("n", "inf"),
        ("n", "many"),
        ("positions", "WAHR"),
    ] {
        let at = refusal_of(column, cell, b',');
        at.names(&[&format!("`{column}`"), &format!("`{cell}`")]);
    }
    refusal_of("n", "NA", b',').names(&["`n`"]);
}

#[test]
fn a_decimal_comma_is_read_where_it_can_be_nothing_else() {
    refusal_of("lr", "0,001", b',').names(&["`lr`", "`0,001`"]);
    refusal_of("lr", "1,234,567", b';').names(&["`lr`", "`1,234,567`"]);
    // `0.5` in a language of decimal commas, where a spreadsheet leaves it and takes the others for thousands.
    refusal_of("lr", "0,001", b';').names(&["line 2"]);
}

#[test]
fn cells_that_a_spreadsheet_left_out_at_the_end_of_a_row_are_empty() {
    let mut rows = vec![Record::new(&config(), &done(0.5)); 3];
    for (seed, row) in (0u64..).zip(&mut rows) {
        row.set(Column::RUN_ID, &*format!("{seed:012}"));
        row.set(Column::SEED, seed);
    }
    let text = without_checksum(&text_of(&rows));
    let trimmed: Vec<&str> = text.lines().map(|line| line.trim_end_matches(',')).collect();
    assert!(trimmed[1].len() < text.lines().nth(1).unwrap().len());
    let (_dir, path) = summary_of(&(trimmed.join("\n") + "\n"));
    assert_eq!(read_summary(&path).unwrap(), rows);
    // A result is never left out, nor the end of the last line.
    refused(&trimmed.join("\n"), 4);
    let cut = trimmed[2].split(",done,").next().unwrap();
    refused(&format!("{}\n{cut},done\n", trimmed[0]), 2);
    refused(&text.replacen(",\n", ",,,more\n", 2), 2);
}

/// Spreadsheets and Python's csv module end lines with CR LF.
#[test]
fn a_row_is_named_by_its_line_however_lines_end() {
    let text = text_of(&records()[..3]);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len();
    for end in ["\n", "\r\n"] {
        let cut = lines[last - 1].rsplit_once(',').unwrap().0;
        let broken = [&lines[..last - 1], &[cut]].concat().join(end) + end;
        refused(&broken, last as u64);
    }
}

#[test]
fn another_encoding_is_refused_by_its_name() {
    let text = text_of(&records());
    for (bytes, line, name) in [
        (
            [&[0xff, 0xfe], text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>().as_slice()].concat(),
            1,
            "UTF-16",
        ),
        (text.replace("laptop", "M\u{fc}ller").chars().map(|c| c as u8).collect(), 2, "UTF-8"),
    ] {
        let (_dir, path) = summary_of("");
        fs::write(&path, bytes).unwrap();
        let at = read_summary(&path).fails("data");
        at.is_at("mqar.csv", Position::Line(line)).names(&[name]);
    }
}
