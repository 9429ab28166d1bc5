//! Lays out title, legend, panels and caption on one page.

use super::canvas::{bitmap as pixels, cut, drawn, lines, svg as document, write, Area, Size, Unit};
use super::palette::{look, FAINT, INK};
use super::plot::{mark, LEVELS};
use super::{heatmap, labels, plot, Body, Panel, Parts, Picture};
use crate::error::{refuse, Result};
use plotters::backend::SVGBackend;
use plotters::element::{DashedPathElement, PathElement};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor};

/// Margin around the page, and between panels.
const MARGIN: u32 = 14;
/// Size of a panel of lines or points.
const PLOT: Size = (360, 280);
/// Size of a panel whose points are labelled with their names.
const NAMED: Size = (760, 560);
/// Smallest width of a page.
const NARROWEST: u32 = 420;
/// Font sizes of the title, of panel titles, and of other text.
const TITLE: u32 = 18;
const HEAD: u32 = 14;
const TEXT: u32 = 13;
/// Width of a sign in the legend.
const SIGN: u32 = 34;

/// Pixels per unit of a bitmap, for high-density screens and print, and of SVG.
const DENSE: Unit = Unit(2);
const PLAIN: Unit = Unit(1);

/// Largest number of pixels of a bitmap.
const MOST: u64 = 100_000_000;

/// One name of the legend.
enum Entry<'a> {
    Series(usize, &'a str, bool),
    Level(usize, &'a str),
}

/// Measured contents of a page, in units.
struct Layout<'a> {
    picture: &'a Picture,
    unit: Unit,
    size: Size,
    title: Vec<String>,
    /// Rows of entries.
    legend: Vec<Vec<Entry<'a>>>,
    levels: Option<Vec<(String, f64)>>,
    /// Width of the widest and height of the highest panel body.
    panel: Size,
    /// Wrapped panel titles, by row and panel.
    heads: Vec<Vec<Vec<String>>>,
    caption: Vec<String>,
}

pub fn svg(picture: &Picture) -> String {
    let layout = Layout::of(picture, PLAIN);
    document(layout.size, |area| layout.draw(area))
}

pub fn bitmap(picture: &Picture) -> Result<(Size, Vec<u8>)> {
    let layout = Layout::of(picture, DENSE);
    let size = (DENSE.px(layout.size.0), DENSE.px(layout.size.1));
    if u64::from(size.0) * u64::from(size.1) > MOST {
        refuse!(flag "--format" = "png", "the picture would have {} x {} pixels: take svg or html, or fewer runs, as with --mixer", size.0, size.1);
    }
    Ok((size, pixels(size, |area| layout.draw(area))))
}

pub fn parts(picture: &Picture) -> Parts {
    let names = labels::beside(picture);
    let panels = picture.panels.iter().map(|panel| {
        let panel = panel.as_ref()?;
        let size = body(panel, names, PLAIN);
        let drawn = document(size, |area| draw(area, panel, names, PLAIN));
        Some((size.0, drawn))
    });
    let signs = entries(picture).into_iter().map(|entry| {
        let sign = document((SIGN, 16), |area| entry.sign(area, (0, 8), PLAIN));
        (sign, entry.name().to_owned())
    });
    let mut legend: Vec<(String, String)> = signs.collect();
    legend.extend(scale(picture).map(|levels| {
        let size = (heatmap::SCALE_WIDTH, heatmap::SCALE);
        let scale = document(size, |area| heatmap::scale(area, &levels, PLAIN));
        (scale, String::new())
    }));
    Parts { panels: panels.collect(), legend }
}

/// Size of a panel, whose points are labelled if `names` is given.
fn body(panel: &Panel, names: Option<&[String]>, unit: Unit) -> Size {
    match &panel.body {
        Body::Plot(_) if names.is_some() => NAMED,
        Body::Plot(plot) => {
            let names = plot.x.ticks.iter().map(|(_, label)| unit.width(label, plot::TICK) + 8);
            let wide = match plot.x.is_named() {
                true => names.max().unwrap_or(0) * plot.x.ticks.len() as u32 + 70,
                false => 0,
            };
            (PLOT.0.max(wide), PLOT.1)
        }
        Body::Heatmap(map) => map.size(unit),
    }
}

fn draw<B: DrawingBackend>(area: &Area<B>, panel: &Panel, names: Option<&[String]>, unit: Unit) {
    match &panel.body {
        Body::Plot(plot) => plot::draw(area, plot, names, unit),
        Body::Heatmap(map) => heatmap::draw(area, map, unit),
    }
}

/// Entries of the legend.
fn entries(picture: &Picture) -> Vec<Entry<'_>> {
    let plots = || {
        picture.panels.iter().flatten().filter_map(|panel| match &panel.body {
            Body::Plot(plot) => Some(plot),
            Body::Heatmap(_) => None,
        })
    };
    let listed = match labels::beside(picture) {
        Some(_) => &[][..],
        None => &picture.names,
    };
    let series = listed.iter().enumerate().map(|(key, name)| {
        let mut of = plots().flat_map(|plot| &plot.series).filter(|series| series.key == key);
        Entry::Series(key, name, of.any(|series| series.joined))
    });
    let pieces = |key: usize| {
        let mut levels = plots().flat_map(|plot| &plot.levels);
        levels.any(|level| level.key == key && level.pieces.len() > 1)
    };
    let levels =
        picture.levels.iter().enumerate().filter(|(key, _)| pieces(*key)).map(|(key, name)| Entry::Level(key, name));
    match plots().next() {
        Some(_) => series.chain(levels).collect(),
        None => Vec::new(),
    }
}

/// Marks on the colour scale of heatmaps; `None` without heatmaps.
fn scale(picture: &Picture) -> Option<Vec<(String, f64)>> {
    let maps = picture.panels.iter().flatten().filter_map(|panel| match &panel.body {
        Body::Heatmap(map) => Some(map),
        Body::Plot(_) => None,
    });
    let mut marked: Option<Vec<(String, f64)>> = None;
    for map in maps {
        let marked = marked.get_or_insert_with(Vec::new);
        for level in &map.levels {
            if !marked.contains(level) {
                marked.push(level.clone());
            }
        }
    }
    marked
}

impl Entry<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Series(_, name, _) | Self::Level(_, name) => name,
        }
    }

    /// Draws the entry's line and marker from `at` to the right.
    fn sign<B: DrawingBackend>(&self, area: &Area<B>, (x, y): (i32, i32), unit: Unit) {
        let ends = [(x + unit.at(1), y), (x + unit.at(SIGN as i32 - 5), y)];
        let (colour, width, dash) = match self {
            Self::Series(key, ..) => (look(*key).0, 2, look(*key).2),
            Self::Level(key, _) => (FAINT, 1, LEVELS[key % LEVELS.len()]),
        };
        let style = colour.stroke_width(unit.px(width));
        let line = matches!(self, Self::Series(_, _, true) | Self::Level(..));
        match dash.map(|dash| dash.map(|length| unit.px(length))) {
            _ if !line => {}
            None => drawn(area.draw(&PathElement::new(ends.to_vec(), style))),
            Some([dash, gap]) => drawn(area.draw(&DashedPathElement::new(ends, dash, gap, style))),
        }
        if let Self::Series(key, ..) = self {
            let (colour, marker, _) = look(*key);
            mark(area, ((ends[0].0 + ends[1].0) / 2, y), marker, colour, false, unit);
        }
    }
}

impl<'a> Layout<'a> {
    fn of(picture: &'a Picture, unit: Unit) -> Self {
        let names = labels::beside(picture);
        let sizes = picture.panels.iter().flatten().map(|panel| body(panel, names, unit));
        let panel = sizes.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        let across = picture.across.max(1) as u32;
        let width = (across * (panel.0 + MARGIN)).max(NARROWEST) - MARGIN;
        let said = |text: &String, size| lines(text, unit.px(size), unit.px(width));
        let heads: Vec<Vec<Vec<String>>> = picture
            .panels
            .chunks(across as usize)
            .map(|row| row.iter().map(|slot| head(slot.as_ref(), panel.0, unit)).collect())
            .collect();
        let mut layout = Self {
            picture,
            unit,
            size: (width + 2 * MARGIN, 0),
            title: said(&picture.title, TITLE),
            legend: flowed(entries(picture), width, unit),
            levels: scale(picture),
            panel,
            heads,
            caption: picture.caption.iter().flat_map(|text| said(text, TEXT)).collect(),
        };
        layout.size.1 = layout.place(None::<&Area<SVGBackend>>);
        layout
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) {
        self.place(Some(area));
    }

    /// Lays out everything from top to bottom, and draws it if there is an area. Returns the height in units.
    fn place<B: DrawingBackend>(&self, area: Option<&Area<B>>) -> u32 {
        let unit = self.unit;
        let mut y = MARGIN;
        y = self.write(area, &self.title, (MARGIN, y), TITLE, INK) + 6;
        for row in &self.legend {
            let mut x = MARGIN;
            for entry in row {
                let name = self.named(entry);
                if let Some(area) = area {
                    entry.sign(area, (unit.at(x as i32), unit.at(y as i32 + 8)), unit);
                    let style = unit.text(TEXT, INK, (HPos::Left, VPos::Center));
                    write(area, &name, &style, (unit.at((x + SIGN) as i32), unit.at(y as i32 + 9)));
                }
                x += SIGN + unit.width(&name, TEXT) + 16;
            }
            y += 20;
        }
        if let Some(levels) = &self.levels {
            if let Some(area) = area {
                heatmap::scale(&self.part(area, (MARGIN, y), (heatmap::SCALE_WIDTH, heatmap::SCALE)), levels, unit);
            }
            y += heatmap::SCALE;
        }
        y += 6;
        let across = self.picture.across.max(1);
        for (panels, heads) in self.picture.panels.chunks(across).zip(&self.heads) {
            let head = heads.iter().map(Vec::len).max().unwrap_or(0) as u32 * (HEAD + 4);
            for (i, (panel, title)) in panels.iter().zip(heads).enumerate() {
                let Some(panel) = panel else {
                    continue;
                };
                let x = MARGIN + i as u32 * (self.panel.0 + MARGIN);
                self.write(area, title, (x, y), HEAD, INK);
                if let Some(area) = area {
                    let part = self.part(area, (x, y + head), self.panel);
                    draw(&part, panel, labels::beside(self.picture), unit);
                }
            }
            y += head + self.panel.1 + MARGIN;
        }
        self.write(area, &self.caption, (MARGIN, y), TEXT, FAINT) + MARGIN
    }

    /// Draws lines of text, if there is an area. Returns the y of the next line in units.
    fn write<B: DrawingBackend>(
        &self,
        area: Option<&Area<B>>,
        lines: &[String],
        (x, y): (u32, u32),
        size: u32,
        colour: RGBColor,
    ) -> u32 {
        let style = self.unit.text(size, colour, (HPos::Left, VPos::Top));
        for (i, line) in lines.iter().enumerate() {
            let y = y + i as u32 * (size + 4);
            if let Some(area) = area {
                write(area, line, &style, (self.unit.at(x as i32), self.unit.at(y as i32)));
            }
        }
        y + lines.len() as u32 * (size + 4)
    }

    fn part<B: DrawingBackend>(&self, area: &Area<B>, (x, y): (u32, u32), (width, height): Size) -> Area<B> {
        let [x, y, width, height] = [x, y, width, height].map(|units| self.unit.at(units as i32));
        let (right, below) = (x + width, y + height);
        let (whole_width, whole_height) = area.dim_in_pixel();
        area.margin(y, whole_height as i32 - below, x, whole_width as i32 - right)
    }

    fn named(&self, entry: &Entry) -> String {
        cut(entry.name(), self.unit.px(TEXT), self.unit.px(self.size.0 - 2 * MARGIN - SIGN))
    }
}

/// The wrapped title of a panel.
fn head(panel: Option<&Panel>, width: u32, unit: Unit) -> Vec<String> {
    let title = panel.map_or("", |panel| &panel.title);
    lines(title, unit.px(HEAD), unit.px(width))
}

/// Entries in rows of at most `width` units.
fn flowed(entries: Vec<Entry>, width: u32, unit: Unit) -> Vec<Vec<Entry>> {
    let mut rows: Vec<Vec<Entry>> = Vec::new();
    let mut used = width + 1;
    for entry in entries {
        let needs = SIGN + unit.width(entry.name(), TEXT) + 16;
        if used + needs > width + 16 || rows.is_empty() {
            rows.push(Vec::new());
            used = 0;
        }
        used += needs;
        rows.last_mut().expect("a row was pushed").push(entry);
    }
    rows
}
