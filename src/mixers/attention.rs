//! What the attention mixers share: projections into heads, and the separable form (13) to (15).

use super::rotary::{Places, Turn};
use super::{input_std, output_std, Core, MixerWork};
use crate::config::ModelConfig;
use crate::ltv::{Channels, Ltv};
use crate::nn::{linear, project, Cx, Map, Params};
use crate::ops::{self, Dropout, Weights};
use candle_core::{Result, Tensor};

/// Queries, keys, values and output. The variant `reference` has biases and an output projection,
/// the variant `paper` has neither.
pub(super) struct Projections {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    biases: Option<[Tensor; 3]>,
    output: Option<(Tensor, Tensor)>,
    pub n_heads: usize,
    /// Query/key features a head, m = n/s.
    pub head_features: usize,
    /// Values a head, e = d/s.
    pub head_dim: usize,
    /// Turns queries and keys as soon as they are there.
    pub turn: Option<Turn>,
    dropout: f64,
    /// Whether rules without a softmax drop elements of o and not weights, as in the released
    /// classifiers: there are no weights in their running sums.
    drops_output: bool,
}

/// The arithmetic of an attention whose heads meet by `core`.
pub(super) fn work(model: &ModelConfig, core: Core) -> MixerWork {
    let (d, n) = (model.d_model, model.d_state);
    let output = if model.variant == "reference" { d } else { 0 };
    MixerWork {
        core,
        channels: d,
        states: n,
        projections: d * (2 * n + d + output),
    }
}

impl Projections {
    pub fn new(model: &ModelConfig, params: &Params) -> Result<Self> {
        let (d, n) = (model.d_model, model.d_state);
        let reference = model.variant == "reference";
        let biases = || -> Result<[Tensor; 3]> {
            Ok([
                params.bias("bq", n, d)?,
                params.bias("bk", n, d)?,
                params.bias("bv", d, d)?,
            ])
        };
        let output = || -> Result<(Tensor, Tensor)> {
            Ok((
                params.weight("wout", (d, d), output_std(model))?,
                params.bias("bout", d, d)?,
            ))
        };
        Ok(Self {
            wq: params.weight("wq", (n, d), input_std(model))?,
            wk: params.weight("wk", (n, d), input_std(model))?,
            wv: params.weight("wv", (d, d), input_std(model))?,
            biases: reference.then(biases).transpose()?,
            output: reference.then(output).transpose()?,
            n_heads: model.n_heads,
            head_features: n / model.n_heads,
            head_dim: d / model.n_heads,
            turn: Turn::new(model),
            dropout: model.attn_dropout,
            drops_output: model.classifier.is_some(),
        })
    }

    /// Queries at the rows wanted `(batch, rows, n)`, keys `(batch, seq_len, n)` and values
    /// `(batch, seq_len, d)`, heads side by side; queries and keys turned, where they are.
    pub fn maps(&self, x: &Tensor, cx: &Cx) -> Result<[Tensor; 3]> {
        Ok(self.maps_and(x, cx, &[])?.0)
    }

    /// [`Self::maps`], and what further weights and biases make of x at the rows wanted. All of
    /// them read x together.
    pub fn maps_and(
        &self,
        x: &Tensor,
        cx: &Cx,
        further: &[Map],
    ) -> Result<([Tensor; 3], Vec<Tensor>)> {
        self.placed(x, cx, &Places::Rows(cx), further)
    }

    /// [`Self::maps`] of one token of each sequence, x `(batch, 1, d)`, that stands at `at`.
    pub fn maps_of_token(&self, x: &Tensor, at: usize) -> Result<[Tensor; 3]> {
        Ok(self.placed(x, &Cx::eval(), &Places::Token(at), &[])?.0)
    }

    fn placed(
        &self,
        x: &Tensor,
        cx: &Cx,
        places: &Places,
        further: &[Map],
    ) -> Result<([Tensor; 3], Vec<Tensor>)> {
        let bias = |i: usize| self.biases.as_ref().map(|b| &b[i]);
        let [q, k, v] = [
            (&self.wq, bias(0)),
            (&self.wk, bias(1)),
            (&self.wv, bias(2)),
        ];
        let maps = project(x, &[k, v], &[&[q], further].concat(), cx)?;
        let (mut everywhere, mut read) = (maps.everywhere, maps.read);
        let (v, k, q) = (everywhere.remove(1), everywhere.remove(0), read.remove(0));
        let [q, k] = match &self.turn {
            Some(turn) => turn.apply([&q, &k], places)?,
            None => [q, k],
        };
        Ok(([q, k, v], read))
    }

    /// [`Self::maps`] of x `(batch, seq_len, d)` at every row, as `(batch, heads, seq_len, width)`.
    pub fn heads(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        self.split_all(self.maps(x, &Cx::eval())?)
    }

    /// [`Self::maps_of_token`], as `(batch, heads, 1, width)`.
    pub fn heads_of_token(&self, x: &Tensor, at: usize) -> Result<[Tensor; 3]> {
        self.split_all(self.maps_of_token(x, at)?)
    }

    fn split_all(&self, [q, k, v]: [Tensor; 3]) -> Result<[Tensor; 3]> {
        Ok([self.split(&q)?, self.split(&k)?, self.split(&v)?])
    }

    /// `(batch, rows, heads · width)` to `(batch, heads, rows, width)`.
    pub fn split(&self, y: &Tensor) -> Result<Tensor> {
        let (batch, rows, width) = y.dims3()?;
        let y = y.reshape((batch, rows, self.n_heads, width / self.n_heads))?;
        y.transpose(1, 2)?.contiguous()
    }

    fn merge(&self, o: &Tensor) -> Result<Tensor> {
        let (batch, heads, rows, e) = o.dims4()?;
        o.transpose(1, 2)?.reshape((batch, rows, heads * e))
    }

    /// o `(batch, rows, d)` for queries, keys and values as [`Self::maps`] gives them: the values
    /// weighted by `weights` of q·k over the past, with dropout on the weights or, in classifiers
    /// without a softmax, on o.
    pub fn attend(&self, maps: [&Tensor; 3], weights: Weights, cx: &Cx) -> Result<Tensor> {
        if self.drops_output && weights != Weights::Softmax {
            let o = self.weigh(maps, weights, cx, None)?;
            return cx.dropout(&o, "attention", self.dropout);
        }
        self.weigh(maps, weights, cx, cx.mask("attention", self.dropout))
    }

    /// Σ_j q·k_j over the past `(batch, rows, heads)`, for q and k as [`Self::maps`] gives them.
    pub fn sums(&self, q: &Tensor, k: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = k.dims3()?;
        let ones = Tensor::ones((batch, seq_len, self.n_heads), k.dtype(), k.device())?;
        self.weigh([q, k, &ones], Weights::Plain, cx, None)
    }

    fn weigh(
        &self,
        [q, k, v]: [&Tensor; 3],
        weights: Weights,
        cx: &Cx,
        mask: Option<Dropout>,
    ) -> Result<Tensor> {
        let at = cx.rows().map(|rows| &rows.positions);
        if self.n_heads == 1 {
            return ops::causal_attention(q, k, v, at, weights, mask);
        }
        let [q, k, v] = [self.split(q)?, self.split(k)?, self.split(v)?];
        self.merge(&ops::causal_attention(&q, &k, &v, at, weights, mask)?)
    }

    /// The projection of o `(.., d)`.
    pub fn output(&self, o: &Tensor) -> Result<Tensor> {
        match &self.output {
            Some((w, b)) => linear(o, w, Some(b)),
            None => Ok(o.clone()),
        }
    }

    /// [`Self::output`] of one step, o `(batch, heads, 1, e)`; `(batch, d)`.
    pub fn output_step(&self, o: &Tensor) -> Result<Tensor> {
        self.output(&self.merge(o)?)?.squeeze(1)
    }

    /// Equations (15) and (28): the system of separable attention along one sequence.
    ///
    /// `phi`, `psi` `(1, heads, seq_len, m)`: query and key features; `eta` `(heads, seq_len)`.
    pub fn separable(&self, phi: &Tensor, psi: &Tensor, eta: &Tensor) -> Result<Ltv> {
        let eta = eta.t()?.unsqueeze(2)?; // (seq_len, heads, 1)
        let seq_len = eta.dim(0)?;
        // Λ_0 multiplies h_{-1} = 0 and is set to 0.
        let first = eta.narrow(0, 0, 1)?.zeros_like()?;
        let before = Tensor::cat(&[&first, &eta.narrow(0, 0, seq_len - 1)?], 0)?;
        let per_channel = |x: &Tensor| -> Result<Tensor> {
            let (l, s, m) = x.dims3()?;
            x.unsqueeze(2)?
                .broadcast_as((l, s, self.head_dim, m))?
                .reshape((l, s * self.head_dim, m))
        };
        let features = |x: &Tensor| x.squeeze(0)?.transpose(0, 1); // (seq_len, heads, m)
        let psi = features(psi)?.broadcast_div(&eta)?;
        let ratio = (before / &eta)?.broadcast_as(psi.shape())?;
        let value = match &self.biases {
            Some([_, _, bv]) => Tensor::cat(&[&self.wv, &bv.unsqueeze(1)?], 1)?,
            None => self.wv.clone(),
        };
        let mut system = Channels {
            lambda: per_channel(&ratio)?,
            write: per_channel(&psi)?,
            read: per_channel(&features(phi)?)?,
            value: Some(&value),
            skip: None,
            output: self.output.as_ref().map(|(w, _)| w),
        }
        .system()?;
        if let Some((w, b)) = &self.output {
            let column = Tensor::cat(&[&w.zeros_like()?, &b.unsqueeze(1)?], 1)?;
            let (rows, columns) = column.dims2()?;
            system.d = Some(
                column
                    .broadcast_as((seq_len, rows, columns))?
                    .contiguous()?,
            );
        }
        Ok(system)
    }

    /// The matrix state of separable attention before the first token, `(batch, heads, m, e)`.
    pub fn zero_state(&self, batch: usize) -> Result<Tensor> {
        let shape = (batch, self.n_heads, self.head_features, self.head_dim);
        Tensor::zeros(shape, self.wq.dtype(), self.wq.device())
    }

    /// Size of [`Self::zero_state`] a sequence: n d / s.
    pub fn state_size(&self) -> usize {
        self.n_heads * self.head_features * self.head_dim
    }
}

/// S += psi(k) v^T for one token: psi `(batch, heads, 1, m)`, v `(batch, heads, 1, e)`.
pub(super) fn accumulate(state: &Tensor, psi: &Tensor, v: &Tensor) -> Result<Tensor> {
    state + psi.transpose(2, 3)?.contiguous()?.matmul(v)?
}
