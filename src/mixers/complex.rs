//! Complex numbers as pairs of real ones, with the few operations that discretised systems need: tensors, or expressions
//! that are computed together.

use crate::ops::Expression;
use candle_core::{Result, Tensor};

/// Real and imaginary part, of the same shape.
#[derive(Clone)]
pub(super) struct Complex<R = Tensor> {
    pub re: R,
    pub im: R,
}

/// Real numbers that broadcast.
pub(super) trait Real: Clone {
    fn plus(&self, other: &Self) -> Result<Self>;
    fn minus(&self, other: &Self) -> Result<Self>;
    fn times(&self, other: &Self) -> Result<Self>;
    fn over(&self, other: &Self) -> Result<Self>;
    fn scaled_and_shifted(&self, scale: f64, shift: f64) -> Result<Self>;
    fn negative(&self) -> Result<Self>;
    fn inverse(&self) -> Result<Self>;
    fn square(&self) -> Result<Self>;
    fn exponential(&self) -> Result<Self>;
    fn sine(&self) -> Result<Self>;
    fn cosine(&self) -> Result<Self>;
    fn hyperbolic_tangent(&self) -> Result<Self>;
}

impl Real for Tensor {
    fn plus(&self, other: &Self) -> Result<Self> {
        self.broadcast_add(other)
    }

    fn minus(&self, other: &Self) -> Result<Self> {
        self.broadcast_sub(other)
    }

    fn times(&self, other: &Self) -> Result<Self> {
        self.broadcast_mul(other)
    }

    fn over(&self, other: &Self) -> Result<Self> {
        self.broadcast_div(other)
    }

    fn scaled_and_shifted(&self, scale: f64, shift: f64) -> Result<Self> {
        self.affine(scale, shift)
    }

    fn negative(&self) -> Result<Self> {
        self.neg()
    }

    fn inverse(&self) -> Result<Self> {
        self.recip()
    }

    fn square(&self) -> Result<Self> {
        self.sqr()
    }

    fn exponential(&self) -> Result<Self> {
        self.exp()
    }

    fn sine(&self) -> Result<Self> {
        self.sin()
    }

    fn cosine(&self) -> Result<Self> {
        self.cos()
    }

    fn hyperbolic_tangent(&self) -> Result<Self> {
        self.tanh()
    }
}

impl Real for Expression {
    fn plus(&self, other: &Self) -> Result<Self> {
        Ok(self + other)
    }

    fn minus(&self, other: &Self) -> Result<Self> {
        Ok(self - other)
    }

    fn times(&self, other: &Self) -> Result<Self> {
        Ok(self * other)
    }

    fn over(&self, other: &Self) -> Result<Self> {
        Ok(self / other)
    }

    fn scaled_and_shifted(&self, scale: f64, shift: f64) -> Result<Self> {
        Ok(self.affine(scale, shift))
    }

    fn negative(&self) -> Result<Self> {
        Ok(-self.clone())
    }

    fn inverse(&self) -> Result<Self> {
        Ok(self.recip())
    }

    fn square(&self) -> Result<Self> {
        Ok(self.sqr())
    }

    fn exponential(&self) -> Result<Self> {
        Ok(self.exp())
    }

    fn sine(&self) -> Result<Self> {
        Ok(self.sin())
    }

    fn cosine(&self) -> Result<Self> {
        Ok(self.cos())
    }

    fn hyperbolic_tangent(&self) -> Result<Self> {
        Ok(self.tanh())
    }
}

impl<R: Real> Complex<R> {
    pub fn times(&self, other: &Self) -> Result<Self> {
        Ok(Self {
            re: self.re.times(&other.re)?.minus(&self.im.times(&other.im)?)?,
            im: self.re.times(&other.im)?.plus(&self.im.times(&other.re)?)?,
        })
    }

    pub fn minus(&self, other: &Self) -> Result<Self> {
        Ok(Self { re: self.re.minus(&other.re)?, im: self.im.minus(&other.im)? })
    }

    /// Product with real numbers.
    pub fn scaled(&self, by: &R) -> Result<Self> {
        Ok(Self { re: self.re.times(by)?, im: self.im.times(by)? })
    }

    /// `mul` · z + `add` for real constants.
    pub fn affine(&self, mul: f64, add: f64) -> Result<Self> {
        Ok(Self { re: self.re.scaled_and_shifted(mul, add)?, im: self.im.scaled_and_shifted(mul, 0.0)? })
    }

    pub fn recip(&self) -> Result<Self> {
        let norm = self.re.square()?.plus(&self.im.square()?)?.inverse()?;
        self.conjugate()?.scaled(&norm)
    }

    pub fn conjugate(&self) -> Result<Self> {
        Ok(Self { re: self.re.clone(), im: self.im.negative()? })
    }

    pub fn exp(&self) -> Result<Self> {
        let radius = self.re.exponential()?;
        Ok(Self { re: radius.times(&self.im.cosine()?)?, im: radius.times(&self.im.sine()?)? })
    }

    /// e^z - 1, without cancellation for small z.
    pub fn exp_m1(&self) -> Result<Self> {
        // e^x - 1 = 2 tanh(x/2) / (1 - tanh(x/2)), and e^x cos y - 1 = (e^x - 1) cos y - 2 sin²(y/2).
        let half = |x: &R| x.scaled_and_shifted(0.5, 0.0);
        let twice = |x: &R| x.scaled_and_shifted(2.0, 0.0);
        let tanh = half(&self.re)?.hyperbolic_tangent()?;
        let exp_m1 = twice(&tanh)?.over(&tanh.scaled_and_shifted(-1.0, 1.0)?)?;
        let vers = twice(&half(&self.im)?.sine()?.square()?)?;
        Ok(Self { re: exp_m1.times(&self.im.cosine()?)?.minus(&vers)?, im: self.exp()?.im })
    }
}

impl Complex<Expression> {
    /// Parameters, read in a shape of as many elements.
    pub fn of(z: &Complex) -> Self {
        Self { re: Expression::of(&z.re), im: Expression::of(&z.im) }
    }
}
