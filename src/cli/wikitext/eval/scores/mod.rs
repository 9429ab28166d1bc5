//! Scores of weights on one split: over its windows, and over every token once.

use super::Split;
use crate::error::Result;
use crate::model::weights::Checkpoint;
use crate::model::LanguageModel;
use crate::sweep::estimate::grouped;
use crate::tasks::wikitext::WikitextConfig;
use crate::tasks::{IdSlice, TokenizedText};
use crate::train::{score, Scored, Scoring};
use candle_core::Device;
use serde_json::{json, Value};

/// Scores on one split.
pub(super) struct Scores<'a> {
    text: &'a TokenizedText,
    /// Score over complete windows.
    windows: Scored,
    /// Score over every token except the first.
    whole: Scored,
}

impl<'a> Scores<'a> {
    /// Scores a split. `watch` receives the number of scored windows and their total, and may cancel.
    pub fn of(
        model: &LanguageModel,
        text: &'a TokenizedText,
        how: &Scoring,
        device: &Device,
        watch: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<Self> {
        let (length, stride) = (how.seq_len, how.stride.unwrap_or(how.seq_len));
        let count = (text.ids().len() - 1 - length) / stride + 1;
        let part = |ids: IdSlice, how: &Scoring| -> Result<Scored> {
            let part = TokenizedText::new(ids.to_held(), text.counts(), length, None);
            Ok(score(model, &part, how, device)?)
        };
        let mut windows = Scored::default();
        for first in (0..count).step_by(how.batch) {
            let last = (first + how.batch).min(count) - 1;
            let found = part(text.ids().slice(first * stride..last * stride + length + 1), how)?;
            add(&mut windows, found);
            watch(last + 1, count)?;
        }
        let mut whole = windows;
        for (ids, scored) in ends(text.ids(), count, length, stride) {
            let how = Scoring { seq_len: ids.len() - 1, stride: Some(scored), ..*how };
            add(&mut whole, part(ids, &how)?);
        }
        Ok(Self { text, windows, whole })
    }

    /// Number of words W for the perplexity per word.
    fn words(&self) -> u64 {
        self.text.counts().ppl_words()
    }

    fn word_ppl(&self) -> f64 {
        (self.whole.nll / self.words() as f64).exp()
    }

    fn bits_per_byte(&self) -> f64 {
        self.whole.nll / (std::f64::consts::LN_2 * self.text.counts().bytes as f64)
    }

    pub fn row(&self, split: Split) -> String {
        let Scored { nll, tokens } = self.windows;
        format!(
            "{:5}  {:>11}  {:10.4}  {:>9}  {:>8}  {:>11}  {:9.4}",
            split.name(),
            grouped(tokens as u64),
            nll / tokens as f64,
            perplexity(self.windows.ppl()),
            perplexity(self.word_ppl()),
            grouped(self.words()),
            self.bits_per_byte()
        )
    }

    pub fn json(&self, split: Split, found: &Checkpoint, text: &WikitextConfig, how: &Scoring) -> Value {
        let counts = self.text.counts();
        json!({
            "event": "eval", "schema": 1, "path": found.place, "run": found.origin.run,
            "epoch": found.origin.epoch, "step": found.origin.step, "mixer": found.config.model.mixer,
            "corpus": text.corpus.name(), "tokenizer": text.tokenizer.to_string(),
            "split": split.name(), "seq_len": how.seq_len, "stride": how.stride.unwrap_or(how.seq_len),
            "tokens": self.windows.tokens, "nll": self.windows.nll, "token_ppl": self.windows.ppl(),
            "all_tokens": self.whole.tokens, "all_nll": self.whole.nll,
            "words": counts.words, "lines": counts.lines, "ppl_words": self.words(), "word_ppl": self.word_ppl(),
            "bytes": counts.bytes, "bits_per_byte": self.bits_per_byte(),
        })
    }
}

fn add(sum: &mut Scored, more: Scored) {
    sum.nll += more.nll;
    sum.tokens += more.tokens;
}

/// Returns the tokens that `count` windows at distance `stride` leave unscored: slices of ids, each with the number of
/// its last predictions that are missing. They are the first tokens of the first window, which have less context than
/// those of other windows, and the tokens after the last complete window.
fn ends(ids: IdSlice, count: usize, length: usize, stride: usize) -> Vec<(IdSlice, usize)> {
    let targets = ids.len() - 1;
    let over = (count - 1) * stride + length;
    let head = (ids.slice(0..length - stride + 1), length - stride);
    let tail = (ids.slice(count * stride..ids.len()), targets - over);
    [head, tail].into_iter().filter(|(_, scored)| *scored > 0).collect()
}

/// Formats with two decimals, or in scientific notation from 1e5.
fn perplexity(ppl: f64) -> String {
    if ppl < 1e5 {
        format!("{ppl:.2}")
    } else {
        format!("{ppl:.2e}")
    }
}

#[cfg(test)]
mod tests;
