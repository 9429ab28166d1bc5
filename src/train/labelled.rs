//! Batches of sequences on the device, whose predictions are compared with labels.

use crate::model::LanguageModel;
use crate::nn::{Cx, Rows};
use crate::ops::Classified;
use crate::tasks::{Batch, Dataset, IdSlice};
use candle_core::{Device, Result, Tensor};

/// Batch on the device, with the rows that carry a label.
pub struct Labelled {
    /// Token ids, `(batch, seq_len)`, u32.
    pub tokens: Tensor,
    /// Positions of the labels; `None` if every position has one.
    pub rows: Option<Rows>,
    /// Labels, `(batch · labels)`, u32.
    pub answers: Tensor,
}

impl Labelled {
    /// Uploads `batch`, a part of `data`.
    pub fn new(batch: Batch, data: &Dataset, device: &Device) -> Result<Self> {
        let (seq_len, labels) = (data.seq_len(), data.labels_per_example());
        let size = batch.tokens.len() / seq_len;
        let positions = Tensor::from_slice(batch.positions, (size, labels), device)?;
        Ok(Self {
            tokens: Tensor::from_slice(batch.tokens, (size, seq_len), device)?,
            rows: Some(Rows { positions }),
            answers: Tensor::from_slice(batch.answers, size * labels, device)?,
        })
    }

    /// Uploads `pieces` of a text, all of one length. All ids but the last are inputs; the last `scored` ids are the
    /// labels of the positions before them.
    pub(super) fn shifted(pieces: &[IdSlice], scored: usize, device: &Device) -> Result<Self> {
        let (count, inputs) = (pieces.len(), pieces.first().map_or(1, |ids| ids.len()) - 1);
        let cut =
            |from: usize, to: usize| -> Vec<u32> { pieces.iter().flat_map(|ids| ids.slice(from..to).iter()).collect() };
        let unscored = inputs - scored;
        let rows = || -> Result<Rows> {
            let positions = Tensor::arange(unscored as u32, inputs as u32, device)?;
            let positions = positions.broadcast_as((count, scored))?.contiguous()?;
            Ok(Rows { positions })
        };
        Ok(Self {
            tokens: Tensor::from_vec(cut(0, inputs), (count, inputs), device)?,
            rows: (unscored > 0).then(rows).transpose()?,
            answers: Tensor::from_vec(cut(unscored + 1, inputs + 1), count * scored, device)?,
        })
    }

    /// Number of labels.
    pub(super) fn len(&self) -> usize {
        self.answers.elem_count()
    }

    /// Mean cross-entropy over the labelled rows, and which of them are predicted correctly.
    pub fn classify(&self, model: &LanguageModel, cx: &Cx) -> Result<Classified> {
        model.classify(&self.tokens, self.rows.as_ref(), &self.answers, cx)
    }
}
