//! A panel of coloured cells, and the scale of the colours.

use super::axis::Axis;
use super::canvas::{drawn, write, Area, Size, Unit};
use super::palette::{shade, EMPTY, FAINT, INK};
use super::plot::{chart, TICK};
use super::Heatmap;
use plotters::element::{PathElement, Rectangle};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::Color;

/// Font sizes of labels in cells; the largest that fits is used.
const LABELS: [u32; 5] = [13, 12, 11, 10, 9];
/// Smallest width and height of a cell with a label.
const CELL: Size = (40, 26);
/// Width and height of a cell without a label.
const BARE: Size = (14, 14);
/// Largest width of a cell.
const WIDEST: u32 = 96;
/// Height reserved below the cells.
const BELOW: u32 = 42;

impl Heatmap {
    /// Width and height in units that fit every cell.
    pub fn size(&self, unit: Unit) -> Size {
        let bare = self.cells.iter().flatten().all(|tile| tile.label.is_empty());
        let least = if bare { BARE } else { CELL };
        let labels = self.cells.iter().flatten().map(|tile| unit.width(&tile.label, LABELS[1]) + 6);
        let cell = match bare {
            true => least.0,
            false => labels.max().unwrap_or(0).clamp(least.0, WIDEST),
        };
        let names = self.rows.iter().map(|name| unit.width(name, TICK)).max().unwrap_or(0);
        let width = cell * self.columns.len() as u32 + names + 52;
        (width, least.1 * self.rows.len() as u32 + BELOW + 8)
    }
}

/// Draws `map` into the whole of `area`.
pub fn draw<B: DrawingBackend>(area: &Area<B>, map: &Heatmap, unit: Unit) {
    let mut x = Axis::names(&map.columns);
    let mut y = Axis::names(&map.rows);
    (x.name, y.name) = (map.axes[0].clone(), map.axes[1].clone());
    y.ends.reverse();
    let mut chart = chart(area, [&x, &y], BELOW, unit);
    let cells = map.cells.iter().enumerate().flat_map(|(row, tiles)| {
        let tiles = tiles.iter().enumerate();
        tiles.map(move |(column, tile)| (column as f64, row as f64, tile))
    });
    let filled = cells.clone().map(|(x, y, tile)| {
        let colour = tile.shade.map_or(EMPTY, |share| shade(share).0);
        Rectangle::new([(x - 0.5, y - 0.5), (x + 0.5, y + 0.5)], colour.filled())
    });
    drawn(chart.draw_series(filled));
    let area = chart.plotting_area().strip_coord_spec();
    let base = area.get_base_pixel();
    let (width, height) = chart.plotting_area().dim_in_pixel();
    let room = (width / unit.0 / map.columns.len().max(1) as u32, height / unit.0 / map.rows.len().max(1) as u32);
    for (x, y, tile) in cells {
        let ink = tile.shade.map_or(FAINT, |share| shade(share).1);
        let fits = |size: &&u32| unit.width(&tile.label, **size) < room.0 && **size + 2 <= room.1;
        let Some(size) = LABELS.iter().find(fits) else {
            continue; // the colour alone shows the value
        };
        let (x, y) = chart.backend_coord(&(x, y));
        let style = unit.text(*size, ink, (HPos::Center, VPos::Center));
        write(&area, &tile.label, &style, (x - base.0, y - base.1));
    }
}

/// Height of the scale in units.
pub const SCALE: u32 = 50;
/// Width of the scale in units.
pub const SCALE_WIDTH: u32 = 300;

/// Draws the scale from 0 to 100 %, with marks at `levels`.
pub fn scale<B: DrawingBackend>(area: &Area<B>, levels: &[(String, f64)], unit: Unit) {
    const STEPS: i32 = 100;
    let at = |share: f64| unit.at(10) + (share * f64::from(unit.at(SCALE_WIDTH as i32 - 20))).round() as i32;
    let (top, bottom) = (unit.at(16), unit.at(29));
    for step in 0..STEPS {
        let [from, to] = [step, step + 1].map(|i| f64::from(i) / f64::from(STEPS));
        let colour = shade((from + to) / 2.0).0.filled();
        drawn(area.draw(&Rectangle::new([(at(from), top), (at(to), bottom)], colour)));
    }
    let style = unit.text(TICK, INK, (HPos::Center, VPos::Top));
    for (value, label) in Axis::percent("").ticks {
        write(area, &label, &style, (at(value), bottom + unit.at(3)));
    }
    let style = |side| unit.text(TICK - 1, FAINT, (side, VPos::Bottom));
    for (i, (name, share)) in levels.iter().enumerate() {
        let (side, inward) = if *share < 0.5 { (HPos::Left, 3) } else { (HPos::Right, -3) };
        let line = vec![(at(*share), unit.at(2)), (at(*share), bottom)];
        drawn(area.draw(&PathElement::new(line, INK.stroke_width(unit.px(1)))));
        // A second name is written only if it does not overlap the first.
        if i == 0 || (share - levels[i - 1].1).abs() > 0.3 {
            write(area, name, &style(side), (at(*share) + unit.at(inward), top - unit.at(1)));
        }
    }
}
