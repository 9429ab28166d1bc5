//! Definition in ordinary tensor ops.

use super::Classified;
use candle_core::{Result, Tensor, D};

pub(super) fn cross_entropy(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Classified> {
    let hidden = hidden.reshape((targets.dim(0)?, ()))?;
    cross_entropy_of_logits(&hidden.matmul(&weight.t()?)?, targets)
}

pub(super) fn cross_entropy_of_logits(logits: &Tensor, targets: &Tensor) -> Result<Classified> {
    let target = logits.gather(&targets.unsqueeze(1)?, 1)?;
    let largest = logits.max_keepdim(D::Minus1)?.detach();
    let sum = logits.broadcast_sub(&largest)?.exp()?.sum_keepdim(D::Minus1)?;
    let correct = logits.detach().argmax(D::Minus1)?.eq(targets)?;
    Ok(Classified { loss: ((sum.log()? + largest)? - target)?.mean_all()?, correct: correct.to_dtype(logits.dtype())? })
}
