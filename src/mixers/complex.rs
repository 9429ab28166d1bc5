//! Complex tensors as pairs of real ones, with the few operations that discretised systems need.

use candle_core::{Result, Tensor};

/// Real and imaginary part, of the same shape.
#[derive(Clone)]
pub(super) struct Complex {
    pub re: Tensor,
    pub im: Tensor,
}

impl Complex {
    pub fn times(&self, other: &Self) -> Result<Self> {
        Ok(Self {
            re: (self.re.broadcast_mul(&other.re)? - self.im.broadcast_mul(&other.im)?)?,
            im: (self.re.broadcast_mul(&other.im)? + self.im.broadcast_mul(&other.re)?)?,
        })
    }

    pub fn minus(&self, other: &Self) -> Result<Self> {
        Ok(Self { re: self.re.broadcast_sub(&other.re)?, im: self.im.broadcast_sub(&other.im)? })
    }

    /// Product with a real tensor.
    pub fn scaled(&self, by: &Tensor) -> Result<Self> {
        Ok(Self { re: self.re.broadcast_mul(by)?, im: self.im.broadcast_mul(by)? })
    }

    /// `mul` · z + `add` for real constants.
    pub fn affine(&self, mul: f64, add: f64) -> Result<Self> {
        Ok(Self { re: self.re.affine(mul, add)?, im: self.im.affine(mul, 0.0)? })
    }

    pub fn recip(&self) -> Result<Self> {
        let norm = (self.re.sqr()? + self.im.sqr()?)?.recip()?;
        self.conjugate()?.scaled(&norm)
    }

    pub fn conjugate(&self) -> Result<Self> {
        Ok(Self { re: self.re.clone(), im: self.im.neg()? })
    }

    pub fn exp(&self) -> Result<Self> {
        let radius = self.re.exp()?;
        Ok(Self { re: (&radius * self.im.cos()?)?, im: (radius * self.im.sin()?)? })
    }

    /// e^z - 1, without cancellation for small z.
    pub fn exp_m1(&self) -> Result<Self> {
        // e^x - 1 = 2 tanh(x/2) / (1 - tanh(x/2)), and e^x cos y - 1 = (e^x - 1) cos y - 2 sin²(y/2).
        let tanh = (&self.re * 0.5)?.tanh()?;
        let exp_m1 = ((&tanh * 2.0)? / tanh.affine(-1.0, 1.0)?)?;
        let vers = ((&self.im * 0.5)?.sin()?.sqr()? * 2.0)?;
        Ok(Self { re: ((exp_m1 * self.im.cos()?)? - vers)?, im: self.exp()?.im })
    }
}
