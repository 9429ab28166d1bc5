//! RG-LRU (9), (10), (21), appendix F.1; De et al. 2024:
//! x_i = a_i x_{i-1} + √(1 - a_i²) g_i u_i with log a_i = -8 softplus(λ) r_i.

use super::gated_block::{self, GatedBlock};
use super::gated_recurrence::{states, Bare, InBlock, Rule, STATES};
use super::{Core, Entry, Family, MixerOption, MixerSpec, MixerWork, ReleasedBlock};
use crate::nn::{Init, Params};
use crate::ops::rng::Rng;
use candle_core::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "rg-lru",
    equation: "x_i = a_i x_{i-1} + √(1-a_i²) g_i u_i, a_i = e^(-8 softplus(λ) r_i)",
    cite: "(9), (10), (21)",
    variants: &["hawk", "paper"],
    dsf: "N = E, behind its convolution (variant hawk); N = d (variant paper)",
    widens: true,
    released: ReleasedBlock::RNN,
    options: &[
        MixerOption {
            name: "lambda_init",
            help: "initial λ from -9 to -4.323: `exp` (evenly) or `uniform` (as log(e^t - 1), t evenly)",
            default: |_| "exp",
            accepts: |v| v == "exp" || v == "uniform",
            variants: &["hawk"],
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            variants: &["paper"],
            ..STATES
        },
    ],
    stem: "rg_lru",
    own_init: &["conv_b", "conv_w", "lam"],
    uncounted: &["conv_w"],
    work: |spec| {
        let d = spec.d_model;
        Some(match spec.variant {
            "paper" => {
                let width = states(spec) * d;
                MixerWork::new(Core::GatedScan, [width, 1], 2 * width * d)
            }
            _ => gated_block::work(spec, 2),
        })
    },
    build: |spec, params| {
        Ok(match spec.variant {
            "paper" => Box::new(bare(spec, params)?),
            _ => Box::new(hawk(spec, params)?),
        })
    },
    ..Entry::of(Family::Recurrent)
};

/// λ such that the decay at r = 1 is uniform on [0.9, 0.999] (Griffin).
fn griffin(_index: usize, rng: &mut Rng) -> f64 {
    let a = 0.9 + 0.099 * rng.uniform();
    (-a.ln() / 8.0).exp_m1().ln()
}

/// Lowest initial λ of the released code, and how far the highest, -4.323, lies above it.
const LOWEST: f64 = -9.0;
const HIGHEST_ABOVE: f64 = 9.0 - 4.323;

/// log(e^t - 1) for t from 0.001 to 0.1 as `fraction` goes from 0 to 1, rescaled to 0 to 1.
fn log_curve(fraction: f64) -> f64 {
    let curve = |fraction: f64| (0.001 + 0.099 * fraction).exp_m1().ln();
    (curve(fraction) - curve(0.0)) / (curve(1.0) - curve(0.0))
}

/// Variant `paper`.
fn bare(spec: &MixerSpec, params: &Params) -> Result<Bare> {
    let (d, states) = (spec.d_model, states(spec));
    let width = states * d;
    let weight = |name| params.weight(name, (width, d), spec.input_std);
    Ok(Bare {
        states,
        gates: [weight("wa")?, weight("wu")?],
        value: None,
        output: None,
        squash: false,
        rule: Rule::RgLru {
            lambda: params.get("lam", width, Init::Each(&griffin))?,
            eps: 0.0,
        },
    })
}

/// Variant `hawk`: the recurrence inside the gated block of the released LRA code, which adds
/// 1e-6 under the root.
fn hawk(spec: &MixerSpec, params: &Params) -> Result<InBlock> {
    let block = GatedBlock::new(spec, params)?;
    let e = block.input.width;
    let uniform = spec.option("lambda_init") == Some("uniform");
    let initial_lambda = |i: usize, _: &mut Rng| {
        let (at, last) = (i as f64, (e - 1).max(1) as f64);
        if uniform {
            LOWEST + HIGHEST_ABOVE * log_curve(at / last)
        } else {
            LOWEST + HIGHEST_ABOVE * at / last
        }
    };
    Ok(InBlock {
        wgates: params.weight("wgates", (2 * e, e), spec.input_std)?,
        bgates: params.bias("bgates", 2 * e, e)?,
        rule: Rule::RgLru {
            lambda: params.get("lam", e, Init::Each(&initial_lambda))?,
            eps: 1e-6,
        },
        block,
    })
}
