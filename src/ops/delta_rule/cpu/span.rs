//! The inputs of a span of steps, with the vectors of the transitions.

use crate::runtime::float::Float;
use crate::runtime::lanes::{splat, Lanes, LANES};
use crate::runtime::matrix_state::{SpanSteps, Task, A, B};
use std::ops::Range;

/// The events of a span with their inputs, all in groups of lanes. After them comes one more, whose
/// transition is the identity (decays of 1, b of 0): walks apply the transition of the event after.
pub(super) struct DeltaRuleSpan<F> {
    pub(super) steps: SpanSteps<F>,
    pub(super) a: Vec<Lanes<F>>,
    pub(super) b: Vec<Lanes<F>>,
    /// m, the rows of a state.
    pub(super) rows: usize,
}

impl<F: Float> DeltaRuleSpan<F> {
    pub(super) fn new(task: &Task<F>) -> Self {
        Self { steps: SpanSteps::new(task), a: Vec::new(), b: Vec::new(), rows: task.sizes.keys }
    }

    /// [`SpanSteps::load`], with a and b.
    #[inline(always)]
    pub(super) fn load(&mut self, task: &Task<F>, span: Range<usize>) {
        self.steps.load(task, span);
        self.load_transitions(task);
    }

    /// [`SpanSteps::load_with_queries`], with a and b.
    #[inline(always)]
    pub(super) fn load_with_queries(&mut self, task: &Task<F>, span: Range<usize>, go: Option<&[F]>) {
        self.steps.load_with_queries(task, span, go);
        self.load_transitions(task);
    }

    #[inline(always)]
    fn load_transitions(&mut self, task: &Task<F>) {
        self.steps.load_features(task, A, &mut self.a);
        self.steps.load_features(task, B, &mut self.b);
        let one_more = self.b.len() + self.steps.along_keys;
        self.b.resize(one_more, splat(F::zero()));
        self.steps.decays.resize(one_more, splat(F::one()));
    }

    /// The number of events.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.steps.events.len()
    }

    /// Event j of one of the inputs of m features, a number for each row of the state.
    #[inline(always)]
    pub(super) fn rows<'a>(&self, x: &'a [Lanes<F>], j: usize) -> &'a [F] {
        &x.as_flattened()[j * self.steps.along_keys * LANES..][..self.rows]
    }
}
