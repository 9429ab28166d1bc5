//! Pieces of a text where the model is: inputs, and as targets the same ids one place on.

use crate::model::Model;
use crate::nn::{Cx, Rows};
use crate::ops::Classified;
use candle_core::{Device, Result, Tensor};

/// Pieces of one length.
pub(super) struct Shifted {
    /// `(pieces, inputs)` u32.
    tokens: Tensor,
    /// Where predictions are scored, if not everywhere.
    rows: Option<Rows>,
    /// `(pieces · scored)` u32.
    targets: Tensor,
}

impl Shifted {
    /// `pieces` of as many ids each: all but the last are inputs, and the last `scored` are targets.
    pub fn new(pieces: &[&[u16]], scored: usize, device: &Device) -> Result<Self> {
        let (count, inputs) = (pieces.len(), pieces.first().map_or(1, |ids| ids.len()) - 1);
        let cut = |from: usize, to: usize| -> Vec<u32> {
            let ids = pieces.iter().flat_map(|ids| &ids[from..to]);
            ids.map(|&id| u32::from(id)).collect()
        };
        let unscored = inputs - scored;
        let rows = || -> Result<Rows> {
            let positions = Tensor::arange(unscored as u32, inputs as u32, device)?;
            let positions = positions.broadcast_as((count, scored))?.contiguous()?;
            Ok(Rows { positions })
        };
        Ok(Self {
            tokens: Tensor::from_vec(cut(0, inputs), (count, inputs), device)?,
            rows: (unscored > 0).then(rows).transpose()?,
            targets: Tensor::from_vec(cut(unscored + 1, inputs + 1), count * scored, device)?,
        })
    }

    /// Predictions scored.
    pub fn len(&self) -> usize {
        self.targets.elem_count()
    }

    /// Their mean cross-entropy, and which of them are right.
    pub fn classify(&self, model: &Model, cx: &Cx) -> Result<Classified> {
        model.classify(&self.tokens, self.rows.as_ref(), &self.targets, cx)
    }
}
