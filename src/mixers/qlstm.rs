//! Quasi-LSTM (8), (20), appendix F.2 (Stanić et al. 2023): an LSTM whose gates depend on the input alone, so that the
//! recurrence is diagonal and linear in its state. The second mixer has the reversed sigmoid (23) as its forget gate.

use super::gated_block::{self, GatedBlock};
use super::gated_recurrence::{states, BlockRecurrence, GateRule, GatedRecurrence, STATES};
use super::{Core, Entry, Family, Gradient, Mixer, MixerOption, MixerSpec, MixerWork, ReleasedBlock};
use crate::nn::{Init, Params};
use candle_core::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "qlstm",
    equation: "x_i = σ(z_f) x_{i-1} + σ(z_i) tanh(W u_i), y_i = σ(z_o) tanh(x_i)",
    cite: "(8), (20)",
    variants: &["reference", "paper", "dsf"],
    dsf: "N = E, after its convolution (variant reference); N = d (variant dsf)",
    widens: true,
    released: ReleasedBlock::RNN,
    options: &[MixerOption { variants: &["paper", "dsf"], ..STATES }],
    stem: "qlstm",
    own_init: &["alpha", "conv_b", "conv_w"],
    uncounted: &["conv_w"],
    gradient: &[("alpha", Gradient::Unused)],
    work: |spec| Some(work(spec)),
    build: |spec, params| {
        // The released class holds this scalar too; the plain forget gate never reads it.
        if spec.variant == "reference" {
            params.get("alpha", 1, Init::Constant(1.0))?;
        }
        build(spec, params, GateRule::Sigmoid)
    },
    ..Entry::of(Family::Recurrent)
};

/// qLSTM with the forget gate f = (1 / (1 + e^z))^α, the discretisation of S6 (appendix I).
pub(super) const REVERSED: Entry = Entry {
    name: "qlstm-reversed",
    equation: "qlstm with the forget gate e^(-α softplus(z_f))",
    cite: "(23), (31)-(33)",
    stem: "qlstm_reversed",
    gradient: &[],
    build: |spec, params| {
        let alpha = params.get("alpha", 1, Init::Constant(1.0))?;
        let clipped = spec.variant == "reference";
        build(spec, params, GateRule::Reversed { alpha, clipped })
    },
    ..ENTRY
};

/// Arithmetic of the variant of `spec`; the reversed gate adds only a power.
fn work(spec: &MixerSpec) -> MixerWork {
    let d = spec.d_model;
    match spec.variant {
        "reference" => gated_block::work(spec, 3),
        _ => {
            let width = states(spec) * d;
            MixerWork::new(Core::GatedScan, [width, 1], 4 * width * d)
        }
    }
}

/// Builds the variant of `spec`.
fn build(spec: &MixerSpec, params: &Params, rule: GateRule) -> Result<Box<dyn Mixer>> {
    let std = spec.input_std;
    if spec.variant == "reference" {
        let block = GatedBlock::new(spec, params)?;
        let width = block.input.width;
        return Ok(Box::new(BlockRecurrence {
            wgates: params.weight("wgates", (3 * width, width), std)?,
            bgates: params.bias("bgates", 3 * width, width)?,
            block,
            rule,
        }));
    }
    let (d, states) = (spec.d_model, states(spec));
    let weight = |name| params.weight(name, (states * d, d), std);
    Ok(Box::new(GatedRecurrence {
        states,
        value: Some(weight("wu")?),
        gates: [weight("wf")?, weight("wi")?],
        output: Some(weight("wo")?),
        // Variant `dsf`, equation (20), has no tanh.
        squash: spec.variant == "paper",
        rule,
    }))
}

#[cfg(test)]
mod tests {
    use crate::ops;
    use candle_core::{Device, Tensor};

    #[test]
    fn the_reversed_gate_is_a_power_of_the_sigmoid_of_minus_z() {
        let z = Tensor::new(&[-8.0f64, -1.0, 0.0, 0.5, 3.0, 20.0], &Device::Cpu).unwrap();
        let a = 1.7;
        let power = ops::sigmoid(&z.neg().unwrap()).unwrap().powf(a).unwrap();
        let exponent = (ops::softplus(&z).unwrap() * -a).unwrap().exp().unwrap();
        for (p, e) in power.to_vec1::<f64>().unwrap().iter().zip(exponent.to_vec1::<f64>().unwrap()) {
            assert!((p - e).abs() <= 1e-14 * p, "{p} {e}");
        }
    }
}
