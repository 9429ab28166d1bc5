//! Parameters of f32 as factors of products with narrower activations.

use crate::gpu::{Buffer, Gpu, Grid, Kernel, View};
use candle_core::{DType, Result};

/// `x` in the number type of the activations; `None` if that is what it holds.
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
