//! Shape errors: born in the wrappers, naming the op and both shapes.

use crate::gpu;
use candle_core::{bail, DType, Result, Tensor};

/// A tensor with the name it has in the op's signature.
pub(crate) type Named<'a> = (&'a str, &'a Tensor);

/// The sizes of a tensor that must have `RANK` axes, none of them empty.
pub(crate) fn dims<const RANK: usize>(op: &str, (name, x): Named) -> Result<[usize; RANK]> {
    match <[usize; RANK]>::try_from(x.dims()) {
        Ok(dims) if !dims.contains(&0) => Ok(dims),
        _ => bail!(
            "{op}: {name} has shape {:?}, needed are {RANK} axes, none empty",
            x.dims()
        ),
    }
}

/// The axes before the last, and the last: for ops on rows of any tensor that has one.
pub(crate) fn rows<'a>(op: &str, (name, x): Named<'a>) -> Result<(&'a [usize], usize)> {
    match x.dims() {
        [leading @ .., width] if x.elem_count() > 0 => Ok((leading, *width)),
        dims => bail!("{op}: {name} has shape {dims:?}, needed is a last axis and no empty one"),
    }
}

/// `x` must have the shape `needed`, which follows from `by`; the number type must agree as well.
pub(crate) fn expect(op: &str, (name, x): Named, by: Named, needed: &[usize]) -> Result<()> {
    fits(op, (name, x), by, needed)?;
    if x.dtype() != by.1.dtype() {
        bail!(
            "{op}: {name} holds {:?}, but {} holds {:?}",
            x.dtype(),
            by.0,
            by.1.dtype()
        );
    }
    Ok(())
}

/// [`expect`] for a parameter of a model: it may hold f32 beside activations of bf16.
pub(crate) fn parameter(op: &str, named: Named, by: Named, needed: &[usize]) -> Result<()> {
    match (named.1.dtype(), by.1.dtype()) {
        (DType::F32, DType::BF16) => fits(op, named, by, needed),
        (DType::BF16, DType::BF16) if gpu::of(named.1).is_some() => {
            bail!(
                "{op}: {} holds bf16, but kernels read parameters of f32",
                named.0
            )
        }
        _ => expect(op, named, by, needed),
    }
}

fn fits(op: &str, (name, x): Named, by: Named, needed: &[usize]) -> Result<()> {
    if x.dims() != needed {
        bail!(
            "{op}: {name} has shape {:?}, but {} of shape {:?} asks for {needed:?}",
            x.dims(),
            by.0,
            by.1.dims()
        );
    }
    Ok(())
}

/// The numbers of a tensor of u32, for checks and for loops of the CPU. Empty for one on a GPU, which
/// would have to wait for them: whoever has made it has checked it.
pub(crate) fn on_the_cpu(ids: &Tensor) -> Result<Vec<u32>> {
    match ids.device().is_cuda() {
        true => Ok(Vec::new()),
        false => ids.flatten_all()?.to_vec1(),
    }
}

/// The times (B, R) of u32 of some rows; `needed` is B and R, which follow from `by`, and every
/// time must be one of the `len` steps of `of`. Times on a GPU stay there, unseen: none are returned.
pub(crate) fn times(
    op: &str,
    positions: &Tensor,
    (by, needed): (&str, [usize; 2]),
    (of, len): (&str, usize),
) -> Result<Vec<usize>> {
    if positions.dims() != needed {
        let given = positions.dims();
        bail!("{op}: positions has shape {given:?}, but {by} asks for {needed:?}");
    }
    if positions.device().is_cuda() {
        return Ok(Vec::new());
    }
    let times: Vec<u32> = positions.flatten_all()?.to_vec1()?;
    match times.iter().find(|&&time| time as usize >= len) {
        Some(late) => bail!("{op}: position {late}, but {of} has {len} steps"),
        None => Ok(times.into_iter().map(|time| time as usize).collect()),
    }
}

/// [`times`], each at least `apart` steps after the one before it in its sequence.
pub(crate) fn ascending(
    op: &str,
    positions: &Tensor,
    by: (&str, [usize; 2]),
    of: (&str, usize),
    apart: usize,
) -> Result<Vec<usize>> {
    let times = times(op, positions, by, of)?;
    let pairs = |row: &'_ [usize]| {
        row.windows(2)
            .find(|w| w[0] + apart > w[1])
            .map(|w| (w[0], w[1]))
    };
    match times.chunks_exact(by.1[1]).find_map(pairs) {
        Some((before, next)) => {
            bail!("{op}: position {next} follows {before}, but positions of a sequence must ascend")
        }
        None => Ok(times),
    }
}
