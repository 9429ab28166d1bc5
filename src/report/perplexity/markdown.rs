//! For a page.

use super::super::markdown::items;
use super::forms::Grid;
use super::Perplexities;

pub(super) fn render(report: &Perplexities) -> String {
    let mut blocks = vec![report.heading()];
    for table in &report.tables {
        blocks.push(format!("### {}", table.title()));
        blocks.push(grid(&table.grid()));
        blocks.extend(items(&table.notes()));
    }
    blocks.extend(items(&report.closing()));
    blocks.join("\n\n") + "\n"
}

fn grid(grid: &Grid) -> String {
    let mut lines = vec![
        format!("| | {} |", grid.header.join(" | ")),
        format!("|---|{}", "---:|".repeat(grid.header.len())),
    ];
    let each = grid.lines.iter();
    lines.extend(each.map(|(name, texts)| format!("| {name} | {} |", texts.join(" | "))));
    lines.join("\n")
}
