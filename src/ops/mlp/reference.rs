//! Definition in ordinary tensor ops.

use crate::dropout::reference::dropout;
use crate::linear::reference::linear;
use crate::pointwise::reference::gelu;
use crate::runtime::mask::Mask;
use candle_core::{Result, Tensor};

pub(super) fn mlp(
    x: &Tensor,
    [w1, b1]: [&Tensor; 2],
    [w2, b2]: [&Tensor; 2],
    masks: [Option<Mask>; 2],
) -> Result<Tensor> {
    let hidden = dropout(&gelu(&linear(x, w1, Some(b1))?)?, masks[0])?;
    dropout(&linear(&hidden, w2, Some(b2))?, masks[1])
}
