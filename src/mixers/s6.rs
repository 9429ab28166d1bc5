//! S6, the selective state space model (4), (19); Gu & Dao 2023. Δ, b and c depend on the input,
//! every channel and state has its own decay.

use super::state_space::{mamba_step_bias, Drive};
use super::{output_std, Entry, Home, Mixer, MixerOption, Recurrent, State};
use crate::config::{ModelConfig, Protocol};
use crate::ltv::Ltv;
use crate::nn::{linear, project, Cx, Init, Params};
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
    home: Home::STATE_SPACE,
    options: &[
        MixerOption {
            name: "dt_init",
            help: "initial step: `zero` (the released model) or `mamba` (1e-3 to 1e-1)",
            default: |protocol| match protocol {
                Protocol::Paper => "mamba",
                Protocol::Reference | Protocol::Matched => "zero",
            },
            accepts: |v| v == "zero" || v == "mamba",
        },
        MixerOption {
            name: "dt_rank",
            help: "rank of the step projection: `auto` (d/16, rounded up) or a positive number",
            default: |_| "auto",
            accepts: |v| v == "auto" || v.parse::<u16>().is_ok_and(|r| r > 0),
        },
    ],
    stem: "s6",
    build: |model, params| Ok(Box::new(S6::new(model, params)?)),
};

struct S6 {
    wu: Tensor,
    wdt: Tensor,
    bdt: Tensor,
    wb: Tensor,
    wc: Tensor,
    a_log: Tensor,
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
    fn new(model: &ModelConfig, params: &Params) -> Result<Self> {
        let (d, n) = (model.d_model, model.d_state);
        let option = |name: &str| model.options.get(name).map(String::as_str);
        let auto = d.div_ceil(16);
        let rank = option("dt_rank")
            .and_then(|v| v.parse().ok())
            .unwrap_or(auto);
        let g = || Init::Normal(0.02);
        let edge = (rank as f64).powf(-0.5);
        let (wdt, bdt) = match option("dt_init") {
            Some("mamba") => (Init::Uniform(-edge, edge), Init::Each(&mamba_step_bias)),
            _ => (g(), Init::Constant(0.0)),
        };
        let end = match model.variant.as_str() {
            "paper" => End::Paper {
                wd: params.get("wd", (d, d), g())?,
            },
            _ => End::Reference {
                dskip: params.get("dskip", d, Init::Constant(1.0))?,
                wout: params.get("wout", (d, d), Init::Normal(output_std(model)))?,
            },
        };
        let harmonics = |i: usize, _: &mut _| ((i % n + 1) as f64).ln();
        Ok(Self {
            wu: params.get("wu", (rank, d), g())?,
            wdt: params.get("wdt", (d, rank), wdt)?,
            bdt: params.get("bdt", d, bdt)?,
            wb: params.get("wb", (n, d), g())?,
            wc: params.get("wc", (n, d), g())?,
            a_log: params.get("a_log", (d, n), Init::Each(&harmonics))?,
            end,
        })
    }

    /// What drives the state, and u at the rows of `cx`, where it is read.
    fn drive(&self, u: &Tensor, cx: &Cx) -> Result<(Drive, Tensor)> {
        let maps = [(&self.wu, None), (&self.wb, None)];
        let maps = project(u, &maps, &[(&self.wc, None)], cx)?;
        let drive = Drive {
            x: u.clone(),
            delta: ops::softplus_biased(&linear(&maps.everywhere[0], &self.wdt, None)?, &self.bdt)?,
            a: self.a_log.exp()?.neg()?,
            b: maps.everywhere[1].clone(),
            c: maps.read[0].clone(),
        };
        Ok((drive, maps.seen))
    }

    fn finish(&self, o: &Tensor, u: &Tensor) -> Result<Tensor> {
        match &self.end {
            End::Paper { wd } => o + (linear(u, wd, None)? * u)?,
            End::Reference { dskip, wout } => linear(&ops::add_scaled(o, u, dskip)?, wout, None),
        }
    }
}

impl Mixer for S6 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (drive, seen) = self.drive(u, cx)?;
        self.finish(&drive.scan(cx)?, &seen)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.a_log.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let (drive, _) = self.drive(&u.unsqueeze(0)?, &Cx::eval())?;
        let system = match &self.end {
            End::Paper { wd } => drive.system(None, linear(u, wd, None)?, None),
            End::Reference { dskip, wout } => {
                drive.system(None, u.ones_like()?.broadcast_mul(dskip)?, Some(wout))
            }
        };
        system.map(Some)
    }
}

impl Recurrent for S6 {
    fn init(&self, batch: usize) -> Result<State> {
        Drive::zero_state(&self.a_log, batch, self.a_log.dim(1)?)
    }

    fn step(&self, x_t: &Tensor, state: &mut State) -> Result<Tensor> {
        let u = x_t.unsqueeze(1)?;
        let (drive, _) = self.drive(&u, &Cx::eval())?;
        let o = drive.step(state)?;
        self.finish(&o, &u)?.squeeze(1)
    }
}
