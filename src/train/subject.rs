//! What a trainer trains: a model over the data of its task.

use super::recall::Recall;
use crate::nn::Cx;
use crate::ops::Classified;
use crate::store::{EpochRow, Metrics};
use candle_core::{Result, Tensor};
use std::ops::Range;

/// Examples of one optimiser step: places in the order of an epoch.
pub(super) struct Span {
    /// Epochs before this one.
    pub epoch: usize,
    /// Which of the epoch's examples.
    pub range: Range<usize>,
}

/// A model, once tracked and once not, over training examples and tests.
///
/// A step may be made in parts, one after the other, whose losses are added up by their shares.
pub(super) trait Subject {
    /// Training examples.
    fn examples(&self) -> usize;

    /// Training tokens of an epoch, without padding.
    fn tokens(&self) -> usize;

    /// Numbers that all layers' mixers keep per sequence.
    fn state_size(&self) -> usize;

    /// The share of each part of a step in its loss; they add up to 1.
    fn shares(&self, span: &Span) -> Vec<f64>;

    /// The mean loss of one part of a step.
    fn loss(&self, span: &Span, part: usize, cx: &Cx) -> Result<Tensor>;

    /// Tests the weights as they are.
    fn evaluate(&self) -> Result<Tested>;

    /// What a run over text ends with, after `epochs` and under the weights as they are; those are not
    /// scored if the run `diverged`.
    fn conclude(&self, _epochs: &[EpochRow], _diverged: bool) -> Result<Metrics> {
        Ok(Metrics::default())
    }

    /// Itself, if all whole steps have one shape and one part.
    fn one_shape(&self) -> Option<&Recall<'_>> {
        None
    }
}

/// What tests say of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tested {
    pub test: Score,
    /// Of the examples that choose the epoch, where there are some.
    pub val: Option<Score>,
}

/// A mean over labels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Score {
    pub loss: f64,
    /// Share of right answers.
    pub accuracy: f64,
}

/// Sums on the way to a [`Score`].
#[derive(Default)]
pub(super) struct Tally {
    loss: f64,
    right: f64,
    labels: f64,
}

impl Tally {
    /// Adds `labels` answers of mean loss `loss`; `right` `(labels)` is 1 where one is right.
    pub fn add(&mut self, found: &Classified, labels: usize) -> Result<()> {
        self.loss += f64::from(found.loss.to_scalar::<f32>()?) * labels as f64;
        self.right += f64::from(found.right.sum_all()?.to_scalar::<f32>()?);
        self.labels += labels as f64;
        Ok(())
    }

    pub fn score(&self) -> Score {
        Score {
            loss: self.loss / self.labels,
            accuracy: self.right / self.labels,
        }
    }
}

/// The shares that `count` examples in groups of at most `most` have in their mean.
pub(super) fn shares(count: usize, most: usize) -> Vec<f64> {
    let parts = groups(count, most);
    parts.map(|part| part.len() as f64 / count as f64).collect()
}

/// `count` examples in groups of at most `most`, as even as that allows.
pub(super) fn groups(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let groups = count.div_ceil(most.max(1));
    (0..groups).map(move |i| count * i / groups..count * (i + 1) / groups)
}
