//! Passes on the CPU. They work on a block of rows at a time, so that intermediate values stay in the cache; the backward
//! pass computes those again that it needs.
//!
//! Values have the bits of the chain of ops: the functions are the same, and rows are summed in Candle's order. Gradients
//! are made by Candle's formulas, and have the bits of the chain where they are sums of two terms. Longer sums are added
//! in the chain's order if all terms are from one expression with one output, or from such expressions one behind
//! another, but not always: Candle's order depends on the whole graph. See [`Expression::apart`].
//!
//! [`Expression::apart`]: super::Expression::apart

mod kernels;
mod run;

use super::program::{Program, Reach, Step, Value};
use super::{Binary, Unary};
use crate::runtime::autograd::{Backward, CpuOp, Forward, Used, MAX_INPUTS};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use candle_core::{DType, Tensor};
use run::Run;

/// Whether the passes compute a program of these inputs.
pub(super) fn takes(program: &Program, inputs: &[Tensor]) -> bool {
    let is_known = |value: usize| {
        let reach = program.reach(value);
        match program.values[value].step {
            Step::RowSum(x) => {
                // Candle sums rows of a view in another order than those of its copy.
                let of_view = matches!(program.values[x].step, Step::Load(input) if !inputs[input].is_contiguous());
                program.reach(x) == Some(Reach::All) && !of_view
            }
            // Candle passes no gradient through it.
            Step::Affine(_, [0.0, _]) => false,
            Step::Expand(x) => match program.reach(x) {
                Some(Reach::Last) => reach == Some(Reach::All) || reach == Some(Reach::Last),
                of => of == Some(Reach::Row) && reach == Some(Reach::All),
            },
            _ => reach.is_some(),
        }
    };
    matches!(program.dtype, DType::F32 | DType::F64)
        && inputs.len() <= MAX_INPUTS
        && program.shape.elem_count() > 0
        && inputs.iter().all(|x| x.dtype() == program.dtype)
        && (0..program.values.len()).all(is_known)
}

impl CpuOp for Program {
    const CONTINUES: bool = true;

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let count = self.values.len();
        let run = Run::new(self, ins, vec![None; count], vec![true; count]);
        let mut outs: Vec<Vec<F>> = self.returned.iter().map(|&value| zeros(run.whole_len(value))).collect();
        let mut parts: Vec<_> =
            outs.iter_mut().zip(&self.returned).map(|(out, &value)| out.chunks_mut(run.block_len(value))).collect();
        let next = |block| (block, parts.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>());
        run.blocks().map(next).in_parallel_with(
            || run.scratch(),
            |scratch, (block, parts)| {
                run.compute(&block, scratch);
                for (part, &value) in parts.into_iter().zip(&self.returned) {
                    part.copy_from_slice(run.value(value, &block, scratch));
                }
            },
        );
        outs
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let live = self.live(call.needs_grad, call.outs);
        let mut known = vec![None; self.values.len()];
        for (&value, out) in self.returned.iter().zip(call.outs) {
            known[value] = known[value].or(out.map(|out| out.value));
        }
        let needed = self.needed_by_gradients(&live);
        let run = Run::new(self, call.ins, known, needed);
        // The gradient of each block goes to an input, or waits to be summed over the first axes.
        let is_written = |value: usize| live[value] && self.is_written(value);
        let mut written: Vec<Vec<F>> = (0..self.values.len())
            .map(|value| if is_written(value) { zeros(run.whole_len(value)) } else { Vec::new() })
            .collect();
        let mut parts: Vec<_> = written
            .iter_mut()
            .enumerate()
            .map(|(value, grad)| (value, grad.chunks_mut(run.block_len(value))))
            .collect();
        let next = |block| {
            let parts = parts.iter_mut().filter_map(|(value, parts)| Some((*value, parts.next()?)));
            (block, parts.collect::<Vec<_>>())
        };
        run.blocks().map(next).in_parallel_with(
            || (run.scratch(), Grads { of: run.scratch(), reached: vec![false; self.values.len()] }),
            |(scratch, grads), (block, parts)| {
                run.compute(&block, scratch);
                grads.reached.fill(false);
                for (value, grad) in self.begun(call.begun).filter(|(value, _)| !self.is_last(*value)) {
                    kernels::add(run.part(value, grad, &block), grads.to(value, run.len(value, &block)));
                }
                for (&value, out) in self.returned.iter().zip(call.outs) {
                    if let Some(Used { grad, .. }) = out {
                        kernels::add(run.part(value, grad, &block), grads.to(value, run.len(value, &block)));
                    }
                }
                for value in (0..self.values.len()).rev().filter(|&value| live[value] && !self.is_last(value)) {
                    run.pass_back(value, &live, grads, |x| run.value(x, &block, scratch), |x| run.len(x, &block));
                }
                for (value, part) in parts {
                    part.copy_from_slice(&grads.of[value][..part.len()]);
                }
            },
        );
        let mut found = self.last_gradients(&run, &live, written, call.begun);
        for (input, grad) in found.iter_mut().enumerate() {
            if call.needs_grad[input] && grad.is_empty() {
                // No output that the loss depends on is computed from it.
                *grad = call.begun[input].map_or_else(|| zeros(call.ins[input].len()), <[F]>::to_vec);
            }
        }
        found
    }
}

/// The gradients of values so far.
struct Grads<F> {
    of: Vec<Vec<F>>,
    /// Whether a gradient has arrived.
    reached: Vec<bool>,
}

impl<F: Float> Grads<F> {
    /// Returns the gradient of a value, to which another is added.
    fn to(&mut self, value: usize, len: usize) -> &mut [F] {
        let to = &mut self.of[value][..len];
        if !std::mem::replace(&mut self.reached[value], true) {
            to.fill(F::zero());
        }
        to
    }
}

impl Program {
    /// Whether a value's gradients of all blocks are kept.
    fn is_written(&self, value: usize) -> bool {
        match self.values[value].step {
            Step::Load(_) => !self.is_last(value),
            Step::Expand(x) => self.is_last(x) && !self.is_last(value),
            _ => false,
        }
    }

    /// The values that are inputs, with the gradients that have arrived from other ops.
    fn begun<'a, F>(&'a self, begun: &'a [Option<&'a [F]>]) -> impl Iterator<Item = (usize, &'a [F])> {
        let of = |value: &Value| match value.step {
            Step::Load(input) => begun[input],
            _ => None,
        };
        self.values.iter().enumerate().filter_map(move |(i, value)| Some((i, of(value)?)))
    }

    /// Whether a gradient flows through each value to an input that needs one.
    fn live<T>(&self, needs_grad: &[bool], outs: &[Option<Used<T>>]) -> Vec<bool> {
        let mut tracked = Vec::new();
        for value in &self.values {
            let is_tracked = match value.step {
                Step::Load(input) => needs_grad[input],
                step => step.operands().any(|x| tracked[x]),
            };
            tracked.push(is_tracked);
        }
        let mut live = vec![false; tracked.len()];
        for (&value, out) in self.returned.iter().zip(outs) {
            live[value] |= out.is_some() && tracked[value];
        }
        for value in (0..live.len()).rev() {
            for x in self.values[value].step.operands() {
                live[x] |= live[value] && tracked[x];
            }
        }
        live
    }

    /// Whether each value appears in the formula of a gradient.
    fn needed_by_gradients(&self, live: &[bool]) -> Vec<bool> {
        let mut needed = vec![false; live.len()];
        for (i, value) in self.values.iter().enumerate().filter(|(i, _)| live[*i]) {
            match value.step {
                Step::Unary(Unary::Exp | Unary::Sigmoid | Unary::Sqrt | Unary::Tanh, _) => needed[i] = true,
                Step::Unary(Unary::Neg, _) => {}
                Step::Unary(_, x) => needed[x] = true,
                Step::Binary(Binary::Mul, [x, y]) => {
                    needed[x] |= live[y];
                    needed[y] |= live[x];
                }
                Step::Binary(Binary::Div | Binary::SiluGate, [x, y]) => {
                    needed[x] |= live[y];
                    needed[y] = true;
                }
                _ => {}
            }
        }
        needed
    }

    /// Returns the gradients of all inputs, given those of `written` blocks; of what lacks the first axes they are sums.
    fn last_gradients<F: Float>(
        &self,
        run: &Run<F>,
        live: &[bool],
        mut written: Vec<Vec<F>>,
        begun: &[Option<&[F]>],
    ) -> Vec<Vec<F>> {
        let count = self.values.len();
        let empty =
            |value| if live[value] && self.is_last(value) { vec![F::zero(); run.whole_len(value)] } else { vec![] };
        let mut grads = Grads { of: (0..count).map(empty).collect(), reached: vec![false; count] };
        for (value, grad) in self.begun(begun).filter(|(value, _)| live[*value] && self.is_last(*value)) {
            kernels::add(grad, grads.to(value, grad.len()));
        }
        for value in (0..count).rev().filter(|&value| live[value]) {
            if self.is_last(value) {
                run.pass_back(value, live, &mut grads, |x| run.last(x), |x| run.whole_len(x));
            } else if let (Step::Expand(x), true) = (self.values[value].step, self.is_written(value)) {
                let sums = run.sums_over_first_axes(value, x, &std::mem::take(&mut written[value]));
                kernels::add(&sums, grads.to(x, sums.len()));
            }
        }
        let mut found: Vec<Vec<F>> = self.reaches.iter().map(|_| Vec::new()).collect();
        for (i, value) in self.values.iter().enumerate().filter(|(i, _)| live[*i]) {
            if let Step::Load(input) = value.step {
                let grads = if self.is_last(i) { &mut grads.of[i] } else { &mut written[i] };
                found[input] = std::mem::take(grads);
            }
        }
        found
    }
}
