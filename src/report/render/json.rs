//! JSON for other programs: the whole report as one object on one line, with unrounded numbers.

use super::super::grid::object;
use super::super::{Coverage, Grid, Report, SCHEMA};
use super::TextTarget;
use serde_json::{json, Value};

pub(super) fn render(report: &Report, _screen: TextTarget) -> String {
    let mut whole = object(&report.facts);
    whole[report.list] = report.grids.iter().map(grid).collect();
    whole["event"] = json!("report");
    whole["schema"] = json!(SCHEMA);
    whole["heading"] = json!(report.heading);
    whole["notes"] = json!(report.notes);
    // Reports without runs, such as inspections, have no coverage.
    if report.coverage != Coverage::default() {
        whole["coverage"] = json!(report.coverage);
    }
    format!("{whole}\n")
}

fn grid(grid: &Grid) -> Value {
    let mut whole = object(&grid.facts);
    whole["title"] = json!(grid.title);
    if !grid.shared.is_empty() {
        whole["settings"] = object(&grid.shared);
    }
    whole["cells"] = grid.records.iter().map(object).collect();
    whole
}
