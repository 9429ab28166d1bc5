//! Compares the program with golden files: safetensors of inputs, parameters, outputs and gradients that other programs
//! computed in f64, and folders of pretrained models with their logits. Both `dsf check golden DIR` and the tests run
//! these checks.

mod file;
mod lemmas;
mod mixer;
mod mqar;
mod pretrained;
mod trajectory;

use crate::error::{Error, Result};
use crate::files::is_hidden;
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use file::{distance, magnitude, GoldenFile};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The result of one file.
#[derive(Clone, Debug, PartialEq)]
pub enum FileVerdict {
    /// Every number is within its tolerance; holds the comparison closest to its tolerance.
    Pass(Worst),
    /// A number is outside its tolerance; holds the worst comparison.
    Fail(Worst),
    /// The file could not be compared, for this reason; counts as a failure.
    Broken(String),
    /// The file's mixer is not in the registry.
    NotImplemented,
}

/// The comparison with the largest error relative to its tolerance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worst {
    /// Name of the compared tensor, e.g. `f32 a.g.wq`.
    pub what: String,
    /// Largest absolute difference.
    pub error: f64,
    /// Largest allowed difference.
    pub tolerance: f64,
    /// Number of comparisons.
    pub count: usize,
}

impl Worst {
    fn used(&self) -> f64 {
        self.error / self.tolerance
    }

    /// Adds a comparison. NaN counts as the largest error.
    fn add(&mut self, what: impl Into<String>, error: f64, tolerance: f64) {
        let other =
            Self { what: what.into(), error: if error.is_nan() { f64::INFINITY } else { error }, tolerance, count: 1 };
        self.merge(other);
    }

    fn merge(&mut self, other: Self) {
        let count = self.count + other.count;
        if self.count == 0 || other.used() > self.used() {
            *self = other;
        }
        self.count = count;
    }

    fn verdict(self) -> FileVerdict {
        if self.count == 0 {
            FileVerdict::Broken("the file has nothing to compare".into())
        } else if self.error <= self.tolerance {
            FileVerdict::Pass(self)
        } else {
            FileVerdict::Fail(self)
        }
    }
}

/// Compares gradients with the `expected` ones by name, within `tolerance` times the larger of a gradient's own
/// magnitude and a hundredth of the largest one, since some are zero by symmetry.
fn gradients(
    expected: &HashMap<String, Tensor>,
    vars: &[(String, Var)],
    grads: &GradStore,
    tolerance: f64,
    what: impl Fn(&str) -> String,
) -> Result<Worst> {
    let mut largest: f64 = 0.0;
    for gradient in expected.values() {
        largest = largest.max(magnitude(gradient)?);
    }
    let mut worst = Worst::default();
    for (name, wanted) in expected {
        let (_, var) = vars
            .iter()
            .find(|(n, _)| n == name)
            .ok_or_else(|| Error::usage(format!("the file has a gradient of {name}, which is not a parameter")))?;
        let got = grads.get(var).cloned().map_or_else(|| var.zeros_like(), Ok)?;
        let floor = magnitude(wanted)?.max(0.01 * largest);
        worst.add(what(name), distance(&got, wanted)?, tolerance * floor);
    }
    Ok(worst)
}

/// The golden files of a folder and its folders of pretrained models with their logits, sorted by name; the folder
/// itself if it is one of these. Fails if the folder cannot be read, or has nothing to check.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    if pretrained::is_in(dir) {
        return Ok(vec![dir.to_owned()]);
    }
    let entries = fs::read_dir(dir).map_err(|e| Error::io("read", dir)(e).into_refusal())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::io("read", dir))?.path();
        let hidden = path.file_name().is_some_and(is_hidden);
        let is_file = path.extension().is_some_and(|e| e == "safetensors");
        if !hidden && (is_file || pretrained::is_in(&path)) {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Error::data(
            dir,
            "has no .safetensors file and no folder of a pretrained model; give a folder of golden files",
        )
        .into_refusal());
    }
    files.sort();
    Ok(files)
}

/// Checks one file, whose name determines the kind of check, or one folder of a pretrained model.
pub fn check(path: &Path) -> FileVerdict {
    if path.is_dir() || !path.exists() {
        return pretrained::check(path).map_or_else(|e| FileVerdict::Broken(e.to_string()), Worst::verdict);
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let judge = || -> Result<Option<Worst>> {
        let file = GoldenFile::read(path)?;
        Ok(match &*stem {
            "lemma1" => Some(lemmas::first(&file)?),
            "lemma2" => Some(lemmas::second(&file)?),
            name if name.starts_with("mqar") => Some(mqar::check(&file)?),
            name if name.starts_with("trajectory") => trajectory::check(&file)?,
            name => mixer::check(&file, name)?,
        })
    };
    match judge() {
        Ok(Some(worst)) => worst.verdict(),
        Ok(None) => FileVerdict::NotImplemented,
        Err(e) => FileVerdict::Broken(e.to_string()),
    }
}
