//! Pictures: panels on common scales, drawn as SVG or as pixels.
//!
//! A [`Picture`] is data alone. What it shows is decided elsewhere; how it looks is decided here, once for both kinds of
//! output.

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

/// Panels, and what is said around them.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// What it shows.
    pub title: String,
    /// What it rests on: rates, seeds, runs.
    pub caption: Vec<String>,
    /// Row by row; nothing where a row has no such panel.
    pub panels: Vec<Option<Panel>>,
    /// Panels in a row.
    pub across: usize,
    /// The names of the series, by their keys.
    pub names: Vec<String>,
    /// What thin lines mark, in the order of [`Level::key`].
    pub levels: Vec<String>,
}

/// One panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What its runs have in common.
    pub title: String,
    /// What is drawn in it.
    pub body: Body,
}

/// What a panel is.
#[derive(Clone, Debug)]
pub enum Body {
    /// Lines or points.
    Plot(Plot),
    /// Numbers in colour.
    Heatmap(Heatmap),
}

/// Series over an axis.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines, or sets of points.
    pub series: Vec<Series>,
    /// Thin lines, such as the accuracy of a guess.
    pub levels: Vec<Level>,
}

/// Points of one name.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its place in [`Picture::names`], which decides colour, marker and line style.
    pub key: usize,
    /// From left to right.
    pub points: Vec<Point>,
    /// Whether a line joins them.
    pub joined: bool,
    /// Whether that line keeps the height of a point until the next one.
    pub steps: bool,
    /// Whether its markers are outlines: what the paper prints, beside what was measured.
    pub hollow: bool,
}

/// One number of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What tells it from other points of its series, where names stand beside points; else empty.
    pub told: String,
    /// Where it stands across.
    pub x: f64,
    /// Its value.
    pub y: f64,
    /// The standard deviation over seeds, where there are several.
    pub std: Option<f64>,
}

/// A thin line at one height.
#[derive(Clone, Debug)]
pub struct Level {
    /// Its place in [`Picture::levels`].
    pub key: usize,
    /// Its label.
    pub label: String,
    /// Pieces: from, to, height. A single piece from end to end is labelled in the panel.
    pub pieces: Vec<[f64; 3]>,
}

/// Cells of numbers in percent, on a scale from 0 to 100.
#[derive(Clone, Debug)]
pub struct Heatmap {
    /// What the numbers are.
    pub what: &'static str,
    /// What runs across and what runs down.
    pub axes: [String; 2],
    /// Titles of the columns.
    pub columns: Vec<String>,
    /// Names of the rows, the first on top.
    pub rows: Vec<String>,
    /// By row and column.
    pub cells: Vec<Vec<Tile>>,
    /// Heights that are marked on the scale.
    pub levels: Vec<(String, f64)>,
}

/// One cell of a heatmap.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    /// As written.
    pub label: String,
    /// From 0 to 1; `None` where there is no number.
    pub shade: Option<f64>,
}

impl Tile {
    /// Its label; of a tile that only has a colour, what that stands for.
    fn said(&self) -> String {
        match self.shade {
            Some(share) if self.label.is_empty() => format!("{:.0}", 100.0 * share),
            _ => self.label.clone(),
        }
    }
}

/// What a page arranges itself: documents in SVG.
pub struct Parts {
    /// Of each panel its width in pixels and its document, nothing where a row has none.
    pub panels: Vec<Option<(u32, String)>>,
    /// A sign and the name that it stands for; the scale of heatmaps has no name.
    pub legend: Vec<(String, String)>,
}

/// Drawn as one SVG document.
pub fn svg(picture: &Picture) -> String {
    page::svg(picture)
}

/// Drawn as pixels: width, height, and three bytes a pixel.
///
/// # Errors
/// A picture with more pixels than a file should have.
pub fn bitmap(picture: &Picture) -> Result<(Size, Vec<u8>)> {
    page::bitmap(picture)
}

/// Drawn in parts.
pub fn parts(picture: &Picture) -> Parts {
    page::parts(picture)
}

/// Colours of a document on white, as it writes them, and what they are on black.
pub fn night() -> Vec<(String, String)> {
    let each = palette::NIGHT.iter();
    each.map(|(day, night)| (palette::hex(*day), palette::hex(*night)))
        .collect()
}

impl Panel {
    /// Its numbers in words, for readers who do not see it.
    pub fn words(&self, names: &[String]) -> String {
        let told = match &self.body {
            Body::Plot(plot) => plot.words(names),
            Body::Heatmap(map) => map.words(),
        };
        format!("{}. {told}", self.title)
    }
}

impl Plot {
    fn words(&self, names: &[String]) -> String {
        let mut told = Vec::new();
        for series in &self.series {
            let printed = if series.hollow {
                " as the paper prints it"
            } else {
                ""
            };
            let points = series.points.iter().map(|p| {
                let nearest = |a: &&(f64, String), b: &&(f64, String)| {
                    (a.0 - p.x).abs().total_cmp(&(b.0 - p.x).abs())
                };
                let at = match self.x.is_named() {
                    true => self
                        .x
                        .ticks
                        .iter()
                        .min_by(nearest)
                        .map_or(String::new(), |(_, name)| name.clone()),
                    false => axis::short(p.x),
                };
                let told = if p.told.is_empty() { "" } else { " at " };
                format!("{}{told}{at}: {}", p.told, self.y.said(p.y))
            });
            let points: Vec<String> = points.collect();
            told.push(format!(
                "{}{printed}: {}",
                names[series.key],
                points.join(", ")
            ));
        }
        told.extend(self.levels.iter().map(|level| level.label.clone()));
        format!("{} over {}. {}", self.y.name, self.x.name, told.join("; "))
    }
}

impl Heatmap {
    fn words(&self) -> String {
        let row = |(name, tiles): (&String, &Vec<Tile>)| {
            let cells = self.columns.iter().zip(tiles);
            let cells: Vec<String> = cells
                .map(|(column, tile)| format!("{column}: {}", tile.said()))
                .collect();
            format!("{} {name}: {}", self.axes[1], cells.join(", "))
        };
        let rows: Vec<String> = self.rows.iter().zip(&self.cells).map(row).collect();
        format!(
            "{}, {} across. {}",
            self.what,
            self.axes[0],
            rows.join("; ")
        )
    }
}
