//! Labelled documents of different lengths, in a new order every epoch.
//!
//! A step's examples are drawn uniformly and never by length. Its parts are: where padding cannot be
//! seen, each part takes examples of like length and is padded to its own longest one; where it can
//! (pooling over padding too), every part is padded to the longest example of the whole step. Either
//! way the loss is the one that the whole step would have in one batch.

use super::order::Order;
use super::subject::{groups, shares, Span, Subject, Tally, Tested};
use crate::config::{LraConfig, RunConfig};
use crate::model::Classifier;
use crate::nn::{Cx, Params};
use crate::ops::Classified;
use crate::tasks::lra::{Examples, Splits};
use candle_core::{Device, Result, Tensor};

pub(super) struct Documents<'a> {
    config: &'a RunConfig,
    splits: &'a Splits,
    device: Device,
    model: Classifier,
    /// The same weights without gradient tracking.
    tested: Classifier,
    order: Order,
    /// Whether padding changes nothing.
    masked: bool,
    pad_to_longest: bool,
}

/// Examples that go through the model together.
struct Part {
    examples: Vec<usize>,
    /// Tokens that each document is padded to.
    len: usize,
}

impl<'a> Documents<'a> {
    pub fn new(
        (config, task): (&'a RunConfig, &LraConfig),
        splits: &'a Splits,
        params: &Params,
        device: &Device,
    ) -> Result<Self> {
        let classifier = config.model.classifier.as_ref();
        Ok(Self {
            config,
            splits,
            device: device.clone(),
            model: Classifier::new(&config.model, task, params)?,
            tested: Classifier::new(&config.model, task, &params.detached())?,
            order: Order::new(config.seed, "lra/order", splits.train.len()),
            masked: classifier.is_some_and(|classifier| classifier.mask),
            pad_to_longest: classifier.is_some_and(|classifier| classifier.pad_to_longest),
        })
    }

    /// `examples` of `split` in parts.
    fn parts(&self, split: &Examples, mut examples: Vec<usize>) -> Vec<Part> {
        let most = self.config.train.micro_batch.unwrap_or(examples.len());
        let longest = |part: &[usize]| part.iter().map(|&e| split.longest(e)).max().unwrap_or(0);
        if self.masked {
            examples.sort_by_key(|&example| std::cmp::Reverse(split.longest(example)));
        }
        let whole = match self.pad_to_longest {
            true => self.config.task.seq_len(),
            false => longest(&examples),
        };
        let part = |range: std::ops::Range<usize>| {
            let examples = examples[range].to_vec();
            let len = if self.masked {
                longest(&examples)
            } else {
                whole
            };
            Part {
                examples,
                len: len.max(1),
            }
        };
        groups(examples.len(), most).map(part).collect()
    }

    fn classify(
        &self,
        model: &Classifier,
        split: &Examples,
        part: &Part,
        cx: &Cx,
    ) -> Result<Classified> {
        let count = part.examples.len();
        let rows = count * split.documents();
        let mut tokens = vec![0; rows * part.len];
        let mut lengths = Vec::with_capacity(rows);
        let documents = (0..split.documents())
            .flat_map(|which| part.examples.iter().map(move |&e| split.document(e, which)));
        for (row, document) in tokens.chunks_exact_mut(part.len).zip(documents) {
            for (to, &from) in row.iter_mut().zip(document) {
                *to = u32::from(from);
            }
            lengths.push(document.len() as u32);
        }
        let labels = part.examples.iter().map(|&e| u32::from(split.label(e)));
        let labels = Tensor::from_vec(labels.collect(), count, &self.device)?;
        let tokens = Tensor::from_vec(tokens, (rows, part.len), &self.device)?;
        let lengths = Tensor::from_vec(lengths, rows, &self.device)?;
        model.classify(&tokens, &lengths, &labels, cx)
    }

    /// Batches as in training, in the order of the split, or by length where that changes nothing.
    fn tally(&self, split: &Examples) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut all: Vec<usize> = (0..split.len()).collect();
        if self.masked {
            all.sort_by_key(|&example| std::cmp::Reverse(split.longest(example)));
        }
        for batch in all.chunks(self.config.train.batch_size) {
            for part in self.parts(split, batch.to_vec()) {
                let found = self.classify(&self.tested, split, &part, &Cx::eval())?;
                tally.add(&found, part.examples.len())?;
            }
        }
        Ok(tally)
    }
}

impl Subject for Documents<'_> {
    fn examples(&self) -> usize {
        self.splits.train.len()
    }

    fn tokens(&self) -> usize {
        self.splits.train.tokens()
    }

    fn state_size(&self) -> usize {
        let seq_len = self.config.task.seq_len();
        self.config.model.n_layers * self.model.state_size(seq_len)
    }

    fn shares(&self, span: &Span) -> Vec<f64> {
        let count = span.range.len();
        shares(count, self.config.train.micro_batch.unwrap_or(count))
    }

    fn loss(&self, span: &Span, part: usize, cx: &Cx) -> Result<Tensor> {
        let train = &self.splits.train;
        let parts = self.parts(train, self.order.drawn(span));
        Ok(self.classify(&self.model, train, &parts[part], cx)?.loss)
    }

    fn evaluate(&self) -> Result<Tested> {
        let val = &self.splits.val;
        let val = (!val.is_empty()).then(|| self.tally(val)).transpose()?;
        Ok(Tested {
            test: self.tally(&self.splits.test)?.score(),
            val: val.map(|tally| tally.score()),
        })
    }
}

#[cfg(test)]
mod tests;
