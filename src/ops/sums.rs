//! Sums over rows by kernels, in a fixed order.

use crate::gpu::{Buffer, Gpu, Grid, Kernel, View, WARP};
use candle_core::{DType, Result};

/// Rows per block if the sum takes several levels.
const EACH: usize = 256;
/// Up to this many rows, one level of summation suffices.
const FEW: usize = 1024;
/// Threads per block; must equal that of `cuda/sums.cu`.
const THREADS: usize = 512;

/// The sum of partial sums of `width` numbers each, in f32.
pub(crate) fn sum_parts(gpu: &Gpu, parts: &Buffer, width: usize) -> Result<Buffer> {
    sum_rows(gpu, parts.view(), width)
}

/// The sum of the rows of a matrix (.., width), in f32, as the gradient of a bias needs it.
pub(crate) fn sum_rows(gpu: &Gpu, x: View, width: usize) -> Result<Buffer> {
    let rows = x.len() / width;
    if rows <= FEW {
        return sum_groups(gpu, x, width, rows);
    }
    let groups = sum_groups(gpu, x, width, EACH)?;
    sum_rows(gpu, groups.view(), width)
}

/// One row of sums for every `each` rows.
fn sum_groups(gpu: &Gpu, x: View, width: usize, each: usize) -> Result<Buffer> {
    let rows = x.len() / width;
    let groups = rows.div_ceil(each);
    let mut sums = gpu.alloc(DType::F32, groups * width)?;
    let grid = Grid {
        blocks: [width.div_ceil(WARP), groups, 1],
        threads: THREADS,
        shared: 0,
    };
    let sizes = [rows.into(), width.into(), each.into()];
    let args = [&[x.into(), (&mut sums).into()], &sizes[..]].concat();
    gpu.launch(Kernel::of("sums", "sum_rows", x.dtype()), grid, &args)?;
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu;
    use crate::rng::Rng;
    use candle_core::{Device, Tensor};
    use dsf_emulation::emulated;

    /// The largest difference from sums in f64, in units of the number of rows.
    fn error(rows: usize, width: usize, dtype: DType) -> f64 {
        let mut rng = Rng::new(1, "sums", 0);
        let x: Vec<f64> = (0..rows * width).map(|_| rng.uniform()).collect();
        let x = Tensor::from_vec(x, (rows, width), &Device::Cpu).unwrap();
        let x = x.to_dtype(dtype).unwrap();
        let sums = emulated(|| {
            let gpu = gpu::of(&x).unwrap();
            let (storage, layout) = x.storage_and_layout();
            let view = gpu.view(&storage, layout).unwrap();
            sum_rows(&gpu, view, width).unwrap().into_tensor(width)
        });
        let exact = x.to_dtype(DType::F64).unwrap().sum(0).unwrap();
        let apart = (sums.to_dtype(DType::F64).unwrap() - exact).unwrap();
        let apart = apart.abs().unwrap().max(0).unwrap();
        apart.to_scalar::<f64>().unwrap() / rows as f64
    }

    #[test]
    fn rows_are_added_at_one_level_and_at_two() {
        for (rows, width) in [(1, 1), (2, 33), (17, 64), (1025, 5), (2000, 31)] {
            for dtype in [DType::F32, DType::BF16] {
                let error = error(rows, width, dtype);
                assert!(error < 5e-7, "{rows} x {width} of {dtype:?}: {error}");
            }
        }
    }
}
