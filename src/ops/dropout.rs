//! Dropout with a mask that is a function of (key, index, element).

use crate::gpu::{Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::mask::{Dropout, Mask};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::copied;
use candle_core::{Result, Shape, Tensor};
use dsf_simd::simd;

/// Elements per task: a multiple of the elements whose bits are computed together.
const CHUNK: usize = 1 << 14;

/// x_e m_e / (1 - p), where m_e is 0 with probability p and 1 otherwise; any shape.
///
/// m is a function of (key, index, e): element e is kept if word e mod 4 of
/// philox(\[e / 4, index\], key) is at least p 2^32. With p = 0 the result is `x`.
pub fn dropout(x: &Tensor, what: Dropout) -> Result<Tensor> {
    match Mask::new(Masked::NAME, what)? {
        None => Ok(x.clone()),
        Some(mask) if runs_on(x) => apply_one(Masked { mask, shape: x.shape().clone() }, &[x]),
        Some(mask) => reference(x, mask),
    }
}

pub(super) fn reference(x: &Tensor, mask: Mask) -> Result<Tensor> {
    let factors = Tensor::from_vec(mask.factors(x.elem_count()), x.shape(), x.device())?;
    x * factors.to_dtype(x.dtype())?
}

struct Masked {
    mask: Mask,
    shape: Shape,
}

impl Masked {
    fn masked<F: Float>(&self, x: &[F]) -> Vec<F> {
        let mut y = copied(x);
        y.chunks_mut(CHUNK).enumerate().in_parallel(|(i, y)| mask_chunk(&self.mask, (i * CHUNK) as u64, y));
        y
    }
}

/// The elements of `x` times the mask, by a kernel.
pub(super) fn masked_on(gpu: &Gpu, mask: &Mask, x: View) -> Result<Buffer> {
    let (io, count) = (x.dtype(), x.len());
    let mut y = gpu.alloc(io, count)?;
    let vector = x.aligned(4) && y.view().aligned(4);
    let mask = Mask::args(Some(mask), gpu)?;
    let rest = [(&mut y).into(), count.into(), vector.into()];
    let args = [&[x.into()], &mask[..], &rest[..]].concat();
    let grid = Grid::for_each(count.div_ceil(4));
    gpu.launch(Kernel::of("dropout", "dropout", io), grid, &args)?;
    Ok(y)
}

/// Multiplies `x`, the elements from `first` on, by the mask.
#[simd]
pub(super) fn mask_chunk<F: Float>(mask: &Mask, first: u64, x: &mut [F]) {
    mask.apply(first, x);
}

impl FusedOp for Masked {
    const NAME: &'static str = "dropout";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![self.masked(ins[0])]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        vec![self.masked(call.only().grad)]
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![masked_on(gpu, &self.mask, ins[0])?])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let grad = call.only().grad;
        Ok(vec![Some(masked_on(call.gpu, &self.mask, grad)?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu;
    use crate::runtime::check::{self, Case};
    use candle_core::{DType, Device};
    use dsf_emulation::emulated;

    fn of(p: f64, index: u64) -> Dropout {
        let key = [3, 5];
        Dropout { p, key, index }
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        dropout(&ins[0], of(0.3, 1 << 40))
    }

    #[test]
    fn fused_equals_reference() {
        let mask = Mask::new("test", of(0.3, 1 << 40)).unwrap().unwrap();
        let cases = [1, 2, 63, 64, 65, 1000].map(|n| Case::new(n.to_string()).normal("x", &[n]));
        check::agree(&cases, fused, |ins| reference(&ins[0], mask));
    }

    #[test]
    fn kernels_equal_the_reference() {
        let mask = Mask::new("test", of(0.3, 1 << 40)).unwrap().unwrap();
        let cases = [1, 2, 65, 1000].map(|n| Case::new(n.to_string()).normal("x", &[n]));
        check::kernels_agree(&cases, fused, |ins| reference(&ins[0], mask));
    }

    #[test]
    fn kernels_give_the_same_bits() {
        let x = Tensor::ones(9999, DType::F32, &Device::Cpu).unwrap();
        let x = x.narrow(0, 1, 9998).unwrap(); // not aligned
        let masked = || dropout(&x, of(0.1, (7 << 32) + 9)).unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(emulated(masked), masked());
    }

    #[test]
    fn a_recording_masks_by_the_step_of_its_replay() {
        let x = Tensor::ones(999, DType::F32, &Device::Cpu).unwrap();
        let gpu = emulated(|| gpu::of(&x)).unwrap();
        let mask = |index| Mask::new("test", of(0.3, index)).unwrap().unwrap();
        let (storage, layout) = x.storage_and_layout();
        let view = gpu.view(&storage, layout).unwrap();
        let mut masked = None;
        gpu.step(1).unwrap();
        let recording = gpu.record(|| {
            masked = Some(masked_on(&gpu, &mask(1), view)?);
            Ok(())
        });
        gpu.step(5 << 32 | 2).unwrap();
        recording.unwrap().replay().unwrap();
        let masked = masked.unwrap().into_tensor(999).unwrap();
        let masked = masked.to_vec1::<f32>().unwrap();
        let expected = dropout(&x, of(0.3, 5 << 32 | 2)).unwrap();
        assert_eq!(masked, expected.to_vec1::<f32>().unwrap());
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&Case::new("large").normal("x", &[3, 3 * CHUNK + 7]), fused);
    }

    #[test]
    fn a_mask_can_start_anywhere() {
        let mask = Mask::new("test", of(0.5, 9)).unwrap().unwrap();
        let whole = mask.factors(300);
        for (first, len) in [(0, 1), (1, 2), (2, 9), (3, 200), (5, 130), (64, 64)] {
            let mut part = vec![1.0; len];
            mask.apply(first as u64, &mut part);
            assert_eq!(part, whole[first..first + len], "{first} .. {}", first + len);
        }
    }

    #[test]
    fn the_kept_fraction_is_one_minus_p() {
        let x = Tensor::ones(1_000_000, DType::F32, &Device::Cpu).unwrap();
        let mean = dropout(&x, of(0.1, 0)).unwrap().mean_all().unwrap();
        let mean = mean.to_scalar::<f32>().unwrap();
        assert!((mean - 1.0).abs() < 1.5e-3, "{mean}");
    }

    #[test]
    fn nothing_dropped_is_the_tensor_itself() {
        let x = Tensor::ones(4, DType::F32, &Device::Cpu).unwrap();
        assert_eq!(dropout(&x, of(0.0, 0)).unwrap().id(), x.id());
        assert!(dropout(&x, of(1.0, 0)).is_err());
    }
}
