//! Consistency of several results of one run.

use super::column::Column;
use super::column::Field;
use super::metrics::METRICS;
use super::record::{Record, RecordSource};
use super::result::RunStatus;
use crate::error::{Error, Position, Result};
use std::collections::HashMap;

/// Checks rows with equal run ids for contradictions. Returns an error if two of them, by one build on one machine,
/// differ in accuracies, losses or perplexities. Times may differ, and failures are ignored.
///
/// Two rows of one run id that were trained on different data are an error as well.
///
/// Builds and machines round differently. Of rows that differ for that reason the first counts, and the returned
/// sentence reports it.
///
/// # Errors
/// Describes the contradiction and names both places.
pub fn reconcile(records: &[Record]) -> Result<Option<String>> {
    // For each run the rows so far, one per build and machine.
    let mut known: HashMap<&str, Vec<&Record>> = HashMap::with_capacity(records.len());
    let mut differing = Vec::new();
    let done = |r: &&Record| r.status() == Some(RunStatus::Done);
    for record in records.iter().filter(done) {
        let rows = known.entry(record.run_id()).or_default();
        if let Some(row) = rows.iter().find(|row| is_of_other_data(row, record)) {
            let digest = |record: &Record| record.text(Column::DATA_DIGEST).to_owned();
            let reason = format!(
                "run {} was trained on other data here (data_digest {}) than in {} ({}), by a version whose runs did not \
                 know their data: give one of the two alone",
                record.run_id(),
                digest(record),
                place_of(row),
                digest(row)
            );
            return Err(contradiction(record, reason));
        }
        let own = rows.iter().find(|row| is_repeatable(row, record));
        if let Some((row, column)) = own.and_then(|row| Some((row, difference(row, record)?))) {
            let reason = format!(
                "run {} has {} {} here and {} in {}; one run has one result, so leave out the one that is wrong",
                record.run_id(),
                column.name(),
                record.get(column),
                row.get(column),
                place_of(row)
            );
            return Err(contradiction(record, reason));
        }
        if own.is_some() {
            continue;
        }
        match rows.first() {
            Some(first) if difference(first, record).is_some() => differing.push((*first, record)),
            _ => {}
        }
        rows.push(record);
    }
    Ok(differing.first().map(|(known, other)| {
        let runs = match differing.len() {
            1 => format!("run {} has", known.run_id()),
            n => format!("run {} and {} more have", known.run_id(), n - 1),
        };
        format!(
            "{runs} other results in {}, by another build or machine: those of {} count",
            place_of(other),
            place_of(known)
        )
    }))
}

/// Returns an error with `reason`, located at `record`.
fn contradiction(record: &Record, reason: String) -> Error {
    match record.source() {
        Some(RecordSource { file, line }) => match line {
            Some(line) => Error::data_at(&**file, Position::Line(*line), reason),
            None => Error::corrupt(&**file, reason),
        },
        None => Error::usage(reason),
    }
}

/// Whether two results of one run come from different examples.
fn is_of_other_data(a: &Record, b: &Record) -> bool {
    let [a, b] = [a, b].map(|record| record.text(Column::DATA_DIGEST));
    !a.is_empty() && !b.is_empty() && a != b
}

/// Returns a reproducible metric on which two results of one run differ.
fn difference(a: &Record, b: &Record) -> Option<Column> {
    let told = |field: &Field| field.number().is_some_and(f64::is_finite);
    let metrics = METRICS.iter().filter(|metric| metric.is_reproducible());
    let both = metrics.map(|m| (m.column, a.get(m.column), b.get(m.column)));
    let mut differing = both.filter(|(_, a, b)| told(a) && told(b) && a != b);
    differing.next().map(|(column, ..)| column)
}

/// Whether two results of a run must agree: same build, as far as its commit shows, and same kind of machine.
fn is_repeatable(a: &Record, b: &Record) -> bool {
    let origin = [Column::GIT_COMMIT, Column::SIMD, Column::CPU, Column::DEVICE, Column::OPS];
    origin.iter().all(|column| a.get(*column) == b.get(*column))
}

fn place_of(record: &Record) -> String {
    let source = record.source().map(RecordSource::to_string);
    source.unwrap_or_else(|| "a result".into())
}
