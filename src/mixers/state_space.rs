//! The driven system that the state space mixers share,
//! H_t[c,k] = e^{Δ_t[c] A[c,k]} H_{t-1}[c,k] + Δ_t[c] x_t[c] b_t[k],  o_t[c] = Σ_k H_t[c,k] c_t[k]
//! as a pass over the sequence, as one step, and as matrices.

use super::{Mixer, MixerOption, MixerSpec, Recurrent, State};
use crate::ltv::Ltv;
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
use candle_core::{Result, Tensor, D};

/// The inputs of the system: `x`, `delta` `(.., E)`, `b`, `c` `(.., n)`, all with the same leading
/// axes, and `a` `(E, n)` or `(E, 1)`, negative.
pub(super) struct Drive {
    pub x: Tensor,
    pub delta: Tensor,
    pub a: Tensor,
    pub b: Tensor,
    pub c: Tensor,
}

impl Drive {
    /// Leading axes `(batch, seq_len)`, for `c` `(batch, rows)`; gives o `(batch, rows, E)` at the
    /// positions that `cx` selects: by a selective scan where every state has a decay of its own, by chunked
    /// matrix products where the states of a channel share one.
    pub fn scan(&self, cx: &Cx) -> Result<Tensor> {
        let (Self { x, delta, a, b, c }, at) = (self, cx.rows().map(|rows| &rows.positions));
        match a.dim(1)? {
            1 => ops::ssd(x, delta, &a.squeeze(1)?, b, c, at),
            _ => ops::selective_scan(x, delta, a, b, c, at),
        }
    }

    /// Leading axes `(batch, 1)`; gives o `(batch, 1, E)` and advances the state.
    pub fn step(&self, state: &mut State) -> Result<Tensor> {
        let column = |t: &Tensor| t.squeeze(1)?.unsqueeze(2); // (batch, E, 1)
        let row = |t: &Tensor| t.squeeze(1)?.unsqueeze(1); // (batch, 1, n)
        let delta = column(&self.delta)?;
        let decay = delta.broadcast_mul(&self.a.unsqueeze(0)?)?.exp()?;
        let write = (&delta * column(&self.x)?)?.broadcast_mul(&row(&self.b)?)?;
        let h = (state.0[0].broadcast_mul(&decay)? + write)?;
        let o = h
            .broadcast_mul(&row(&self.c)?)?
            .sum(D::Minus1)?
            .unsqueeze(1)?;
        *state = State(vec![h]);
        Ok(o)
    }

    /// Leading axes `(1, seq_len)`; the matrices of (19), with x = value·u, and what is added
    /// past the state per channel, `skip` `(seq_len, E)`.
    pub fn system(
        &self,
        value: Option<&Tensor>,
        skip: Tensor,
        output: Option<&Tensor>,
    ) -> Result<Ltv> {
        let gate = self.delta.squeeze(0)?; // (seq_len, E)
        let delta = gate.unsqueeze(2)?;
        let row = |t: &Tensor| t.squeeze(0)?.unsqueeze(1); // (seq_len, 1, n)
        let write = delta.broadcast_mul(&row(&self.b)?)?;
        let decay = delta.broadcast_mul(&self.a.unsqueeze(0)?)?.exp()?;
        let decay = decay.broadcast_as(write.shape())?;
        let read = row(&self.c)?.broadcast_as(write.shape())?;
        Ok(Ltv {
            gate: Some(gate),
            value: value.cloned(),
            skip: Some(skip),
            output: output.cloned(),
            ..Ltv::new(decay, write, read)
        })
    }
}

/// A mixer that is such a system between two maps.
pub(super) trait Driven {
    /// The inputs of the system along u `(batch, seq_len, d)`, and its x at the queried positions.
    fn drive(&self, u: &Tensor, cx: &Cx) -> Result<(Drive, Tensor)>;

    /// y for o and x at the queried positions.
    fn finish(&self, o: &Tensor, x: &Tensor) -> Result<Tensor>;

    /// The weights of b, `(n, E)`.
    fn write_map(&self) -> &Tensor;

    /// The matrices around `drive` along u `(seq_len, d)`.
    fn system(&self, u: &Tensor, drive: &Drive) -> Result<Ltv>;
}

/// The state before the first token, `(batch, E, n)`, where the weights of b are `(n, E)`.
pub(super) fn zero_state(write_map: &Tensor, batch: usize) -> Result<State> {
    let (n, width) = write_map.dims2()?;
    zero_state_of(write_map, [batch, width, n])
}

/// A state of zeros of the shape `(batch, E, n)`, where and as the weights are.
pub(super) fn zero_state_of(weights: &Tensor, shape: [usize; 3]) -> Result<State> {
    let zeros = Tensor::zeros(&shape[..], weights.dtype(), weights.device())?;
    Ok(State(vec![zeros]))
}

impl<M: Driven> Mixer for M {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (drive, x) = self.drive(u, cx)?;
        self.finish(&drive.scan(cx)?, &x)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.write_map().elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let (drive, _) = self.drive(&u.unsqueeze(0)?, &Cx::eval())?;
        self.system(u, &drive).map(Some)
    }
}

impl<M: Driven> Recurrent for M {
    fn init(&self, batch: usize) -> Result<State> {
        zero_state(self.write_map(), batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (drive, x) = self.drive(&x_t.unsqueeze(1)?, &Cx::eval())?;
        self.finish(&drive.step(state)?, &x)?.squeeze(1)
    }
}

/// How the state's output o becomes the mixer's y.
pub(super) enum End {
    /// y = o + (W_D u) ⊙ u, the D_i of (4).
    Paper { wd: Tensor },
    /// y = W_out (o + dskip ⊙ u).
    Reference { dskip: Tensor, wout: Tensor },
}

impl End {
    /// Of the variant of `spec`.
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        Ok(match spec.variant {
            "paper" => Self::Paper {
                wd: params.weight("wd", (d, d), spec.input_std)?,
            },
            _ => Self::Reference {
                dskip: params.get("dskip", d, Init::Constant(1.0))?,
                wout: params.weight("wout", (d, d), spec.output_std)?,
            },
        })
    }

    /// y.
    pub fn finish(&self, o: &Tensor, u: &Tensor) -> Result<Tensor> {
        match self {
            Self::Paper { wd } => o + (linear(u, wd, None)? * u)?,
            Self::Reference { dskip, wout } => linear(&ops::add_scaled(o, u, dskip)?, wout, None),
        }
    }

    /// The matrices of `drive` with this end, along u `(seq_len, d)`.
    pub fn system(&self, u: &Tensor, drive: &Drive) -> Result<Ltv> {
        match self {
            Self::Paper { wd } => drive.system(None, linear(u, wd, None)?, None),
            Self::Reference { dskip, wout } => {
                drive.system(None, u.ones_like()?.broadcast_mul(dskip)?, Some(wout))
            }
        }
    }
}

/// How steps start, under a name that all mixers share. The released S6 and SSD start at `zero`.
pub(super) const DT_INIT: MixerOption = MixerOption {
    name: "dt_init",
    help: "initial step: `zero` (the released model) or `mamba` (1e-3 to 1e-1)",
    default: |_| "zero",
    accepts: |v| v == "zero" || v == "mamba",
    implied: true,
    ..MixerOption::DEFAULT
};

/// The initial values of a step's bias: [`DT_INIT`], resolved.
pub(super) fn step_bias(spec: &MixerSpec) -> Init<'static> {
    match spec.option(DT_INIT.name) {
        Some("mamba") => Init::Each(&mamba_step_bias),
        _ => Init::Constant(0.0),
    }
}

/// The bottleneck of the step.
pub(super) const DT_RANK: MixerOption = MixerOption {
    name: "dt_rank",
    help: "rank of the step projection: `auto` (d/16, rounded up) or a positive number",
    default: |_| "auto",
    accepts: |v| v == "auto" || v.parse::<u16>().is_ok_and(|r| r > 0),
    ..MixerOption::DEFAULT
};

/// Width of the bottleneck in front of the step: [`DT_RANK`], resolved.
pub(super) fn step_rank(spec: &MixerSpec) -> usize {
    let given = spec.option("dt_rank").and_then(|v| v.parse().ok());
    given.unwrap_or(spec.d_model.div_ceil(16))
}

/// The selection of S6: from its input x of width E, a step size per channel, through a bottleneck, and
/// the vectors b and c that write and read the state.
pub(super) struct Selective {
    wu: Tensor,
    wdt: Tensor,
    bdt: Tensor,
    /// Weights of b, `(n, E)`.
    pub wb: Tensor,
    wc: Tensor,
    /// Logarithm of minus the continuous decays, `(E, n)`.
    a_log: Tensor,
}

impl Selective {
    /// For x of `width`; step sizes start as in Mamba (1e-3 to 1e-1), or near ln 2.
    pub fn new(spec: &MixerSpec, width: usize, mamba: bool, params: &Params) -> Result<Self> {
        let n = spec.d_state;
        let rank = step_rank(spec);
        let edge = (rank as f64).powf(-0.5);
        let (wdt, bdt) = if mamba {
            (
                params.get("wdt", (width, rank), Init::Uniform(-edge, edge))?,
                params.get("bdt", width, Init::Each(&mamba_step_bias))?,
            )
        } else {
            (
                params.weight("wdt", (width, rank), spec.input_std)?,
                params.get("bdt", width, Init::Constant(0.0))?,
            )
        };
        let harmonics = |i: usize, _: &mut _| ((i % n + 1) as f64).ln();
        Ok(Self {
            wu: params.weight("wu", (rank, width), spec.input_std)?,
            wdt,
            bdt,
            wb: params.weight("wb", (n, width), spec.input_std)?,
            wc: params.weight("wc", (n, width), spec.input_std)?,
            a_log: params.get("a_log", (width, n), Init::Each(&harmonics))?,
        })
    }

    /// The inputs of the system along x `(batch, seq_len, E)`, and x at the queried positions.
    pub fn drive(&self, x: &Tensor, cx: &Cx) -> Result<(Drive, Tensor)> {
        let maps = [(&self.wu, None), (&self.wb, None)];
        let maps = project(x, &maps, &[(&self.wc, None)], cx)?;
        let drive = Drive {
            x: x.clone(),
            delta: ops::softplus_biased(&linear(&maps.all[0], &self.wdt, None)?, &self.bdt)?,
            a: self.a_log.exp()?.neg()?,
            b: maps.all[1].clone(),
            c: maps.queried[0].clone(),
        };
        Ok((drive, maps.selected))
    }
}

/// Mamba's initial step bias: softplus of it is log-uniform on [1e-3, 1e-1].
pub(super) fn mamba_step_bias(_index: usize, rng: &mut Rng) -> f64 {
    let (low, high) = (1e-3_f64.ln(), 1e-1_f64.ln());
    let dt = (low + (high - low) * rng.uniform()).exp().max(1e-4);
    dt + (-(-dt).exp_m1()).ln()
}
