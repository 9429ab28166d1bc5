//! Text for a terminal: numbers aligned at the decimal point, marks after them, coloured on one scale for all grids.

use super::super::{Cell, Grid, Report};
use super::{braille, Screen};
use anstyle::{Ansi256Color, Style};

/// Ten steps of the viridis map in the terminal's 256 colours: one per tenth of accuracy.
const SCALE: [u8; 10] = [53, 54, 60, 24, 30, 36, 35, 77, 148, 226];
const WHITE: u8 = 231;
const BLACK: u8 = 16;

pub(super) fn render(report: &Report, screen: Screen) -> String {
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
    let seeds = grid.seeds();
    let labels = |i: usize| grid.lines.iter().map(move |line| grid.label(&line.cells[i], seeds));
    // Widths of the numbers of each column, and of the marks after them.
    let widths: Vec<[usize; 2]> = (0..grid.columns.len())
        .map(|i| {
            let numbers = labels(i).chain([grid.columns[i].title.clone()]);
            let marks = grid.lines.iter().map(|line| &line.cells[i].marks);
            [longest(numbers), longest(marks)]
        })
        .collect();
    let name = |line: &super::super::Line| match line.printed {
        true => format!("  {}", line.name()),
        false => line.name().to_owned(),
    };
    let corner = grid.corner();
    let names: Vec<String> = grid.lines.iter().map(name).collect();
    let right = grid.lines.iter().all(|line| line.tick.at.is_some());
    let first = longest(names.iter().chain([&corner]));
    let named = |name: &str| match right {
        true => format!("  {name:>first$}"),
        false => format!("  {name:first$}"),
    };
    let titles = grid
        .columns
        .iter()
        .zip(&widths)
        .map(|(tick, [number, marks])| format!("  {:>number$}{:marks$}", tick.title, ""));

    let mut lines = vec![named(&corner) + &titles.collect::<String>()];
    for (name, line) in names.iter().zip(&grid.lines) {
        let cells = line.cells.iter().zip(&widths).map(|(cell, widths)| {
            let shade = cell.shade(grid.style).filter(|_| colour);
            painted(cell, &grid.label(cell, seeds), *widths, shade)
        });
        lines.push(named(name) + &cells.collect::<String>());
    }
    let trimmed = lines.iter().map(|line| line.trim_end().to_owned());
    trimmed.collect()
}

fn longest<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> usize {
    let widths = texts.map(|text| text.as_ref().chars().count());
    widths.max().unwrap_or(0)
}

fn painted(cell: &Cell, label: &str, [number, marks]: [usize; 2], shade: Option<f64>) -> String {
    let behind = format!("{:<marks$}", cell.marks);
    let text = format!(" {label:>number$}");
    match shade.map(style) {
        Some(style) => format!(" {style}{text}{style:#}{behind}"),
        None => format!(" {text}{behind}"),
    }
}

fn style(accuracy: f64) -> Style {
    let step = ((accuracy * 10.0) as usize).min(SCALE.len() - 1);
    let ink = if step < SCALE.len() / 2 { WHITE } else { BLACK };
    Style::new().bg_color(Some(Ansi256Color(SCALE[step]).into())).fg_color(Some(Ansi256Color(ink).into()))
}
