//! Conversions between f32 and bf16 on a GPU.

use crate::gpu::{Buffer, Gpu, Grid, Kernel, View};
use candle_core::{bail, DType, Result};

/// `x` converted to type `to`; `None` if it has that type already.
pub(crate) fn converted(gpu: &Gpu, x: View, to: DType) -> Result<Option<Buffer>> {
    let kernel = match (x.dtype(), to) {
        (from, to) if from == to => return Ok(None),
        (DType::F32, DType::BF16) => "narrow",
        (DType::BF16, DType::F32) => "widen",
        (from, to) => bail!("no kernel converts {from:?} to {to:?}"),
    };
    let mut y = gpu.alloc(to, x.len())?;
    let args = [x.into(), (&mut y).into(), x.len().into()];
    let grid = Grid::for_each(x.len());
    gpu.launch(Kernel::new("pointwise", kernel), grid, &args)?;
    Ok(Some(y))
}
