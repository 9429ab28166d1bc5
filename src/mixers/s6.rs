//! S6, the selective state space model (4), (19); Gu & Dao 2023. Δ, b and c depend on the input,
//! every channel and state has its own decay.

use super::state_space::{step_rank, Drive, Driven, Selective, DT_RANK};
use super::{Core, Entry, Family, MixerOption, MixerSpec, MixerWork, ReleasedBlock};
use crate::config::Protocol;
use crate::ltv::Ltv;
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "s6",
    equation: "H_i = e^(-Δ_i A) H_{i-1} + Δ_i u_i b_i, o_i = H_i c_i",
    cite: "(4), (19)",
    variants: &["reference", "paper"],
    dsf: "N = n d",
    heads: false,
    expands: true,
    widens: false,
    rotary: false,
    family: Family::StateSpace,
    released: ReleasedBlock::STATE_SPACE,
    options: &[
        MixerOption {
            name: "dt_init",
            help: "initial step: `zero` (the released model) or `mamba` (1e-3 to 1e-1)",
            default: |protocol| match protocol {
                Protocol::Paper => "mamba",
                Protocol::Reference | Protocol::Matched => "zero",
            },
            accepts: |v| v == "zero" || v == "mamba",
            variants: &[],
            implied: false,
        },
        DT_RANK,
    ],
    stem: "s6",
    work: |spec| {
        let (d, n) = (spec.d_model, spec.d_state);
        Some(MixerWork::new(
            Core::SelectiveScan,
            [d, n],
            d * (2 * step_rank(spec) + 2 * n + d),
        ))
    },
    build: |spec, params| Ok(Box::new(S6::new(spec, params)?)),
};

struct S6 {
    core: Selective,
    end: End,
}

/// How the state's output becomes the mixer's.
enum End {
    /// y = o + (W_D u) ⊙ u.
    Paper { wd: Tensor },
    /// y = W_out (o + dskip ⊙ u).
    Reference { dskip: Tensor, wout: Tensor },
}

impl S6 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        let end = match spec.variant {
            "paper" => End::Paper {
                wd: params.weight("wd", (d, d), spec.input_std)?,
            },
            _ => End::Reference {
                dskip: params.get("dskip", d, Init::Constant(1.0))?,
                wout: params.weight("wout", (d, d), spec.output_std)?,
            },
        };
        let mamba = spec.option("dt_init") == Some("mamba");
        Ok(Self {
            core: Selective::new(spec, d, mamba, params)?,
            end,
        })
    }
}

impl Driven for S6 {
    fn drive(&self, u: &Tensor, cx: &Cx) -> Result<(Drive, Tensor)> {
        self.core.drive(u, cx)
    }

    fn finish(&self, o: &Tensor, u: &Tensor) -> Result<Tensor> {
        match &self.end {
            End::Paper { wd } => o + (linear(u, wd, None)? * u)?,
            End::Reference { dskip, wout } => linear(&ops::add_scaled(o, u, dskip)?, wout, None),
        }
    }

    fn write_map(&self) -> &Tensor {
        &self.core.wb
    }

    fn system(&self, u: &Tensor, drive: &Drive) -> Result<Ltv> {
        match &self.end {
            End::Paper { wd } => drive.system(None, linear(u, wd, None)?, None),
            End::Reference { dskip, wout } => {
                drive.system(None, u.ones_like()?.broadcast_mul(dskip)?, Some(wout))
            }
        }
    }
}
