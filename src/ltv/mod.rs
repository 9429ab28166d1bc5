//! The lens: a mixer as a linear time-varying system.
//!
//! h_i = Λ_i h_{i-1} + B_i u_i,  y_i = C_i h_i + D_i u_i   (11), with diagonal Λ_i, and its block
//! kernel y = Φ u, Φ_ij = C_i (Π_{k=j+1..i} Λ_k) B_j + [i=j] D_i   (12).

pub mod lemmas;

use candle_core::{IndexOp, Result, Tensor};

/// The matrices of (11) for one sequence, spelled out: an instrument for analysis at small sizes.
///
/// An affine mixer (one with biases) has `inputs = d_model + 1`: its last input is a constant 1.
pub struct Ltv {
    /// Diagonal of Λ_i, `(seq_len, N)`.
    pub lambda: Tensor,
    /// B_i, `(seq_len, N, inputs)`.
    pub b: Tensor,
    /// C_i, `(seq_len, d_model, N)`.
    pub c: Tensor,
    /// D_i, `(seq_len, d_model, inputs)`; absent is 0.
    pub d: Option<Tensor>,
}

/// The factors from which every mixer's system is built: E channels with m states each, state
/// c·m + k being feature k of channel c.
pub struct Channels<'a> {
    /// Decay, `(seq_len, E, m)`.
    pub lambda: Tensor,
    /// What a channel's value is multiplied with on its way in, `(seq_len, E, m)`.
    pub write: Tensor,
    /// What the state is multiplied with on its way out, `(seq_len, E, m)`.
    pub read: Tensor,
    /// Value map `(E, inputs)`; absent is the identity.
    pub value: Option<&'a Tensor>,
    /// Past the state, `(seq_len, E)` times the value.
    pub skip: Option<Tensor>,
    /// Output map `(d_model, E)`; absent is the identity.
    pub output: Option<&'a Tensor>,
}

impl Channels<'_> {
    /// Multiplies the factors out.
    pub fn system(&self) -> Result<Ltv> {
        let (seq_len, channels, states) = self.lambda.dims3()?;
        let eye = Tensor::eye(channels, self.lambda.dtype(), self.lambda.device())?;
        let value = self.value.unwrap_or(&eye);
        let inputs = value.dim(1)?;
        let width = channels * states;
        let b = self.write.unsqueeze(3)?.contiguous()?;
        let b = b.broadcast_mul(&value.reshape((1, channels, 1, inputs))?)?;
        let read = self.read.reshape((seq_len, 1, channels, states))?;
        let c = read.broadcast_mul(&eye.reshape((1, channels, channels, 1))?)?;
        let c = c.reshape((seq_len, channels, width))?;
        let d = match &self.skip {
            Some(skip) => Some(skip.unsqueeze(2)?.broadcast_mul(&value.unsqueeze(0)?)?),
            None => None,
        };
        let out = |x: Tensor| match self.output {
            Some(w) => w.unsqueeze(0)?.broadcast_matmul(&x),
            None => Ok(x),
        };
        Ok(Ltv {
            lambda: self.lambda.reshape((seq_len, width))?,
            b: b.reshape((seq_len, width, inputs))?,
            c: out(c)?,
            d: d.map(out).transpose()?,
        })
    }
}

impl Ltv {
    /// The recurrence (11): u `(seq_len, d_model)` to y `(seq_len, d_model)`.
    pub fn run(&self, u: &Tensor) -> Result<Tensor> {
        Ok(self.run_with_state(u)?.0)
    }

    /// [`Self::run`], and the last state `(N)`.
    pub fn run_with_state(&self, u: &Tensor) -> Result<(Tensor, Tensor)> {
        let u = self.augmented(u)?;
        let (seq_len, width) = self.lambda.dims2()?;
        let mut h = Tensor::zeros((width, 1), u.dtype(), u.device())?;
        let mut ys = Vec::with_capacity(seq_len);
        for i in 0..seq_len {
            let u_i = u.i(i)?.unsqueeze(1)?;
            let decayed = h.broadcast_mul(&self.lambda.i(i)?.unsqueeze(1)?)?;
            h = (decayed + self.b.i(i)?.matmul(&u_i)?)?;
            let mut y = self.c.i(i)?.matmul(&h)?;
            if let Some(d) = &self.d {
                y = (y + d.i(i)?.matmul(&u_i)?)?;
            }
            ys.push(y.squeeze(1)?);
        }
        Ok((Tensor::stack(&ys, 0)?, h.squeeze(1)?))
    }

    /// The block kernel (12), `(seq_len, seq_len, d_model, inputs)`; zero for j > i.
    pub fn kernel(&self) -> Result<Tensor> {
        let (seq_len, _) = self.lambda.dims2()?;
        let (_, d_model, _) = self.c.dims3()?;
        let inputs = self.b.dim(2)?;
        let zero = Tensor::zeros((d_model, inputs), self.b.dtype(), self.b.device())?;
        let mut blocks = vec![zero; seq_len * seq_len];
        for j in 0..seq_len {
            let mut carried = self.b.i(j)?;
            for i in j..seq_len {
                if i > j {
                    carried = carried.broadcast_mul(&self.lambda.i(i)?.unsqueeze(1)?)?;
                }
                let block = self.c.i(i)?.contiguous()?.matmul(&carried)?;
                blocks[i * seq_len + j] = match &self.d {
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
        phi.matmul(&u.reshape((seq_len * inputs, 1))?)?
            .reshape((seq_len, d_model))
    }

    fn augmented(&self, u: &Tensor) -> Result<Tensor> {
        if self.b.dim(2)? == u.dim(1)? {
            return u.contiguous();
        }
        let one = Tensor::ones((u.dim(0)?, 1), u.dtype(), u.device())?;
        Tensor::cat(&[u, &one], 1)?.contiguous()
    }
}
