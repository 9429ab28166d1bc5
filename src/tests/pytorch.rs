//! Golden files of whole models that PyTorch made from the equations (`golden/FOLDER/make.py`).

use crate::world::flat;
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor};
use dsf::nn::Params;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn path(folder: &str) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    golden.join(folder)
}

/// The golden files of a folder by name, sorted.
pub fn files(folder: &str) -> Vec<String> {
    let files = fs::read_dir(path(folder)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<String> = files
        .filter(|file| file.extension().is_some_and(|e| e == "safetensors"))
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    files
}

/// The names of parameters, sorted.
pub fn names(params: &Params) -> Vec<String> {
    params.vars().into_iter().map(|(name, _)| name).collect()
}

/// A golden file.
pub struct Golden(HashMap<String, Tensor>);

impl Golden {
    pub fn load(folder: &str, name: &str) -> Self {
        let file = path(folder).join(format!("{name}.safetensors"));
        Self(candle_core::safetensors::load(file, &Device::Cpu).unwrap())
    }

    pub fn ids(&self, name: &str) -> Tensor {
        self.0[name].to_dtype(DType::U32).unwrap()
    }

    /// Tensors named `kind/NAME`, by NAME.
    pub fn named(&self, kind: &str) -> HashMap<String, Tensor> {
        let named =
            self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix(kind)?.to_owned(), value.clone())));
        named.collect()
    }

    /// The names of its parameters, sorted.
    pub fn parameters(&self) -> Vec<String> {
        let mut names: Vec<String> = self.named("param/").into_keys().collect();
        names.sort();
        names
    }

    /// Gradients of all parameters as they are named here.
    pub fn gradients(&self, params: &Params, grads: &GradStore) -> Vec<(String, Tensor)> {
        let vars = params.vars().into_iter();
        vars.map(|(name, var)| {
            let grad = grads.get(&var).unwrap_or_else(|| panic!("{name}"));
            (format!("grad/{name}"), grad.clone())
        })
        .collect()
    }

    /// Tensors of `found` that are not within `close`, a sentence each.
    pub fn far(&self, found: Vec<(String, Tensor)>, close: f64) -> Vec<String> {
        // The gradient of a key's bias under softmax is zero but for rounding.
        let gradients = self.named("grad/").into_values();
        let steepest = gradients.flat_map(|g| flat(&g)).fold(0.0, |m: f64, g| m.max(g.abs()));
        let far = found.into_iter().filter_map(|(what, x)| {
            let distance = apart(&x, &self.0[&what], 1e-2 * steepest);
            let near = distance <= close;
            (!near).then(|| format!("{what} is {distance:.1e} apart"))
        });
        far.collect()
    }
}

/// Largest difference in units of the largest number of `b`, or of `least`.
fn apart(a: &Tensor, b: &Tensor, least: f64) -> f64 {
    assert_eq!(a.dims(), b.dims());
    let (a, b) = (flat(a), flat(b));
    let scale = b.iter().fold(least, |m, x| m.max(x.abs()));
    let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs() / scale);
    // A comparison that NaN fails: it must not pass for close.
    apart.fold(0.0, |worst, d| if d <= worst { worst } else { d })
}
