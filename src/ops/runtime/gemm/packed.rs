//! Products of f32 by a unit of the processor that multiplies bf16: operands are rounded while they are packed, a block
//! at a time, and sums are f32.
//!
//! A packed operand consists of panels of 16 lanes, which are rows of the left operand or columns of the right one. The
//! numbers of a lane lie in pairs, since a unit adds two products at a time; an odd last number is paired with zero.

#![allow(unsafe_code)]

use super::pack::{pack, PanelLayout};
use super::unit::{Tile, Unit, LANES, TILE};
use super::view::View;
use crate::runtime::parallel::InParallel;
use std::cell::RefCell;
use std::ops::Range;

/// Inner numbers of a block: two panels of the right operand then take half of a small first cache.
const DEPTH: usize = 256;
/// Rows of the left operand that are packed together, which stay in the second cache.
const ROWS: usize = 128;
/// Words from which the right operand is packed by several threads, and the panels that one of them packs at a time.
const MANY: usize = 1 << 16;
const PANELS: usize = 8;

/// The numbers of bf16 whose sum stands for a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    /// Rounded to bf16.
    One,
    /// The rounded number and the rounded remainder, 16 bits in all. Three of the four products are added; the fourth,
    /// of both remainders, is below the rounding of the remainders.
    Two,
}

impl Terms {
    fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// Terms of the left and the right factor that are multiplied, the smallest products first.
    fn products(self) -> &'static [[usize; 2]] {
        match self {
            Self::One => &[[0, 0]],
            Self::Two => &[[1, 0], [0, 1], [0, 0]],
        }
    }
}

/// The right operand: blocks of its inner numbers, each with all panels of the first term, then of the second.
#[derive(Default)]
pub(super) struct Packed {
    words: Vec<u32>,
    depth: usize,
    columns: usize,
}

impl Packed {
    /// Packs `b` for `unit`.
    pub(super) fn of<U: Unit>(b: View<f32>, terms: Terms) -> Self {
        let mut packed = Self::default();
        packed.fill::<U>(b, terms);
        packed
    }

    /// Replaces the contents by `b`.
    fn fill<U: Unit>(&mut self, b: View<f32>, terms: Terms) {
        (self.depth, self.columns) = (b.rows, b.columns);
        let (panels, lanes) = (self.panels(), b.t());
        let size =
            terms.count() * panels * LANES * (0..self.depth).step_by(DEPTH).map(|k| self.pairs::<U>(k)).sum::<usize>();
        self.words.clear();
        self.words.reserve(size);
        let mut rest = &mut self.words.spare_capacity_mut()[..size];
        let mut tasks = Vec::new();
        for k in (0..self.depth).step_by(DEPTH) {
            let inner = k..(k + DEPTH).min(self.depth);
            let panel = LANES * PanelLayout::pairs_of::<U>(inner.len());
            for term in 0..terms.count() {
                let (now, later) = rest.split_at_mut(panels * panel);
                rest = later;
                for (i, words) in now.chunks_mut(PANELS * panel).enumerate() {
                    tasks.push((inner.clone(), term, panel, i * PANELS * LANES, words));
                }
            }
        }
        let run = |(inner, term, panel, first, words): (Range<usize>, usize, usize, usize, &mut [_])| {
            let columns = first..(first + words.len() / panel * LANES).min(lanes.rows);
            pack(lanes.part(columns, inner), PanelLayout { pairs: panel / LANES, term, by_lane: false }, words);
        };
        match size >= MANY {
            true => tasks.into_iter().in_parallel(run),
            false => tasks.into_iter().for_each(run),
        }
        // SAFETY: the tasks have written every word.
        unsafe { self.words.set_len(size) };
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    fn panels(&self) -> usize {
        self.columns.div_ceil(LANES)
    }

    /// Pairs of the block that starts at an inner number.
    fn pairs<U: Unit>(&self, first: usize) -> usize {
        PanelLayout::pairs_of::<U>((self.depth - first).min(DEPTH))
    }

    /// The panels of a term of the block that starts at an inner number.
    fn block<U: Unit>(&self, terms: Terms, first: usize, term: usize) -> &[u32] {
        let before = terms.count() * self.panels() * LANES * PanelLayout::pairs_of::<U>(DEPTH) * (first / DEPTH);
        let size = self.panels() * LANES * self.pairs::<U>(first);
        &self.words[before + term * size..][..size]
    }
}

/// A part of a product: inner numbers, and columns of the result, which start at a whole group of 16.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    pub(crate) depth: Range<usize>,
    pub(crate) columns: Range<usize>,
}

impl Part {
    /// Returns the smallest part that contains both.
    pub(crate) fn both(self, other: Self) -> Self {
        Self { depth: both(self.depth, other.depth), columns: both(self.columns, other.columns) }
    }
}

fn both(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b,
        (_, true) => a,
        _ => a.start.min(b.start)..a.end.max(b.end),
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    static RIGHT: RefCell<Packed> = RefCell::default();
}

/// Calls `work` with `b` packed in memory of this thread.
pub(super) fn with_packed<U: Unit, T>(b: View<f32>, terms: Terms, work: impl FnOnce(&Packed) -> T) -> T {
    let mut packed = RIGHT.take();
    packed.fill::<U>(b, terms);
    let made = work(&packed);
    RIGHT.set(packed);
    made
}

/// `to = a b`, or `to += a b`, for a part of the product; `to` starts at the first row and at column 0, and has rows of
/// `width` numbers. Up to two steps of the unit beside the part's inner numbers may be used, too.
pub(super) fn multiply<U: Unit>(
    to: &mut [f32],
    width: usize,
    a: View<f32>,
    b: &Packed,
    terms: Terms,
    part: &Part,
    add: bool,
) {
    let Part { depth, columns } = part;
    assert!(depth.end <= b.depth && depth.end <= a.columns && columns.end <= b.columns && columns.end <= width);
    assert!(columns.start.is_multiple_of(LANES) && (a.rows - 1) * width + columns.end <= to.len());
    let mut left = SCRATCH.take();
    U::run(|unit| {
        for block in (depth.start / DEPTH * DEPTH..depth.end).step_by(DEPTH) {
            // Whole steps of the unit, relative to the block.
            let step = 2 * U::STEP;
            let first = depth.start.saturating_sub(block) / step * step;
            let last = (depth.end - block).min(DEPTH).next_multiple_of(step).min((b.depth - block).min(DEPTH));
            let inner = block + first..(block + last).min(a.columns);
            let pairs = PanelLayout::pairs_of::<U>(inner.len());
            // A unit that takes either order gets the one of the operand, which need not be transposed then.
            let by_lane = U::BY_LANE || a.column_stride == 1;
            let add = add || block + first > depth.start;
            for rows in (0..a.rows).step_by(ROWS) {
                let rows = rows..(rows + ROWS).min(a.rows);
                let panels = rows.len().div_ceil(LANES);
                pack_left(a.part(rows.clone(), inner.clone()), terms, pairs, by_lane, &mut left);
                for (i, terms_of) in terms.products().iter().enumerate() {
                    let left = &left[terms_of[0] * panels * LANES * pairs..][..panels * LANES * pairs];
                    let right = b.block::<U>(terms, block, terms_of[1]);
                    let distance = LANES * b.pairs::<U>(block);
                    for column in columns.clone().step_by(TILE) {
                        let right = &right[column / LANES * distance + first / 2 * LANES..];
                        for row in (0..rows.len()).step_by(TILE) {
                            let tile = Tile {
                                left: &left[row * pairs..],
                                by_lane,
                                right,
                                distance,
                                pairs,
                                rows: (rows.len() - row).min(TILE),
                                columns: (columns.end - column).min(TILE),
                                add: add || i > 0,
                            };
                            tile.compute(unit, &mut to[(rows.start + row) * width + column..], width);
                        }
                    }
                }
            }
        }
    });
    SCRATCH.set(left);
}

/// Packs rows of the left operand: all panels of the first term, then of the second.
fn pack_left(a: View<f32>, terms: Terms, pairs: usize, by_lane: bool, to: &mut Vec<u32>) {
    let panels = a.rows.div_ceil(LANES);
    let size = terms.count() * panels * LANES * pairs;
    to.clear();
    to.reserve(size);
    let words = to.spare_capacity_mut()[..size].chunks_mut(panels * LANES * pairs);
    for (term, words) in words.enumerate() {
        pack(a, PanelLayout { pairs, term, by_lane }, words);
    }
    // SAFETY: `pack` has written every word.
    unsafe { to.set_len(size) };
}
