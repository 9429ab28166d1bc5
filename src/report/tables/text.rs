//! For a terminal: aligned at the decimal point, marks hanging behind.

use super::super::text::style;
use super::forms::{Entry, Scribe, Written};
use super::table::Table;
use super::Tables;

pub(super) fn render(tables: &Tables, colour: bool) -> String {
    let mut lines = vec![tables.heading(false)];
    for table in &tables.tables {
        lines.push(String::new());
        lines.push(table.title());
        lines.extend(grid(tables, table, colour));
    }
    lines.push(String::new());
    lines.extend(tables.closing(false));
    lines.join("\n") + "\n"
}

fn grid(tables: &Tables, table: &Table, colour: bool) -> Vec<String> {
    let scribe = Scribe {
        tables,
        table,
        metric: tables.metric,
    };
    let grid = scribe.grid(&|place| scribe.entry(place));
    let header = scribe.header();
    let names = grid.iter().map(|line| line.name.chars().count());
    let first = names.max().unwrap_or(0);
    let widths: Vec<[usize; 2]> = (0..header.len())
        .map(|column| widths(&header[column], &grid, column))
        .collect();
    let title = |(title, [number, marks]): (&String, &[usize; 2])| {
        let shifted = format!("{title:>number$}");
        format!("  {shifted:<0$}", number + marks)
    };
    let titles: String = header.iter().zip(&widths).map(title).collect();
    let mut lines = vec![format!("  {:first$}{titles}", "")];
    for line in &grid {
        let cells = line.entries.iter().zip(&widths);
        let cells: String = cells.map(|(e, width)| painted(e, *width, colour)).collect();
        lines.push(format!("  {:first$}{cells}", line.name));
    }
    lines.extend(scribe.notes().into_iter().map(|note| format!("  {note}")));
    let trimmed = lines.iter().map(|line| line.trim_end().to_owned());
    trimmed.collect()
}

/// Of a column's numbers and marks; a long title widens the numbers.
fn widths(title: &str, grid: &[Written], column: usize) -> [usize; 2] {
    let entries = || grid.iter().map(|line| &line.entries[column]);
    let longest = |text: fn(&Entry) -> &String| {
        let lengths = entries().map(|entry| text(entry).chars().count());
        lengths.max().unwrap_or(0)
    };
    let (numbers, marks) = (longest(|e| &e.number), longest(|e| &e.marks));
    [numbers.max(title.chars().count()), marks]
}

fn painted(entry: &Entry, [number, marks]: [usize; 2], colour: bool) -> String {
    let behind = format!("{:<marks$}", entry.marks);
    let text = format!(" {:>number$}", entry.number);
    match entry.accuracy {
        Some(accuracy) if colour => {
            let style = style(accuracy);
            format!(" {style}{text}{style:#}{behind}")
        }
        _ => format!(" {text}{behind}"),
    }
}
