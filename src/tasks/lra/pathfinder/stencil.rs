//! Shapes of a paddle and of a disc, drawn at twice the size and reduced.

use super::grid::{PixelCell, CELLS, LENGTH, MARGIN, SIDE};
use super::lanczos::Reduction;
use std::sync::LazyLock;

/// Factor by which shapes are drawn larger.
const FINER: i32 = 2;
/// Distance in cells from the start of a paddle to the edge of its stencil: length, thickness and margin.
const REACH: i32 = LENGTH + 1 + MARGIN;
const WIDTH: usize = 2 * REACH as usize + 1;
const FINE_REACH: i32 = FINER * REACH;
const FINE_WIDTH: usize = 2 * FINE_REACH as usize + 1;
/// Length of a paddle on the fine grid.
const FINE_LENGTH: i32 = FINER * LENGTH;
const DISC_RADIUS: f64 = 1.5;

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
}

/// End of a paddle on the fine grid, relative to its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End(pub i32, pub i32);

impl End {
    /// End of a paddle in the direction of `angle`.
    pub fn towards(angle: f64) -> Self {
        let start = PixelCell { y: FINE_REACH, x: FINE_REACH };
        let end = start.shift(angle, f64::from(FINE_LENGTH));
        Self(end.y - start.y, end.x - start.x)
    }

    /// Stencil of the paddle with this end.
    pub fn stencil(self) -> &'static Stencil {
        let place = |c: i32| (c + FINE_LENGTH) as usize;
        &STENCILS[place(self.0) * (2 * FINE_LENGTH as usize + 1) + place(self.1)]
    }
}

static STENCILS: LazyLock<Vec<Stencil>> = LazyLock::new(|| {
    let reduction = Reduction::new(FINE_WIDTH, WIDTH);
    let ends = || -FINE_LENGTH..=FINE_LENGTH;
    ends().flat_map(|y| ends().map(move |x| End(y, x))).map(|end| Stencil::of(end, &reduction)).collect()
});

impl Stencil {
    fn of(end: End, reduction: &Reduction) -> Self {
        let fine = line(end);
        let reduced = |fine: &[u8]| -> Vec<((i32, i32), u8)> {
            let levels = reduction.apply(fine).into_iter();
            offsets(REACH).zip(levels).filter(|(_, level)| *level > 0).collect()
        };
        let footprint = reduced(&widened(&fine));
        let window = LENGTH + MARGIN;
        let full = footprint.iter().filter(|(_, level)| *level == u8::MAX);
        let moved = full.map(|((dy, dx), _)| (dy + 1, dx + 1));
        let first: Vec<_> = moved.filter(|(dy, dx)| *dy <= window && *dx <= window).collect();
        Self { line: reduced(&fine), first: reaches_every_cell(&first).then_some(first), footprint }
    }
}

/// Whether for each cell of the picture some cell at `offsets` from it lies in the picture. Testing the corners
/// suffices.
fn reaches_every_cell(offsets: &[(i32, i32)]) -> bool {
    let last = SIDE as i32 - 1;
    [(0, 0), (0, last), (last, 0), (last, last)].iter().all(|&(y, x)| {
        let corner = PixelCell { y, x };
        offsets.iter().any(|&o| corner.moved(o).cell().is_some())
    })
}

fn offsets(reach: i32) -> impl Iterator<Item = (i32, i32)> {
    (-reach..=reach).flat_map(move |y| (-reach..=reach).map(move |x| (y, x)))
}

fn fine_cell(y: i32, x: i32) -> usize {
    (y + FINE_REACH) as usize * FINE_WIDTH + (x + FINE_REACH) as usize
}

/// Line one fine cell thick from the centre to `end` (Bresenham 1965).
fn line(end: End) -> Vec<u8> {
    let mut fine = vec![0; FINE_WIDTH * FINE_WIDTH];
    let (steep, long, short) = match end {
        End(y, x) if y.abs() >= x.abs() => (true, y, x),
        End(y, x) => (false, x, y),
    };
    let (mut across, mut error) = (0, 2 * short.abs() - long.abs());
    for step in 0..=long.abs() {
        let along = step * long.signum();
        let (y, x) = if steep { (along, across) } else { (across, along) };
        fine[fine_cell(y, x)] = u8::MAX;
        if error >= 0 {
            across += short.signum();
            error -= 2 * long.abs();
        }
        error += 2 * short.abs();
    }
    fine
}

/// Cells within the margin of coloured ones.
fn widened(fine: &[u8]) -> Vec<u8> {
    let margin = FINER * MARGIN;
    let disc: Vec<_> = offsets(margin).filter(|(y, x)| y * y + x * x <= margin * margin).collect();
    let mut wide = vec![0; fine.len()];
    for (at, _) in offsets(FINE_REACH).zip(fine).filter(|(_, &l)| l > 0) {
        for (dy, dx) in &disc {
            wide[fine_cell(at.0 + dy, at.1 + dx)] = u8::MAX;
        }
    }
    wide
}

/// Picture of a single disc around `centre`.
pub(super) fn disc(centre: PixelCell) -> Vec<u8> {
    static REDUCTION: LazyLock<Reduction> = LazyLock::new(|| Reduction::new(FINER as usize * SIDE, SIDE));
    let fine_side = FINER * SIDE as i32;
    let radius = DISC_RADIUS * f64::from(FINER);
    let mut fine = Vec::with_capacity(4 * CELLS);
    for y in 0..fine_side {
        for x in 0..fine_side {
            let (dy, dx) = (y - FINER * centre.y, x - FINER * centre.x);
            let within = f64::from(dy * dy + dx * dx) <= radius * radius;
            fine.push(if within { u8::MAX } else { 0 });
        }
    }
    REDUCTION.apply(&fine)
}
