//! The units that multiply panels of bf16: the vector instruction of AVX512-BF16, and the tiles of AMX.

#![allow(unsafe_code)]

use super::amx::{Processor, TileInstructions};
use std::arch::x86_64::*;

/// Lanes of a panel.
pub(super) const LANES: usize = 16;
/// Rows and columns of a tile of the result.
pub(super) const TILE: usize = 2 * LANES;

/// A unit that multiplies panels of bf16 and adds to f32.
pub(super) trait Unit: Sized {
    /// Whether the pairs of a row of the left operand must be beside each other, not those rows.
    const BY_LANE: bool;
    /// Pairs that it multiplies at a time.
    const STEP: usize;
    /// Rows of the result that it computes at a time.
    const ROWS: usize;

    /// Calls `work` with the unit, ready for use on this thread until the call returns.
    fn run<T>(work: impl FnOnce(&mut Self) -> T) -> T;

    /// Computes whole groups of [`Self::ROWS`] rows and of 16 columns.
    ///
    /// # Safety
    ///
    /// The panels of `tile` and the rows that begin at `to` are as large as the tile says.
    unsafe fn multiply(&mut self, tile: &Tile, to: *mut f32, width: usize);
}

/// A tile of the result, and the panels to multiply.
pub(super) struct Tile<'a> {
    /// Panels of the left operand, one after another.
    pub(super) left: &'a [u32],
    /// Whether the pairs of a row of the left operand are beside each other.
    pub(super) by_lane: bool,
    /// A part of the panels of the right operand, `distance` words from each to the next.
    pub(super) right: &'a [u32],
    pub(super) distance: usize,
    /// Pairs of each lane.
    pub(super) pairs: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Whether products are added to the contents of the result.
    pub(super) add: bool,
}

impl Tile<'_> {
    /// Writes the tile to the rows of `width` numbers that begin at `to`.
    pub(super) fn compute<U: Unit>(&self, unit: &mut U, to: &mut [f32], width: usize) {
        let panels = |lanes: usize| lanes.div_ceil(LANES);
        assert!(self.rows <= TILE && self.columns <= TILE && self.columns <= width);
        assert!(panels(self.rows) * LANES * self.pairs <= self.left.len());
        assert!((panels(self.columns) - 1) * self.distance + LANES * self.pairs <= self.right.len());
        assert!((self.rows - 1) * width + self.columns <= to.len());
        if self.rows.is_multiple_of(U::ROWS) && self.columns.is_multiple_of(LANES) {
            // SAFETY: the assertions.
            return unsafe { unit.multiply(self, to.as_mut_ptr(), width) };
        }
        let mut whole = [0.0; TILE * TILE];
        // SAFETY: the assertions; `whole` has room for the largest tile.
        unsafe { unit.multiply(&Tile { add: false, ..*self }, whole.as_mut_ptr(), TILE) };
        for (to, from) in to.chunks_mut(width).zip(whole.chunks(TILE)).take(self.rows) {
            for (to, from) in to.iter_mut().zip(from).take(self.columns) {
                *to = if self.add { *to + from } else { *from };
            }
        }
    }
}

/// A loop over one tile whose panels stay in the nearest cache, and the multiplications and additions of a call.
pub(super) fn repeated<U: Unit>() -> (f64, Box<dyn FnMut()>) {
    const PAIRS: usize = 64;
    const TIMES: usize = 64;
    let panels = vec![0x3f80_3f80; 2 * LANES * PAIRS];
    let mut sums = vec![0.0; TILE * TILE];
    let work = move || {
        U::run(|unit| {
            for _ in 0..TIMES {
                let (left, right) = (&panels[..], &panels[..]);
                let (rows, columns) = (TILE, TILE);
                let tile = Tile {
                    left,
                    by_lane: true,
                    right,
                    distance: LANES * PAIRS,
                    pairs: PAIRS,
                    rows,
                    columns,
                    add: false,
                };
                tile.compute(unit, std::hint::black_box(&mut sums), TILE);
            }
        });
    };
    ((2 * 2 * PAIRS * TILE * TILE * TIMES) as f64, Box::new(work))
}

/// `vdpbf16ps` of AVX512-BF16: 16 sums of two products.
pub(super) struct Avx512Bf16;

impl Unit for Avx512Bf16 {
    const BY_LANE: bool = false;
    const STEP: usize = 1;
    const ROWS: usize = 8;

    fn run<T>(work: impl FnOnce(&mut Self) -> T) -> T {
        work(&mut Self)
    }

    unsafe fn multiply(&mut self, tile: &Tile, to: *mut f32, width: usize) {
        for row in (0..tile.rows).step_by(Self::ROWS) {
            // SAFETY: the caller's.
            unsafe {
                let to = to.add(row * width);
                match (tile.columns > LANES, tile.by_lane) {
                    (true, true) => rows_of_8::<2, true>(tile, row, to, width),
                    (true, false) => rows_of_8::<2, false>(tile, row, to, width),
                    (false, true) => rows_of_8::<1, true>(tile, row, to, width),
                    (false, false) => rows_of_8::<1, false>(tile, row, to, width),
                }
            }
        }
    }
}

/// Pairs as numbers of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn numbers(pairs: __m512i) -> __m512bh {
    // SAFETY: vectors of the same size, without invalid values.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(pairs) }
}

/// Eight rows from `row` on, and one or two panels of columns, with the sums in registers.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn rows_of_8<const PANELS: usize, const BY_LANE: bool>(tile: &Tile, row: usize, to: *mut f32, width: usize) {
    let mut sums = [[_mm512_setzero_ps(); PANELS]; Avx512Bf16::ROWS];
    // SAFETY: indices are those of the tile.
    unsafe {
        if tile.add {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (p, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_loadu_ps(to.add(r * width + p * LANES));
                }
            }
        }
        // Distances from one row to the next, and from one pair to the next.
        let (first, of_row, of_pair) = match BY_LANE {
            true => (row * tile.pairs, tile.pairs, 1),
            false => (row / LANES * LANES * tile.pairs + row % LANES, 1, LANES),
        };
        let mut left = tile.left.as_ptr().add(first);
        let mut right = tile.right.as_ptr();
        for _ in 0..tile.pairs {
            let mut b = [_mm512_setzero_si512(); PANELS];
            for (p, b) in b.iter_mut().enumerate() {
                *b = _mm512_loadu_si512(right.add(p * tile.distance).cast());
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_epi32(*left.add(r * of_row) as i32);
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = _mm512_dpbf16_ps(*sum, numbers(a), numbers(b));
                }
            }
            left = left.add(of_pair);
            right = right.add(LANES);
        }
        for (r, sums) in sums.iter().enumerate() {
            for (p, sum) in sums.iter().enumerate() {
                _mm512_storeu_ps(to.add(r * width + p * LANES), *sum);
            }
        }
    }
}

/// The tiles of AMX: 16 x 16 sums of 32 products. `T` executes its instructions.
pub(super) struct Amx<T = Processor>(T);

/// Tile registers of the four parts of a result, and of two panels of each operand.
const SUMS: [[u8; 2]; 2] = [[0, 1], [2, 3]];
const LEFT: [u8; 2] = [4, 5];
const RIGHT: [u8; 2] = [6, 7];

impl<T: TileInstructions> Unit for Amx<T> {
    const BY_LANE: bool = true;
    const STEP: usize = LANES;
    const ROWS: usize = LANES;

    fn run<U>(work: impl FnOnce(&mut Self) -> U) -> U {
        work(&mut Self(T::configured()))
    }

    unsafe fn multiply(&mut self, tile: &Tile, to: *mut f32, width: usize) {
        let tiles = &mut self.0;
        let (rows, columns) = (tile.rows.div_ceil(LANES), tile.columns.div_ceil(LANES));
        let part = |r: usize, c: usize| to.wrapping_add(r * LANES * width + c * LANES);
        // SAFETY: the caller's.
        unsafe {
            for (r, c) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                match tile.add {
                    true => tiles.load(SUMS[r][c], part(r, c).cast(), width),
                    false => tiles.zero(SUMS[r][c]),
                }
            }
            for first in (0..tile.pairs).step_by(LANES) {
                for (c, &register) in RIGHT.iter().enumerate().take(columns) {
                    let panel = tile.right.as_ptr().add(c * tile.distance + first * LANES);
                    tiles.load(register, panel, LANES);
                }
                for (r, &register) in LEFT.iter().enumerate().take(rows) {
                    let panel = tile.left.as_ptr().add(r * LANES * tile.pairs + first);
                    tiles.load(register, panel, tile.pairs);
                    for c in 0..columns {
                        tiles.add_products(SUMS[r][c], register, RIGHT[c]);
                    }
                }
            }
            for (r, c) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                tiles.store(SUMS[r][c], part(r, c).cast(), width);
            }
        }
    }
}
