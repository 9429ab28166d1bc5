//! The decay of products of transitions: the later weight of a token.

use crate::ltv::{Ltv, OffDiagonal};
use candle_core::{DType, Result};

/// Ends of the bins of half-lives, in tokens. None of them is the half-life at a common initialisation, such as 1 and
/// its fractions, where rounding would decide the bin.
const ENDS: [f64; 6] = [1.5, 3.0, 6.0, 24.0, 96.0, 384.0];
/// Distance from 1 within which a factor per token counts as no decay.
pub const AT_ONE: f64 = 1e-12;
/// The same distance for factors computed in 32 bits.
const AT_ONE_IN_F32: f64 = 1e-6;
/// Smallest number that is not taken for 0, also used for the logarithm of 0.
pub const LEAST: f64 = 1e-300;

/// Names of the bins of half-lives. The last two are for states that do not change and states that grow.
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

/// Statistics of the products (Π_{k=j+1..L-1} Λ_k) g_j, accumulated while j runs from the last token to the first.
/// Scaling the state, for example by an η that may be part of either B_i or C_i, changes Λ_i and g_i but not the
/// product.
pub struct Products {
    seq_len: usize,
    states: usize,
    /// ln of the product of |λ| for each state; `None` if the eigenvalues of a product are not the products of
    /// eigenvalues.
    logs: Option<Vec<f64>>,
    /// The largest of `logs` so far.
    largest: f64,
    gates: Option<Vec<RunningMoments>>,
    /// Spread of ln |product| for each state.
    products: Vec<RunningMoments>,
    /// Σ_j (j - (L-1)/2) ln |product| for each state: the slope over the tokens up to a factor.
    slopes: Vec<f64>,
    /// Largest absolute slope that counts as none.
    flat: f64,
}

impl Products {
    /// Starts the statistics of a system of which only the first `distinct` channels differ.
    pub fn new(system: &Ltv, distinct: usize) -> Result<Self> {
        let (seq_len, _, states) = system.sizes()?;
        let count = distinct * states;
        let products = seq_len > 1 && !matches!(system.off_diagonal, OffDiagonal::RankOne { .. });
        let gates = system.gate.is_some() && seq_len > 1;
        Ok(Self {
            seq_len,
            states,
            logs: products.then(|| vec![0.0; count]),
            largest: f64::NEG_INFINITY,
            gates: gates.then(|| vec![RunningMoments::default(); distinct]),
            products: vec![RunningMoments::default(); count],
            slopes: vec![0.0; count],
            flat: match system.decay.dtype() {
                DType::F64 => AT_ONE,
                _ => AT_ONE_IN_F32,
            },
        })
    }

    /// Adds token `j` with the gate `gate`, one number per channel.
    pub fn add_token(&mut self, j: usize, gate: Option<Vec<f64>>) {
        let gate = gate.map(|gate| -> Vec<f64> { gate.iter().map(|g| g.abs().max(LEAST).ln()).collect() });
        if let Some((spreads, gate)) = self.gates.as_mut().zip(gate.as_ref()) {
            spreads.iter_mut().zip(gate).for_each(|(spread, gate)| spread.add(*gate));
        }
        let Some(logs) = &self.logs else { return };
        let from_middle = j as f64 - 0.5 * (self.seq_len - 1) as f64;
        for (s, log) in logs.iter().enumerate() {
            let product = log + gate.as_ref().map_or(0.0, |gate| gate[s / self.states]);
            self.products[s].add(product);
            self.slopes[s] += from_middle * product;
        }
    }

    /// Multiplies the products by the transition of the token added last, given as |λ|.
    pub fn add_transition(&mut self, moduli: &[f64]) {
        for (log, modulus) in self.logs.iter_mut().flatten().zip(moduli) {
            *log += modulus.max(LEAST).ln();
            self.largest = log.max(self.largest);
        }
    }

    /// Decrease of ln |product| per token for each state, by least squares; 0 if it does not change.
    fn rates(&self) -> Vec<f64> {
        if self.logs.is_none() {
            return Vec::new();
        }
        let tokens = self.seq_len as f64;
        let squares = tokens * (tokens * tokens - 1.0) / 12.0;
        let rates = self.slopes.iter().map(|slope| slope / squares);
        rates.map(|rate| if rate.abs() <= self.flat { 0.0 } else { rate }).collect()
    }

    /// Half-lives of the states, ascending.
    pub fn half_lives(&self) -> Vec<f64> {
        let mut lives: Vec<f64> = self.rates().into_iter().map(half_life).collect();
        lives.sort_by(f64::total_cmp);
        lives
    }

    /// Median half-life of the states of each of `heads` heads of equal width; empty if heads do not differ or do not
    /// divide the states.
    pub fn half_lives_of_heads(&self, heads: usize) -> Vec<f64> {
        let rates = self.rates();
        if heads < 2 || rates.is_empty() || !(rates.len() / self.states).is_multiple_of(heads) {
            return Vec::new();
        }
        let of_head = |rates: &[f64]| {
            let mut lives: Vec<f64> = rates.iter().copied().map(half_life).collect();
            lives.sort_by(f64::total_cmp);
            median(&lives).unwrap_or(f64::NAN)
        };
        rates.chunks(rates.len() / heads).map(of_head).collect()
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

    pub fn largest(&self) -> Option<f64> {
        self.logs.as_ref().map(|_| self.largest.exp())
    }

    /// Standard deviation of ln |g_j| over tokens, averaged over channels.
    pub fn gate(&self) -> Option<f64> {
        self.gates.as_deref().map(mean_std)
    }

    /// Standard deviation of ln |product| over tokens, averaged over states.
    pub fn product(&self) -> Option<f64> {
        self.logs.as_ref().map(|_| mean_std(&self.products))
    }
}

/// Half-life in tokens of a state whose logarithm decreases by `rate` per token.
fn half_life(rate: f64) -> f64 {
    match rate > 0.0 {
        true => 2f64.ln() / rate,
        false => f64::INFINITY,
    }
}

/// Index among the [`bins`] for a rate.
fn bin(rate: f64) -> usize {
    let never = ENDS.len() + 1;
    let end = ENDS.iter().position(|end| half_life(rate) < *end);
    match rate {
        rate if rate < 0.0 => never + 1,
        0.0 => never,
        _ => end.unwrap_or(ENDS.len()),
    }
}

/// Median of ascending numbers; the mean of the middle two if their count is even.
pub fn median(ascending: &[f64]) -> Option<f64> {
    let low = ascending.len().checked_sub(1)? / 2;
    let high = ascending.len() / 2;
    Some(0.5 * (ascending[low] + ascending[high]))
}

/// Running mean and variance (Welford).
#[derive(Clone, Copy, Default)]
struct RunningMoments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl RunningMoments {
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

fn mean_std(spreads: &[RunningMoments]) -> f64 {
    spreads.iter().map(RunningMoments::std).sum::<f64>() / spreads.len().max(1) as f64
}
