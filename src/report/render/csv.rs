//! CSV for other programs: one row per cell with unrounded numbers, preceded by the settings common to its grid.

use super::super::Report;
use super::TextTarget;
use serde_json::Value;

pub(super) fn render(report: &Report, _screen: TextTarget) -> String {
    let grids = report.grids.iter();
    let records = grids.flat_map(|grid| grid.records.iter().map(|record| grid.shared.iter().chain(record)));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (i, record) in records.enumerate() {
        let (names, values): (Vec<&String>, Vec<String>) = record.map(|(name, value)| (name, text(value))).unzip();
        let head = if i == 0 { writer.write_record(names) } else { Ok(()) };
        head.and_then(|()| writer.write_record(values)).expect("memory takes records of equal length");
    }
    let bytes = writer.into_inner().expect("memory can be flushed");
    String::from_utf8(bytes).expect("settings and numbers are text")
}

/// Formats a value; null becomes empty.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
