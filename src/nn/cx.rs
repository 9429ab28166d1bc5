//! Context of a forward pass: training or evaluation, the key of its dropout masks, and the positions at which its
//! output is computed.

use crate::ops::rng::Rng;
use crate::ops::{self, Dropout};
use candle_core::{Result, Tensor};

/// Positions of each sequence at which an output is computed.
#[derive(Clone)]
pub struct Rows {
    /// Indices `(batch, rows)` u32, strictly ascending within a sequence.
    pub positions: Tensor,
}

impl Rows {
    /// Last position of each of `batch` sequences of `seq_len` tokens, on the device of `like`.
    pub fn last(batch: usize, seq_len: usize, like: &Tensor) -> Result<Self> {
        Ok(Self { positions: Tensor::full(seq_len as u32 - 1, (batch, 1), like.device())? })
    }

    /// Selects the rows `(batch, rows, width)` of x `(batch, seq_len, width)`.
    pub fn select(&self, x: &Tensor) -> Result<Tensor> {
        ops::select_rows(x, &self.positions)
    }
}

/// Context of one forward pass.
#[derive(Clone)]
pub struct Cx {
    /// Seed and step of the dropout masks; `None` in evaluation.
    training: Option<(u64, u64)>,
    rows: Option<Rows>,
    reach: Option<Tensor>,
    layer: usize,
    micro_batch: usize,
}

impl Cx {
    /// Context of evaluation: no dropout, output at all positions.
    pub const fn eval() -> Self {
        Self { training: None, rows: None, reach: None, layer: 0, micro_batch: 0 }
    }

    /// Context of training: each dropout mask is a function of the seed, the step, the layer and its place.
    pub fn train(seed: u64, step: u64) -> Self {
        Self { training: Some((seed, step)), ..Self::eval() }
    }

    /// Same pass inside layer `layer`, with output at all positions.
    pub fn layer(&self, layer: usize) -> Self {
        Self { layer, rows: None, ..self.clone() }
    }

    /// Same step in micro-batch `micro_batch`, each of which has its own masks.
    pub fn micro_batch(self, micro_batch: usize) -> Self {
        Self { micro_batch, ..self }
    }

    /// Same pass with output only at `rows`; `None` selects all positions.
    pub fn only(self, rows: Option<&Rows>) -> Self {
        Self { rows: rows.cloned(), ..self }
    }

    /// Same pass in both directions: every output depends on all tokens of its sequence, the first `lengths` `(batch)`
    /// u32 of `seq_len`; the rest is padding.
    pub fn seeing_all(&self, lengths: &Tensor, seq_len: usize) -> Result<Self> {
        let last = lengths.broadcast_sub(&Tensor::new(1u32, lengths.device())?)?;
        let shape = (lengths.dim(0)?, seq_len);
        let reach = last.unsqueeze(1)?.broadcast_as(shape)?.contiguous()?;
        Ok(Self { reach: Some(reach), ..self.clone() })
    }

    /// [`Self::seeing_all`] of one sequence x `(seq_len, width)` without padding.
    pub fn seeing_all_of(&self, x: &Tensor) -> Result<Self> {
        let seq_len = x.dim(0)?;
        self.seeing_all(&Tensor::new(&[seq_len as u32], x.device())?, seq_len)
    }

    /// Same pass for a mixer that reads each sequence in order, at the same selected positions.
    pub fn one_way(&self) -> Self {
        Self { reach: None, ..self.clone() }
    }

    /// Last position that each output attends to, `(batch, rows)` u32; `None` if that is the output's own position.
    pub fn reach(&self) -> Option<&Tensor> {
        let positions = self.rows.as_ref().map(|rows| &rows.positions);
        self.reach.as_ref().or(positions)
    }

    /// Last token of each sequence, `(batch)` u32, in a pass in both directions; `None` in a causal pass.
    pub fn last_seen(&self) -> Result<Option<Tensor>> {
        let reach = self.reach.as_ref();
        reach.map(|reach| reach.narrow(1, 0, 1)?.squeeze(1)).transpose()
    }

    /// Whether this is a training pass.
    pub fn is_training(&self) -> bool {
        self.training.is_some()
    }

    /// Selected positions; `None` if all are.
    pub fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    /// Rows of x `(batch, seq_len, width)` at the selected positions, `(batch, rows, width)`. A mixer calls this as
    /// soon as the remaining computation is position-wise.
    pub fn select(&self, x: &Tensor) -> Result<Tensor> {
        match &self.rows {
            Some(rows) => rows.select(x),
            None => Ok(x.clone()),
        }
    }

    /// Dropout mask of `place` in this layer at this step; `None` in evaluation.
    pub fn mask(&self, place: &str, p: f64) -> Option<Dropout> {
        let (seed, step) = self.training?;
        let place = match self.micro_batch {
            0 => place.to_owned(),
            later => format!("{place}/{later}"),
        };
        Some(Dropout { p, key: Rng::key(seed, &format!("dropout/{}/{place}", self.layer)), index: step })
    }

    /// x plus standard Gumbel noise -ln(-ln U) of `place` in this layer at this step; x itself in evaluation.
    pub fn with_gumbel(&self, x: Tensor, place: &str) -> Result<Tensor> {
        let Some((seed, step)) = self.training else {
            return Ok(x);
        };
        let mut rng = Rng::new(seed, &format!("gumbel/{}/{place}/{}", self.layer, self.micro_batch), step);
        let least = f64::MIN_POSITIVE;
        let noise: Vec<f64> = (0..x.elem_count()).map(|_| -(-rng.uniform().max(least).ln()).max(least).ln()).collect();
        x.clone() + Tensor::from_vec(noise, x.shape(), x.device())?.to_dtype(x.dtype())?
    }

    /// Dropout: in training, sets elements of `x` to 0 with probability `p` and divides the rest by 1 - p.
    pub fn dropout(&self, x: &Tensor, place: &str, p: f64) -> Result<Tensor> {
        match self.mask(place, p) {
            Some(mask) => ops::dropout(x, mask),
            None => Ok(x.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    /// Mean γ and variance π²/6 (Gumbel 1935).
    #[test]
    fn gumbel_noise_has_its_mean_and_its_variance_in_training_alone() {
        let zeros = || Tensor::zeros(200_000, DType::F64, &Device::Cpu).unwrap();
        let of = |cx: Cx| cx.with_gumbel(zeros(), "place").unwrap().to_vec1::<f64>().unwrap();
        assert!(of(Cx::eval()).iter().all(|x| *x == 0.0));
        let noise = of(Cx::train(1, 3));
        assert_eq!(noise, of(Cx::train(1, 3)), "the same at the same step");
        assert_ne!(noise, of(Cx::train(1, 4)));
        let mean = noise.iter().sum::<f64>() / noise.len() as f64;
        let variance = noise.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / noise.len() as f64;
        assert!((mean - 0.577_215_664_9).abs() < 0.01, "{mean}");
        assert!((variance - std::f64::consts::PI.powi(2) / 6.0).abs() < 0.03, "{variance}");
    }
}
