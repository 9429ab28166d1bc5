//! Summary of a task: one row per finished run, made from the run folders and read back.

use super::checksum::Checksum;
use super::claim::has_none;
use super::column::{Absent, Column, Field, Role};
use super::metrics::Metric;
use super::reconcile::reconcile;
use super::record::Source;
use super::schema::{place, CHECKSUM, COLUMNS};
use super::sheet::{self, Sheet};
use super::{read_if_present, Cause, Record, RunStatus, Store, CONFIG, RESULT, RUNS, SCHEMA};
use crate::config::RunConfig;
use crate::error::{Error, Position, Result};
use crate::files::{is_hidden, is_utf16, open_lock, read_bytes, remove_unfinished, write_atomic};
use crate::tasks::{self, Objective, TaskEntry};
use csv::{ErrorKind, StringRecord};
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

/// Column that identifies a file as a summary.
const SCHEMA_COLUMN: &str = "schema";
const LOCK: &str = ".lock";

/// Finished runs in the run folders.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Finished runs, sorted by run id.
    pub rows: Vec<Record>,
    /// One sentence per folder that could not be read as a run.
    pub warnings: Vec<String>,
}

/// Configs in the run folders.
#[derive(Clone, Debug, Default)]
pub struct Configs {
    /// All runs, sorted by run id.
    pub runs: Vec<RunConfig>,
    /// One sentence per folder that could not be read as a run.
    pub warnings: Vec<String>,
}

pub(super) fn configs(store: &Store) -> Result<Configs> {
    let mut configs = Configs::default();
    for folder in run_folders(&store.out.join(RUNS))? {
        match read_config(store, &folder) {
            Ok(run) => configs.runs.push(run),
            Err(e) => configs.warnings.push(e.to_string()),
        }
    }
    Ok(configs)
}

pub(super) fn scan(store: &Store, tasks: &[&str]) -> Result<Scan> {
    let mut scan = Scan::default();
    for folder in run_folders(&store.out.join(RUNS))? {
        match read_run(store, &folder, tasks) {
            Ok(row) => scan.rows.extend(row),
            Err(e) => scan.warnings.push(e.to_string()),
        }
    }
    Ok(scan)
}

fn run_folders(runs: &Path) -> Result<Vec<String>> {
    if !runs.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(runs).map_err(Error::io("read", runs))? {
        let entry = entry.map_err(Error::io("read", runs))?;
        // The directory entry knows its type, which saves a call per file on most file systems.
        let kind = entry.file_type().map_err(Error::io("read", runs))?;
        if is_hidden(&entry.file_name()) {
            continue;
        }
        if kind.is_dir() || kind.is_symlink() && entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn read_config(store: &Store, folder: &str) -> Result<RunConfig> {
    let path = store.run_folder(folder).join(CONFIG);
    let Some(bytes) = read_if_present(&path)? else {
        let place = store.run_folder(folder);
        let reason = format!("no {CONFIG}, so this is not a run; left out");
        return Err(Error::corrupt(place, reason));
    };
    let place = path.display().to_string();
    let config = RunConfig::parse(&String::from_utf8_lossy(&bytes), &place)?;
    if config.id() != folder {
        let found = config.id();
        let reason = format!("holds the config of run {found}, not of {folder}; left out");
        return Err(Error::corrupt(place, reason));
    }
    Ok(config)
}

fn read_run(store: &Store, folder: &str, tasks: &[&str]) -> Result<Option<Record>> {
    let config = read_config(store, folder)?;
    if !tasks.contains(&config.task.name()) {
        return Ok(None);
    }
    let result = store.result(folder)?;
    let file = store.run_folder(folder).join(RESULT).display().to_string();
    Ok(result.map(|result| Record::new(&config, &result).read_from(&file)))
}

/// Rebuilds all rows from the run folders.
pub(super) fn refresh(store: &Store, task: &str) -> Result<()> {
    let lock = Lock::take(store)?;
    refresh_under(&lock, store, task)
}

fn refresh_under(lock: &Lock, store: &Store, task: &str) -> Result<()> {
    if lock.is_held() {
        remove_unfinished(&store.out)?;
    }
    let path = store.summary_path(task);
    let rows = scan(store, &[task])?.rows;
    write_atomic(&path, &records_csv(&rows, &path)?)
}

/// Adds the row of one run to the existing rows, so that each of a thousand runs need not read a thousand folders. A
/// summary that is missing, damaged or of another version is rebuilt from the folders.
///
/// On a file system without locks, two runs that finish together may lose one of the rows; every sweep and merge
/// rebuilds the summary at its end.
pub(super) fn add(store: &Store, task: &str, id: &str) -> Result<()> {
    let lock = Lock::take(store)?;
    let path = store.summary_path(task);
    let text = read_if_present(&path)?.unwrap_or_default();
    let there: HashSet<String> = run_folders(&store.out.join(RUNS))?.into_iter().collect();
    let row = read_run(store, id, &[task])?;
    match row.and_then(|row| with_row(&text, &row, &there)) {
        Some(text) => write_atomic(&path, &text),
        None => refresh_under(&lock, store, task),
    }
}

/// Returns the summary `text` with `row` in place of the row of the same run, and without runs that are not in `there`.
/// `None` if `text` is no summary, or lacks a column for a value of `row`.
fn with_row(text: &[u8], row: &Record, there: &HashSet<String>) -> Option<Vec<u8>> {
    let mut reader = csv::Reader::from_reader(text);
    let header = reader.headers().ok()?.clone();
    let places: Vec<usize> = header.iter().map(place).collect::<Option<_>>()?;
    let own = columns_with(std::slice::from_ref(row));
    if !places.is_sorted() || !own.iter().all(|place| places.contains(place)) {
        return None;
    }
    let id = header.iter().position(|name| name == "run_id")?;
    let mut lines: Vec<StringRecord> = reader.records().collect::<Result<_, _>>().ok()?;
    lines.retain(|line| there.contains(&line[id]));
    // An unsorted file was not written by this program.
    if !lines.is_sorted_by(|a, b| a[id] < b[id]) {
        return None;
    }
    let line = line_of(row, &places, &Checksum::under(&header));
    match lines.binary_search_by(|line| line[id].cmp(row.run_id())) {
        Ok(at) => lines[at] = line,
        Err(at) => lines.insert(at, line),
    }
    let mut writer = csv::Writer::from_writer(Vec::with_capacity(text.len() + 1024));
    let mut all = std::iter::once(&header).chain(&lines);
    all.try_for_each(|line| writer.write_record(line)).ok()?;
    writer.into_inner().ok()
}

/// Lock on writing summaries, held from reading to renaming: of two runs that finish together, the second to rename has
/// seen both results.
struct Lock(Option<fs::File>);

impl Lock {
    fn take(store: &Store) -> Result<Self> {
        let path = store.out.join(LOCK);
        let file = open_lock(&path)?;
        if !store.locks {
            return Ok(Self(None));
        }
        match file.lock() {
            Ok(()) => Ok(Self(Some(file))),
            Err(e) if has_none(&e) => Ok(Self(None)),
            Err(e) => Err(Error::io("lock", &path)(e)),
        }
    }

    /// Whether the lock is held; false on a file system without locks.
    fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

/// Serialises `rows` with a header, to be written to `path`.
pub fn to_csv<R: Serialize>(rows: &[R], path: &Path) -> Result<Vec<u8>> {
    csv_of(path, |writer| rows.iter().try_for_each(|row| writer.serialize(row)))
}

/// Serialises records with the names of their columns as the header.
fn records_csv(records: &[Record], path: &Path) -> Result<Vec<u8>> {
    let places = columns_with(records);
    let names = places.iter().map(|place| COLUMNS[*place].name).collect();
    let sum = Checksum::under(&names);
    csv_of(path, |writer| {
        if !records.is_empty() {
            writer.write_record(&names)?;
        }
        let mut lines = records.iter();
        lines.try_for_each(|record| writer.write_record(&line_of(record, &places, &sum)))
    })
}

/// Returns the cells of a record in the columns at `places`.
fn line_of(record: &Record, places: &[usize], sum: &Checksum) -> StringRecord {
    let cells = places.iter().map(|place| record.at(*place).to_string());
    let cells: StringRecord = cells.collect();
    let digits = sum.digest(&cells);
    let filled = |(i, cell)| match sum.at == Some(i) {
        true => digits.as_str(),
        false => cell,
    };
    cells.iter().enumerate().map(filled).collect()
}

/// Returns the indices of the columns for `records`: always ids, ends and provenance, the settings of their tasks, and
/// any other column with a value, so that no task has the empty columns of another.
pub fn columns_with(records: &[Record]) -> Vec<usize> {
    let tasks: BTreeSet<&str> = records.iter().map(|record| record.text("task")).collect();
    let tasks = tasks.into_iter().filter_map(|task| tasks::find(task).ok());
    // Generated tasks gained a validation set after summaries of them had been published; runs without one have no
    // column for it.
    let later = |task: &TaskEntry, field: &str| task.objective == Objective::PerToken && field == "val_examples";
    let fields = tasks.flat_map(|task| {
        let fields = task.fields.iter().copied();
        fields.filter(move |field| !later(task, field))
    });
    let fields: BTreeSet<&str> = fields.collect();
    let own = |place: &usize| {
        let column = &COLUMNS[*place];
        let everywhere = match column.role {
            Role::Id | Role::Origin => true,
            Role::Result => Metric::find(column.name).is_none(),
            Role::Setting | Role::Cell | Role::Rate | Role::Seed => false,
        };
        let of_task = |at: &String| at.strip_prefix("/task/").map(|field| fields.contains(field));
        let of_tasks: Vec<bool> = column.at.iter().filter_map(of_task).collect();
        let mut values = records.iter().map(|record| record.at(*place));
        everywhere
            || column.absent == Absent::Required
            || of_tasks.contains(&true)
            || values.any(|value| match of_tasks.is_empty() {
                true => *value != Field::Absent,
                false => says(column, value),
            })
    };
    (0..COLUMNS.len()).filter(own).collect()
}

/// Whether `value` differs from the meaning of an empty cell of the column.
fn says(column: &Column, value: &Field) -> bool {
    match column.absent {
        _ if *value == Field::Absent => false,
        Absent::Is(meant) | Absent::Where(_, _, meant) => value.to_string() != meant,
        Absent::Required | Absent::Empty => true,
    }
}

fn csv_of(path: &Path, write: impl FnOnce(&mut csv::Writer<Vec<u8>>) -> csv::Result<()>) -> Result<Vec<u8>> {
    let failed = |e: &dyn std::fmt::Display| Error::io("write", path)(io::Error::other(e.to_string()));
    let mut writer = csv::Writer::from_writer(Vec::new());
    write(&mut writer).map_err(|e| failed(&e))?;
    writer.into_inner().map_err(|e| failed(&e))
}

/// Reads the rows of a summary file, so that published results need no run folders.
///
/// Columns are found by name, so files of every version can be read: a missing column and an empty cell have the
/// meaning given by [`Absent`], and columns of later versions are ignored. Spellings of other programs are accepted,
/// see [`Sheet`].
///
/// # Errors
/// Fails if a value is outside the range of its column, if a row contradicts its checksum, if the header lacks a column
/// that every version wrote, or if two results of one run differ.
pub fn read_summary(path: &Path) -> Result<Vec<Record>> {
    let bytes = read_bytes(path)?;
    if is_utf16(&bytes) {
        let why = "a text in UTF-16; save it as a CSV in UTF-8";
        return Err(refused(path, 1, why));
    }
    let sheet = Sheet::open(&bytes, SCHEMA_COLUMN).map_err(|e| broken(path, &e))?;
    if sheet.header.iter().all(str::is_empty) {
        return Ok(Vec::new());
    }
    let records = rows(sheet, path)?;
    // The returned sentence is dropped: callers that read several files reconcile all of them.
    reconcile(&records)?;
    Ok(records)
}

/// Parses the rows of `sheet`, read from `path`.
fn rows(mut sheet: Sheet, path: &Path) -> Result<Vec<Record>> {
    let file: Arc<str> = path.display().to_string().into();
    let header = sheet.header.clone();
    let Some(schema) = header.iter().position(|name| name.trim() == SCHEMA_COLUMN) else {
        let why = "no column `schema`, so this is not a summary of runs";
        return Err(refused(path, 1, why));
    };
    let columns = columns_of(&header).map_err(|why| refused(path, 1, &why));
    let sum = Checksum::under(&header);
    let (mut records, mut line) = (Vec::new(), StringRecord::new());
    // Most cells equal those of the previous line, which need not be parsed again.
    let (mut above, mut fields) = (StringRecord::new(), vec![Field::Absent; COLUMNS.len()]);
    while sheet.read(&mut line).map_err(|e| broken(path, &e))? {
        let number = line.position().map_or(0, csv::Position::line);
        let wrong = |why: String| refused(path, number, &why);
        // The columns of a file with another schema version have other meanings.
        require_schema(line.get(schema).unwrap_or_default()).map_err(wrong)?;
        let columns = match &columns {
            Ok(columns) => columns,
            Err(_) => break,
        };
        sheet.fit(&mut line, |i| may_lack(columns[i])).map_err(wrong)?;
        parse(&mut sheet, columns, &line, &above, &mut fields).map_err(wrong)?;
        let mut values = fields.clone();
        if columns.contains(&place("cause")) {
            keep_cause(&mut values);
        }
        let spelt = || spelt(columns, &line, &values);
        sum.check(&line, spelt).map_err(wrong)?;
        let record = record(values, &file, number).map_err(wrong)?;
        records.push(record);
        std::mem::swap(&mut above, &mut line);
    }
    columns?;
    Ok(records)
}

/// Returns the record of `values`, from a line of `file`.
fn record(values: Vec<Field>, file: &Arc<str>, line: u64) -> Result<Record, String> {
    let source = Source { file: file.clone(), line: Some(line) };
    let mut record = Record::read(values, source);
    record.set(CHECKSUM, Field::Absent);
    match record.lacks() {
        None => Ok(record),
        Some(lacking) => Err(format!("column `{}`: empty, not {}", lacking.name, lacking.kind)),
    }
}

/// Restores the cause `nan`, which pandas reads as a missing value; the reason always implies it.
fn keep_cause(values: &mut [Field]) {
    let [status, reason, cause] = ["status", "reason", "cause"].map(|name| {
        let column = place(name);
        column.unwrap_or_else(|| unreachable!("{name} is a column"))
    });
    let told = Cause::infer(values[reason].text());
    let lost = values[status].text() == RunStatus::Failed.name() && told == Cause::Nan;
    if lost && values[cause] == Field::Absent {
        values[cause] = told.name().into();
    }
}

/// Whether a spreadsheet may have omitted the trailing cell of a column. No version put a result or a setting last, so
/// a row without one was truncated.
fn may_lack(column: Option<usize>) -> bool {
    column.is_none_or(|place| COLUMNS[place].role == Role::Origin)
}

/// Parses the cells of `line` into `fields`, which hold the values of the line `above`.
fn parse(
    sheet: &mut Sheet,
    columns: &[Option<usize>],
    line: &StringRecord,
    above: &StringRecord,
    fields: &mut [Field],
) -> Result<(), String> {
    let number = line.position().map_or(0, csv::Position::line);
    for (i, place) in columns.iter().enumerate() {
        let (Some(place), text) = (*place, &line[i]) else {
            continue;
        };
        if above.get(i) != Some(text) {
            let column = &COLUMNS[place];
            let value = sheet.parse(column, text.trim(), number);
            fields[place] = value.map_err(|why| format!("column `{}`: {why}", column.name))?;
        }
    }
    Ok(())
}

/// Returns `line` with its values in this program's spelling.
fn spelt(columns: &[Option<usize>], line: &StringRecord, fields: &[Field]) -> StringRecord {
    let cells = columns.iter().zip(line).map(|(place, cell)| match place {
        Some(place) => fields[*place].to_string(),
        None => cell.to_owned(),
    });
    cells.collect()
}

/// Whether the header of a file has the column that identifies a summary.
pub(super) fn is_summary(path: &Path) -> Result<bool> {
    let file = fs::File::open(path).map_err(Error::io("read", path))?;
    let mut first = Vec::new();
    let read = BufReader::new(file).read_until(b'\n', &mut first);
    read.map_err(Error::io("read", path))?;
    sheet::has_column(&first, SCHEMA_COLUMN).map_err(|e| broken(path, &e))
}

/// Returns the index in [`COLUMNS`] of every column of a file; `None` for those of later versions.
fn columns_of(header: &StringRecord) -> Result<Vec<Option<usize>>, String> {
    let mut held = BTreeSet::new();
    for name in header.iter().map(str::trim) {
        // Spreadsheets write columns without a name; pandas writes its row numbers under one.
        if !name.is_empty() && !held.insert(name) {
            return Err(format!("column `{name}` twice"));
        }
    }
    let names = header.iter().map(str::trim);
    for name in names.filter(|name| place(name).is_none()) {
        let mut missing = COLUMNS.iter().map(|c| c.name).filter(|c| !held.contains(c));
        let meant = missing.find(|known| strsim::damerau_levenshtein(known, name) < 3);
        if let Some(meant) = meant.filter(|m| m.len() > 3) {
            return Err(format!("unknown column `{name}`; did you mean `{meant}`?"));
        }
    }
    let required = COLUMNS.iter().filter(|c| c.absent == Absent::Required);
    if let Some(column) = required.map(|c| c.name).find(|name| !held.contains(name)) {
        return Err(format!("no column `{column}`, which every summary has: its values would be unknown"));
    }
    Ok(header.iter().map(|name| place(name.trim())).collect())
}

fn require_schema(found: &str) -> Result<(), String> {
    let number = found.trim().replace(',', ".").parse::<f64>();
    if number.is_ok_and(|number| number == f64::from(SCHEMA)) {
        return Ok(());
    }
    Err(format!(
        "schema `{found}` is not the schema {SCHEMA} that this version reads; \
         use the version that wrote the file"
    ))
}

fn refused(path: &Path, line: u64, why: &str) -> Error {
    Error::data_at(path, Position::Line(line), why)
}

fn broken(path: &Path, error: &csv::Error) -> Error {
    let line = error.position().map_or(1, csv::Position::line);
    let what = match error.kind() {
        ErrorKind::Utf8 { .. } => "not a text in UTF-8; save it as a CSV in UTF-8".to_owned(),
        _ => error.to_string(),
    };
    refused(path, line, &what)
}

#[cfg(test)]
mod spellings;

#[cfg(test)]
mod tests {
    use super::super::samples::{config, diverged, done, failed, provenance, read, text_config};
    use super::*;
    use crate::error::testing::Fails;
    use crate::error::Diagnostic;
    use std::path::PathBuf;

    pub(super) fn summary_of(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mqar.csv");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    pub(super) fn text_of(rows: &[Record]) -> String {
        String::from_utf8(records_csv(rows, Path::new("mqar.csv")).unwrap()).unwrap()
    }

    /// Asserts that a summary is refused for a line, and gives the error.
    pub(super) fn refused(text: &str, line: u64) -> Diagnostic {
        let (_dir, path) = summary_of(text);
        let at = read_summary(&path).fails("data");
        at.is_at("mqar.csv", Position::Line(line));
        at
    }

    #[test]
    fn a_row_is_put_among_those_that_are_there_as_if_all_were_made_anew() {
        let record = |seed, accuracy| Record::new(&RunConfig { seed, ..config() }, &done(accuracy));
        let mut rows: Vec<Record> = (0..5).map(|seed| record(seed, 0.5)).collect();
        rows.sort_by(|a, b| a.run_id().cmp(b.run_id()));
        let ids = |rows: &[Record]| rows.iter().map(|row| row.run_id().to_owned()).collect();
        let all: HashSet<String> = ids(&rows);
        let added = |rows: &[Record], row: &Record, there| {
            let text = with_row(text_of(rows).as_bytes(), row, there)?;
            Some(String::from_utf8(text).unwrap())
        };
        for at in 0..rows.len() {
            let others = [&rows[..at], &rows[at + 1..]].concat();
            assert_eq!(added(&others, &rows[at], &all).unwrap(), text_of(&rows));
            let mut changed = rows.clone();
            changed[at].set("accuracy", 0.75);
            assert_eq!(added(&rows, &changed[at], &all).unwrap(), text_of(&changed));
        }
        let gone: HashSet<String> = ids(&rows[1..]);
        assert_eq!(added(&rows, &rows[4], &gone).unwrap(), text_of(&rows[1..]));
        // Any other text is rebuilt from the folders.
        let backwards: Vec<Record> = rows.iter().rev().cloned().collect();
        assert_eq!(added(&backwards, &rows[0], &all), None);
        let text = text_of(&rows);
        for other in [String::new(), text.replace("checksum", "sum"), text[..text.len() - 20].to_owned()] {
            assert_eq!(with_row(other.as_bytes(), &rows[0], &all), None);
        }
    }

    #[test]
    fn a_row_that_was_changed_is_refused_until_the_column_of_checksums_is_taken_out() {
        let text = text_of(&[Record::new(&config(), &done(0.5))]);
        let changed = text.replacen(",0.5,", ",0.6,", 1);
        assert_ne!(text, changed);
        refused(&changed, 2).names(&["`checksum`"]);
        // In another order, and without a column that is empty, it is the same row.
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let row = reader.records().next().unwrap().unwrap();
        let mut cells: Vec<_> = header.iter().zip(&row).filter(|(_, cell)| !cell.is_empty()).collect();
        assert!(cells.len() < header.len());
        cells.reverse();
        let (names, values): (Vec<&str>, Vec<&str>) = cells.into_iter().unzip();
        let mut turned = csv::Writer::from_writer(Vec::new());
        turned.write_record(names).unwrap();
        turned.write_record(values).unwrap();
        let turned = String::from_utf8(turned.into_inner().unwrap()).unwrap();
        let (_dir, path) = summary_of(&turned);
        assert_eq!(read_summary(&path).unwrap(), [Record::new(&config(), &done(0.5))]);
        // A deliberate change.
        let sum = &row[row.len() - 1];
        assert_eq!(sum.len(), 12);
        refused(&changed.replace(sum, ""), 2).names(&["`checksum`"]);
        let without = changed.replace(sum, "").replace(",checksum", "");
        let (_dir, path) = summary_of(&without.replace(",\n", "\n"));
        assert_eq!(read_summary(&path).unwrap()[0].number("accuracy"), Some(0.6));
    }

    #[test]
    fn rows_come_back_from_a_summary_as_they_were() {
        let mut awkward = failed("out of memory, \"really\"\nat step 3");
        awkward.metrics.set("seconds", 0.1 + 0.2);
        let rows = [(0, done(1.0 / 3.0)), (1, awkward), (2, done(1e-12))].map(|(seed, result)| {
            let config = RunConfig { seed, ..config() };
            Record::new(&config, &result)
        });
        let rows = [&rows[..], &[Record::new(&text_config(), &read(17.42))]].concat();
        let (_dir, path) = summary_of(&text_of(&rows));
        assert_eq!(read_summary(&path).unwrap(), rows);
    }

    #[test]
    fn a_summary_has_no_empty_column_of_another_task() {
        let header = |row: Record| {
            let text = text_of(&[row]);
            let columns = text.lines().next().unwrap().split(',');
            columns.map(str::to_owned).collect::<HashSet<_>>()
        };
        let recall = header(Record::new(&config(), &done(0.5)));
        for name in ["tokenizer", "contour_length", "unigram_ppl", "val_examples", "clip"] {
            assert!(!recall.contains(name), "{name}: {recall:?}");
        }
        for name in ["kv_pairs", "outcome", "reason", "accuracy", "micro_batch_used"] {
            assert!(recall.contains(name), "{name}: {recall:?}");
        }
        let text = header(Record::new(&text_config(), &read(17.42)));
        let has = |name: &str| text.contains(name);
        assert!(has("tokenizer") && has("unigram_ppl") && !has("contour_length"));
    }

    #[test]
    fn a_loss_that_is_not_a_number_survives_the_summary() {
        let (_dir, path) = summary_of(&text_of(&[Record::new(&config(), &diverged())]));
        let rows = read_summary(&path).unwrap();
        assert!(rows[0].number("train_loss").unwrap().is_nan());
        assert_eq!(rows[0].number("test_loss"), None);
    }

    #[test]
    fn an_empty_summary_has_no_rows() {
        let (_dir, path) = summary_of("");
        assert_eq!(read_summary(&path).unwrap(), []);
    }

    #[test]
    fn a_column_added_later_does_not_disturb() {
        let text = text_of(&[Record::new(&config(), &done(0.5))]);
        let wider: String = text.lines().map(|line| format!("{line},new\n")).collect();
        let (_dir, path) = summary_of(&wider);
        assert_eq!(read_summary(&path).unwrap().len(), 1);
    }

    /// Returns `text` without the columns called `names`.
    fn without(text: &str, names: &[&str]) -> String {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        let lines: Vec<StringRecord> = reader.records().map(|line| line.unwrap()).collect();
        let kept = (0..lines[0].len()).filter(|i| !names.contains(&&lines[0][*i]));
        let kept: Vec<usize> = kept.collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        for line in &lines {
            writer.write_record(kept.iter().map(|i| &line[*i])).unwrap();
        }
        String::from_utf8(writer.into_inner().unwrap()).unwrap()
    }

    #[test]
    fn a_missing_column_is_what_its_format_meant() {
        let row = Record::new(&config(), &done(0.5));
        let later = COLUMNS.iter().filter(|c| c.absent != Absent::Required);
        let mut later: Vec<&str> = later.map(|c| c.name).collect();
        later.retain(|name| *row.get(name) == Field::Absent || *name == "precision");
        let old = without(&text_of(std::slice::from_ref(&row)), &later);
        assert!(!old.contains("precision") && !old.contains("tokenizer"), "{old}");
        let (_dir, path) = summary_of(&old);
        assert_eq!(read_summary(&path).unwrap(), [row]);
    }

    #[test]
    fn pathfinder_without_a_contour_length_is_the_hard_set() {
        let mut row = Record::new(&config(), &done(0.5));
        for (dataset, paddles) in [("pathfinder", Field::Count(14)), ("image", Field::Absent)] {
            row.set("dataset", dataset);
            let (_dir, path) = summary_of(&text_of(std::slice::from_ref(&row)));
            assert_eq!(*read_summary(&path).unwrap()[0].get("contour_length"), paddles);
        }
    }

    #[test]
    fn every_committed_summary_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        // Other summaries in this folder belong to the person who runs the tests.
        for name in [
            "figure1-small.csv",
            "figure2-small.csv",
            "figure2-small-matched.csv",
            "figure2-small-steps.csv",
            "figure3-small.csv",
            "lra-small.csv",
            "mqar-paper-cell.csv",
            "mqar-quick.csv",
            "lra-listops.csv",
            "mqar-small.csv",
            "survey.csv",
            "wikitext-small.csv",
        ] {
            let path = folder.join(name);
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            let records = read_summary(&path).unwrap();
            assert_eq!(records.len() + 1, lines, "{name}");
            assert!(records.iter().all(|r| !r.text("precision").is_empty()));
        }
    }

    #[test]
    fn a_value_that_its_column_cannot_have_is_refused_with_line_and_column() {
        for (name, value, said) in [
            ("accuracy", "45.9", "`45.9`"),
            ("majority", "-0.5", "`-0.5`"),
            ("train_ppl", "-3", "`-3`"),
            ("status", "finished", "`finished`"),
            ("positions", "yes", "`yes`"),
            ("d", "", ""),
            ("run_id", "", ""),
        ] {
            let mut row = Record::new(&config(), &done(0.5));
            row.set(name, value);
            let text = text_of(&[Record::new(&config(), &done(0.5)), row]);
            refused(&text, 3).names(&[&format!("`{name}`"), said]);
        }
    }

    #[test]
    fn a_column_that_is_misspelt_or_missing_or_twice_is_refused_by_its_name() {
        let text = text_of(&[Record::new(&config(), &done(0.5))]);
        let misspelt = refused(&text.replace(",accuracy,", ",acuracy,"), 1);
        misspelt.names(&["`acuracy`", "`accuracy`"]);
        refused(&without(&text, &["epochs_max"]), 1).names(&["`epochs_max`"]);
        refused(&text.replace(",accuracy,", ",score,"), 1).names(&["`accuracy`"]);
        refused(&text.replace(",best_accuracy,", ",accuracy,"), 1).names(&["`accuracy`"]);
    }

    #[test]
    fn two_results_of_one_run_are_refused_with_both_lines_unless_they_agree() {
        let row = |result| Record::new(&config(), &result);
        let other = refused(&text_of(&[row(done(0.5)), row(done(0.25))]), 3);
        other.names(&["line 2", "accuracy 0.25", "0.5"]);
        let mut slower = done(0.5);
        slower.metrics.set("seconds", 99.0);
        let (_dir, path) = summary_of(&text_of(&[row(done(0.5)), row(slower), row(failed("disk"))]));
        assert_eq!(read_summary(&path).unwrap().len(), 3);
    }

    #[test]
    fn another_schema_is_refused_with_its_line() {
        let text = text_of(&[Record::new(&config(), &done(0.5))]).replace("\n1,", "\n2,");
        refused(&text, 2).names(&["`2`"]);
    }

    #[test]
    fn a_broken_value_is_refused_with_its_line_and_column() {
        let row = Record::new(&config(), &done(0.5));
        let text = text_of(&[row.clone(), row]);
        let last = text.rfind(",64,32,").unwrap();
        let broken = format!("{},64,many,{}", &text[..last], &text[last + 7..]);
        refused(&broken, 3).names(&["`n`", "`many`"]);
    }

    #[test]
    fn a_torn_line_is_refused() {
        let text = text_of(&[Record::new(&config(), &done(0.5))]);
        refused(&text[..text.len() - 60], 2);
    }

    #[test]
    fn another_table_is_refused() {
        refused("a,b\n1,2\n", 1).names(&["`schema`"]);
    }

    #[test]
    fn runs_that_finish_together_are_all_in_the_summary() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let finish = |worker: u64| {
            for run in 0..8 {
                let config = RunConfig { seed: 8 * worker + run, ..config() };
                let run = store.begin(&config, &provenance()).unwrap();
                run.finish(&done(0.5)).unwrap();
            }
        };
        std::thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || finish(worker));
            }
        });
        let rows = read_summary(&store.summary_path("mqar")).unwrap();
        assert_eq!(rows.len(), 32);
        assert!(rows.is_sorted_by(|a, b| a.run_id() < b.run_id()));
    }
}
