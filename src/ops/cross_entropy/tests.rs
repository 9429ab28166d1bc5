use super::*;
use crate::runtime::check::{self, Case, Suite};
use crate::runtime::tuned::at_full_size;
use candle_core::{DType, Device, Var};
use dsf_emulation::{emulated, launches};

/// Targets that include every class.
fn targets(ins: &[Tensor]) -> Tensor {
    let (rows, classes) = (ins[0].dim(0).unwrap(), ins[1].dim(0).unwrap());
    let ids: Vec<u32> = (0..rows).map(|row| (row * 7 % classes) as u32).collect();
    Tensor::new(ids, &Device::Cpu).unwrap()
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    Ok(cross_entropy(&ins[0], &ins[1], &targets(ins))?.loss)
}

fn by_reference(ins: &[Tensor]) -> Result<Tensor> {
    Ok(reference::cross_entropy(&ins[0], &ins[1], &targets(ins))?.loss)
}

fn case(rows: usize, width: usize, classes: usize) -> Case {
    Case::new(format!("{rows} x {width} x {classes}"))
        .normal("hidden", &[rows, width])
        .uniform("weight", &[classes, width], -3.0, 3.0)
        .factor()
}

fn matrix(rows: &[[f32; 3]]) -> Tensor {
    Tensor::from_slice(rows.as_flattened(), (rows.len(), 3), &Device::Cpu).unwrap()
}

#[test]
fn it_passes_the_suite() {
    let sizes = [(1, 1, 1), (1, 3, 2), (2, 16, 63), (7, 5, 64), (65, 33, 65), (300, 4, 1000)];
    let of_all = Suite {
        agree: &sizes.map(|(rows, width, classes)| case(rows, width, classes)),
        differences: &[case(3, 2, 4)],
        bits: &[case(300, 8, 770)],
        tracked: &[case(3, 2, 4)],
        refused: &[(&[&[2, 3], &[5, 4]], "cross_entropy: weight has shape [5, 4], but hidden of shape [2, 3]")],
    };
    check::suite(of_all, fused, by_reference);
    check::finite_differences(&case(3, 2, 4), |ins| fused(ins)? * 3.0);
}

#[test]
fn targets_of_other_rows_are_refused() {
    let of_others = |ins: &[Tensor]| Ok(cross_entropy(&ins[0], &ins[1], &ins[2])?.loss);
    let message = "cross_entropy: targets has shape [3], but hidden of shape [2, 3]";
    check::refuses(&[&[2, 3], &[5, 3], &[3]], of_others, message);
}

#[test]
fn kernels_equal_the_reference() {
    let sizes = [
        (3, 2, 4),
        (1, 1, 1),
        (2, 16, 63),
        (65, 33, 130),
        (7, 8, 5000),
        // three tiles that exceed the cache
        (150, 40, 1000),
    ];
    let cases = sizes.map(|(rows, width, classes)| case(rows, width, classes));
    check::kernels_agree(&cases, fused, by_reference);
    let tripled = |op: fn(&[Tensor]) -> Result<Tensor>| move |ins: &[Tensor]| op(ins)? * 3.0;
    check::kernels_agree(&cases[..1], tripled(fused), tripled(by_reference));
}

#[test]
fn products_round_to_tf32() {
    let case = case(2, 33, 40);
    check::rounded_to_tf32(2, &case, &[true; 3], fused, by_reference);
}

/// Two tiles of the logits of Pythia's vocabulary.
#[test]
fn tiles_of_full_size_equal_the_reference() {
    let cases = [case(3, 2, 4), case(200, 4, 50_304)];
    at_full_size(|| check::kernels_agree(&cases, fused, by_reference));
}

#[test]
fn the_first_of_equal_logits_is_the_answer() {
    let (hidden, weight) = (matrix(&[[1.0, 0.0, 0.0]; 3]), matrix(&[[2.0, 0.0, 0.0]; 3]));
    let targets = Tensor::new(&[0u32, 1, 2], &Device::Cpu).unwrap();
    for found in [
        cross_entropy(&hidden, &weight, &targets).unwrap(),
        reference::cross_entropy(&hidden, &weight, &targets).unwrap(),
        emulated(|| cross_entropy(&hidden, &weight, &targets)).unwrap(),
    ] {
        assert_eq!(found.correct.to_vec1::<f32>().unwrap(), [1.0, 0.0, 0.0]);
    }
}

#[test]
fn large_logits_do_not_overflow() {
    let (hidden, weight) = (matrix(&[[1e30, 0.0, 0.0]]), matrix(&[[1.0; 3], [-1.0; 3]]));
    let target = Tensor::new(&[0u32], &Device::Cpu).unwrap();
    let loss = || {
        let found = cross_entropy(&hidden, &weight, &target).unwrap();
        found.loss.to_scalar::<f32>().unwrap()
    };
    assert_eq!((loss(), emulated(loss)), (0.0, 0.0));
}

#[test]
fn a_target_beyond_the_classes_is_an_error() {
    let targets = Tensor::new(&[1u32, 2], &Device::Cpu).unwrap();
    let weight = matrix(&[[0.0; 3]; 2]);
    let error = cross_entropy(&matrix(&[[0.0; 3]; 2]), &weight, &targets);
    let error = error.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("target 2 in row 1, but there are 2 classes"), "{error}");
}

/// Pythia's vocabulary, which is not a multiple of the classes per task.
#[test]
fn a_large_vocabulary_equals_the_reference() {
    check::agree(&[case(300, 16, 50_304)], fused, by_reference);
}

#[test]
fn tiles_stay_in_the_cache_unless_the_gradient_of_the_weight_weighs_more() {
    let tile = |rows: usize, width: usize, classes: usize| {
        let zeros = |rows| Tensor::zeros((rows, width), DType::F32, &Device::Cpu).unwrap();
        let targets = Tensor::zeros(rows, DType::U32, &Device::Cpu).unwrap();
        let op = CrossEntropy::check(&zeros(rows), &zeros(classes), &targets).unwrap();
        op.tile(rows, DType::F32)
    };
    assert_eq!(tile(70, 60, 128), 24, "of 32 rows that 16 KiB hold");
    assert_eq!(tile(70, 66, 128), 70, "up to 132");
    assert_eq!(tile(1000, 66, 128), 125);
    assert_eq!(tile(1000, 66, 4096), 16, "256 KiB hold no more");
}

/// Hidden layer (rows, width) and weight (classes, width).
fn waves(rows: usize, width: usize, classes: usize) -> [Tensor; 2] {
    let wave = |count: usize, step: f32| -> Vec<f32> { (0..count).map(|i| (i as f32 * step).sin()).collect() };
    let [hidden, weight] = [wave(rows * width, 0.7), wave(classes * width, 1.3)];
    let of = |values: Vec<f32>, rows: usize| Tensor::from_vec(values, (rows, width), &Device::Cpu).unwrap();
    [of(hidden, rows), of(weight, classes)]
}

/// Gradients of hidden layer and weight by [`backward`], and the launches that it made. The hidden layer is an output of
/// a fused op, or of Candle's; the loss is what is differentiated, or half of it.
///
/// [`backward`]: crate::backward
fn differentiated(by_candle: bool, halved: bool) -> (Vec<Vec<f32>>, usize) {
    let [x, weight] = waves(70, 60, 128).map(|x| Var::from_tensor(&x).unwrap());
    let hidden = if by_candle { (x.as_tensor() * 1.0).unwrap() } else { crate::tanh(&x).unwrap() };
    let loss = fused(&[hidden, weight.as_tensor().clone()]).unwrap();
    let loss = if halved { (loss * 0.5).unwrap() } else { loss };
    let before = launches();
    let grads = crate::backward(&loss).unwrap();
    let launches = launches() - before;
    let grads = [&x, &weight].map(|x| grads.get(x).unwrap().flatten_all().unwrap().to_vec1().unwrap());
    (grads.into(), launches)
}

/// The saved gradients of a loss that follows from variables by fused ops are passed on as they are.
#[test]
fn the_gradients_of_a_loss_are_those_that_were_saved() {
    for by_candle in [false, true] {
        let halves = |grads: Vec<Vec<f32>>| -> Vec<Vec<f32>> {
            grads.into_iter().map(|grad| grad.into_iter().map(|g| g * 0.5).collect()).collect()
        };
        let of_half = differentiated(by_candle, true).0;
        assert_eq!(halves(differentiated(by_candle, false).0), of_half);
        let (whole, of_whole) = emulated(|| differentiated(by_candle, false));
        let (half, of_half) = emulated(|| differentiated(by_candle, true));
        assert_eq!(halves(whole), half);
        // The kernel that scales, and that of tanh.
        let tanh = usize::from(!by_candle);
        assert_eq!([of_whole, of_half], [usize::from(by_candle) + tanh, 1 + tanh]);
    }
}

#[test]
fn a_recorded_step_keeps_its_losses_up_to_one_that_is_not_finite() {
    let kept = emulated(|| {
        let ins = waves(7, 5, 64);
        let gpu = crate::gpu::of(&ins[0]).unwrap();
        let kept = gpu.alloc(DType::F32, 1).unwrap();
        gpu.write(&[0], kept.view()).unwrap();
        let values = |loss: &Tensor| loss.to_scalar::<f32>().unwrap();
        let (first, taken) = gpu.offer_loss(&kept, || fused(&ins)).unwrap();
        assert!(taken && gpu.take_loss().is_none());
        let read = || gpu.copy(kept.view()).unwrap().into_tensor(()).unwrap();
        assert_eq!(values(&read()), values(&first));
        let (_, taken) = gpu.offer_loss(&kept, || crate::tanh(&ins[0])).unwrap();
        assert!(!taken, "no loss was computed");
        let infinite = [(&ins[0] * f64::NAN).unwrap(), ins[1].clone()];
        gpu.offer_loss(&kept, || fused(&infinite)).unwrap();
        assert!(values(&read()).is_nan());
        gpu.offer_loss(&kept, || fused(&ins)).unwrap();
        values(&read())
    });
    assert!(kept.is_nan(), "the loss after one that is not finite is not kept");
}
