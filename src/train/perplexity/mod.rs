//! Perplexity of a whole text: summed cross-entropy, with a chosen amount of context.

use super::labelled::Labelled;
use crate::model::LanguageModel;
use crate::nn::Cx;
use crate::tasks::{IdSlice, TokenizedText};
use candle_core::{DType, Device, Result};

/// Selection of the tokens that are scored and of their context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scoring {
    /// Number of inputs in a window, L.
    pub seq_len: usize,
    /// Distance in tokens between the starts of two windows, from 1 to L; only the last `stride` predictions of a
    /// window count, so that each has at least L - stride tokens of context. `None`: windows lie end to end and all
    /// their predictions count.
    pub stride: Option<usize>,
    /// Number of windows in one batch.
    pub batch: usize,
    /// Whether every token but the first counts exactly once. If so, all predictions of the first window count even
    /// with a stride, and the remainder of the text forms a shorter last window; otherwise the remainder is left out.
    pub every_token: bool,
}

/// Summed cross-entropy of the scored tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scored {
    /// Cross-entropy in nats, summed over tokens.
    pub nll: f64,
    /// Number of tokens summed over.
    pub tokens: usize,
}

impl Scored {
    /// Perplexity per token; NaN if no token was scored.
    pub fn ppl(&self) -> f64 {
        (self.nll / self.tokens as f64).exp()
    }
}

/// One window: its first input, its number of inputs, and how many of its last predictions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EvalWindow {
    start: usize,
    inputs: usize,
    scored: usize,
}

/// Scores all of `text`, even if it is limited to some of its windows. `model` need not track gradients.
pub fn score(model: &LanguageModel, text: &TokenizedText, how: &Scoring, device: &Device) -> Result<Scored> {
    let (ids, mut sum) = (text.ids(), Scored::default());
    let pieces = pieces(ids.len(), how);
    for alike in pieces.chunk_by(|a, b| (a.inputs, a.scored) == (b.inputs, b.scored)) {
        for group in alike.chunks(how.batch.max(1)) {
            let cut = |piece: &EvalWindow| ids.slice(piece.start..piece.start + piece.inputs + 1);
            let cut: Vec<IdSlice> = group.iter().map(cut).collect();
            let shifted = Labelled::shifted(&cut, group[0].scored, device)?;
            let mean = shifted.classify(model, &Cx::eval())?.loss;
            let mean = mean.to_dtype(DType::F64)?.to_scalar::<f64>()?;
            sum.nll += mean * shifted.len() as f64;
            sum.tokens += shifted.len();
        }
    }
    Ok(sum)
}

/// Returns the windows over `ids` ids, in order.
fn pieces(ids: usize, how: &Scoring) -> Vec<EvalWindow> {
    let (len, targets) = (how.seq_len.max(1), ids.saturating_sub(1));
    let stride = how.stride.unwrap_or(len).clamp(1, len);
    let full = match targets.checked_sub(len) {
        Some(rest) => rest / stride + 1,
        None => 0,
    };
    let whole = |i: usize| EvalWindow {
        start: i * stride,
        inputs: len,
        scored: if i == 0 && how.every_token { len } else { stride },
    };
    let mut pieces: Vec<EvalWindow> = (0..full).map(whole).collect();
    let start = full * stride;
    // End of the last whole window: every earlier target has been scored.
    let over = pieces.last().map_or(0, |last| last.start + len);
    if how.every_token && over < targets {
        pieces.push(EvalWindow { start, inputs: targets - start, scored: targets - over });
    }
    pieces
}

/// Test perplexity of a unigram model over `vocab_size` ids, whose probabilities are the counts of targets in the
/// training windows with add-one smoothing.
pub fn unigram_ppl(train: &TokenizedText, test: &TokenizedText, vocab_size: usize) -> f64 {
    let mut counts = vec![1u64; vocab_size];
    let (train, test) = (targets(train), targets(test));
    for id in train.iter() {
        counts[id as usize] += 1;
    }
    let all = (train.len() + vocab_size) as f64;
    let surprise = |id: u32| (all / counts[id as usize] as f64).ln();
    let nll: f64 = test.iter().map(surprise).sum();
    (nll / test.len() as f64).exp()
}

/// Targets of all windows, concatenated.
fn targets(text: &TokenizedText) -> IdSlice<'_> {
    text.ids().slice(1..text.windows() * text.seq_len() + 1)
}

#[cfg(test)]
mod tests;
