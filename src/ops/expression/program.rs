//! An expression as instructions for the kernels of `cuda/expression.cu`.

use super::{reference, Expression, Term};
use crate::gpu;
use crate::gpu::sizes::expression::{INPUTS, OUTPUTS, SPAN};
use crate::runtime::autograd::Op;
use crate::runtime::route;
use candle_core::{DType, Shape, Tensor, TensorId};
use std::collections::HashMap;
use std::rc::Rc;

/// Words of an instruction: the operation and its operands, and two numbers.
pub(super) const WORDS: usize = 3;
/// Bytes of shared memory of a block.
const SHARED: usize = 48 << 10;

/// Operations that are no functions, by their numbers in `cuda/expression.cu`.
const LOAD: u32 = 0;
const AFFINE: u32 = 13;
const ROW_SUM: u32 = 19;
const STORE: u32 = 20;

/// The element of an input or of an output that belongs to element i of the shape of all.
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

/// Expressions with the same inputs as one op.
pub(super) struct Program {
    /// The instructions: first those that compute a value each, then those that store.
    pub(super) words: Vec<u32>,
    /// Number of instructions that compute a value.
    pub(super) values: usize,
    /// Shape to which everything broadcasts.
    pub(super) shape: Shape,
    /// Elements that a warp computes at a time: a row, or any.
    pub(super) span: usize,
    pub(super) reaches: Vec<Reach>,
    outs: Vec<Shape>,
    /// Element type of the outputs.
    pub(super) dtype: DType,
}

impl Op for Program {
    const NAME: &'static str = "expression";

    fn out_shapes(&self) -> Vec<Shape> {
        self.outs.clone()
    }
}

impl Program {
    /// Returns the program and its inputs; `None` where the chain of ops runs: on the CPU, and for expressions that the
    /// kernels do not take.
    pub(super) fn of(expressions: &[&Expression]) -> Option<(Self, Vec<Tensor>)> {
        let mut inputs = Vec::<Tensor>::new();
        let mut collect = |x: &Tensor, _: bool| {
            if !inputs.iter().any(|known| known.id() == x.id()) {
                inputs.push(x.clone());
            }
        };
        expressions.iter().for_each(|expression| expression.each_input(&mut collect));
        gpu::of(inputs.first()?)?;
        let program = Self::compiled(expressions).filter(Self::fits);
        route::take(program.is_some()).then_some((program?, inputs))
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
        let (shape, words, inputs, known) = (&shape?, Vec::new(), Vec::new(), HashMap::new());
        Compiler { shape, dtype, words, inputs, known }.compile(expressions)
    }

    /// Whether values and gradients of a warp fit into shared memory.
    fn fits(&self) -> bool {
        2 * self.values * self.span * size_of::<f32>() <= SHARED
    }

    /// Number of warps of a block, for `arrays` numbers for each value and element.
    pub(super) fn warps(&self, arrays: usize) -> usize {
        (SHARED / self.bytes(arrays)).clamp(1, 4)
    }

    /// Bytes of shared memory of a warp.
    pub(super) fn bytes(&self, arrays: usize) -> usize {
        arrays * self.values * self.span * size_of::<f32>()
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
    words: Vec<u32>,
    /// Inputs in the order in which they are loaded, with their reach and their value.
    inputs: Vec<(TensorId, Reach, u32)>,
    /// The value of each node, with its shape.
    known: HashMap<*const Term, (u32, Shape)>,
}

impl Compiler<'_> {
    fn push(&mut self, operation: u32, [a, b]: [u32; 2], numbers: [u32; 2]) -> u32 {
        let value = self.words.len() / WORDS;
        self.words.extend([operation | a << 8 | b << 16, numbers[0], numbers[1]]);
        value as u32
    }

    fn compile(&mut self, expressions: &[&Expression]) -> Option<Program> {
        let found = expressions.iter().map(|expression| self.node(expression));
        let found = found.collect::<Option<Vec<_>>>()?;
        let values = self.words.len() / WORDS;
        let mut by_row = self.words.chunks(WORDS).any(|words| words[0] & 0xff == ROW_SUM);
        by_row |= self.inputs.iter().any(|(_, reach, _)| *reach == Reach::Row);
        let mut outs = Vec::new();
        for (i, (value, shape)) in found.into_iter().enumerate() {
            let reach = reach(shape.dims(), self.shape.dims()).filter(|reach| *reach != Reach::Last)?;
            by_row |= reach == Reach::Row;
            self.push(STORE, [value, i as u32], [reach as u32, 0]);
            outs.push(shape);
        }
        // Operands are numbers of 8 bits.
        if self.inputs.len() > INPUTS || outs.len() > OUTPUTS || self.words.len() / WORDS > 0xff {
            return None;
        }
        Some(Program {
            words: std::mem::take(&mut self.words),
            values,
            shape: self.shape.clone(),
            span: if by_row { *self.shape.dims().last()? } else { SPAN },
            reaches: self.inputs.iter().map(|(_, reach, _)| *reach).collect(),
            outs,
            dtype: self.dtype,
        })
    }

    /// Returns the value of a node, and its shape.
    fn node(&mut self, of: &Expression) -> Option<(u32, Shape)> {
        let key = Rc::as_ptr(&of.0);
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        let float = |x: f64| (x as f32).to_bits();
        let found = match &*of.0 {
            Term::Input { x, shape, parameter } => self.input(x, shape, *parameter)?,
            Term::Unary(function, x) => {
                let (x, shape) = self.node(x)?;
                (self.push(*function as u32, [x, 0], [0, 0]), shape)
            }
            Term::Affine { of: x, scale, shift } => {
                let (x, shape) = self.node(x)?;
                (self.push(AFFINE, [x, 0], [float(*scale), float(*shift)]), shape)
            }
            Term::Binary(function, x, y) => {
                let ((x, left), (y, right)) = (self.node(x)?, self.node(y)?);
                let shape = left.broadcast_shape_binary_op(&right, Program::NAME).ok()?;
                (self.push(*function as u32, [x, y], [0, 0]), shape)
            }
            Term::Broadcast { of: x, shape } => {
                let (x, own) = self.node(x)?;
                let whole = own.broadcast_shape_binary_op(shape, Program::NAME).ok()?;
                if whole != *shape {
                    return None;
                }
                (x, whole)
            }
            Term::RowSum(x) => {
                let (x, shape) = self.node(x)?;
                let mut sizes = shape.into_dims();
                // Only rows of all columns are summed.
                if sizes.last() != self.shape.dims().last() || sizes.last() == Some(&1) {
                    return None;
                }
                *sizes.last_mut()? = 1;
                (self.push(ROW_SUM, [x, 0], [0, 0]), sizes.into())
            }
        };
        self.known.insert(key, found.clone());
        Some(found)
    }

    fn input(&mut self, x: &Tensor, shape: &Shape, parameter: bool) -> Option<(u32, Shape)> {
        // Rows whose sums are within a grid.
        const MOST_ROWS: usize = 1 << 23;
        let reach = reach(shape.dims(), self.shape.dims())?;
        let rows = self.shape.elem_count() / x.elem_count().max(1);
        if x.elem_count() != shape.elem_count() || reach == Reach::Last && rows > MOST_ROWS {
            return None;
        }
        if let Some((_, known, value)) = self.inputs.iter().find(|(known, ..)| *known == x.id()) {
            return (*known == reach).then(|| (*value, shape.clone()));
        }
        // Gradients of what lacks the first axes are sums in f32.
        let known = x.dtype() == DType::F32 || x.dtype() == DType::BF16 && reach != Reach::Last;
        if !known || !parameter && x.dtype() != self.dtype {
            return None;
        }
        let length = if reach == Reach::Last { x.elem_count() } else { *self.shape.dims().last()? };
        let input = self.inputs.len() as u32;
        let value = self.push(LOAD, [input, 0], [reach as u32, length as u32]);
        self.inputs.push((x.id(), reach, value));
        Some((value, shape.clone()))
    }
}
