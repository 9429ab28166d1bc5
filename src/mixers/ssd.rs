//! SSD: S6 with a scalar projection to Δ and a single A (section 4.2; Dao & Gu 2024).
//!
//! In the variant `paper` Δ is one scalar per token, so that Λ_i is a scalar times the identity, and the output head is
//! that of S6: the two mixers differ in Λ alone. The variant `reference` is what the released code trains: the
//! projection to Δ has a bias per channel, so that each channel has its own decay. The core of Mamba-2 is `ssd-mamba2`.

use super::state_norm::StateNorm;
use super::state_space::{dt_bias, rule, shared_decay_core, OutputHead, SsmInputs, SsmMixer, DISCRETIZATION, DT_INIT};
use super::{Entry, Family, Growth, MixerSpec, MixerWork, ReleasedBlock, StateNormPlace};
use crate::ltv::Ltv;
use crate::nn::{project, Cx, Init, Params};
use crate::ops;
use crate::ops::{Expression, StepRule};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "ssd",
    equation: "H_i = e^(-Δ_i a) H_{i-1} + Δ_i u_i b_i, Δ_i = softplus(w·u_i + bias)",
    cite: "section 4.2; Dao & Gu 2024",
    variants: &["reference", "paper"],
    dsf: "N = n d",
    expands: true,
    released: ReleasedBlock::STATE_SPACE,
    options: &[DT_INIT, DISCRETIZATION],
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::STATE_SPACE,
    stem: "ssd",
    own_init: &["a_log", "bdt", "dskip"],
    work: |spec| {
        let (d, n) = (spec.d_model, spec.d_state);
        Some(MixerWork::new(shared_decay_core(spec), [d, n], d * (1 + 2 * n + d)))
    },
    build: |spec, params| Ok(Box::new(ReleasedSsd::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct ReleasedSsd {
    /// Projection to Δ, `(1, d)`, and its bias, `(1)` or `(d)`.
    wu: Tensor,
    bdt: Tensor,
    /// Projections to B and C, `(n, d)` each.
    wb: Tensor,
    wc: Tensor,
    /// ln(-A), `(1)`.
    a_log: Tensor,
    norm: Option<StateNorm>,
    head: OutputHead,
    rule: StepRule,
}

impl ReleasedSsd {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let biases = match spec.variant {
            "paper" => 1,
            _ => d,
        };
        Ok(Self {
            wu: params.weight("wu", (1, d), spec.input_std)?,
            bdt: params.get("bdt", biases, dt_bias(spec))?,
            wb: params.weight("wb", (n, d), spec.input_std)?,
            wc: params.weight("wc", (n, d), spec.input_std)?,
            a_log: params.get("a_log", 1, Init::Constant(0.0))?,
            norm: StateNorm::new(spec, d, params)?,
            head: OutputHead::new(spec, params)?,
            rule: rule(spec),
        })
    }
}

impl SsmMixer for ReleasedSsd {
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<(SsmInputs, Tensor)> {
        let maps = [(&self.wu, None), (&self.wb, None)];
        let maps = project(u, &maps, &[(&self.wc, None)], cx)?;
        let d = self.wb.dim(1)?;
        let bias = match self.bdt.dim(0)? == d {
            true => self.bdt.clone(),
            false => Expression::of(&self.bdt).broadcast(d).tensor()?,
        };
        let inputs = SsmInputs {
            x: u.clone(),
            delta: ops::softplus_biased(&maps.all[0], &bias)?,
            a: (-Expression::of(&self.a_log).exp()).broadcast((d, 1)).tensor()?,
            b: maps.all[1].clone(),
            c: maps.queried[0].clone(),
            groups: 1,
            norm: self.norm.clone(),
            rule: self.rule,
        };
        Ok((inputs, maps.selected))
    }

    fn output(&self, o: &Tensor, u: &Tensor) -> Result<Tensor> {
        self.head.forward(o, u)
    }

    fn b_proj(&self) -> &Tensor {
        &self.wb
    }

    fn system(&self, u: &Tensor, inputs: &SsmInputs) -> Result<Ltv> {
        self.head.system(u, inputs)
    }
}

#[cfg(test)]
mod tests {
    use crate::mixers::find;
    use crate::nn::Params;
    use crate::recipes;
    use candle_core::{DType, Device, Tensor};

    /// Λ of a fresh mixer along four random inputs, `(4, N)`, in the variant `variant`.
    fn lambda(variant: &str) -> Vec<Vec<f64>> {
        let settings = [("preset", "smoke"), ("mixer", "ssd"), ("variant", variant), ("option", "dt_init=mamba")];
        let model = recipes::run("mqar", &settings).unwrap().model;
        let params = Params::seeded(1, DType::F64, &Device::Cpu);
        let mixer = find("ssd").unwrap().build(&model, &params).unwrap();
        let u = Tensor::randn(0.0, 1.0, (4, model.d_model), &Device::Cpu).unwrap();
        let system = mixer.ltv(&u).unwrap().unwrap();
        system.lambda().unwrap().to_vec2().unwrap()
    }

    #[test]
    fn of_the_paper_lambda_is_a_scalar_and_as_released_it_is_one_a_channel() {
        let distinct = |row: &[f64]| {
            let mut values: Vec<u64> = row.iter().map(|x| x.to_bits()).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        assert!(lambda("paper").iter().all(|row| distinct(row) == 1));
        assert!(lambda("reference").iter().all(|row| distinct(row) == 16), "d = 16");
    }
}
