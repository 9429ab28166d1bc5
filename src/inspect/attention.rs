//! Softmax attention matrix on the same input, with the mixer's own queries and keys or with freshly initialised ones.

use super::measures::{horizon, Horizon};
use super::spectrum::effective_rank;
use super::subject::{LayerPass, Subject};
use crate::config::ModelConfig;
use crate::error::ensure;
use crate::mixers::{Family, MixerSpec, MIXERS};
use crate::nn::Params;
use candle_core::{DType, Device, Result, Tensor, D};
use std::collections::HashMap;

/// Rows of the attention matrix, averaged over heads.
pub struct Attention {
    /// The chosen tokens i.
    pub rows: Vec<usize>,
    /// Weights of tokens 0 to i for each chosen token i, or of all tokens in attention that sees them.
    pub weights: Vec<Vec<f64>>,
    /// Whether queries and keys are the mixer's own.
    pub own: bool,
    /// Effective rank, computed like that of Φ.
    pub rank: f64,
    /// Effective horizon, computed like that of Φ; `None` if later tokens have weights.
    pub horizon: Option<Horizon>,
}

impl Attention {
    /// Computes the rows of the tokens `rows` along the input of `subject`.
    pub fn of(subject: &Subject, rows: &[usize]) -> Result<Self> {
        // Behind an inner width they are no maps of the input.
        let own = !subject.entry.widens && ["wq", "wk"].iter().all(|name| subject.weights.contains_key(*name));
        let fresh;
        let weights = match own {
            true => &subject.weights,
            false => {
                fresh = fresh_weights(subject)?;
                &fresh
            }
        };
        let [q, k] = queries_and_keys(weights, &subject.u)?;
        let heads = if own { heads(subject) } else { [1, 1] };
        let all = subject.sees_all && matches!(subject.pass, LayerPass::Whole);
        let weights = mean_weights(&q, &k, heads, (rows, all))?;
        let product = |a: &Vec<f64>, b: &Vec<f64>| a.iter().zip(b).map(|(a, b)| a * b).sum();
        let row = |a: &Vec<f64>| weights.iter().map(|b| product(a, b)).collect();
        Ok(Self {
            rows: rows.to_vec(),
            rank: effective_rank(weights.iter().map(row).collect()),
            horizon: if all { None } else { horizon(&weights) },
            weights,
            own,
        })
    }
}

/// Heads of queries, and of keys and values, which those of queries may share.
pub fn heads(subject: &Subject) -> [usize; 2] {
    [subject.model.n_heads, MixerSpec::from(&subject.model).kv_heads()]
}

/// Queries `(L, n)`, and keys of one width for each of their heads, of u by weights and, if present, biases.
pub fn queries_and_keys(weights: &HashMap<String, Tensor>, u: &Tensor) -> Result<[Tensor; 2]> {
    let u = u.to_dtype(DType::F64)?;
    let map = |w: &str, b: &str| -> Result<Tensor> {
        let x = u.matmul(&weights[w].to_dtype(DType::F64)?.t()?.contiguous()?)?;
        match weights.get(b) {
            Some(b) => x.broadcast_add(&b.to_dtype(DType::F64)?),
            None => Ok(x),
        }
    };
    Ok([map("wq", "bq")?, map("wk", "bk")?])
}

/// Fails unless the mixer of `subject` has queries, keys and values, which `what` is about.
pub fn check_values(subject: &Subject, what: &str) -> crate::error::Result<()> {
    let has = ["wq", "wk", "wv"].iter().all(|name| subject.weights.contains_key(*name));
    ensure!(has, "{} has no queries, keys and values: {what} needs a run of an attention mixer", subject.name);
    Ok(())
}

/// Rows of the part of x that belongs to head `head` of queries.
pub fn of_head(x: &Tensor, head: usize, heads: [usize; 2]) -> Result<Vec<Vec<f64>>> {
    part_of_head(x, head, heads)?.to_vec2()
}

/// Part of x, the queries or what their heads share, that belongs to head `head` of queries. Either has `sizes` of
/// heads.
fn part_of_head(x: &Tensor, head: usize, [count, own]: [usize; 2]) -> Result<Tensor> {
    let width = x.dim(1)? / own;
    x.narrow(D::Minus1, head / (count / own) * width, width)
}

/// Freshly initialised weights of softmax attention with the same sizes and seed.
fn fresh_weights(subject: &Subject) -> Result<HashMap<String, Tensor>> {
    let softmax = MIXERS.iter().find(|entry| entry.family == Family::Attention);
    let softmax = softmax.expect("softmax attention is in the registry");
    let model = ModelConfig {
        mixer: softmax.name.to_owned(),
        variant: softmax.variants[0].to_owned(),
        options: Default::default(),
        n_heads: 1,
        d_state: if subject.entry.expands { subject.model.d_state } else { subject.model.d_model },
        expand: None,
        hybrid: None,
        ..subject.model.clone()
    };
    let params = Params::seeded(subject.seed, DType::F64, &Device::Cpu).detached();
    softmax.build(&model, &params)?;
    Ok(params.vars().into_iter().map(|(name, var)| (name, var.as_detached_tensor())).collect())
}

/// Mean weights over heads, for queries `rows`, of all tokens or of those up to each.
fn mean_weights(
    q: &Tensor,
    k: &Tensor,
    [heads, key_heads]: [usize; 2],
    (rows, all): (&[usize], bool),
) -> Result<Vec<Vec<f64>>> {
    let (seq_len, features) = (k.dim(0)?, q.dim(1)? / heads);
    let asked: Vec<u32> = rows.iter().map(|&i| i as u32).collect();
    let q = q.index_select(&Tensor::new(asked, &Device::Cpu)?, 0)?;
    let mut sums: Vec<Vec<f64>> = rows.iter().map(|&i| vec![0.0; if all { seq_len } else { i + 1 }]).collect();
    for head in 0..heads {
        let of = |x: &Tensor, own: usize| part_of_head(x, head, [heads, own])?.contiguous();
        let scores = of(&q, heads)?.matmul(&of(k, key_heads)?.t()?.contiguous()?)?;
        let scores: Vec<Vec<f64>> = (scores * (features as f64).powf(-0.5))?.to_vec2()?;
        debug_assert!(scores.iter().all(|row| row.len() == seq_len));
        for (sum, scores) in sums.iter_mut().zip(&scores) {
            let seen = &scores[..sum.len()];
            let most = seen.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = seen.iter().map(|score| (score - most).exp()).sum();
            let share = |score: &f64| (score - most).exp() / (total * heads as f64);
            sum.iter_mut().zip(seen).for_each(|(sum, score)| *sum += share(score));
        }
    }
    Ok(sums)
}
