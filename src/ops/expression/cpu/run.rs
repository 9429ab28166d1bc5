//! Values of a program, block by block.

use super::kernels;
use super::Grads;
use crate::expression::program::{Program, Reach, Step};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;

/// Numbers of a block that reaches all elements.
const BLOCK: usize = 1 << 11;
/// Columns that a task sums.
const COLUMNS: usize = 1 << 8;

/// Successive rows.
pub(super) struct Block {
    first: usize,
    rows: usize,
}

/// A program with its inputs.
pub(super) struct Run<'a, F> {
    program: &'a Program,
    ins: &'a [&'a [F]],
    /// The outputs whose values are given.
    known: Vec<Option<&'a [F]>>,
    /// Whether each value is computed.
    computed: Vec<bool>,
    /// Values without the first axes; the others are empty.
    last: Vec<Vec<F>>,
    width: usize,
    /// Rows of a block.
    rows: usize,
}

impl<'a, F: Float> Run<'a, F> {
    /// Prepares to compute the `needed` values, of which some outputs may be `known`.
    pub(super) fn new(
        program: &'a Program,
        ins: &'a [&'a [F]],
        known: Vec<Option<&'a [F]>>,
        needed: Vec<bool>,
    ) -> Self {
        let width = if program.by_row { program.width() } else { 1 };
        // A small tensor is one block, which takes no more memory than it needs.
        let rows = (BLOCK / width).clamp(1, (program.shape.elem_count() / width).max(1));
        let mut this = Self { program, ins, known, computed: needed, last: Vec::new(), width, rows };
        for value in (0..program.values.len()).rev() {
            if this.computed[value] && this.known[value].is_none() {
                program.values[value].step.operands().for_each(|x| this.computed[x] = true);
            }
        }
        for value in 0..program.values.len() {
            let mut y = Vec::new();
            if this.is_made(value) && program.is_last(value) {
                y = vec![F::zero(); this.whole_len(value)];
                this.step(value, 0, |x| this.last(x), &mut y);
            }
            this.last.push(y);
        }
        this
    }

    /// Whether a value is computed, and not given.
    fn is_made(&self, value: usize) -> bool {
        let is_input = matches!(self.program.values[value].step, Step::Load(_));
        self.computed[value] && self.known[value].is_none() && !is_input
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        let (all, rows) = (self.program.shape.elem_count() / self.width, self.rows);
        (0..all).step_by(rows).map(move |first| Block { first, rows: rows.min(all - first) })
    }

    /// Memory for the values of a block.
    pub(super) fn scratch(&self) -> Vec<Vec<F>> {
        let len = |value| if self.program.is_last(value) { 0 } else { self.block_len(value) };
        (0..self.program.values.len()).map(|value| vec![F::zero(); len(value)]).collect()
    }

    pub(super) fn whole_len(&self, value: usize) -> usize {
        self.program.values[value].shape.elem_count()
    }

    /// Length of a value in a whole block.
    pub(super) fn block_len(&self, value: usize) -> usize {
        self.of_rows(value, self.rows)
    }

    /// Length of a value in a block.
    pub(super) fn len(&self, value: usize, block: &Block) -> usize {
        self.of_rows(value, block.rows)
    }

    /// Length of a value in `rows` rows.
    fn of_rows(&self, value: usize, rows: usize) -> usize {
        match self.program.reach(value) {
            Some(Reach::Row) => rows,
            _ => rows * self.width,
        }
    }

    /// The block's part of a value.
    pub(super) fn part<'x>(&self, value: usize, x: &'x [F], block: &Block) -> &'x [F] {
        &x[self.of_rows(value, block.first)..][..self.len(value, block)]
    }

    /// Computes the values of a block.
    pub(super) fn compute(&self, block: &Block, scratch: &mut [Vec<F>]) {
        for value in (0..scratch.len()).filter(|&value| self.is_made(value) && !self.program.is_last(value)) {
            let (before, rest) = scratch.split_at_mut(value);
            let y = &mut rest[0][..self.len(value, block)];
            self.step(value, block.first * self.width, |x| self.value(x, block, before), y);
        }
    }

    /// A value in a block.
    pub(super) fn value<'s>(&'s self, value: usize, block: &Block, scratch: &'s [Vec<F>]) -> &'s [F] {
        if self.program.is_last(value) {
            return self.last(value);
        }
        match (self.known[value], self.program.values[value].step) {
            (Some(x), _) => self.part(value, x, block),
            (None, Step::Load(input)) => self.part(value, self.ins[input], block),
            _ => &scratch[value][..self.len(value, block)],
        }
    }

    /// A value that lacks the first axes.
    pub(super) fn last(&self, value: usize) -> &[F] {
        match self.program.values[value].step {
            Step::Load(input) => self.ins[input],
            _ => &self.last[value],
        }
    }

    /// Computes `y` from its operands `of`; its first element is number `first` of the whole.
    fn step<'x>(&self, value: usize, first: usize, of: impl Fn(usize) -> &'x [F], y: &mut [F])
    where
        F: 'x,
    {
        match self.program.values[value].step {
            Step::Load(_) => {}
            Step::Unary(function, x) => kernels::unary(function, of(x), y),
            Step::Affine(x, numbers) => kernels::affine(of(x), numbers.map(F::of), y),
            Step::Binary(function, [a, b]) => kernels::binary(function, of(a), of(b), y),
            Step::RowSum(x) => kernels::row_sums(of(x), self.width, y),
            Step::Expand(x) => match self.program.reach(x) {
                Some(Reach::Row) => kernels::repeat_each(of(x), self.width, y),
                _ => kernels::repeat(of(x), first, y),
            },
        }
    }

    /// Passes the gradient of a value on to those of its operands that are `live`, where `of` gives the values and `len`
    /// their lengths.
    pub(super) fn pass_back<'x>(
        &self,
        value: usize,
        live: &[bool],
        grads: &mut Grads<F>,
        of: impl Fn(usize) -> &'x [F],
        len: impl Fn(usize) -> usize,
    ) where
        F: 'x,
    {
        let g = std::mem::take(&mut grads.of[value]);
        let from = &g[..len(value)];
        // Operands that a formula does not read may hold numbers of another block.
        match self.program.values[value].step {
            Step::Load(_) => {}
            Step::Unary(function, x) => kernels::unary_back(function, [of(x), of(value)], from, grads.to(x, len(x))),
            Step::Affine(x, [scale, _]) => kernels::affine_back(F::of(scale), from, grads.to(x, len(x))),
            Step::Binary(function, [a, b]) => {
                if live[a] {
                    kernels::left_back(function, of(b), from, grads.to(a, len(a)));
                }
                if live[b] {
                    kernels::right_back(function, [of(a), of(b)], from, grads.to(b, len(b)));
                }
            }
            Step::RowSum(x) => kernels::add_each(from, self.width, grads.to(x, len(x))),
            Step::Expand(x) => match (self.program.reach(x), self.program.reach(value)) {
                (Some(Reach::Row), _) => kernels::add_row_sums(from, self.width, grads.to(x, len(x))),
                (_, Some(Reach::Last)) => {
                    let sums = self.sums_over_first_axes(value, x, from);
                    kernels::add(&sums, grads.to(x, sums.len()));
                }
                // Summed over all blocks at the end.
                _ => {}
            },
        }
        grads.of[value] = g;
    }

    /// Returns the sum of the gradient of `value` over the axes along which `x` was repeated.
    pub(super) fn sums_over_first_axes(&self, value: usize, x: usize, grad: &[F]) -> Vec<F> {
        let [from, to] = [x, value].map(|value| self.program.values[value].shape.dims());
        let inserted = to.len() - from.len();
        let is_summed = |axis: usize| axis < inserted || from[axis - inserted] != to[axis];
        let len = self.whole_len(x);
        let mut sums = vec![F::zero(); len];
        if (0..to.len()).map(is_summed).is_sorted() {
            // Candle sums numbers that lie beside one another as rows.
            kernels::row_sums(grad, grad.len() / len, &mut sums);
            return sums;
        }
        let columns = sums.chunks_mut(COLUMNS).enumerate();
        columns.in_parallel(|(i, sums)| kernels::column_sums(grad, len, i * COLUMNS, sums));
        sums
    }
}
