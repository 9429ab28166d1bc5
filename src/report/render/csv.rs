//! CSV for other programs: one row per cell with unrounded numbers, preceded by the settings common to its grid.

use super::super::{Facts, Report};
use super::Screen;
use serde_json::Value;

pub(super) fn render(report: &Report, _screen: Screen) -> String {
    let each = report.grids.iter().flat_map(|grid| {
        let records = grid.records.iter();
        records.map(|record| grid.shared.iter().chain(record).cloned().collect::<Facts>())
    });
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (i, record) in each.enumerate() {
        let names = record.iter().map(|(name, _)| name);
        let written = match i {
            0 => writer.write_record(names),
            _ => Ok(()),
        };
        let values = record.iter().map(|(_, value)| text(value));
        let written = written.and_then(|()| writer.write_record(values));
        written.expect("memory takes records of equal length");
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
