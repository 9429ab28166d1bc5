//! Conversion of f32 parameters to the type of bf16 activations, for matrix products.

use crate::gpu::{Buffer, Gpu, Grid, Kernel, View};
use candle_core::{DType, Result};

/// `x` converted to `io`, the type of the activations; `None` if it has that type already.
pub(crate) fn narrowed(gpu: &Gpu, x: View, io: DType) -> Result<Option<Buffer>> {
    if x.dtype() == io {
        return Ok(None);
    }
    let mut y = gpu.alloc(io, x.len())?;
    let args = [x.into(), (&mut y).into(), x.len().into()];
    let kernel = Kernel::new("pointwise", "narrow");
    gpu.launch(kernel, Grid::for_each(x.len()), &args)?;
    Ok(Some(y))
}
