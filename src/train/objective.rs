//! Training objectives: a model over the splits of its task. An objective draws the examples of a step, computes their
//! loss, and scores the weights between epochs.

use crate::model::LanguageModel;
use crate::nn::Cx;
use crate::ops::rng::Rng;
use crate::ops::Classified;
use crate::store::{EpochRow, Metrics};
use crate::tasks::{Dataset, Slices};
use candle_core::{Result, Tensor};
use std::cell::RefCell;
use std::ops::Range;

/// Model with its training and test examples. The model is built twice from one set of weights: with gradients for
/// training, and without for tests.
pub(super) trait Trainee {
    /// Number of training examples.
    fn examples(&self) -> usize;

    /// Draws the training examples of an epoch, counted from 0, if every epoch has new ones.
    fn begin_epoch(&mut self, _epoch: usize) {}

    /// Number of training tokens per epoch, without padding.
    fn tokens(&self) -> usize;

    /// State size: the numbers that the mixers of all layers keep per sequence.
    fn state_size(&self) -> usize;

    /// Splits the examples of a step into micro-batches, which go through the model one after the other.
    fn micro_batches(&self, step: &StepExamples) -> Vec<MicroBatch>;

    /// Mean loss of a micro-batch, with gradients.
    fn loss(&self, batch: &MicroBatch, cx: &Cx) -> Result<Tensor>;

    /// Slices of the test answers; `None` if the task has none.
    fn slices(&self) -> Option<&Slices> {
        None
    }

    /// Tests the current weights.
    fn evaluate(&self) -> Result<Tested>;

    /// Validation score that selects the best epoch: higher is better, and `None` excludes the epoch.
    fn validation(&self, epoch: &EpochRow) -> Option<f64> {
        epoch.val_accuracy
    }

    /// Final perplexities of a language model after `epochs`. Metrics of the current weights are left out if the run
    /// `diverged`.
    fn language_scores(&self, _epochs: &[EpochRow], _diverged: bool) -> Result<Metrics> {
        Ok(Metrics::default())
    }

    /// Model and data of a step that can be recorded as a CUDA graph; `None` unless all whole steps have one shape and
    /// one micro-batch.
    fn one_shape(&self) -> Option<OneShape<'_>> {
        None
    }
}

/// Examples of one optimiser step: a range of an epoch's order.
pub(super) struct StepExamples {
    /// Number of epochs before this one.
    pub epoch: usize,
    /// Range of the epoch's examples.
    pub range: Range<usize>,
}

/// Examples that go through the model together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MicroBatch {
    /// Indices into the training split.
    pub examples: Vec<usize>,
    /// Length in tokens that each sequence is padded to.
    pub seq_len: usize,
    /// Share of the step's examples that are in this micro-batch. The step's loss is the sum of the micro-batches' mean
    /// losses times their weights.
    pub weight: f64,
}

impl MicroBatch {
    /// Splits `examples` of `seq_len` tokens each into micro-batches of at most `most`.
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

/// Model and training examples for which all batches of one size have the same shape.
pub(super) struct OneShape<'a> {
    pub model: &'a LanguageModel,
    pub train: &'a Dataset,
}

/// Returns the epoch with the best validation score, the earliest of equal ones.
pub(super) fn selected<'a>(objective: &dyn Trainee, epochs: &'a [EpochRow]) -> Option<&'a EpochRow> {
    epochs
        .iter()
        .rev()
        .filter_map(|epoch| Some((objective.validation(epoch)?, epoch)))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, epoch)| epoch)
}

/// Ranges that split `count` examples into groups of at most `most`, as even as possible.
pub(super) fn groups(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let groups = count.div_ceil(most.max(1));
    (0..groups).map(move |i| count * i / groups..count * (i + 1) / groups)
}

/// Random order of the training examples, a function of seed and epoch.
pub(super) struct EpochOrder {
    seed: u64,
    purpose: String,
    count: usize,
    /// Epoch and order of the last call.
    known: RefCell<Option<(usize, Vec<usize>)>>,
}

impl EpochOrder {
    /// Order of the `count` training examples of `task` under the run's `seed`.
    pub fn new(seed: u64, task: &str, count: usize) -> Self {
        Self { seed, purpose: format!("{task}/order"), count, known: RefCell::default() }
    }

    /// Returns the training examples of a step.
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

/// Test results of the weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tested {
    pub test: LabelMeans,
    /// Score on the validation split, if there is one.
    pub val: Option<LabelMeans>,
    /// Number of correct test answers in each slice; empty if the task has no slices.
    pub right: Vec<usize>,
    /// Mean over classes of the test accuracy of each; `None` if the task does not report it.
    pub macro_accuracy: Option<f64>,
}

/// Means over labels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LabelMeans {
    pub loss: f64,
    /// Share of correct answers.
    pub accuracy: f64,
}

/// Running sums from which [`LabelMeans`] are computed.
#[derive(Default)]
pub(super) struct ScoreSum {
    loss: f64,
    correct: f64,
    labels: f64,
}

impl ScoreSum {
    /// Adds `labels` answers whose mean loss and correctness are in `found`.
    pub fn add(&mut self, found: &Classified, labels: usize) -> Result<()> {
        self.loss += f64::from(found.loss.to_scalar::<f32>()?) * labels as f64;
        self.correct += f64::from(found.correct.sum_all()?.to_scalar::<f32>()?);
        self.labels += labels as f64;
        Ok(())
    }

    pub fn score(&self) -> LabelMeans {
        LabelMeans { loss: self.loss / self.labels, accuracy: self.correct / self.labels }
    }
}
