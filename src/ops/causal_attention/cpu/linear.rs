//! Linear attention in time linear in L, by the chunked sum: weights that are scores, or scores
//! over their sum.

use super::super::{CausalAttention, Weights};
use crate::runtime::autograd::Used;
use crate::runtime::chunked::{Chunked, Inputs, Times};
use crate::runtime::float::Float;
use crate::runtime::lanes::dot;
use crate::runtime::parallel::InParallel;
use crate::runtime::route;
use crate::runtime::zeros::zeros;

/// Rows of a task of a pass over memory.
const ROWS: usize = 256;

/// Returns the chunked sum of the values, if it applies and either costs less than all pairs or was requested.
pub(in super::super) fn sums(op: &CausalAttention) -> Option<Chunked> {
    let linear = op.weights != Weights::Softmax && op.mask.is_none();
    let mut lists = op.reach.chunks_exact(op.rows);
    if !linear || !lists.all(|reach| reach.is_sorted()) {
        return None;
    }
    let lists = op.reach.len() / op.rows;
    let times = op.reach.iter().map(|reach| reach - 1).collect();
    let sums = Chunked {
        sequences: op.batch * op.heads,
        len: op.len,
        channels: op.value_width,
        states: op.key_width,
        times: Times::lists(times, op.rows, op.batch * op.heads / lists),
    };
    let pairs: usize = op.reach.iter().sum();
    let direct = pairs / lists * (op.key_width + op.value_width);
    route::by_chunks(sums.products() < direct).then_some(sums)
}

pub(super) fn forward<F: Float>(op: &CausalAttention, sums: Chunked, ins: &[&[F]]) -> Vec<F> {
    let mut o = sums.forward(&inputs(ins, ins[2]));
    if op.weights == Weights::LinearNormalised {
        let e = op.value_width;
        let tasks = o.chunks_mut(ROWS * e);
        let reciprocals = reciprocals(op, sums, ins);
        tasks.zip(reciprocals.chunks(ROWS)).in_parallel(|(o, reciprocals)| {
            for (o, &reciprocal) in o.chunks_exact_mut(e).zip(reciprocals) {
                for o in o {
                    *o *= reciprocal;
                }
            }
        });
    }
    o
}

pub(super) fn backward<F: Float>(op: &CausalAttention, sums: Chunked, ins: &[&[F]], out: Used<&[F]>) -> Vec<Vec<F>> {
    if op.weights == Weights::Plain {
        let grads = sums.backward(&inputs(ins, ins[2]), out.grad);
        return vec![grads.c, grads.b, grads.v];
    }
    // An additional value column of ones carries the gradient of the normaliser.
    let (e, wide) = (op.value_width, op.value_width + 1);
    let mut v = vec![F::one(); ins[2].len() / e * wide];
    let tasks = v.chunks_mut(ROWS * wide).zip(ins[2].chunks(ROWS * e));
    tasks.in_parallel(|(v, from)| {
        for (wide, v) in v.chunks_exact_mut(wide).zip(from.chunks_exact(e)) {
            wide[..e].copy_from_slice(v);
        }
    });
    let sums = Chunked { channels: wide, ..sums };
    let ones = Chunked { channels: 1, times: sums.times.clone(), ..sums };
    let mut go = zeros(out.grad.len() / e * wide);
    let reciprocals = reciprocals(op, ones, ins);
    let reads = out.grad.chunks(ROWS * e).zip(out.value.chunks(ROWS * e));
    go.chunks_mut(ROWS * wide).zip(reciprocals.chunks(ROWS)).zip(reads).in_parallel(|((to, reciprocals), (go, o))| {
        let reads = go.chunks_exact(e).zip(o.chunks_exact(e));
        let rows = to.chunks_exact_mut(wide).zip(reciprocals);
        for ((wide, &reciprocal), (go, o)) in rows.zip(reads) {
            for (wide, &go) in wide.iter_mut().zip(go) {
                *wide = go * reciprocal;
            }
            wide[e] = -dot(go, o) * reciprocal;
        }
    });
    let grads = sums.backward(&inputs(ins, &v), &go);
    let mut gv = zeros(ins[2].len());
    let tasks = gv.chunks_mut(ROWS * e).zip(grads.v.chunks(ROWS * wide));
    tasks.in_parallel(|(gv, from)| {
        for (gv, wide) in gv.chunks_exact_mut(e).zip(from.chunks_exact(wide)) {
            gv.copy_from_slice(&wide[..e]);
        }
    });
    vec![grads.c, grads.b, gv]
}

/// The reciprocal normaliser 1 / Σ_j s_ij of each row.
fn reciprocals<F: Float>(op: &CausalAttention, sums: Chunked, ins: &[&[F]]) -> Vec<F> {
    let sums = Chunked { channels: 1, ..sums };
    let ones = vec![F::one(); op.batch * op.heads * op.len];
    let sums = sums.forward(&inputs(ins, &ones));
    sums.into_iter().map(|sum| F::one() / sum).collect()
}

fn inputs<'a, F>(ins: &[&'a [F]], v: &'a [F]) -> Inputs<'a, F> {
    Inputs { b: ins[1], c: ins[0], x: v, decay: None }
}
