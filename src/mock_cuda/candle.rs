//! Kernels of Candle 0.11.1 (`candle-kernels`), by name, as plain loops in f64.

use crate::answer::{broken, Answer, Code, Refusal};
use crate::array::{Array, Type};
use crate::kernel::Launch;
use crate::memory::Memory;

/// Arguments of a launch, taken in order.
struct Arguments<'a> {
    rest: std::slice::Iter<'a, Vec<u8>>,
    memory: &'a Memory,
}

impl Arguments<'_> {
    fn bytes(&mut self) -> Answer<&[u8]> {
        let next = self.rest.next().map(Vec::as_slice);
        next.ok_or_else(|| broken(Code::InvalidValue, "fewer arguments than the kernel takes"))
    }

    /// A size, of four or eight bytes.
    fn size(&mut self) -> Answer<usize> {
        let bytes = self.bytes()?;
        let mut wide = [0; 8];
        wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        Ok(usize::from_le_bytes(wide))
    }

    /// A number of a type.
    fn number(&mut self, kind: Type) -> Answer<f64> {
        Ok(kind.read(self.bytes()?))
    }

    fn array(&mut self, kind: Type) -> Answer<Array> {
        let address = self.size()? as u64;
        Array::at(address, kind, self.memory)
    }

    /// Dimensions, followed by strides for each of `operands`. A null pointer means contiguous operands.
    fn layout(&mut self, rank: usize, operands: usize) -> Answer<Layout> {
        let address = self.size()? as u64;
        if address == 0 {
            return Ok(Layout { sizes: Vec::new(), strides: vec![None; operands] });
        }
        let array = Array::at(address, Type::I64, self.memory)?;
        let row = |i: usize| (0..rank).map(|j| Ok(array.get(i * rank + j)? as usize)).collect::<Answer<Vec<_>>>();
        let strides = (1..=operands).map(|i| row(i).map(Some)).collect::<Answer<_>>()?;
        Ok(Layout { sizes: row(0)?, strides })
    }
}

/// Sizes of the dimensions, and the strides of each operand; `None`: contiguous.
struct Layout {
    sizes: Vec<usize>,
    strides: Vec<Option<Vec<usize>>>,
}

impl Layout {
    /// Place of element `i`, in row-major order, of an operand.
    fn place(&self, operand: usize, mut i: usize) -> usize {
        let Some(strides) = &self.strides[operand] else {
            return i;
        };
        let mut place = 0;
        for (size, stride) in self.sizes.iter().zip(strides).rev() {
            place += i % size * stride;
            i /= size;
        }
        place
    }
}

fn unknown(name: &str) -> Refusal {
    broken(Code::LaunchFailed, format!("Candle's kernel {name} is not known here"))
}

/// Splits the type off a kernel's name: `badd_f32` is `badd` of f32.
fn typed(name: &str) -> Option<(&str, Type)> {
    let (rest, kind) = name.rsplit_once('_')?;
    Some((rest, Type::named(kind)?))
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + (0.797_884_560_802_865_4 * x * (1.0 + 0.044_715 * x * x)).tanh())
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns a function of one number.
fn unary(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "ucopy" => |x| x,
        "uneg" => |x| -x,
        "urecip" => |x| 1.0 / x,
        "uexp" => f64::exp,
        "ulog" => f64::ln,
        "usin" => f64::sin,
        "ucos" => f64::cos,
        "utanh" => f64::tanh,
        "uerf" => libm::erf,
        "uceil" => f64::ceil,
        "ufloor" => f64::floor,
        "uround" => f64::round,
        "uabs" => f64::abs,
        "usqr" => |x| x * x,
        "usqrt" => f64::sqrt,
        "ugelu" => gelu,
        "ugelu_erf" => |x| 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        "urelu" => |x| x.max(0.0),
        "usilu" => |x| x * sigmoid(x),
        "usign" => |x| f64::from(x > 0.0) - f64::from(x < 0.0),
        "usigmoid" => sigmoid,
        _ => return None,
    })
}

/// Returns a function of one number and a parameter.
fn parametric(name: &str) -> Option<fn(f64, f64) -> f64> {
    Some(match name {
        "upowf" => |x, p| x.powf(p),
        "uelu" => |x, p| if x > 0.0 { x } else { p * x.exp_m1() },
        _ => return None,
    })
}

/// A function of two numbers, and whether it is a comparison.
type Binary = (fn(f64, f64) -> f64, bool);

fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        "badd" => (|x, y| x + y, false),
        "bsub" => (|x, y| x - y, false),
        "bmul" => (|x, y| x * y, false),
        "bdiv" => (|x, y| x / y, false),
        // NaN counts only beside NaN, as in fminf and fmaxf on a GPU.
        "bminimum" => (f64::min, false),
        "bmaximum" => (f64::max, false),
        "eq" => (|x, y| f64::from(x == y), true),
        "ne" => (|x, y| f64::from(x != y), true),
        "lt" => (|x, y| f64::from(x < y), true),
        "le" => (|x, y| f64::from(x <= y), true),
        "gt" => (|x, y| f64::from(x > y), true),
        "ge" => (|x, y| f64::from(x >= y), true),
        _ => return None,
    })
}

/// Runs a kernel.
pub(crate) fn run(launch: &Launch, memory: &Memory) -> Answer {
    let name = launch.function.name();
    let mut args = Arguments { rest: launch.arguments.iter(), memory };
    let ran = by_name(name, launch.blocks[0] as usize, &mut args);
    ran.map_err(|refusal| match refusal.rule {
        Some(rule) => broken(refusal.code, format!("Candle's {name}: {rule}")),
        None => refusal,
    })
}

/// Runs the kernel `name` in that many blocks.
fn by_name(name: &str, blocks: usize, args: &mut Arguments) -> Answer {
    if let Some(kinds) = name.strip_prefix("cast_") {
        let kinds = kinds.split_once('_').and_then(|(from, to)| Some((Type::named(from)?, Type::named(to)?)));
        let (from, to) = kinds.ok_or_else(|| unknown(name))?;
        return map(args, from, to, |x| x);
    }
    let (root, kind) = typed(name).ok_or_else(|| unknown(name))?;
    if let Some(function) = unary(root) {
        return map(args, kind, kind, function);
    }
    if let Some(function) = parametric(root) {
        let (count, rank) = (args.size()?, args.size()?);
        let layout = args.layout(rank, 1)?;
        let parameter = args.number(kind)?;
        let (from, to) = (args.array(kind)?, args.array(kind)?);
        return (0..count).try_for_each(|i| to.set(i, function(from.get(layout.place(0, i))?, parameter)));
    }
    if let Some((function, compares)) = binary(root) {
        let (count, rank) = (args.size()?, args.size()?);
        let layout = args.layout(rank, 2)?;
        let (left, right) = (args.array(kind)?, args.array(kind)?);
        let to = args.array(if compares { Type::U8 } else { kind })?;
        return (0..count).try_for_each(|i| {
            let (x, y) = (left.get(layout.place(0, i))?, right.get(layout.place(1, i))?);
            to.set(i, function(x, y))
        });
    }
    match root {
        "affine" => {
            let (count, rank) = (args.size()?, args.size()?);
            let layout = args.layout(rank, 1)?;
            let (from, to) = (args.array(kind)?, args.array(kind)?);
            let (scale, shift) = (args.number(kind)?, args.number(kind)?);
            (0..count).try_for_each(|i| to.set(i, from.get(layout.place(0, i))? * scale + shift))
        }
        "const_set" => {
            let (count, rank) = (args.size()?, args.size()?);
            let layout = args.layout(rank, 1)?;
            let value = args.number(kind)?;
            let to = args.array(kind)?;
            (0..count).try_for_each(|i| to.set(layout.place(0, i), value))
        }
        "copy2d" => {
            let (from, to) = (args.array(kind)?, args.array(kind)?);
            let [rows, columns, from_stride, to_stride] = [args.size()?, args.size()?, args.size()?, args.size()?];
            (0..rows * columns).try_for_each(|i| {
                let (row, column) = (i / columns, i % columns);
                to.set(row * to_stride + column, from.get(row * from_stride + column)?)
            })
        }
        _ if root.starts_with("fast_") => reduce(root, kind, args),
        _ if root.starts_with("asort_") => sort(root, kind, blocks, args),
        _ => {
            let (operation, ids) = typed(root).ok_or_else(|| unknown(name))?;
            indexed(operation, ids, kind, args).unwrap_or_else(|| Err(unknown(name)))
        }
    }
}

/// A function of each element.
fn map(args: &mut Arguments, from: Type, to: Type, function: impl Fn(f64) -> f64) -> Answer {
    let (count, rank) = (args.size()?, args.size()?);
    let layout = args.layout(rank, 1)?;
    let (from, to) = (args.array(from)?, args.array(to)?);
    (0..count).try_for_each(|i| to.set(i, function(from.get(layout.place(0, i))?)))
}

/// Sums, extrema and their places, along the last dimensions.
fn reduce(root: &str, kind: Type, args: &mut Arguments) -> Answer {
    let (count, each, rank) = (args.size()?, args.size()?, args.size()?);
    let layout = args.layout(rank, 1)?;
    let from = args.array(kind)?;
    let place = root.starts_with("fast_arg");
    let to = args.array(if place { Type::U32 } else { kind })?;
    // The kernel for short sums counts what it writes, the others what they read.
    let results = if root == "fast_sum_small" { count } else { count / each.max(1) };
    for i in 0..results {
        let values = (0..each).map(|j| from.get(layout.place(0, i * each + j))).collect::<Answer<Vec<_>>>()?;
        let best = |better: fn(f64, f64) -> bool| {
            let first = (0, values.first().copied().unwrap_or_default());
            let keep = |best: (usize, f64), next: (usize, f64)| if better(next.1, best.1) { next } else { best };
            values.iter().copied().enumerate().fold(first, keep)
        };
        let value = match root {
            "fast_sum" | "fast_sum_small" => values.iter().sum(),
            "fast_min" => values.iter().copied().fold(f64::INFINITY, f64::min),
            "fast_max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            "fast_argmin" => best(|x, y| x < y).0 as f64,
            "fast_argmax" => best(|x, y| x > y).0 as f64,
            other => return Err(unknown(other)),
        };
        to.set(i, value)?;
    }
    Ok(())
}

/// The order of each row, one for each block.
fn sort(root: &str, kind: Type, rows: usize, args: &mut Arguments) -> Answer {
    let from = args.array(kind)?;
    let to = args.array(Type::U32)?;
    let columns = args.size()?;
    for row in 0..rows {
        let values = (0..columns).map(|j| from.get(row * columns + j)).collect::<Answer<Vec<_>>>()?;
        let mut order: Vec<_> = (0..columns).collect();
        order.sort_by(|&i, &j| match root {
            "asort_desc" => values[j].total_cmp(&values[i]),
            _ => values[i].total_cmp(&values[j]),
        });
        order.into_iter().enumerate().try_for_each(|(j, i)| to.set(row * columns + j, i as f64))?;
    }
    Ok(())
}

/// Selections, gathers and scatters by ids of a type; `None` for other kernels.
fn indexed(operation: &str, ids: Type, kind: Type, args: &mut Arguments) -> Option<Answer> {
    Some(match operation {
        "where" => select_where(ids, kind, args),
        "is" => index_select(ids, kind, args),
        "gather" => gather(ids, kind, args),
        "ia" => scatter(ids, kind, args, true, true),
        "s" => scatter(ids, kind, args, false, false),
        "sa" => scatter(ids, kind, args, false, true),
        _ => return None,
    })
}

fn select_where(ids: Type, kind: Type, args: &mut Arguments) -> Answer {
    let (count, rank) = (args.size()?, args.size()?);
    let layout = args.layout(rank, 3)?;
    let condition = args.array(ids)?;
    let (yes, no, to) = (args.array(kind)?, args.array(kind)?, args.array(kind)?);
    (0..count).try_for_each(|i| {
        let chosen = condition.get(layout.place(0, i))? != 0.0;
        to.set(i, if chosen { yes.get(layout.place(1, i))? } else { no.get(layout.place(2, i))? })
    })
}

/// An id that is the largest of its type selects zero.
fn is_none(id: f64, ids: Type) -> bool {
    id == match ids {
        Type::U8 => f64::from(u8::MAX),
        Type::U32 => f64::from(u32::MAX),
        _ => i64::MAX as f64,
    }
}

fn index_select(ids: Type, kind: Type, args: &mut Arguments) -> Answer {
    let (count, rank) = (args.size()?, args.size()?);
    let layout = args.layout(rank, 1)?;
    let (chosen, from, to) = (args.array(ids)?, args.array(kind)?, args.array(kind)?);
    let [_left, from_size, ids_size, right] = [args.size()?, args.size()?, args.size()?, args.size()?];
    (0..count).try_for_each(|i| {
        let (left, id, right_place) = (i / (ids_size * right), i / right % ids_size, i % right);
        let id = chosen.get(layout.place(0, id))?;
        let value = match is_none(id, ids) {
            true => 0.0,
            false => from.get((left * from_size + id as usize) * right + right_place)?,
        };
        to.set(i, value)
    })
}

fn gather(ids: Type, kind: Type, args: &mut Arguments) -> Answer {
    let count = args.size()?;
    let (chosen, from, to) = (args.array(ids)?, args.array(kind)?, args.array(kind)?);
    let [_left, from_size, ids_size, right] = [args.size()?, args.size()?, args.size()?, args.size()?];
    (0..count).try_for_each(|i| {
        let id = chosen.get(i)?;
        let value = match is_none(id, ids) {
            true => 0.0,
            false => from.get((i / (right * ids_size) * from_size + id as usize) * right + i % right)?,
        };
        to.set(i, value)
    })
}

/// Writes or adds elements to the places that ids name: one id for each slice (`by_slice`) or for each element.
fn scatter(ids: Type, kind: Type, args: &mut Arguments, by_slice: bool, adds: bool) -> Answer {
    let chosen = args.array(ids)?;
    let slices = if by_slice { Some(args.size()?) } else { None };
    let (from, to) = (args.array(kind)?, args.array(kind)?);
    let [left, from_size, to_size, right] = [args.size()?, args.size()?, args.size()?, args.size()?];
    let size = slices.unwrap_or(from_size);
    for i in 0..left * right {
        let (left, right_place) = (i / right, i % right);
        for j in 0..size {
            let place = (left * size + j) * right + right_place;
            let id = chosen.get(if by_slice { j } else { place })?;
            if is_none(id, ids) {
                continue;
            }
            let at = (left * to_size + id as usize) * right + right_place;
            let before = if adds { to.get(at)? } else { 0.0 };
            to.set(at, before + from.get(place)?)?;
        }
    }
    Ok(())
}
