//! For other programs: every setting of every panel, every number unrounded.

use super::panel::plain;
use super::{Cell, Coverage, Panel, Report};
use serde_json::{json, Map, Value};

/// Version of the JSON and CSV forms. Fields may be added; a rename or a new meaning raises it.
pub const SCHEMA: u32 = 1;

const CELL_COLUMNS: [&str; 8] = ["d", "n", "metric", "mean", "std", "seeds", "lr", "status"];

/// A line a cell, with the panel's settings in front.
pub(super) fn csv(report: &Report) -> String {
    let settings = report.panels.first().map_or(&[][..], |p| &p.settings);
    let names = settings.iter().map(|(column, _)| column.name);
    let names: Vec<&str> = names.chain(CELL_COLUMNS).collect();
    let lines = report.panels.iter().flat_map(|panel| {
        panel.cells().map(move |(d, n, cell)| {
            let settings = panel.settings.iter().map(|(_, value)| text(value));
            let values = cell_values(d, n, &cell, report.metric.as_str());
            settings.chain(values.iter().map(text)).collect()
        })
    });
    csv_of(&names, lines)
}

/// Lines under a header.
pub(super) fn csv_of(header: &[&str], lines: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    for record in std::iter::once(header).chain(lines) {
        let written = writer.write_record(record);
        written.expect("memory takes lines of equal length");
    }
    let bytes = writer.into_inner().expect("memory can be flushed");
    String::from_utf8(bytes).expect("settings and numbers are text")
}

/// One object that holds the whole report.
pub(super) fn json(report: &Report) -> String {
    let metric = report.metric.as_str();
    let panels: Vec<Value> = report.panels.iter().map(|p| panel(p, metric)).collect();
    let whole = json!({
        "schema": SCHEMA,
        "task": super::TASK,
        "metric": metric,
        "panels": panels,
        "coverage": coverage(&report.coverage),
    });
    format!("{whole:#}\n")
}

fn panel(panel: &Panel, metric: &str) -> Value {
    let settings = panel.settings.iter();
    let settings: Map<String, Value> = settings
        .map(|(column, value)| (column.name.to_owned(), value.clone()))
        .collect();
    let cells: Vec<Value> = panel
        .cells()
        .map(|(d, n, cell)| {
            let fields = CELL_COLUMNS.into_iter().map(String::from);
            fields.zip(cell_values(d, n, &cell, metric)).collect()
        })
        .collect();
    json!({ "title": panel.title, "settings": settings, "cells": cells })
}

/// In the order of [`CELL_COLUMNS`].
fn cell_values(d: usize, n: usize, cell: &Cell, metric: &str) -> [Value; 8] {
    let score = cell.score();
    [
        json!(d),
        json!(n),
        json!(metric),
        json!(score.map(|s| s.mean)),
        json!(score.and_then(|s| s.std)),
        json!(score.map(|s| s.seeds)),
        json!(score.map(|s| s.lr)),
        json!(cell.status()),
    ]
}

pub(super) fn coverage(coverage: &Coverage) -> Value {
    json!({
        "planned": coverage.planned,
        "done": coverage.done,
        "diverged": coverage.diverged,
        "failed": coverage.failed,
        "not_run": coverage.not_run,
        "outside_plan": coverage.outside_plan,
        "commits": coverage.commits,
        "seconds": coverage.seconds,
    })
}

/// A field of CSV; what does not apply is empty.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => plain(other),
    }
}
