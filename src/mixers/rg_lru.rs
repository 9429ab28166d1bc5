//! RG-LRU (9), (10), (21), appendix F.1; De et al. 2024: the real-gated linear recurrent unit of Griffin and Hawk,
//!
//! x_i = a_i ⊙ x_{i-1} + √(1 - a_i²) ⊙ g_i ⊙ u_i,  log a_i = -8 softplus(λ) ⊙ r_i
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | a | decay | `(batch, seq_len, N)` |
//! | r, g | recurrence and input gate, σ(W u) each | `(batch, seq_len, N)` |
//! | λ | learnt decay parameter | `(N)` |

use super::gated_block::{self, GatedBlock};
use super::gated_recurrence::{states, BlockRecurrence, GateRule, GatedRecurrence, STATES};
use super::griffin::{self, griffin_lambda, Griffin};
use super::short_conv::CONV_WIDTH;
use super::{Core, Entry, Family, MixerOption, MixerSpec, MixerWork, ReleasedBlock};
use crate::nn::{Init, Params};
use crate::ops::rng::Rng;
use candle_core::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "rg-lru",
    equation: "x_i = a_i x_{i-1} + √(1-a_i²) g_i u_i, a_i = e^(-8 softplus(λ) r_i)",
    cite: "(9), (10), (21)",
    variants: &["hawk", "paper", griffin::VARIANT],
    dsf: "N = E, after its convolution (variant hawk or griffin); N = d (variant paper)",
    widens: true,
    released: ReleasedBlock::RNN,
    options: &[
        MixerOption {
            name: "lambda_init",
            help: "initial λ from -9 to -4.323: `exp` (evenly spaced) or `uniform` (log(e^t - 1), t evenly spaced)",
            default: |_| "exp",
            accepts: |v| v == "exp" || v == "uniform",
            variants: &["hawk"],
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption { variants: &["paper"], ..STATES },
        griffin::WIDTH,
        griffin::BLOCKS,
        MixerOption { variants: &[griffin::VARIANT], ..CONV_WIDTH },
    ],
    check: griffin::check,
    stem: "rg_lru",
    own_init: &["conv_b", "conv_w", "lam", "wx", "wy"],
    uncounted: &["conv_w"],
    work: |spec| {
        let d = spec.d_model;
        Some(match spec.variant {
            "paper" => {
                let width = states(spec) * d;
                MixerWork::new(Core::GatedScan, [width, 1], 2 * width * d)
            }
            griffin::VARIANT => griffin::work(spec),
            _ => gated_block::work(spec, 2),
        })
    },
    build: |spec, params| {
        Ok(match spec.variant {
            "paper" => Box::new(paper(spec, params)?),
            griffin::VARIANT => Box::new(Griffin::new(spec, params)?),
            _ => Box::new(hawk(spec, params)?),
        })
    },
    ..Entry::of(Family::Recurrent)
};

/// Range of initial λ in the released code: -9 to -4.323.
const LAMBDA_MIN: f64 = -9.0;
const LAMBDA_RANGE: f64 = 9.0 - 4.323;

/// log(e^t - 1), t = 0.001 + 0.099 · `fraction`, rescaled to run from 0 to 1.
fn log_curve(fraction: f64) -> f64 {
    let curve = |fraction: f64| (0.001 + 0.099 * fraction).exp_m1().ln();
    (curve(fraction) - curve(0.0)) / (curve(1.0) - curve(0.0))
}

/// Variant `paper`: the recurrence alone.
fn paper(spec: &MixerSpec, params: &Params) -> Result<GatedRecurrence> {
    let (d, states) = (spec.d_model, states(spec));
    let width = states * d;
    let weight = |name| params.weight(name, (width, d), spec.input_std);
    Ok(GatedRecurrence {
        states,
        gates: [weight("wa")?, weight("wu")?],
        value: None,
        output: None,
        squash: false,
        rule: GateRule::RgLru { lambda: params.get("lam", width, Init::Each(&griffin_lambda))?, eps: 0.0 },
    })
}

/// Variant `hawk`: the recurrence inside the gated block of the released LRA code, which adds 1e-6 under the square
/// root.
fn hawk(spec: &MixerSpec, params: &Params) -> Result<BlockRecurrence> {
    let block = GatedBlock::new(spec, params)?;
    let e = block.input.width;
    let uniform = spec.option("lambda_init") == Some("uniform");
    let lambda = |i: usize, _: &mut Rng| {
        let (i, last) = (i as f64, (e - 1).max(1) as f64);
        if uniform {
            LAMBDA_MIN + LAMBDA_RANGE * log_curve(i / last)
        } else {
            LAMBDA_MIN + LAMBDA_RANGE * i / last
        }
    };
    Ok(BlockRecurrence {
        wgates: params.weight("wgates", (2 * e, e), spec.input_std)?,
        bgates: params.bias("bgates", 2 * e, e)?,
        rule: GateRule::RgLru { lambda: params.get("lam", e, Init::Each(&lambda))?, eps: 1e-6 },
        block,
    })
}
