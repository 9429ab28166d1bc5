//! Arithmetic on parameters and along heads as one op: elementwise functions and sums over the last axis, of tensors that
//! broadcast. Both implementations interpret the expression. On a GPU it is one kernel forward and one backward, where the
//! chain of ops that defines it would launch two or more for each; on the CPU values have the bits of that chain.

mod cpu;
mod cuda;
mod program;
mod reference;

use crate::gpu;
use crate::runtime::autograd::apply;
use crate::runtime::route;
use candle_core::{Result, Shape, Tensor};
use program::Program;
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::rc::Rc;

/// A value that is computed from tensors. Clones are one value, computed once.
#[derive(Clone)]
pub struct Expression(Rc<Term>);

enum Term {
    Input {
        x: Tensor,
        /// Shape in which it is read, of as many elements.
        shape: Shape,
        /// Whether it takes the type of the first input that is no parameter.
        parameter: bool,
    },
    Unary(Unary, Expression),
    Affine {
        of: Expression,
        scale: f64,
        shift: f64,
    },
    Binary(Binary, Expression, Expression),
    RowSum(Expression),
    Broadcast {
        of: Expression,
        shape: Shape,
    },
}

/// A function of one number, by its number in `cuda/expression.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Unary {
    Cos = 1,
    Exp,
    Log,
    Neg,
    Recip,
    Sigmoid,
    Silu,
    Sin,
    Softplus,
    Sqr,
    Sqrt,
    Tanh,
}

/// A function of two numbers, by its number in `cuda/expression.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Binary {
    Add = 14,
    Sub,
    Mul,
    Div,
    /// x silu(y).
    SiluGate,
}

impl Expression {
    /// A tensor. At least one input of an expression is of this kind.
    pub fn of(x: &Tensor) -> Self {
        Self(Rc::new(Term::Input { x: x.clone(), shape: x.shape().clone(), parameter: false }))
    }

    /// A parameter of a model. It takes the type of the first input that is no parameter.
    pub fn parameter(x: &Tensor) -> Self {
        Self::parameter_as(x, x.shape().clone())
    }

    /// [`Self::parameter`] in another shape, of as many elements.
    pub fn parameter_as(x: &Tensor, shape: impl Into<Shape>) -> Self {
        Self(Rc::new(Term::Input { x: x.clone(), shape: shape.into(), parameter: true }))
    }

    /// Calls `see` with each term of which the value is made, operands first.
    fn each_term(&self, see: &mut dyn FnMut(&Term)) {
        match &*self.0 {
            Term::Input { .. } => {}
            Term::Unary(_, x) | Term::Affine { of: x, .. } | Term::RowSum(x) | Term::Broadcast { of: x, .. } => {
                x.each_term(see);
            }
            Term::Binary(_, x, y) => {
                x.each_term(see);
                y.each_term(see);
            }
        }
        see(&self.0);
    }

    fn is_on_gpu(&self) -> bool {
        let mut found = false;
        self.each_input(&mut |x, _| found |= gpu::of(x).is_some());
        found
    }

    /// Returns the tensor that the value is, if nothing is computed.
    fn input(&self) -> Option<Tensor> {
        match &*self.0 {
            Term::Input { x, parameter: false, .. } => Some(x.clone()),
            _ => None,
        }
    }

    /// Calls `see` with each input, and whether it is a parameter.
    fn each_input(&self, see: &mut dyn FnMut(&Tensor, bool)) {
        self.each_term(&mut |term| {
            if let Term::Input { x, parameter, .. } = term {
                see(x, *parameter);
            }
        });
    }

    fn unary(&self, function: Unary) -> Self {
        Self(Rc::new(Term::Unary(function, self.clone())))
    }

    fn binary(self, function: Binary, other: Self) -> Self {
        Self(Rc::new(Term::Binary(function, self, other)))
    }

    /// `scale` x + `shift`.
    pub fn affine(&self, scale: f64, shift: f64) -> Self {
        Self(Rc::new(Term::Affine { of: self.clone(), scale, shift }))
    }

    /// e^x.
    pub fn exp(&self) -> Self {
        self.unary(Unary::Exp)
    }

    /// ln x.
    pub fn log(&self) -> Self {
        self.unary(Unary::Log)
    }

    /// 1/x.
    pub fn recip(&self) -> Self {
        self.unary(Unary::Recip)
    }

    /// 1 / (1 + e^{-x}).
    pub fn sigmoid(&self) -> Self {
        self.unary(Unary::Sigmoid)
    }

    /// x sigmoid(x).
    pub fn silu(&self) -> Self {
        self.unary(Unary::Silu)
    }

    /// ln(1 + e^x).
    pub fn softplus(&self) -> Self {
        self.unary(Unary::Softplus)
    }

    /// ln σ(x), without overflow.
    pub fn log_sigmoid(self) -> Self {
        -(-self).softplus()
    }

    /// x silu(`gate`); the gate has the shape of the product.
    pub fn silu_gate(self, gate: Self) -> Self {
        self.binary(Binary::SiluGate, gate)
    }

    /// cos x.
    pub fn cos(&self) -> Self {
        self.unary(Unary::Cos)
    }

    /// sin x.
    pub fn sin(&self) -> Self {
        self.unary(Unary::Sin)
    }

    /// tanh x.
    pub fn tanh(&self) -> Self {
        self.unary(Unary::Tanh)
    }

    /// x².
    pub fn sqr(&self) -> Self {
        self.unary(Unary::Sqr)
    }

    /// √x.
    pub fn sqrt(&self) -> Self {
        self.unary(Unary::Sqrt)
    }

    /// Sum along the last axis, which then has size 1.
    pub fn row_sum(&self) -> Self {
        Self(Rc::new(Term::RowSum(self.clone())))
    }

    /// The value, repeated along axes of size 1 and along new first axes.
    pub fn broadcast(&self, shape: impl Into<Shape>) -> Self {
        Self(Rc::new(Term::Broadcast { of: self.clone(), shape: shape.into() }))
    }

    /// The same value; on the CPU, computed by an op of its own. Use it where the value and the rest of an expression read the
    /// same tensor, and other ops do so, too: its gradients are then added in the order of the chain of ops.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::tensor`] does.
    pub fn apart(self) -> Result<Self> {
        match self.is_on_gpu() {
            true => Ok(self),
            false => Ok(Self::of(&self.tensor()?)),
        }
    }

    /// The values, as a tensor.
    ///
    /// # Errors
    ///
    /// Fails if shapes do not broadcast, or types differ.
    pub fn tensor(&self) -> Result<Tensor> {
        let [x] = tensors([self])?;
        Ok(x)
    }
}

/// The values of several expressions, which are computed together: in one pass if all of them broadcast to one shape and,
/// on a GPU, if a row of that, where rows are summed, fits into shared memory with all its intermediate values.
///
/// # Errors
///
/// Fails if shapes do not broadcast, or types differ.
pub fn tensors<const N: usize>(of: [&Expression; N]) -> Result<[Tensor; N]> {
    let given: Option<Vec<Tensor>> = of.iter().map(|expression| expression.input()).collect();
    let found = given.map_or_else(|| computed(&of), Ok)?;
    found.try_into().map_err(|_| candle_core::Error::msg("an expression without a value"))
}

fn computed(of: &[&Expression]) -> Result<Vec<Tensor>> {
    let on_gpu = of.iter().any(|expression| expression.is_on_gpu());
    let compiled = Program::of(of).filter(|(program, inputs)| match on_gpu {
        true => cuda::takes(program, inputs),
        false => cpu::takes(program, inputs),
    });
    // On the CPU, the chain is not recorded as a reference: the ops of the chain record what they run.
    let fused = (on_gpu || compiled.is_some()) && route::take(compiled.is_some());
    match compiled.filter(|_| fused) {
        Some((program, inputs)) => apply(program, &inputs.iter().collect::<Vec<_>>()),
        None => reference::tensors(of),
    }
}

/// Defines an operator between expressions.
macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl $trait for Expression {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                self.binary(Binary::$trait, other)
            }
        }

        impl $trait<&Expression> for &Expression {
            type Output = Expression;
            fn $method(self, other: &Expression) -> Expression {
                self.clone().binary(Binary::$trait, other.clone())
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);

impl Neg for Expression {
    type Output = Self;
    fn neg(self) -> Self {
        self.unary(Unary::Neg)
    }
}

impl Mul<f64> for Expression {
    type Output = Self;
    fn mul(self, by: f64) -> Self {
        self.affine(by, 0.0)
    }
}

impl Add<f64> for Expression {
    type Output = Self;
    fn add(self, more: f64) -> Self {
        self.affine(1.0, more)
    }
}

#[cfg(test)]
mod tests;
