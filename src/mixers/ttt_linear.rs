//! TTT-Linear (Sun et al. 2024): the state is the weights of a linear model, which a step of gradient descent on each token's
//! own reconstruction error trains as the sequence is read. Gradients are taken at the weights before the mini-batch of a token, so
//! that the tokens of a mini-batch need no loop. Without the norm in the model, and with mini-batches of one token, it is the delta rule.

use super::attention::accumulate;
use super::rotary::RotaryEmbedding;
use super::{
    Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State,
};
use crate::nn::{linear, linears, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "ttt-linear",
    equation: "W_i = W_0 - t_i Σ_j η_j ∇|k_j + LN(k_j W_0) - v_j|²/2, y_i = q_i + LN(q_i W_i)",
    cite: "Sun et al. 2024",
    dsf: "no (a norm in its update)",
    heads: true,
    options: &[MixerOption {
        name: "mini_batch",
        help: "tokens whose gradients are taken at the same weights: `16` as published, from 1 to 4096",
        default: |_| "16",
        accepts: |v| v.parse::<usize>().is_ok_and(|tokens| (1..=4096).contains(&tokens)),
        short: Some("3"),
        ..MixerOption::DEFAULT
    }],
    growth: Growth::No("it has no state expansion"),
    stem: "ttt_linear",
    own_init: &["binner", "bnorm", "bpost", "inner", "norm", "post", "steps"],
    // Norms over a head of few channels amplify it.
    f32_rounding: 4.0,
    work: |spec| {
        let d = spec.d_model;
        let sizes = [d, d / spec.n_heads];
        Some(MixerWork::new(Core::MatrixScan, sizes, 4 * d * d + spec.n_heads * d))
    },
    build: |spec, params| Ok(Box::new(TttLinear::new(spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// Added to variances in both norms.
const EPS: f64 = 1e-6;

fn mini_batch(spec: &MixerSpec) -> usize {
    let given = spec
        .option("mini_batch")
        .and_then(|tokens| tokens.parse().ok());
    given.unwrap_or(16)
}

struct TttLinear {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    /// To the learning rate of a token before its sigmoid, one a head.
    wlr: Tensor,
    blr: Tensor,
    /// Added to 1/i, the factor of the i-th token of a mini-batch.
    steps: Tensor,
    /// The model of every head before the first token, `(heads, e, e)` and, heads side by side, `(d)`.
    inner: [Tensor; 2],
    /// Of the norm in the model, heads side by side, `(d)` each.
    norm: [Tensor; 2],
    /// Of a norm that neither scales nor shifts, `(e)` each, in the type of parameters.
    plain: [Tensor; 2],
    /// Of the norm behind all heads, `(d)` each.
    post: [Tensor; 2],
    wout: Tensor,
    rotary: RotaryEmbedding,
    heads: usize,
    /// Values a head, e.
    width: usize,
}

/// Queries, keys and values of some tokens, `(batch, tokens, d)`, and their learning rates, `(batch, tokens, heads)`.
type Maps = [Tensor; 4];

/// The same by heads, `(batch, heads, tokens, e)` and `(batch, heads, tokens, 1)`.
struct Tokens {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rate: Tensor,
}

/// What a norm knows of its input: the input with mean 0 and variance 1, and one over its standard deviation.
struct Normed {
    unit: Tensor,
    inverse: Tensor,
}

impl Normed {
    fn of(z: &Tensor) -> Result<Self> {
        let centred = z.broadcast_sub(&z.mean_keepdim(D::Minus1)?)?;
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
        let inverse = (variance + EPS)?.sqrt()?.recip()?;
        Ok(Self {
            unit: centred.broadcast_mul(&inverse)?,
            inverse,
        })
    }
}

impl TttLinear {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, heads) = (spec.d_model, spec.n_heads);
        let width = d / heads;
        let square = |name| params.weight(name, (d, d), spec.input_std);
        let constant = |name, of| params.get(name, d, Init::Constant(of));
        let norm = [constant("norm", 1.0)?, constant("bnorm", 0.0)?];
        let one = Tensor::ones(width, norm[0].dtype(), norm[0].device())?;
        Ok(Self {
            wq: square("wq")?,
            wk: square("wk")?,
            wv: square("wv")?,
            wlr: params.weight("wlr", (heads, d), spec.input_std)?,
            blr: params.bias("blr", heads, d)?,
            steps: params.get("steps", mini_batch(spec), Init::Constant(0.0))?,
            inner: [
                params.get("inner", (heads, width, width), Init::Normal(0.02))?,
                constant("binner", 0.0)?,
            ],
            norm,
            plain: [one.clone(), one.zeros_like()?],
            post: [constant("post", 1.0)?, constant("bpost", 0.0)?],
            wout: params.weight("wout", (d, d), spec.output_std)?,
            rotary: RotaryEmbedding::over(heads, width),
            heads,
            width,
        })
    }

    fn mini_batch(&self) -> usize {
        self.steps.elem_count()
    }

    /// The maps of x `(batch, seq_len, d)`, whose first token is token `first` of its mini-batch.
    fn maps(&self, x: &Tensor, first: usize) -> Result<Maps> {
        let (batch, len, _) = x.dims3()?;
        let maps = linears(x, &[(&self.wq, None), (&self.wk, None), (&self.wv, None)])?;
        let at = (0..len).map(|t| ((first + t) % self.mini_batch()) as u32);
        let at = Tensor::from_vec(at.collect::<Vec<_>>(), (1, len), x.device())?;
        let at = at.broadcast_as((batch, len))?.contiguous()?;
        let rate = ops::sigmoid(&linear(x, &self.wlr, Some(&self.blr))?)?;
        let rotated = |x| self.rotary.rotate(x, Some(&at));
        let [q, k] = [rotated(&maps[0])?, rotated(&maps[1])?];
        Ok([q, k, maps[2].clone(), (rate / self.width as f64)?])
    }

    fn by_heads(&self, [q, k, v, rate]: [&Tensor; 4]) -> Result<Tokens> {
        let split = |x: &Tensor| {
            let (batch, len, width) = x.dims3()?;
            let by_heads = x.reshape((batch, len, self.heads, width / self.heads))?;
            by_heads.transpose(1, 2)?.contiguous()
        };
        Ok(Tokens {
            q: split(q)?,
            k: split(k)?,
            v: split(v)?,
            rate: split(rate)?,
        })
    }

    /// The mini-batches of `maps`, the last of which may be short.
    fn mini_batches(&self, maps: &Maps) -> Result<Vec<Tokens>> {
        let (batch, len, _) = maps[0].dims3()?;
        let size = self.mini_batch();
        let whole = len / size;
        let cut = |x: &Tensor| -> Result<Vec<Tensor>> {
            let mut parts = Vec::new();
            if whole > 0 {
                // Slices would each have a gradient as long as the sequence.
                let width = x.dim(2)?;
                let all = x.narrow(1, 0, whole * size)?.contiguous()?;
                let all = all.reshape((batch, whole, size * width))?;
                for part in ops::time_steps(&all)? {
                    parts.push(part.reshape((batch, size, width))?);
                }
            }
            if whole * size < len {
                parts.push(x.narrow(1, whole * size, len - whole * size)?);
            }
            Ok(parts)
        };
        let [q, k, v, rate] = maps;
        let [q, k, v, rate] = [cut(q)?, cut(k)?, cut(v)?, cut(rate)?];
        let each = (0..q.len()).map(|i| self.by_heads([&q[i], &k[i], &v[i], &rate[i]]));
        each.collect()
    }

    /// The factors of the tokens of a mini-batch, `(tokens, 1)`.
    fn factors(&self, like: &Tensor) -> Result<Tensor> {
        let count = self.mini_batch();
        let given = (1..=count).map(|i| 1.0 / i as f64).collect();
        let given = Tensor::from_vec(given, count, like.device())?.to_dtype(self.steps.dtype())?;
        (given + &self.steps)?
            .relu()?
            .to_dtype(like.dtype())?
            .unsqueeze(1)
    }

    /// A parameter `(d)` beside `(batch, heads, tokens, e)`.
    fn per_head(&self, x: &Tensor, like: &Tensor) -> Result<Tensor> {
        x.to_dtype(like.dtype())?
            .reshape((1, self.heads, 1, self.width))
    }

    /// η ∇ of every token by the output of the model w, b: the gradient of its norm's error, by hand.
    fn gradients(&self, of: &Tokens, [w, b]: [&Tensor; 2]) -> Result<Tensor> {
        let Normed { unit, inverse } = Normed::of(&ops::matmul(&of.k, w)?.broadcast_add(b)?)?;
        let [gamma, beta] = [&self.norm[0], &self.norm[1]];
        let gamma = self.per_head(gamma, &unit)?;
        let model = unit
            .broadcast_mul(&gamma)?
            .broadcast_add(&self.per_head(beta, &unit)?)?;
        let by_unit = (model - (&of.v - &of.k)?)?.broadcast_mul(&gamma)?;
        let along = (&by_unit * &unit)?.mean_keepdim(D::Minus1)?;
        let centred = by_unit.broadcast_sub(&by_unit.mean_keepdim(D::Minus1)?)?;
        let by_output = (centred - unit.broadcast_mul(&along)?)?.broadcast_mul(&inverse)?;
        by_output.broadcast_mul(&of.rate)
    }

    /// q + LN(z) `(batch, heads, tokens, e)`.
    fn read(&self, q: &Tensor, z: &Tensor) -> Result<Tensor> {
        let [one, zero] = &self.plain;
        let unit = ops::layer_norm(z, one, zero, EPS)?;
        let normed = unit.broadcast_mul(&self.per_head(&self.norm[0], &unit)?)?;
        q + normed.broadcast_add(&self.per_head(&self.norm[1], &unit)?)?
    }

    /// y of a mini-batch, or of the first tokens of one; moves the model w, b behind it if it is whole.
    fn learn(&self, of: &Tokens, [w, b]: [&mut Tensor; 2]) -> Result<Tensor> {
        let count = of.k.dim(2)?;
        let g = self.gradients(of, [w, b])?;
        let factors = self.factors(&g)?.narrow(0, 0, count)?;
        let past = lower_triangle(count, &g)?.broadcast_mul(&factors)?;
        let keys = of.k.t()?.contiguous()?;
        // A bias is the weight of a key that is always 1.
        let met = (ops::matmul(&of.q, &keys)? + 1.0)?.broadcast_mul(&past)?;
        let z = (ops::matmul(&of.q, w)?.broadcast_add(b)? - ops::matmul(&met, &g)?)?;
        if count == self.mini_batch() {
            let g = g.broadcast_mul(&factors.narrow(0, count - 1, 1)?)?;
            *b = b.broadcast_sub(&g.sum_keepdim(2)?)?;
            *w = (&*w - ops::matmul(&keys, &g)?)?;
        }
        self.read(&of.q, &z)
    }

    /// The model before the first token, for every sequence.
    fn start(&self, batch: usize, like: &Tensor) -> Result<[Tensor; 2]> {
        let (heads, e) = (self.heads, self.width);
        let [w, b] = &self.inner;
        let spread = |x: &Tensor, rows: usize| {
            x.to_dtype(like.dtype())?
                .reshape((1, heads, rows, e))?
                .broadcast_as((batch, heads, rows, e))?
                .contiguous()
        };
        Ok([spread(w, e)?, spread(b, 1)?])
    }

    /// The output for o `(batch, rows, d)`.
    fn finish(&self, o: &Tensor) -> Result<Tensor> {
        let normed = ops::layer_norm(o, &self.post[0], &self.post[1], EPS)?;
        linear(&normed, &self.wout, None)
    }
}

/// 1 where a row meets its own and earlier columns, `(count, count)`.
fn lower_triangle(count: usize, like: &Tensor) -> Result<Tensor> {
    Tensor::tril2(count, like.dtype(), like.device())
}

impl Mixer for TttLinear {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, len, d) = x.dims3()?;
        let [mut w, mut b] = self.start(batch, x)?;
        let parts = self.mini_batches(&self.maps(x, 0)?)?;
        let learnt = parts.iter().map(|part| self.learn(part, [&mut w, &mut b]));
        let o = Tensor::cat(&learnt.collect::<Result<Vec<_>>>()?, 2)?;
        let o = o.transpose(1, 2)?.contiguous()?.reshape((batch, len, d))?;
        self.finish(&cx.select(&o)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        2 * self.heads * self.width * (self.width + 1)
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "the norm of its inner model makes every step of descent a nonlinear function of the state"
    }
}

/// The state: the model before the mini-batch, and the sums of η k ∇ and η ∇ since.
impl Recurrent for TttLinear {
    fn init(&self, batch: usize) -> Result<State> {
        let [w, b] = self.start(batch, &self.inner[0])?;
        let sums = [w.zeros_like()?, b.zeros_like()?];
        Ok(State([vec![w, b], sums.into()].concat()))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let at = at % self.mini_batch();
        let of = self.by_heads(self.maps(&x_t.unsqueeze(1)?, at)?.each_ref())?;
        let [w, b, sum_w, sum_b] = &mut state.0[..] else {
            candle_core::bail!(
                "ttt-linear: a state of {} tensors, and not of 4",
                state.0.len()
            );
        };
        let g = self.gradients(&of, [w, b])?;
        *sum_w = accumulate(sum_w, &of.k, &g)?;
        *sum_b = (&*sum_b + &g)?;
        let factor = self.factors(&g)?.narrow(0, at, 1)?;
        let now_w = (&*w - sum_w.broadcast_mul(&factor)?)?;
        let now_b = (&*b - sum_b.broadcast_mul(&factor)?)?;
        let z = (ops::matmul(&of.q, &now_w)? + &now_b)?;
        let o = self.read(&of.q, &z)?;
        if at + 1 == self.mini_batch() {
            (*sum_w, *sum_b) = (sum_w.zeros_like()?, sum_b.zeros_like()?);
            (*w, *b) = (now_w, now_b);
        }
        self.finish(&o.flatten_from(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{samples, Rotary};
    use crate::ops::rng::Rng;
    use candle_core::{DType, Device, Var};

    /// The gradient by hand is that of the loss |k + LN(kW + b) - v|²/2 by differentiation.
    #[test]
    fn the_step_is_down_the_gradient_of_the_reconstruction() -> Result<()> {
        let model = samples::pythia("ttt-linear", Rotary::None);
        let params = Params::seeded(3, DType::F64, &Device::Cpu);
        let mixer = TttLinear::new(&MixerSpec::from(&model), &params)?;
        let mut rng = Rng::new(3, "test", 0);
        let x: Vec<f64> = (0..model.d_model).map(|_| rng.normals().0).collect();
        let x = Tensor::from_vec(x, (1, 1, model.d_model), &Device::Cpu)?;
        let of = mixer.by_heads(mixer.maps(&x, 0)?.each_ref())?;
        let [w, b] = mixer.start(1, &x)?;
        let (w, b) = (Var::from_tensor(&w)?, Var::from_tensor(&b)?);
        let loss = (mixer.read(&of.k, &of.k.matmul(&w)?.broadcast_add(&b)?)? - &of.v)?;
        let found = (loss.sqr()?.sum_all()? * 0.5)?.backward()?;
        let by_hand = mixer.gradients(&of, [&w, &b])?.broadcast_div(&of.rate)?;
        let apart = (found.get(&b).expect("a gradient") - by_hand)?
            .abs()?
            .max_all()?;
        assert!(apart.to_scalar::<f64>()? < 1e-12);
        Ok(())
    }
}
