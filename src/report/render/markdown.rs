//! Markdown, with one table per grid.

use super::super::{Grid, Report};
use super::{rows, TextTarget};

pub(super) fn render(report: &Report, _screen: TextTarget) -> String {
    let mut blocks = vec![report.heading.clone()];
    for grid in &report.grids {
        let grid = &*grid.abridged();
        blocks.extend((!grid.title.is_empty()).then(|| format!("### {}", grid.title)));
        blocks.push(table(grid));
        blocks.extend(items(&grid.notes));
    }
    blocks.extend(items(&report.notes));
    blocks.join("\n\n") + "\n"
}

fn table(grid: &Grid) -> String {
    let (corner, side) = match grid.corner() {
        none if none.is_empty() => (String::new(), "---"),
        corner => (format!(" {corner}"), "---:"),
    };
    let titles: Vec<&str> = grid.columns.iter().map(|tick| tick.title.as_str()).collect();
    let mut lines = vec![
        format!("|{corner} | {} |", titles.join(" | ")),
        format!("|{side}|{}", "---:|".repeat(grid.columns.len())),
    ];
    lines.extend(rows(grid).map(|(line, cells)| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.concat()).collect();
        let emphasis = if line.printed { "*" } else { "" };
        format!("| {emphasis}{}{emphasis} | {} |", line.name(), cells.join(" | "))
    }));
    lines.join("\n")
}

fn items(notes: &[String]) -> Option<String> {
    let items: Vec<String> = notes.iter().map(|note| format!("- {note}")).collect();
    (!items.is_empty()).then(|| items.join("\n"))
}
