//! An expression as a list of values, each computed from earlier ones, for the fused implementations.

use super::{reference, Binary, Expression, Term, Unary};
use crate::runtime::autograd::Op;
use candle_core::{DType, Shape, Tensor, TensorId};
use std::collections::HashMap;
use std::rc::Rc;

/// Relation of a tensor to the shape to which everything broadcasts, by which the element is found that belongs to
/// element i of that shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Reach {
    /// Element i.
    All,
    /// Element i / width: one number for each row.
    Row,
    /// Element i modulo its length: it lacks the first axes.
    Last,
}

/// Computation of a value; operands are indices of earlier values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The input of this index.
    Load(usize),
    Unary(Unary, usize),
    Affine(usize, [f64; 2]),
    /// Operands have the shape of the result.
    Binary(Binary, [usize; 2]),
    RowSum(usize),
    /// The operand, repeated to the shape of the result.
    Expand(usize),
}

impl Step {
    pub(super) fn operands(self) -> impl Iterator<Item = usize> {
        let operands = match self {
            Self::Load(_) => [None, None],
            Self::Unary(_, x) | Self::Affine(x, _) | Self::RowSum(x) | Self::Expand(x) => [Some(x), None],
            Self::Binary(_, [x, y]) => [Some(x), Some(y)],
        };
        operands.into_iter().flatten()
    }
}

pub(super) struct Value {
    pub(super) step: Step,
    pub(super) shape: Shape,
    /// `None` for any other relation; inputs and outputs always have one of these.
    pub(super) reach: Option<Reach>,
}

/// Expressions with the same inputs as one op.
pub(super) struct Program {
    /// Operands come before their results; the backward pass runs through them in reverse.
    pub(super) values: Vec<Value>,
    /// Values that are returned.
    pub(super) returned: Vec<usize>,
    /// Shape to which everything broadcasts.
    pub(super) shape: Shape,
    /// Whether values belong to rows.
    pub(super) by_row: bool,
    /// Reach of each input.
    pub(super) reaches: Vec<Reach>,
    /// Element type of the outputs.
    pub(super) dtype: DType,
}

impl Op for Program {
    const NAME: &'static str = "expression";

    fn out_shapes(&self) -> Vec<Shape> {
        self.returned.iter().map(|&value| self.values[value].shape.clone()).collect()
    }
}

impl Program {
    /// Returns the program and its inputs; `None` if shapes do not broadcast, or if the relation of an input or output to the
    /// whole is not a [`Reach`].
    pub(super) fn of(expressions: &[&Expression]) -> Option<(Self, Vec<Tensor>)> {
        let mut inputs = Vec::<Tensor>::new();
        let mut collect = |x: &Tensor, _: bool| {
            if !inputs.iter().any(|known| known.id() == x.id()) {
                inputs.push(x.clone());
            }
        };
        expressions.iter().for_each(|expression| expression.each_input(&mut collect));
        Some((Self::compiled(expressions)?, inputs))
    }

    fn compiled(expressions: &[&Expression]) -> Option<Self> {
        let dtype = reference::dtype(expressions)?;
        let mut shape = Some(Shape::from(()));
        let mut widen = |term: &Term| {
            if let Term::Input { shape: own, .. } | Term::Broadcast { shape: own, .. } = term {
                shape = shape.take().and_then(|shape| shape.broadcast_shape_binary_op(own, Self::NAME).ok());
            }
        };
        expressions.iter().for_each(|expression| expression.each_term(&mut widen));
        let (shape, values, inputs, known) = (&shape?, Vec::new(), Vec::new(), HashMap::new());
        Compiler { shape, dtype, values, inputs, known }.compile(expressions)
    }

    /// Returns the size of the last axis.
    pub(super) fn width(&self) -> usize {
        self.shape.dims().last().copied().unwrap_or(1)
    }

    pub(super) fn reach(&self, value: usize) -> Option<Reach> {
        self.values[value].reach
    }

    /// Whether a value lacks the first axes.
    pub(super) fn is_last(&self, value: usize) -> bool {
        self.reach(value) == Some(Reach::Last)
    }
}

/// Returns the reach of a tensor of shape `part` in `all`; `None` if it is another.
fn reach(part: &[usize], all: &[usize]) -> Option<Reach> {
    let (&width, rows) = all.split_last()?;
    let stripped = &part[part.iter().take_while(|&&size| size == 1).count()..];
    if part == all {
        return Some(Reach::All);
    }
    if part.split_last() == Some((&1, rows)) && width > 1 {
        return Some(Reach::Row);
    }
    all.ends_with(stripped).then_some(Reach::Last)
}

struct Compiler<'a> {
    shape: &'a Shape,
    dtype: DType,
    values: Vec<Value>,
    /// Inputs in the order in which they are loaded, with their value.
    inputs: Vec<(TensorId, usize)>,
    /// The value of each node.
    known: HashMap<*const Term, usize>,
}

impl Compiler<'_> {
    fn push(&mut self, step: Step, shape: Shape) -> usize {
        let reach = reach(shape.dims(), self.shape.dims());
        self.values.push(Value { step, shape, reach });
        self.values.len() - 1
    }

    fn compile(mut self, expressions: &[&Expression]) -> Option<Program> {
        let found = expressions.iter().map(|expression| self.node(expression));
        let returned = found.collect::<Option<Vec<_>>>()?;
        let Self { shape, dtype, values, inputs, .. } = self;
        let reach = |&value: &usize| values[value].reach;
        let reaches: Option<Vec<_>> = inputs.iter().map(|(_, value)| reach(value)).collect();
        let is_whole = |value| matches!(reach(value), Some(Reach::All | Reach::Row));
        let is_by_row = |(i, value): (usize, &Value)| match value.step {
            Step::RowSum(_) => true,
            Step::Load(_) => value.reach == Some(Reach::Row),
            _ => value.reach == Some(Reach::Row) && returned.contains(&i),
        };
        let by_row = values.iter().enumerate().any(is_by_row);
        let reaches = reaches.filter(|_| returned.iter().all(is_whole))?;
        Some(Program { values, returned, shape: shape.clone(), by_row, reaches, dtype })
    }

    /// Returns the value of a node.
    fn node(&mut self, of: &Expression) -> Option<usize> {
        let key = Rc::as_ptr(&of.0);
        if let Some(&known) = self.known.get(&key) {
            return Some(known);
        }
        let value = match &*of.0 {
            Term::Input { x, shape, parameter } => self.input(x, shape, *parameter)?,
            Term::Unary(function, x) => {
                let x = self.node(x)?;
                self.push(Step::Unary(*function, x), self.values[x].shape.clone())
            }
            Term::Affine { of: x, scale, shift } => {
                let x = self.node(x)?;
                self.push(Step::Affine(x, [*scale, *shift]), self.values[x].shape.clone())
            }
            Term::Binary(function, x, y) => self.binary(*function, x, y)?,
            Term::Broadcast { of: x, shape } => {
                let x = self.node(x)?;
                let whole = self.values[x].shape.broadcast_shape_binary_op(shape, Program::NAME).ok()?;
                if whole != *shape {
                    return None;
                }
                self.expand(x, &whole)
            }
            Term::RowSum(x) => {
                let x = self.node(x)?;
                let mut sizes = self.values[x].shape.dims().to_vec();
                // Only rows of all columns are summed.
                if sizes.last() != self.shape.dims().last() || sizes.last() == Some(&1) {
                    return None;
                }
                *sizes.last_mut()? = 1;
                self.push(Step::RowSum(x), sizes.into())
            }
        };
        self.known.insert(key, value);
        Some(value)
    }

    fn binary(&mut self, function: Binary, x: &Expression, y: &Expression) -> Option<usize> {
        let (x, y) = (self.node(x)?, self.node(y)?);
        let [own, other] = [x, y].map(|value| &self.values[value].shape);
        let shape = own.broadcast_shape_binary_op(other, Program::NAME).ok()?;
        if function == Binary::SiluGate && *other != shape {
            return None;
        }
        let operands = [self.expand(x, &shape), self.expand(y, &shape)];
        Some(self.push(Step::Binary(function, operands), shape))
    }

    /// Returns the value in the shape `to`.
    fn expand(&mut self, x: usize, to: &Shape) -> usize {
        match self.values[x].shape == *to {
            true => x,
            false => self.push(Step::Expand(x), to.clone()),
        }
    }

    fn input(&mut self, x: &Tensor, shape: &Shape, parameter: bool) -> Option<usize> {
        let reach = reach(shape.dims(), self.shape.dims())?;
        if x.elem_count() != shape.elem_count() || !parameter && x.dtype() != self.dtype {
            return None;
        }
        if let Some(&(_, value)) = self.inputs.iter().find(|(known, _)| *known == x.id()) {
            return (self.values[value].reach == Some(reach)).then_some(value);
        }
        let input = self.inputs.len();
        let value = self.push(Step::Load(input), shape.clone());
        self.inputs.push((x.id(), value));
        Some(value)
    }
}
