//! Selective state space model, the recurrence that S6, SSD and both Mambas share, for channel c and state k,
//!
//! H_t[c,k] = e^{Δ_t[c] A[c,k]} H_{t-1}[c,k] + Δ_t[c] x_t[c] B_t[k],  o_t[c] = Σ_k H_t[c,k] C_t[k]
//!
//! The decay and the factor Δ of the input are those of the released models; the option `discretization` replaces them
//! by those of another rule.
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | H | state, E channels by n states | `(batch, E, n)` |
//! | x, Δ | input and step size | `(batch, seq_len, E)` |
//! | A | continuous-time decay, negative; one per channel in SSD | `(E, n)`, `(E, 1)` |
//! | B, C | input and output vectors, one pair for each group of channels | `(batch, seq_len, groups · n)` |

use super::state_norm::{rms_scale, StateNorm};
use super::{Core, Mixer, MixerOption, MixerSpec, Recurrent, State, NORM_EPS};
use crate::ltv::Ltv;
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
use crate::ops::{Expression, StepRule};
use candle_core::{Result, Tensor, D};

/// Inputs of the recurrence.
pub(super) struct SsmInputs {
    /// Input `(batch, seq_len, E)`.
    pub x: Tensor,
    /// Step size Δ, `(batch, seq_len, E)`.
    pub delta: Tensor,
    /// Continuous-time decay A, negative: one per state, `(E, n)`, or one per channel, `(E, 1)`.
    pub a: Tensor,
    /// Input vectors B of all groups of channels, `(batch, seq_len, groups · n)`.
    pub b: Tensor,
    /// Output vectors C, `(batch, rows, groups · n)`.
    pub c: Tensor,
    /// Groups of channels, each of which has B and C of its own; 1 but for Mamba-2.
    pub groups: usize,
    /// RMS norm of o.
    pub norm: Option<StateNorm>,
    /// Discretisation of A and B by Δ.
    pub rule: StepRule,
}

/// A function of x `(.., heads)`, repeated for each of `width` channels, which the heads share equally: `(.., width)`.
pub fn per_channel(x: &Tensor, width: usize, of: impl FnOnce(Expression) -> Expression) -> Result<Tensor> {
    let (mut by_head, heads) = (x.dims().to_vec(), x.dim(D::Minus1)?);
    by_head.push(1);
    let x = ops::reshape(x, by_head.as_slice())?;
    by_head[x.rank() - 1] = width / heads;
    let wide = of(Expression::of(&x)).broadcast(by_head.as_slice()).tensor()?;
    by_head.truncate(x.rank() - 2);
    by_head.push(width);
    ops::reshape(&wide, by_head)
}

/// A = -e^(ln a) `(width, 1)` for ln a `(heads)`.
pub fn decays(a_log: &Tensor, width: usize) -> Result<Tensor> {
    ops::reshape(&per_channel(a_log, width, |x| -x.exp())?, (width, 1))
}

impl SsmInputs {
    /// o `(batch, rows, E)` at the positions that `cx` selects: by a selective scan where every state has its own
    /// decay, by chunked matrix products (SSD) where the states of a channel share one. These sum logarithms of decays,
    /// so that they take none of the bilinear rule, which may be negative.
    pub fn scan(&self, cx: &Cx) -> Result<Tensor> {
        let (Self { delta, a, b, c, groups, rule, .. }, at) = (self, cx.rows().map(|rows| &rows.positions));
        let n = b.dim(2)? / groups;
        let scan = |x: &Tensor, delta: &Tensor, a: &Tensor, b: &Tensor, c: &Tensor| match (a.dim(1)?, rule) {
            (1, StepRule::Euler | StepRule::Hold) => ops::ssd(x, delta, &ops::reshape(a, a.dim(0)?)?, b, c, at),
            (1, StepRule::Bilinear) => {
                let a = a.broadcast_as((a.dim(0)?, n))?.contiguous()?;
                ops::discretised_scan(*rule, [x, delta, &a, b, c], at)
            }
            _ => ops::discretised_scan(*rule, [x, delta, a, b, c], at),
        };
        let x = &self.driving()?;
        if *groups == 1 {
            return self.normed(scan(x, delta, a, b, c)?);
        }
        let each = (0..*groups).map(|group| {
            let part = |t: &Tensor, axis: usize| {
                let share = t.dim(axis)? / groups;
                t.narrow(axis, group * share, share)?.contiguous()
            };
            scan(&part(x, 2)?, &part(delta, 2)?, &part(a, 0)?, &part(b, 2)?, &part(c, 2)?)
        });
        self.normed(Tensor::cat(&each.collect::<Result<Vec<_>>>()?, 2)?)
    }

    /// x in the form that the op for the recurrence takes. If the states of a channel share a decay, the zero-order hold
    /// is Euler's rule for the input x φ₁(Δ A), φ₁(z) = (e^z - 1)/z.
    fn driving(&self) -> Result<Tensor> {
        if self.rule != StepRule::Hold || self.a.dim(1)? != 1 {
            return Ok(self.x.clone());
        }
        let a = self.a.squeeze(1)?.to_dtype(self.delta.dtype())?;
        &self.x * ops::phi1(&self.delta.broadcast_mul(&a)?)?
    }

    /// B or C `(rows, groups · n)` for each channel: `(rows, E, n)`, or `(rows, 1, n)` where all share it.
    fn for_channels(&self, t: &Tensor) -> Result<Tensor> {
        let (rows, width) = t.dims2()?;
        if self.groups == 1 {
            return t.unsqueeze(1);
        }
        let (channels, n) = (self.x.dim(D::Minus1)?, width / self.groups);
        let wide = t.reshape((rows, self.groups, 1, n))?;
        let wide = wide.broadcast_as((rows, self.groups, channels / self.groups, n))?;
        wide.contiguous()?.reshape((rows, channels, n))
    }

    /// o `(batch, seq_len, E)` of whole sequences, and H after them. H is read by n further tokens, which leave it as
    /// it is since their Δ is 0, and whose C are the unit vectors.
    pub fn read(&self) -> Result<(Tensor, State)> {
        let (batch, seq_len, _) = self.x.dims3()?;
        let vectors = self.c.dim(2)?;
        let n = vectors / self.groups;
        let longer = |t: &Tensor| {
            let zeros = Tensor::zeros((batch, n, t.dim(2)?), t.dtype(), t.device())?;
            Tensor::cat(&[t, &zeros], 1)
        };
        let units = Tensor::eye(n, self.c.dtype(), self.c.device())?.repeat((1, self.groups))?;
        let units = units.unsqueeze(0)?.broadcast_as((batch, n, vectors))?.contiguous()?;
        let o = Self {
            x: longer(&self.x)?,
            delta: longer(&self.delta)?,
            a: self.a.clone(),
            b: longer(&self.b)?,
            c: Tensor::cat(&[&self.c, &units], 1)?,
            groups: self.groups,
            norm: None,
            rule: self.rule,
        }
        .scan(&Cx::eval())?;
        let h = o.narrow(1, seq_len, n)?.transpose(1, 2)?.contiguous()?.to_dtype(self.a.dtype())?;
        Ok((self.normed(o.narrow(1, 0, seq_len)?.contiguous()?)?, State::new(vec![h])))
    }

    /// o `(batch, rows, E)` after its norm, if there is one.
    fn normed(&self, o: Tensor) -> Result<Tensor> {
        match &self.norm {
            Some(norm) => norm.forward(&o),
            None => Ok(o),
        }
    }

    /// o `(batch, 1, E)` of one token; advances H, the only tensor of the state.
    pub fn step(&self, state: &mut State) -> Result<Tensor> {
        let column = |t: &Tensor| t.squeeze(1)?.unsqueeze(2); // (batch, E, 1)
        let row = |t: &Tensor| self.for_channels(&t.squeeze(1)?); // (batch, 1 or E, n)
        let [a_bar, scale] = self.rule.discretise(&column(&self.delta)?, &self.a.unsqueeze(0)?)?; // (batch, E, n or 1)
        let bx = scale.broadcast_mul(&column(&self.x)?)?.broadcast_mul(&row(&self.b)?)?; // (batch, E, n)
        let h = (state.0[0].broadcast_mul(&a_bar)? + bx)?;
        let o = h.broadcast_mul(&row(&self.c)?)?.sum(D::Minus1)?.unsqueeze(1)?;
        *state = State::new(vec![h]);
        self.normed(o)
    }

    /// The system (19) along one sequence, without the norm, where x = `value` · u and `skip` `(seq_len, E)` is the
    /// diagonal of D. Its gate is the factor of B, or Δ where the states of a channel have different factors.
    pub fn system(&self, value: Option<&Tensor>, skip: Tensor, output: Option<&Tensor>) -> Result<Ltv> {
        let delta = self.delta.squeeze(0)?; // (seq_len, E)
        let [decay, scale] = self.rule.discretise(&delta.unsqueeze(2)?, &self.a.unsqueeze(0)?)?;
        let gate = if scale.dim(2)? == 1 { scale.squeeze(2)? } else { delta };
        let row = |t: &Tensor| self.for_channels(&t.squeeze(0)?); // (seq_len, 1 or E, n)
        let write = scale.broadcast_mul(&row(&self.b)?)?;
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

/// A mixer that is this recurrence between two linear maps.
pub(super) trait SsmMixer {
    /// Inputs of the recurrence along u `(batch, seq_len, d)`, and x at the queried positions.
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<(SsmInputs, Tensor)>;

    /// y `(batch, rows, d)` for o and x `(batch, rows, E)`.
    fn output(&self, o: &Tensor, x: &Tensor) -> Result<Tensor>;

    /// Projection to B, `(n, E)`.
    fn b_proj(&self) -> &Tensor;

    /// The system along u `(seq_len, d)`.
    fn system(&self, u: &Tensor, inputs: &SsmInputs) -> Result<Ltv>;
}

/// Initial state of zeros, `(batch, E, n)`, for the projection to B `(n, E)`.
pub(super) fn zero_state(b_proj: &Tensor, batch: usize) -> Result<State> {
    let (n, width) = b_proj.dims2()?;
    zero_state_like(b_proj, [batch, width, n])
}

/// State of zeros of the shape `(batch, E, n)`, of the dtype and on the device of `like`.
pub(super) fn zero_state_like(like: &Tensor, shape: [usize; 3]) -> Result<State> {
    let zeros = Tensor::zeros(&shape[..], like.dtype(), like.device())?;
    Ok(State::new(vec![zeros]))
}

impl<M: SsmMixer> Mixer for M {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (inputs, x) = self.project(u, cx)?;
        self.output(&inputs.scan(cx)?, &x)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.b_proj().elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let (inputs, _) = self.project(&u.unsqueeze(0)?, &Cx::eval())?;
        self.system(u, &inputs).map(Some)
    }
}

impl<M: SsmMixer> Recurrent for M {
    fn init(&self, batch: usize) -> Result<State> {
        zero_state(self.b_proj(), batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (inputs, x) = self.project(&x_t.unsqueeze(1)?, &Cx::eval())?;
        self.output(&inputs.step(state)?, &x)?.squeeze(1)
    }

    fn read(&self, u: &Tensor) -> Result<(Tensor, State)> {
        let (inputs, x) = self.project(u, &Cx::eval())?;
        let (o, state) = inputs.read()?;
        Ok((self.output(&o, &x)?, state))
    }
}

/// Map from the output o of the state to y.
pub(super) enum OutputHead {
    /// y = o + (W_D u) ⊙ u, the D_i of (4).
    Paper { wd: Tensor },
    /// y = W_out (o + D ⊙ u), D = `dskip`.
    Reference { dskip: Tensor, wout: Tensor },
}

impl OutputHead {
    /// Head of the variant of `spec`.
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        Ok(match spec.variant {
            "paper" => Self::Paper { wd: params.weight("wd", (d, d), spec.input_std)? },
            _ => Self::Reference {
                dskip: params.get("dskip", d, Init::Constant(1.0))?,
                wout: params.weight("wout", (d, d), spec.output_std)?,
            },
        })
    }

    /// y for o and u, `(.., d)` each.
    pub fn forward(&self, o: &Tensor, u: &Tensor) -> Result<Tensor> {
        match self {
            Self::Paper { wd } => o + (linear(u, wd, None)? * u)?,
            Self::Reference { dskip, wout } => linear(&ops::add_scaled(o, u, dskip)?, wout, None),
        }
    }

    /// The system of `inputs` with this head, along u `(seq_len, d)`.
    pub fn system(&self, u: &Tensor, inputs: &SsmInputs) -> Result<Ltv> {
        match self {
            Self::Paper { wd } => inputs.system(None, linear(u, wd, None)?, None),
            Self::Reference { dskip, wout } => inputs.system(None, u.ones_like()?.broadcast_mul(dskip)?, Some(wout)),
        }
    }
}

/// Initialisation of Δ, an option of the same name in every mixer that has it. The released S6 and SSD start at `zero`.
pub(super) const DT_INIT: MixerOption = MixerOption {
    name: "dt_init",
    help: "initial Δ: `zero` (zero bias, as in the released model) or `mamba` (log-uniform, 1e-3 to 1e-1)",
    default: |_| "zero",
    accepts: |v| v == "zero" || v == "mamba",
    implied: true,
    ..MixerOption::DEFAULT
};

/// Initial values of the bias of Δ: [`DT_INIT`], resolved.
pub(super) fn dt_bias(spec: &MixerSpec) -> Init<'static> {
    match spec.option(DT_INIT.name) {
        Some("mamba") => Init::Each(&mamba_dt_bias),
        _ => Init::Constant(0.0),
    }
}

/// Discretisation of A and B by Δ.
pub(super) const DISCRETIZATION: MixerOption = MixerOption {
    name: "discretization",
    help:
        "rule by which Δ makes A and B discrete: `euler` (Ā = e^(Δ A), B̄ = Δ B, as released), `zoh` (zero-order hold: \
           Ā = e^(Δ A), B̄ = (e^(Δ A) - 1)/A B) or `bilinear` (Ā = (1 + Δ A/2)/(1 - Δ A/2), B̄ = Δ B/(1 - Δ A/2))",
    default: |_| "euler",
    accepts: |v| RULES.iter().any(|(name, _)| *name == v),
    implied: true,
    ..MixerOption::DEFAULT
};

/// Rules by their name in [`DISCRETIZATION`].
const RULES: [(&str, StepRule); 3] =
    [("euler", StepRule::Euler), ("zoh", StepRule::Hold), ("bilinear", StepRule::Bilinear)];

/// [`DISCRETIZATION`], resolved.
pub(super) fn rule(spec: &MixerSpec) -> StepRule {
    let chosen = spec.option(DISCRETIZATION.name);
    RULES.iter().find(|(name, _)| chosen == Some(name)).map_or(StepRule::Euler, |(_, rule)| *rule)
}

/// Op that computes the recurrence where the states of a channel share a decay.
pub(super) fn shared_decay_core(spec: &MixerSpec) -> Core {
    match rule(spec) {
        StepRule::Euler | StepRule::Hold => Core::ChunkedScan,
        StepRule::Bilinear => Core::SelectiveScan,
    }
}

/// Rank of the projection to Δ.
pub(super) const DT_RANK: MixerOption = MixerOption {
    name: "dt_rank",
    help: "rank of the projection to Δ: `auto` (d/16, rounded up) or a positive number",
    default: |_| "auto",
    accepts: |v| v == "auto" || v.parse::<u16>().is_ok_and(|r| r > 0),
    ..MixerOption::DEFAULT
};

/// Rank of the projection to Δ: [`DT_RANK`], resolved.
pub(super) fn dt_rank(spec: &MixerSpec) -> usize {
    spec.parsed("dt_rank").unwrap_or(spec.d_model.div_ceil(16))
}

/// Norm of B, C and the low-rank Δ.
pub(super) const BCDT_NORM: MixerOption = MixerOption {
    name: "bcdt_norm",
    help:
        "norm of B, C and the low-rank projection to Δ: `none` or `rms` (RMS norm without weights, as in Falcon-Mamba)",
    default: |_| "none",
    accepts: |v| v == "none" || v == "rms",
    implied: true,
    ..MixerOption::DEFAULT
};

/// ε of [`BCDT_NORM`].
pub(super) const BCDT_NORM_EPS: MixerOption = MixerOption {
    help: "ε of the norm that bcdt_norm=rms sets: `1e-6`, or a number between 0 and 1",
    default: |_| "1e-6",
    ..NORM_EPS
};

/// Projections of S6 from its input x `(.., E)` to the data-dependent Δ, B and C.
pub(super) struct SelectiveProjection {
    /// Low-rank projection to Δ: `wu` `(rank, E)`, then `wdt` `(E, rank)` with the bias `bdt` `(E)`.
    wu: Tensor,
    wdt: Tensor,
    bdt: Tensor,
    /// Projection to B, `(n, E)`.
    pub wb: Tensor,
    /// Projection to C, `(n, E)`.
    wc: Tensor,
    /// ln(-A), `(E, n)`.
    a_log: Tensor,
    /// ε of the RMS norm of B, C and the low-rank Δ, if they have one.
    bcdt_eps: Option<f64>,
    pub norm: Option<StateNorm>,
    rule: StepRule,
}

impl SelectiveProjection {
    /// Projections of x of `width` channels. Δ starts as in Mamba (1e-3 to 1e-1), or near ln 2.
    pub fn new(spec: &MixerSpec, width: usize, mamba: bool, params: &Params) -> Result<Self> {
        let n = spec.d_state;
        let rank = dt_rank(spec);
        let edge = (rank as f64).powf(-0.5);
        let (wdt, bdt) = if mamba {
            (
                params.map("wdt", (width, rank), Init::Uniform(-edge, edge))?,
                params.get("bdt", width, Init::Each(&mamba_dt_bias))?,
            )
        } else {
            (params.weight("wdt", (width, rank), spec.input_std)?, params.get("bdt", width, Init::Constant(0.0))?)
        };
        let a_log = |i: usize, _: &mut _| ((i % n + 1) as f64).ln();
        Ok(Self {
            wu: params.weight("wu", (rank, width), spec.input_std)?,
            wdt,
            bdt,
            wb: params.weight("wb", (n, width), spec.input_std)?,
            wc: params.weight("wc", (n, width), spec.input_std)?,
            a_log: params.get("a_log", (width, n), Init::Each(&a_log))?,
            bcdt_eps: match spec.option(BCDT_NORM.name) {
                Some("rms") => Some(spec.parsed(BCDT_NORM_EPS.name).unwrap_or(1e-6)),
                _ => None,
            },
            norm: StateNorm::new(spec, width, params)?,
            rule: rule(spec),
        })
    }

    /// B, C or the low-rank Δ after its norm, if there is one.
    fn normed(&self, x: &Tensor) -> Result<Tensor> {
        match self.bcdt_eps {
            Some(eps) => x.broadcast_mul(&rms_scale(x, eps)?),
            None => Ok(x.clone()),
        }
    }

    /// Inputs of the recurrence along x `(batch, seq_len, E)`, and x at the queried positions.
    pub fn project(&self, x: &Tensor, cx: &Cx) -> Result<(SsmInputs, Tensor)> {
        let maps = [(&self.wu, None), (&self.wb, None)];
        let maps = project(x, &maps, &[(&self.wc, None)], cx)?;
        let inputs = SsmInputs {
            x: x.clone(),
            delta: ops::softplus_biased(&linear(&self.normed(&maps.all[0])?, &self.wdt, None)?, &self.bdt)?,
            a: (-Expression::of(&self.a_log).exp()).tensor()?,
            b: self.normed(&maps.all[1])?,
            c: self.normed(&maps.queried[0])?,
            groups: 1,
            norm: self.norm.clone(),
            rule: self.rule,
        };
        Ok((inputs, maps.selected))
    }
}

/// Initial bias of Δ in Mamba, whose softplus is log-uniform on [1e-3, 1e-1].
pub(super) fn mamba_dt_bias(_index: usize, rng: &mut Rng) -> f64 {
    let (low, high) = (1e-3_f64.ln(), 1e-1_f64.ln());
    let dt = (low + (high - low) * rng.uniform()).exp().max(1e-4);
    dt + (-(-dt).exp_m1()).ln()
}

#[cfg(test)]
mod tests {
    use crate::mixers::{find, Mixer, MixerSpec};
    use crate::nn::{Cx, Params};
    use crate::recipes;
    use candle_core::{DType, Device, Tensor};

    /// Mixers with the option, with sizes that they all take.
    const ALL: [(&str, &str); 6] = [
        ("s6", "reference"),
        ("s6", "paper"),
        ("ssd", "reference"),
        ("ssd-mamba2", "mamba2"),
        ("mamba", "block"),
        ("mamba2", "block"),
    ];

    fn fresh([mixer, variant, rule]: [&str; 3], params: &Params) -> Box<dyn Mixer> {
        let option = format!("discretization={rule}");
        let settings = [("preset", "smoke"), ("mixer", mixer), ("variant", variant), ("option", &option)];
        let model = recipes::run("mqar", &settings).unwrap().model;
        let mixer = find(mixer).unwrap().build(MixerSpec::from(&model), params).unwrap();
        for (name, var) in params.vars() {
            // Rates large enough that steps of ln 2 tell the rules apart, and bilinear decays of both signs.
            if name == "a_log" {
                var.set(&(var.as_tensor() + 1.3).unwrap()).unwrap();
            }
        }
        mixer
    }

    fn largest(x: &Tensor) -> f64 {
        x.abs().unwrap().max_all().unwrap().to_dtype(DType::F64).unwrap().to_scalar().unwrap()
    }

    #[test]
    fn euler_is_implied_and_leaves_no_trace_in_configs() {
        let of = |settings: &[(&str, &str)]| recipes::run("mqar", settings).unwrap();
        for (mixer, variant) in ALL {
            let plain = [("preset", "smoke"), ("mixer", mixer), ("variant", variant)];
            let spelled = [plain[0], plain[1], plain[2], ("option", "discretization=euler")];
            let other = [plain[0], plain[1], plain[2], ("option", "discretization=zoh")];
            assert_eq!(of(&plain).id(), of(&spelled).id(), "{mixer}");
            assert!(!of(&plain).model.options.contains_key("discretization"), "{mixer}");
            assert_ne!(of(&plain).id(), of(&other).id(), "{mixer}");
        }
    }

    /// The pass over a sequence, the steps, the state that `read` returns, and the system; and rules that differ.
    #[test]
    fn under_every_rule_all_forms_are_one_map() {
        let u = Tensor::randn(0.0, 1.0, (2, 11, 16), &Device::Cpu).unwrap();
        for (name, variant) in ALL {
            let mut outputs: Vec<Tensor> = Vec::new();
            for rule in ["euler", "zoh", "bilinear"] {
                let params = Params::seeded(1, DType::F64, &Device::Cpu);
                let mixer = fresh([name, variant, rule], &params);
                let y = mixer.forward(&u, &Cx::eval()).unwrap();
                let recurrent = mixer.recurrent().unwrap();
                let (stepped, state) = recurrent.read_by_steps(&u).unwrap();
                let (read, same) = recurrent.read(&u).unwrap();
                let mut apart = vec![(&y - &stepped).unwrap(), (&y - &read).unwrap()];
                apart.extend(state.0.iter().zip(&same.0).map(|(a, b)| (a - b).unwrap()));
                let along = u.get(0).unwrap();
                if let Some(system) = mixer.ltv(&along).unwrap() {
                    apart.push((system.run(&along).unwrap() - y.get(0).unwrap()).unwrap());
                } else {
                    let inner = mixer.inner(&along).unwrap().unwrap();
                    apart.push((inner.system.run(&inner.input).unwrap() - y.get(0).unwrap()).unwrap());
                }
                assert!(apart.iter().all(|x| largest(x) < 1e-12), "{name} {rule}");
                assert!(
                    outputs.iter().all(|other| largest(&(other - &y).unwrap()) > 1e-8 * largest(&y)),
                    "{name} {rule}"
                );
                outputs.push(y);
            }
        }
    }

    /// The kernels of a GPU, emulated, in bf16, against f64 on the CPU.
    #[test]
    fn every_rule_runs_on_a_gpu() {
        let u = Tensor::randn(0.0, 1.0, (2, 9, 16), &Device::Cpu).unwrap();
        for (mixer, variant) in ALL {
            for rule in ["zoh", "bilinear"] {
                let [wide, narrow] = [DType::F64, DType::F32].map(|dtype| Params::seeded(1, dtype, &Device::Cpu));
                let narrow = narrow.for_activations(DType::BF16);
                let y = fresh([mixer, variant, rule], &wide).forward(&u, &Cx::eval()).unwrap();
                let built = fresh([mixer, variant, rule], &narrow);
                let half = u.to_dtype(DType::BF16).unwrap();
                let got = dsf_emulation::emulated(|| built.forward(&half, &Cx::eval()).unwrap());
                let apart = largest(&(got.to_dtype(DType::F64).unwrap() - &y).unwrap());
                assert!(apart < 0.05 * largest(&y), "{mixer} {variant} {rule}: {apart:e}");
            }
        }
    }
}
