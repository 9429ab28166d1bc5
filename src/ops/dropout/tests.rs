use super::cpu::CHUNK;
use super::cuda::masked_on;
use super::*;
use crate::gpu;
use crate::runtime::check::{self, Case, Suite};
use candle_core::{DType, Device};
use dsf_emulation::emulated;

fn of(p: f64, index: u64) -> Dropout {
    let key = [3, 5];
    Dropout { p, key, index }
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    dropout(&ins[0], of(0.3, 1 << 40))
}

fn by_reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::dropout(&ins[0], Mask::new("test", of(0.3, 1 << 40))?)
}

fn case(shape: &[usize]) -> Case {
    Case::new(format!("{shape:?}")).normal("x", shape)
}

#[test]
fn it_passes_the_suite() {
    let of_all = Suite {
        agree: &[1, 2, 63, 64, 65, 1000].map(|n| case(&[n])),
        differences: &[case(&[3, 5])],
        bits: &[case(&[3, 3 * CHUNK + 7])],
        tracked: &[case(&[3, 4])],
        refused: &[],
    };
    check::suite(of_all, fused, by_reference);
    let certain = |ins: &[Tensor]| dropout(&ins[0], of(1.0, 0));
    check::refuses(&[&[4]], certain, "dropout: dropout of 1, needed is 0 <= p < 1");
}

#[test]
fn kernels_equal_the_reference() {
    check::kernels_agree(&[1, 2, 65, 1000].map(|n| case(&[n])), fused, by_reference);
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
}

#[test]
fn kernels_index_large_tensors() {
    let case = case(&[1, 1024]);
    let large = check::large(&case);
    let first = (large.batch(1024) - 1) * 1024;
    let by_reference = |ins: &[Tensor]| {
        let mut factors = vec![1.0; 1024];
        Mask::new("test", of(0.3, 1 << 40))?.unwrap().apply(first as u64, &mut factors);
        &ins[0] * Tensor::from_vec(factors, (1, 1024), &Device::Cpu)?
    };
    large.agrees(fused, by_reference);
}
