//! Sequences of one length with labels at some of their positions, in the same order every epoch.

use super::subject::{groups, shares, Span, Subject, Tally, Tested};
use super::Labelled;
use crate::config::RunConfig;
use crate::model::{Io, Model};
use crate::nn::{Cx, Params};
use crate::tasks::{Batch, Dataset};
use candle_core::{Device, Result, Tensor};
use std::ops::Range;

pub(super) struct Recall<'a> {
    config: &'a RunConfig,
    train: &'a Dataset,
    test: &'a Dataset,
    device: Device,
    model: Model,
    /// The same weights without gradient tracking.
    tested: Model,
}

impl<'a> Recall<'a> {
    pub fn new(
        config: &'a RunConfig,
        [train, test]: [&'a Dataset; 2],
        params: &Params,
        device: &Device,
    ) -> Result<Self> {
        let io = Io::of(&config.task);
        Ok(Self {
            config,
            train,
            test,
            device: device.clone(),
            model: Model::new(&config.model, io, params)?,
            tested: Model::new(&config.model, io, &params.detached())?,
        })
    }

    fn parts(&self, span: &Span) -> Vec<Range<usize>> {
        let count = span.range.len();
        let most = self.config.train.micro_batch.unwrap_or(count);
        groups(count, most)
            .map(|part| span.range.start + part.start..span.range.start + part.end)
            .collect()
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Training examples in host memory.
    pub fn batch(&self, examples: Range<usize>) -> Batch<'_> {
        self.train.batch(examples)
    }

    /// The same where the model is.
    pub fn upload(&self, examples: Range<usize>) -> Result<Labelled> {
        Labelled::new(self.batch(examples), self.train, &self.device)
    }
}

impl Subject for Recall<'_> {
    fn examples(&self) -> usize {
        self.train.len()
    }

    fn tokens(&self) -> usize {
        self.train.len() * self.train.seq_len()
    }

    fn state_size(&self) -> usize {
        self.config.model.n_layers * self.model.state_size(self.train.seq_len())
    }

    fn shares(&self, span: &Span) -> Vec<f64> {
        let count = span.range.len();
        shares(count, self.config.train.micro_batch.unwrap_or(count))
    }

    fn loss(&self, span: &Span, part: usize, cx: &Cx) -> Result<Tensor> {
        let batch = self.upload(self.parts(span)[part].clone())?;
        Ok(batch.classify(&self.model, cx)?.loss)
    }

    /// Every example has as many labels, so the share of right answers is that of all labels.
    fn evaluate(&self) -> Result<Tested> {
        let mut tally = Tally::default();
        let train = &self.config.train;
        let size = train.micro_batch.unwrap_or(train.batch_size);
        for first in (0..self.test.len()).step_by(size) {
            let range = first..(first + size).min(self.test.len());
            let batch = Labelled::new(self.test.batch(range), self.test, &self.device)?;
            let found = batch.classify(&self.tested, &Cx::eval())?;
            tally.add(&found, batch.answers.dim(0)?)?;
        }
        Ok(Tested {
            test: tally.score(),
            val: None,
        })
    }

    fn one_shape(&self) -> Option<&Recall<'_>> {
        self.config.train.micro_batch.is_none().then_some(self)
    }
}
