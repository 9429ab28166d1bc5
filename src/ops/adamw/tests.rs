use super::*;
use crate::runtime::rng::Rng;
use candle_core::{Device, WithDType};
use dsf_emulation::emulated;

const SETTINGS: AdamWSettings = AdamWSettings { beta1: 0.9, beta2: 0.95, eps: 1e-6, clip: None };
const CLIPPED: AdamWSettings = AdamWSettings { clip: Some(0.5), ..SETTINGS };

/// Parameters of odd sizes, some of several tasks and blocks, and more than one launch takes. The second gets no
/// gradient, and every third does not decay.
fn slots(dtype: DType) -> Vec<AdamWSlot> {
    let mut rng = Rng::new(1, "adamw", 0);
    let sizes = [1, 7, 2048, 2049, 40_000].into_iter().chain([3; 66]);
    let slot = |(i, size): (usize, usize)| {
        let values: Vec<f32> = (0..size).map(|_| rng.normals().0 as f32).collect();
        let values = Tensor::from_vec(values, size, &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
        AdamWSlot::new(format!("p{i}"), Var::from_tensor(&values).unwrap(), i % 3 != 2).unwrap()
    };
    sizes.enumerate().map(slot).collect()
}

fn rates(step: i32) -> AdamWRates {
    let correction = |beta: f64| 1.0 - beta.powi(step);
    let lr = 0.01 / f64::from(step);
    AdamWRates {
        rate: lr / correction(SETTINGS.beta1),
        correction: correction(SETTINGS.beta2).sqrt(),
        decay: 1.0 - lr * 0.1,
    }
}

/// Gradients of Σ θ⁴ of all parameters but the second.
fn grads(slots: &[AdamWSlot]) -> candle_core::backprop::GradStore {
    let used = slots.iter().enumerate().filter(|(i, _)| *i != 1);
    let losses = used.map(|(_, slot)| slot.var.sqr()?.sqr()?.sum_all()).collect::<Result<Vec<_>>>();
    Tensor::stack(&losses.unwrap(), 0).unwrap().sum_all().unwrap().backward().unwrap()
}

fn numbers<T: WithDType>(x: &Tensor) -> Vec<T> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

/// The parameters after three steps.
fn stepped<T: WithDType>(settings: &AdamWSettings) -> Vec<Vec<T>> {
    let slots = slots(T::DTYPE);
    let kernels = gpu::of(&slots[0].var).map(|gpu| AdamWKernels::new(gpu, settings, &slots).unwrap());
    for step in 1..=3 {
        let grads = grads(&slots);
        match &kernels {
            Some(kernels) => {
                kernels.set_rates(&rates(step)).unwrap();
                kernels.step(&slots, &grads, None).unwrap();
            }
            None => settings.step(&slots, &grads, &rates(step)).unwrap(),
        }
    }
    slots.iter().map(|slot| numbers(&slot.var)).collect()
}

/// The same by the reference, in f64.
fn expected(settings: &AdamWSettings) -> Vec<Vec<f64>> {
    let slots = slots(DType::F64);
    let mut moments: Vec<[Tensor; 2]> =
        slots.iter().map(|slot| [slot.var.zeros_like().unwrap(), slot.var.zeros_like().unwrap()]).collect();
    for step in 1..=3 {
        let grads = grads(&slots);
        let squares = slots.iter().filter_map(|slot| grads.get(&slot.var));
        let squares = squares.map(|g| g.sqr().unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap());
        let norm = squares.sum::<f64>().sqrt();
        let scale = settings.clip.map_or(1.0, |most| (most / (norm + 1e-6)).min(1.0));
        for (slot, moments) in slots.iter().zip(&mut moments) {
            let Some(grad) = grads.get(&slot.var) else { continue };
            let rates = rates(step);
            let rates = AdamWRates { decay: if slot.decays { rates.decay } else { 1.0 }, ..rates };
            let [m, v] = &*moments;
            let [theta, m, v] = reference::adamw([&slot.var, grad, m, v], scale, settings, &rates).unwrap();
            slot.var.set(&theta).unwrap();
            *moments = [m, v];
        }
    }
    slots.iter().map(|slot| numbers(&slot.var)).collect()
}

fn agree<T: WithDType + Into<f64>>(got: &[Vec<T>], expected: &[Vec<f64>], tolerance: f64) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.len(), expected.len());
        for (&got, expected) in got.iter().zip(expected) {
            let apart = (got.into() - expected).abs();
            assert!(apart <= tolerance * expected.abs().max(1.0), "parameter {i}: {apart:e} apart");
        }
    }
}

#[test]
fn fused_equals_reference() {
    for settings in [SETTINGS, CLIPPED] {
        let expected = expected(&settings);
        agree(&stepped::<f64>(&settings), &expected, 1e-12);
        agree(&stepped::<f32>(&settings), &expected, 1e-5);
    }
}

#[test]
fn kernels_equal_the_reference() {
    for settings in [SETTINGS, CLIPPED] {
        agree(&emulated(|| stepped::<f32>(&settings)), &expected(&settings), 1e-5);
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    let by = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| stepped::<f32>(&CLIPPED))
    };
    assert_eq!(by(1), by(2));
}

#[test]
fn other_types_and_strides_are_refused() {
    let step = |values: &Tensor, grad: &Tensor| {
        let var = Var::from_tensor(values).unwrap();
        let slot = AdamWSlot::new("a".into(), var.clone(), true).unwrap();
        let mut grads = (var.as_tensor() * 0.0).unwrap().sum_all().unwrap().backward().unwrap();
        grads.insert(&var, grad.clone());
        SETTINGS.step(&[slot], &grads, &rates(1)).unwrap_err().to_string()
    };
    let ones = |dtype| Tensor::ones(3, dtype, &Device::Cpu).unwrap();
    let message = "adamw works on f32 or f64 parameters with gradients of the same type";
    assert!(step(&ones(DType::F32), &ones(DType::F64)).contains(message));
    assert!(step(&ones(DType::BF16), &ones(DType::BF16)).contains(message));
}
