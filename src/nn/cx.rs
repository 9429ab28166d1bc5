//! What a forward pass carries: whether it trains, its dropout masks, and which rows it is for.

use crate::ops::{self, Dropout};
use crate::rng::Stream;
use candle_core::{Result, Tensor};

/// Positions of each sequence at which an output is wanted: `(batch, rows)` u32 times, strictly
/// ascending within a sequence.
#[derive(Clone)]
pub struct Rows {
    /// The times.
    pub positions: Tensor,
}

impl Rows {
    /// `(batch, seq_len, width)` to `(batch, rows, width)`.
    pub fn select(&self, x: &Tensor) -> Result<Tensor> {
        ops::select_rows(x, &self.positions)
    }
}

/// The context of one forward pass.
#[derive(Clone)]
pub struct Cx {
    training: Option<(u64, u64)>,
    rows: Option<Rows>,
    layer: usize,
    part: usize,
}

impl Cx {
    /// Evaluation: no dropout, every row.
    pub fn eval() -> Self {
        Self {
            training: None,
            rows: None,
            layer: 0,
            part: 0,
        }
    }

    /// Training: dropout masks are a function of (seed, place, step).
    pub fn train(seed: u64, step: u64) -> Self {
        Self {
            training: Some((seed, step)),
            ..Self::eval()
        }
    }

    /// The same pass inside layer `layer`, for all rows.
    pub fn layer(&self, layer: usize) -> Self {
        Self {
            layer,
            rows: None,
            ..self.clone()
        }
    }

    /// The same step, in its part `part`: the parts of a step drop differently.
    pub fn part(self, part: usize) -> Self {
        Self { part, ..self }
    }

    /// The same pass when only `rows` of the output are wanted.
    pub fn only(self, rows: Option<&Rows>) -> Self {
        Self {
            rows: rows.cloned(),
            ..self
        }
    }

    /// The rows wanted; `None` is all.
    pub fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    /// Keeps the wanted rows of `x` `(batch, seq_len, width)`. A mixer calls this at the point
    /// from which on each position is computed for itself.
    pub fn select(&self, x: &Tensor) -> Result<Tensor> {
        match &self.rows {
            Some(rows) => rows.select(x),
            None => Ok(x.clone()),
        }
    }

    /// What `place` in this layer drops at this step; nothing in evaluation.
    pub fn mask(&self, place: &str, p: f64) -> Option<Dropout> {
        let (seed, step) = self.training?;
        let part = match self.part {
            0 => String::new(),
            part => format!("/{part}"),
        };
        Some(Dropout {
            p,
            key: Stream::key(seed, &format!("dropout/{}/{place}{part}", self.layer)),
            index: step,
        })
    }

    /// Drops elements of `x` with probability `p` in training and rescales the rest.
    pub fn dropout(&self, x: &Tensor, place: &str, p: f64) -> Result<Tensor> {
        match self.mask(place, p) {
            Some(mask) => ops::dropout(x, mask),
            None => Ok(x.clone()),
        }
    }
}
