//! The decay of products of transitions: what a token still weighs later on.

use crate::ltv::{Beside, Ltv};
use candle_core::{DType, Result};

/// Half-lives, in tokens, at which the bins of their distribution end. None is the half-life of a start that many models
/// share, as 1 and its fractions are: rounding would choose the bin.
const ENDS: [f64; 6] = [1.5, 3.0, 6.0, 24.0, 96.0, 384.0];
/// Factors a token within this of 1 do not decay.
pub const AT_ONE: f64 = 1e-12;
/// The same where they were computed in 32 bits.
const AT_ONE_IN_F32: f64 = 1e-6;
/// Below this a number is taken for 0, and its logarithm for that of this.
pub const LEAST: f64 = 1e-300;

/// Names of the bins of half-lives: the last two are of states that do not change, and of those that grow.
pub fn bins() -> Vec<String> {
    let mut from = 0.0;
    let mut names: Vec<String> = Vec::new();
    for end in ENDS {
        names.push(format!("{from}-{end}"));
        from = end;
    }
    names.extend([format!("> {from}"), "never".to_owned(), "grows".to_owned()]);
    names
}

/// Statistics of the products (Π_{k=j+1..L-1} Λ_k) g_j, gathered while j runs from the last token to the first. A scale of
/// the state, as an η that may stand in B_i or in C_i, changes Λ_i and g_i and not the product.
pub struct Products {
    seq_len: usize,
    states: usize,
    /// ln of a product of |λ|, for each state; `None` where eigenvalues of a product are no products of eigenvalues.
    logs: Option<Vec<f64>>,
    /// The largest of `logs` so far.
    largest: f64,
    gates: Option<Vec<Spread>>,
    /// Spread of ln |product|, for each state.
    products: Vec<Spread>,
    /// Σ_j (j - (L-1)/2) ln |product|, for each state: the slope over the tokens, but for a factor.
    slopes: Vec<f64>,
    /// A slope that is none.
    flat: f64,
}

impl Products {
    /// Begins with a system whose first `distinct` channels alone differ.
    pub fn new(system: &Ltv, distinct: usize) -> Result<Self> {
        let (seq_len, _, states) = system.sizes()?;
        let count = distinct * states;
        let products = seq_len > 1 && !matches!(system.beside, Beside::RankOne { .. });
        let gates = system.gate.is_some() && seq_len > 1;
        Ok(Self {
            seq_len,
            states,
            logs: products.then(|| vec![0.0; count]),
            largest: f64::NEG_INFINITY,
            gates: gates.then(|| vec![Spread::default(); distinct]),
            products: vec![Spread::default(); count],
            slopes: vec![0.0; count],
            flat: match system.decay.dtype() {
                DType::F64 => AT_ONE,
                _ => AT_ONE_IN_F32,
            },
        })
    }

    /// Token `j`, whose gate is `gate`, one number a channel.
    pub fn meet(&mut self, j: usize, gate: Option<Vec<f64>>) {
        let gate = gate.map(|gate| -> Vec<f64> {
            let ln = |g: &f64| g.abs().max(LEAST).ln();
            gate.iter().map(ln).collect()
        });
        if let Some((spreads, gate)) = self.gates.as_mut().zip(gate.as_ref()) {
            let each = spreads.iter_mut().zip(gate);
            each.for_each(|(spread, gate)| spread.add(*gate));
        }
        let Some(logs) = &self.logs else { return };
        let from_middle = j as f64 - 0.5 * (self.seq_len - 1) as f64;
        for (s, log) in logs.iter().enumerate() {
            let product = log + gate.as_ref().map_or(0.0, |gate| gate[s / self.states]);
            self.products[s].add(product);
            self.slopes[s] += from_middle * product;
        }
    }

    /// The transition of the token that was met, by its |λ|.
    pub fn pass(&mut self, moduli: &[f64]) {
        for (log, modulus) in self.logs.iter_mut().flatten().zip(moduli) {
            *log += modulus.max(LEAST).ln();
            self.largest = log.max(self.largest);
        }
    }

    /// By how much ln |product| falls a token, for each state, by least squares; 0 where it does not change.
    fn rates(&self) -> Vec<f64> {
        if self.logs.is_none() {
            return Vec::new();
        }
        let tokens = self.seq_len as f64;
        let squares = tokens * (tokens * tokens - 1.0) / 12.0;
        let rates = self.slopes.iter().map(|slope| slope / squares);
        rates
            .map(|rate| if rate.abs() <= self.flat { 0.0 } else { rate })
            .collect()
    }

    /// Half-lives of the states, ascending.
    pub fn half_lives(&self) -> Vec<f64> {
        let rates = self.rates().into_iter();
        let mut lives: Vec<f64> = rates.map(half_life).collect();
        lives.sort_by(f64::total_cmp);
        lives
    }

    /// Shares of the states in the [`bins`].
    pub fn shares(&self) -> Vec<f64> {
        let rates = self.rates();
        let mut shares = vec![0.0; if rates.is_empty() { 0 } else { ENDS.len() + 3 }];
        for rate in &rates {
            shares[bin(*rate)] += 1.0 / rates.len() as f64;
        }
        shares
    }

    /// The largest product of |λ|.
    pub fn largest(&self) -> Option<f64> {
        self.logs.as_ref().map(|_| self.largest.exp())
    }

    /// Standard deviation over tokens of ln |g_j|, the mean over channels.
    pub fn gate(&self) -> Option<f64> {
        self.gates.as_deref().map(mean_std)
    }

    /// Standard deviation over tokens of ln |product|, the mean over states.
    pub fn product(&self) -> Option<f64> {
        self.logs.as_ref().map(|_| mean_std(&self.products))
    }
}

/// Tokens after which a state whose logarithm falls by `rate` a token is halved.
fn half_life(rate: f64) -> f64 {
    match rate > 0.0 {
        true => 2f64.ln() / rate,
        false => f64::INFINITY,
    }
}

/// The one of the [`bins`] for a rate.
fn bin(rate: f64) -> usize {
    let never = ENDS.len() + 1;
    let end = ENDS.iter().position(|end| half_life(rate) < *end);
    match rate {
        rate if rate < 0.0 => never + 1,
        0.0 => never,
        _ => end.unwrap_or(ENDS.len()),
    }
}

/// The middle of ascending numbers, the mean of both where two are in the middle.
pub fn median(ascending: &[f64]) -> Option<f64> {
    let low = ascending.len().checked_sub(1)? / 2;
    let high = ascending.len() / 2;
    Some(0.5 * (ascending[low] + ascending[high]))
}

/// Running sums for a mean and a deviation.
#[derive(Clone, Copy, Default)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, x: f64) {
        self.count += 1.0;
        let off = x - self.mean;
        self.mean += off / self.count;
        self.squares += off * (x - self.mean);
    }

    fn std(&self) -> f64 {
        (self.squares / self.count.max(1.0)).max(0.0).sqrt()
    }
}

fn mean_std(spreads: &[Spread]) -> f64 {
    spreads.iter().map(Spread::std).sum::<f64>() / spreads.len().max(1) as f64
}
