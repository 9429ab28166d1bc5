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

use super::Report;
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

#[derive(Debug)]
enum Draw {
    /// Renders lines of text.
    Text(fn(&Report, Screen) -> String),
    /// Renders binary data, which a terminal cannot show.
    Bytes(fn(&Report) -> Result<Vec<u8>>),
}

/// Properties of the terminal or file that a text is written to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Screen {
    /// Whether it supports colour.
    pub colour: bool,
    /// Its width in characters if plots are to be drawn above their numbers.
    pub width: Option<usize>,
}

/// Every format, the default first.
#[rustfmt::skip]
pub static FORMATS: &[Format] = &[
    Format {
        name: "text", extension: "txt", about: "Text for a terminal, with plots in braille",
        side_by_side: false, draw: Draw::Text(text::render),
    },
    Format {
        name: "markdown", extension: "md", about: "One table per grid",
        side_by_side: true, draw: Draw::Text(markdown::render),
    },
    Format {
        name: "csv", extension: "csv", about: "One line per cell",
        side_by_side: false, draw: Draw::Text(csv::render),
    },
    Format {
        name: "json", extension: "json", about: "One object",
        side_by_side: false, draw: Draw::Text(json::render),
    },
    Format {
        name: "latex", extension: "tex", about: "One table per grid, for the package booktabs",
        side_by_side: false, draw: Draw::Text(latex::render),
    },
    Format {
        name: "svg", extension: "svg", about: "Vector picture",
        side_by_side: false, draw: Draw::Text(svg::render),
    },
    Format {
        name: "png", extension: "png", about: "Bitmap picture, to a file or a pipe",
        side_by_side: false, draw: Draw::Bytes(png::render),
    },
    Format {
        name: "html", extension: "html", about: "Self-contained page with pictures, numbers, and the data as CSV",
        side_by_side: false, draw: Draw::Text(html::render),
    },
];

impl Format {
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
    pub fn render(&self, report: &Report, screen: Screen) -> Result<Vec<u8>> {
        match self.draw {
            Draw::Text(draw) => Ok(draw(report, screen).into_bytes()),
            Draw::Bytes(draw) => draw(report),
        }
    }
}

/// Renders several reports on one HTML page, each under its name, with links to their files.
pub fn index(reports: &[(String, Report)]) -> String {
    let formats = FORMATS.iter().map(|format| (format.name, format.extension));
    html::index(reports, &formats.collect::<Vec<_>>())
}
