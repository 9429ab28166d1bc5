//! Any mixer in both directions, `--bidirectional true`: y = forward(u) + R backward(R u), two passes with parameters
//! of their own, where R reverses the tokens of a document and leaves the padding after it (Goel et al. 2022, Zhu et
//! al. 2024).

use super::{Carried, Mixer};
use crate::nn::{Cx, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Scope of the parameters of the backward pass.
pub(crate) const BACKWARD: &str = "backward";

pub(super) struct TwoPasses {
    forward: Box<dyn Mixer>,
    backward: Box<dyn Mixer>,
}

impl TwoPasses {
    /// Two mixers from `build`, with parameters from this scope for the forward pass and below [`BACKWARD`] for the
    /// other.
    pub fn new(build: impl Fn(&Params) -> Result<Box<dyn Mixer>>, params: &Params) -> Result<Self> {
        Ok(Self { forward: build(params)?, backward: build(&params.apart(BACKWARD))? })
    }
}

impl Mixer for TwoPasses {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        self.forward_with(u, &mut Carried::default(), cx)
    }

    /// Carries the values of both passes side by side, `(batch, seq_len, 2 d)`, those of the backward pass in its order.
    fn forward_with(&self, u: &Tensor, carried: &mut Carried, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, d) = u.dims3()?;
        let last = match cx.last_seen()? {
            Some(last) => last,
            None => Tensor::full(seq_len as u32 - 1, batch, u.device())?,
        };
        let reversed = reversed(&last, seq_len)?;
        let first_values = &mut carried.first_values;
        let of_pass = |at| -> Result<Carried> {
            let own = first_values.as_ref().map(|both| both.narrow(2, at, d)?.contiguous());
            Ok(Carried { first_values: own.transpose()?, ..Carried::default() })
        };
        let mut passes = [of_pass(0)?, of_pass(d)?];
        let one_way = cx.one_way();
        let forward = self.forward.forward_with(u, &mut passes[0], &one_way)?;
        let turned = ops::select_rows(u, &reversed)?;
        let backward = self.backward.forward_with(&turned, &mut passes[1], &one_way.only(None))?;
        let values = passes.map(|pass| pass.first_values);
        if let (None, [Some(forward), Some(backward)]) = (&first_values, &values) {
            *first_values = Some(Tensor::cat(&[forward, backward], 2)?);
        }
        let places = match cx.rows() {
            Some(rows) => reversed.gather(&rows.positions, 1)?,
            None => reversed,
        };
        forward + ops::select_rows(&backward, &places)?
    }

    fn state_size(&self, seq_len: usize) -> usize {
        self.forward.state_size(seq_len) + self.backward.state_size(seq_len)
    }

    fn without_system(&self) -> &'static str {
        "each of its two passes is one, in its own order of the tokens"
    }
}

/// Position in the reversed document of each position, `(batch, seq_len)` u32, for documents that end at the positions
/// `last` `(batch)` u32; the padding after them stays.
fn reversed(last: &Tensor, seq_len: usize) -> Result<Tensor> {
    let shape = (last.dim(0)?, seq_len);
    let at = Tensor::arange(0, seq_len as u32, last.device())?.unsqueeze(0)?.broadcast_as(shape)?.contiguous()?;
    let last = last.unsqueeze(1)?.broadcast_as(shape)?.contiguous()?;
    // The maximum keeps the difference from falling below 0 in the padding.
    at.le(&last)?.where_cond(&(last.maximum(&at)? - &at)?, &at)
}
