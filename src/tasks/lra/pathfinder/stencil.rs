//! Shapes of a paddle and of a disc, drawn at twice the size and reduced.

use super::grid::{Mask, PixelCell};
use super::lanczos::{Reduction, LOBES};
use super::style::{PictureStyle, STYLES};
use std::f64::consts::PI;
use std::sync::OnceLock;

/// Factor by which shapes are drawn larger before they are reduced.
const FINER: i32 = 2;

/// A style with one of its margins, and the shapes that follow from both.
pub(super) struct Pen {
    pub style: &'static PictureStyle,
    pub margin: i32,
    stencils: Vec<Stencil>,
    /// Distinct cells on a circle around a pivot, one point per pixel of arc, with their directions.
    pub circle: Vec<((i32, i32), f64)>,
    /// Offsets within the margin of a cell.
    pub around: Vec<(i32, i32)>,
    /// Filter of a whole picture.
    pub whole: Reduction,
}

impl Pen {
    /// One pen for each margin of a style.
    pub fn of(style: &'static PictureStyle) -> &'static [Self] {
        static PENS: [OnceLock<Vec<Pen>>; 3] = [const { OnceLock::new() }; 3];
        let index = STYLES.iter().position(|known| known.side == style.side).expect("a known style");
        PENS[index].get_or_init(|| style.margins.iter().map(|margin| Self::new(style, *margin)).collect())
    }

    fn new(style: &'static PictureStyle, margin: i32) -> Self {
        let around = square(margin).filter(|(y, x)| y * y + x * x <= margin * margin).collect();
        let whole = Reduction::new(FINER as usize * style.side, style.side);
        let circle = circle(style.length + margin);
        let mut pen = Self { style, margin, stencils: Vec::new(), circle, around, whole };
        let reduction = Reduction::new(pen.fine_width(), 2 * pen.reach() as usize + 1);
        let far = pen.fine_length();
        let ends = (-far..=far).flat_map(|y| (-far..=far).map(move |x| End(y, x)));
        pen.stencils = ends.map(|end| Stencil::of(end, &pen, &reduction)).collect();
        pen
    }

    /// Distance from the start of a paddle to the pivot on its other side.
    pub fn step(&self) -> i32 {
        self.style.length + self.margin
    }

    /// Distance in cells from the start of a paddle to the edge of its stencil: length, thickness and margin.
    pub fn reach(&self) -> i32 {
        self.style.length + self.style.thickness.ceil() as i32 + self.margin
    }

    pub fn fine_reach(&self) -> i32 {
        FINER * self.reach()
    }

    pub fn fine_width(&self) -> usize {
        2 * self.fine_reach() as usize + 1
    }

    /// Length of a paddle on the fine grid.
    pub fn fine_length(&self) -> i32 {
        FINER * self.style.length
    }

    /// End of a paddle in the direction of `angle`.
    pub fn end(&self, angle: f64) -> End {
        let start = PixelCell { y: self.fine_reach(), x: self.fine_reach() };
        let end = start.shift(angle, f64::from(self.fine_length()));
        End(end.y - start.y, end.x - start.x)
    }

    /// Stencil of the paddle with this end.
    pub fn stencil(&self, end: End) -> &Stencil {
        let far = self.fine_length();
        let place = |c: i32| (c + far) as usize;
        &self.stencils[place(end.0) * (2 * far as usize + 1) + place(end.1)]
    }
}

/// Offsets up to `reach` along either axis, row by row.
fn square(reach: i32) -> impl Iterator<Item = (i32, i32)> {
    (-reach..=reach).flat_map(move |y| (-reach..=reach).map(move |x| (y, x)))
}

fn circle(radius: i32) -> Vec<((i32, i32), f64)> {
    let radius = f64::from(radius);
    let points = (2.0 * PI * radius).ceil() as i32;
    let cell = |i: i32| {
        let angle = f64::from(i) / radius;
        let coordinate = |c: f64| (radius * c).floor() as i32;
        (coordinate(libm::sin(angle)), coordinate(libm::cos(angle)))
    };
    let mut cells: Vec<(i32, i32)> = (0..points).map(cell).collect();
    cells.sort_unstable();
    cells.dedup();
    let direction = |(dy, dx): (i32, i32)| libm::atan2(f64::from(dy), f64::from(dx));
    cells.into_iter().map(|c| (c, direction(c))).collect()
}

/// Shape of a paddle around the cell where it starts.
pub(super) struct Stencil {
    /// Cells that it colours, with levels from 0 to 255.
    pub line: Vec<((i32, i32), u8)>,
    /// Cells that it occupies, with levels: the line and a margin around it.
    pub footprint: Vec<((i32, i32), u8)>,
    /// Cells that must be free for a snake to begin with this paddle: the fully occupied ones of a window as wide as a
    /// paddle with its margin, shifted by one cell down and to the right. `None` if for some cell of the picture all of
    /// them lie outside; then no snake begins with this paddle. This reproduces how the pictures of the task were made:
    /// their snakes begin upwards to the left, and most attempts at short ones fail.
    pub first: Option<Vec<(i32, i32)>>,
    /// Cells where a long snake may begin with this paddle, once they have been asked for.
    inside: OnceLock<Vec<PixelCell>>,
}

/// End of a paddle on the fine grid, relative to its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End(pub i32, pub i32);

impl Stencil {
    fn of(end: End, pen: &Pen, reduction: &Reduction) -> Self {
        let fine = line(end, pen);
        let reduced = |fine: &[u8]| -> Vec<((i32, i32), u8)> {
            let levels = reduction.apply(fine).into_iter();
            square(pen.reach()).zip(levels).filter(|(_, level)| *level > 0).collect()
        };
        let footprint = reduced(&widened(&fine, pen));
        let window = pen.step();
        let full = footprint.iter().filter(|(_, level)| *level == u8::MAX);
        let moved = full.map(|((dy, dx), _)| (dy + 1, dx + 1));
        let first: Vec<_> = moved.filter(|(dy, dx)| *dy <= window && *dx <= window).collect();
        let first = reaches_every_cell(&first, pen.style.side).then_some(first);
        Self { line: reduced(&fine), first, footprint, inside: OnceLock::new() }
    }

    /// Cells of an empty picture where a long snake may begin with this paddle: free ones, at least twice the distance of
    /// long snakes' tails away from the edges. `None` if no snake begins with it.
    pub fn inside(&self, style: &PictureStyle) -> Option<&[PixelCell]> {
        let first = self.first.as_ref()?;
        let found = self.inside.get_or_init(|| {
            let frame = style.padding.max(2 * usize::from(style.seed_distance));
            Mask::framed(style.side, frame).room_for(first)
        });
        Some(found)
    }
}

/// Whether for each cell of a picture some cell at `offsets` from it lies in the picture. Testing the corners suffices.
fn reaches_every_cell(offsets: &[(i32, i32)], side: usize) -> bool {
    let last = side as i32 - 1;
    [(0, 0), (0, last), (last, 0), (last, last)].iter().all(|&(y, x)| {
        let corner = PixelCell { y, x };
        offsets.iter().any(|&o| corner.moved(o).cell(side).is_some())
    })
}

fn fine_cell(y: i32, x: i32, pen: &Pen) -> usize {
    (y + pen.fine_reach()) as usize * pen.fine_width() + (x + pen.fine_reach()) as usize
}

/// Line from the centre to `end`.
fn line(end: End, pen: &Pen) -> Vec<u8> {
    let mut fine = vec![0; pen.fine_width() * pen.fine_width()];
    let draw = |y, x| fine[fine_cell(y, x, pen)] = u8::MAX;
    match (pen.style.thickness * f64::from(FINER)).round() as i32 {
        ..=1 => thin(end, draw),
        width => thick(end, width, draw),
    }
    fine
}

/// Calls `draw` with the cells of a line `width` cells thick from (0, 0) to `end`: a quadrilateral whose corners and rows
/// are rounded as by Pillow's `ImageDraw.line`, with which the pictures of the task were made.
fn thick(end: End, width: i32, mut draw: impl FnMut(i32, i32)) {
    let End(far_y, far_x) = end;
    let length = libm::hypot(f64::from(far_y), f64::from(far_x));
    if length == 0.0 {
        return draw(0, 0);
    }
    let half = f64::from(width - 1) / 2.0;
    let (less, more) = (half_down(half) / length, half_up(half) / length);
    let [left, right] = [less, more].map(|part| half_down(part * f64::from(far_y)) as i32);
    let [above, below] = [less, more].map(|part| half_up(part * f64::from(far_x)) as i32);
    let corners = [(below, -left), (far_y + below, far_x - left), (far_y - above, far_x + right), (-above, right)];
    let mut rows = corners.map(|(y, _)| y);
    rows.sort_unstable();
    for y in rows[0]..=rows[3] {
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for (i, &from) in corners.iter().enumerate() {
            for x in crossing(from, corners[(i + 1) % corners.len()], y) {
                (first, last) = (first.min(x), last.max(x));
            }
        }
        for x in half_up(first) as i32..=half_down(last) as i32 {
            draw(y, x);
        }
    }
}

/// Columns at which the edge between two corners, (y, x) each, meets row `y`: one, both of its ends, or none.
fn crossing(from: (i32, i32), to: (i32, i32), y: i32) -> Vec<f64> {
    let (low, high) = (from.0.min(to.0), from.0.max(to.0));
    if !(low..=high).contains(&y) {
        return Vec::new();
    }
    let (from_x, to_x) = (f64::from(from.1), f64::from(to.1));
    if low == high {
        return vec![from_x, to_x];
    }
    vec![f64::from(y - from.0) * (to_x - from_x) / f64::from(to.0 - from.0) + from_x]
}

/// The nearest whole number, of two the one farther from zero.
fn half_up(x: f64) -> f64 {
    (x.abs() + 0.5).floor().copysign(x)
}

/// The nearest whole number, of two the one nearer to zero.
fn half_down(x: f64) -> f64 {
    (x.abs() - 0.5).ceil().copysign(x)
}

/// Calls `draw` with the cells of a line one cell thick from (0, 0) to `end` (Bresenham 1965).
fn thin(end: End, mut draw: impl FnMut(i32, i32)) {
    let (steep, long, short) = match end {
        End(y, x) if y.abs() >= x.abs() => (true, y, x),
        End(y, x) => (false, x, y),
    };
    let (mut across, mut error) = (0, 2 * short.abs() - long.abs());
    for step in 0..=long.abs() {
        let along = step * long.signum();
        if steep {
            draw(along, across);
        } else {
            draw(across, along);
        }
        if error >= 0 {
            across += short.signum();
            error -= 2 * long.abs();
        }
        error += 2 * short.abs();
    }
}

/// Cells within the margin of coloured ones.
fn widened(fine: &[u8], pen: &Pen) -> Vec<u8> {
    let margin = FINER * pen.margin;
    let disc: Vec<_> = square(margin).filter(|(y, x)| y * y + x * x <= margin * margin).collect();
    let mut wide = vec![0; fine.len()];
    for (at, _) in square(pen.fine_reach()).zip(fine).filter(|(_, &l)| l > 0) {
        for (dy, dx) in &disc {
            wide[fine_cell(at.0 + dy, at.1 + dx, pen)] = u8::MAX;
        }
    }
    wide
}

/// Cells of a disc around `centre` in a picture, with their levels.
pub(super) fn disc(centre: PixelCell, pen: &Pen) -> impl Iterator<Item = (usize, u8)> {
    let side = pen.style.side;
    let radius = pen.style.disc_radius * f64::from(FINER);
    let reach = (pen.style.disc_radius + LOBES).ceil() as i32 + 1;
    let near = |c: i32| (c - reach).max(0) as usize..((c + reach + 1).max(0) as usize).min(side);
    let (rows, columns) = (near(centre.y), near(centre.x));
    let levels = pen.whole.part(rows.clone(), columns.clone(), |y, x| {
        let (dy, dx) = (y as i32 - FINER * centre.y, x as i32 - FINER * centre.x);
        let within = f64::from(dy * dy + dx * dx) <= radius * radius;
        if within {
            u8::MAX
        } else {
            0
        }
    });
    let cells = rows.flat_map(move |y| columns.clone().map(move |x| y * side + x));
    cells.zip(levels)
}
