//! Names beside points, for plots whose legend would be longer than the plot.

use super::canvas::{Canvas, Unit};
use super::palette::{look, Pixels};
use super::Picture;
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor};

/// Largest number of names in a legend of points only.
const LEGEND: usize = 16;
/// Font size of names.
const SIZE: u32 = 12;
/// Distance in units of a name from its point, and the step to the next distance that is tried.
const NEAR: i32 = 7;
const STEP: i32 = 6;
/// Largest distance of a name from its point, in units.
const FAR: i32 = 320;
/// Half the width of a marker, in units.
const MARKER: i32 = 5;
/// Directions in which a name is placed, in order of preference, in hundredths.
#[rustfmt::skip]
const DIRECTIONS: [(i32, i32); 12] = [
    (100, 0), (-100, 0), (87, -50), (87, 50), (-87, -50), (-87, 50),
    (50, -87), (50, 87), (-50, -87), (-50, 87), (0, -100), (0, 100),
];

/// Names to write beside the points of `picture`; `None` if it has few of them or contains lines.
pub fn beside(picture: &Picture) -> Option<&[String]> {
    let series = || picture.plots().flat_map(|plot| &plot.series);
    let points = series().next().is_some() && series().all(|series| !series.joined);
    (points && picture.names.len() > LEGEND).then_some(&picture.names)
}

/// Left, top, right and bottom; the last two are exclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Frame([i32; 4]);

impl Frame {
    fn around((x, y): Pixels, (width, height): Pixels) -> Self {
        let (left, top) = (x - width / 2, y - height / 2);
        Self([left, top, left + width, top + height])
    }

    fn meets(&self, other: &Self) -> bool {
        let ([left, top, right, bottom], other) = (self.0, other.0);
        left < other[2] && other[0] < right && top < other[3] && other[1] < bottom
    }

    fn within(&self, (width, height): Pixels) -> bool {
        let [left, top, right, bottom] = self.0;
        left >= 0 && top >= 0 && right <= width && bottom <= height
    }

    /// The point of the frame nearest to another point.
    fn nearest(&self, (x, y): Pixels) -> Pixels {
        let [left, top, right, bottom] = self.0;
        (x.clamp(left, right), y.clamp(top, bottom))
    }
}

/// Frames of texts, given as points and sizes. Each is placed as near to its point as possible without covering one of
/// `markers` or an earlier text, in an area of size `room`; all in pixels. A text that fits nowhere covers another.
fn placed(points: &[(Pixels, Pixels)], markers: &[Pixels], room: Pixels, unit: Unit) -> Vec<Frame> {
    let marker = 2 * unit.at(MARKER);
    let around = |point: &Pixels| Frame::around(*point, (marker, marker));
    let markers: Vec<Frame> = markers.iter().map(around).collect();
    let mut taken: Vec<Frame> = Vec::with_capacity(points.len());
    for ((x, y), (width, height)) in points {
        let at = |distance: i32, (right, down): Pixels| {
            let along = |direction: i32, size: i32| direction * (unit.at(distance) + size / 2) / 100;
            Frame::around((x + along(right, *width), y + along(down, *height)), (*width, *height))
        };
        let free = |frame: &Frame| frame.within(room) && !markers.iter().chain(&taken).any(|other| frame.meets(other));
        let distances = (NEAR..FAR).step_by(STEP as usize);
        let mut tried = distances.flat_map(|far| DIRECTIONS.map(|direction| at(far, direction)));
        let frame = tried.find(free);
        taken.push(frame.unwrap_or_else(|| at(NEAR, DIRECTIONS[0])));
    }
    taken
}

/// A point and its label.
pub struct PointLabel {
    /// Key of its series.
    pub key: usize,
    pub name: String,
    /// Position in pixels of the drawing area.
    pub at: Pixels,
    pub colour: RGBColor,
}

/// Points on the line between two others, close enough for no name to fit between them.
pub fn along(from: Pixels, to: Pixels, unit: Unit) -> impl Iterator<Item = Pixels> {
    let (right, down) = (to.0 - from.0, to.1 - from.1);
    let steps = (right.abs().max(down.abs()) / unit.at(MARKER)).max(1);
    (1..steps).map(move |i| (from.0 + right * i / steps, from.1 + down * i / steps))
}

/// Writes the names of `points`, none of them over the places `markers`. A thin line connects a name with its point if they are
/// apart.
pub fn draw<B: DrawingBackend>(canvas: &Canvas<B>, points: &[PointLabel], markers: &[Pixels]) {
    let unit = canvas.unit;
    let sized = points.iter().map(|point| {
        let size = [unit.width(&point.name, SIZE) + 2, SIZE + 1].map(|units| unit.px(units) as i32);
        (point.at, size.into())
    });
    let (width, height) = canvas.area.dim_in_pixel();
    let frames = placed(&sized.collect::<Vec<_>>(), markers, (width as i32, height as i32), unit);
    for (PointLabel { key, at, .. }, frame) in points.iter().zip(&frames) {
        let near = frame.nearest(*at);
        let [right, down] = [near.0 - at.0, near.1 - at.1];
        if right.abs().max(down.abs()) > unit.at(NEAR + STEP) {
            canvas.line(vec![*at, near], (look(*key).0.mix(0.6), 1, None));
        }
    }
    for (point, Frame([left, top, right, bottom])) in points.iter().zip(&frames) {
        let middle = ((left + right) / 2, (top + bottom) / 2);
        canvas.write(&point.name, (SIZE, point.colour), (HPos::Center, VPos::Center), middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_points_on_one_spot_cover_neither_each_other_nor_a_marker() {
        let unit = Unit(2);
        let crowd = (0..24).map(|i| ((400 + i, 300), (150 + i, 26)));
        let corners = [((2, 2), (150, 26)), ((998, 598), (150, 26))];
        let points: Vec<_> = crowd.chain(corners).collect();
        let markers: Vec<Pixels> = points.iter().map(|(point, _)| *point).collect();
        let frames = placed(&points, &markers, (1000, 600), unit);
        for (i, frame) in frames.iter().enumerate() {
            assert!(frame.within((1000, 600)), "{i}: {frame:?}");
            assert!(frames[..i].iter().all(|other| !frame.meets(other)), "{i}");
            let marker = |(point, _): &(Pixels, _)| Frame::around(*point, (20, 20));
            assert!(points.iter().all(|p| !frame.meets(&marker(p))), "{i}");
        }
        // The name of a lone point is at its right.
        assert_eq!(placed(&points[..1], &markers[..1], (1000, 600), unit)[0].0[0], 414);
    }

    #[test]
    fn a_name_without_room_is_written_all_the_same() {
        assert_eq!(placed(&[((5, 5), (90, 12))], &[(5, 5)], (20, 20), Unit(1)).len(), 1);
    }
}
