//! Memory-mapped safetensors files, of which only the requested tensors are read.

use crate::error::{Error, Result};
use crate::files;
use crate::store::check_archive;
use candle_core::safetensors::Load;
use candle_core::{Device, Tensor};
use memmap2::Mmap;
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Mapped {
    map: Mmap,
    pub place: PathBuf,
    /// Entries of the header's `__metadata__`, empty in most files of other programs.
    pub metadata: HashMap<String, String>,
    pub names: Vec<String>,
}

impl Mapped {
    pub fn open(path: &Path) -> Result<Self> {
        let map = files::map(path)?;
        if files::is_pointer(&map) {
            return Err(Error::data(path, files::POINTER));
        }
        let broken = |e| not_safetensors(path, &e);
        let (_, header) = SafeTensors::read_metadata(&map).map_err(broken)?;
        check_archive(&map).map_err(|what| Error::corrupt(path, what))?;
        Ok(Self {
            metadata: header.metadata().clone().unwrap_or_default(),
            names: header.offset_keys(),
            place: path.to_owned(),
            map,
        })
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name)
    }

    /// Names and shapes of the floating-point tensors.
    pub fn shapes(&self) -> Result<HashMap<String, Vec<usize>>> {
        let tensors = self.tensors()?;
        let floats = tensors.iter().filter(|(_, view)| is_float(view.dtype()));
        Ok(floats.map(|(name, view)| (name.to_owned(), view.shape().to_vec())).collect())
    }

    /// Tensor `name` in its stored dtype.
    pub fn load(&self, name: &str) -> Result<Tensor> {
        let tensors = self.tensors()?;
        let view = tensors.tensor(name).map_err(|e| not_safetensors(&self.place, &e))?;
        Ok(view.load(&Device::Cpu)?)
    }

    /// Reads the floating-point tensors for which `wanted` is true, by name, in their stored dtypes.
    pub fn floats(&self, wanted: impl Fn(&str) -> bool) -> Result<HashMap<String, Tensor>> {
        let tensors = self.tensors()?;
        let floats = tensors.iter().filter(|(_, view)| is_float(view.dtype()));
        floats
            .filter(|(name, _)| wanted(name))
            .map(|(name, view)| Ok((name.to_owned(), view.load(&Device::Cpu)?)))
            .collect()
    }

    fn tensors(&self) -> Result<SafeTensors<'_>> {
        SafeTensors::deserialize(&self.map).map_err(|e| not_safetensors(&self.place, &e))
    }
}

/// Whether `dtype` is one of weights; buffers such as masks have other dtypes.
fn is_float(dtype: safetensors::Dtype) -> bool {
    use safetensors::Dtype::{BF16, F16, F32, F64};
    matches!(dtype, BF16 | F16 | F32 | F64)
}

fn not_safetensors(path: &Path, e: &safetensors::SafeTensorError) -> Error {
    Error::data(path, format!("not a safetensors file: {e}"))
}
