//! Definition in ordinary tensor ops.

use super::{Binary, Expression, Term, Unary};
use candle_core::{DType, Result, Tensor, D};
use std::collections::HashMap;
use std::rc::Rc;

/// The values of expressions. Each node is computed once.
pub(super) fn tensors(of: &[&Expression]) -> Result<Vec<Tensor>> {
    let dtype = dtype(of);
    let mut found = HashMap::new();
    of.iter().map(|expression| tensor(expression, dtype, &mut found)).collect()
}

/// Type of the first input that is no parameter.
pub(super) fn dtype(of: &[&Expression]) -> Option<DType> {
    let mut found = None;
    let mut see = |x: &Tensor, parameter: bool| {
        if !parameter {
            found.get_or_insert(x.dtype());
        }
    };
    of.iter().for_each(|expression| expression.each_input(&mut see));
    found
}

fn tensor(of: &Expression, dtype: Option<DType>, found: &mut HashMap<*const Term, Tensor>) -> Result<Tensor> {
    let key = Rc::as_ptr(&of.0);
    if let Some(known) = found.get(&key) {
        return Ok(known.clone());
    }
    let value = match &*of.0 {
        Term::Input { x, shape, parameter } => {
            let x = if x.shape() == shape { x.clone() } else { x.reshape(shape)? };
            match dtype.filter(|_| *parameter) {
                Some(dtype) => x.to_dtype(dtype)?,
                None => x,
            }
        }
        Term::Unary(function, x) => {
            let x = tensor(x, dtype, found)?;
            match function {
                Unary::Cos => x.cos()?,
                Unary::Exp => x.exp()?,
                Unary::Log => x.log()?,
                Unary::Neg => x.neg()?,
                Unary::Recip => x.recip()?,
                Unary::Sigmoid => crate::sigmoid(&x)?,
                Unary::Silu => crate::silu(&x)?,
                Unary::Sin => x.sin()?,
                Unary::Softplus => crate::softplus(&x)?,
                Unary::Sqr => x.sqr()?,
                Unary::Sqrt => x.sqrt()?,
                Unary::Tanh => x.tanh()?,
            }
        }
        Term::Affine { of: x, scale, shift } => tensor(x, dtype, found)?.affine(*scale, *shift)?,
        Term::Binary(function, x, y) => {
            let (x, y) = (tensor(x, dtype, found)?, tensor(y, dtype, found)?);
            match function {
                Binary::Add => x.broadcast_add(&y)?,
                Binary::Sub => x.broadcast_sub(&y)?,
                Binary::Mul => x.broadcast_mul(&y)?,
                Binary::Div => x.broadcast_div(&y)?,
                Binary::SiluGate if x.dims() == y.dims() => crate::silu_gate(&x, &y)?,
                Binary::SiluGate => crate::silu_gate(&x.broadcast_as(y.shape())?.contiguous()?, &y)?,
            }
        }
        Term::RowSum(x) => tensor(x, dtype, found)?.sum_keepdim(D::Minus1)?,
        Term::Broadcast { of: x, shape } => tensor(x, dtype, found)?.broadcast_as(shape)?.contiguous()?,
    };
    found.insert(key, value.clone());
    Ok(value)
}
