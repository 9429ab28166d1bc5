//! Summary of a task: one row per finished run, made from the run folders and read back.

use super::checksum::RowChecksum;
use super::claim::has_none;
use super::column::Column;
use super::column::{Absent, ColumnSpec, Field, Role};
use super::metrics::Metric;
use super::reconcile::reconcile;
use super::record::RecordSource;
use super::schema::COLUMNS;
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

/// Name of the column that identifies a file as a summary.
const SCHEMA_COLUMN: &str = Column::SCHEMA.name();
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

impl Store {
    /// Reads the configs of all runs, begun or finished, sorted by run id.
    pub fn configs(&self) -> Result<Configs> {
        let mut configs = Configs::default();
        for folder in run_folders(&self.out.join(RUNS))? {
            match read_config(self, &folder) {
                Ok(run) => configs.runs.push(run),
                Err(e) => configs.warnings.push(e.to_string()),
            }
        }
        Ok(configs)
    }

    /// Reads every finished run of `tasks` from the run folders, sorted by run id.
    pub fn rows(&self, tasks: &[&str]) -> Result<Scan> {
        let mut scan = Scan::default();
        for folder in run_folders(&self.out.join(RUNS))? {
            match read_run(self, &folder, tasks) {
                Ok(row) => scan.rows.extend(row),
                Err(e) => scan.warnings.push(e.to_string()),
            }
        }
        Ok(scan)
    }

    /// Rebuilds the summary of `task` from the run folders.
    pub fn refresh_summary(&self, task: &str) -> Result<()> {
        self.refresh_under(&SummaryLock::take(self)?, task)
    }

    fn refresh_under(&self, lock: &SummaryLock, task: &str) -> Result<()> {
        if lock.is_held() {
            remove_unfinished(&self.out)?;
        }
        let path = self.summary_path(task);
        write_atomic(&path, &records_csv(&self.rows(&[task])?.rows, &path)?)
    }

    /// Adds the row of the finished run `id` to the existing rows of the summary of `task`, so that each of a thousand
    /// runs need not read a thousand folders. A summary that is missing, damaged or of another version is rebuilt.
    ///
    /// On a file system without locks, two runs that finish together may lose one of the rows; every sweep and merge
    /// rebuilds the summary at its end.
    pub(super) fn add_to_summary(&self, task: &str, id: &str) -> Result<()> {
        let lock = SummaryLock::take(self)?;
        let path = self.summary_path(task);
        let text = read_if_present(&path)?.unwrap_or_default();
        let there: HashSet<String> = run_folders(&self.out.join(RUNS))?.into_iter().collect();
        match read_run(self, id, &[task])?.and_then(|row| with_row(&text, &row, &there)) {
            Some(text) => write_atomic(&path, &text),
            None => self.refresh_under(&lock, task),
        }
    }
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

/// Returns the summary `text` with `row` in place of the row of the same run, and without runs that are not in `there`.
/// `None` if `text` is no summary, or lacks a column for a value of `row`.
fn with_row(text: &[u8], row: &Record, there: &HashSet<String>) -> Option<Vec<u8>> {
    let mut reader = csv::Reader::from_reader(text);
    let header = reader.headers().ok()?.clone();
    let places: Vec<usize> = header.iter().map(|name| Some(Column::find(name)?.place())).collect::<Option<_>>()?;
    let own = columns_with(std::slice::from_ref(row));
    if !places.is_sorted() || !own.iter().all(|place| places.contains(place)) {
        return None;
    }
    let id = header.iter().position(|name| name == Column::RUN_ID.name())?;
    let mut lines: Vec<StringRecord> = reader.records().collect::<Result<_, _>>().ok()?;
    lines.retain(|line| there.contains(&line[id]));
    // An unsorted file was not written by this program.
    if !lines.is_sorted_by(|a, b| a[id] < b[id]) {
        return None;
    }
    let line = line_of(row, &places, &RowChecksum::under(&header));
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
struct SummaryLock(Option<fs::File>);

impl SummaryLock {
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
    let sum = RowChecksum::under(&names);
    csv_of(path, |writer| {
        if !records.is_empty() {
            writer.write_record(&names)?;
        }
        let mut lines = records.iter();
        lines.try_for_each(|record| writer.write_record(&line_of(record, &places, &sum)))
    })
}

/// Returns the cells of a record in the columns at `places`.
fn line_of(record: &Record, places: &[usize], sum: &RowChecksum) -> StringRecord {
    let cells: StringRecord = places.iter().map(|place| record.at(*place).to_string()).collect();
    let digits = sum.digest(&cells);
    let filled = |(i, cell)| if sum.at == Some(i) { digits.as_str() } else { cell };
    cells.iter().enumerate().map(filled).collect()
}

/// Returns the indices of the columns for `records`: always ids, ends and provenance, the settings of their tasks, and
/// any other column with a value, so that no task has the empty columns of another.
pub fn columns_with(records: &[Record]) -> Vec<usize> {
    let tasks: BTreeSet<&str> = records.iter().map(|record| record.text(Column::TASK)).collect();
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
            Role::Id => true,
            // The name of weights is in the configs of runs that start from some.
            Role::Origin => column.at.is_empty(),
            Role::Result => Metric::find(column.name).is_none(),
            Role::Setting | Role::Cell | Role::Rate | Role::Seed => false,
        };
        let of_task = |at: &String| at.strip_prefix("/task/").map(|field| fields.contains(field));
        let of_tasks: Vec<bool> = column.at.iter().filter_map(of_task).collect();
        let mut values = records.iter().map(|record| record.at(*place));
        everywhere
            || column.absent == Absent::Required
            || of_tasks.contains(&true)
            || values.any(|value| if of_tasks.is_empty() { *value != Field::Absent } else { says(column, value) })
    };
    (0..COLUMNS.len()).filter(own).collect()
}

/// Whether `value` differs from the meaning of an empty cell of the column.
fn says(column: &ColumnSpec, value: &Field) -> bool {
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
    parse_summary(&read_bytes(path)?, path)
}

/// Same as [`read_summary`] for the contents of a file; `path` names it in errors.
pub fn parse_summary(bytes: &[u8], path: &Path) -> Result<Vec<Record>> {
    if is_utf16(bytes) {
        let why = "a text in UTF-16; save it as a CSV in UTF-8";
        return Err(refused(path, 1, why));
    }
    let sheet = Sheet::open(bytes, SCHEMA_COLUMN).map_err(|e| broken(path, &e))?;
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
    let has_cause = header.iter().any(|name| name.trim() == Column::CAUSE.name());
    let sum = RowChecksum::under(&header);
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
        if has_cause {
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
    let source = RecordSource { file: file.clone(), line: Some(line) };
    let mut record = Record::read(values, source);
    record.set(Column::CHECKSUM, Field::Absent);
    match record.lacks() {
        None => Ok(record),
        Some(lacking) => Err(format!("column `{}`: empty, not {}", lacking.name, lacking.kind)),
    }
}

/// Restores the cause `nan`, which pandas reads as a missing value; the reason always implies it.
fn keep_cause(values: &mut [Field]) {
    let [status, reason, cause] = [Column::STATUS, Column::REASON, Column::CAUSE].map(Column::place);
    let told = Cause::infer(values[reason].text());
    let lost = values[status].text() == RunStatus::Failed.name() && told == Cause::Nan;
    if lost && values[cause] == Field::Absent {
        values[cause] = told.name().into();
    }
}

/// Whether a spreadsheet may have omitted the trailing cell of a column. No version put a result or a setting last, so
/// a row without one was truncated.
fn may_lack(column: Option<Column>) -> bool {
    column.is_none_or(|column| column.spec().role == Role::Origin)
}

/// Parses the cells of `line` into `fields`, which hold the values of the line `above`.
fn parse(
    sheet: &mut Sheet,
    columns: &[Option<Column>],
    line: &StringRecord,
    above: &StringRecord,
    fields: &mut [Field],
) -> Result<(), String> {
    let number = line.position().map_or(0, csv::Position::line);
    for (i, column) in columns.iter().enumerate() {
        let (Some(column), text) = (*column, &line[i]) else {
            continue;
        };
        if above.get(i) != Some(text) {
            let value = sheet.parse(column, text.trim(), number);
            fields[column.place()] = value.map_err(|why| format!("column `{}`: {why}", column.name()))?;
        }
    }
    Ok(())
}

/// Returns `line` with its values in this program's spelling.
fn spelt(columns: &[Option<Column>], line: &StringRecord, fields: &[Field]) -> StringRecord {
    let cells = columns.iter().zip(line).map(|(column, cell)| match column {
        Some(column) => fields[column.place()].to_string(),
        None => cell.to_owned(),
    });
    cells.collect()
}

/// Whether the header of a file has the column that identifies a summary.
pub fn is_summary(path: &Path) -> Result<bool> {
    let file = fs::File::open(path).map_err(Error::io("read", path))?;
    let mut first = Vec::new();
    let read = BufReader::new(file).read_until(b'\n', &mut first);
    read.map_err(Error::io("read", path))?;
    sheet::has_column(&first, SCHEMA_COLUMN).map_err(|e| broken(path, &e))
}

/// Returns the columns of a file; `None` for those of later versions.
fn columns_of(header: &StringRecord) -> Result<Vec<Option<Column>>, String> {
    let mut held = BTreeSet::new();
    for name in header.iter().map(str::trim) {
        // Spreadsheets write columns without a name; pandas writes its row numbers under one.
        if !name.is_empty() && !held.insert(name) {
            return Err(format!("column `{name}` twice"));
        }
    }
    let names = header.iter().map(str::trim);
    for name in names.filter(|name| Column::find(name).is_none()) {
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
    Ok(header.iter().map(|name| Column::find(name.trim())).collect())
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
mod tests;
