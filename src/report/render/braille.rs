//! Plots in a terminal: braille characters of eight dots each, and a letter at every point.

use super::super::picture::{Body, Picture, Plot, Series};
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
struct Tile {
    dots: u32,
    letter: Option<char>,
    /// Key of the last series drawn here.
    key: Option<usize>,
}

/// A plot in characters.
struct Canvas {
    width: usize,
    tiles: Vec<Tile>,
}

/// Returns the plot of each grid of `report` in lines of at most `width` characters; empty for heatmaps and tables.
pub(super) fn charts(report: &Report, width: usize, colour: bool) -> Vec<Vec<String>> {
    let picture = panels::in_order(report);
    let each = picture.panels.iter().map(|panel| match panel.as_ref().map(|panel| &panel.body) {
        Some(Body::Plot(plot)) if !plot.x.is_named() => chart(plot, &picture, width, colour),
        _ => Vec::new(),
    });
    each.collect()
}

fn chart(plot: &Plot, picture: &Picture, width: usize, colour: bool) -> Vec<String> {
    let gutter = plot.y.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    let width = width.saturating_sub(gutter + 4).clamp(NARROWEST, WIDEST);
    let mut canvas = Canvas { width, tiles: vec![Tile::default(); width * HEIGHT] };
    let at = |x: f64, y: f64| {
        let dots = [2 * width - 1, 4 * HEIGHT - 1].map(|dots| dots as f64);
        let [right, up] = [plot.x.share(x), plot.y.share(y)];
        [(right * dots[0]).round() as i64, ((1.0 - up) * dots[1]).round() as i64]
    };
    for piece in plot.levels.iter().flat_map(|level| &level.pieces) {
        canvas.line(at(piece[0], piece[2]), at(piece[1], piece[2]), None, 4);
    }
    for series in plot.series.iter().filter(|series| series.joined) {
        for ends in series.points.windows(2) {
            let [a, b] = [0, 1].map(|i| at(ends[i].x, ends[i].y));
            canvas.line(a, b, Some(series.key), 1);
        }
    }
    for series in &plot.series {
        // The points of a long curve already form a line, so only some get letters.
        let step = series.points.len().div_ceil(WIDEST / 6).max(1);
        for point in series.points.iter().step_by(step) {
            canvas.letter(at(point.x, point.y), series.key);
        }
    }
    let mut lines = vec![format!("  {}", plot.y.name)];
    let row_of = |value: f64| at(plot.x.ends[0], value)[1] / 4;
    for row in 0..HEIGHT {
        let tick = plot.y.ticks.iter().find(|(value, _)| row_of(*value) == row as i64);
        let label = tick.map_or("", |(_, label)| label);
        let side = if tick.is_some() { '┤' } else { '│' };
        lines.push(format!("  {label:>gutter$}{side}{}", canvas.row(row, colour)));
    }
    lines.push(format!("  {:>gutter$}└{}", "", "─".repeat(width)));
    let mut below = vec![' '; width + 8];
    let mut free = 0;
    for (value, label) in &plot.x.ticks {
        let middle = at(*value, plot.y.ends[0])[0] as usize / 2;
        let start = middle.saturating_sub(label.chars().count() / 2);
        if start >= free && start + label.chars().count() <= below.len() {
            free = start + label.chars().count() + 1;
            below.splice(start..free - 1, label.chars());
        }
    }
    let below: String = below.into_iter().collect();
    lines.push(format!("  {:>gutter$} {}", "", below.trim_end()));
    lines.push(format!("  {:>gutter$} {}", "", plot.x.name));
    lines.extend(legend(plot, picture, colour).into_iter().map(|line| format!("  {:>gutter$} {line}", "")));
    lines
}

/// Letters with their names, and levels.
fn legend(plot: &Plot, picture: &Picture, colour: bool) -> Vec<String> {
    let series = plot.series.iter().map(|series: &Series| {
        let letter = painted(&letter(series.key).to_string(), Some(series.key), colour);
        format!("{letter} {}", picture.names[series.key])
    });
    let levels = plot.levels.iter().map(|level| format!("⠂ {}", level.label));
    series.chain(levels).collect()
}

/// The letter of a series, starting again at a after z.
fn letter(key: usize) -> char {
    char::from(b'a' + (key % 26) as u8)
}

fn painted(text: &str, key: Option<usize>, colour: bool) -> String {
    match key.filter(|_| colour) {
        None => text.to_owned(),
        Some(key) => {
            let style = Style::new().fg_color(Some(Ansi256Color(COLOURS[key % COLOURS.len()]).into()));
            format!("{style}{text}{style:#}")
        }
    }
}

impl Canvas {
    fn tile(&mut self, [x, y]: [i64; 2]) -> Option<&mut Tile> {
        let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
        let inside = x / 2 < self.width;
        self.tiles.get_mut(y / 4 * self.width + x / 2).filter(|_| inside)
    }

    /// Draws every `step`th dot from `from` to `to`.
    fn line(&mut self, from: [i64; 2], to: [i64; 2], key: Option<usize>, step: usize) {
        let far = (to[0] - from[0]).abs().max((to[1] - from[1]).abs()).max(1);
        for i in (0..=far).step_by(step) {
            let between = |axis: usize| {
                let moved = (to[axis] - from[axis]) as f64 * i as f64 / far as f64;
                from[axis] + moved.round() as i64
            };
            let dot = [between(0), between(1)];
            if let Some(tile) = self.tile(dot) {
                tile.dots |= DOTS[(dot[1] % 4) as usize][(dot[0] % 2) as usize];
                tile.key = key.or(tile.key);
            }
        }
    }

    fn letter(&mut self, dot: [i64; 2], key: usize) {
        if let Some(tile) = self.tile(dot) {
            (tile.letter, tile.key) = (Some(letter(key)), Some(key));
        }
    }

    fn row(&self, row: usize, colour: bool) -> String {
        let tiles = &self.tiles[row * self.width..(row + 1) * self.width];
        let drawn = tiles.iter().map(|tile| {
            let dots = || char::from_u32(BLANK | tile.dots).filter(|_| tile.dots > 0);
            let sign = tile.letter.or_else(dots).unwrap_or(' ');
            painted(&sign.to_string(), tile.key.filter(|_| sign != ' '), colour)
        });
        drawn.collect::<String>().trim_end().to_owned()
    }
}
