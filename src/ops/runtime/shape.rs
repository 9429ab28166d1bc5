//! Checks of shapes in the public functions of ops. Errors name the op and both shapes.

use crate::gpu;
use candle_core::{bail, DType, Result, Tensor};

/// A tensor with its name in the op's signature.
pub(crate) type Named<'a> = (&'a str, &'a Tensor);

/// The sizes of a tensor that must have `RANK` axes, none of them empty.
pub(crate) fn dims<const RANK: usize>(op: &str, (name, x): Named) -> Result<[usize; RANK]> {
    match <[usize; RANK]>::try_from(x.dims()) {
        Ok(dims) if !dims.contains(&0) => Ok(dims),
        _ => bail!("{op}: {name} has shape {:?}, needed are {RANK} axes, none empty", x.dims()),
    }
}

/// The leading axes and the last axis, for ops on the rows of a tensor of any rank.
pub(crate) fn rows<'a>(op: &str, (name, x): Named<'a>) -> Result<(&'a [usize], usize)> {
    match x.dims() {
        [leading @ .., width] if x.elem_count() > 0 => Ok((leading, *width)),
        dims => bail!("{op}: {name} has shape {dims:?}, needed is a last axis and no empty one"),
    }
}

/// An error unless `x` has the shape `needed`, which follows from the tensor `by`, and the number
/// type of `by`.
pub(crate) fn expect(op: &str, (name, x): Named, by: Named, needed: &[usize]) -> Result<()> {
    fits(op, (name, x), by, needed)?;
    if x.dtype() != by.1.dtype() {
        bail!("{op}: {name} holds {:?}, but {} holds {:?}", x.dtype(), by.0, by.1.dtype());
    }
    Ok(())
}

/// Returns the channels d and states n of the parameters (d, n), `by` and `others`, of a kernel with `len` taps.
pub(crate) fn kernel(op: &str, by: Named, others: &[Named], len: usize) -> Result<[usize; 2]> {
    let sizes: [usize; 2] = dims(op, by)?;
    for &other in others {
        expect(op, other, by, &sizes)?;
    }
    if len == 0 {
        bail!("{op}: a kernel has at least one tap");
    }
    Ok(sizes)
}

/// [`expect`] for a parameter of a model, which may be f32 beside activations of bf16.
pub(crate) fn parameter(op: &str, named: Named, by: Named, needed: &[usize]) -> Result<()> {
    match (named.1.dtype(), by.1.dtype()) {
        (DType::F32, DType::BF16) => fits(op, named, by, needed),
        (DType::BF16, DType::BF16) if gpu::of(named.1).is_some() => {
            bail!("{op}: {} holds bf16, but kernels read parameters of f32", named.0)
        }
        _ => expect(op, named, by, needed),
    }
}

fn fits(op: &str, (name, x): Named, by: Named, needed: &[usize]) -> Result<()> {
    if x.dims() != needed {
        bail!("{op}: {name} has shape {:?}, but {} of shape {:?} asks for {needed:?}", x.dims(), by.0, by.1.dims());
    }
    Ok(())
}

/// The numbers of a u32 tensor on the CPU, for checks and loops. Empty for a tensor on a GPU, as a
/// copy to the host would stall the GPU: its creator must have checked it.
pub(crate) fn on_the_cpu(ids: &Tensor) -> Result<Vec<u32>> {
    match ids.device().is_cuda() {
        true => Ok(Vec::new()),
        false => ids.flatten_all()?.to_vec1(),
    }
}

/// Checks the times (B, R) of u32 of some rows and returns them. `needed` is [B, R], which follows
/// from `by`; each time must be below `len`, the length of `of`. Times on a GPU are not checked,
/// and the result is empty.
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

/// [`times`], which must also ascend within each sequence by at least `apart` per row.
pub(crate) fn ascending(
    op: &str,
    positions: &Tensor,
    by: (&str, [usize; 2]),
    of: (&str, usize),
    apart: usize,
) -> Result<Vec<usize>> {
    let times = times(op, positions, by, of)?;
    let pairs = |row: &'_ [usize]| row.windows(2).find(|w| w[0] + apart > w[1]).map(|w| (w[0], w[1]));
    match times.chunks_exact(by.1[1]).find_map(pairs) {
        Some((before, next)) => {
            bail!("{op}: position {next} follows {before}, but positions of a sequence must ascend")
        }
        None => Ok(times),
    }
}
