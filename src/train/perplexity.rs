//! How well weights predict a whole text: summed cross-entropy, with as much context as is asked for.

use super::labelled::Labelled;
use crate::model::Model;
use crate::nn::Cx;
use crate::tasks::Text;
use candle_core::{DType, Device, Result};

/// Which tokens of a text are scored, and with how much context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scoring {
    /// Inputs of a window, L.
    pub seq_len: usize,
    /// `None`: windows lie end to end, and all their predictions count. Else windows begin so many tokens
    /// apart, from 1 to L, and only as many predictions count, the last ones: each has at least L - stride
    /// tokens before it in its window.
    pub stride: Option<usize>,
    /// Windows at one time.
    pub batch: usize,
    /// Every token but the first counts exactly once: with a stride, all predictions of the first window
    /// count, and what is left over at the end is a window that is shorter. Otherwise it is left out.
    pub every_token: bool,
}

/// What scoring found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scored {
    /// Cross-entropy in nats, summed over tokens.
    pub nll: f64,
    /// Tokens that it was summed over.
    pub tokens: usize,
}

impl Scored {
    /// Perplexity per token; no number if no token was scored.
    pub fn ppl(&self) -> f64 {
        (self.nll / self.tokens as f64).exp()
    }
}

/// A window: inputs from one place on, and how many of its last predictions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: usize,
    inputs: usize,
    scored: usize,
}

/// Scores all of `text`, whatever limits its windows; `model` need not track gradients.
pub fn score(model: &Model, text: &Text, how: &Scoring, device: &Device) -> Result<Scored> {
    let (ids, mut sum) = (text.ids(), Scored::default());
    let pieces = pieces(ids.len(), how);
    for alike in pieces.chunk_by(|a, b| (a.inputs, a.scored) == (b.inputs, b.scored)) {
        for group in alike.chunks(how.batch.max(1)) {
            let cut: Vec<&[u16]> = group
                .iter()
                .map(|piece| &ids[piece.start..][..piece.inputs + 1])
                .collect();
            let shifted = Labelled::shifted(&cut, group[0].scored, device)?;
            let mean = shifted.classify(model, &Cx::eval())?.loss;
            let mean = mean.to_dtype(DType::F64)?.to_scalar::<f64>()?;
            sum.nll += mean * shifted.len() as f64;
            sum.tokens += shifted.len();
        }
    }
    Ok(sum)
}

/// The windows of `ids` ids, in order.
fn pieces(ids: usize, how: &Scoring) -> Vec<Piece> {
    let (len, targets) = (how.seq_len.max(1), ids.saturating_sub(1));
    let stride = how.stride.unwrap_or(len).clamp(1, len);
    let full = match targets.checked_sub(len) {
        Some(rest) => rest / stride + 1,
        None => 0,
    };
    let whole = |i: usize| Piece {
        start: i * stride,
        inputs: len,
        scored: if i == 0 && how.every_token {
            len
        } else {
            stride
        },
    };
    let mut pieces: Vec<Piece> = (0..full).map(whole).collect();
    let start = full * stride;
    // Scored so far: up to the end of the last whole window.
    let over = pieces.last().map_or(0, |last| last.start + len);
    if how.every_token && over < targets {
        pieces.push(Piece {
            start,
            inputs: targets - start,
            scored: targets - over,
        });
    }
    pieces
}

/// Perplexity on the targets of the test windows of a model that knows only how often each of `vocab_size`
/// ids is a target in the training windows, each one once more than that.
pub fn unigram_ppl(train: &Text, test: &Text, vocab_size: usize) -> f64 {
    let mut counts = vec![1u64; vocab_size];
    let (seen, asked) = (targets(train), targets(test));
    for &id in seen {
        counts[usize::from(id)] += 1;
    }
    let all = (seen.len() + vocab_size) as f64;
    let surprise = |&id: &u16| (all / counts[usize::from(id)] as f64).ln();
    let nll: f64 = asked.iter().map(surprise).sum();
    (nll / asked.len() as f64).exp()
}

/// The targets of all windows, one behind the other.
fn targets(text: &Text) -> &[u16] {
    &text.ids()[1..][..text.windows() * text.seq_len()]
}

#[cfg(test)]
mod tests;
