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

pub use axis::{PlotAxis, Scale};
pub use page::{bitmap, parts, svg};

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
    pub body: PanelBody,
}

/// Content of a panel.
#[derive(Clone, Debug)]
pub enum PanelBody {
    /// Lines or points.
    Plot(Plot),
    /// Coloured cells.
    Heatmap(Heatmap),
}

/// Series over an axis.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Horizontal axis.
    pub x: PlotAxis,
    /// Vertical axis.
    pub y: PlotAxis,
    /// The lines, or sets of points.
    pub series: Vec<Series>,
    /// Thin horizontal lines, such as the accuracy of a guess.
    pub levels: Vec<Level>,
    /// Shaded ranges of the vertical axis, in which nothing was measured.
    pub shaded: Vec<[f64; 2]>,
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
    /// Name at its last point, in place of an entry in the legend; empty for none.
    pub label: String,
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
    /// Ends of the band around it, if there is one.
    pub band: Option<[f64; 2]>,
    /// Bound that is known in place of a value, which is drawn as an outline; empty for a value.
    pub bound: String,
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
    pub cells: Vec<Vec<HeatmapTile>>,
    /// Names and values of marks on the colour scale.
    pub levels: Vec<(String, f64)>,
}

/// One cell of a heatmap.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatmapTile {
    /// Its label.
    pub label: String,
    /// Colour from 0 to 1; `None` without a number.
    pub shade: Option<f64>,
}

impl HeatmapTile {
    /// Text of the cell: its label, or the percentage that its colour stands for.
    fn text(&self) -> String {
        match self.shade {
            Some(share) if self.label.is_empty() => format!("{:.0}", 100.0 * share),
            _ => self.label.clone(),
        }
    }
}

impl Picture {
    /// Its panels of lines or points.
    fn plots(&self) -> impl Iterator<Item = &Plot> {
        self.panels.iter().flatten().filter_map(|panel| match &panel.body {
            PanelBody::Plot(plot) => Some(plot),
            PanelBody::Heatmap(_) => None,
        })
    }
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
            PanelBody::Plot(plot) => plot.words(names),
            PanelBody::Heatmap(map) => map.words(),
        };
        format!("{}. {words}", self.title)
    }
}

impl Plot {
    /// A value in words, or the bound that is known in place of one.
    fn value(&self, point: &Point) -> String {
        match &*point.bound {
            "" => self.y.format(point.y),
            bound => bound.to_owned(),
        }
    }

    fn words(&self, names: &[String]) -> String {
        let point = |p: &Point| {
            let distance = |tick: &&(f64, String)| (tick.0 - p.x).abs();
            let nearest = self.x.ticks.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
            let at = match nearest.filter(|tick| self.x.is_named() || tick.0 == p.x) {
                Some((_, name)) => name.clone(),
                None => axis::short(p.x),
            };
            let separator = if p.detail.is_empty() { "" } else { " at " };
            format!("{}{separator}{at}: {}", p.detail, self.value(p))
        };
        let series = self.series.iter().map(|series| {
            let printed = if series.hollow { " as the paper prints it" } else { "" };
            let points: Vec<String> = series.points.iter().map(point).collect();
            format!("{}{printed}: {}", names[series.key], points.join(", "))
        });
        let parts: Vec<String> = series.chain(self.levels.iter().map(|level| level.label.clone())).collect();
        // An axis of names has no name of its own.
        let over = if self.x.name.is_empty() { String::new() } else { format!(" over {}", self.x.name) };
        format!("{}{over}. {}", self.y.name, parts.join("; "))
    }
}

impl Heatmap {
    fn words(&self) -> String {
        let row = |(name, tiles): (&String, &Vec<HeatmapTile>)| {
            let cells: Vec<String> =
                self.columns.iter().zip(tiles).map(|(column, tile)| format!("{column}: {}", tile.text())).collect();
            format!("{} {name}: {}", self.axes[1], cells.join(", "))
        };
        let rows: Vec<String> = self.rows.iter().zip(&self.cells).map(row).collect();
        format!("{}, {} across. {}", self.what, self.axes[0], rows.join("; "))
    }
}
