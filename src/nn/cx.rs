//! The context of a forward pass: training or evaluation, the key of its dropout masks, and the positions
//! at which its output is computed.

use crate::ops::rng::Rng;
use crate::ops::{self, Dropout};
use candle_core::{Result, Tensor};

/// The positions of each sequence at which an output is computed.
#[derive(Clone)]
pub struct Rows {
    /// `(batch, rows)` u32, strictly ascending within a sequence.
    pub positions: Tensor,
}

impl Rows {
    /// x `(batch, seq_len, width)` to `(batch, rows, width)`.
    pub fn select(&self, x: &Tensor) -> Result<Tensor> {
        ops::select_rows(x, &self.positions)
    }
}

/// The context of one forward pass.
#[derive(Clone)]
pub struct Cx {
    /// Seed and step of dropout; `None` in evaluation.
    training: Option<(u64, u64)>,
    rows: Option<Rows>,
    reach: Option<Tensor>,
    layer: usize,
    micro_batch: usize,
}

impl Cx {
    /// Evaluation: no dropout, output at all positions.
    pub const fn eval() -> Self {
        Self {
            training: None,
            rows: None,
            reach: None,
            layer: 0,
            micro_batch: 0,
        }
    }

    /// Training: each dropout mask is a function of the seed, the step, the layer and its place.
    pub fn train(seed: u64, step: u64) -> Self {
        Self {
            training: Some((seed, step)),
            ..Self::eval()
        }
    }

    /// The same pass inside layer `layer`, with output at all positions.
    pub fn layer(&self, layer: usize) -> Self {
        Self {
            layer,
            rows: None,
            ..self.clone()
        }
    }

    /// The same step in one of its micro-batches, each of which has masks of its own.
    pub fn micro_batch(self, micro_batch: usize) -> Self {
        Self {
            micro_batch,
            ..self
        }
    }

    /// The same pass with output at `rows` alone; `None` is all positions.
    pub fn only(self, rows: Option<&Rows>) -> Self {
        Self {
            rows: rows.cloned(),
            ..self
        }
    }

    /// The same pass with attention that sees all tokens of each sequence: `lengths` `(batch)` u32 of `seq_len` tokens, the rest
    /// being padding.
    pub fn seeing_all(&self, lengths: &Tensor, seq_len: usize) -> Result<Self> {
        let last = lengths.broadcast_sub(&Tensor::new(1u32, lengths.device())?)?;
        let shape = (lengths.dim(0)?, seq_len);
        let reach = last.unsqueeze(1)?.broadcast_as(shape)?.contiguous()?;
        Ok(Self {
            reach: Some(reach),
            ..self.clone()
        })
    }

    /// The last position that attention sees from each output, `(batch, rows)` u32; `None` is the output's own.
    pub fn reach(&self) -> Option<&Tensor> {
        let positions = self.rows.as_ref().map(|rows| &rows.positions);
        self.reach.as_ref().or(positions)
    }

    /// The last token of each sequence, `(batch)` u32, where attention sees all of them; `None` where it sees the past alone.
    pub fn last_seen(&self) -> Result<Option<Tensor>> {
        let reach = self.reach.as_ref();
        reach
            .map(|reach| reach.narrow(1, 0, 1)?.squeeze(1))
            .transpose()
    }

    /// Whether this is a pass of training.
    pub fn is_training(&self) -> bool {
        self.training.is_some()
    }

    /// The selected positions; `None` is all.
    pub fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    /// x `(batch, seq_len, width)` at the selected positions, `(batch, rows, width)`. A mixer calls this
    /// where information has moved along the sequence and each position is computed for itself.
    pub fn select(&self, x: &Tensor) -> Result<Tensor> {
        match &self.rows {
            Some(rows) => rows.select(x),
            None => Ok(x.clone()),
        }
    }

    /// The dropout mask of `place` in this layer at this step; `None` in evaluation.
    pub fn mask(&self, place: &str, p: f64) -> Option<Dropout> {
        let (seed, step) = self.training?;
        let place = match self.micro_batch {
            0 => place.to_owned(),
            later => format!("{place}/{later}"),
        };
        Some(Dropout {
            p,
            key: Rng::key(seed, &format!("dropout/{}/{place}", self.layer)),
            index: step,
        })
    }

    /// In training, sets elements of `x` to 0 with probability `p` and divides the rest by 1 - p.
    pub fn dropout(&self, x: &Tensor, place: &str, p: f64) -> Result<Tensor> {
        match self.mask(place, p) {
            Some(mask) => ops::dropout(x, mask),
            None => Ok(x.clone()),
        }
    }
}
