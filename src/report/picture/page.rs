//! Lays out title, legend, panels and caption on one page.

use super::canvas::{bitmap as pixels, cut, lines, svg as document, Canvas, PixelSize, Unit, DENSE, PLAIN};
use super::palette::{look, Dash, Marker, Pixels, FAINT, INK};
use super::plot::level_line;
use super::{heatmap, labels, plot, Panel, PanelBody, Picture};
use crate::error::{refuse, Result};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::RGBColor;

/// Margin around the page, and between panels.
const MARGIN: u32 = 14;
/// Size of a panel of lines or points.
const PLOT: PixelSize = (360, 280);
/// Size of a panel whose points are labelled with their names.
const NAMED: PixelSize = (760, 560);
/// Smallest width of a page.
const NARROWEST: u32 = 420;
/// Font sizes of the title, of panel titles, and of other text.
const TITLE: u32 = 18;
const HEAD: u32 = 14;
const TEXT: u32 = 13;
/// Width of a sign in the legend.
const SIGN: u32 = 34;
/// Height of a row of the legend.
const ROW: u32 = 20;

/// Largest number of pixels of a bitmap.
const MOST: u64 = 100_000_000;

/// SVG documents for a page that does its own layout.
pub struct Parts {
    /// Width in pixels and document of each panel; `None` for an empty slot.
    pub panels: Vec<Option<(u32, String)>>,
    /// Documents of the legend's signs, with their names; the name of the colour scale is empty.
    pub legend: Vec<(String, String)>,
}

/// One name of the legend, with its line and marker.
struct LegendEntry<'a> {
    name: &'a str,
    line: Option<(RGBColor, u32, Dash)>,
    marker: Option<(RGBColor, Marker)>,
}

/// Content of a page, each item at the place of its top left.
struct Page<'a> {
    unit: Unit,
    /// Size in units; the height grows with the content.
    size: PixelSize,
    /// Size of the largest panel.
    panel: PixelSize,
    items: Vec<(PixelSize, Item<'a>)>,
}

enum Item<'a> {
    /// A line of text with its font size and colour.
    Text(String, (u32, RGBColor)),
    /// A sign of the legend, and its name.
    Entry(LegendEntry<'a>, String),
    Scale(Vec<(String, f64)>),
    Panel(&'a Panel, Option<&'a [String]>),
}

fn line_height(size: u32) -> u32 {
    size + 4
}

/// Draws the picture as one SVG document.
pub fn svg(picture: &Picture) -> String {
    let page = Page::of(picture, PLAIN);
    document(page.size, |canvas| page.draw(canvas))
}

/// Draws the picture as pixels. Returns their size, and three bytes per pixel.
///
/// # Errors
///
/// The picture would have more pixels than a file should.
pub fn bitmap(picture: &Picture) -> Result<(PixelSize, Vec<u8>)> {
    let page = Page::of(picture, DENSE);
    let size = (DENSE.px(page.size.0), DENSE.px(page.size.1));
    if u64::from(size.0) * u64::from(size.1) > MOST {
        refuse!(flag "--format" = "png", "the picture would have {} x {} pixels: take svg or html, or fewer runs, as with --mixer", size.0, size.1);
    }
    Ok((size, pixels(size, |canvas| page.draw(canvas))))
}

/// Draws the picture in parts.
pub fn parts(picture: &Picture) -> Parts {
    let names = labels::beside(picture);
    let panels = picture.panels.iter().map(|panel| {
        let panel = panel.as_ref()?;
        let size = body(panel, names, PLAIN);
        Some((size.0, document(size, |canvas| draw(canvas, panel, names))))
    });
    let signs = entries(picture).into_iter().map(|entry| {
        let sign = document((SIGN, 16), |canvas| entry.sign(canvas, (0, 8)));
        (sign, entry.name.to_owned())
    });
    let scale = scale(picture).map(|levels| {
        let scale = document(heatmap::SCALE, |canvas| heatmap::scale(canvas, &levels));
        (scale, String::new())
    });
    Parts { panels: panels.collect(), legend: signs.chain(scale).collect() }
}

/// Size of a panel, whose points are labelled if `names` is given.
fn body(panel: &Panel, names: Option<&[String]>, unit: Unit) -> PixelSize {
    match &panel.body {
        PanelBody::Plot(_) if names.is_some() => NAMED,
        PanelBody::Plot(plot) if plot.x.is_named() => {
            let names = plot.x.ticks.iter().map(|(_, label)| unit.width(label, plot::TICK) + 8);
            let wide = names.max().unwrap_or(0) * plot.x.ticks.len() as u32 + 70;
            (PLOT.0.max(wide), PLOT.1)
        }
        PanelBody::Plot(_) => PLOT,
        PanelBody::Heatmap(map) => map.size(unit),
    }
}

fn draw<B: DrawingBackend>(canvas: &Canvas<B>, panel: &Panel, names: Option<&[String]>) {
    match &panel.body {
        PanelBody::Plot(plot) => plot::draw(canvas, plot, names),
        PanelBody::Heatmap(map) => heatmap::draw(canvas, map),
    }
}

/// Entries of the legend.
fn entries(picture: &Picture) -> Vec<LegendEntry<'_>> {
    if picture.plots().next().is_none() {
        return Vec::new();
    }
    let listed = if labels::beside(picture).is_some() { &[][..] } else { &picture.names };
    let in_legend = |(key, _): &(usize, &String)| {
        let mut all = picture.plots().flat_map(|plot| &plot.series).filter(|series| series.key == *key).peekable();
        all.peek().is_none() || all.any(|series| series.label.is_empty())
    };
    let series = listed.iter().enumerate().filter(in_legend).map(|(key, name)| {
        let (colour, marker, dash) = look(key);
        let mut all = picture.plots().flat_map(|plot| &plot.series);
        let joined = all.any(|series| series.key == key && series.joined);
        LegendEntry { name, line: joined.then_some((colour, 2, dash)), marker: Some((colour, marker)) }
    });
    let levels = picture.levels.iter().enumerate().filter(|(key, _)| {
        let mut all = picture.plots().flat_map(|plot| &plot.levels);
        all.any(|level| level.key == *key && level.pieces.len() > 1)
    });
    let levels = levels.map(|(key, name)| LegendEntry { name, line: Some(level_line(key)), marker: None });
    series.chain(levels).collect()
}

/// Marks on the colour scale of heatmaps; `None` without heatmaps.
fn scale(picture: &Picture) -> Option<Vec<(String, f64)>> {
    let mut marked: Option<Vec<(String, f64)>> = None;
    for panel in picture.panels.iter().flatten() {
        if let PanelBody::Heatmap(map) = &panel.body {
            let marked = marked.get_or_insert_with(Vec::new);
            let new: Vec<_> = map.levels.iter().filter(|level| !marked.contains(level)).cloned().collect();
            marked.extend(new);
        }
    }
    marked
}

impl LegendEntry<'_> {
    /// Draws the entry's line and marker from a point to the right.
    fn sign<B: DrawingBackend>(&self, canvas: &Canvas<B>, (x, y): Pixels) {
        let unit = canvas.unit;
        let (left, right) = (x + unit.at(1), x + unit.at(SIGN as i32 - 5));
        if let Some(line) = self.line {
            canvas.line(vec![(left, y), (right, y)], line);
        }
        if let Some((colour, marker)) = self.marker {
            canvas.mark(((left + right) / 2, y), marker, colour, false);
        }
    }
}

impl<'a> Page<'a> {
    fn of(picture: &'a Picture, unit: Unit) -> Self {
        let names = labels::beside(picture);
        let sizes = picture.panels.iter().flatten().map(|panel| body(panel, names, unit));
        let panel = sizes.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        let across = picture.across.max(1);
        let width = (across as u32 * (panel.0 + MARGIN)).max(NARROWEST) - MARGIN;
        let mut page = Self { unit, size: (width + 2 * MARGIN, MARGIN), panel, items: Vec::new() };
        page.size.1 += page.text(&picture.title, (MARGIN, MARGIN), width, (TITLE, INK)) + 6;
        page.legend(entries(picture), width);
        if let Some(levels) = scale(picture) {
            page.items.push(((MARGIN, page.size.1), Item::Scale(levels)));
            page.size.1 += heatmap::SCALE.1;
        }
        page.size.1 += 6;
        for row in picture.panels.chunks(across) {
            let top = page.size.1;
            let heads = row.iter().flatten().map(|panel| page.wrapped(&panel.title, HEAD, page.panel.0).len());
            let below = top + heads.max().unwrap_or(0) as u32 * line_height(HEAD);
            for (i, drawn) in row.iter().enumerate() {
                if let Some(drawn) = drawn {
                    let left = MARGIN + i as u32 * (panel.0 + MARGIN);
                    page.text(&drawn.title, (left, top), panel.0, (HEAD, INK));
                    page.items.push(((left, below), Item::Panel(drawn, names)));
                }
            }
            page.size.1 = below + panel.1 + MARGIN;
        }
        for text in &picture.caption {
            page.size.1 += page.text(text, (MARGIN, page.size.1), width, (TEXT, FAINT));
        }
        page.size.1 += MARGIN;
        page
    }

    fn wrapped(&self, text: &str, size: u32, width: u32) -> Vec<String> {
        lines(text, self.unit.px(size), self.unit.px(width))
    }

    /// Adds wrapped text. Returns its height.
    fn text(&mut self, text: &str, (x, y): PixelSize, width: u32, style: (u32, RGBColor)) -> u32 {
        let height = |lines: usize| lines as u32 * line_height(style.0);
        let wrapped = self.wrapped(text, style.0, width);
        let whole = height(wrapped.len());
        let placed = wrapped.into_iter().enumerate();
        self.items.extend(placed.map(|(i, line)| ((x, y + height(i)), Item::Text(line, style))));
        whole
    }

    /// Adds entries in rows of at most `width` units.
    fn legend(&mut self, entries: Vec<LegendEntry<'a>>, width: u32) {
        let mut used = width + 1;
        for entry in entries {
            let needs = SIGN + self.unit.width(entry.name, TEXT) + 16;
            if used + needs > width + 16 {
                used = 0;
                self.size.1 += ROW;
            }
            let name = cut(entry.name, self.unit.px(TEXT), self.unit.px(width - SIGN));
            self.items.push(((MARGIN + used, self.size.1 - ROW), Item::Entry(entry, name)));
            used += needs;
        }
    }

    fn draw<B: DrawingBackend>(&self, canvas: &Canvas<B>) {
        for ((x, y), item) in &self.items {
            let at = |right: u32, down: u32| (self.unit.px(x + right) as i32, self.unit.px(y + down) as i32);
            match item {
                Item::Text(line, style) => canvas.write(line, *style, (HPos::Left, VPos::Top), at(0, 0)),
                Item::Entry(entry, name) => {
                    entry.sign(canvas, at(0, 8));
                    canvas.write(name, (TEXT, INK), (HPos::Left, VPos::Center), at(SIGN, 9));
                }
                Item::Scale(levels) => heatmap::scale(&canvas.part((*x, *y), heatmap::SCALE), levels),
                Item::Panel(panel, names) => draw(&canvas.part((*x, *y), self.panel), panel, *names),
            }
        }
    }
}
