//! Classification of documents, or of pairs of documents, of different lengths. The examples come in a new order every
//! epoch.
//!
//! A step's examples are drawn uniformly and never by length. If the model masks padding, each micro-batch takes
//! examples of similar length and is padded to its own longest one; otherwise (pooling includes padding) every
//! micro-batch is padded to the longest example of the whole step. In both cases the loss equals that of the whole step
//! in one batch.

use super::objective::{groups, EpochOrder, LabelMeans, MicroBatch, ScoreSum, StepExamples, Tested, Trainee};
use crate::config::RunConfig;
use crate::model::Classifier;
use crate::nn::{Cx, Params};
use crate::ops::Classified;
use crate::tasks::{Documents, ExampleSizes, TrainValTest};
use candle_core::{Device, Result, Tensor};
use std::cmp::Reverse;
use std::ops::Range;

/// The objective of [`crate::tasks::Objective::Pooled`].
pub(super) struct Pooled<'a> {
    config: &'a RunConfig,
    /// Length in tokens of the longest document that the task allows.
    longest: usize,
    splits: &'a TrainValTest<Documents>,
    device: Device,
    model: Classifier,
    /// Model of the same weights without gradients, for tests.
    tested: Classifier,
    order: EpochOrder,
    /// Whether padding is masked, so that it has no effect.
    masked: bool,
    pad_to_longest: bool,
}

impl<'a> Pooled<'a> {
    pub fn new(
        config: &'a RunConfig,
        sizes: &ExampleSizes,
        splits: &'a TrainValTest<Documents>,
        params: &Params,
        device: &Device,
    ) -> Result<Self> {
        let classifier = config.model.classifier.as_ref();
        Ok(Self {
            config,
            longest: sizes.seq_len,
            splits,
            device: device.clone(),
            model: Classifier::new(&config.model, sizes, params)?,
            tested: Classifier::new(&config.model, sizes, &params.detached())?,
            order: EpochOrder::new(config.seed, config.task.name(), splits.train.len()),
            masked: classifier.is_some_and(|classifier| classifier.mask),
            pad_to_longest: classifier.is_some_and(|classifier| classifier.pad_to_longest),
        })
    }

    /// Cuts one batch, the `examples` of `split`, into micro-batches.
    fn cut(&self, split: &Documents, mut examples: Vec<usize>) -> Vec<MicroBatch> {
        let count = examples.len();
        let most = self.config.train.micro_batch.unwrap_or(count);
        let longest = |some: &[usize]| some.iter().map(|&e| split.longest(e)).max().unwrap_or(0);
        if self.masked {
            examples.sort_by_key(|&example| Reverse(split.longest(example)));
        }
        let whole = match self.pad_to_longest {
            true => self.longest,
            false => longest(&examples),
        };
        let micro_batch = |group: Range<usize>| {
            let examples = examples[group].to_vec();
            let seq_len = match self.masked {
                true => longest(&examples),
                false => whole,
            };
            MicroBatch { seq_len: seq_len.max(1), weight: examples.len() as f64 / count as f64, examples }
        };
        groups(count, most).map(micro_batch).collect()
    }

    fn classify(&self, model: &Classifier, split: &Documents, batch: &MicroBatch, cx: &Cx) -> Result<Classified> {
        let (count, seq_len) = (batch.examples.len(), batch.seq_len);
        let rows = count * split.documents();
        let mut tokens = vec![0; rows * seq_len];
        let mut lengths = Vec::with_capacity(rows);
        let documents =
            (0..split.documents()).flat_map(|which| batch.examples.iter().map(move |&e| split.document(e, which)));
        for (row, document) in tokens.chunks_exact_mut(seq_len).zip(documents) {
            for (to, &from) in row.iter_mut().zip(document) {
                *to = u32::from(from);
            }
            lengths.push(document.len() as u32);
        }
        let labels = batch.examples.iter().map(|&e| u32::from(split.label(e)));
        let labels = Tensor::from_vec(labels.collect(), count, &self.device)?;
        let tokens = Tensor::from_vec(tokens, (rows, seq_len), &self.device)?;
        let lengths = Tensor::from_vec(lengths, rows, &self.device)?;
        model.classify(&tokens, &lengths, &labels, cx)
    }

    /// Tests all of `split` in batches of the training size: in the order of the split, or sorted by length if padding
    /// has no effect.
    fn test(&self, split: &Documents) -> Result<LabelMeans> {
        let mut sum = ScoreSum::default();
        let mut all: Vec<usize> = (0..split.len()).collect();
        if self.masked {
            all.sort_by_key(|&example| Reverse(split.longest(example)));
        }
        for examples in all.chunks(self.config.train.batch_size) {
            for batch in self.cut(split, examples.to_vec()) {
                let found = self.classify(&self.tested, split, &batch, &Cx::eval())?;
                sum.add(&found, batch.examples.len())?;
            }
        }
        Ok(sum.score())
    }
}

impl Trainee for Pooled<'_> {
    fn examples(&self) -> usize {
        self.splits.train.len()
    }

    fn tokens(&self) -> usize {
        self.splits.train.tokens()
    }

    fn state_size(&self) -> usize {
        self.model.state_size(self.longest)
    }

    fn micro_batches(&self, step: &StepExamples) -> Vec<MicroBatch> {
        self.cut(&self.splits.train, self.order.examples(step))
    }

    fn loss(&self, batch: &MicroBatch, cx: &Cx) -> Result<Tensor> {
        Ok(self.classify(&self.model, &self.splits.train, batch, cx)?.loss)
    }

    fn evaluate(&self) -> Result<Tested> {
        let val = &self.splits.val;
        Ok(Tested {
            val: (!val.is_empty()).then(|| self.test(val)).transpose()?,
            test: self.test(&self.splits.test)?,
            ..Tested::default()
        })
    }
}

#[cfg(test)]
mod tests;
