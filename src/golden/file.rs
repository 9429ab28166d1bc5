//! A golden file in memory: tensors by name, metadata by key.

use crate::error::{refuse, Error, Result};
use crate::files;
use candle_core::{safetensors as io, DType, Device, Tensor};
use safetensors::SafeTensors;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

pub(super) struct GoldenFile {
    tensors: BTreeMap<String, Tensor>,
    metadata: HashMap<String, String>,
}

impl GoldenFile {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = files::read_bytes(path)?;
        let broken = |e: String| Error::usage(format!("not a safetensors file: {e}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| broken(e.to_string()))?;
        let tensors = io::load_buffer(&bytes, &Device::Cpu).map_err(|e| broken(e.to_string()))?;
        Ok(Self { tensors: tensors.into_iter().collect(), metadata: header.metadata().clone().unwrap_or_default() })
    }

    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| Error::usage(format!("tensor {name} is missing")))
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn f64(&self, name: &str) -> Result<Tensor> {
        Ok(self.tensor(name)?.to_dtype(DType::F64)?)
    }

    /// The tensor `name` in f64, flattened.
    pub fn vec(&self, name: &str) -> Result<Vec<f64>> {
        Ok(self.f64(name)?.flatten_all()?.to_vec1()?)
    }

    /// The matrix `name` in f64, as rows.
    pub fn rows(&self, name: &str) -> Result<Vec<Vec<f64>>> {
        Ok(self.f64(name)?.to_vec2()?)
    }

    /// All tensors under `prefix`, named without it.
    pub fn under(&self, prefix: &str) -> HashMap<String, Tensor> {
        self.tensors.iter().filter_map(|(n, t)| Some((n.strip_prefix(prefix)?.to_owned(), t.clone()))).collect()
    }

    /// The cases of the file: `x` for every tensor `x.SUFFIX`.
    pub fn cases(&self, suffix: &str) -> Vec<String> {
        let case = |name: &String| Some(name.strip_suffix(suffix)?.to_owned());
        self.tensors.keys().filter_map(case).filter(|c| !c.contains('.')).collect()
    }

    pub fn metadata(&self, key: &str) -> Result<&str> {
        let missing = || Error::usage(format!("metadata `{key}` is missing"));
        self.metadata.get(key).map(String::as_str).ok_or_else(missing)
    }

    /// Metadata that is a JSON object.
    pub fn object(&self, key: &str) -> Result<Object> {
        let text = self.metadata(key)?;
        let parsed = serde_json::from_str(text)
            .map_err(|e| Error::usage(format!("metadata `{key}` is not a JSON object: {e}")))?;
        Ok(Object(parsed))
    }
}

/// A JSON object of metadata.
pub(super) struct Object(serde_json::Map<String, serde_json::Value>);

impl Object {
    /// A positive whole number. Fails if the number is missing or not from 1 to 2^32.
    pub fn size(&self, key: &str) -> Result<usize> {
        self.find_size(key).ok_or_else(|| Error::usage(format!("metadata has no size `{key}` from 1 to 2^32")))
    }

    /// A positive whole number, if there is one.
    pub fn find_size(&self, key: &str) -> Option<usize> {
        let size = self.0.get(key)?.as_u64()?;
        (1..=1 << 32).contains(&size).then_some(size as usize)
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub fn number(&self, key: &str) -> Result<f64> {
        let value = self.0.get(key).and_then(serde_json::Value::as_f64);
        value.ok_or_else(|| Error::usage(format!("metadata has no number `{key}`")))
    }

    /// A number or a text, as text.
    pub fn value(&self, key: &str) -> Option<String> {
        self.number(key).map(|number| number.to_string()).or_else(|_| self.text(key).map(str::to_owned)).ok()
    }

    pub fn text(&self, key: &str) -> Result<&str> {
        let value = self.0.get(key).and_then(serde_json::Value::as_str);
        value.ok_or_else(|| Error::usage(format!("metadata has no text `{key}`")))
    }
}

/// max |a - b| over two tensors of any float type; NaN if any difference is.
pub(super) fn distance(a: &Tensor, b: &Tensor) -> Result<f64> {
    if a.dims() != b.dims() {
        refuse!("expected shape {1:?}, found {0:?}", a.dims(), b.dims());
    }
    let values = |t: &Tensor| t.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
    Ok(values(a)?.into_iter().zip(values(b)?).fold(0.0, |worst, (a, b)| nan_max(worst, (a - b).abs())))
}

/// max |a|.
pub(super) fn magnitude(a: &Tensor) -> Result<f64> {
    distance(a, &a.zeros_like()?)
}

/// The larger of two numbers, or NaN if either is NaN.
pub(super) fn nan_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}
