//! What another program needs to do the same work: named tensors in a safetensors file.

use crate::error::{Error, Result};
use candle_core::{safetensors, Tensor};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Writes `tensors` to `path`, over what was there.
pub(super) fn save(path: &Path, tensors: HashMap<String, Tensor>) -> Result<()> {
    // Opened here for an error that names the file.
    fs::File::create(path).map_err(Error::io("create", path))?;
    Ok(safetensors::save(&tensors, path)?)
}
