//! What a trainer trains: a model over the splits of its task. An objective draws the examples of a step,
//! makes their loss, and scores the weights between epochs.

use crate::model::Model;
use crate::nn::Cx;
use crate::ops::rng::Rng;
use crate::ops::Classified;
use crate::store::{EpochRow, Metrics};
use crate::tasks::{Dataset, Slices};
use candle_core::{Result, Tensor};
use std::cell::RefCell;
use std::ops::Range;

/// A model over training examples and tests. It is built twice from one set of weights: once to be
/// differentiated, and once without gradients, to be tested.
pub(super) trait Objective {
    /// Training examples.
    fn examples(&self) -> usize;

    /// Training tokens of an epoch, without padding.
    fn tokens(&self) -> usize;

    /// Numbers that all layers' mixers keep per sequence.
    fn state_size(&self) -> usize;

    /// The examples of a step, in micro-batches that go through the model one after the other.
    fn micro_batches(&self, step: &StepExamples) -> Vec<MicroBatch>;

    /// The mean loss of a micro-batch, to be differentiated.
    fn loss(&self, batch: &MicroBatch, cx: &Cx) -> Result<Tensor>;

    /// The slices of the test answers, where they are told apart.
    fn slices(&self) -> Option<&Slices> {
        None
    }

    /// Tests the weights as they are.
    fn evaluate(&self) -> Result<Tested>;

    /// How much validation likes an epoch: more is better, and no number is no candidate.
    fn validation(&self, epoch: &EpochRow) -> Option<f64> {
        epoch.val_accuracy
    }

    /// The perplexities that a language model ends with, after `epochs` and under the weights as they are;
    /// those are not scored if the run `diverged`.
    fn language_scores(&self, _epochs: &[EpochRow], _diverged: bool) -> Result<Metrics> {
        Ok(Metrics::default())
    }

    /// What a CUDA graph of a step is made of, if all whole steps have one shape and one micro-batch.
    fn one_shape(&self) -> Option<OneShape<'_>> {
        None
    }
}

/// The examples of one optimiser step: a range of the order of an epoch.
pub(super) struct StepExamples {
    /// Epochs before this one.
    pub epoch: usize,
    /// Which of the epoch's examples.
    pub range: Range<usize>,
}

/// Examples that go through the model together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MicroBatch {
    /// Indices into the training split.
    pub examples: Vec<usize>,
    /// Tokens that each sequence is padded to.
    pub seq_len: usize,
    /// The share of these examples in those of the step: the step's loss is the sum of the micro-batches'
    /// mean losses by their weights.
    pub weight: f64,
}

impl MicroBatch {
    /// `examples` of `seq_len` tokens each, at most `most` at a time.
    pub fn of_one_length(examples: &[usize], most: usize, seq_len: usize) -> Vec<Self> {
        let count = examples.len();
        let micro_batch = |group: Range<usize>| Self {
            weight: group.len() as f64 / count as f64,
            examples: examples[group].to_vec(),
            seq_len,
        };
        groups(count, most).map(micro_batch).collect()
    }
}

/// A model, and training examples of which all batches of one size have the same shape.
pub(super) struct OneShape<'a> {
    pub model: &'a Model,
    pub train: &'a Dataset,
}

/// The epoch that validation chooses; of equal ones the earliest.
pub(super) fn selected<'a>(
    objective: &dyn Objective,
    epochs: &'a [EpochRow],
) -> Option<&'a EpochRow> {
    let liked = epochs.iter().rev();
    let liked = liked.filter_map(|epoch| Some((objective.validation(epoch)?, epoch)));
    let best = liked.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, epoch)| epoch)
}

/// `count` examples in groups of at most `most`, as even as that allows.
pub(super) fn groups(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let groups = count.div_ceil(most.max(1));
    (0..groups).map(move |i| count * i / groups..count * (i + 1) / groups)
}

/// A new random order of the training examples for each epoch, a function of seed and epoch.
pub(super) struct EpochOrder {
    seed: u64,
    purpose: String,
    count: usize,
    /// The order of the epoch that was asked for last.
    known: RefCell<Option<(usize, Vec<usize>)>>,
}

impl EpochOrder {
    /// Of the `count` training examples of `task`, under the run's `seed`.
    pub fn new(seed: u64, task: &str, count: usize) -> Self {
        Self {
            seed,
            purpose: format!("{task}/order"),
            count,
            known: RefCell::default(),
        }
    }

    /// The training examples of a step.
    pub fn examples(&self, step: &StepExamples) -> Vec<usize> {
        let mut order = self.known.borrow_mut();
        let known = order.take().filter(|(epoch, _)| *epoch == step.epoch);
        let (_, all) = order.insert(known.unwrap_or_else(|| {
            let mut drawn: Vec<usize> = (0..self.count).collect();
            Rng::new(self.seed, &self.purpose, step.epoch as u64).shuffle(&mut drawn);
            (step.epoch, drawn)
        }));
        all[step.range.clone()].to_vec()
    }
}

/// What tests say of the weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tested {
    pub test: Score,
    /// Of the examples that choose the epoch, where there are some.
    pub val: Option<Score>,
    /// Right test answers in each slice, where answers are told apart.
    pub right: Vec<usize>,
}

/// A mean over labels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Score {
    pub loss: f64,
    /// Share of correct answers.
    pub accuracy: f64,
}

/// Sums on the way to a [`Score`].
#[derive(Default)]
pub(super) struct ScoreSum {
    loss: f64,
    correct: f64,
    labels: f64,
}

impl ScoreSum {
    /// Adds `labels` answers of mean loss `loss`; `correct` `(labels)` is 1 where one is correct.
    pub fn add(&mut self, found: &Classified, labels: usize) -> Result<()> {
        self.loss += f64::from(found.loss.to_scalar::<f32>()?) * labels as f64;
        self.correct += f64::from(found.correct.sum_all()?.to_scalar::<f32>()?);
        self.labels += labels as f64;
        Ok(())
    }

    pub fn score(&self) -> Score {
        Score {
            loss: self.loss / self.labels,
            accuracy: self.correct / self.labels,
        }
    }
}
