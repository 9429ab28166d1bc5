//! A panel of lines or points.

use super::axis::Axis;
use super::canvas::{drawn, write, Area, Unit};
use super::palette::{look, Marker, FAINT, GRID, INK};
use super::{labels as beside, Level, Plot, Point, Series};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::cartesian::Cartesian2d;
use plotters::element::{Circle, PathElement, Polygon};
use plotters::prelude::DrawingBackend;
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor};

/// Font size of tick labels.
pub const TICK: u32 = 13;
/// Font size of the names of axes.
pub const NAME: u32 = 14;
/// Font size of labels of levels.
const LEVEL: u32 = 12;
/// Height reserved below a plot.
const BELOW: u32 = 44;
/// Dashes of levels, by their keys.
pub const LEVELS: [Option<[u32; 2]>; 3] = [Some([3, 3]), Some([8, 3]), Some([1, 2])];

type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<Axis, Axis>>;

/// Draws `plot` into the whole of `area`; with `names`, labels the points.
pub fn draw<B: DrawingBackend>(area: &Area<B>, plot: &Plot, names: Option<&[String]>, unit: Unit) {
    let below = if plot.x.name.is_empty() { BELOW - 16 } else { BELOW };
    let mut chart = chart(area, [&plot.x, &plot.y], below, unit);
    for level in &plot.levels {
        for [from, to, height] in &level.pieces {
            let ends = [(*from, *height), (*to, *height)];
            stroke(&mut chart, &ends, (FAINT, 1, LEVELS[level.key % LEVELS.len()]), unit);
        }
    }
    for series in &plot.series {
        band(&mut chart, series);
    }
    for series in &plot.series {
        line(&mut chart, series, unit);
    }
    labels(&chart, &plot.levels, unit);
    if let Some(names) = names {
        let area = chart.plotting_area().strip_coord_spec();
        let base = area.get_base_pixel();
        let place = |point: &Point| {
            let (x, y) = chart.backend_coord(&(point.x, point.y));
            (x - base.0, y - base.1)
        };
        let series = plot.series.iter();
        let points = series.flat_map(|series| {
            let name = &names[series.key];
            let named = series.points.iter().map(move |point| beside::PointLabel {
                key: series.key,
                name: format!("{name} {}", point.detail).trim_end().to_owned(),
                at: place(point),
            });
            named
        });
        beside::draw(&area, &points.collect::<Vec<_>>(), unit);
    }
}

/// Draws axes with their ticks and names; `below` is the height in units reserved under the plot.
pub fn chart<'a, B: DrawingBackend>(area: &'a Area<B>, [x, y]: [&Axis; 2], below: u32, unit: Unit) -> Chart<'a, B> {
    let widest = y.ticks.iter().map(|(_, label)| unit.width(label, TICK));
    let left = widest.max().unwrap_or(0) + 10 + if y.name.is_empty() { 0 } else { 20 };
    let mut chart = drawn(
        ChartBuilder::on(area)
            .margin_top(unit.at(6))
            .margin_right(unit.at(12))
            .x_label_area_size(unit.px(below))
            .y_label_area_size(unit.px(left))
            .build_cartesian_2d(x.clone(), y.clone()),
    );
    let text = |size| unit.text(size, INK, (HPos::Center, VPos::Center));
    let thin = |colour: RGBColor| colour.stroke_width(unit.px(1));
    let (width, height) = chart.plotting_area().dim_in_pixel();
    let shown =
        [shown(x, |i| unit.px(unit.width(&x.ticks[i].1, TICK) + 6), width), shown(y, |_| unit.px(TICK + 3), height)];
    let label = |axis: &Axis, shown: &[f64], value: &f64| match shown.contains(value) {
        true => axis.label(*value),
        false => String::new(),
    };
    drawn(
        chart
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
    chart
}

/// Ticks of an axis of `pixels` length whose labels fit. `length` returns the length of a label in pixels.
fn shown(axis: &Axis, length: impl Fn(usize) -> u32, pixels: u32) -> Vec<f64> {
    let mut shown = Vec::new();
    let mut free: Option<f64> = None;
    for (i, (value, _)) in axis.ticks.iter().enumerate() {
        let place = f64::from(pixels) * axis.share(*value);
        let half = f64::from(length(i)) / 2.0;
        // Row axes of heatmaps run downwards.
        let [near, far] = match axis.ends[0] < axis.ends[1] {
            true => [place - half, place + half],
            false => [-place - half, -place + half],
        };
        if free.is_none_or(|free| near >= free) {
            shown.push(*value);
            free = Some(far);
        }
    }
    shown
}

/// Draws a band of mean ± one standard deviation.
fn band<B: DrawingBackend>(chart: &mut Chart<B>, series: &Series) {
    let spread: Vec<(&Point, f64)> = series.points.iter().filter_map(|point| Some((point, point.std?))).collect();
    if !series.joined || spread.len() < 2 {
        return;
    }
    let colour = look(series.key).0;
    let upper = spread.iter().map(|(point, std)| (point.x, point.y + std));
    let lower = spread.iter().rev().map(|(point, std)| (point.x, point.y - std));
    let outline: Vec<(f64, f64)> = upper.chain(lower).collect();
    drawn(chart.draw_series([Polygon::new(outline, colour.mix(0.18))]));
}

fn line<B: DrawingBackend>(chart: &mut Chart<B>, series: &Series, unit: Unit) {
    let (colour, marker, dash) = look(series.key);
    let places: Vec<(f64, f64)> = series.points.iter().map(|point| (point.x, point.y)).collect();
    if series.joined {
        let corners = places.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
        let places = match series.steps {
            true => corners.chain(places.last().copied()).collect(),
            false => places,
        };
        stroke(chart, &places, (colour, 2, dash), unit);
    }
    let area = chart.plotting_area().strip_coord_spec();
    let base = area.get_base_pixel();
    for point in &series.points {
        let at = |y: f64| {
            let (x, y) = chart.backend_coord(&(point.x, y));
            (x - base.0, y - base.1)
        };
        if let Some(std) = point.std.filter(|_| !series.joined || series.points.len() < 2) {
            let bar = vec![at(point.y - std), at(point.y + std)];
            drawn(area.draw(&PathElement::new(bar, colour.stroke_width(unit.px(1)))));
        }
        mark(&area, at(point.y), marker, colour, series.hollow, unit);
    }
}

/// Draws a line of `width` units, dashed or solid.
fn stroke<B: DrawingBackend>(
    chart: &mut Chart<B>,
    places: &[(f64, f64)],
    (colour, width, dash): (RGBColor, u32, Option<[u32; 2]>),
    unit: Unit,
) {
    let style = colour.stroke_width(unit.px(width));
    let places = places.iter().copied();
    match dash.map(|dash| dash.map(|length| unit.px(length))) {
        None => drop(drawn(chart.draw_series(LineSeries::new(places, style)))),
        Some([dash, gap]) => {
            drawn(chart.draw_series(DashedLineSeries::new(places, dash, gap, style)));
        }
    }
}

/// Writes the names of single-piece levels above their lines, alternately at the right and at the left end.
fn labels<B: DrawingBackend>(chart: &Chart<B>, levels: &[Level], unit: Unit) {
    let area = chart.plotting_area().strip_coord_spec();
    let base = area.get_base_pixel();
    let whole = levels.iter().filter(|level| level.pieces.len() == 1);
    for (i, level) in whole.enumerate() {
        let [from, to, height] = level.pieces[0];
        let (end, anchor, inward) = match i % 2 {
            0 => (to, HPos::Right, -3),
            _ => (from, HPos::Left, 3),
        };
        let (x, y) = chart.backend_coord(&(end, height));
        let style = unit.text(LEVEL, FAINT, (anchor, VPos::Bottom));
        let at = (x - base.0 + unit.at(inward), y - base.1 - unit.at(1));
        write(&area, &level.label, &style, at);
    }
}

/// Draws a marker at a pixel of `area`.
pub fn mark<B: DrawingBackend>(
    area: &Area<B>,
    (x, y): (i32, i32),
    marker: Marker,
    colour: RGBColor,
    hollow: bool,
    unit: Unit,
) {
    let radius = unit.at(4);
    match marker {
        Marker::Circle if hollow => {
            drawn(area.draw(&Circle::new((x, y), radius, colour.stroke_width(unit.px(1)))));
        }
        Marker::Circle => drawn(area.draw(&Circle::new((x, y), radius, colour.filled()))),
        Marker::Polygon(corners) => {
            let corner = |(right, down): &(i32, i32)| (x + radius * right / 100, y + radius * down / 100);
            let mut corners: Vec<(i32, i32)> = corners.iter().map(corner).collect();
            match hollow {
                false => drawn(area.draw(&Polygon::new(corners, colour.filled()))),
                true => {
                    corners.push(corners[0]);
                    drawn(area.draw(&PathElement::new(corners, colour.stroke_width(unit.px(1)))));
                }
            }
        }
    }
}
