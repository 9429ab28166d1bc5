//! The inputs of a span of steps in groups of lanes, padded by zeros.

use super::division::Task;
use crate::float::Float;
use crate::lanes::{each, load, splat, Lanes, LANES};
use std::ops::Range;

/// Steps per span: its inputs, and the states of a block inside it, stay in the L1 cache.
pub(super) const SPAN: usize = 32;

/// Rows or columns of a state that are computed together.
pub(super) const BLOCK: usize = 4;

/// A block of a state: one group of lanes of each of its rows or columns.
pub(super) type Block<F> = [Lanes<F>; BLOCK];

/// What happens to the state: a step of time with at most one query after it, or a further query
/// at the same time.
pub(super) struct Event {
    pub(super) time: usize,
    /// False for a further query: its decays are 1, its key is 0.
    pub(super) moves: bool,
    /// The row of the query.
    pub(super) row: Option<usize>,
}

/// The events of a span with their inputs, each in `along_keys` or `along_values` groups.
#[derive(Default)]
pub(super) struct Steps<F> {
    pub(super) events: Vec<Event>,
    pub(super) keys: Vec<Lanes<F>>,
    pub(super) decays: Vec<Lanes<F>>,
    pub(super) values: Vec<Lanes<F>>,
    pub(super) queries: Vec<Lanes<F>>,
    /// The gradients of the result; empty in the forward pass.
    pub(super) grads: Vec<Lanes<F>>,
    pub(super) along_keys: usize,
    pub(super) along_values: usize,
}

impl<F: Float> Steps<F> {
    pub(super) fn new(task: &Task<F>) -> Self {
        Self {
            along_keys: task.op.keys.div_ceil(LANES),
            along_values: task.columns.len().div_ceil(LANES),
            ..Self::default()
        }
    }

    /// The spans of a task: steps after the last query have no effect.
    pub(super) fn spans(task: &Task<F>) -> impl DoubleEndedIterator<Item = Range<usize>> {
        let times = task.op.times.of(task.sequence);
        let end = times.last().map_or(0, |last| last + 1);
        (0..end.div_ceil(SPAN)).map(move |i| i * SPAN..((i + 1) * SPAN).min(end))
    }

    /// Loads the steps alone, for a walk that reads no state.
    #[inline(always)]
    pub(super) fn load(&mut self, task: &Task<F>, span: Range<usize>) {
        self.events.clear();
        for time in span {
            self.events.push(Event {
                time,
                moves: true,
                row: None,
            });
        }
        self.load_inputs(task);
    }

    /// Loads the steps with their queries and, in the backward pass, the gradient `go` of the
    /// result.
    #[inline(always)]
    pub(super) fn load_with_queries(
        &mut self,
        task: &Task<F>,
        span: Range<usize>,
        go: Option<&[F]>,
    ) {
        let times = task.op.times.of(task.sequence);
        let mut row = times.partition_point(|&time| time < span.start);
        self.events.clear();
        for time in span {
            let mut moves = true;
            while moves || times.get(row) == Some(&time) {
                let read = times.get(row) == Some(&time);
                self.events.push(Event {
                    time,
                    moves,
                    row: read.then_some(row),
                });
                row += usize::from(read);
                moves = false;
            }
        }
        self.load_inputs(task);
        self.queries.clear();
        self.grads.clear();
        for event in &self.events {
            push(
                event.row.map(|row| task.query(row)),
                self.along_keys,
                &mut self.queries,
            );
            if let Some(go) = go {
                let grad = event.row.map(|row| task.grad(go, row));
                push(grad, self.along_values, &mut self.grads);
            }
        }
    }

    #[inline(always)]
    fn load_inputs(&mut self, task: &Task<F>) {
        self.keys.clear();
        self.values.clear();
        self.decays.clear();
        for event in &self.events {
            let time = event.moves.then_some(event.time);
            push(time.map(|t| task.key(t)), self.along_keys, &mut self.keys);
            push(
                time.map(|t| task.value(t)),
                self.along_values,
                &mut self.values,
            );
            self.decays
                .resize(self.decays.len() + self.along_keys, splat(F::one()));
            let start = self.decays.len() - self.along_keys;
            match time {
                // The state before the first step is zero, and stays so whatever its decay.
                Some(0) => self.decays[start..].fill(splat(F::zero())),
                Some(t) => decay(task.decay(t), &mut self.decays[start..]),
                None => {}
            }
        }
    }
}

/// e^g in groups of lanes; a single g in all of them.
#[inline(always)]
fn decay<F: Float>(g: &[F], to: &mut [Lanes<F>]) {
    if let [g] = g {
        to.fill(splat(g.exp()));
        return;
    }
    for (to, g) in to.iter_mut().zip(g.chunks(LANES)) {
        let g: Lanes<F> = load(g);
        *to = each(|i| g[i].exp());
    }
}

/// Appends a row in groups of lanes; zeros without a row.
#[inline(always)]
fn push<F: Float>(row: Option<&[F]>, groups: usize, to: &mut Vec<Lanes<F>>) {
    match row {
        Some(row) => {
            for part in row.chunks(LANES) {
                to.push(load(part));
            }
        }
        None => to.resize(to.len() + groups, splat(F::zero())),
    }
}

/// Each group of a block by its index, without a loop: the compiler would take the groups, not the
/// lanes, for the elements of its vectors.
#[inline(always)]
pub(super) fn each_group<F: Float>(f: impl Fn(usize) -> Lanes<F>) -> Block<F> {
    const { assert!(BLOCK == 4) };
    [f(0), f(1), f(2), f(3)]
}

/// The sum over the groups of a block of each by its factor.
#[inline(always)]
pub(super) fn weighted<F: Float>(x: &Block<F>, by: &[F; BLOCK]) -> Lanes<F> {
    each(|i| (x[0][i] * by[0] + x[1][i] * by[1]) + (x[2][i] * by[2] + x[3][i] * by[3]))
}

/// A number that has faded away as an exact zero: decays would take it to the subnormal numbers and,
/// by rounding, leave it there, where arithmetic is a hundred times slower.
#[inline(always)]
pub(super) fn without_trace<F: Float>(x: F) -> F {
    if x.abs() < F::of(1e-35) {
        F::zero()
    } else {
        x
    }
}

/// [`without_trace`] of a block.
#[inline(always)]
pub(super) fn without_traces<F: Float>(x: &Block<F>) -> Block<F> {
    each_group(|n| each(|i| without_trace(x[n][i])))
}

/// The groups as blocks of numbers: rows or columns of the state that are computed together.
#[inline(always)]
pub(super) fn blocks<F>(x: &[Lanes<F>]) -> &[[F; BLOCK]] {
    x.as_flattened().as_chunks().0
}

/// Blocks in a group of lanes.
pub(super) const IN_GROUP: usize = LANES / BLOCK;
