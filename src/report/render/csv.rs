//! For other programs: a line a cell, every number unrounded, what all cells of a grid share in front.

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

/// What does not apply is empty.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
