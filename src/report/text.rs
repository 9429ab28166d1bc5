//! For a terminal: aligned columns, coloured on one scale for all panels.

use super::table::{heading, legend, Entry, Table};
use super::{Orient, Report};
use anstyle::{Ansi256Color, Style};

/// Ten steps of the viridis map in the terminal's 256 colours: one for each tenth of accuracy.
const SCALE: [u8; 10] = [53, 54, 60, 24, 30, 36, 35, 77, 148, 226];
const WHITE: u8 = 231;
const BLACK: u8 = 16;

pub(super) fn render(report: &Report, orient: Orient, colour: bool) -> String {
    let mut lines = vec![heading(report.metric).to_owned()];
    for panel in &report.panels {
        lines.push(String::new());
        lines.push(panel.title.clone());
        lines.extend(grid(&Table::of(panel, orient), colour));
        lines.extend(panel.caption().map(|caption| format!("  {caption}")));
    }
    lines.push(String::new());
    lines.extend(legend(report));
    lines.extend(report.coverage.notes(report.cells()));
    lines.join("\n") + "\n"
}

fn grid(table: &Table, colour: bool) -> Vec<String> {
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|column| column_width(table, column))
        .collect();
    let names = table.rows.iter().map(|(name, _)| name.chars().count());
    let first = names.chain([table.corner.len()]).max().unwrap_or(0);
    let pad = |(text, width): (&String, &usize)| format!("  {text:>width$}");
    let columns: String = table.columns.iter().zip(&widths).map(pad).collect();
    let mut lines = vec![format!("  {:>first$}{columns}", table.corner)];
    for (name, entries) in &table.rows {
        let cells = entries.iter().zip(&widths);
        let cells: String = cells.map(|(e, &width)| painted(e, width, colour)).collect();
        lines.push(format!("  {name:>first$}{cells}"));
    }
    lines
}

fn column_width(table: &Table, column: usize) -> usize {
    let labels = table.rows.iter().map(|(_, entries)| &entries[column].label);
    let texts = labels.chain([&table.columns[column]]);
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn painted(entry: &Entry, width: usize, colour: bool) -> String {
    let text = format!(" {:>width$}", entry.label);
    match entry.cell.score() {
        Some(score) if colour => {
            let style = style(score.mean);
            format!(" {style}{text}{style:#}")
        }
        _ => format!(" {text}"),
    }
}

pub(super) fn style(accuracy: f64) -> Style {
    let step = ((accuracy * 10.0) as usize).min(SCALE.len() - 1);
    let ink = if step < SCALE.len() / 2 { WHITE } else { BLACK };
    Style::new()
        .bg_color(Some(Ansi256Color(SCALE[step]).into()))
        .fg_color(Some(Ansi256Color(ink).into()))
}
