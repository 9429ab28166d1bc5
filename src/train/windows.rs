//! Windows of a text, in a new order every epoch; every position predicts the next id.

use super::order::Order;
use super::perplexity::{score, unigram_ppl, Scored, Scoring};
use super::progress::selected;
use super::shifted::Shifted;
use super::subject::{groups, shares, Score, Span, Subject, Tally, Tested};
use crate::config::{RunConfig, WikitextConfig};
use crate::model::{Io, Model};
use crate::nn::{Cx, Params};
use crate::store::{EpochRow, Metrics};
use crate::tasks::wikitext::{Splits, Text};
use candle_core::{Device, Result, Tensor};
use std::f64::consts::LN_2;

/// Of so many training windows, one is scored under the final weights.
const EVERY: usize = 100;

pub(super) struct Windows<'a> {
    config: &'a RunConfig,
    task: &'a WikitextConfig,
    splits: &'a Splits,
    device: Device,
    model: Model,
    /// The same weights without gradient tracking.
    tested: Model,
    order: Order,
}

impl<'a> Windows<'a> {
    pub fn new(
        (config, task): (&'a RunConfig, &'a WikitextConfig),
        splits: &'a Splits,
        params: &Params,
        device: &Device,
    ) -> Result<Self> {
        let io = Io::of(&config.task);
        Ok(Self {
            config,
            task,
            splits,
            device: device.clone(),
            model: Model::new(&config.model, io, params)?,
            tested: Model::new(&config.model, io, &params.detached())?,
            order: Order::new(config.seed, "wikitext/order", splits.train.windows()),
        })
    }

    /// Windows at one time at most.
    fn most(&self) -> usize {
        let train = &self.config.train;
        train.micro_batch.unwrap_or(train.batch_size)
    }

    fn upload(&self, text: &Text, windows: &[usize]) -> Result<Shifted> {
        let windows: Vec<&[u16]> = windows.iter().map(|&i| text.window(i)).collect();
        Shifted::new(&windows, text.seq_len(), &self.device)
    }

    /// Mean loss and accuracy on `windows` of `text`.
    fn test(&self, text: &Text, windows: &[usize]) -> Result<Score> {
        let mut tally = Tally::default();
        for part in windows.chunks(self.most()) {
            let part = self.upload(text, part)?;
            tally.add(&part.classify(&self.tested, &Cx::eval())?, part.len())?;
        }
        Ok(tally.score())
    }

    fn test_all(&self, text: &Text) -> Result<Score> {
        self.test(text, &(0..text.windows()).collect::<Vec<_>>())
    }

    /// Training windows at even distances, one of a hundred.
    fn some_training_windows(&self) -> Vec<usize> {
        let all = self.splits.train.windows();
        let some = all.div_ceil(EVERY);
        (0..some).map(|i| i * all / some).collect()
    }

    /// Every token of `text` but the first, if it is not limited to some of its windows.
    fn whole(&self, text: &Text) -> Result<Option<Scored>> {
        if self.task.test_examples.is_some() {
            return Ok(None);
        }
        let how = Scoring {
            seq_len: text.seq_len(),
            stride: None,
            batch: self.most(),
            every_token: true,
        };
        score(&self.tested, text, &how, &self.device).map(Some)
    }

    /// What only the weights at the end tell, put into `scores`.
    fn conclude_weights(&self, last: &EpochRow, scores: &mut Metrics) -> Result<()> {
        let Splits {
            train, val, test, ..
        } = self.splits;
        let some = self.test(train, &self.some_training_windows())?;
        scores.set("train_ppl", perplexity(last.train_loss));
        scores.set("train_ppl_eval", perplexity(some.loss));
        scores.set("val_ppl", last.val_loss.and_then(perplexity));
        scores.set("test_ppl", perplexity(last.test_loss));
        if let Some(whole) = self.whole(val)? {
            let (words, bytes) = by_words_and_bytes(whole, val);
            scores.set("val_word_ppl", words);
            scores.set("val_bits_per_byte", bytes);
        }
        if let Some(whole) = self.whole(test)? {
            let (words, bytes) = by_words_and_bytes(whole, test);
            scores.set("test_word_ppl", words);
            scores.set("test_bits_per_byte", bytes);
        }
        Ok(())
    }
}

impl Subject for Windows<'_> {
    fn examples(&self) -> usize {
        self.splits.train.windows()
    }

    fn tokens(&self) -> usize {
        self.examples() * self.task.seq_len
    }

    fn state_size(&self) -> usize {
        self.config.model.n_layers * self.model.state_size(self.task.seq_len)
    }

    fn shares(&self, span: &Span) -> Vec<f64> {
        shares(span.range.len(), self.most())
    }

    fn loss(&self, span: &Span, part: usize, cx: &Cx) -> Result<Tensor> {
        let drawn = self.order.drawn(span);
        let part = groups(drawn.len(), self.most()).nth(part);
        let windows = &drawn[part.unwrap_or_default()];
        let part = self.upload(&self.splits.train, windows)?;
        Ok(part.classify(&self.model, cx)?.loss)
    }

    fn evaluate(&self) -> Result<Tested> {
        Ok(Tested {
            test: self.test_all(&self.splits.test)?,
            val: Some(self.test_all(&self.splits.val)?),
        })
    }

    fn conclude(&self, epochs: &[EpochRow], diverged: bool) -> Result<Metrics> {
        let Splits { train, test, .. } = self.splits;
        let best = selected(&self.config.task, epochs);
        let unigram = unigram_ppl(train, test, self.task.vocab_size);
        let best_val = best.and_then(|epoch| epoch.val_loss).and_then(perplexity);
        let selected = best.and_then(|epoch| perplexity(epoch.test_loss));
        let mut scores = Metrics::default()
            .with("best_val_ppl", best_val)
            .with("selected_test_ppl", selected)
            .with("unigram_ppl", finite(unigram))
            .with("train_tokens", self.tokens());
        if let Some(last) = epochs.last().filter(|_| !diverged) {
            self.conclude_weights(last, &mut scores)?;
        }
        Ok(scores)
    }
}

/// Of a mean loss in nats.
fn perplexity(loss: f64) -> Option<f64> {
    finite(loss.exp())
}

/// Per word, the end of a line being one, and bits a byte.
fn by_words_and_bytes(whole: Scored, text: &Text) -> (Option<f64>, Option<f64>) {
    let counts = text.counts();
    let words = (counts.words + counts.lines) as f64;
    let bits = whole.nll / (LN_2 * counts.bytes as f64);
    (perplexity(whole.nll / words), finite(bits))
}

fn finite(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite())
}

#[cfg(test)]
mod tests;
