use super::*;
use crate::gpu::emulated::emulated;
use crate::rng::Stream;
use candle_core::Device;

#[test]
fn the_first_step_moves_by_the_rate_against_the_sign_and_decays() {
    let var = Var::new(&[1.0f64, -2.0, 3.0], &Device::Cpu).unwrap();
    let idle = Var::new(&[5.0f64], &Device::Cpu).unwrap();
    let vars = vec![("a".into(), var.clone()), ("idle".into(), idle.clone())];
    let mut adamw = AdamW::new(vars, 0.1).unwrap();
    let weights = Tensor::new(&[2.0f64, 4.0, -1.0], &Device::Cpu).unwrap();
    let loss = (var.as_tensor() * weights).unwrap().sum_all().unwrap();
    adamw.step(&loss.backward().unwrap(), 0.01).unwrap();
    let expected = [1.0f64, -2.0, 3.0]
        .iter()
        .zip([1.0, 1.0, -1.0])
        .map(|(x, sign)| x * (1.0 - 0.001) - 0.01 * sign);
    for (got, want) in var.to_vec1::<f64>().unwrap().iter().zip(expected) {
        assert!((got - want).abs() < 1e-9, "{got} {want}");
    }
    assert_eq!(
        idle.to_vec1::<f64>().unwrap(),
        [5.0],
        "no gradient, no decay"
    );
}

/// Odd sizes, several blocks of a parameter, and more parameters than one launch takes.
fn parameters() -> Vec<(String, Var)> {
    let mut stream = Stream::new(1, "adamw", 0);
    let sizes = [1, 7, 2048, 2049, 5000].into_iter().chain([3; 66]);
    let var = |(i, size): (usize, usize)| {
        let values: Vec<f32> = (0..size).map(|_| stream.normals().0 as f32).collect();
        let values = Tensor::new(values, &Device::Cpu).unwrap();
        (format!("p{i}"), Var::from_tensor(&values).unwrap())
    };
    sizes.enumerate().map(var).collect()
}

/// Some steps on x⁴ of all parameters but one.
fn trained(steps: usize) -> AdamW {
    let vars = parameters();
    let mut adamw = AdamW::new(vars.clone(), 0.1).unwrap();
    for step in 0..steps {
        let used = vars.iter().enumerate().filter(|(i, _)| *i != 1);
        let losses: Vec<Tensor> = used
            .map(|(_, (_, var))| var.sqr().unwrap().sqr().unwrap().sum_all().unwrap())
            .collect();
        let loss = Tensor::stack(&losses, 0).unwrap().sum_all().unwrap();
        let rate = 0.01 / (step + 1) as f64;
        adamw.step(&loss.backward().unwrap(), rate).unwrap();
    }
    adamw
}

/// Parameter and moments as a checkpoint has them.
fn saved(slot: &Slot) -> [Vec<f32>; 2] {
    [bytes(&slot.var).unwrap().0, slot.moments_bytes().unwrap()].map(|bytes| {
        let words = bytes.as_chunks::<4>().0;
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    })
}

#[test]
fn the_kernel_steps_as_the_cpu_does() {
    let (by_kernel, by_cpu) = (emulated(|| trained(4)), trained(4));
    assert!(by_kernel.on_gpu.is_some());
    for (got, expected) in by_kernel.slots.iter().zip(&by_cpu.slots) {
        for (got, expected) in saved(got).iter().zip(saved(expected)) {
            assert_eq!(got.len(), expected.len());
            for (got, expected) in got.iter().zip(expected) {
                let apart = (got - expected).abs();
                assert!(apart <= 1e-6 * expected.abs().max(1.0), "{got} {expected}");
            }
        }
    }
    assert_eq!(
        saved(&by_kernel.slots[1]),
        saved(&trained(0).slots[1]),
        "no gradient"
    );
}

#[test]
fn moments_on_a_gpu_can_be_saved_and_restored() {
    let (from, to) = (emulated(|| trained(2)), emulated(|| trained(0)));
    for (from, to) in from.slots.iter().zip(&to.slots) {
        let [_, moments] = saved(from);
        let moments = Tensor::from_vec(moments, to.moments_shape(), &Device::Cpu).unwrap();
        to.set_moments(&moments).unwrap();
        assert_eq!(saved(from)[1], saved(to)[1]);
    }
}
