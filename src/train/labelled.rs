//! A batch where the model is.

use crate::model::Model;
use crate::nn::{Cx, Rows};
use crate::ops::Classified;
use crate::tasks::{Batch, Dataset};
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
