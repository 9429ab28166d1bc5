//! Complex numbers as two real tensors, with the few operations that discretised systems need.

use candle_core::{Result, Tensor};

/// Real and imaginary part, of one shape or broadcast against each other.
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

    /// By real numbers.
    pub fn scaled(&self, by: &Tensor) -> Result<Self> {
        Ok(Self {
            re: self.re.broadcast_mul(by)?,
            im: self.im.broadcast_mul(by)?,
        })
    }

    /// `by` · self + `add`, both real constants.
    pub fn affine(&self, by: f64, add: f64) -> Result<Self> {
        Ok(Self {
            re: self.re.affine(by, add)?,
            im: self.im.affine(by, 0.0)?,
        })
    }

    pub fn recip(&self) -> Result<Self> {
        let norm = (self.re.sqr()? + self.im.sqr()?)?.recip()?;
        let conjugate = Self {
            re: self.re.clone(),
            im: self.im.neg()?,
        };
        conjugate.scaled(&norm)
    }

    pub fn exp(&self) -> Result<Self> {
        let radius = self.re.exp()?;
        Ok(Self {
            re: (&radius * self.im.cos()?)?,
            im: (radius * self.im.sin()?)?,
        })
    }

    /// e^z - 1, of small z without the loss of digits that the subtraction would be.
    pub fn exp_m1(&self) -> Result<Self> {
        // e^x - 1 = 2 tanh(x/2) / (1 - tanh(x/2)), and e^x cos y - 1 = (e^x - 1) cos y - 2 sin²(y/2).
        let tanh = (&self.re * 0.5)?.tanh()?;
        let exp_m1 = ((&tanh * 2.0)? / tanh.affine(-1.0, 1.0)?)?;
        let turned = ((&self.im * 0.5)?.sin()?.sqr()? * 2.0)?;
        Ok(Self {
            re: ((exp_m1 * self.im.cos()?)? - turned)?,
            im: self.exp()?.im,
        })
    }
}
