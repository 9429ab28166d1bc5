//! A mixer as a linear time-varying system (11), and its block kernel (12), for which y = Φ u:
//!
//! ```text
//! h_i = Λ_i h_{i-1} + B_i u_i,  y_i = C_i h_i + D_i u_i
//! Φ_ij = C_i (Π_{k=j+1..i} Λ_k) B_j + [i=j] D_i
//! ```
//!
//! Λ_i is diagonal in the paper. Here its states may also be complex numbers, stored as pairs of real ones, or it may
//! be a diagonal plus a matrix of rank one, as in the delta rule.

pub mod lemmas;

use candle_core::{DType, IndexOp, Result, Tensor, D};

/// The system (11) along one sequence of L tokens, in factors of L E m numbers: E channels with m states each, N = E m.
/// State c·m + k is feature k of channel c.
///
/// With v = value · u: h[c,k] is multiplied by decay[c,k], then write[c,k] v[c] is added; o[c] = Σ_k read[c,k] h[c,k] +
/// skip[c] v[c]; y = output · o + direct · u + offset.
///
/// An affine mixer (one with biases) has `inputs = d_model + 1`: its last input is a constant 1.
#[derive(Clone, Debug)]
pub struct Ltv {
    /// The diagonal of Λ_i, `(L, E, m)`.
    pub decay: Tensor,
    /// Λ_i off its diagonal.
    pub off_diagonal: OffDiagonal,
    /// Input weight of each state, `(L, E, m)`.
    pub write: Tensor,
    /// Output weight of each state, `(L, E, m)`.
    pub read: Tensor,
    /// The factor of `write` that also determines Λ_i, `(L, E)`: Δ_i, 1/η_i or an input gate; absent if there is none.
    /// Used for analysis only.
    pub gate: Option<Tensor>,
    /// Value map `(E, inputs)`; absent for the identity.
    pub value: Option<Tensor>,
    /// Factors of the value that bypass the state, `(L, E)`.
    pub skip: Option<Tensor>,
    /// Output map `(d_model, E)`; absent for the identity.
    pub output: Option<Tensor>,
    /// Map from the input to the output that bypasses the channels, `(d_model, inputs)`.
    pub direct: Option<Tensor>,
    /// Bias of the output, `(d_model)`, or `(L, d_model)` where it depends on the token.
    pub offset: Option<Tensor>,
}

/// The part of Λ_i off its diagonal.
#[derive(Clone, Debug)]
pub enum OffDiagonal {
    /// Λ_i is diagonal.
    Zero,
    /// Imaginary part of λ, `(L, E/2, m)`, where channels c and E/2 + c hold the real and imaginary parts of complex
    /// states. The real part is the decay, the same in both channels.
    Complex(Tensor),
    /// The states of a channel gain a (b · h), `(L, E, m)` both.
    RankOne {
        /// Direction that is written.
        a: Tensor,
        /// Direction that is read.
        b: Tensor,
    },
}

/// System (11) inside a mixer, whose input is a nonlinear function of the mixer's input.
pub struct Inner {
    /// System whose outputs are those of the mixer.
    pub system: Ltv,
    /// Input of the system, `(L, E)`.
    pub input: Tensor,
    /// Description of the rest: how the input is computed, and the parts of the mixer that the matrices hold apart from
    /// the recurrence.
    pub around: &'static str,
}

/// η_{i-1}/η_i along the first axis of η, and 0 for the first token, since Λ_0 multiplies a state of 0.
pub fn ratios(eta: &Tensor) -> Result<Tensor> {
    let first = eta.narrow(0, 0, 1)?.zeros_like()?;
    Tensor::cat(&[&first, &eta.narrow(0, 0, eta.dim(0)? - 1)?], 0)? / eta
}

impl Ltv {
    /// The diagonal system of these factors, `(L, E, m)` each, without any of the optional factors.
    pub fn new(decay: Tensor, write: Tensor, read: Tensor) -> Self {
        Self {
            decay,
            off_diagonal: OffDiagonal::Zero,
            write,
            read,
            gate: None,
            value: None,
            skip: None,
            output: None,
            direct: None,
            offset: None,
        }
    }

    /// The same system with a bias of the output, if there is one. A missing value map becomes the identity beside a
    /// column of zeros, for the constant input that carries the bias.
    pub fn with_offset(self, offset: Option<&Tensor>) -> Result<Self> {
        let (Some(offset), None) = (offset, &self.value) else {
            return Ok(Self { offset: offset.cloned(), ..self });
        };
        let eye = Tensor::eye(self.decay.dim(1)?, self.decay.dtype(), self.decay.device())?;
        let value = Tensor::cat(&[&eye, &eye.narrow(1, 0, 1)?.zeros_like()?], 1)?;
        Ok(Self { value: Some(value), offset: Some(offset.clone()), ..self })
    }

    /// Divides each token's state output by η, `(L, E)`, and so the rows of the kernel: B_i gains the factor 1/η_i, and
    /// Λ_i, which must be diagonal, the factor η_{i-1}/η_i, equations (15) and (17).
    pub fn normalised(&self, eta: &Tensor) -> Result<Self> {
        let each = |x: &Tensor| x.unsqueeze(2);
        Ok(Self {
            decay: self.decay.broadcast_mul(&each(&ratios(eta)?)?)?,
            write: self.write.broadcast_div(&each(eta)?)?,
            gate: Some(eta.recip()?),
            ..self.clone()
        })
    }

    /// L, E and m.
    pub fn sizes(&self) -> Result<(usize, usize, usize)> {
        self.decay.dims3()
    }

    /// The dimension N of the state.
    pub fn width(&self) -> Result<usize> {
        let (_, channels, states) = self.sizes()?;
        Ok(channels * states)
    }

    /// Number of columns of B_i.
    pub fn inputs(&self) -> Result<usize> {
        match &self.value {
            Some(value) => value.dim(1),
            None => self.decay.dim(1),
        }
    }

    fn value(&self) -> Result<Tensor> {
        match &self.value {
            Some(value) => Ok(value.clone()),
            None => Tensor::eye(self.decay.dim(1)?, self.decay.dtype(), self.decay.device()),
        }
    }

    /// Applies the output map: `(.., E, columns)` to `(.., d_model, columns)`.
    fn output(&self, x: Tensor) -> Result<Tensor> {
        match &self.output {
            Some(w) => w.unsqueeze(0)?.broadcast_matmul(&x),
            None => Ok(x),
        }
    }

    /// The diagonals of Λ_i, `(L, N)`.
    pub fn lambda(&self) -> Result<Tensor> {
        let (seq_len, channels, states) = self.sizes()?;
        self.decay.reshape((seq_len, channels * states))
    }

    /// Λ_i times `h`, `(E, m, columns)`.
    fn advance(&self, i: usize, h: &Tensor) -> Result<Tensor> {
        let kept = h.broadcast_mul(&self.decay.i(i)?.unsqueeze(2)?)?;
        match &self.off_diagonal {
            OffDiagonal::Zero => Ok(kept),
            OffDiagonal::Complex(lambda_im) => {
                let lambda_im = lambda_im.i(i)?.unsqueeze(2)?;
                let half = lambda_im.dim(0)?;
                let re = h.narrow(0, 0, half)?.broadcast_mul(&lambda_im)?;
                let im = h.narrow(0, half, half)?.broadcast_mul(&lambda_im)?;
                kept + Tensor::cat(&[&im.neg()?, &re], 0)?
            }
            OffDiagonal::RankOne { a, b } => {
                let b_h = h.broadcast_mul(&b.i(i)?.unsqueeze(2)?)?.sum_keepdim(1)?;
                kept + a.i(i)?.unsqueeze(2)?.broadcast_mul(&b_h)?
            }
        }
    }

    /// The dense Λ_i, `(N, N)` each. Dense matrices and the kernel are meant for small sizes.
    pub fn transitions(&self) -> Result<Vec<Tensor>> {
        (0..self.decay.dim(0)?).map(|i| self.transition(i)).collect()
    }

    /// The dense Λ_i of token `i`, `(N, N)`.
    pub fn transition(&self, i: usize) -> Result<Tensor> {
        let (_, channels, states) = self.sizes()?;
        let width = channels * states;
        let eye = Tensor::eye(width, self.decay.dtype(), self.decay.device())?;
        let eye = eye.reshape((channels, states, width))?;
        self.advance(i, &eye)?.reshape((width, width))
    }

    /// The dense B_i, `(L, N, inputs)`.
    pub fn b(&self) -> Result<Tensor> {
        let (seq_len, channels, states) = self.sizes()?;
        let value = self.value()?;
        let inputs = value.dim(1)?;
        let value = value.reshape((1, channels, 1, inputs))?;
        let write = self.write.unsqueeze(3)?.contiguous()?;
        write.broadcast_mul(&value)?.reshape((seq_len, channels * states, inputs))
    }

    /// The dense C_i, `(L, d_model, N)`.
    pub fn c(&self) -> Result<Tensor> {
        let (seq_len, channels, states) = self.sizes()?;
        let eye = Tensor::eye(channels, self.read.dtype(), self.read.device())?;
        let read = self.read.reshape((seq_len, 1, channels, states))?;
        let c = read.broadcast_mul(&eye.reshape((1, channels, channels, 1))?)?;
        self.output(c.reshape((seq_len, channels, channels * states))?)
    }

    /// The dense D_i, `(L, d_model, inputs)`, or `None` for 0. An offset is its last column.
    pub fn d(&self) -> Result<Option<Tensor>> {
        let skip = |skip: &Tensor| -> Result<Tensor> {
            self.output(skip.unsqueeze(2)?.broadcast_mul(&self.value()?.unsqueeze(0)?)?)
        };
        let offset = |offset: &Tensor| -> Result<Tensor> {
            let rows = offset.broadcast_as((self.decay.dim(0)?, offset.dim(D::Minus1)?))?.unsqueeze(2)?;
            let (seq_len, outputs, _) = rows.dims3()?;
            let zeros = Tensor::zeros((seq_len, outputs, self.inputs()? - 1), offset.dtype(), offset.device())?;
            Tensor::cat(&[&zeros, &rows], 2)
        };
        let always = |d: &Tensor| -> Result<Tensor> {
            let (rows, inputs) = d.dims2()?;
            d.broadcast_as((self.decay.dim(0)?, rows, inputs))?.contiguous()
        };
        let parts = [self.skip.as_ref().map(skip), self.direct.as_ref().map(always), self.offset.as_ref().map(offset)];
        let mut sum: Option<Tensor> = None;
        for part in parts.into_iter().flatten() {
            sum = Some(match sum {
                Some(sum) => (sum + part?)?,
                None => part?,
            });
        }
        Ok(sum)
    }

    /// C_i B_i of token `at`, `(d_model, inputs)`: its block of the kernel without D_i.
    pub fn state_block(&self, at: usize) -> Result<Tensor> {
        let passed = (self.read.i(at)? * self.write.i(at)?)?.sum_keepdim(1)?;
        self.output(passed.broadcast_mul(&self.value()?)?.unsqueeze(0)?)?.squeeze(0)
    }

    /// The bias of the output at token `at`, `(d_model)`.
    pub fn offset_at(&self, at: usize) -> Result<Option<Tensor>> {
        let row = |offset: &Tensor| match offset.rank() {
            1 => Ok(offset.clone()),
            _ => offset.i(at),
        };
        self.offset.as_ref().map(row).transpose()
    }

    /// The recurrence (11): u `(L, d_model)` to y `(L, d_model)`.
    pub fn run(&self, u: &Tensor) -> Result<Tensor> {
        let v = self.values(u)?;
        self.read_out(self.outputs_of_states(&v)?, &v, u)
    }

    /// Outputs of the channels' states, `(L, E)`, along u `(L, d_model)`.
    pub fn state_outputs(&self, u: &Tensor) -> Result<Tensor> {
        self.outputs_of_states(&self.values(u)?)
    }

    /// [`Self::state_outputs`] for the values `(L, E)`.
    fn outputs_of_states(&self, v: &Tensor) -> Result<Tensor> {
        let (seq_len, channels, states) = self.sizes()?;
        let mut h = Tensor::zeros((channels, states, 1), v.dtype(), v.device())?;
        let mut outputs = Vec::with_capacity(seq_len);
        for i in 0..seq_len {
            let written = self.write.i(i)?.broadcast_mul(&v.i(i)?.unsqueeze(1)?)?;
            h = (self.advance(i, &h)? + written.unsqueeze(2)?)?;
            outputs.push((h.squeeze(2)? * self.read.i(i)?)?.sum(1)?);
        }
        Tensor::stack(&outputs, 0)
    }

    /// The channels' values `(L, E)` for the input u `(L, d_model)`.
    pub fn values(&self, u: &Tensor) -> Result<Tensor> {
        let u = self.augmented(u)?;
        match &self.value {
            Some(value) => u.matmul(&value.t()?.contiguous()?),
            None => Ok(u),
        }
    }

    /// y from the outputs o of the channels' states, `(L, E)`, the values `(L, E)` and the input `(L, d_model)`.
    pub fn read_out(&self, o: Tensor, values: &Tensor, u: &Tensor) -> Result<Tensor> {
        let o = match &self.skip {
            Some(skip) => (o + (skip * values)?)?,
            None => o,
        };
        let y = match &self.output {
            Some(w) => o.matmul(&w.t()?.contiguous()?)?,
            None => o,
        };
        let y = match &self.direct {
            Some(direct) => (y + self.augmented(u)?.matmul(&direct.t()?.contiguous()?)?)?,
            None => y,
        };
        match &self.offset {
            Some(offset) => y.broadcast_add(offset),
            None => Ok(y),
        }
    }

    /// y by all pairs of tokens, the dual form of Dao & Gu (2024), in time quadratic in L and memory linear in L.
    /// `None` unless the system is diagonal and the states of a channel share one decay in (0, 1].
    pub fn by_pairs(&self, u: &Tensor) -> Result<Option<Tensor>> {
        let Some(logs) = self.log_decays()? else {
            return Ok(None);
        };
        let values = self.values(u)?;
        let each = (0..self.decay.dim(1)?).map(|c| {
            let of = |x: &Tensor| x.narrow(1, c, 1)?.squeeze(1)?.contiguous();
            let v = values.narrow(1, c, 1)?.contiguous()?;
            let log = logs.narrow(1, c, 1)?.contiguous()?;
            pairs(&of(&self.read)?, &of(&self.write)?, &v, &log)
        });
        let o = Tensor::cat(&each.collect::<Result<Vec<_>>>()?, 1)?;
        self.read_out(o, &values, u).map(Some)
    }

    /// Σ_{k≤i} ln λ_k of each channel, `(L, E)`. The result is always in f64, since differences of long sums lose
    /// digits. `None` unless the states of a channel share one decay in (0, 1].
    fn log_decays(&self) -> Result<Option<Tensor>> {
        if !matches!(self.off_diagonal, OffDiagonal::Zero) {
            return Ok(None);
        }
        let seq_len = self.decay.dim(0)?;
        let decay = self.decay.to_dtype(DType::F64)?;
        let apart = (decay.max(2)? - decay.min(2)?)?.max_all()?;
        // Λ_0 multiplies the state before the first token, which is 0.
        let decay = decay.narrow(2, 0, 1)?.squeeze(2)?;
        let later = decay.narrow(0, 1, seq_len - 1)?;
        let decays = |x: f64| x > 0.0 && x <= 1.0;
        let all = seq_len == 1 || decays(later.min_all()?.to_scalar()?) && decays(later.max_all()?.to_scalar()?);
        if apart.to_scalar::<f64>()? > 0.0 || !all {
            return Ok(None);
        }
        let first = decay.narrow(0, 0, 1)?.zeros_like()?;
        // Candle's own cumulative sum is a product with an L by L matrix.
        let mut sums: Vec<Vec<f64>> = Tensor::cat(&[&first, &later.log()?], 0)?.to_vec2()?;
        for i in 1..seq_len {
            let (before, now) = sums.split_at_mut(i);
            let each = now[0].iter_mut().zip(&before[i - 1]);
            each.for_each(|(now, before)| *now += before);
        }
        Tensor::new(sums, self.decay.device()).map(Some)
    }

    /// The block kernel (12), `(L, L, d_model, inputs)`; zero for j > i.
    pub fn kernel(&self) -> Result<Tensor> {
        let (b, c, d) = (self.b()?, self.c()?, self.d()?);
        let (seq_len, d_model, width) = c.dims3()?;
        let inputs = b.dim(2)?;
        let (_, channels, states) = self.sizes()?;
        let zero = Tensor::zeros((d_model, inputs), b.dtype(), b.device())?;
        let mut blocks = vec![zero; seq_len * seq_len];
        for j in 0..seq_len {
            let mut carried = b.i(j)?;
            for i in j..seq_len {
                if i > j {
                    let before = carried.reshape((channels, states, inputs))?;
                    carried = self.advance(i, &before)?.reshape((width, inputs))?;
                }
                let block = c.i(i)?.contiguous()?.matmul(&carried)?;
                blocks[i * seq_len + j] = match &d {
                    Some(d) if i == j => (block + d.i(i)?)?,
                    _ => block,
                };
            }
        }
        Tensor::stack(&blocks, 0)?.reshape((seq_len, seq_len, d_model, inputs))
    }

    /// y = Φ u for a kernel from [`Self::kernel`].
    pub fn apply_kernel(&self, phi: &Tensor, u: &Tensor) -> Result<Tensor> {
        let u = self.augmented(u)?;
        let (seq_len, _, d_model, inputs) = phi.dims4()?;
        let phi = phi.permute((0, 2, 1, 3))?;
        let phi = phi.reshape((seq_len * d_model, seq_len * inputs))?;
        phi.matmul(&u.reshape((seq_len * inputs, 1))?)?.reshape((seq_len, d_model))
    }

    fn augmented(&self, u: &Tensor) -> Result<Tensor> {
        if self.inputs()? == u.dim(1)? {
            return u.contiguous();
        }
        let one = Tensor::ones((u.dim(0)?, 1), u.dtype(), u.device())?;
        Tensor::cat(&[u, &one], 1)?.contiguous()
    }
}

/// Width and height in steps of a tile of pairs.
const TILE: usize = 512;

/// o_i = Σ_{j≤i} (c_i·b_j) e^(log_i - log_j) v_j of one channel, `(L, 1)`, computed tile by tile; c and b are `(L, m)`,
/// v and log `(L, 1)`.
fn pairs(c: &Tensor, b: &Tensor, v: &Tensor, log: &Tensor) -> Result<Tensor> {
    let seq_len = v.dim(0)?;
    let mut rows = Vec::with_capacity(seq_len.div_ceil(TILE));
    for top in (0..seq_len).step_by(TILE) {
        let count = TILE.min(seq_len - top);
        let [c, log_i] = [c, log].map(|x| x.narrow(0, top, count));
        let (c, log_i) = (c?, log_i?);
        let mut o = v.narrow(0, top, count)?.zeros_like()?;
        for left in (0..=top).step_by(TILE) {
            let width = TILE.min(seq_len - left);
            let (b, v) = (b.narrow(0, left, width)?, v.narrow(0, left, width)?);
            let scores = match left == top {
                true => (c.matmul(&b.t()?)? * kept_within(&log_i)?.to_dtype(v.dtype())?)?,
                false => {
                    let kept = kept_between(&log_i, &log.narrow(0, left, width)?)?;
                    let [after, before] = kept.map(|x| x.to_dtype(v.dtype()));
                    c.broadcast_mul(&after?)?.matmul(&b.broadcast_mul(&before?)?.t()?)?
                }
            };
            o = (o + scores.matmul(&v)?)?;
        }
        rows.push(o);
    }
    Tensor::cat(&rows, 0)
}

/// e^(log_i - log_j) among the steps of one tile, 0 for j > i.
fn kept_within(log: &Tensor) -> Result<Tensor> {
    let steps = Tensor::arange(0, log.dim(0)? as u32, log.device())?;
    let past = steps.unsqueeze(1)?.broadcast_ge(&steps.unsqueeze(0)?)?;
    let apart = log.broadcast_sub(&log.t()?)?;
    let never = Tensor::full(f64::NEG_INFINITY, apart.shape(), log.device())?;
    past.where_cond(&apart, &never)?.exp()
}

/// Two factors of e^(log_i - log_j) from steps j to later steps i, one per i and one per j, both relative to the last
/// j.
fn kept_between(log_i: &Tensor, log_j: &Tensor) -> Result<[Tensor; 2]> {
    let last = log_j.narrow(0, log_j.dim(0)? - 1, 1)?;
    let after = log_i.broadcast_sub(&last)?.exp()?;
    let before = log_j.neg()?.broadcast_add(&last)?.exp()?;
    Ok([after, before])
}
