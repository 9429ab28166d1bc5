//! Export of inputs, for another program that makes the same steps or computes the same op.

use super::peers::save;
use crate::config::RunConfig;
use crate::error::Result;
use crate::tasks::{Documents, Splits};
use crate::train::Trainer;
use candle_core::{Device, Tensor};
use std::path::Path;

/// Writes a safetensors file with the current weights of `trainer` and the batches of its first epoch. Its header holds
/// the run as `config`, in the format of `config.json`. For S steps of B examples:
///
/// | objective | `data.tokens` u32 | `data.labels` i64 | `data.lengths` u32 |
/// |---|---|---|---|
/// | labels at some tokens | (S, B, L) | (S, B, L), -100 where there is none | |
/// | the next token | (S, B, L) | (S, B, L) | |
/// | a class | (S, D B, L), padded; all first documents, then all second ones | (S, B) | (S, D B) |
pub(super) fn export(path: &Path, config: &RunConfig, trainer: &Trainer, data: &Splits) -> Result<()> {
    let steps = 0..trainer.steps_per_epoch();
    let batches: Vec<Vec<usize>> = steps.map(|step| trainer.examples_of(step)).collect();
    let mut tensors = match data {
        Splits::PerToken { train, .. } => {
            let (len, labels) = (train.seq_len(), train.dense_labels());
            sequences(&batches, len, |i| {
                let row = i * len..(i + 1) * len;
                (train.tokens()[row.clone()].to_vec(), labels[row].to_vec())
            })?
        }
        Splits::NextToken(splits) => sequences(&batches, splits.train.seq_len(), |i| {
            let ids = splits.train.window(i).iter();
            (ids.clone().take(splits.train.seq_len()).collect(), ids.skip(1).map(i64::from).collect())
        })?,
        Splits::Pooled(splits) => classified(&splits.train, &batches)?,
    };
    for (name, var) in trainer.weights() {
        tensors.push((name, var.to_device(&Device::Cpu)?));
    }
    save(path, tensors, Some(config))
}

type Named = Vec<(String, Tensor)>;

fn named<const K: usize>(tensors: [(&str, Tensor); K]) -> Named {
    tensors.map(|(name, x)| (format!("data.{name}"), x)).into()
}

/// Tokens and labels of every example, given by `of`, each with a label per token.
fn sequences(batches: &[Vec<usize>], len: usize, of: impl Fn(usize) -> (Vec<u32>, Vec<i64>)) -> Result<Named> {
    let (tokens, labels): (Vec<_>, Vec<_>) = batches.iter().flatten().map(|&example| of(example)).unzip();
    let shape = (batches.len(), (), len);
    Ok(named([
        ("tokens", Tensor::from_vec(tokens.concat(), shape, &Device::Cpu)?),
        ("labels", Tensor::from_vec(labels.concat(), shape, &Device::Cpu)?),
    ]))
}

fn classified(data: &Documents, batches: &[Vec<usize>]) -> Result<Named> {
    let longest = batches.iter().flatten().map(|&i| data.longest(i));
    let (len, steps) = (longest.max().unwrap_or(0), batches.len());
    let (mut tokens, mut lengths, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for batch in batches {
        for which in 0..data.documents() {
            for &example in batch {
                let document = data.document(example, which);
                tokens.extend(document.iter().map(|&id| u32::from(id)));
                tokens.resize(tokens.len() + len - document.len(), 0);
                lengths.push(document.len() as u32);
            }
        }
        labels.extend(batch.iter().map(|&example| i64::from(data.label(example))));
    }
    Ok(named([
        ("tokens", Tensor::from_vec(tokens, (steps, (), len), &Device::Cpu)?),
        ("lengths", Tensor::from_vec(lengths, (steps, ()), &Device::Cpu)?),
        ("labels", Tensor::from_vec(labels, (steps, ()), &Device::Cpu)?),
    ]))
}
