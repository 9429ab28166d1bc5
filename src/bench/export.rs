//! What another program needs to do the same work: named tensors in a safetensors file.

use crate::error::{Error, Result};
use candle_core::{safetensors, DType, Tensor};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Writes `tensors` to `path`, over what was there; floats in the type `io`.
pub(super) fn save(path: &Path, tensors: HashMap<String, Tensor>, io: DType) -> Result<()> {
    // Opened here for an error that names the file.
    fs::File::create(path).map_err(Error::io("create", path))?;
    let typed = |(name, x): (String, Tensor)| match x.dtype().is_float() {
        true => Ok((name, x.to_dtype(io)?)),
        false => Ok((name, x)),
    };
    let tensors = tensors.into_iter().map(typed);
    let tensors = tensors.collect::<Result<HashMap<_, _>>>()?;
    Ok(safetensors::save(&tensors, path)?)
}
