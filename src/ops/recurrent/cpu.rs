//! Passes on the CPU. A task goes through all steps of its sequences.

use super::rules::{After, Before, CellRule, OfGates, OfStates, Passed, StepGrads, MOST_GATES, MOST_STATES};
use super::{Recurrent, Sizes};
use crate::linear::cpu::rows_per_task;
use crate::runtime::autograd::{Backward, CpuOp, Forward, Used};
use crate::runtime::float::Float;
use crate::runtime::gemm::{product, product_by, Right, View};
use crate::runtime::lanes::{add_chunk, by_index, load, splat, store, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Most tasks, and fewest sequences of a task: a product with fewer rows is slow.
const MAX_TASKS: usize = 16;
const SEQUENCES: usize = 8;
/// A product with so many results or fewer adds its terms in another order.
const SMALL_PRODUCT: usize = 256;
/// Rows of the gradient of U that a task computes.
const SLAB: usize = 64;

impl<R: CellRule> CpuOp for Recurrent<R> {
    /// y; then, if tracked, the pre-activations of each step's gates and the states after it.
    fn forward<F: Float>(&self, Forward { ins, tracked }: Forward<F>) -> Vec<Vec<F>> {
        let Sizes { batch, len, width } = self.0;
        let sequences = self.sequences();
        let steps = if tracked { len } else { 1 };
        let kept_each = Self::KEPT * width;
        let mut y = zeros(batch * len * width);
        let mut kept = zeros(batch * steps * kept_each);
        let map = Right::of(View::new(ins[1], width).t());
        y.chunks_mut(sequences * len * width)
            .zip(kept.chunks_mut(sequences * steps * kept_each))
            .zip(ins[0].chunks(sequences * len * R::GATES * width))
            .in_parallel(|((y, kept), wu)| self.forward_sequences(wu, &map, self.bias(ins), y, (kept, steps)));
        match tracked {
            true => vec![y, kept],
            false => vec![y],
        }
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let Sizes { len, width, .. } = self.0;
        let Used { value: y, grad } = call.only();
        let (wu, kept) = (call.ins[0], call.saved[0]);
        let (each, gates) = (self.sequences() * len, R::GATES * width);
        let map = Right::of(View::new(call.ins[1], width));
        let mut gwu = zeros(wu.len());
        let mut guy = zeros(if R::APART { wu.len() } else { 0 });
        gwu.chunks_mut(each * gates)
            .zip(guy.chunks_mut(each * gates).map(Some).chain(std::iter::repeat_with(|| None)))
            .zip(wu.chunks(each * gates).zip(kept.chunks(each * Self::KEPT * width)))
            .zip(y.chunks(each * width).zip(grad.chunks(each * width)))
            .in_parallel(|(((gwu, guy), (wu, kept)), (y, gy))| {
                self.backward_sequences(&map, Along { wu, kept, y, gy }, gwu, guy);
            });
        let guy = if R::APART { &guy } else { &gwu };
        let of_map = if call.needs_grad[1] { self.grad_map(guy, y) } else { Vec::new() };
        let of_bias = call.ins.get(2).map(|_| self.grad_bias(guy));
        [gwu, of_map].into_iter().chain(of_bias).collect()
    }
}

/// A task's sequences in the backward pass.
struct Along<'a, F> {
    wu: &'a [F],
    kept: &'a [F],
    y: &'a [F],
    gy: &'a [F],
}

impl<R: CellRule> Recurrent<R> {
    /// Vectors that each step keeps: those of its gates, then its states.
    const KEPT: usize = R::GATES + R::STATES;

    /// Sequences of a task, of which the last may have fewer: a function of the sizes alone. With several tasks, the
    /// product of each adds terms in the order of the product of all sequences.
    fn sequences(&self) -> usize {
        let Sizes { batch, width, .. } = self.0;
        let fewest = SEQUENCES.max(SMALL_PRODUCT / (R::GATES * width) + 1);
        let each = (2..=MAX_TASKS).rev().map(|tasks| batch.div_ceil(tasks));
        let mut enough = each.filter(|each| (batch - 1) % each + 1 >= fewest);
        enough.next().unwrap_or(batch)
    }

    fn bias<'a, F: Float>(&self, ins: &[&'a [F]]) -> &'a [F] {
        ins.get(2).copied().unwrap_or_default()
    }

    /// Initial states, one row.
    fn initial<F: Float>(&self) -> Vec<F> {
        R::INITIAL[1..].iter().flat_map(|&value| vec![F::of(value); self.0.width]).collect()
    }

    /// Writes y. `kept` has as many rows per sequence as its second part says; a step writes its own, or the only one.
    fn forward_sequences<F: Float>(
        &self,
        wu: &[F],
        map: &Right<F>,
        bias: &[F],
        y: &mut [F],
        (kept, steps): (&mut [F], usize),
    ) {
        let Sizes { len, width, .. } = self.0;
        let (gates, kept_each) = (R::GATES * width, Self::KEPT * width);
        let sequences = y.len() / (len * width);
        let (mut uy, none, mut states) = (zeros(sequences * gates), zeros(width), self.initial());
        for t in 0..len {
            if t > 0 {
                product_by(&mut uy, gates, View::strided(&y[(t - 1) * width..], width, len * width), map, false);
            }
            for s in 0..sequences {
                let at = s * len + t;
                let kept_at = |t: usize| (s * steps + t % steps) * kept_each;
                if t > 0 {
                    states.copy_from_slice(&kept[kept_at(t - 1)..][gates..kept_each]);
                }
                let (before_y, y) = y[..(at + 1) * width].split_at_mut(at * width);
                let before_y = if t == 0 { &none } else { &before_y[(at - 1) * width..] };
                let (kept, after) = kept[kept_at(t)..][..kept_each].split_at_mut(gates);
                let (wu, uy) = (&wu[at * gates..][..gates], &uy[s * gates..][..gates]);
                step_row::<R, F>(StepRow { wu, uy, bias, states: &states }, before_y, y, kept, after);
            }
        }
    }

    fn backward_sequences<F: Float>(
        &self,
        map: &Right<F>,
        Along { wu, kept, y, gy }: Along<F>,
        gwu: &mut [F],
        mut guy: Option<&mut [F]>,
    ) {
        let Sizes { len, width, .. } = self.0;
        let (gates, kept_each, states) = (R::GATES * width, Self::KEPT * width, R::STATES * width);
        let (initial, none) = (self.initial(), zeros(width));
        let sequences = y.len() / (len * width);
        let (mut from_map, mut direct) = (zeros(sequences * width), zeros(sequences * width));
        let mut carry = zeros(sequences * states);
        for t in (0..len).rev() {
            if t + 1 < len {
                let later = guy.as_deref().unwrap_or(gwu);
                let later = View::strided(&later[(t + 1) * gates..], gates, len * gates);
                product_by(&mut from_map, width, later, map, false);
            }
            for s in 0..sequences {
                let at = s * len + t;
                let (kept_gates, after) = kept[at * kept_each..][..kept_each].split_at(gates);
                let before = if t == 0 { &initial[..] } else { &kept[(at - 1) * kept_each..][gates..kept_each] };
                let row = BackRow {
                    kept: kept_gates,
                    wu: &wu[at * gates..][..gates],
                    y: if t == 0 { &none } else { &y[(at - 1) * width..][..width] },
                    before,
                    after,
                    gy: &gy[at * width..][..width],
                    from_map: &from_map[s * width..][..width],
                };
                let to = RowGrads {
                    wu: &mut gwu[at * gates..][..gates],
                    uy: guy.as_deref_mut().map(|guy| &mut guy[at * gates..][..gates]),
                    direct: &mut direct[s * width..][..width],
                    carry: &mut carry[s * states..][..states],
                };
                back_row::<R, F>(row, to);
            }
        }
    }

    /// The gradient of U: Σ over steps, from the last to the second, of that of U y_{t-1} times y_{t-1}. A step's sum over
    /// the batch has the parts of [`linear`](crate::linear())'s.
    fn grad_map<F: Float>(&self, guy: &[F], y: &[F]) -> Vec<F> {
        let Sizes { batch, len, width } = self.0;
        let (gates, part) = (R::GATES * width, rows_per_task(batch));
        let mut grad = zeros(gates * width);
        grad.chunks_mut(SLAB * width).enumerate().in_parallel(|(i, grad)| {
            let rows = grad.len() / width;
            let (mut of_step, mut of_part) = (zeros(grad.len()), zeros(grad.len()));
            for t in (1..len).rev() {
                for first in (0..batch).step_by(part) {
                    let end = batch.min(first + part) * len;
                    let guy = View::strided(&guy[(first * len + t) * gates + i * SLAB..end * gates], rows, len * gates);
                    let y = View::strided(&y[(first * len + t - 1) * width..end * width], width, len * width);
                    let to = if first == 0 { &mut of_step } else { &mut of_part };
                    product(to, width, guy.t(), y, false);
                    if first > 0 {
                        add_chunk(&mut of_step, &of_part);
                    }
                }
                add_chunk(grad, &of_step);
            }
        });
        grad
    }

    /// The gradient of c: the sum over steps, from the last on, of that of U y_{t-1} for the last gate.
    fn grad_bias<F: Float>(&self, guy: &[F]) -> Vec<F> {
        let Sizes { batch, len, width } = self.0;
        let gates = R::GATES * width;
        let mut grad = zeros(width);
        for t in (0..len).rev() {
            let mut of_step = zeros(width);
            for s in 0..batch {
                add_chunk(&mut of_step, &guy[(s * len + t) * gates..][gates - width..gates]);
            }
            add_chunk(&mut grad, &of_step);
        }
        grad
    }
}

/// A sequence's inputs of a step.
#[derive(Clone, Copy)]
struct StepRow<'a, F> {
    wu: &'a [F],
    uy: &'a [F],
    bias: &'a [F],
    states: &'a [F],
}

/// A sequence's values that the derivatives of a step depend on, and the gradients of y: from outside, and through U.
#[derive(Clone, Copy)]
struct BackRow<'a, F> {
    kept: &'a [F],
    wu: &'a [F],
    y: &'a [F],
    before: &'a [F],
    after: &'a [F],
    gy: &'a [F],
    from_map: &'a [F],
}

/// Gradients of a sequence's inputs of a step; those of y beside U, and of the states, replace those after the step.
struct RowGrads<'a, F> {
    wu: &'a mut [F],
    uy: Option<&'a mut [F]>,
    direct: &'a mut [F],
    carry: &'a mut [F],
}

/// Up to [`LANES`] channels, from `at` on.
#[derive(Clone, Copy)]
struct Span {
    at: usize,
    count: usize,
    width: usize,
}

impl Span {
    /// One group per vector of `x`; zeros for vectors that it lacks.
    #[inline(always)]
    fn load<F: Float, const MOST: usize>(self, x: &[F], vectors: usize) -> [Lanes<F>; MOST] {
        by_index(|i| if i < vectors { load(&x[i * self.width + self.at..][..self.count]) } else { splat(F::zero()) })
    }

    #[inline(always)]
    fn one<F: Float>(self, x: &[F]) -> Lanes<F> {
        load(&x[self.at..][..self.count])
    }

    #[inline(always)]
    fn store<F: Float, const MOST: usize>(self, x: &[Lanes<F>; MOST], to: &mut [F], vectors: usize) {
        for i in 0..MOST {
            if i < vectors {
                store(&x[i], &mut to[i * self.width + self.at..][..self.count]);
            }
        }
    }
}

/// Lane `i` of each group.
#[inline(always)]
fn lane<F: Float, const N: usize>(x: &[Lanes<F>; N], i: usize) -> [F; N] {
    by_index(|k| x[k][i])
}

#[inline(always)]
fn set<F: Float, const N: usize>(x: &mut [Lanes<F>; N], i: usize, to: [F; N]) {
    for k in 0..N {
        x[k][i] = to[k];
    }
}

#[simd]
fn step_row<R: CellRule, F: Float>(row: StepRow<F>, before: &[F], y: &mut [F], kept: &mut [F], after: &mut [F]) {
    let width = y.len();
    let whole = width / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        step_span::<R, F>(Span { at, count: LANES, width }, row, before, y, kept, after);
    }
    if whole < width {
        step_span::<R, F>(Span { at: whole, count: width - whole, width }, row, before, y, kept, after);
    }
}

#[inline(always)]
fn step_span<R: CellRule, F: Float>(
    span: Span,
    row: StepRow<F>,
    before: &[F],
    y: &mut [F],
    kept: &mut [F],
    after: &mut [F],
) {
    let (wu, uy): ([_; MOST_GATES], [_; MOST_GATES]) = (span.load(row.wu, R::GATES), span.load(row.uy, R::GATES));
    let bias = if row.bias.is_empty() { splat(F::zero()) } else { span.one(row.bias) };
    let (before, states): (_, [_; MOST_STATES]) = (span.one(before), span.load(row.states, R::STATES));
    let zero = splat(F::zero());
    let (mut to_y, mut to_kept, mut to_states) = ([zero], [zero; MOST_GATES], [zero; MOST_STATES]);
    for i in 0..LANES {
        let (wu, uy, states) = (lane(&wu, i), lane(&uy, i), lane(&states, i));
        let After { kept, y, states } = R::step(Before { wu, uy, bias: bias[i], y: before[i], states });
        to_y[0][i] = y;
        set(&mut to_kept, i, kept);
        set(&mut to_states, i, states);
    }
    span.store(&to_y, y, 1);
    span.store(&to_kept, kept, R::GATES);
    span.store(&to_states, after, R::STATES);
}

#[simd]
fn back_row<R: CellRule, F: Float>(row: BackRow<F>, mut to: RowGrads<F>) {
    let width = row.gy.len();
    let whole = width / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        back_span::<R, F>(Span { at, count: LANES, width }, row, &mut to);
    }
    if whole < width {
        back_span::<R, F>(Span { at: whole, count: width - whole, width }, row, &mut to);
    }
}

#[inline(always)]
fn back_span<R: CellRule, F: Float>(span: Span, row: BackRow<F>, to: &mut RowGrads<F>) {
    let (kept, wu): (OfLanes<F>, OfLanes<F>) = (span.load(row.kept, R::GATES), span.load(row.wu, R::GATES));
    let (before, after): (StateLanes<F>, StateLanes<F>) =
        (span.load(row.before, R::STATES), span.load(row.after, R::STATES));
    let carry: StateLanes<F> = span.load(to.carry, R::STATES);
    let (y, gy, from_map, direct) = (span.one(row.y), span.one(row.gy), span.one(row.from_map), span.one(to.direct));
    let zero = splat(F::zero());
    let (mut gwu, mut guy, mut of_y) = ([zero; MOST_GATES], [zero; MOST_GATES], [zero]);
    let mut of_states = [zero; MOST_STATES];
    for i in 0..LANES {
        let passed = Passed {
            kept: lane(&kept, i),
            wu: lane(&wu, i),
            y: y[i],
            before: lane(&before, i),
            after: lane(&after, i),
        };
        let within = if R::DIRECT { direct[i] + from_map[i] } else { from_map[i] };
        let arrived = within + gy[i];
        let StepGrads { wu, uy, y, states } = R::back(passed, arrived, lane(&carry, i));
        set(&mut gwu, i, wu);
        set(&mut guy, i, uy);
        of_y[0][i] = y;
        set(&mut of_states, i, states);
    }
    span.store(&gwu, to.wu, R::GATES);
    if let Some(uy) = &mut to.uy {
        span.store(&guy, uy, R::GATES);
    }
    span.store(&of_y, to.direct, 1);
    span.store(&of_states, to.carry, R::STATES);
}

type OfLanes<F> = OfGates<Lanes<F>>;
type StateLanes<F> = OfStates<Lanes<F>>;
