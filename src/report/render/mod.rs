//! One renderer a format: a file, and a row of [`FORMATS`].

mod csv;
mod json;
mod markdown;
mod text;

use super::Report;
use crate::error::{unknown, Result};

/// A form that a report can be printed in.
#[derive(Debug)]
pub struct Format {
    /// As typed after `--format`.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Whether there is room for several metrics in a cell.
    pub side_by_side: bool,
    draw: fn(&Report, bool) -> String,
}

/// Every format, the default first.
#[rustfmt::skip]
pub static FORMATS: &[Format] = &[
    Format { name: "text", about: "For a terminal", side_by_side: false, draw: text::render },
    Format { name: "markdown", about: "A table a grid", side_by_side: true, draw: markdown::render },
    Format { name: "csv", about: "A line a cell", side_by_side: false, draw: csv::render },
    Format { name: "json", about: "One object", side_by_side: false, draw: json::render },
];

impl Format {
    /// The format called `name`.
    pub fn find(name: &str) -> Result<&'static Self> {
        let found = FORMATS.iter().find(|format| format.name == name);
        found.ok_or_else(|| unknown("format", name, FORMATS.iter().map(|f| f.name)))
    }

    /// The whole report as text, with a newline at its end. Only `text` knows colour.
    pub fn render(&self, report: &Report, colour: bool) -> String {
        (self.draw)(report, colour)
    }
}
