//! Backward pass of one task, span by span from the last one. Lanes are rows of the state; blocks are columns, so that
//! the gradients of queries, keys and decays, which are sums over columns, need no sums over lanes.
//!
//! With G_t = dL/dS_t = q_t dL/do_tᵀ + diag(e^{g_{t+1}}) G_{t+1}: dL/dq_t = S_t dL/do_t, dL/dk_t = G_t v_t, dL/dv_t =
//! G_tᵀ k_t, and dL/dg_t sums G_t ⊙ diag(e^{g_t}) S_{t-1} over columns. States are recomputed from those before each
//! span, which a first walk stores.

use crate::runtime::float::Float;
use crate::runtime::lanes::{by_index, each, splat, sum, Lanes};
use crate::runtime::matrix_state::{
    blocks, each_group, gradients, product, weighted, without_trace, without_traces, write_decays, write_features,
    SpanSteps, StateBlock, StateSizes, Task, BLOCK, IN_GROUP, SPAN,
};
use crate::runtime::strips::StripRows;
use dsf_simd::simd;

/// The gradients of q, k, v and g, given that of the result.
pub(super) fn backward<F: Float>(op: &StateSizes, ins: &[&[F]], go: &[F]) -> Vec<Vec<F>> {
    gradients::<F, 4>(op, ins, |task, outs| {
        backward_task(task, go, GlaGrads::of(outs));
    })
}

/// The gradients that a task writes, zero on entry.
struct GlaGrads<'a, F> {
    q: StripRows<'a, F>,
    k: StripRows<'a, F>,
    v: StripRows<'a, F>,
    g: StripRows<'a, F>,
}

impl<'a, F> GlaGrads<'a, F> {
    fn of([q, k, v, g]: [StripRows<'a, F>; 4]) -> Self {
        Self { q, k, v, g }
    }
}

/// The buffers of a task.
struct GlaScratch<F> {
    steps: SpanSteps<F>,
    /// The states before each span, block after block.
    kept: Vec<StateBlock<F>>,
    /// The gradient of the state that flows back from later spans.
    carry: Vec<StateBlock<F>>,
    /// Decayed states diag(e^{g_t}) S_{t-1} of one block.
    decayed: Vec<StateBlock<F>>,
    /// Gradients of the span's queries, keys and decays.
    of_keys: [Vec<Lanes<F>>; 3],
    /// Gradients of one block of columns of the values, before their sum over lanes.
    of_values: Vec<StateBlock<F>>,
}

impl<F: Float> GlaScratch<F> {
    fn new(task: &Task<F>) -> Self {
        let steps = SpanSteps::new(task);
        let size = steps.along_keys * task.columns.len().div_ceil(BLOCK);
        let zero = [splat(F::zero()); BLOCK];
        let spans = SpanSteps::spans(task).count();
        Self {
            steps,
            kept: vec![zero; spans * size],
            carry: vec![zero; size],
            decayed: Vec::new(),
            of_keys: [const { Vec::new() }; 3],
            of_values: Vec::new(),
        }
    }

    /// Blocks of a state.
    fn size(&self) -> usize {
        self.carry.len()
    }
}

#[simd]
fn backward_task<F: Float>(task: &Task<F>, go: &[F], mut grads: GlaGrads<F>) {
    let mut scratch = GlaScratch::new(task);
    keep_states(task, &mut scratch);
    for span in SpanSteps::spans(task).rev() {
        let kept = span.start / SPAN * scratch.size();
        scratch.steps.load_with_queries(task, span, Some(go));
        span_back(task, kept, &mut scratch, &mut grads);
        write(&scratch, &mut grads);
    }
}

/// Stores the state before each span.
#[inline(always)]
fn keep_states<F: Float>(task: &Task<F>, scratch: &mut GlaScratch<F>) {
    let (size, groups) = (scratch.size(), scratch.steps.along_keys);
    let last = SpanSteps::spans(task).count() - 1;
    for (index, span) in SpanSteps::spans(task).take(last).enumerate() {
        scratch.steps.load(task, span);
        for block in 0..size {
            let state = scratch.kept[index * size + block];
            let after = advance(&scratch.steps, (block / groups, block % groups), state);
            scratch.kept[(index + 1) * size + block] = after;
        }
    }
}

/// Runs a block of columns and a group of rows through the span.
#[inline(always)]
fn advance<F: Float>(steps: &SpanSteps<F>, (column, group): (usize, usize), mut h: StateBlock<F>) -> StateBlock<F> {
    let (groups, across) = (steps.along_keys, steps.along_values * IN_GROUP);
    let values = blocks(&steps.values);
    for j in 0..steps.events.len() {
        let (k, a) = (&steps.keys[j * groups + group], &steps.decays[j * groups + group]);
        let v = &values[j * across + column];
        h = each_group(|n| each(|i| a[i].fma(h[n][i], k[i] * v[n])));
    }
    without_traces(&h)
}

/// The gradients of one span; the states before it begin at `kept`.
#[inline(always)]
fn span_back<F: Float>(task: &Task<F>, kept: usize, scratch: &mut GlaScratch<F>, grads: &mut GlaGrads<F>) {
    let GlaScratch { steps, kept: states, carry, decayed, of_keys, of_values } = scratch;
    let (events, groups) = (steps.events.len(), steps.along_keys);
    let zero = [splat(F::zero()); BLOCK];
    for of_keys in of_keys.iter_mut() {
        of_keys.clear();
        of_keys.resize(events * groups, splat(F::zero()));
    }
    decayed.resize(events, zero);
    let [of_queries, of_keys, of_decays] = of_keys;
    for column in 0..task.columns.len().div_ceil(BLOCK) {
        of_values.clear();
        of_values.resize(events, zero);
        for group in 0..groups {
            let (at, block) = ((column, group), column * groups + group);
            replay(steps, at, states[kept + block], &mut decayed[..events], of_queries);
            let sums = [&mut of_keys[..], &mut of_decays[..]];
            walk_back(steps, at, &mut carry[block], &decayed[..events], sums, of_values);
        }
        for (event, of_values) in steps.events.iter().zip(&*of_values) {
            if event.moves {
                let to = grads.v[event.time][column * BLOCK..].iter_mut();
                for (to, lanes) in to.zip(of_values) {
                    *to = sum(lanes);
                }
            }
        }
    }
}

/// Recomputes a block of states, stores them decayed, and adds the gradients of queries. Events
/// without a query have zeros for it: a branch would move the state through memory.
#[inline(always)]
fn replay<F: Float>(
    steps: &SpanSteps<F>,
    (column, group): (usize, usize),
    mut h: StateBlock<F>,
    decayed: &mut [StateBlock<F>],
    of_queries: &mut [Lanes<F>],
) {
    let (groups, across) = (steps.along_keys, steps.along_values * IN_GROUP);
    let (values, grads) = (blocks(&steps.values), blocks(&steps.grads));
    for (j, decayed) in decayed.iter_mut().enumerate() {
        let (k, a) = (&steps.keys[j * groups + group], &steps.decays[j * groups + group]);
        let v = &values[j * across + column];
        let before = each_group(|n| each(|i| a[i] * h[n][i]));
        h = each_group(|n| each(|i| k[i].fma(v[n], before[n][i])));
        *decayed = before;
        let (go, to) = (&grads[j * across + column], &mut of_queries[j * groups + group]);
        let sum = weighted(&h, go);
        *to = each(|i| to[i] + sum[i]);
    }
}

/// The steps of a block in reverse: adds the gradients of keys and decays, and those of values by
/// lane.
#[inline(always)]
fn walk_back<F: Float>(
    steps: &SpanSteps<F>,
    (column, group): (usize, usize),
    carry: &mut StateBlock<F>,
    decayed: &[StateBlock<F>],
    [of_keys, of_decays]: [&mut [Lanes<F>]; 2],
    of_values: &mut [StateBlock<F>],
) {
    let (groups, across) = (steps.along_keys, steps.along_values * IN_GROUP);
    let (values, grads) = (blocks(&steps.values), blocks(&steps.grads));
    let mut of_state = *carry;
    for (j, (decayed, of_values)) in decayed.iter().zip(of_values).enumerate().rev() {
        let at = j * groups + group;
        let (k, a, v) = (&steps.keys[at], &steps.decays[at], &values[j * across + column]);
        let (q, go) = (&steps.queries[at], &grads[j * across + column]);
        of_state = each_group(|n| each(|i| q[i].fma(go[n], of_state[n][i])));
        let of_key = weighted(&of_state, v);
        let of_decay = product(&of_state, decayed);
        *of_values = each_group(|n| each(|i| of_state[n][i].fma(k[i], of_values[n][i])));
        of_state = each_group(|n| each(|i| without_trace(a[i] * of_state[n][i])));
        of_keys[at] = each(|i| of_keys[at][i] + of_key[i]);
        of_decays[at] = each(|i| of_decays[at][i] + of_decay[i]);
    }
    *carry = of_state;
}

/// Writes the gradients of the span's queries, keys and decays.
#[inline(always)]
fn write<F: Float>(scratch: &GlaScratch<F>, grads: &mut GlaGrads<F>) {
    let groups = scratch.steps.along_keys;
    for (j, event) in scratch.steps.events.iter().enumerate() {
        let [of_query, of_key, of_decay] = by_index(|n| &scratch.of_keys[n][j * groups..][..groups]);
        if let Some(row) = event.row {
            write_features(of_query, grads.q[row]);
        }
        if event.moves {
            write_features(of_key, grads.k[event.time]);
            write_decays(of_decay, grads.g[event.time]);
        }
    }
}
