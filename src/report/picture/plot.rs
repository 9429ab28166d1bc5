//! A panel of lines or points.

use super::axis::PlotAxis;
use super::canvas::{drawn, Canvas};
use super::labels::{self, PointLabel};
use super::palette::{look, Dash, Pixels, EMPTY, FAINT, GRID, INK};
use super::{Plot, Point, Series};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor};

/// Font size of tick labels.
pub const TICK: u32 = 13;
/// Font size of the names of axes.
const NAME: u32 = 14;
/// Font size of labels of levels.
const LEVEL: u32 = 12;
/// Height reserved below a plot.
const BELOW: u32 = 44;
/// Dashes of levels, by their keys.
const LEVELS: [Dash; 3] = [Some([3, 3]), Some([8, 3]), Some([1, 2])];

/// The line of a level.
pub fn level_line(key: usize) -> (RGBColor, u32, Dash) {
    (FAINT, 1, LEVELS[key % LEVELS.len()])
}

/// The area between two axes.
pub struct Chart<'a, B: DrawingBackend> {
    pub canvas: Canvas<B>,
    context: ChartContext<'a, B, Cartesian2d<PlotAxis, PlotAxis>>,
}

/// Draws `plot` into the whole of `canvas`; with `names`, labels the points.
pub fn draw<B: DrawingBackend>(canvas: &Canvas<B>, plot: &Plot, names: Option<&[String]>) {
    let below = if plot.x.name.is_empty() { BELOW - 16 } else { BELOW };
    let chart = Chart::new(canvas, [&plot.x, &plot.y], below);
    for [low, high] in &plot.shaded {
        chart.canvas.rectangle([chart.at(plot.x.ends[0], *high), chart.at(plot.x.ends[1], *low)], EMPTY);
    }
    for level in &plot.levels {
        for [from, to, height] in &level.pieces {
            let ends = vec![chart.at(*from, *height), chart.at(*to, *height)];
            chart.canvas.line(ends, level_line(level.key));
        }
    }
    plot.series.iter().for_each(|series| chart.band(series));
    plot.series.iter().for_each(|series| chart.line(series));
    chart.level_names(plot);
    let at = |point: &Point| chart.at(point.x, point.y);
    let labelled: Vec<PointLabel> = match names {
        Some(names) => {
            let points = plot.series.iter().flat_map(|series| series.points.iter().map(|point| (series.key, point)));
            let name = |key: usize, point: &Point| format!("{} {}", names[key], point.detail).trim_end().to_owned();
            points.map(|(key, point)| PointLabel { key, name: name(key, point), at: at(point), colour: INK }).collect()
        }
        None => {
            let named = plot.series.iter().filter(|series| !series.label.is_empty());
            let last = named.filter_map(|series| Some((series, series.points.last()?)));
            let label = |(series, point): (&Series, &Point)| PointLabel {
                key: series.key,
                name: series.label.clone(),
                at: at(point),
                colour: look(series.key).0,
            };
            last.map(label).collect()
        }
    };
    let mut taken: Vec<Pixels> = plot.series.iter().flat_map(|series| &series.points).map(at).collect();
    let joined = plot.series.iter().filter(|series| series.joined);
    let pieces = joined.flat_map(|series| series.points.windows(2));
    taken.extend(pieces.flat_map(|ends| labels::along(at(&ends[0]), at(&ends[1]), canvas.unit)));
    labels::draw(&chart.canvas, &labelled, &taken);
}

impl<'a, B: DrawingBackend> Chart<'a, B> {
    /// Draws axes with their ticks and names; `below` is the height in units reserved under the plot.
    pub fn new(canvas: &'a Canvas<B>, [x, y]: [&PlotAxis; 2], below: u32) -> Self {
        let unit = canvas.unit;
        let widest = y.ticks.iter().map(|(_, label)| unit.width(label, TICK));
        let left = widest.max().unwrap_or(0) + 10 + if y.name.is_empty() { 0 } else { 20 };
        let mut context = drawn(
            ChartBuilder::on(&canvas.area)
                .margin_top(unit.at(6))
                .margin_right(unit.at(12))
                .x_label_area_size(unit.px(below))
                .y_label_area_size(unit.px(left))
                .build_cartesian_2d(x.clone(), y.clone()),
        );
        let text = |size| unit.text(size, INK, (HPos::Center, VPos::Center));
        let thin = |colour: RGBColor| colour.stroke_width(unit.px(1));
        let area = context.plotting_area().strip_coord_spec();
        let (width, height) = area.dim_in_pixel();
        let shown = [
            shown(x, |i| unit.px(unit.width(&x.ticks[i].1, TICK) + 6), width),
            shown(y, |_| unit.px(TICK + 3), height),
        ];
        let label = |axis: &PlotAxis, shown: &[f64], value: &f64| {
            if shown.contains(value) {
                axis.label(*value)
            } else {
                String::new()
            }
        };
        drawn(
            context
                .configure_mesh()
                .bold_line_style(thin(GRID))
                .axis_style(thin(FAINT))
                .x_label_formatter(&|value| label(x, &shown[0], value))
                .y_label_formatter(&|value| label(y, &shown[1], value))
                .label_style(text(TICK))
                .axis_desc_style(text(NAME))
                .x_desc(x.name.as_str())
                .y_desc(y.name.as_str())
                .set_all_tick_mark_size(unit.px(4))
                .draw(),
        );
        Self { canvas: Canvas { area, unit }, context }
    }

    /// Place of a value.
    pub fn at(&self, x: f64, y: f64) -> Pixels {
        let ((x, y), base) = (self.context.backend_coord(&(x, y)), self.canvas.area.get_base_pixel());
        (x - base.0, y - base.1)
    }

    /// Draws the bands of joined points as one area.
    fn band(&self, series: &Series) {
        let bands: Vec<(f64, [f64; 2])> =
            series.points.iter().filter_map(|point| Some((point.x, point.band?))).collect();
        if series.joined && bands.len() > 1 {
            let upper = bands.iter().map(|(x, [_, high])| self.at(*x, *high));
            let lower = bands.iter().rev().map(|(x, [low, _])| self.at(*x, *low));
            self.canvas.polygon(upper.chain(lower).collect(), look(series.key).0.mix(0.18));
        }
    }

    fn line(&self, series: &Series) {
        let (colour, marker, dash) = look(series.key);
        let points = &series.points;
        if series.joined && !points.is_empty() {
            let corners = points.windows(2).flat_map(|pair| [(pair[0].x, pair[0].y), (pair[1].x, pair[0].y)]);
            let places: Vec<(f64, f64)> = if series.steps {
                corners.chain(points.last().map(|last| (last.x, last.y))).collect()
            } else {
                points.iter().map(|point| (point.x, point.y)).collect()
            };
            self.canvas.line(places.into_iter().map(|(x, y)| self.at(x, y)).collect(), (colour, 2, dash));
        }
        for point in points {
            if let Some(ends) = point.band.filter(|_| !series.joined || points.len() < 2) {
                let bar = ends.map(|end| self.at(point.x, end)).into();
                self.canvas.line(bar, (colour, 1, None));
            }
            let hollow = series.hollow || !point.bound.is_empty();
            self.canvas.mark(self.at(point.x, point.y), marker, colour, hollow);
        }
    }

    /// Writes the names of single-piece levels above their lines, alternately at the right and at the left end.
    fn level_names(&self, plot: &Plot) {
        let whole = plot.levels.iter().filter(|level| level.pieces.len() == 1);
        for (i, level) in whole.enumerate() {
            let [from, to, height] = level.pieces[0];
            let (end, anchor, inward) = match i % 2 {
                0 => (to, HPos::Right, -3),
                _ => (from, HPos::Left, 3),
            };
            let (x, y) = self.at(end, height);
            let unit = self.canvas.unit;
            let at = (x + unit.at(inward), y - unit.at(1));
            self.canvas.write(&level.label, (LEVEL, FAINT), (anchor, VPos::Bottom), at);
        }
    }
}

/// Ticks of an axis of `pixels` length whose labels fit. `length` returns the length of a label in pixels.
fn shown(axis: &PlotAxis, length: impl Fn(usize) -> u32, pixels: u32) -> Vec<f64> {
    let mut shown = Vec::new();
    let mut free: Option<f64> = None;
    for (i, (value, _)) in axis.ticks.iter().enumerate() {
        let place = f64::from(pixels) * axis.share(*value);
        let half = f64::from(length(i)) / 2.0;
        // Row axes of heatmaps run downwards.
        let [near, far] =
            if axis.ends[0] < axis.ends[1] { [place - half, place + half] } else { [-place - half, -place + half] };
        if free.is_none_or(|free| near >= free) {
            shown.push(*value);
            free = Some(far);
        }
    }
    shown
}
