//! TTT-Linear (Sun et al. 2024): the hidden state of each head is a linear model f(x) = x W + b, trained by gradient
//! descent on the tokens while they are read (test-time training), in mini-batches of tokens,
//!
//! W_i = W_0 - t_i Σ_{j≤i} η_j ∇_W ℓ_j,  ℓ_j = |k_j + LN(f(k_j)) - v_j|² / 2,
//! o_i = q_i + LN(f_i(q_i)),  y_i = W_O LN(o_i)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | W, b | inner model; W_0, b_0 are its values before a mini-batch | `(batch, heads, e, e)`, `(.., 1, e)` |
//! | q, k, v | queries, keys, values, `HeadTokens` by heads | `(batch, heads, tokens, e)` |
//! | η | learning rate σ(w·u + b) / e of a token | `(batch, heads, tokens, 1)` |
//! | t | token weight 1/i + `steps`, for the i-th token of a mini-batch | `(tokens, 1)` |
//!
//! Gradients within a mini-batch need no loop, since all are taken at W_0, b_0. Without the layer norm and with
//! mini-batches of one token the mixer is the delta rule.

use super::attention::accumulate;
use super::rotary::RotaryEmbedding;
use super::{
    in_range, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State, StateNormPlace,
};
use crate::nn::{linear, linears, Cx, Init, Params, Tables};
use crate::ops::{self, Expression};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "ttt-linear",
    equation: "W_i = W_0 - t_i Σ_j η_j ∇|k_j + LN(k_j W_0) - v_j|²/2, y_i = q_i + LN(q_i W_i)",
    cite: "Sun et al. 2024",
    dsf: "no (a norm in its update)",
    heads: true,
    multi_head: true,
    options: &[MixerOption {
        name: "mini_batch",
        help: "tokens per mini-batch of the inner model: `16` as published, from 1 to 4096",
        default: |_| "16",
        accepts: |v| in_range(v, 1..=4096),
        short: Some("3"),
        ..MixerOption::DEFAULT
    }],
    state_norm: StateNormPlace::TAKEN,
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

/// ε of both layer norms.
const EPS: f64 = 1e-6;

fn mini_batch(spec: &MixerSpec) -> usize {
    spec.parsed("mini_batch").unwrap_or(16)
}

struct TttLinear {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    /// Projection to the learning rate, `(heads, d)`, and its bias.
    wlr: Tensor,
    blr: Tensor,
    /// Learnt offset of the token weights t, `(mini_batch)`.
    steps: Tensor,
    /// Initial inner model of each head: W `(heads, e, e)` and b `(d)`.
    inner: [Tensor; 2],
    /// γ and β of the layer norm inside the model, heads side by side, `(d)` each.
    norm: [Tensor; 2],
    /// γ = 1 and β = 0 of a layer norm without parameters, `(e)` each.
    identity_norm: [Tensor; 2],
    /// γ and β of the layer norm over all heads, `(d)` each.
    post: [Tensor; 2],
    wout: Tensor,
    rotary: RotaryEmbedding,
    /// Index of each token in its mini-batch, `(1, len)`.
    positions: Tables<Tensor>,
    heads: usize,
    /// Channels of a head, e.
    width: usize,
}

/// q, k and v of some tokens, `(batch, tokens, d)` each, and η, `(batch, tokens, heads)`.
type QkvEta = [Tensor; 4];

/// q, k, v and η of the tokens of a mini-batch, or of one token, by heads.
struct HeadTokens {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    eta: Tensor,
}

impl TttLinear {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, heads) = (spec.d_model, spec.n_heads);
        let width = d / heads;
        let square = |name| params.weight(name, (d, d), spec.input_std);
        let constant = |name, value| params.get(name, d, Init::Constant(value));
        let norm = [constant("norm", 1.0)?, constant("bnorm", 0.0)?];
        let one = Tensor::ones(width, norm[0].dtype(), norm[0].device())?;
        Ok(Self {
            wq: square("wq")?,
            wk: square("wk")?,
            wv: square("wv")?,
            wlr: params.weight("wlr", (heads, d), spec.input_std)?,
            blr: params.bias("blr", heads, d)?,
            steps: params.get("steps", mini_batch(spec), Init::Constant(0.0))?,
            inner: [params.get("inner", (heads, width, width), Init::Normal(0.02))?, constant("binner", 0.0)?],
            norm,
            identity_norm: [one.clone(), one.zeros_like()?],
            post: [constant("post", 1.0)?, constant("bpost", 0.0)?],
            wout: params.weight("wout", (d, d), spec.output_std)?,
            rotary: RotaryEmbedding::over(heads, width),
            positions: Tables::default(),
            heads,
            width,
        })
    }

    fn mini_batch(&self) -> usize {
        self.steps.elem_count()
    }

    /// Projections of x `(batch, tokens, d)`, whose first token has the index `first` in its mini-batch.
    fn project(&self, x: &Tensor, first: usize) -> Result<QkvEta> {
        let (batch, len, _) = x.dims3()?;
        let qkv = linears(x, &[(&self.wq, None), (&self.wk, None), (&self.wv, None)])?;
        let of_sequence = || {
            let positions = (0..len).map(|t| ((first + t) % self.mini_batch()) as u32);
            Tensor::from_vec(positions.collect::<Vec<_>>(), (1, len), x.device())
        };
        let positions = match first {
            0 => self.positions.of(len, of_sequence)?,
            _ => of_sequence()?,
        };
        let positions = positions.broadcast_as((batch, len))?.contiguous()?;
        let eta = ops::sigmoid(&linear(x, &self.wlr, Some(&self.blr))?)?;
        let rotated = |x| self.rotary.rotate(x, Some(&positions));
        let [q, k] = [rotated(&qkv[0])?, rotated(&qkv[1])?];
        Ok([q, k, qkv[2].clone(), (eta / self.width as f64)?])
    }

    fn by_heads(&self, [q, k, v, eta]: [&Tensor; 4]) -> Result<HeadTokens> {
        let split = |x: &Tensor| {
            let (batch, len, width) = x.dims3()?;
            let by_heads = x.reshape((batch, len, self.heads, width / self.heads))?;
            by_heads.transpose(1, 2)?.contiguous() // (batch, heads, tokens, e or 1)
        };
        Ok(HeadTokens { q: split(q)?, k: split(k)?, v: split(v)?, eta: split(eta)? })
    }

    /// Mini-batches of a sequence, the last of which may be short.
    fn mini_batches(&self, qkv_eta: &QkvEta) -> Result<Vec<HeadTokens>> {
        let (batch, len, _) = qkv_eta[0].dims3()?;
        let size = self.mini_batch();
        let whole = len / size;
        let chunk = |x: &Tensor| -> Result<Vec<Tensor>> {
            let mut chunks = Vec::new();
            if whole > 0 {
                // `time_steps` avoids a gradient of the whole sequence's length for each slice.
                let width = x.dim(2)?;
                let all = x.narrow(1, 0, whole * size)?.contiguous()?;
                let all = all.reshape((batch, whole, size * width))?;
                for chunk in ops::time_steps(&all)? {
                    chunks.push(chunk.reshape((batch, size, width))?);
                }
            }
            if whole * size < len {
                chunks.push(x.narrow(1, whole * size, len - whole * size)?);
            }
            Ok(chunks)
        };
        let [q, k, v, eta] = qkv_eta;
        let [q, k, v, eta] = [chunk(q)?, chunk(k)?, chunk(v)?, chunk(eta)?];
        let tokens = (0..q.len()).map(|i| self.by_heads([&q[i], &k[i], &v[i], &eta[i]]));
        tokens.collect()
    }

    /// Token weights t of a mini-batch, `(mini_batch, 1)`.
    fn token_weights(&self, like: &Tensor) -> Result<Tensor> {
        let count = self.mini_batch();
        let base = (1..=count).map(|i| 1.0 / i as f64).collect();
        let base = Tensor::from_vec(base, count, like.device())?.to_dtype(self.steps.dtype())?;
        (base + &self.steps)?.relu()?.to_dtype(like.dtype())?.unsqueeze(1)
    }

    /// γ and β of the layer norm inside the model as `(heads, 1, e)`, for products with `(batch, heads, tokens, e)`.
    fn norm_of_heads(&self) -> [Expression; 2] {
        self.norm.each_ref().map(|x| Expression::parameter_as(x, (self.heads, 1, self.width)))
    }

    /// η ∂ℓ/∂z of each token, `(batch, heads, tokens, e)`, for z = k W + b: the gradient of a squared error after a
    /// layer norm.
    fn gradients(&self, tokens: &HeadTokens, [w, b]: [&Tensor; 2]) -> Result<Tensor> {
        let mean = |x: &Expression| x.row_sum() * (1.0 / self.width as f64);
        let [k, v, eta] = [&tokens.k, &tokens.v, &tokens.eta].map(Expression::of);
        let [gamma, beta] = self.norm_of_heads();
        let z = Expression::of(&ops::matmul(&tokens.k, w)?) + Expression::of(b);
        let centred = &z - &mean(&z);
        let inv_std = (mean(&centred.sqr()) + EPS).sqrt().recip();
        let x_hat = centred * inv_std.clone();
        let normed = &x_hat * &gamma + beta;
        let grad_x_hat = (normed - (v - k)) * gamma;
        let projection = mean(&(&grad_x_hat * &x_hat));
        let centred = &grad_x_hat - &mean(&grad_x_hat);
        ((centred - x_hat * projection) * inv_std * eta).tensor()
    }

    /// o = q + LN(z), `(batch, heads, tokens, e)`.
    fn output(&self, q: &Tensor, z: &Tensor) -> Result<Tensor> {
        let [one, zero] = &self.identity_norm;
        let x_hat = Expression::of(&ops::layer_norm(z, one, zero, EPS)?);
        let [gamma, beta] = self.norm_of_heads();
        (Expression::of(q) + (x_hat * gamma + beta)).tensor()
    }

    /// o of a mini-batch, or of the first tokens of one; updates the model w, b after a complete one.
    fn forward_mini_batch(&self, tokens: &HeadTokens, [w, b]: [&mut Tensor; 2]) -> Result<Tensor> {
        let count = tokens.k.dim(2)?;
        let g = self.gradients(tokens, [w, b])?;
        let t = self.token_weights(&g)?.narrow(0, 0, count)?;
        let mask = lower_triangle(count, &g)?.broadcast_mul(&t)?;
        let keys = tokens.k.t()?.contiguous()?;
        // The bias acts as a weight of a key element that is always 1.
        let products = [ops::matmul(&tokens.q, &keys)?, ops::matmul(&tokens.q, w)?];
        let [q_k, q_w] = products.each_ref().map(Expression::of);
        let scores = ((q_k + 1.0) * Expression::of(&mask)).tensor()?; // (batch, heads, tokens, tokens)
        let z = (q_w + Expression::of(b) - Expression::of(&ops::matmul(&scores, &g)?)).tensor()?;
        if count == self.mini_batch() {
            let g = g.broadcast_mul(&t.narrow(0, count - 1, 1)?)?;
            *b = b.broadcast_sub(&g.sum_keepdim(2)?)?;
            *w = (&*w - ops::matmul(&keys, &g)?)?;
        }
        self.output(&tokens.q, &z)
    }

    /// Initial W `(batch, heads, e, e)` and b `(batch, heads, 1, e)`.
    fn initial_model(&self, batch: usize, like: &Tensor) -> Result<[Tensor; 2]> {
        let (heads, e) = (self.heads, self.width);
        let [w, b] = &self.inner;
        let expand = |x: &Tensor, rows: usize| {
            x.to_dtype(like.dtype())?.reshape((1, heads, rows, e))?.broadcast_as((batch, heads, rows, e))?.contiguous()
        };
        Ok([expand(w, e)?, expand(b, 1)?])
    }

    /// y for o, `(batch, rows, d)` each.
    fn readout(&self, o: &Tensor) -> Result<Tensor> {
        let normed = ops::layer_norm(o, &self.post[0], &self.post[1], EPS)?;
        linear(&normed, &self.wout, None)
    }
}

/// Causal mask: 1 on and below the diagonal, `(count, count)`.
fn lower_triangle(count: usize, like: &Tensor) -> Result<Tensor> {
    Tensor::tril2(count, like.dtype(), like.device())
}

impl Mixer for TttLinear {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, len, d) = x.dims3()?;
        let [mut w, mut b] = self.initial_model(batch, x)?;
        let mini_batches = self.mini_batches(&self.project(x, 0)?)?;
        let outputs = mini_batches.iter().map(|tokens| self.forward_mini_batch(tokens, [&mut w, &mut b]));
        let o = Tensor::cat(&outputs.collect::<Result<Vec<_>>>()?, 2)?; // (batch, heads, len, e)
        let o = o.transpose(1, 2)?.contiguous()?.reshape((batch, len, d))?;
        self.readout(&cx.select(&o)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        2 * self.heads * self.width * (self.width + 1)
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "the layer norm of its inner model makes each gradient step a nonlinear function of the state"
    }
}

/// State: W and b at the start of the mini-batch, and the sums of their gradients since, weighted by η.
impl Recurrent for TttLinear {
    fn init(&self, batch: usize) -> Result<State> {
        let [w, b] = self.initial_model(batch, &self.inner[0])?;
        let sums = [w.zeros_like()?, b.zeros_like()?];
        Ok(State::new([vec![w, b], sums.into()].concat()))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let at = at % self.mini_batch();
        let tokens = self.by_heads(self.project(&x_t.unsqueeze(1)?, at)?.each_ref())?;
        let [w, b, sum_w, sum_b] = &mut state.0[..] else {
            candle_core::bail!("ttt-linear: a state of {} tensors, and not of 4", state.0.len());
        };
        let g = self.gradients(&tokens, [w, b])?;
        *sum_w = accumulate(sum_w, &tokens.k, &g)?;
        *sum_b = (&*sum_b + &g)?;
        let t = self.token_weights(&g)?.narrow(0, at, 1)?;
        let w_t = (&*w - sum_w.broadcast_mul(&t)?)?;
        let b_t = (&*b - sum_b.broadcast_mul(&t)?)?;
        let z = (ops::matmul(&tokens.q, &w_t)? + &b_t)?;
        let o = self.output(&tokens.q, &z)?;
        if at + 1 == self.mini_batch() {
            (*sum_w, *sum_b) = (sum_w.zeros_like()?, sum_b.zeros_like()?);
            (*w, *b) = (w_t, b_t);
        }
        self.readout(&o.flatten_from(1)?)
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
        let tokens = mixer.by_heads(mixer.project(&x, 0)?.each_ref())?;
        let [w, b] = mixer.initial_model(1, &x)?;
        let (w, b) = (Var::from_tensor(&w)?, Var::from_tensor(&b)?);
        let loss = (mixer.output(&tokens.k, &tokens.k.matmul(&w)?.broadcast_add(&b)?)? - &tokens.v)?;
        let found = crate::ops::backward(&(loss.sqr()?.sum_all()? * 0.5)?)?;
        let by_hand = mixer.gradients(&tokens, [&w, &b])?.broadcast_div(&tokens.eta)?;
        let apart = (found.get(&b).expect("a gradient") - by_hand)?.abs()?.max_all()?;
        assert!(apart.to_scalar::<f64>()? < 1e-12);
        Ok(())
    }
}
