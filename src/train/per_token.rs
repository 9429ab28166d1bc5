//! Labels at some positions of sequences of one length, in the same order every epoch.

use super::objective::{groups, MicroBatch, Objective, OneShape, ScoreSum, StepExamples, Tested};
use crate::config::RunConfig;
use crate::model::{Io, Model};
use crate::nn::{Cx, Params, Rows};
use crate::ops::Classified;
use crate::tasks::{Batch, Dataset, Sizes};
use candle_core::{Device, Result, Tensor};

/// A batch on the device, with the rows that carry a label.
pub struct Labelled {
    /// `(batch, seq_len)` u32.
    pub tokens: Tensor,
    /// Where the labels are.
    pub rows: Rows,
    /// `(batch · labels)` u32.
    pub answers: Tensor,
}

impl Labelled {
    /// Uploads `batch`, which is part of `data`.
    pub fn new(batch: Batch, data: &Dataset, device: &Device) -> Result<Self> {
        let (seq_len, labels) = (data.seq_len(), data.labels_per_example());
        let size = batch.tokens.len() / seq_len;
        let positions = Tensor::from_slice(batch.positions, (size, labels), device)?;
        Ok(Self {
            tokens: Tensor::from_slice(batch.tokens, (size, seq_len), device)?,
            rows: Rows { positions },
            answers: Tensor::from_slice(batch.answers, size * labels, device)?,
        })
    }

    /// The last hidden layer at the labelled rows, `(batch, labels, d_model)`.
    pub fn hidden(&self, model: &Model, cx: &Cx) -> Result<Tensor> {
        model.hidden(&self.tokens, Some(&self.rows), cx)
    }

    /// Mean cross-entropy over the labelled rows, and which of them are answered rightly.
    pub fn classify(&self, model: &Model, cx: &Cx) -> Result<Classified> {
        model.classify(&self.tokens, Some(&self.rows), &self.answers, cx)
    }
}

/// The objective of [`crate::tasks::Objective::PerToken`].
pub(super) struct PerToken<'a> {
    config: &'a RunConfig,
    train: &'a Dataset,
    test: &'a Dataset,
    device: Device,
    model: Model,
    /// The same weights without gradients.
    tested: Model,
}

impl<'a> PerToken<'a> {
    pub fn new(
        config: &'a RunConfig,
        sizes: &Sizes,
        [train, test]: [&'a Dataset; 2],
        params: &Params,
        device: &Device,
    ) -> Result<Self> {
        let io = Io::from(sizes);
        Ok(Self {
            config,
            train,
            test,
            device: device.clone(),
            model: Model::new(&config.model, io, params)?,
            tested: Model::new(&config.model, io, &params.detached())?,
        })
    }
}

impl Objective for PerToken<'_> {
    fn examples(&self) -> usize {
        self.train.len()
    }

    fn tokens(&self) -> usize {
        self.train.len() * self.train.seq_len()
    }

    fn state_size(&self) -> usize {
        self.config.model.n_layers * self.model.state_size(self.train.seq_len())
    }

    fn micro_batches(&self, step: &StepExamples) -> Vec<MicroBatch> {
        let (first, count) = (step.range.start, step.range.len());
        let most = self.config.train.micro_batch.unwrap_or(count);
        let micro_batch = |group: std::ops::Range<usize>| MicroBatch {
            weight: group.len() as f64 / count as f64,
            examples: (first + group.start..first + group.end).collect(),
            seq_len: self.train.seq_len(),
        };
        groups(count, most).map(micro_batch).collect()
    }

    fn loss(&self, batch: &MicroBatch, cx: &Cx) -> Result<Tensor> {
        let first = batch.examples[0];
        let examples = self.train.batch(first..first + batch.examples.len());
        let labelled = Labelled::new(examples, self.train, &self.device)?;
        Ok(labelled.classify(&self.model, cx)?.loss)
    }

    /// Every example has as many labels, so the share of right answers is that of all labels.
    fn evaluate(&self) -> Result<Tested> {
        let mut sum = ScoreSum::default();
        let train = &self.config.train;
        let size = train.micro_batch.unwrap_or(train.batch_size);
        for first in (0..self.test.len()).step_by(size) {
            let range = first..(first + size).min(self.test.len());
            let batch = Labelled::new(self.test.batch(range), self.test, &self.device)?;
            let found = batch.classify(&self.tested, &Cx::eval())?;
            sum.add(&found, batch.answers.dim(0)?)?;
        }
        Ok(Tested {
            test: sum.score(),
            val: None,
        })
    }

    fn one_shape(&self) -> Option<OneShape<'_>> {
        self.config.train.micro_batch.is_none().then_some(OneShape {
            model: &self.model,
            train: self.train,
        })
    }
}
