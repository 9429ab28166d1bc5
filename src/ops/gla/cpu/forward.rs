//! The forward pass of one task. Lanes are columns; blocks are rows of the state, which stay in
//! registers during a span of steps.

use crate::runtime::float::Float;
use crate::runtime::lanes::{each, map, splat, Lanes};
use crate::runtime::matrix_state::{
    blocks, each_group, result, weighted, without_traces, write_features, SpanSteps, StateBlock, StateSizes, Task,
    BLOCK, IN_GROUP,
};
use crate::runtime::strips::StripRows;
use dsf_simd::simd;

pub(super) fn forward<F: Float>(op: &StateSizes, ins: &[&[F]]) -> Vec<F> {
    result(op, ins, forward_task)
}

#[simd]
fn forward_task<F: Float>(task: &Task<F>, mut o: StripRows<F>) {
    let mut steps = SpanSteps::new(task);
    let (rows, groups) = (task.sizes.keys.div_ceil(BLOCK), steps.along_values);
    let mut state: Vec<StateBlock<F>> = vec![[splat(F::zero()); BLOCK]; rows * groups];
    let mut sums: Vec<Lanes<F>> = Vec::new();
    for span in SpanSteps::spans(task) {
        steps.load_with_queries(task, span, None);
        sums.clear();
        sums.resize(steps.events.len() * groups, splat(F::zero()));
        for group in 0..groups {
            for row in 0..rows {
                let state = &mut state[group * rows + row];
                walk(&steps, (row, group), state, &mut sums);
            }
        }
        for (event, sums) in steps.events.iter().zip(sums.chunks_exact(groups)) {
            if let Some(row) = event.row {
                write_features(sums, o[row]);
            }
        }
    }
}

/// Runs a block of rows and a group of columns through the span, and adds the read-outs of its queries.
#[inline(always)]
fn walk<F: Float>(
    steps: &SpanSteps<F>,
    (row, group): (usize, usize),
    state: &mut StateBlock<F>,
    sums: &mut [Lanes<F>],
) {
    let inputs = [&steps.keys, &steps.decays, &steps.queries];
    let [keys, decays, queries] = map(inputs, |x| blocks(x));
    let (across, groups) = (steps.along_keys * IN_GROUP, steps.along_values);
    let mut h = *state;
    for (j, event) in steps.events.iter().enumerate() {
        let (k, a) = (&keys[j * across + row], &decays[j * across + row]);
        let v = &steps.values[j * groups + group];
        h = each_group(|n| each(|i| a[n].fma(h[n][i], k[n] * v[i])));
        if event.row.is_some() {
            let (q, o) = (&queries[j * across + row], &mut sums[j * groups + group]);
            let sum = weighted(&h, q);
            *o = each(|i| o[i] + sum[i]);
        }
    }
    *state = without_traces(&h);
}
