//! Mamba-2 (Dao & Gu 2024): SSD at an expanded width E with one decay per head, a short convolution and SiLU over x, B
//! and C together, and a SiLU gate before an RMS norm,
//!
//! y = W_out norm((SSD(x) + D x) ⊙ silu(z)),  x, B, C = silu(conv(W u)),  z = W_z u
//!
//! With G groups, the heads of each group share one B and one C. In the models that Hugging Face's transformers can
//! load, each of G parts of the E channels has a norm of its own.

use super::gated_block::BIAS;
use super::matrix_state::flat_heads;
use super::short_conv::{ShortConv, CONV_BIAS, CONV_WIDTH};
use super::state_norm::rms_scale_of;
use super::state_space::{
    decays, mamba_dt_bias, per_channel, rule, shared_decay_core, zero_state_like, SsmInputs, DISCRETIZATION,
};
use super::{
    in_range, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State,
    StateNormPlace, NORM_EPS,
};
use crate::error::{self, refuse};
use crate::ltv::Inner;
use crate::nn::{linear, project, Cx, Init, Params, Scheme};
use crate::ops;
use crate::ops::rng::Rng;
use crate::ops::{Expression, StepRule};
use candle_core::{Error, Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "mamba2",
    equation: "y = W norm((SSD(x) + D x) ⊙ silu(z)), x, b, c = silu(conv(W u)), z = W_z u",
    cite: "Dao & Gu 2024",
    variants: &["block"],
    dsf: "N = n E, after its convolution",
    heads: true,
    multi_head: true,
    splits_n: false,
    expands: true,
    widens: true,
    released: ReleasedBlock::STATE_SPACE,
    options: &[
        MixerOption {
            name: "groups",
            help: "groups of heads, each with B and C of its own: `1`, or a number that divides --heads",
            default: |_| "1",
            accepts: |v| in_range(v, 1..=4096),
            implied: true,
            ..MixerOption::DEFAULT
        },
        DISCRETIZATION,
        CONV_WIDTH,
        CONV_BIAS,
        BIAS,
        MixerOption {
            name: "norm_groups",
            help:
                "parts of the channels that each have a norm of their own: `1` (one norm over all), or a number that \
                   divides the inner width",
            default: |_| "1",
            accepts: |v| in_range(v, 1..=1 << 20),
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            help: "ε of the norm in front of the output projection: `1e-5`, or a number between 0 and 1",
            default: |_| "1e-5",
            ..NORM_EPS
        },
        MixerOption {
            name: "dt_limit",
            help: "range LOW:HIGH that Δ is clamped to, such as 0.001:0.1; `0:inf` (no limit)",
            default: |_| "0:inf",
            accepts: |v| limits(v).is_some(),
            implied: true,
            ..MixerOption::DEFAULT
        },
    ],
    // Heads share the inner width, and d is mapped to it as a whole.
    values: |spec| Some(("the inner width", spec.inner_width())),
    check,
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Stacked {
        zeroed: &["win", "conv_b"],
        parts: |name, spec| {
            let width = spec.inner_width();
            let vectors = vec![spec.d_state; 2 * groups(spec)];
            match name {
                "win" => Some([&[2 * width], &vectors[..], &[spec.n_heads]].concat()),
                "conv_w" | "conv_b" => Some([&[width], &vectors[..]].concat()),
                _ => None,
            }
        },
    },
    stem: "mamba2",
    authors_init: Some(Scheme::Mamba),
    own_init: &["a_log", "bdt", "conv_b", "conv_w", "dskip", "norm"],
    uncounted: &["conv_w"],
    work: |spec| {
        let (d, width, n) = (spec.d_model, spec.inner_width(), spec.d_state);
        let projections = d * (3 * width + 2 * groups(spec) * n + spec.n_heads);
        Some(MixerWork::new(shared_decay_core(spec), [width, n], projections))
    },
    build: |spec, params| Ok(Box::new(Mamba2::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

/// ε of the RMS norm.
const EPS: f64 = 1e-5;

/// Groups of heads with B and C of their own, G.
fn groups(spec: &MixerSpec) -> usize {
    spec.parsed("groups").unwrap_or(1)
}

/// Parts of the channels with a norm of their own.
fn norm_groups(spec: &MixerSpec) -> usize {
    spec.parsed("norm_groups").unwrap_or(1)
}

/// Bounds of Δ, written `LOW:HIGH`.
fn limits(text: &str) -> Option<[f64; 2]> {
    let (low, high) = text.split_once(':')?;
    let (low, high): (f64, f64) = (low.parse().ok()?, high.parse().ok()?);
    (low >= 0.0 && low.is_finite() && high > low).then_some([low, high])
}

fn check(spec: &MixerSpec) -> error::Result<()> {
    let (heads, groups, parts, width) = (spec.n_heads, groups(spec), norm_groups(spec), spec.inner_width());
    if !heads.is_multiple_of(groups) {
        refuse!(flag "--option" = format!("groups={groups}"), "does not divide --heads {heads}: each group takes an equal share");
    }
    if !width.is_multiple_of(parts) {
        refuse!(flag "--option" = format!("norm_groups={parts}"), "does not divide the inner width {width} that --expand makes of --d {}: each norm takes an equal share", spec.d_model);
    }
    Ok(())
}

struct Mamba2 {
    /// Projections to z, x, B, C and Δ, stacked, `(2E + 2 G n + heads, d)`.
    win: Tensor,
    /// Their biases.
    bin: Option<Tensor>,
    conv: ShortConv,
    bdt: Tensor,
    /// ln(-A), `(heads)`.
    a_log: Tensor,
    /// D, `(heads)`.
    dskip: Tensor,
    /// Weights of the norm, `(E)`.
    norm: Tensor,
    wout: Tensor,
    bout: Option<Tensor>,
    /// Inner width E.
    width: usize,
    d_state: usize,
    heads: usize,
    /// Groups of heads, G.
    groups: usize,
    norm_groups: usize,
    norm_eps: f64,
    /// Bounds of Δ.
    dt_limit: [f64; 2],
    rule: StepRule,
}

/// Weights and biases of one projection.
type MapRows = (Tensor, Option<Tensor>);

/// Inputs of the recurrence and of the readout.
struct Mamba2Inputs {
    ssm: SsmInputs,
    /// x and the gate z at the queried positions, `(batch, rows, E)`.
    x: Tensor,
    z: Tensor,
}

impl Mamba2 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, heads, width) = (spec.d_model, spec.d_state, spec.n_heads, spec.inner_width());
        let a_log = |_: usize, rng: &mut Rng| (1.0 + 15.0 * rng.uniform()).ln();
        let groups = groups(spec);
        let (xbc, biased) = (width + 2 * groups * n, spec.has(BIAS.name));
        let rows = width + xbc + heads;
        Ok(Self {
            win: params.weight("win", (rows, d), spec.input_std)?,
            bin: biased.then(|| params.bias("bin", rows, d)).transpose()?,
            conv: ShortConv::of(spec, xbc, params)?,
            bdt: params.get("bdt", heads, Init::Each(&mamba_dt_bias))?,
            a_log: params.get("a_log", heads, Init::Each(&a_log))?,
            dskip: params.get("dskip", heads, Init::Constant(1.0))?,
            norm: params.get("norm", width, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
            bout: biased.then(|| params.bias("bout", d, width)).transpose()?,
            width,
            d_state: n,
            heads,
            groups,
            norm_groups: norm_groups(spec),
            norm_eps: spec.parsed(NORM_EPS.name).unwrap_or(EPS),
            dt_limit: spec.option("dt_limit").and_then(limits).unwrap_or([0.0, f64::INFINITY]),
            rule: rule(spec),
        })
    }

    /// Projections to z, to xBC = (x, B, C), and to Δ.
    fn projections(&self) -> Result<[MapRows; 3]> {
        let (width, xbc) = (self.width, self.width + 2 * self.groups * self.d_state);
        let parts = |t: &Tensor| ops::split(t, 0, &[width, xbc, self.heads]);
        let w = parts(&self.win)?;
        let b = self.bin.as_ref().map(parts).transpose()?;
        Ok([0, 1, 2].map(|i| (w[i].clone(), b.as_ref().map(|b| b[i].clone()))))
    }

    /// Inputs for the convolved xBC `(batch, seq_len, E + 2 G n)`, the projection dt `(batch, seq_len, heads)`, and z
    /// at the queried positions.
    fn inputs(&self, xbc: &Tensor, dt: &Tensor, z: Tensor, cx: &Cx) -> Result<Mamba2Inputs> {
        let (width, vectors) = (self.width, self.groups * self.d_state);
        let xbc = ops::silu(xbc)?;
        let parts = ops::split(&xbc, 2, &[width, vectors, vectors])?;
        let x = &parts[0];
        let delta = self.limited(ops::softplus_biased(dt, &self.bdt)?)?; // (batch, seq_len, heads)
        Ok(Mamba2Inputs {
            ssm: SsmInputs {
                delta: per_channel(&delta, width, |x| x)?,
                a: decays(&self.a_log, width)?,
                b: parts[1].clone(),
                c: cx.select(&parts[2])?,
                groups: self.groups,
                x: x.clone(),
                norm: None,
                rule: self.rule,
            },
            x: cx.select(x)?,
            z,
        })
    }

    /// Δ, clamped to its bounds where there are any.
    fn limited(&self, delta: Tensor) -> Result<Tensor> {
        let [low, high] = self.dt_limit;
        let delta = if low > 0.0 { delta.maximum(low)? } else { delta };
        if high < f64::INFINITY {
            delta.minimum(high)
        } else {
            Ok(delta)
        }
    }

    fn project(&self, u: &Tensor, cx: &Cx) -> Result<Mamba2Inputs> {
        let [xbc, dt, z] = self.maps(u, cx)?;
        self.inputs(&self.conv.forward(&xbc)?, &dt, z, cx)
    }

    /// Projections of u to xBC and dt, and to z at the queried positions.
    fn maps(&self, u: &Tensor, cx: &Cx) -> Result<[Tensor; 3]> {
        let projections = self.projections()?;
        let [z, xbc, dt] = projections.each_ref().map(|(w, b)| (w, b.as_ref()));
        let mut maps = project(u, &[xbc, dt], &[z], cx)?;
        let dt = maps.all.remove(1);
        Ok([maps.all.remove(0), dt, maps.queried.remove(0)])
    }

    /// o + D x, and its factor: the gate times the scale of the norm after it. By the groups of the norm, `(batch, rows,
    /// groups, width)` each.
    fn gated(&self, o: &Tensor, x: &Tensor, z: &Tensor) -> Result<[Expression; 2]> {
        let o = ops::add_scaled(o, x, &per_channel(&self.dskip, self.width, |x| x)?)?;
        let (batch, rows, width) = o.dims3()?;
        let (groups, width) = (self.norm_groups, width / self.norm_groups);
        let by_group = |x: &Tensor| Ok::<_, Error>(Expression::of(&ops::reshape(x, (batch, rows, groups, width))?));
        let (o, gate) = (by_group(&o)?, by_group(z)?.silu());
        let scale = rms_scale_of(&(&o * &gate), width, self.norm_eps);
        let gate = gate * scale * Expression::parameter_as(&self.norm, (groups, width));
        Ok([o, gate])
    }

    /// y `(batch, rows, d)` for o, x and z, `(batch, rows, E)` each.
    fn output(&self, o: &Tensor, x: &Tensor, z: &Tensor) -> Result<Tensor> {
        let [o, gate] = self.gated(o, x, z)?;
        linear(&flat_heads(&(o * gate).tensor()?)?, &self.wout, self.bout.as_ref())
    }
}

impl Mixer for Mamba2 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let Mamba2Inputs { ssm, x, z } = self.project(u, cx)?;
        self.output(&ssm.scan(cx)?, &x, &z)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.width * self.d_state + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let cx = Cx::eval();
        let Mamba2Inputs { ssm, x, z } = self.project(&u.unsqueeze(0)?, &cx)?;
        let [_, gate] = self.gated(&ssm.scan(&cx)?, &x, &z)?;
        let gate = flat_heads(&gate.tensor()?)?.squeeze(0)?;
        let skip = gate.broadcast_mul(&per_channel(&self.dskip, self.width, |x| x)?)?;
        let mut system = ssm.system(None, skip, Some(&self.wout))?;
        system.read = system.read.broadcast_mul(&gate.unsqueeze(2)?)?;
        Ok(Some(Inner {
            system: system.with_offset(self.bout.as_ref())?,
            input: x.squeeze(0)?,
            around:
                "driven by x = silu(conv(W_x u)), a shift register of past tokens and a nonlinearity before it; C_i \
                     and D_i hold the gate silu(W_z u), the scale of the norm, which is not linear in the state, and \
                     the output projection",
        }))
    }
}

impl Recurrent for Mamba2 {
    /// H `(batch, E, n)` and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = zero_state_like(&self.win, [batch, self.width, self.d_state])?;
        state.0.push(self.conv.window(batch)?);
        Ok(state)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [z, xbc, dt] = self.projections()?.map(|(w, b)| linear(x_t, &w, b.as_ref()));
        let (xbc, window) = self.conv.step(&xbc?, &state.0[1])?;
        let (z, xbc, dt) = (z?.unsqueeze(1)?, xbc.unsqueeze(1)?, dt?.unsqueeze(1)?);
        let Mamba2Inputs { ssm, x, z } = self.inputs(&xbc, &dt, z, &Cx::eval())?;
        let o = ssm.step(state)?;
        state.0.push(window);
        self.output(&o, &x, &z)?.squeeze(1)
    }

    fn read(&self, u: &Tensor) -> Result<(Tensor, State)> {
        let [xbc, dt, z] = self.maps(u, &Cx::eval())?;
        let window = self.conv.window_after(&xbc)?;
        let Mamba2Inputs { ssm, x, z } = self.inputs(&self.conv.forward(&xbc)?, &dt, z, &Cx::eval())?;
        let (o, mut state) = ssm.read()?;
        state.0.push(window);
        Ok((self.output(&o, &x, &z)?, state))
    }
}
