use super::*;
use crate::nn::Init;
use crate::ops::rng::Rng;
use candle_core::Device;
use dsf_emulation::emulated;

#[test]
fn the_first_step_moves_by_the_rate_against_the_sign_and_decays() {
    let var = Var::new(&[1.0f64, -2.0, 3.0], &Device::Cpu).unwrap();
    let idle = Var::new(&[5.0f64], &Device::Cpu).unwrap();
    let vars = vec![("a".into(), var.clone()), ("idle".into(), idle.clone())];
    let mut adamw = AdamW::new(vars, 0.1).unwrap();
    let weights = Tensor::new(&[2.0f64, 4.0, -1.0], &Device::Cpu).unwrap();
    let loss = (var.as_tensor() * weights).unwrap().sum_all().unwrap();
    adamw.step(&loss.backward().unwrap(), 0.01).unwrap();
    let expected = [1.0f64, -2.0, 3.0].iter().zip([1.0, 1.0, -1.0]).map(|(x, sign)| x * (1.0 - 0.001) - 0.01 * sign);
    for (got, want) in var.to_vec1::<f64>().unwrap().iter().zip(expected) {
        assert!((got - want).abs() < 1e-9, "{got} {want}");
    }
    assert_eq!(idle.to_vec1::<f64>().unwrap(), [5.0], "no gradient, no decay");
}

/// Settings of Table 1 with a larger eps.
const CLIPPED: AdamConfig = AdamConfig { beta1: 0.9, beta2: 0.95, eps: 1e-6, clip: Some(1.0), decay: Decay::Matrices };

fn matrices(_: &str, var: &Var) -> bool {
    var.rank() >= 2
}

/// Two steps that are clipped and two that are not, computed by PyTorch 2.15:
///
///     w = torch.tensor([[0.5, -1.0, 1.5], [2.0, -0.25, 0.75]], requires_grad=True)
///     b = torch.tensor([1.25, -0.5, 0.1], requires_grad=True)
///     groups = [dict(params=[w], weight_decay=0.1), dict(params=[b], weight_decay=0.0)]
///     adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-6)
///     for lr, by in [(0.1, 1.0), (0.2, 0.01), (0.1, 3.0), (0.05, 0.02)]:
///         for group in adam.param_groups: group["lr"] = lr
///         adam.zero_grad()
///         (by * ((w ** 4).sum() + (b ** 4).sum())).backward()
///         torch.nn.utils.clip_grad_norm_([w, b], 1.0)
///         adam.step()
///     print(w.flatten().tolist(), b.tolist())
#[test]
fn clipped_steps_that_decay_matrices_alone_are_those_of_pytorch() {
    let cpu = &Device::Cpu;
    let w = Var::new(&[[0.5f64, -1.0, 1.5], [2.0, -0.25, 0.75]], cpu).unwrap();
    let b = Var::new(&[1.25f64, -0.5, 0.1], cpu).unwrap();
    let vars = vec![("w".into(), w.clone()), ("b".into(), b.clone())];
    let mut adamw = AdamW::with_config(vars, 0.1, CLIPPED, matrices).unwrap();
    for (rate, by) in [(0.1, 1.0), (0.2, 0.01), (0.1, 3.0), (0.05, 0.02)] {
        let fourth = |var: &Var| var.sqr().unwrap().sqr().unwrap().sum_all().unwrap();
        let loss = ((fourth(&w) + fourth(&b)).unwrap() * by).unwrap();
        adamw.step(&loss.backward().unwrap(), rate).unwrap();
    }
    let expected = [
        0.12146176534042943,
        -0.5643453216285765,
        1.0343359346860812,
        1.5096817106655305,
        0.08213959374581938,
        0.33639815955883134,
        0.8449267940292374,
        -0.13403809492007163,
        -0.06125413345864423,
    ];
    let flat = |var: &Var| var.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    for (got, expected) in [flat(&w), flat(&b)].concat().iter().zip(expected) {
        assert!((got - expected).abs() < 1e-12, "{got} {expected}");
    }
}

/// Parameters of odd sizes: a matrix, some that need several blocks, and more than one launch takes.
fn parameters() -> Vec<(String, Var)> {
    let mut rng = Rng::new(1, "adamw", 0);
    let sizes = [1, 7, 2048, 2049, 5000].into_iter().chain([3; 66]);
    let var = |(i, size): (usize, usize)| {
        let values: Vec<f32> = (0..size).map(|_| rng.normals().0 as f32).collect();
        let shape = if size == 2048 { vec![32, 64] } else { vec![size] };
        let values = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
        (format!("p{i}"), Var::from_tensor(&values).unwrap())
    };
    sizes.enumerate().map(var).collect()
}

/// Optimiser after `steps` steps on x⁴ of all parameters but one.
fn trained(config: &AdamConfig, steps: usize) -> AdamW {
    let vars = parameters();
    let mut adamw = AdamW::with_config(vars.clone(), 0.1, config.clone(), matrices).unwrap();
    for step in 0..steps {
        let used = vars.iter().enumerate().filter(|(i, _)| *i != 1);
        let losses: Vec<Tensor> =
            used.map(|(_, (_, var))| var.sqr().unwrap().sqr().unwrap().sum_all().unwrap()).collect();
        let loss = Tensor::stack(&losses, 0).unwrap().sum_all().unwrap();
        let rate = 0.01 / (step + 1) as f64;
        adamw.step(&loss.backward().unwrap(), rate).unwrap();
    }
    adamw
}

/// Parameter and moments in the format of a checkpoint.
fn saved(slot: &AdamWSlot) -> [Vec<f32>; 2] {
    [bytes(&slot.var).unwrap(), moments_bytes(slot).unwrap()].map(|bytes| {
        let words = bytes.as_chunks::<4>().0;
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    })
}

/// Contents of a checkpoint.
fn all(adamw: &AdamW) -> Vec<[Vec<f32>; 2]> {
    adamw.slots.iter().map(saved).collect()
}

#[test]
fn the_kernel_steps_as_the_cpu_does() {
    for config in [RELEASED, CLIPPED] {
        let by_kernel = emulated(|| trained(&config, 4));
        assert!(by_kernel.on_gpu.is_some());
        let by_cpu = all(&trained(&config, 4));
        for (got, expected) in all(&by_kernel).concat().iter().zip(by_cpu.concat()) {
            assert_eq!(got.len(), expected.len());
            for (got, expected) in got.iter().zip(expected) {
                let apart = (got - expected).abs();
                assert!(apart <= 1e-6 * expected.abs().max(1.0), "{got} {expected}");
            }
        }
        let untouched = saved(&trained(&config, 0).slots[1]);
        assert_eq!(saved(&by_kernel.slots[1]), untouched, "no gradient");
        let again = emulated(|| trained(&config, 4));
        assert_eq!(all(&by_kernel), all(&again), "repeated");
    }
}

#[test]
fn a_norm_below_the_limit_changes_no_bit() {
    let config = AdamConfig { clip: Some(1e9), ..RELEASED };
    assert_eq!(all(&trained(&config, 3)), all(&trained(&RELEASED, 3)));
    let by_kernel = |config| emulated(|| all(&trained(config, 3)));
    assert_eq!(by_kernel(&config), by_kernel(&RELEASED));
}

#[test]
fn clipped_bits_do_not_depend_on_threads() {
    let by = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().unwrap();
        pool.install(|| all(&trained(&CLIPPED, 3)))
    };
    assert_eq!(by(1), by(2));
}

/// PyTorch's clipping would also turn every parameter into NaN.
#[test]
fn a_nan_gradient_is_not_hidden_by_clipping() {
    let step = || {
        let var = Var::new(&[1.0f32, 2.0], &Device::Cpu).unwrap();
        let vars = vec![("a".into(), var.clone())];
        let mut adamw = AdamW::with_config(vars, 0.1, CLIPPED, matrices).unwrap();
        let loss = (var.as_tensor() * f64::NAN).unwrap().sum_all().unwrap();
        adamw.step(&loss.backward().unwrap(), 0.01).unwrap();
        var.to_vec1::<f32>().unwrap()
    };
    for values in [step(), emulated(step)] {
        assert!(values.iter().all(|value| value.is_nan()), "{values:?}");
    }
}

#[test]
fn moments_on_a_gpu_can_be_saved_and_restored() {
    let [from, to] = [2, 0].map(|steps| emulated(|| trained(&RELEASED, steps)));
    for (from, to) in from.slots.iter().zip(&to.slots) {
        let [_, moments] = saved(from);
        let moments = Tensor::from_vec(moments, to.moments_shape(), &Device::Cpu).unwrap();
        to.set_moments(&moments).unwrap();
        assert_eq!(saved(from)[1], saved(to)[1]);
    }
}

#[test]
fn weight_decay_of_maps_leaves_other_parameters_alone() {
    let params = Params::seeded(1, DType::F64, &Device::Cpu);
    let ones = |name: &str, map: bool| match map {
        true => params.map(name, (2, 3), Init::Constant(1.0)).unwrap(),
        false => params.get(name, (2, 3), Init::Constant(1.0)).unwrap(),
    };
    let (w, a_log) = (ones("w", true), ones("a_log", false));
    let loss = ((&w + &a_log).unwrap() * w.zeros_like().unwrap()).unwrap().sum_all().unwrap();
    let after = |decay: Option<Decay>| {
        let train = TrainConfig { decay, weight_decay: 0.5, ..crate::store::samples::config().train };
        let mut adamw = AdamW::configured(&params, &train).unwrap();
        for (_, var) in params.vars() {
            var.set(&w.ones_like().unwrap()).unwrap();
        }
        adamw.step(&loss.backward().unwrap(), 0.1).unwrap();
        let first = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap()[0];
        [first(&w), first(&a_log)]
    };
    let decayed = 1.0 - 0.1 * 0.5;
    assert_eq!(after(Some(Decay::Maps)), [decayed, 1.0]);
    assert_eq!(after(Some(Decay::Matrices)), [decayed, decayed]);
    assert_eq!(after(None), [decayed, decayed]);
}
