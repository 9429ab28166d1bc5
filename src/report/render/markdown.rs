//! Markdown, with one table per grid.

use super::super::{Grid, Line, Report};
use super::Screen;

pub(super) fn render(report: &Report, _screen: Screen) -> String {
    let mut blocks = vec![report.heading.clone()];
    for grid in &report.grids {
        let grid = &*grid.abridged();
        blocks.push(format!("### {}", grid.title));
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
    lines.extend(grid.lines.iter().map(|line| row(grid, line)));
    lines.join("\n")
}

fn row(grid: &Grid, line: &Line) -> String {
    let seeds = grid.seeds();
    let cells: Vec<String> = line.cells.iter().map(|cell| grid.label(cell, seeds) + &cell.marks).collect();
    let name = match line.printed {
        true => format!("*{}*", line.name()),
        false => line.name().to_owned(),
    };
    format!("| {name} | {} |", cells.join(" | "))
}

fn items(notes: &[String]) -> Option<String> {
    let items: Vec<String> = notes.iter().map(|note| format!("- {note}")).collect();
    (!items.is_empty()).then(|| items.join("\n"))
}
