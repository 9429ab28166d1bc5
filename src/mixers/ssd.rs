//! SSD as the released code trains it: S6 with a step of rank one, a single A, and a step bias per
//! channel. The bias gives each channel its own decay, all driven by one number, so Λ is not the
//! scalar that section 4.2 of the paper describes; that one is `ssd-mamba2`.

use super::state_space::Drive;
use super::{output_std, Entry, Home, Mixer, Recurrent, State};
use crate::config::ModelConfig;
use crate::ltv::Ltv;
use crate::nn::{linear, Cx, Init, Params};
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
    home: Home::STATE_SPACE,
    options: &[],
    stem: "ssd",
    build: |model, params| Ok(Box::new(Ssd::new(model, params)?)),
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
    fn new(model: &ModelConfig, params: &Params) -> Result<Self> {
        let (d, n) = (model.d_model, model.d_state);
        let g = || Init::Normal(0.02);
        Ok(Self {
            wu: params.get("wu", (1, d), g())?,
            bdt: params.get("bdt", d, Init::Constant(0.0))?,
            wb: params.get("wb", (n, d), g())?,
            wc: params.get("wc", (n, d), g())?,
            a_log: params.get("a_log", 1, Init::Constant(0.0))?,
            dskip: params.get("dskip", d, Init::Constant(1.0))?,
            wout: params.get("wout", (d, d), Init::Normal(output_std(model)))?,
        })
    }

    fn drive(&self, u: &Tensor) -> Result<Drive> {
        let d = self.bdt.dim(0)?;
        let step = linear(u, &self.wu, None)?.broadcast_add(&self.bdt)?;
        Ok(Drive {
            x: u.clone(),
            delta: ops::softplus(&step)?,
            a: self.a_log.exp()?.neg()?.broadcast_as((d, 1))?,
            b: linear(u, &self.wb, None)?,
            c: linear(u, &self.wc, None)?,
        })
    }

    fn finish(&self, o: &Tensor, u: &Tensor) -> Result<Tensor> {
        let skipped = (o + u.broadcast_mul(&self.dskip)?)?;
        linear(&skipped, &self.wout, None)
    }
}

impl Mixer for Ssd {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let o = self.drive(u)?.scan(None)?;
        self.finish(&cx.select(&o)?, &cx.select(u)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.wb.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let skip = u.ones_like()?.broadcast_mul(&self.dskip)?;
        let drive = self.drive(&u.unsqueeze(0)?)?;
        drive.system(None, skip, Some(&self.wout)).map(Some)
    }
}

impl Recurrent for Ssd {
    fn init(&self, batch: usize) -> Result<State> {
        Drive::zero_state(&self.bdt, batch, self.wb.dim(0)?)
    }

    fn step(&self, x_t: &Tensor, state: &mut State) -> Result<Tensor> {
        let u = x_t.unsqueeze(1)?;
        let o = self.drive(&u)?.step(state)?;
        self.finish(&o, &u)?.squeeze(1)
    }
}
