//! Scores of keys that a context hides.

use crate::model::LanguageModel;
use crate::nn::{Cx, Rows};
use crate::tasks::wikitext::HiddenKey;
use candle_core::{DType, Device, Result, Tensor, D};

/// Recall of one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyScore {
    /// Whether every token of the key is the most likely one behind those before it.
    pub found: bool,
    /// Cross-entropy of the key in nats, summed over its tokens.
    pub nll: f64,
}

/// Scores `keys`, whose contexts have one length, `batch` at a time. `model` need not track gradients.
pub fn score_keys(model: &LanguageModel, keys: &[HiddenKey], batch: usize, device: &Device) -> Result<Vec<KeyScore>> {
    let scored = keys.chunks(batch.max(1)).map(|keys| score_batch(model, keys, device));
    Ok(scored.collect::<Result<Vec<_>>>()?.concat())
}

fn score_batch(model: &LanguageModel, keys: &[HiddenKey], device: &Device) -> Result<Vec<KeyScore>> {
    let count = keys.len();
    let (len, most) = (keys[0].context.len(), keys.iter().map(|hidden| hidden.key.len()).max().unwrap_or(0));
    // Shorter keys are padded: their scores do not depend on what follows them.
    let padded = |HiddenKey { context, key }: &HiddenKey| -> Vec<u32> {
        let mut ids = [context, &key[..key.len() - 1]].concat();
        ids.resize(len + most - 1, 0);
        ids
    };
    let tokens: Vec<u32> = keys.iter().flat_map(padded).collect();
    let tokens = Tensor::from_vec(tokens, (count, len + most - 1), device)?;
    let positions: Vec<u32> = (0..count).flat_map(|_| (len - 1..len - 1 + most).map(|at| at as u32)).collect();
    let rows = Rows { positions: Tensor::from_vec(positions, (count, most), device)? };
    let hidden = model.hidden(&tokens, Some(&rows), &Cx::eval())?;
    let logits = model.logits(&hidden)?.to_dtype(DType::F32)?;
    let logs = candle_nn::ops::log_softmax(&logits, D::Minus1)?; // (count, most, vocab_size)
    let likeliest = logs.argmax(D::Minus1)?.to_vec2::<u32>()?;
    let targets = keys.iter().flat_map(|hidden| (0..most).map(|i| hidden.key.get(i).copied().unwrap_or(0)));
    let targets = Tensor::from_vec(targets.collect::<Vec<u32>>(), (count, most, 1), device)?;
    let logs = logs.gather(&targets, D::Minus1)?.squeeze(2)?.to_vec2::<f32>()?;
    let of_key = |(i, HiddenKey { key, .. }): (usize, &HiddenKey)| KeyScore {
        found: key.iter().zip(&likeliest[i]).all(|(wanted, found)| wanted == found),
        nll: -logs[i][..key.len()].iter().map(|log| f64::from(*log)).sum::<f64>(),
    };
    Ok(keys.iter().enumerate().map(of_key).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Precision;
    use crate::model::Io;
    use crate::nn::Params;
    use crate::ops::rng::Rng;
    use crate::train::tests::config;
    use candle_core::IndexOp;

    const V: usize = 9;

    /// Token by token, each after a context of its own.
    fn by_hand(model: &LanguageModel, context: &[u32], key: &[u32]) -> (bool, f64) {
        let (mut ids, mut found, mut nll) = (context.to_vec(), true, 0.0);
        for id in key {
            let tokens = Tensor::from_slice(&ids, (1, ids.len()), &Device::Cpu).unwrap();
            let logits = model.last_logits(&tokens).unwrap().i(0).unwrap();
            found &= logits.argmax(0).unwrap().to_scalar::<u32>().unwrap() == *id;
            let log = candle_nn::ops::log_softmax(&logits, 0).unwrap();
            nll -= log.i(*id as usize).unwrap().to_scalar::<f64>().unwrap();
            ids.push(*id);
        }
        (found, nll)
    }

    /// Keys of several lengths in one batch, and batches of one.
    #[test]
    fn keys_have_the_scores_of_a_loop_over_their_tokens() {
        let mut config = config("s6", 1, Precision::F32).model;
        config.positions = false;
        let params = Params::seeded(3, DType::F64, &Device::Cpu);
        let model = LanguageModel::new(&config, Io { vocab_size: V, seq_len: 30 }, &params.detached()).unwrap();
        let mut rng = Rng::new(5, "ids", 0);
        let mut draw = |count: usize| (0..count).map(|_| rng.below(V as u32)).collect::<Vec<u32>>();
        let own = vec![vec![3, 1, 2], vec![4], vec![7, 7]];
        let mut keys: Vec<HiddenKey> = own.into_iter().map(|key| HiddenKey { context: draw(20), key }).collect();
        // A key that is found: what the model itself goes on with.
        let tokens = Tensor::from_slice(&keys[1].context, (1, 20), &Device::Cpu).unwrap();
        keys[1].key = vec![model.last_logits(&tokens).unwrap().i(0).unwrap().argmax(0).unwrap().to_scalar().unwrap()];
        // The same keys after other contexts.
        let others: Vec<HiddenKey> =
            keys.iter().map(|hidden| HiddenKey { context: draw(20), key: hidden.key.clone() }).collect();
        keys.extend(others);
        for batch in [1, 2, 8] {
            let scores = score_keys(&model, &keys, batch, &Device::Cpu).unwrap();
            assert!(scores[1].found);
            for (score, key) in scores.iter().zip(&keys) {
                let (found, nll) = by_hand(&model, &key.context, &key.key);
                assert_eq!(score.found, found);
                assert!((score.nll - nll).abs() < 1e-5);
            }
        }
    }
}
