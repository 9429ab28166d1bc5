//! Complex numbers as pairs of real ones, with the few operations that discretised systems need.

use crate::ops::{self, Expression};
use candle_core::{Result, Tensor};

/// Real and imaginary part, of the same shape: tensors, or expressions, which are computed together.
#[derive(Clone)]
pub(super) struct Complex<R = Tensor> {
    pub re: R,
    pub im: R,
}

impl Complex<Expression> {
    pub fn of(z: &Complex) -> Self {
        Self { re: Expression::of(&z.re), im: Expression::of(&z.im) }
    }

    pub fn times(&self, other: &Self) -> Self {
        Self { re: &self.re * &other.re - &self.im * &other.im, im: &self.re * &other.im + &self.im * &other.re }
    }

    pub fn minus(&self, other: &Self) -> Self {
        Self { re: &self.re - &other.re, im: &self.im - &other.im }
    }

    /// Product with real numbers.
    pub fn scaled(&self, by: &Expression) -> Self {
        Self { re: &self.re * by, im: &self.im * by }
    }

    /// `mul` · z + `add` for real constants.
    pub fn affine(&self, mul: f64, add: f64) -> Self {
        Self { re: self.re.affine(mul, add), im: self.im.affine(mul, 0.0) }
    }

    pub fn recip(&self) -> Self {
        let norm = (self.re.sqr() + self.im.sqr()).recip();
        self.conjugate().scaled(&norm)
    }

    pub fn conjugate(&self) -> Self {
        Self { re: self.re.clone(), im: -self.im.clone() }
    }

    pub fn exp(&self) -> Self {
        let radius = self.re.exp();
        Self { re: &radius * &self.im.cos(), im: &radius * &self.im.sin() }
    }

    /// e^z - 1, without cancellation for small z.
    pub fn exp_m1(&self) -> Self {
        // e^x - 1 = 2 tanh(x/2) / (1 - tanh(x/2)), and e^x cos y - 1 = (e^x - 1) cos y - 2 sin²(y/2).
        let tanh = self.re.affine(0.5, 0.0).tanh();
        let exp_m1 = tanh.affine(2.0, 0.0) / tanh.affine(-1.0, 1.0);
        let vers = self.im.affine(0.5, 0.0).sin().sqr().affine(2.0, 0.0);
        Self { re: exp_m1 * self.im.cos() - vers, im: self.exp().im }
    }

    pub fn tensors(&self) -> Result<Complex> {
        let [re, im] = ops::tensors([&self.re, &self.im])?;
        Ok(Complex { re, im })
    }
}

impl Complex {
    pub fn times(&self, other: &Self) -> Result<Self> {
        Complex::of(self).times(&Complex::of(other)).tensors()
    }

    pub fn minus(&self, other: &Self) -> Result<Self> {
        Complex::of(self).minus(&Complex::of(other)).tensors()
    }

    /// Product with a real tensor.
    pub fn scaled(&self, by: &Tensor) -> Result<Self> {
        Complex::of(self).scaled(&Expression::of(by)).tensors()
    }

    /// `mul` · z + `add` for real constants.
    pub fn affine(&self, mul: f64, add: f64) -> Result<Self> {
        Complex::of(self).affine(mul, add).tensors()
    }

    pub fn recip(&self) -> Result<Self> {
        Complex::of(self).recip().tensors()
    }

    pub fn conjugate(&self) -> Result<Self> {
        Ok(Self { re: self.re.clone(), im: self.im.neg()? })
    }

    pub fn exp(&self) -> Result<Self> {
        Complex::of(self).exp().tensors()
    }

    /// e^z - 1, without cancellation for small z.
    pub fn exp_m1(&self) -> Result<Self> {
        Complex::of(self).exp_m1().tensors()
    }
}
