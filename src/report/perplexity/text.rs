//! For a terminal: aligned columns.

use super::forms::Grid;
use super::Perplexities;

pub(super) fn render(report: &Perplexities) -> String {
    let mut lines = vec![report.heading()];
    for table in &report.tables {
        lines.push(String::new());
        lines.push(table.title());
        lines.extend(aligned(&table.grid()));
        lines.extend(table.notes().into_iter().map(|note| format!("  {note}")));
    }
    lines.push(String::new());
    lines.extend(report.closing());
    lines.join("\n") + "\n"
}

fn aligned(grid: &Grid) -> Vec<String> {
    let names = grid.lines.iter().map(|(name, _)| name.chars().count());
    let first = names.max().unwrap_or(0);
    let width = |column: usize| {
        let texts = grid.lines.iter().map(|(_, texts)| &texts[column]);
        let texts = texts.chain([&grid.header[column]]);
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..grid.header.len()).map(width).collect();
    let line = |name: &str, texts: &[String]| {
        let texts = texts.iter().zip(&widths);
        let texts: String = texts
            .map(|(text, width)| format!("  {text:>width$}"))
            .collect();
        format!("  {name:first$}{texts}").trim_end().to_owned()
    };
    let mut lines = vec![line("", &grid.header)];
    lines.extend(grid.lines.iter().map(|(name, texts)| line(name, texts)));
    lines
}
