//! Text for a terminal: numbers aligned at the decimal point, marks after them, coloured on one scale for all grids.

use super::super::{Grid, GridLine, Report};
use super::{braille, rows, TextTarget};
use anstyle::{Ansi256Color, Style};

/// Ten steps of the viridis map in the terminal's 256 colours: one per tenth of accuracy.
const SCALE: [u8; 10] = [53, 54, 60, 24, 30, 36, 35, 77, 148, 226];
const WHITE: u8 = 231;
const BLACK: u8 = 16;

pub(super) fn render(report: &Report, screen: TextTarget) -> String {
    let mut lines = vec![report.heading.clone()];
    let charts = screen.width.map(|width| braille::charts(report, width, screen.colour));
    for (i, grid) in report.grids.iter().enumerate() {
        let grid = &*grid.abridged();
        lines.push(String::new());
        lines.push(grid.title.clone());
        lines.extend(charts.iter().flat_map(|charts| charts[i].iter().cloned()));
        lines.extend(drawn(grid, screen.colour));
        lines.extend(grid.notes.iter().map(|note| format!("  {note}")));
    }
    lines.push(String::new());
    lines.extend(report.notes.iter().cloned());
    lines.join("\n") + "\n"
}

fn drawn(grid: &Grid, colour: bool) -> Vec<String> {
    let rows: Vec<(&GridLine, Vec<[String; 2]>)> = rows(grid).collect();
    // Widths of the numbers of each column, and of the marks after them.
    let widths = grid.columns.iter().enumerate().map(|(i, column)| {
        let [numbers, marks] = [0, 1].map(|part| longest(rows.iter().map(|(_, cells)| &cells[i][part])));
        [numbers.max(longest([&column.title])), marks]
    });
    let widths: Vec<[usize; 2]> = widths.collect();
    let indented = |line: &GridLine| format!("{}{}", if line.printed { "  " } else { "" }, line.name());
    let names: Vec<String> = grid.lines.iter().map(indented).collect();
    let corner = grid.corner();
    let first = longest(names.iter().chain([&corner]));
    let right = grid.lines.iter().all(|line| line.tick.at.is_some());
    let named = |name: &str| if right { format!("  {name:>first$}") } else { format!("  {name:first$}") };
    let titles = grid.columns.iter().zip(&widths);
    let titles = titles.map(|(tick, [number, marks])| format!("  {:>number$}{:marks$}", tick.title, ""));
    let mut lines = vec![named(&corner) + &titles.collect::<String>()];
    for (name, (line, texts)) in names.iter().zip(&rows) {
        let cells = line.cells.iter().zip(texts).zip(&widths).map(|((cell, [label, marks]), [number, behind])| {
            let text = format!(" {label:>number$}");
            let style = cell.shade(grid.style).filter(|_| colour).map_or(Style::new(), style);
            format!(" {style}{text}{style:#}{marks:<behind$}")
        });
        lines.push(named(name) + &cells.collect::<String>());
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn longest<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> usize {
    texts.into_iter().map(|text| text.as_ref().chars().count()).max().unwrap_or(0)
}

fn style(accuracy: f64) -> Style {
    let step = ((accuracy * 10.0) as usize).min(SCALE.len() - 1);
    let ink = if step < SCALE.len() / 2 { WHITE } else { BLACK };
    Style::new().bg_color(Some(Ansi256Color(SCALE[step]).into())).fg_color(Some(Ansi256Color(ink).into()))
}
