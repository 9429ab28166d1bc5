//! A table a panel, for a page.

use super::table::{heading, legend, Table};
use super::{Orient, Report};

pub(super) fn render(report: &Report, orient: Orient) -> String {
    let mut blocks = vec![heading(report.metric).to_owned()];
    for panel in &report.panels {
        blocks.push(format!("### {}", panel.title));
        blocks.push(grid(&Table::of(panel, orient)));
        blocks.extend(panel.caption());
    }
    blocks.extend(legend(report));
    blocks.extend(items(&report.coverage.notes(report.cells())));
    blocks.join("\n\n") + "\n"
}

fn grid(table: &Table) -> String {
    let mut lines = vec![
        format!("| {} | {} |", table.corner, table.columns.join(" | ")),
        format!("|---:|{}", "---:|".repeat(table.columns.len())),
    ];
    for (name, entries) in &table.rows {
        let labels: Vec<&str> = entries.iter().map(|entry| entry.label.as_str()).collect();
        lines.push(format!("| {name} | {} |", labels.join(" | ")));
    }
    lines.join("\n")
}

/// Notes as a list, if there are any.
pub(super) fn items(notes: &[String]) -> Option<String> {
    let items: Vec<String> = notes.iter().map(|note| format!("- {note}")).collect();
    (!items.is_empty()).then(|| items.join("\n"))
}
