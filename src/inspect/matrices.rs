//! Systems as arrays for other programs: a safetensors file with the factors of Λ_i, B_i, C_i and D_i.
//!
//! Subject s has the tensors `s.NAME`; the names, and how the matrices follow from them, are in the guide to
//! inspection. The metadata `subjects` is a JSON list with the name of each subject and what the system is.

use super::subject::Subject;
use crate::error::{Error, Result};
use crate::ltv::{Ltv, OffDiagonal};
use crate::nn::Cx;
use candle_core::Tensor;
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;

/// Returns the contents of the file, to be written to `path`.
///
/// # Errors
///
/// A system cannot be computed.
pub fn matrices(subjects: &[Subject], path: &Path) -> Result<Vec<u8>> {
    let (mut tensors, mut list) = (Vec::new(), Vec::new());
    for (i, subject) in subjects.iter().enumerate() {
        let mut add = |name: &str, tensor: &Tensor| -> Result<()> {
            tensors.push((format!("{i}.{name}"), tensor.contiguous()?));
            Ok(())
        };
        add("u", &subject.u)?;
        add("y", &subject.mixer.forward(&subject.u.unsqueeze(0)?, &Cx::eval())?.squeeze(0)?)?;
        let (around, why) = match subject.system()? {
            Ok(seen) => {
                add("input", &seen.input)?;
                for (name, factor) in factors(&seen.system) {
                    add(name, factor)?;
                }
                (seen.around, None)
            }
            Err(why) => (None, Some(why)),
        };
        list.push(
            json!({ "name": subject.name, "mixer": subject.entry.name, "around": around, "without_system": why }),
        );
    }
    let metadata = HashMap::from([("subjects".to_owned(), json!(list).to_string())]);
    safetensors::serialize(tensors, Some(metadata)).map_err(|e| Error::data(path, e.to_string()))
}

/// The factors of `system` that are there, by their names in the file.
fn factors(system: &Ltv) -> Vec<(&'static str, &Tensor)> {
    let off_diagonal = match &system.off_diagonal {
        OffDiagonal::Zero => [None, None, None],
        OffDiagonal::Complex(lambda_im) => [Some(("lambda_im", lambda_im)), None, None],
        OffDiagonal::RankOne { a, b } => [None, Some(("rank_one_a", a)), Some(("rank_one_b", b))],
    };
    let always = [("lambda", &system.decay), ("b", &system.write), ("c", &system.read)];
    let optional = [
        ("gate", &system.gate),
        ("value", &system.value),
        ("skip", &system.skip),
        ("output", &system.output),
        ("direct", &system.direct),
        ("offset", &system.offset),
    ];
    let present = optional.into_iter().filter_map(|(name, factor)| Some((name, factor.as_ref()?)));
    always.into_iter().chain(off_diagonal.into_iter().flatten()).chain(present).collect()
}
