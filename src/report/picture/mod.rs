//! Pictures: panels on common scales, drawn as SVG or as pixels.
//!
//! A [`Picture`] is plain data. Its content is decided by the caller, its look here, once for both output formats.

mod axis;
mod canvas;
mod heatmap;
mod labels;
mod page;
mod palette;
mod plot;

pub use axis::{Axis, Scale};
pub use canvas::Size;

use crate::error::Result;

/// Panels and the texts around them.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Heading.
    pub title: String,
    /// Caption: rates, seeds, runs.
    pub caption: Vec<String>,
    /// Panels row by row; `None` for an empty slot.
    pub panels: Vec<Option<Panel>>,
    /// Panels in a row.
    pub across: usize,
    /// The names of the series, by their keys.
    pub names: Vec<String>,
    /// Names of the levels, by [`Level::key`].
    pub levels: Vec<String>,
}

/// One panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Settings that its runs have in common.
    pub title: String,
    /// Content of the panel.
    pub body: Body,
}

/// Content of a panel.
#[derive(Clone, Debug)]
pub enum Body {
    /// Lines or points.
    Plot(Plot),
    /// Coloured cells.
    Heatmap(Heatmap),
}

/// Series over an axis.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The lines, or sets of points.
    pub series: Vec<Series>,
    /// Thin horizontal lines, such as the accuracy of a guess.
    pub levels: Vec<Level>,
}

/// Points of one name.
#[derive(Clone, Debug)]
pub struct Series {
    /// Index in [`Picture::names`], which determines colour, marker and line style.
    pub key: usize,
    /// Points from left to right.
    pub points: Vec<Point>,
    /// Whether a line joins them.
    pub joined: bool,
    /// Whether the line is a step function, constant up to the next point.
    pub steps: bool,
    /// Whether its markers are outlines, as used for numbers printed in the paper.
    pub hollow: bool,
}

/// One number of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Settings that distinguish it from other points of its series, where names stand beside points; otherwise empty.
    pub detail: String,
    /// Horizontal position.
    pub x: f64,
    /// Value, the vertical position.
    pub y: f64,
    /// The standard deviation over seeds, if there are several.
    pub std: Option<f64>,
}

/// A thin horizontal line.
#[derive(Clone, Debug)]
pub struct Level {
    /// Index in [`Picture::levels`].
    pub key: usize,
    /// Its label.
    pub label: String,
    /// Pieces: first x, last x, and y. A single piece is labelled in the panel.
    pub pieces: Vec<[f64; 3]>,
}

/// Coloured cells, on a scale from 0 to 100 %.
#[derive(Clone, Debug)]
pub struct Heatmap {
    /// Quantity in the cells.
    pub what: &'static str,
    /// Names of the horizontal and the vertical axis.
    pub axes: [String; 2],
    /// Titles of the columns.
    pub columns: Vec<String>,
    /// Names of the rows, the first on top.
    pub rows: Vec<String>,
    /// Cells by row and column.
    pub cells: Vec<Vec<Tile>>,
    /// Names and values of marks on the colour scale.
    pub levels: Vec<(String, f64)>,
}

/// One cell of a heatmap.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    /// Its label.
    pub label: String,
    /// Colour from 0 to 1; `None` without a number.
    pub shade: Option<f64>,
}

impl Tile {
    /// Text of the cell: its label, or the percentage that its colour stands for.
    fn text(&self) -> String {
        match self.shade {
            Some(share) if self.label.is_empty() => format!("{:.0}", 100.0 * share),
            _ => self.label.clone(),
        }
    }
}

/// SVG documents for a page that does its own layout.
pub struct Parts {
    /// Width in pixels and document of each panel; `None` for an empty slot.
    pub panels: Vec<Option<(u32, String)>>,
    /// Documents of the legend's signs, with their names; the name of the colour scale is empty.
    pub legend: Vec<(String, String)>,
}

/// Draws the picture as one SVG document.
pub fn svg(picture: &Picture) -> String {
    page::svg(picture)
}

/// Draws the picture as pixels: width and height, and three bytes per pixel.
///
/// # Errors
///
/// The picture would have more pixels than a file should.
pub fn bitmap(picture: &Picture) -> Result<(Size, Vec<u8>)> {
    page::bitmap(picture)
}

/// Draws the picture in parts.
pub fn parts(picture: &Picture) -> Parts {
    page::parts(picture)
}

/// Colours of a document on white, and their replacements on black.
pub fn night() -> Vec<(String, String)> {
    let each = palette::NIGHT.iter();
    each.map(|(day, night)| (palette::hex(*day), palette::hex(*night))).collect()
}

impl Panel {
    /// Describes the numbers in words, for screen readers.
    pub fn words(&self, names: &[String]) -> String {
        let words = match &self.body {
            Body::Plot(plot) => plot.words(names),
            Body::Heatmap(map) => map.words(),
        };
        format!("{}. {words}", self.title)
    }
}

impl Plot {
    fn words(&self, names: &[String]) -> String {
        let mut parts = Vec::new();
        for series in &self.series {
            let printed = if series.hollow { " as the paper prints it" } else { "" };
            let points: Vec<String> = series
                .points
                .iter()
                .map(|p| {
                    let nearest =
                        |a: &&(f64, String), b: &&(f64, String)| (a.0 - p.x).abs().total_cmp(&(b.0 - p.x).abs());
                    let at = match self.x.is_named() {
                        true => self.x.ticks.iter().min_by(nearest).map_or(String::new(), |(_, name)| name.clone()),
                        false => axis::short(p.x),
                    };
                    let separator = if p.detail.is_empty() { "" } else { " at " };
                    format!("{}{separator}{at}: {}", p.detail, self.y.format(p.y))
                })
                .collect();
            parts.push(format!("{}{printed}: {}", names[series.key], points.join(", ")));
        }
        parts.extend(self.levels.iter().map(|level| level.label.clone()));
        format!("{} over {}. {}", self.y.name, self.x.name, parts.join("; "))
    }
}

impl Heatmap {
    fn words(&self) -> String {
        let row = |(name, tiles): (&String, &Vec<Tile>)| {
            let cells: Vec<String> =
                self.columns.iter().zip(tiles).map(|(column, tile)| format!("{column}: {}", tile.text())).collect();
            format!("{} {name}: {}", self.axes[1], cells.join(", "))
        };
        let rows: Vec<String> = self.rows.iter().zip(&self.cells).map(row).collect();
        format!("{}, {} across. {}", self.what, self.axes[0], rows.join("; "))
    }
}
