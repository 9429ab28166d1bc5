//! A panel of coloured cells, and the scale of the colours.

use super::axis::PlotAxis;
use super::canvas::{Canvas, PixelSize, Unit};
use super::palette::{shade, EMPTY, FAINT, INK};
use super::plot::{Chart, TICK};
use super::Heatmap;
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, VPos};

/// Font sizes of labels in cells; the largest that fits is used.
const LABELS: [u32; 5] = [13, 12, 11, 10, 9];
/// Smallest width and height of a cell with a label.
const CELL: PixelSize = (40, 26);
/// Width and height of a cell without a label.
const BARE: PixelSize = (14, 14);
/// Largest width of a cell.
const WIDEST: u32 = 96;
/// Height reserved below the cells.
const BELOW: u32 = 42;

impl Heatmap {
    /// Width and height in units that fit every cell.
    pub fn size(&self, unit: Unit) -> PixelSize {
        let bare = self.cells.iter().flatten().all(|tile| tile.label.is_empty());
        let least = if bare { BARE } else { CELL };
        let labels = self.cells.iter().flatten().map(|tile| unit.width(&tile.label, LABELS[1]) + 6);
        // A column is as wide as its name, so that no name is left out.
        let wide = labels.chain(self.columns.iter().map(|name| unit.width(name, TICK) + 10));
        let cell = if bare { least.0 } else { wide.max().unwrap_or(0).clamp(least.0, WIDEST) };
        let names = self.rows.iter().map(|name| unit.width(name, TICK)).max().unwrap_or(0);
        let width = cell * self.columns.len() as u32 + names + 52;
        (width, least.1 * self.rows.len() as u32 + BELOW + 8)
    }
}

/// Draws `map` into the whole of `canvas`.
pub fn draw<B: DrawingBackend>(canvas: &Canvas<B>, map: &Heatmap) {
    let [mut x, mut y] = [&map.columns, &map.rows].map(PlotAxis::names);
    (x.name, y.name) = (map.axes[0].clone(), map.axes[1].clone());
    y.ends.reverse();
    let chart = Chart::new(canvas, [&x, &y], BELOW);
    let tiles =
        map.cells.iter().enumerate().flat_map(|(row, tiles)| {
            tiles.iter().enumerate().map(move |(column, tile)| (column as f64, row as f64, tile))
        });
    for (x, y, tile) in tiles.clone() {
        let colour = tile.shade.map_or(EMPTY, |share| shade(share).0);
        chart.canvas.rectangle([chart.at(x - 0.5, y - 0.5), chart.at(x + 0.5, y + 0.5)], colour);
    }
    let unit = canvas.unit;
    let (width, height) = chart.canvas.area.dim_in_pixel();
    let room = (width / unit.0 / map.columns.len().max(1) as u32, height / unit.0 / map.rows.len().max(1) as u32);
    for (x, y, tile) in tiles {
        let ink = tile.shade.map_or(FAINT, |share| shade(share).1);
        let fits = |size: &&u32| unit.width(&tile.label, **size) < room.0 && **size + 2 <= room.1;
        // Where no size fits, the colour alone shows the value.
        if let Some(size) = LABELS.iter().find(fits) {
            chart.canvas.write(&tile.label, (*size, ink), (HPos::Center, VPos::Center), chart.at(x, y));
        }
    }
}

/// Width and height of the scale in units.
pub const SCALE: PixelSize = (300, 50);

/// Draws the scale from 0 to 100 %, with marks at `levels`.
pub fn scale<B: DrawingBackend>(canvas: &Canvas<B>, levels: &[(String, f64)]) {
    const STEPS: i32 = 100;
    let unit = canvas.unit;
    let at = |share: f64| unit.at(10) + (share * f64::from(unit.at(SCALE.0 as i32 - 20))).round() as i32;
    let (top, bottom) = (unit.at(16), unit.at(29));
    for step in 0..STEPS {
        let [from, to] = [step, step + 1].map(|i| f64::from(i) / f64::from(STEPS));
        canvas.rectangle([(at(from), top), (at(to), bottom)], shade((from + to) / 2.0).0);
    }
    for (value, label) in PlotAxis::percent("").ticks {
        canvas.write(&label, (TICK, INK), (HPos::Center, VPos::Top), (at(value), bottom + unit.at(3)));
    }
    for (i, (name, share)) in levels.iter().enumerate() {
        let (side, inward) = if *share < 0.5 { (HPos::Left, 3) } else { (HPos::Right, -3) };
        canvas.line(vec![(at(*share), unit.at(2)), (at(*share), bottom)], (INK, 1, None));
        // A second name is written only if it does not overlap the first.
        if i == 0 || (share - levels[i - 1].1).abs() > 0.3 {
            let place = (at(*share) + unit.at(inward), top - unit.at(1));
            canvas.write(name, (TICK - 1, FAINT), (side, VPos::Bottom), place);
        }
    }
}
