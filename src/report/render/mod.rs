//! One renderer a format: a file, and a row of [`FORMATS`].

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

/// A form that a report can be written in.
#[derive(Debug)]
pub struct Format {
    /// As typed after `--format`.
    pub name: &'static str,
    /// How names of its files end.
    pub extension: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Whether there is room for several metrics in a cell.
    pub side_by_side: bool,
    draw: Draw,
}

#[derive(Debug)]
enum Draw {
    /// Lines of text.
    Text(fn(&Report, Screen) -> String),
    /// What no terminal shows.
    Bytes(fn(&Report) -> Result<Vec<u8>>),
}

/// What a text is shown on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Screen {
    /// Whether it takes colour.
    pub colour: bool,
    /// Its width in characters, where lines and points are to be drawn in them above their numbers.
    pub width: Option<usize>,
}

/// Every format, the default first.
#[rustfmt::skip]
pub static FORMATS: &[Format] = &[
    Format {
        name: "text", extension: "txt", about: "For a terminal, which shows lines and points as well",
        side_by_side: false, draw: Draw::Text(text::render),
    },
    Format {
        name: "markdown", extension: "md", about: "A table a grid",
        side_by_side: true, draw: Draw::Text(markdown::render),
    },
    Format {
        name: "csv", extension: "csv", about: "A line a cell",
        side_by_side: false, draw: Draw::Text(csv::render),
    },
    Format {
        name: "json", extension: "json", about: "One object",
        side_by_side: false, draw: Draw::Text(json::render),
    },
    Format {
        name: "latex", extension: "tex", about: "A table a grid, for the package booktabs",
        side_by_side: false, draw: Draw::Text(latex::render),
    },
    Format {
        name: "svg", extension: "svg", about: "A picture without pixels",
        side_by_side: false, draw: Draw::Text(svg::render),
    },
    Format {
        name: "png", extension: "png", about: "A picture of pixels, to a file or a pipe",
        side_by_side: false, draw: Draw::Bytes(png::render),
    },
    Format {
        name: "html", extension: "html", about: "A page of its own: pictures, numbers, and the data as CSV",
        side_by_side: false, draw: Draw::Text(html::render),
    },
];

impl Format {
    /// The format called `name`.
    pub fn find(name: &str) -> Result<&'static Self> {
        let found = FORMATS.iter().find(|format| format.name == name);
        found.ok_or_else(|| unknown("format", name, FORMATS.iter().map(|f| f.name)))
    }

    /// The format that the name of `file` ends in.
    pub fn of_file(file: &Path) -> Option<&'static Self> {
        let extension = file.extension()?;
        FORMATS.iter().find(|format| extension == format.extension)
    }

    /// Whether a terminal can show it.
    pub fn is_text(&self) -> bool {
        matches!(self.draw, Draw::Text(_))
    }

    /// The whole report; a text has a newline at its end. Only `text` asks what it is shown on.
    ///
    /// # Errors
    /// A picture that is too large for pixels.
    pub fn render(&self, report: &Report, screen: Screen) -> Result<Vec<u8>> {
        match self.draw {
            Draw::Text(draw) => Ok(draw(report, screen).into_bytes()),
            Draw::Bytes(draw) => draw(report),
        }
    }
}

/// One page of several reports, each under its name, with links to their files.
pub fn index(reports: &[(String, Report)]) -> String {
    let formats = FORMATS.iter().map(|format| (format.name, format.extension));
    html::index(reports, &formats.collect::<Vec<_>>())
}
