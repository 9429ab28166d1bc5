//! Grid of a picture's cells, and occupancy masks over it.

/// Level above which a cell counts as occupied when a first paddle is placed: 0.3 of 255.
const TAKEN: u8 = 76;

/// Cell of a picture, or a point outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PixelCell {
    pub y: i32,
    pub x: i32,
}

impl PixelCell {
    /// Cell at `distance` and `angle` from this one, each coordinate rounded up.
    pub fn shift(self, angle: f64, distance: f64) -> Self {
        let (sin, cos) = (libm::sin(angle), libm::cos(angle));
        Self {
            y: (f64::from(self.y) + distance * sin).ceil() as i32,
            x: (f64::from(self.x) + distance * cos).ceil() as i32,
        }
    }

    /// Point `dy` down and `dx` to the right.
    pub fn moved(self, (dy, dx): (i32, i32)) -> Self {
        Self { y: self.y + dy, x: self.x + dx }
    }

    /// Index in a picture of `side` x `side` cells; `None` outside.
    pub fn cell(self, side: usize) -> Option<usize> {
        // This runs for every cell of every stencil: negative numbers become large ones, so that one comparison checks
        // both edges.
        let (y, x) = (self.y as u32 as usize, self.x as u32 as usize);
        (y < side && x < side).then_some(y * side + x)
    }

    /// All cells of a picture of `side` x `side` cells, row by row.
    pub fn all(side: usize) -> impl Iterator<Item = Self> {
        let side = side as i32;
        (0..side).flat_map(move |y| (0..side).map(move |x| Self { y, x }))
    }
}

/// Occupancy of the cells of a picture, from 0 to 255.
#[derive(Clone)]
pub(super) struct Mask {
    side: usize,
    levels: Vec<u8>,
}

impl Mask {
    /// Mask of `side` x `side` cells, of which only a frame of `width` cells on every side is occupied.
    pub fn framed(side: usize, width: usize) -> Self {
        let inside = width..side - width;
        let mut levels = vec![u8::MAX; side * side];
        for row in levels.chunks_exact_mut(side).skip(width).take(inside.len()) {
            row[inside.clone()].fill(0);
        }
        Self { side, levels }
    }

    /// Occupancy of the cell at `point`; `None` outside.
    pub fn at(&self, point: PixelCell) -> Option<u8> {
        point.cell(self.side).map(|cell| self.levels[cell])
    }

    /// Raises the occupancy of the cell at `point` to at least `level`.
    pub fn raise(&mut self, point: PixelCell, level: u8) {
        if let Some(cell) = point.cell(self.side) {
            self.levels[cell] = self.levels[cell].max(level);
        }
    }

    pub fn free(&self) -> usize {
        self.levels.iter().filter(|level| **level <= TAKEN).count()
    }

    /// Highest occupancy of the cells at `offsets` from `point`.
    pub fn highest(&self, point: PixelCell, offsets: &[(i32, i32)]) -> u8 {
        offsets.iter().filter_map(|&o| self.at(point.moved(o))).max().unwrap_or(0)
    }

    /// Cells for which all of `offsets` from them are free.
    pub fn room_for(&self, offsets: &[(i32, i32)]) -> Vec<PixelCell> {
        let is_free =
            |point: PixelCell| offsets.iter().all(|&o| self.at(point.moved(o)).is_none_or(|level| level <= TAKEN));
        PixelCell::all(self.side).filter(|point| is_free(*point)).collect()
    }
}
