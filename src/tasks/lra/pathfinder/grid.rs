//! Grid of a picture's cells, and occupancy masks over it.

/// Side of a picture in pixels.
pub(super) const SIDE: usize = crate::tasks::lra::picture::SIDE as usize;
/// Number of pixels of a picture.
pub(super) const CELLS: usize = SIDE * SIDE;
/// Length of a paddle, and margin before and after it, in pixels.
pub(super) const LENGTH: i32 = 2;
pub(super) const MARGIN: i32 = 1;
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

    /// Index in a picture; `None` outside.
    pub fn cell(self) -> Option<usize> {
        // This runs for every cell of every stencil: negative numbers become large ones, so that one comparison checks
        // both edges.
        let (y, x) = (self.y as u32 as usize, self.x as u32 as usize);
        (y < SIDE && x < SIDE).then_some(y * SIDE + x)
    }

    /// All cells of a picture, row by row.
    pub fn all() -> impl Iterator<Item = Self> {
        let side = SIDE as i32;
        (0..side).flat_map(move |y| (0..side).map(move |x| Self { y, x }))
    }
}

/// Occupancy of the cells of a picture, from 0 to 255.
#[derive(Clone)]
pub(super) struct Mask([u8; CELLS]);

impl Mask {
    /// Mask on which only a frame of `width` cells on every side is occupied.
    pub fn framed(width: usize) -> Self {
        let mut mask = Self([0; CELLS]);
        mask.add_frame(width);
        mask
    }

    /// Occupies `width` cells on every side.
    pub fn add_frame(&mut self, width: usize) {
        for (y, row) in self.0.chunks_exact_mut(SIDE).enumerate() {
            if y < width || y >= SIDE - width {
                row.fill(u8::MAX);
            } else {
                row[..width].fill(u8::MAX);
                row[SIDE - width..].fill(u8::MAX);
            }
        }
    }

    /// Occupancy of the cell at `point`; `None` outside.
    pub fn at(&self, point: PixelCell) -> Option<u8> {
        point.cell().map(|cell| self.0[cell])
    }

    /// Raises the occupancy of the cell at `point` to at least `level`.
    pub fn raise(&mut self, point: PixelCell, level: u8) {
        if let Some(cell) = point.cell() {
            self.0[cell] = self.0[cell].max(level);
        }
    }

    pub fn free(&self) -> usize {
        self.0.iter().filter(|level| **level <= TAKEN).count()
    }

    /// Highest occupancy of the cells at `offsets` from `point`.
    pub fn highest(&self, point: PixelCell, offsets: &[(i32, i32)]) -> u8 {
        offsets.iter().filter_map(|&o| self.at(point.moved(o))).max().unwrap_or(0)
    }

    /// Cells for which all of `offsets` from them are free.
    pub fn room_for(&self, offsets: &[(i32, i32)]) -> Vec<PixelCell> {
        PixelCell::all().filter(|point| self.highest(*point, offsets) <= TAKEN).collect()
    }
}
