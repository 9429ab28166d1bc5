//! A table for a page; without a metric, with all three numbers in a place.

use super::super::markdown::items;
use super::forms::{Scribe, Written};
use super::Tables;

pub(super) fn render(tables: &Tables) -> String {
    let all_three = tables.metric.is_none();
    let mut blocks = vec![tables.heading(all_three)];
    for table in &tables.tables {
        blocks.push(format!("### {}", table.title()));
        let scribe = Scribe {
            tables,
            table,
            metric: tables.metric,
        };
        blocks.push(grid(&scribe, all_three));
        blocks.extend(items(&scribe.notes()));
    }
    blocks.extend(items(&tables.closing(all_three)));
    blocks.join("\n\n") + "\n"
}

fn grid(scribe: &Scribe, all_three: bool) -> String {
    let grid = scribe.grid(&|place| match all_three {
        true => scribe.all_three(place),
        false => scribe.entry(place),
    });
    let header = scribe.header();
    let mut lines = vec![
        format!("| | {} |", header.join(" | ")),
        format!("|---|{}", "---:|".repeat(header.len())),
    ];
    lines.extend(grid.iter().map(line));
    lines.join("\n")
}

fn line(written: &Written) -> String {
    let name = written.name.trim_start();
    let texts = written.entries.iter();
    let texts: Vec<String> = texts.map(|e| format!("{}{}", e.number, e.marks)).collect();
    let name = if written.printed {
        format!("*{name}*")
    } else {
        name.to_owned()
    };
    format!("| {name} | {} |", texts.join(" | "))
}
