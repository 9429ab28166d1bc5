//! Pythia's body by kernels on the emulated GPU, compared with the CPU.

use super::{Io, LanguageModel};
use crate::config::samples::pythia;
use crate::config::{ModelConfig, Rotary};
use crate::mixers::find;
use crate::nn::{Cx, Params, Rows};
use candle_core::{DType, Device, Result, Tensor};
use dsf_emulation::{emulated, launches};
use std::collections::BTreeMap;

const V: usize = 50;
const BATCH: usize = 2;

/// Loss and gradients by name for windows of `len` tokens, with the first and last target of each window or all of
/// them.
fn differentiated(
    config: &ModelConfig,
    len: usize,
    some: bool,
    activations: DType,
) -> Result<BTreeMap<String, Vec<f32>>> {
    let params = Params::seeded(3, DType::F32, &Device::Cpu).for_activations(activations);
    let io = Io { vocab_size: V, seq_len: len };
    let model = LanguageModel::new(config, io, &params)?;
    let id = |i: usize| (i * i + 5 * i + i / 7) as u32 % V as u32;
    let ids: Vec<u32> = (0..BATCH * (len + 1)).map(id).collect();
    let windows = Tensor::from_vec(ids, (BATCH, len + 1), &Device::Cpu)?;
    let tokens = windows.narrow(1, 0, len)?.contiguous()?;
    let targets = windows.narrow(1, 1, len)?.contiguous()?;
    let positions = Tensor::new(&[[0, len as u32 - 1]; BATCH], &Device::Cpu)?;
    let rows = some.then_some(Rows { positions });
    let targets = match &rows {
        Some(rows) => targets.gather(&rows.positions, 1)?,
        None => targets,
    };
    let found = model.classify(&model.hidden(&tokens, rows.as_ref(), &Cx::eval())?, &targets.flatten_all()?)?;
    let grads = found.loss.backward()?;
    let mut all = BTreeMap::from([("loss".to_owned(), vec![found.loss.to_scalar()?])]);
    for (name, var) in params.vars() {
        let grad = grads.get(&var).unwrap_or_else(|| panic!("{name}"));
        all.insert(name, grad.flatten_all()?.to_vec1()?);
    }
    Ok(all)
}

fn agree(mixer: &str, rotary: Rotary, len: usize, some: bool) {
    let config = pythia(mixer, rotary);
    let expected = differentiated(&config, len, some, DType::F32).unwrap();
    let norm = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>().sqrt();
    let gradients = expected.iter().filter(|(name, _)| *name != "loss");
    let steepest = gradients.map(|(_, grad)| norm(grad)).fold(0.0, f32::max);
    for (activations, tolerance) in [(DType::F32, 1e-5), (DType::BF16, 6e-2)] {
        let before = launches();
        let got = emulated(|| differentiated(&config, len, some, activations).unwrap());
        assert!(launches() > before + 20, "no kernels");
        for (name, expected) in &expected {
            let pairs = got[name].iter().zip(expected);
            let apart: Vec<f32> = pairs.map(|(a, b)| a - b).collect();
            // The gradient of a key's bias under softmax is zero except for rounding.
            let apart = norm(&apart) / norm(expected).max(0.1 * steepest);
            let place = format!("{mixer}, rotary {rotary:?}, L = {len}, {activations:?}: {name}");
            assert!(apart <= tolerance, "{place} is {apart:e} apart");
        }
    }
}

#[test]
fn pythia_by_kernels_is_pythia_on_the_cpu() {
    for mixer in ["softmax", "normalized"] {
        agree(mixer, Rotary::Pre, 20, false);
        agree(mixer, Rotary::None, 20, false);
    }
    agree("linear", Rotary::Pre, 20, false);
    agree("linear", Rotary::None, 20, false);
    agree("linear", Rotary::Post, 20, true);
}

/// The sequence is long enough for the kernels of prefix sums.
#[test]
fn long_windows_of_pythia_by_kernels_are_those_on_the_cpu() {
    agree("linear", Rotary::Pre, 150, false);
    agree("linear", Rotary::Post, 150, false);
    agree("normalized", Rotary::Pre, 150, false);
}

/// Rounded to the 8 bits of bf16, an exponent of 6 would be off by up to one part in 64.
#[test]
fn a_large_normaliser_keeps_its_digits_in_16_bits() {
    let config = pythia("normalized", Rotary::Pre);
    let output = |activations: DType| -> Result<Vec<f32>> {
        let params = Params::seeded(5, DType::F32, &Device::Cpu).for_activations(activations);
        let mixer = find("normalized").unwrap().build(&config, &params)?;
        for (name, var) in params.vars() {
            match name.as_str() {
                "bn" => var.set(&Tensor::new(&[6.015f32, 6.017], &Device::Cpu)?)?,
                "wn" => var.set(&var.zeros_like()?)?,
                _ => (),
            }
        }
        let x: Vec<f32> = (0..20 * 16).map(|i| (i as f32).sin()).collect();
        let x = Tensor::from_vec(x, (1, 20, 16), &Device::Cpu)?.to_dtype(activations)?;
        let y = mixer.forward(&x, &Cx::eval())?.to_dtype(DType::F32)?;
        y.flatten_all()?.to_vec1()
    };
    let wanted = output(DType::F32).unwrap();
    let got = emulated(|| output(DType::BF16).unwrap());
    let pairs = got.iter().zip(&wanted);
    let ratio = pairs.map(|(a, b)| a * b).sum::<f32>() / wanted.iter().map(|b| b * b).sum::<f32>();
    assert!((ratio - 1.0).abs() <= 4e-3, "{ratio}");
}
