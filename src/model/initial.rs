//! Initial values of the parameters of a model, for `--explain`.

use super::{Classifier, Io, LanguageModel};
use crate::config::ModelConfig;
use crate::nn::{InitialValues, Params};
use crate::tasks::ExampleSizes;
use candle_core::{DType, Result};

/// Prefix of the names of a layer's parameters.
const LAYERS: &str = "layers.";

/// Initial values of the parameters of `model` on a task of `sizes`, by name. Parameters that start alike in all layers
/// share a row, whose name has `*` for the number of the layer.
pub fn initial_values(model: &ModelConfig, sizes: &ExampleSizes) -> Result<Vec<(String, InitialValues)>> {
    let params = Params::described(DType::F32);
    match model.classifier {
        Some(_) => drop(Classifier::new(model, sizes, &params)?),
        None => drop(LanguageModel::new(model, Io::from(sizes), &params)?),
    }
    let all = params.initial();
    let mut rows: Vec<(String, InitialValues)> = Vec::new();
    for (name, initial) in all.iter() {
        let Some(rest) = of_layer(name) else {
            rows.push((name.clone(), initial.clone()));
            continue;
        };
        let mut layers = (0..model.n_layers).map(|layer| all.get(&format!("{LAYERS}{layer}.{rest}")));
        let alike = layers.all(|other| other == Some(initial));
        let name = if alike { format!("{LAYERS}*.{rest}") } else { name.clone() };
        if rows.iter().all(|(seen, _)| *seen != name) {
            rows.push((name, initial.clone()));
        }
    }
    Ok(rows)
}

/// Name of a layer's parameter after the number of the layer.
fn of_layer(name: &str) -> Option<&str> {
    let (_, rest) = name.strip_prefix(LAYERS)?.split_once('.')?;
    Some(rest)
}
