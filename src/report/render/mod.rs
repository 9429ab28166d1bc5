//! Renderers, one file and one row of [`FORMATS`] per output format.

mod braille;
mod csv;
mod html;
mod json;
mod latex;
mod markdown;
mod png;
mod svg;
mod text;

use super::{Grid, GridLine, Report};
use crate::error::{unknown, Result};
use std::path::Path;

/// An output format of a report.
#[derive(Debug)]
pub struct Format {
    /// Name, as typed after `--format`.
    pub name: &'static str,
    /// Extension of its files.
    pub extension: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Whether a cell may show several metrics.
    pub side_by_side: bool,
    draw: Draw,
}

#[derive(Clone, Copy, Debug)]
enum Draw {
    /// Renders lines of text.
    Text(fn(&Report, TextTarget) -> String),
    /// Renders binary data, which a terminal cannot show.
    Bytes(fn(&Report) -> Result<Vec<u8>>),
}

/// Properties of the terminal or file that a text is written to.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextTarget {
    /// Whether it supports colour.
    pub colour: bool,
    /// Its width in characters if plots are to be drawn above their numbers.
    pub width: Option<usize>,
}

/// Every format, the default first.
#[rustfmt::skip]
pub static FORMATS: &[Format] = &[
    Format::new("text", "txt", "Text for a terminal, with plots in braille", Draw::Text(text::render)),
    Format { side_by_side: true, ..Format::new("markdown", "md", "One table per grid", Draw::Text(markdown::render)) },
    Format::new("csv", "csv", "One line per cell", Draw::Text(csv::render)),
    Format::new("json", "json", "One object", Draw::Text(json::render)),
    Format::new("latex", "tex", "One table per grid, for the package booktabs", Draw::Text(latex::render)),
    Format::new("svg", "svg", "Vector picture", Draw::Text(svg::render)),
    Format::new("png", "png", "Bitmap picture, to a file or a pipe", Draw::Bytes(png::render)),
    Format::new("html", "html", "Self-contained page with pictures, numbers, and the data as CSV", Draw::Text(html::render)),
];

impl Format {
    const fn new(name: &'static str, extension: &'static str, about: &'static str, draw: Draw) -> Self {
        Self { name, extension, about, side_by_side: false, draw }
    }

    /// Finds the format called `name`.
    ///
    /// # Errors
    ///
    /// There is no such format.
    pub fn find(name: &str) -> Result<&'static Self> {
        let found = FORMATS.iter().find(|format| format.name == name);
        found.ok_or_else(|| unknown("format", name, FORMATS.iter().map(|f| f.name)))
    }

    /// The format with the extension of `file`.
    pub fn of_file(file: &Path) -> Option<&'static Self> {
        let extension = file.extension()?;
        FORMATS.iter().find(|format| extension == format.extension)
    }

    /// Whether a terminal can show it.
    pub fn is_text(&self) -> bool {
        matches!(self.draw, Draw::Text(_))
    }

    /// Renders the whole report; a text ends with a newline. Only the format `text` uses `screen`.
    ///
    /// # Errors
    ///
    /// A bitmap would be too large.
    pub fn render(&self, report: &Report, screen: TextTarget) -> Result<Vec<u8>> {
        match self.draw {
            Draw::Text(draw) => Ok(draw(report, screen).into_bytes()),
            Draw::Bytes(draw) => draw(report),
        }
    }
}

/// Lines of a grid, each with the text of every cell and the marks after it.
fn rows(grid: &Grid) -> impl Iterator<Item = (&GridLine, Vec<[String; 2]>)> {
    let seeds = grid.seeds();
    grid.lines.iter().map(move |line| {
        let cells = line.cells.iter().map(|cell| [grid.label(cell, seeds), cell.marks.clone()]);
        (line, cells.collect())
    })
}

/// Replaces each of `signs` in a text.
fn escaped(text: &str, signs: &[(char, &str)]) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match signs.iter().find(|(sign, _)| *sign == c) {
            Some((_, escape)) => written += escape,
            None => written.push(c),
        }
    }
    written
}

/// Renders several reports on one HTML page, each under its name, with links to their files.
pub fn index(reports: &[(String, Report)]) -> String {
    let formats = FORMATS.iter().map(|format| (format.name, format.extension));
    html::index(reports, &formats.collect::<Vec<_>>())
}
