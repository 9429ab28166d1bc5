//! Choice of the next token from its logits: greedy, or sampled with a temperature, top-k and top-p.

use crate::error::{refuse, Error, Result};
use crate::ops::rng::Rng;
use std::fmt;

/// Rule by which the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SamplingRule {
    /// The most likely token; ties go to the lowest id.
    Greedy,
    /// A random token.
    Sampled(Sampling),
}

/// Distribution from which tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
pub struct Sampling {
    /// Sampling temperature; below 1, likely tokens become more likely.
    #[arg(long, value_name = "T", default_value_t = 0.8, allow_hyphen_values = true)]
    pub temperature: f64,
    /// Sample from the K most likely tokens; 0 for no limit.
    #[arg(long, value_name = "K", default_value = "40")]
    pub top_k: Option<usize>,
    /// Sample from the fewest tokens whose probabilities sum to at least P.
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub top_p: Option<f64>,
    /// Seed of sampling; the same seed gives the same text.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
}

impl SamplingRule {
    /// Checks that all settings are in range. Fails with the flag of the first setting that is out of range.
    pub fn check(&self) -> Result<()> {
        let Self::Sampled(how) = self else { return Ok(()) };
        let wrong = |flag: &str, value: &dyn fmt::Display, must: &str| {
            Err(Error::flag_value(flag, value, format!("must be {must}")))
        };
        match how {
            // The negated comparison also refuses NaN.
            Sampling { temperature: t, .. } if !(*t > 0.0 && t.is_finite()) => {
                wrong("--temperature", t, "a number above 0; --greedy always takes the most likely token")
            }
            Sampling { top_k: Some(0), .. } => wrong("--top-k", &0, "at least 1"),
            Sampling { top_p: Some(p), .. } if !(*p > 0.0 && *p <= 1.0) => wrong("--top-p", p, "above 0 and at most 1"),
            Sampling { .. } => Ok(()),
        }
    }

    /// Returns the id of the token at position `at`, given its `logits`. Fails if there are none or one is NaN.
    pub(super) fn pick(&self, logits: &[f32], at: usize) -> Result<usize> {
        if logits.iter().any(|x| x.is_nan()) || logits.is_empty() {
            refuse!("the model's logits are NaN: its training diverged, or its weights are damaged");
        }
        Ok(match self {
            Self::Greedy => ranked(logits, 1)[0],
            Self::Sampled(how) => how.draw(logits, at),
        })
    }
}

impl Sampling {
    fn draw(&self, logits: &[f32], at: usize) -> usize {
        let candidates = ranked(logits, self.top_k.unwrap_or(logits.len()));
        let highest = f64::from(logits[candidates[0]]);
        let weight = |id: &usize| ((f64::from(logits[*id]) - highest) / self.temperature).exp();
        let mut weights: Vec<f64> = candidates.iter().map(weight).collect();
        if let Some(p) = self.top_p {
            weights.truncate(nucleus_len(&weights, p));
        }
        let total: f64 = weights.iter().sum();
        let mut left = total * Rng::new(self.seed, "generate", at as u64).uniform();
        for (id, weight) in candidates.iter().zip(&weights) {
            if left < *weight {
                return *id;
            }
            left -= weight;
        }
        candidates[weights.len() - 1] // reached only because of rounding errors
    }
}

/// Ids of the `most` highest logits in descending order; equal logits are ordered by id.
fn ranked(logits: &[f32], most: usize) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    let order = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    if most < ids.len() {
        ids.select_nth_unstable_by(most, order);
        ids.truncate(most);
    }
    ids.sort_unstable_by(order);
    ids
}

/// Length of the shortest prefix of the descending `weights` that reaches the fraction `p` of their sum.
fn nucleus_len(weights: &[f64], p: f64) -> usize {
    let wanted = p * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    let below = weights.iter().take_while(|weight| {
        sum += **weight;
        sum < wanted
    });
    (below.count() + 1).min(weights.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;

    const LOGITS: [f32; 5] = [0.0, 3.0, 1.0, 3.0, -2.0];

    fn sampling() -> Sampling {
        Sampling { temperature: 1.0, top_k: None, top_p: None, seed: 7 }
    }

    fn shares(how: Sampling) -> [f64; 5] {
        let mut seen = [0.0; 5];
        for at in 0..20_000 {
            seen[SamplingRule::Sampled(how).pick(&LOGITS, at).unwrap()] += 1.0 / 20_000.0;
        }
        seen
    }

    #[test]
    fn greedy_takes_the_first_of_equally_likely_tokens() {
        assert_eq!(SamplingRule::Greedy.pick(&LOGITS, 0).unwrap(), 1);
    }

    #[test]
    fn tokens_are_drawn_with_their_softmax_probabilities() {
        for temperature in [0.5, 1.0, 2.0] {
            let weights = LOGITS.map(|x| (f64::from(x) / temperature).exp());
            let total: f64 = weights.iter().sum();
            let found = shares(Sampling { temperature, ..sampling() });
            for (share, weight) in found.iter().zip(weights) {
                assert!((share - weight / total).abs() < 0.012, "{found:?}");
            }
        }
    }

    #[test]
    fn neither_top_k_nor_top_p_lets_an_unlikely_token_through() {
        let k = shares(Sampling { top_k: Some(2), ..sampling() });
        assert!(k[1] > 0.45 && k[3] > 0.45 && k[0] + k[2] + k[4] == 0.0, "{k:?}");
        // The two most likely tokens have 0.455 each: two suffice for 0.6, three for 0.92.
        for (p, drawn) in [(0.4, 1), (0.6, 2), (0.92, 3), (1.0, 5)] {
            let found = shares(Sampling { top_p: Some(p), ..sampling() });
            let seen = found.iter().filter(|share| **share > 0.0).count();
            assert_eq!(seen, drawn, "{p}: {found:?}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_tokens_and_another_seed_others() {
        let drawn = |seed| -> Vec<usize> {
            let how = SamplingRule::Sampled(Sampling { seed, ..sampling() });
            (0..40).map(|at| how.pick(&LOGITS, at).unwrap()).collect()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn settings_out_of_range_and_logits_that_are_nan_are_refused() {
        let refuses = |how: Sampling, flag| SamplingRule::Sampled(how).check().refuses(flag);
        for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let how = Sampling { temperature, ..sampling() };
            refuses(how, "--temperature").names(&["--greedy"]);
        }
        let top_k = Some(0);
        let how = Sampling { top_k, ..sampling() };
        refuses(how, "--top-k").gives("0");
        for p in [0.0, 1.1, f64::NAN] {
            let top_p = Some(p);
            let how = Sampling { top_p, ..sampling() };
            refuses(how, "--top-p");
        }
        SamplingRule::Greedy.pick(&[0.0, f32::NAN], 0).fails("refused");
    }
}
