//! Ops in sequence, as in a block of Pythia and its head, in bf16.

use super::*;
use crate::runtime::rng::Rng;
use candle_core::{DType, Device, Result, Tensor, Var};
use dsf_emulation::{emulated, launches};

const BATCH: usize = 2;
const LEN: usize = 40;
const D: usize = 24;
const HEADS: usize = 2;
const HIDDEN: usize = 40;
const VOCABULARY: usize = 300;

/// The shape, mean and standard deviation of every parameter.
fn shapes() -> Vec<(Vec<usize>, f64, f64)> {
    let matrix = |rows, columns| (vec![rows, columns], 0.0, 0.3);
    let bias = |width| (vec![width], 0.0, 0.1);
    let norm = [(vec![D], 1.0, 0.1), bias(D)];
    let mut shapes = vec![matrix(VOCABULARY, D)];
    for _ in 0..3 {
        shapes.extend(norm.clone());
    }
    for _ in 0..4 {
        shapes.extend([matrix(D, D), bias(D)]);
    }
    shapes.extend([matrix(HEADS, D), bias(HEADS)]);
    shapes.extend([matrix(HIDDEN, D), bias(HIDDEN)]);
    shapes.extend([matrix(D, HIDDEN), bias(D)]);
    shapes.push(matrix(VOCABULARY, D));
    shapes
}

/// Parameters with the same values in every number type.
fn parameters(dtype: DType) -> Vec<Var> {
    let mut rng = Rng::new(1, "pythia", 0);
    let var = |(shape, mean, spread): (Vec<usize>, f64, f64)| {
        let count = shape.iter().product();
        let mut draw = || (mean + spread * rng.normals().0) as f32;
        let values: Vec<f32> = (0..count).map(|_| draw()).collect();
        let values = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
        Var::from_tensor(&values.to_dtype(dtype).unwrap()).unwrap()
    };
    shapes().into_iter().map(var).collect()
}

fn tokens(shift: usize) -> Vec<u32> {
    let token = |i: usize| ((i + shift) * 7 % VOCABULARY) as u32;
    (0..BATCH * LEN).map(token).collect()
}

fn attention(x: &Tensor, maps: &[(&Tensor, Option<&Tensor>)], weights: Weights) -> Result<Tensor> {
    let [q, k, v, n] = <[Tensor; 4]>::try_from(linears(x, maps)?).expect("four maps");
    let turned = |x: &Tensor| rotary(x, HEADS, 4, 10_000.0, None);
    let mapped = |x: Tensor| match weights {
        Weights::LinearNormalised => elu1(&x),
        _ => Ok(x),
    };
    let (q, k) = (mapped(turned(&q)?)?, mapped(turned(&k)?)?);
    let o = causal_attention([&q, &k, &v], HEADS, None, weights, None)?;
    match weights {
        Weights::Plain => scale_heads(&o, &n.neg()?.exp()?),
        _ => Ok(o),
    }
}

fn loss(p: &[Var], activations: DType, weights: Weights) -> Result<Tensor> {
    let p: Vec<&Tensor> = p.iter().map(Var::as_tensor).collect();
    let ids = Tensor::from_vec(tokens(0), (BATCH, LEN), &Device::Cpu)?;
    let x = embedding(&ids, p[0], None, None, activations)?;
    let normed = layer_norm(&x, p[1], p[2], 1e-5)?;
    let maps = [(p[7], Some(p[8])), (p[9], Some(p[10])), (p[11], Some(p[12]))];
    let maps = [&maps[..], &[(p[15], Some(p[16]))]].concat();
    let mixed = linear(&attention(&normed, &maps, weights)?, p[13], Some(p[14]))?;
    let normed = layer_norm(&x, p[3], p[4], 1e-5)?;
    let fed = mlp(&normed, [p[17], p[18]], [p[19], p[20]], [None; 2])?;
    let (_, normed) = add_layer_norm(&(x + mixed)?, &fed, p[5], p[6], 1e-5)?;
    let targets = Tensor::new(tokens(1), &Device::Cpu)?;
    Ok(cross_entropy(&normed, p[21], &targets)?.loss)
}

/// The loss, then the gradient of each parameter that has one.
fn found(dtype: DType, activations: DType, weights: Weights) -> Vec<Option<Vec<f64>>> {
    let p = parameters(dtype);
    let loss = loss(&p, activations, weights).unwrap();
    let grads = backward(&loss).unwrap();
    let flat = |x: &Tensor| {
        let x = x.to_dtype(DType::F64).unwrap();
        x.flatten_all().unwrap().to_vec1().unwrap()
    };
    let of_all = p.iter().map(|var| grads.get(var).map(flat));
    std::iter::once(Some(flat(&loss))).chain(of_all).collect()
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn a_block_of_pythia_takes_activations_of_16_bits_and_parameters_of_32() {
    for weights in [Weights::Softmax, Weights::LinearNormalised, Weights::Plain] {
        let expected = found(DType::F64, DType::F64, weights);
        // The bias of the normaliser has the largest error in 16 bits: it is the difference of two sums that nearly
        // cancel.
        for (activations, tolerance) in [(DType::F32, 1e-4), (DType::BF16, 1e-1)] {
            let before = launches();
            let got = emulated(|| found(DType::F32, activations, weights));
            assert!(launches() > before + 20, "by kernels");
            for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                let (Some(got), Some(expected)) = (got, expected) else {
                    assert_eq!(got.is_some(), expected.is_some(), "gradient {i}");
                    continue;
                };
                let apart: Vec<f64> = got.iter().zip(expected).map(|(x, y)| x - y).collect();
                // rules without a parameter give it a gradient of zeros
                let apart = norm(&apart) / norm(expected).max(1e-12);
                assert!(apart <= tolerance, "{weights:?} with {activations:?}, gradient {i}: {apart:e}");
            }
        }
    }
}
