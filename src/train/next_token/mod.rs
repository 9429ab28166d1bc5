//! Next-token prediction: the labels of a window are its tokens shifted by one. Windows come in a new order every
//! epoch.

use super::labelled::Labelled;
use super::objective::{selected, EpochOrder, LabelMeans, MicroBatch, ScoreSum, StepExamples, Tested, Trainee};
use super::perplexity::{score, unigram_ppl, Scored, Scoring};
use crate::config::RunConfig;
use crate::model::{Io, LanguageModel};
use crate::nn::{Cx, Params};
use crate::store::{Column, EpochRow, Metrics};
use crate::tasks::{ExampleSizes, IdSlice, TokenizedText, TrainValTest};
use candle_core::{Device, Result, Tensor};
use std::f64::consts::LN_2;

/// One in this many training windows is scored under the final weights.
const EVERY: usize = 100;

/// The objective of [`crate::tasks::Objective::NextToken`].
pub(super) struct NextToken<'a> {
    config: &'a RunConfig,
    sizes: ExampleSizes,
    splits: &'a TrainValTest<TokenizedText>,
    device: Device,
    model: LanguageModel,
    /// Model of the same weights without gradients, for tests.
    tested: LanguageModel,
    order: EpochOrder,
}

impl<'a> NextToken<'a> {
    pub fn new(
        config: &'a RunConfig,
        sizes: &ExampleSizes,
        splits: &'a TrainValTest<TokenizedText>,
        params: &Params,
        device: &Device,
    ) -> Result<Self> {
        let io = Io::from(sizes);
        Ok(Self {
            config,
            sizes: *sizes,
            splits,
            device: device.clone(),
            model: LanguageModel::new(&config.model, io, params)?,
            tested: LanguageModel::new(&config.model, io, &params.detached())?,
            order: EpochOrder::new(config.seed, config.task.name(), splits.train.windows()),
        })
    }

    /// Largest number of windows in one micro-batch.
    fn most(&self) -> usize {
        let train = &self.config.train;
        train.micro_batch.unwrap_or(train.batch_size)
    }

    fn upload(&self, text: &TokenizedText, windows: &[usize]) -> Result<Labelled> {
        let windows: Vec<IdSlice> = windows.iter().map(|&i| text.window(i)).collect();
        Labelled::shifted(&windows, text.seq_len(), &self.device)
    }

    /// Mean loss and accuracy on `windows` of `text`.
    fn test(&self, text: &TokenizedText, windows: &[usize]) -> Result<LabelMeans> {
        let mut sum = ScoreSum::default();
        for some in windows.chunks(self.most()) {
            let shifted = self.upload(text, some)?;
            sum.add(&shifted.classify(&self.tested, &Cx::eval())?, shifted.len())?;
        }
        Ok(sum.score())
    }

    fn test_all(&self, text: &TokenizedText) -> Result<LabelMeans> {
        self.test(text, &(0..text.windows()).collect::<Vec<_>>())
    }

    /// Evenly spaced training windows, one in [`EVERY`].
    fn some_training_windows(&self) -> Vec<usize> {
        let all = self.splits.train.windows();
        let some = all.div_ceil(EVERY);
        (0..some).map(|i| i * all / some).collect()
    }

    /// Score of every token of `text` but the first; `None` if `text` is limited to some of its windows.
    fn whole(&self, text: &TokenizedText) -> Result<Option<Scored>> {
        if text.is_limited() {
            return Ok(None);
        }
        let how = Scoring { seq_len: text.seq_len(), stride: None, batch: self.most(), every_token: true };
        score(&self.tested, text, &how, &self.device).map(Some)
    }

    /// Adds to `scores` the metrics that need the final weights.
    fn score_weights(&self, last: &EpochRow, scores: &mut Metrics) -> Result<()> {
        let TrainValTest { train, val, test, .. } = self.splits;
        let some = self.test(train, &self.some_training_windows())?;
        scores.set(Column::TRAIN_PPL, perplexity(last.train_loss));
        scores.set(Column::TRAIN_PPL_EVAL, perplexity(some.loss));
        scores.set(Column::VAL_PPL, last.val_loss.and_then(perplexity));
        scores.set(Column::TEST_PPL, perplexity(last.test_loss));
        for (words_of, bits_of, text) in [
            (Column::VAL_WORD_PPL, Column::VAL_BITS_PER_BYTE, val),
            (Column::TEST_WORD_PPL, Column::TEST_BITS_PER_BYTE, test),
        ] {
            if let Some(whole) = self.whole(text)? {
                let (words, bytes) = by_words_and_bytes(whole, text);
                scores.set(words_of, words);
                scores.set(bits_of, bytes);
            }
        }
        Ok(())
    }
}

impl Trainee for NextToken<'_> {
    fn examples(&self) -> usize {
        self.splits.train.windows()
    }

    fn tokens(&self) -> usize {
        self.examples() * self.sizes.seq_len
    }

    fn state_size(&self) -> usize {
        self.model.state_size(self.sizes.seq_len)
    }

    fn micro_batches(&self, step: &StepExamples) -> Vec<MicroBatch> {
        let windows = self.order.examples(step);
        MicroBatch::of_one_length(&windows, self.most(), self.sizes.seq_len)
    }

    fn loss(&self, batch: &MicroBatch, cx: &Cx) -> Result<Tensor> {
        let shifted = self.upload(&self.splits.train, &batch.examples)?;
        Ok(shifted.classify(&self.model, cx)?.loss)
    }

    fn evaluate(&self) -> Result<Tested> {
        Ok(Tested {
            test: self.test_all(&self.splits.test)?,
            val: Some(self.test_all(&self.splits.val)?),
            ..Tested::default()
        })
    }

    /// Negated loss: the lowest validation loss is best.
    fn validation(&self, epoch: &EpochRow) -> Option<f64> {
        let loss = epoch.val_loss.filter(|loss| loss.is_finite());
        loss.map(|loss| -loss)
    }

    fn language_scores(&self, epochs: &[EpochRow], diverged: bool) -> Result<Metrics> {
        let TrainValTest { train, test, .. } = self.splits;
        let best = selected(self, epochs);
        let unigram = unigram_ppl(train, test, self.sizes.vocab_size);
        let best_val = best.and_then(|epoch| epoch.val_loss).and_then(perplexity);
        let selected = best.and_then(|epoch| perplexity(epoch.test_loss));
        let mut scores = Metrics::default()
            .with(Column::BEST_VAL_PPL, best_val)
            .with(Column::SELECTED_TEST_PPL, selected)
            .with(Column::UNIGRAM_PPL, finite(unigram))
            .with(Column::TRAIN_TOKENS, self.tokens());
        if let Some(last) = epochs.last().filter(|_| !diverged) {
            self.score_weights(last, &mut scores)?;
        }
        Ok(scores)
    }
}

/// The perplexity of a mean loss in nats.
fn perplexity(loss: f64) -> Option<f64> {
    finite(loss.exp())
}

/// Perplexity per word, and bits per byte; `None` if not finite.
fn by_words_and_bytes(whole: Scored, text: &TokenizedText) -> (Option<f64>, Option<f64>) {
    let counts = text.counts();
    let words = counts.ppl_words() as f64;
    let bits = whole.nll / (LN_2 * counts.bytes as f64);
    (perplexity(whole.nll / words), finite(bits))
}

fn finite(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite())
}

#[cfg(test)]
mod tests;
