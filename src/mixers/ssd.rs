//! SSD as the released code trains it: S6 with a step of rank one, a single A, and a step bias per
//! channel. The bias gives each channel its own decay, all driven by one number, so Λ is not the
//! scalar that section 4.2 of the paper describes; that one is `ssd-mamba2`.

use super::state_space::{Drive, Driven};
use super::{Core, Entry, Family, MixerSpec, MixerWork, ReleasedBlock};
use crate::ltv::Ltv;
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "ssd",
    equation: "H_i = e^(-Δ_i a) H_{i-1} + Δ_i u_i b_i, Δ_i = softplus(w·u_i + bias)",
    cite: "released code; Dao & Gu 2024",
    variants: &["reference"],
    dsf: "N = n d",
    heads: false,
    expands: true,
    widens: false,
    rotary: false,
    family: Family::StateSpace,
    released: ReleasedBlock::STATE_SPACE,
    options: &[],
    stem: "ssd",
    work: |spec| {
        let (d, n) = (spec.d_model, spec.d_state);
        Some(MixerWork::new(
            Core::ChunkedScan,
            [d, n],
            d * (1 + 2 * n + d),
        ))
    },
    build: |spec, params| Ok(Box::new(Ssd::new(spec, params)?)),
};

struct Ssd {
    wu: Tensor,
    bdt: Tensor,
    wb: Tensor,
    wc: Tensor,
    a_log: Tensor,
    dskip: Tensor,
    wout: Tensor,
}

impl Ssd {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        Ok(Self {
            wu: params.weight("wu", (1, d), spec.input_std)?,
            bdt: params.get("bdt", d, Init::Constant(0.0))?,
            wb: params.weight("wb", (n, d), spec.input_std)?,
            wc: params.weight("wc", (n, d), spec.input_std)?,
            a_log: params.get("a_log", 1, Init::Constant(0.0))?,
            dskip: params.get("dskip", d, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
        })
    }
}

impl Driven for Ssd {
    fn drive(&self, u: &Tensor, cx: &Cx) -> Result<(Drive, Tensor)> {
        let maps = [(&self.wu, None), (&self.wb, None)];
        let maps = project(u, &maps, &[(&self.wc, None)], cx)?;
        let a = self.a_log.exp()?.neg()?;
        let drive = Drive {
            x: u.clone(),
            delta: ops::softplus_biased(&maps.all[0], &self.bdt)?,
            a: a.broadcast_as((self.bdt.dim(0)?, 1))?,
            b: maps.all[1].clone(),
            c: maps.queried[0].clone(),
        };
        Ok((drive, maps.selected))
    }

    fn finish(&self, o: &Tensor, u: &Tensor) -> Result<Tensor> {
        let skipped = ops::add_scaled(o, u, &self.dskip)?;
        linear(&skipped, &self.wout, None)
    }

    fn write_map(&self) -> &Tensor {
        &self.wb
    }

    fn system(&self, u: &Tensor, drive: &Drive) -> Result<Ltv> {
        let skip = u.ones_like()?.broadcast_mul(&self.dskip)?;
        drive.system(None, skip, Some(&self.wout))
    }
}
