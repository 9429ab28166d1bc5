//! Products of small matrices on a unit for bf16, of which only a part is needed.

use super::method::Method;
pub(crate) use super::packed::Part;
use super::packed::{multiply, with_packed, Terms};
use super::unit::{Amx, Avx512Bf16, Unit};
use super::view::{single_mut, View};
use crate::runtime::float::Float;
use std::ops::Range;

/// Rows of the result that share the bounds of a part.
const ROWS: usize = 32;

/// A product of matrices on one thread.
pub(crate) struct SmallProduct<'a, F> {
    pub(crate) a: View<'a, F>,
    pub(crate) b: View<'a, F>,
    /// Whether it is added to the contents of the result.
    pub(crate) add: bool,
}

impl<F: Float> SmallProduct<'_, F> {
    /// Computes some rows of the result, which has rows of `width` numbers: each block of rows within the part that
    /// `part` returns for it. Numbers of `a` beside that part may be used, and must be zero.
    pub(crate) fn compute(&self, to: &mut [F], width: usize, rows: Range<usize>, part: impl Fn(Range<usize>) -> Part) {
        let blocks = rows.clone().step_by(ROWS).map(|first| first..(first + ROWS).min(rows.end));
        let mut blocks: Vec<_> = blocks.map(|rows| (rows.clone(), part(rows))).collect();
        blocks.retain(|(_, part)| !part.columns.is_empty());
        if !self.add {
            for (rows, part) in blocks.iter().filter(|(_, part)| part.depth.is_empty()) {
                for row in rows.clone() {
                    to[row * width..][part.columns.clone()].fill(F::zero());
                }
            }
        }
        blocks.retain(|(_, part)| !part.depth.is_empty());
        match Method::current::<F>() {
            Method::Avx512Bf16 => self.blocks::<Avx512Bf16>(to, width, Terms::One, blocks),
            Method::Amx(terms) => self.blocks::<Amx>(to, width, terms, blocks),
            Method::Plain | Method::Rounded => unreachable!("there is no unit"),
        }
    }

    fn blocks<U: Unit>(&self, to: &mut [F], width: usize, terms: Terms, blocks: Vec<(Range<usize>, Part)>) {
        let Some(all) = blocks.iter().map(|(_, part)| part.clone()).reduce(Part::both) else { return };
        let a = self.a.part(0..self.a.rows, all.depth.clone()).single();
        let b = self.b.part(all.depth.clone(), 0..all.columns.end).single();
        let to = single_mut(to);
        with_packed::<U, _>(b, terms, |b| {
            for (rows, Part { depth, columns }) in blocks {
                let depth = depth.start - all.depth.start..depth.end - all.depth.start;
                let (first, inner) = (rows.start * width, 0..a.columns);
                multiply::<U>(
                    &mut to[first..],
                    width,
                    a.part(rows, inner),
                    b,
                    terms,
                    &Part { depth, columns },
                    self.add,
                );
            }
        });
    }
}
