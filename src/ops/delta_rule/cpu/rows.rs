//! Walks in which lanes are rows of the state and blocks are columns, so that sums over columns need no sum over lanes.
//! Projections and their gradients are given, so rows do not depend on each other, and a block stays in registers for a
//! whole span.

use super::span::DeltaRuleSpan;
use crate::runtime::float::Float;
use crate::runtime::lanes::{by_index, each, splat, Lanes, LANES};
use crate::runtime::matrix_state::{blocks, each_group, product, weighted, without_trace, StateBlock, BLOCK, IN_GROUP};

/// Data of the columns of the state at each event, in addition to values and gradients of the result.
pub(super) struct OfColumns<'a, F> {
    /// b_tᵀ S_{t-1}, by time.
    pub(super) projections: &'a [Lanes<F>],
    /// Their gradients a_tᵀ G_t, by event.
    pub(super) of_projections: &'a [Lanes<F>],
    /// The states before the span and the gradients of those after it, in the layout of the walks
    /// by columns.
    pub(super) states: [&'a [Lanes<F>]; 2],
}

/// Sums over columns for each event of the span, in groups of rows.
#[derive(Default)]
pub(super) struct ColumnSums<F> {
    pub(super) queries: Vec<Lanes<F>>,
    pub(super) keys: Vec<Lanes<F>>,
    pub(super) decays: Vec<Lanes<F>>,
    pub(super) a: Vec<Lanes<F>>,
    pub(super) b: Vec<Lanes<F>>,
}

impl<F: Float> ColumnSums<F> {
    #[inline(always)]
    pub(super) fn clear(&mut self, groups: usize) {
        let all = [&mut self.queries, &mut self.keys, &mut self.decays];
        for sums in all.into_iter().chain([&mut self.a, &mut self.b]) {
            sums.clear();
            sums.resize(groups, splat(F::zero()));
        }
    }
}

/// Adds the gradients that a block of columns contributes to a group of rows. `kept` has space for the states before
/// each event.
#[inline(always)]
pub(super) fn add<F: Float>(
    span: &DeltaRuleSpan<F>,
    (column, group): (usize, usize),
    of: &OfColumns<F>,
    kept: &mut [StateBlock<F>],
    sums: &mut ColumnSums<F>,
) {
    let [h, of_state] = by_index(|n| gather(span, of.states[n], (column, group)));
    replay(span, (column, group), h, of, kept, sums);
    walk_back(span, (column, group), of_state, of, kept, sums);
}

/// Gathers a block of columns for a group of rows from the layout of the walks by columns.
#[inline(always)]
fn gather<F: Float>(span: &DeltaRuleSpan<F>, state: &[Lanes<F>], (column, group): (usize, usize)) -> StateBlock<F> {
    let rows = &state[column / IN_GROUP * span.rows..][..span.rows];
    let first = column % IN_GROUP * BLOCK;
    let mut block = [splat(F::zero()); BLOCK];
    for (i, row) in rows[group * LANES..].iter().take(LANES).enumerate() {
        for (n, lanes) in block.iter_mut().enumerate() {
            lanes[i] = row[first + n];
        }
    }
    block
}

/// Recomputes the states, keeps the one before each event, and adds the gradients of queries.
/// Events without a query have zeros for it.
#[inline(always)]
fn replay<F: Float>(
    span: &DeltaRuleSpan<F>,
    (column, group): (usize, usize),
    mut h: StateBlock<F>,
    of: &OfColumns<F>,
    kept: &mut [StateBlock<F>],
    sums: &mut ColumnSums<F>,
) {
    let steps = &span.steps;
    let (groups, across) = (steps.along_keys, steps.along_values * IN_GROUP);
    let (values, grads) = (blocks(&steps.values), blocks(&steps.grads));
    let projections = blocks(of.projections);
    for (j, (event, kept)) in steps.events.iter().zip(kept).enumerate() {
        let at = j * groups + group;
        let (k, a, decay) = (&steps.keys[at], &span.a[at], &steps.decays[at]);
        let (v, go) = (&values[j * across + column], &grads[j * across + column]);
        let p = &projections[event.time * across + column];
        *kept = h;
        let of = [decay, a, k];
        h = [
            moved(&h[0], of, [p[0], v[0]]),
            moved(&h[1], of, [p[1], v[1]]),
            moved(&h[2], of, [p[2], v[2]]),
            moved(&h[3], of, [p[3], v[3]]),
        ];
        add_to(&mut sums.queries[at], &weighted(&h, go));
    }
}

/// Processes the events in reverse: adds the gradients of keys, a, b and of the decays' logarithms, the latter before
/// their multiplication by the decay.
#[inline(always)]
fn walk_back<F: Float>(
    span: &DeltaRuleSpan<F>,
    (column, group): (usize, usize),
    mut of_state: StateBlock<F>,
    of: &OfColumns<F>,
    kept: &[StateBlock<F>],
    sums: &mut ColumnSums<F>,
) {
    let steps = &span.steps;
    let (groups, across) = (steps.along_keys, steps.along_values * IN_GROUP);
    let (values, grads) = (blocks(&steps.values), blocks(&steps.grads));
    let (projections, of_projections) = (blocks(of.projections), blocks(of.of_projections));
    for (j, (event, kept)) in steps.events.iter().zip(kept).enumerate().rev() {
        let (at, place) = (j * groups + group, j * across + column);
        let (q, b, decay) = (&steps.queries[at], &span.b[at], &steps.decays[at]);
        let (v, go) = (&values[place], &grads[place]);
        let (p, r) = (&projections[event.time * across + column], &of_projections[place]);
        of_state = each_group(|n| each(|i| q[i].fma(go[n], of_state[n][i])));
        add_to(&mut sums.keys[at], &weighted(&of_state, v));
        add_to(&mut sums.a[at], &weighted(&of_state, p));
        add_to(&mut sums.b[at], &weighted(kept, r));
        add_to(&mut sums.decays[at], &product(&of_state, kept));
        of_state = [
            before(&of_state[0], [decay, b], r[0]),
            before(&of_state[1], [decay, b], r[1]),
            before(&of_state[2], [decay, b], r[2]),
            before(&of_state[3], [decay, b], r[3]),
        ];
    }
}

/// A column after an event, given its projection and value. This and [`before`] are functions, since closures of this
/// size would not be inlined.
#[inline(always)]
fn moved<F: Float>(h: &Lanes<F>, [decay, a, key]: [&Lanes<F>; 3], [projection, value]: [F; 2]) -> Lanes<F> {
    each(|i| key[i].fma(value, decay[i].fma(h[i], a[i] * projection)))
}

/// The gradient of a column before a transition.
#[inline(always)]
fn before<F: Float>(after: &Lanes<F>, [decay, b]: [&Lanes<F>; 2], of_projection: F) -> Lanes<F> {
    each(|i| without_trace(decay[i].fma(after[i], b[i] * of_projection)))
}

#[inline(always)]
fn add_to<F: Float>(to: &mut Lanes<F>, from: &Lanes<F>) {
    *to = each(|i| to[i] + from[i]);
}
