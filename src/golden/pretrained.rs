//! Checks of pretrained models: logits that `transformers` computed, their mean negative log-likelihood, and the logits
//! of the model read token by token.

use super::file::{distance, magnitude, GoldenFile};
use super::Worst;
use crate::error::{Error, Result};
use crate::files;
use crate::model::weights::Checkpoint;
use crate::model::LanguageModel;
use crate::nn::Cx;
use candle_core::{DType, Device, Tensor, D};
use std::path::Path;

/// File of token ids and logits.
const EXPECTED: &str = "expected.safetensors";

/// File of the mean negative log-likelihood of the ids, from the second token on.
const LIKELIHOOD: &str = "expected.json";

/// Largest error of logits in f32, relative to the largest of them.
const IN_F32: f64 = 2e-5;

/// The same in f64, where every step of the expected logits was made in f64.
const IN_F64: f64 = 1e-9;

/// The same where the file does not say so: `transformers` computes norms, gates and rotary frequencies in f32 whatever
/// the dtype of the model.
const PARTLY_IN_F32: f64 = 1e-6;

/// Entry of the header of [`EXPECTED`] that says in which type all steps were made.
const PRECISION: &str = "precision";

/// Largest relative error of the likelihood: six digits.
const DIGITS: f64 = 5e-7;

/// Whether `folder` holds a pretrained model and its logits.
pub(super) fn is_in(folder: &Path) -> bool {
    ["config.json", EXPECTED].iter().all(|name| folder.join(name).is_file())
}

/// Compares the model in `folder` with its logits, in f32 and in f64.
pub(super) fn check(folder: &Path) -> Result<Worst> {
    let (found, file) = (Checkpoint::open(folder)?, GoldenFile::read(&folder.join(EXPECTED))?);
    let tokens = file.tensor("input_ids")?.to_dtype(DType::U32)?;
    let exact = if file.has("logits_f64") { "logits_f64" } else { "logits" };
    let expected = file.f64(exact)?;
    let largest = magnitude(&expected)?;
    let mut worst = Worst::default();
    let in_f64 = if file.metadata(PRECISION).is_ok_and(|type_| type_ == "float64") { IN_F64 } else { PARTLY_IN_F32 };
    for (dtype, tolerance) in [(DType::F32, IN_F32), (DType::F64, in_f64)] {
        let name = dtype.as_str();
        let model = found.model_in(dtype, &Device::Cpu)?;
        let logits = model.logits(&model.hidden(&tokens, None, &Cx::eval())?)?.to_dtype(DType::F64)?;
        worst.add(format!("{name} logits"), distance(&logits, &expected)?, tolerance * largest);
        if let Some(stepped) = by_steps(&model, &tokens)? {
            let tolerance = if dtype == DType::F64 { IN_F64 } else { IN_F32 };
            worst.add(format!("{name} logits by steps"), distance(&stepped, &logits)?, tolerance * largest);
            let (continued, first) = continued(&model, &tokens)?;
            let wanted = logits.narrow(1, first, logits.dim(1)? - first)?;
            worst.add(format!("{name} logits after a prompt"), distance(&continued, &wanted)?, tolerance * largest);
        }
        if let (DType::F64, Some(wanted)) = (dtype, likelihood(folder)?) {
            let error = (negative_log_likelihood(&logits, &tokens)? - wanted).abs();
            worst.add("negative log-likelihood", error, DIGITS * wanted.abs());
        }
    }
    Ok(worst)
}

/// Logits `(batch, seq_len, V)` of the model token by token; `None` if it cannot be stepped through time.
fn by_steps(model: &LanguageModel, tokens: &Tensor) -> Result<Option<Tensor>> {
    let (batch, seq_len) = tokens.dims2()?;
    let Some(mut decoder) = model.begin(batch)? else {
        return Ok(None);
    };
    let steps = (0..seq_len).map(|i| model.step(&tokens.narrow(1, i, 1)?.squeeze(1)?.contiguous()?, &mut decoder));
    let steps: Vec<Tensor> = steps.collect::<candle_core::Result<_>>()?;
    Ok(Some(Tensor::stack(&steps, 1)?.to_dtype(DType::F64)?))
}

/// Logits from the token on that is also returned: the first half of the tokens is read at once, the rest by steps.
fn continued(model: &LanguageModel, tokens: &Tensor) -> Result<(Tensor, usize)> {
    let (batch, seq_len) = tokens.dims2()?;
    let prompt = seq_len.div_ceil(2);
    let Some(mut decoder) = model.begin(batch)? else {
        unreachable!("a model that is stepped through time");
    };
    let mut logits = vec![model.read(&tokens.narrow(1, 0, prompt)?.contiguous()?, &mut decoder)?];
    for i in prompt..seq_len {
        logits.push(model.step(&tokens.narrow(1, i, 1)?.squeeze(1)?.contiguous()?, &mut decoder)?);
    }
    Ok((Tensor::stack(&logits, 1)?.to_dtype(DType::F64)?, prompt - 1))
}

/// Expected negative log-likelihood, if there is one.
fn likelihood(folder: &Path) -> Result<Option<f64>> {
    let place = folder.join(LIKELIHOOD);
    if !place.is_file() {
        return Ok(None);
    }
    let text = files::read_text(&place)?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| Error::data(&place, format!("not JSON: {e}")))?;
    let value = json["nll"].as_f64().ok_or_else(|| Error::data(&place, "`nll` is missing or not a number"))?;
    Ok(Some(value))
}

/// Mean negative log-likelihood of each token but the first under `logits`.
fn negative_log_likelihood(logits: &Tensor, tokens: &Tensor) -> Result<f64> {
    let last = tokens.dim(1)? - 1;
    let (before, next) = (logits.narrow(1, 0, last)?, tokens.narrow(1, 1, last)?.contiguous()?);
    let of_next = before.contiguous()?.gather(&next.unsqueeze(2)?, 2)?.squeeze(2)?;
    Ok((before.log_sum_exp(D::Minus1)? - of_next)?.mean_all()?.to_scalar()?)
}
