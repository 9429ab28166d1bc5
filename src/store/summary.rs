//! The summary of a task: one row a finished run, made from the run folders and read back.

use super::{read_if_present, Row, Store, CONFIG, RUNS, SCHEMA};
use crate::config::RunConfig;
use crate::error::{Error, Position, Result};
use crate::files::{open_lock, remove_unfinished, write_atomic};
use csv::{ErrorKind, StringRecord};
use serde::Serialize;
use std::path::Path;
use std::{fs, io};

const LOCK: &str = ".lock";

/// What the run folders hold.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Finished runs, sorted by run id.
    pub rows: Vec<Row>,
    /// A sentence for every folder that could not be read as a run.
    pub warnings: Vec<String>,
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
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn read_run(store: &Store, folder: &str, tasks: &[&str]) -> Result<Option<Row>> {
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
    if !tasks.contains(&config.task.name()) {
        return Ok(None);
    }
    let result = store.result(folder)?;
    Ok(result.map(|result| Row::new(&config, &result)))
}

/// Under a lock from the scan to the rename: of two that finish together, the one that renames
/// last has seen both results.
pub(super) fn refresh(store: &Store, task: &str) -> Result<()> {
    let lock_path = store.out.join(LOCK);
    let lock = open_lock(&lock_path)?;
    lock.lock().map_err(Error::io("lock", &lock_path))?;
    remove_unfinished(&store.out)?;
    let path = store.summary_path(task);
    let rows = scan(store, &[task])?.rows;
    write_atomic(&path, &to_csv(&rows, &path)?)
}

/// `rows` under a header, ready to be written to `path`.
pub(super) fn to_csv<R: Serialize>(rows: &[R], path: &Path) -> Result<Vec<u8>> {
    let failed =
        |e: &dyn std::fmt::Display| Error::io("write", path)(io::Error::other(e.to_string()));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(|e| failed(&e))?;
    }
    writer.into_inner().map_err(|e| failed(&e))
}

/// The rows of a summary file, so that committed results need no run folders.
pub fn read_summary(path: &Path) -> Result<Vec<Row>> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    let mut reader = csv::Reader::from_reader(&bytes[..]);
    let header = reader
        .headers()
        .map_err(|e| broken(path, &e, None))?
        .clone();
    if header.iter().all(str::is_empty) {
        return Ok(Vec::new());
    }
    let Some(schema) = header.iter().position(|name| name == "schema") else {
        let reason = "no column `schema`, so this is not a summary of runs";
        return Err(Error::data_at(path, Position::Line(1), reason));
    };
    let records = reader.records().map(|record| {
        let record = record.map_err(|e| broken(path, &e, Some(&header)))?;
        require_schema(path, &record, schema)?;
        record
            .deserialize(Some(&header))
            .map_err(|e| broken(path, &e, Some(&header)))
    });
    records.collect()
}

fn require_schema(path: &Path, record: &StringRecord, column: usize) -> Result<()> {
    let found = record.get(column).unwrap_or_default();
    if found == SCHEMA.to_string() {
        return Ok(());
    }
    let line = record.position().map_or(0, csv::Position::line);
    let reason = format!(
        "schema `{found}` is not the schema {SCHEMA} that this version reads; \
         use the version that wrote the file"
    );
    Err(Error::data_at(path, Position::Line(line), reason))
}

fn broken(path: &Path, error: &csv::Error, header: Option<&StringRecord>) -> Error {
    let line = error.position().map_or(1, csv::Position::line);
    let what = match error.kind() {
        ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|i| header?.get(i as usize));
            let place = column.map_or(String::new(), |name| format!("column `{name}`: "));
            format!("{place}{}", err.kind())
        }
        ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("{len} values under {expected_len} columns"),
        _ => error.to_string(),
    };
    Error::data_at(path, Position::Line(line), what)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{config, diverged, done, failed, provenance, read, text_config};
    use super::*;
    use std::path::PathBuf;

    fn summary_of(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mqar.csv");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn text_of(rows: &[Row]) -> String {
        String::from_utf8(to_csv(rows, Path::new("mqar.csv")).unwrap()).unwrap()
    }

    fn refusal(text: &str) -> String {
        let (_dir, path) = summary_of(text);
        let message = read_summary(&path).unwrap_err().to_string();
        assert!(message.contains("mqar.csv, line "), "{message}");
        message
    }

    #[test]
    fn rows_come_back_from_a_summary_as_they_were() {
        let mut awkward = failed("out of memory, \"really\"\nat step 3");
        awkward.seconds = 0.1 + 0.2;
        let rows = [done(1.0 / 3.0), awkward, done(1e-12)].map(|r| Row::new(&config(), &r));
        let rows = [&rows[..], &[Row::new(&text_config(), &read(17.42))]].concat();
        let (_dir, path) = summary_of(&text_of(&rows));
        assert_eq!(read_summary(&path).unwrap(), rows);
    }

    #[test]
    fn a_loss_that_is_not_a_number_survives_the_summary() {
        let (_dir, path) = summary_of(&text_of(&[Row::new(&config(), &diverged())]));
        let rows = read_summary(&path).unwrap();
        assert!(rows[0].train_loss.unwrap().is_nan());
        assert_eq!(rows[0].test_loss, None);
    }

    #[test]
    fn an_empty_summary_has_no_rows() {
        let (_dir, path) = summary_of("");
        assert_eq!(read_summary(&path).unwrap(), []);
    }

    #[test]
    fn a_column_added_later_does_not_disturb() {
        let text = text_of(&[Row::new(&config(), &done(0.5))]);
        let wider: String = text.lines().map(|line| format!("{line},new\n")).collect();
        let (_dir, path) = summary_of(&wider);
        assert_eq!(read_summary(&path).unwrap().len(), 1);
    }

    #[test]
    fn a_summary_from_before_texts_is_still_read() {
        let row = Row::new(&config(), &done(0.5));
        let old: String = text_of(std::slice::from_ref(&row))
            .lines()
            .map(|line| line.rsplitn(23, ',').last().unwrap().to_owned() + "\n")
            .collect();
        assert!(
            old.lines().next().unwrap().ends_with(",data_digest"),
            "{old}"
        );
        let (_dir, path) = summary_of(&old);
        assert_eq!(read_summary(&path).unwrap(), [row]);
    }

    #[test]
    fn another_schema_is_refused_with_its_line() {
        let text = text_of(&[Row::new(&config(), &done(0.5))]).replace("\n1,", "\n2,");
        let message = refusal(&text);
        assert!(message.contains("line 2: schema `2`"), "{message}");
    }

    #[test]
    fn a_broken_value_is_refused_with_its_line_and_column() {
        let row = Row::new(&config(), &done(0.5));
        let text = text_of(&[row.clone(), row]);
        let last = text.rfind(",64,32,").unwrap();
        let message = refusal(&format!("{},64,many,{}", &text[..last], &text[last + 7..]));
        assert!(message.contains("line 3: column `n`: "), "{message}");
    }

    #[test]
    fn a_torn_line_is_refused() {
        let text = text_of(&[Row::new(&config(), &done(0.5))]);
        let message = refusal(&text[..text.len() - 60]);
        assert!(message.contains("values under"), "{message}");
    }

    #[test]
    fn another_table_is_refused() {
        let message = refusal("a,b\n1,2\n");
        assert!(message.contains("no column `schema`"), "{message}");
    }

    #[test]
    fn runs_that_finish_together_are_all_in_the_summary() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let finish = |worker: u64| {
            for run in 0..8 {
                let config = RunConfig {
                    seed: 8 * worker + run,
                    ..config()
                };
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
        assert!(rows.is_sorted_by(|a, b| a.run_id < b.run_id));
    }
}
