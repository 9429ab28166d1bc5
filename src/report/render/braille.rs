//! Plots in a terminal: braille characters of eight dots each, and a letter at every point.

use super::super::picture::{PanelBody, Picture, Plot, Series};
use super::super::{panels, Report};
use anstyle::{Ansi256Color, Style};

/// Rows of characters of a plot.
const HEIGHT: usize = 14;
/// Largest width of a plot in characters.
const WIDEST: usize = 72;
/// Smallest width of a plot in characters.
const NARROWEST: usize = 24;

/// The palette of pictures in the terminal's 256 colours.
const COLOURS: [u8; 7] = [32, 166, 36, 175, 214, 75, 94];

/// The braille character without dots; bits of the dots are added to it.
const BLANK: u32 = 0x2800;
/// Bits of the dots, by row and column.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// One character.
#[derive(Clone, Copy, Default)]
struct BrailleCell {
    dots: u32,
    letter: Option<char>,
    /// Key of the last series drawn here.
    key: Option<usize>,
}

/// A plot in characters.
struct BrailleCanvas {
    width: usize,
    tiles: Vec<BrailleCell>,
}

/// Returns the plot of each grid of `report` in lines of at most `width` characters; empty for heatmaps and tables.
pub(super) fn charts(report: &Report, width: usize, colour: bool) -> Vec<Vec<String>> {
    let picture = panels::in_order(report);
    let each = picture.panels.iter().map(|panel| match panel.as_ref().map(|panel| &panel.body) {
        Some(PanelBody::Plot(plot)) if !plot.x.is_named() => chart(plot, &picture, width, colour),
        _ => Vec::new(),
    });
    each.collect()
}

fn chart(plot: &Plot, picture: &Picture, width: usize, colour: bool) -> Vec<String> {
    let gutter = plot.y.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    let width = width.saturating_sub(gutter + 4).clamp(NARROWEST, WIDEST);
    let at = |x: f64, y: f64| {
        let [right, down] = [plot.x.share(x), 1.0 - plot.y.share(y)];
        [(right * (2 * width - 1) as f64).round() as i64, (down * (4 * HEIGHT - 1) as f64).round() as i64]
    };
    let canvas = drawn(plot, width, &at);
    let mut lines = vec![format!("  {}", plot.y.name)];
    for row in 0..HEIGHT {
        let here = |value: f64| at(plot.x.ends[0], value)[1] / 4 == row as i64;
        let label = plot.y.ticks.iter().find(|(value, _)| here(*value)).map(|(_, label)| label.as_str());
        let side = if label.is_some() { '┤' } else { '│' };
        lines.push(format!("  {:>gutter$}{side}{}", label.unwrap_or(""), canvas.row(row, colour)));
    }
    lines.push(format!("  {:>gutter$}└{}", "", "─".repeat(width)));
    let mut below = vec![' '; width + 8];
    let mut free = 0;
    for (value, label) in &plot.x.ticks {
        let length = label.chars().count();
        let start = (at(*value, plot.y.ends[0])[0] as usize / 2).saturating_sub(length / 2);
        if start >= free && start + length <= below.len() {
            below.splice(start..start + length, label.chars());
            free = start + length + 1;
        }
    }
    let below: String = below.into_iter().collect();
    let series = plot
        .series
        .iter()
        .map(|Series { key, .. }| format!("{} {}", painted(letter(*key), Some(*key), colour), picture.names[*key]));
    let levels = plot.levels.iter().map(|level| format!("⠂ {}", level.label));
    let texts = [below.trim_end().to_owned(), plot.x.name.clone()].into_iter().chain(series).chain(levels);
    lines.extend(texts.map(|text| format!("  {:>gutter$} {text}", "")));
    lines
}

/// Draws levels as dots, series as lines, and a letter at every point.
fn drawn(plot: &Plot, width: usize, at: &dyn Fn(f64, f64) -> [i64; 2]) -> BrailleCanvas {
    let mut canvas = BrailleCanvas { width, tiles: vec![BrailleCell::default(); width * HEIGHT] };
    for [from, to, height] in plot.levels.iter().flat_map(|level| &level.pieces) {
        canvas.line(at(*from, *height), at(*to, *height), None, 4);
    }
    for series in plot.series.iter().filter(|series| series.joined) {
        for ends in series.points.windows(2) {
            canvas.line(at(ends[0].x, ends[0].y), at(ends[1].x, ends[1].y), Some(series.key), 1);
        }
    }
    for series in &plot.series {
        // The points of a long curve already form a line, so only some get letters.
        let step = series.points.len().div_ceil(WIDEST / 6).max(1);
        for point in series.points.iter().step_by(step) {
            if let Some(tile) = canvas.tile(at(point.x, point.y)) {
                (tile.letter, tile.key) = (Some(letter(series.key)), Some(series.key));
            }
        }
    }
    canvas
}

/// The letter of a series, starting again at a after z.
fn letter(key: usize) -> char {
    char::from(b'a' + (key % 26) as u8)
}

fn painted(sign: char, key: Option<usize>, colour: bool) -> String {
    let ink = key.filter(|_| colour).map(|key| Ansi256Color(COLOURS[key % COLOURS.len()]).into());
    let style = Style::new().fg_color(ink);
    format!("{style}{sign}{style:#}")
}

impl BrailleCanvas {
    fn tile(&mut self, [x, y]: [i64; 2]) -> Option<&mut BrailleCell> {
        let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
        let inside = x / 2 < self.width;
        self.tiles.get_mut(y / 4 * self.width + x / 2).filter(|_| inside)
    }

    /// Draws every `step`th dot from `from` to `to`.
    fn line(&mut self, from: [i64; 2], to: [i64; 2], key: Option<usize>, step: usize) {
        let far = (to[0] - from[0]).abs().max((to[1] - from[1]).abs()).max(1);
        for i in (0..=far).step_by(step) {
            let dot = [0, 1].map(|axis| {
                let moved = (to[axis] - from[axis]) as f64 * i as f64 / far as f64;
                from[axis] + moved.round() as i64
            });
            if let Some(tile) = self.tile(dot) {
                tile.dots |= DOTS[(dot[1] % 4) as usize][(dot[0] % 2) as usize];
                tile.key = key.or(tile.key);
            }
        }
    }

    fn row(&self, row: usize, colour: bool) -> String {
        let tiles = &self.tiles[row * self.width..(row + 1) * self.width];
        let drawn = tiles.iter().map(|tile| {
            let dots = || char::from_u32(BLANK | tile.dots).filter(|_| tile.dots > 0);
            let sign = tile.letter.or_else(dots).unwrap_or(' ');
            painted(sign, tile.key.filter(|_| sign != ' '), colour)
        });
        drawn.collect::<String>().trim_end().to_owned()
    }
}
