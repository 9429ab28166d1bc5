//! Sums over rows by kernels, in a fixed order.

use crate::gpu::sizes::sums::WARPS;
use crate::gpu::{Buffer, Gpu, Grid, Kernel, View, WARP};
use crate::runtime::maps::{padded, table, MAPS};
use candle_core::{bail, DType, Result};

/// Rows per block if the sum takes several levels.
const EACH: usize = 256;
/// Up to this many rows, one level of summation suffices.
const FEW: usize = 1024;
/// Threads per block.
const THREADS: usize = WARPS * WARP;

/// The sum of partial sums of `width` numbers each, in f32.
pub(crate) fn sum_parts(gpu: &Gpu, parts: &Buffer, width: usize) -> Result<Buffer> {
    sum_rows(gpu, parts.view(), width)
}

/// The sum of `count` parts, in their order; the same buffer if there is one part.
pub(crate) fn add_parts(gpu: &Gpu, parts: Buffer, count: usize, io: DType) -> Result<Buffer> {
    if count == 1 && parts.dtype() == io {
        return Ok(parts);
    }
    let each = parts.len() / count;
    let mut sum = gpu.alloc(io, each)?;
    let args = [(&parts).into(), (&mut sum).into(), count.into(), each.into()];
    gpu.launch(Kernel::of("sums", "add_parts", io), Grid::for_each(each), &args)?;
    Ok(sum)
}

/// The sum of the rows of a matrix (.., width), in f32, as the gradient of a bias needs it.
pub(crate) fn sum_rows(gpu: &Gpu, x: View, width: usize) -> Result<Buffer> {
    let [sum] = sums_of(gpu, [(x, width)])?;
    Ok(sum)
}

/// [`sum_rows`] of each of up to four matrices of one number type, by shared launches.
pub(crate) fn sums_of<const N: usize>(gpu: &Gpu, matrices: [(View, usize); N]) -> Result<[Buffer; N]> {
    let sums = sums_of_rows(gpu, &matrices)?.try_into();
    sums.map_err(|_| candle_core::Error::msg("sums are as many as matrices"))
}

/// Returns [`sums_of`] the matrices that are present.
pub(crate) fn sums_of_some(gpu: &Gpu, matrices: &[Option<(View, usize)>]) -> Result<Vec<Option<Buffer>>> {
    let there: Vec<_> = matrices.iter().flatten().copied().collect();
    let mut sums = sums_of_rows(gpu, &there)?.into_iter();
    let sum = |matrix: &Option<_>| matrix.and_then(|_| sums.next());
    Ok(matrices.iter().map(sum).collect())
}

/// Returns [`sums_of`] up to four matrices.
pub(crate) fn sums_of_rows(gpu: &Gpu, matrices: &[(View, usize)]) -> Result<Vec<Buffer>> {
    let mut sums = sum_groups(gpu, matrices)?;
    // The sums of long matrices have several rows and are summed again.
    let is_long = |i: &usize| sums[*i].len() > matrices[*i].1;
    let long: Vec<usize> = (0..sums.len()).filter(is_long).collect();
    if !long.is_empty() {
        let groups = long.iter().map(|&i| (sums[i].view(), matrices[i].1));
        let whole = sums_of_rows(gpu, &groups.collect::<Vec<_>>())?;
        for (i, sum) in long.into_iter().zip(whole) {
            sums[i] = sum;
        }
    }
    Ok(sums)
}

/// Returns one row of sums for every [`EACH`] rows of each matrix, or for all rows if they are few.
fn sum_groups(gpu: &Gpu, matrices: &[(View, usize)]) -> Result<Vec<Buffer>> {
    let Some((first, _)) = matrices.first() else {
        return Ok(Vec::new());
    };
    let dtype = first.dtype();
    if matrices.len() > MAPS {
        bail!("sums of {} matrices in one launch", matrices.len());
    }
    if matrices.iter().any(|(x, _)| x.dtype() != dtype) {
        bail!("sums of matrices of several types in one launch");
    }
    let rows = || matrices.iter().map(|(x, width)| x.len() / width);
    let widths = || matrices.iter().map(|(_, width)| *width);
    let each = || rows().map(|rows| if rows <= FEW { rows } else { EACH });
    let groups = || rows().zip(each()).map(|(rows, each)| rows.div_ceil(each));
    let alloc = |(groups, width)| gpu.alloc(DType::F32, groups * width);
    let sums = groups().zip(widths()).map(alloc);
    let mut sums = sums.collect::<Result<Vec<_>>>()?;
    let widest = widths().max().unwrap_or_default();
    // Groups are along x, where a grid can have more than 65,535 blocks.
    let grid = Grid {
        blocks: [groups().max().unwrap_or_default(), widest.div_ceil(WARP), matrices.len()],
        threads: THREADS,
        shared: 0,
    };
    let tables = [table(matrices.iter().map(|(x, _)| *x)), table(sums.iter_mut())];
    let sizes = [padded(rows()), padded(widths()), padded(each())];
    let args = [&tables[..], &sizes.concat()].concat();
    gpu.launch(Kernel::of("sums", "sum_rows", dtype), grid, &args)?;
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu;
    use crate::runtime::rng::Rng;
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
            let sums = sum_rows(&gpu, view, width).unwrap();
            sums.into_tensor(width).unwrap()
        });
        let exact = x.to_dtype(DType::F64).unwrap().sum(0).unwrap();
        let apart = (sums.to_dtype(DType::F64).unwrap() - exact).unwrap();
        let apart = apart.abs().unwrap().max(0).unwrap();
        apart.to_scalar::<f64>().unwrap() / rows as f64
    }

    #[test]
    fn matrices_that_share_launches_are_summed_as_alone() {
        emulated(|| {
            let x = Tensor::rand(-1f32, 1.0, 1300 * 33, &Device::Cpu).unwrap();
            let gpu = gpu::of(&x).unwrap();
            let (storage, layout) = x.storage_and_layout();
            let whole = gpu.view(&storage, layout).unwrap();
            // The shapes need two levels, one level, or have a single row, and the last is narrower than a warp.
            let shapes = [(1300, 33), (40, 64), (1, 7), (1100, 5)];
            let matrices = shapes.map(|(rows, width)| (whole.part(0, rows * width), width));
            let values = |sum: Buffer| {
                let count = sum.len();
                let sum = sum.into_tensor(count).unwrap();
                sum.to_vec1::<f32>().unwrap()
            };
            let together = sums_of_rows(&gpu, &matrices).unwrap();
            let alone = matrices.map(|(x, width)| values(sum_rows(&gpu, x, width).unwrap()));
            let together: Vec<Vec<f32>> = together.into_iter().map(values).collect();
            assert_eq!(together, alone);
            assert_eq!(together.iter().map(Vec::len).collect::<Vec<_>>(), [33, 64, 7, 5]);
            assert!(sums_of_rows(&gpu, &[matrices, matrices].concat()).is_err());
        });
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
