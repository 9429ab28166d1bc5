//! The inputs of a span of steps in groups of lanes, padded by zeros.

use super::division::Task;
use super::KEYS;
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, load, splat, Lanes, LANES};
use std::ops::Range;

/// Steps per span: its inputs, and the states of a block inside it, stay in the L1 cache.
pub(crate) const SPAN: usize = 32;

/// An event: a time step with at most one query after it, or a further query at the same time.
pub(crate) struct Event {
    pub(crate) time: usize,
    /// Whether the state changes; false for a further query, whose decays are 1 and whose key is 0.
    pub(crate) moves: bool,
    /// Row of the query.
    pub(crate) row: Option<usize>,
}

/// The events of a span with their inputs, each in `along_keys` or `along_values` groups.
#[derive(Default)]
pub(crate) struct SpanSteps<F> {
    pub(crate) events: Vec<Event>,
    pub(crate) keys: Vec<Lanes<F>>,
    pub(crate) decays: Vec<Lanes<F>>,
    pub(crate) values: Vec<Lanes<F>>,
    pub(crate) queries: Vec<Lanes<F>>,
    /// The gradients of the result; empty in the forward pass.
    pub(crate) grads: Vec<Lanes<F>>,
    pub(crate) along_keys: usize,
    pub(crate) along_values: usize,
}

impl<F: Float> SpanSteps<F> {
    pub(crate) fn new(task: &Task<F>) -> Self {
        Self {
            along_keys: task.sizes.keys.div_ceil(LANES),
            along_values: task.columns.len().div_ceil(LANES),
            ..Self::default()
        }
    }

    /// The spans of a task: steps after the last query have no effect.
    pub(crate) fn spans(task: &Task<F>) -> impl DoubleEndedIterator<Item = Range<usize>> {
        let times = task.sizes.times.of(task.sequence);
        let end = times.last().map_or(0, |last| last + 1);
        (0..end.div_ceil(SPAN)).map(move |i| i * SPAN..((i + 1) * SPAN).min(end))
    }

    /// Loads the steps alone, for a walk that reads no state.
    #[inline(always)]
    pub(crate) fn load(&mut self, task: &Task<F>, span: Range<usize>) {
        self.events.clear();
        for time in span {
            self.events.push(Event { time, moves: true, row: None });
        }
        self.load_inputs(task);
    }

    /// Loads the steps with their queries and, in the backward pass, the gradient `go` of the
    /// result.
    #[inline(always)]
    pub(crate) fn load_with_queries(&mut self, task: &Task<F>, span: Range<usize>, go: Option<&[F]>) {
        let times = task.sizes.times.of(task.sequence);
        let mut row = times.partition_point(|&time| time < span.start);
        self.events.clear();
        for time in span {
            let mut moves = true;
            while moves || times.get(row) == Some(&time) {
                let read = times.get(row) == Some(&time);
                self.events.push(Event { time, moves, row: read.then_some(row) });
                row += usize::from(read);
                moves = false;
            }
        }
        self.load_inputs(task);
        self.queries.clear();
        self.grads.clear();
        for event in &self.events {
            push(event.row.map(|row| task.query(row)), self.along_keys, &mut self.queries);
            if let Some(go) = go {
                let grad = event.row.map(|row| task.grad(go, row));
                push(grad, self.along_values, &mut self.grads);
            }
        }
    }

    /// Loads an input of the shape of k.
    #[inline(always)]
    pub(crate) fn load_features(&self, task: &Task<F>, input: usize, to: &mut Vec<Lanes<F>>) {
        to.clear();
        for event in &self.events {
            let row = event.moves.then(|| task.features(input, event.time));
            push(row, self.along_keys, to);
        }
    }

    #[inline(always)]
    fn load_inputs(&mut self, task: &Task<F>) {
        let mut keys = std::mem::take(&mut self.keys);
        self.load_features(task, KEYS, &mut keys);
        self.keys = keys;
        self.values.clear();
        self.decays.clear();
        for event in &self.events {
            let time = event.moves.then_some(event.time);
            push(time.map(|t| task.value(t)), self.along_values, &mut self.values);
            self.decays.resize(self.decays.len() + self.along_keys, splat(F::one()));
            let start = self.decays.len() - self.along_keys;
            match time {
                // The state before the first step is zero, so its decay has no effect.
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
