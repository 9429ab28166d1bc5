//! Linear attention in log space, for positive features given by their logarithms a = ln φ(q) and b = ln φ(k),
//!
//! o_i = Σ_j Σ_f e^{a_if + b_jf} v_j / Σ_j Σ_f e^{a_if + b_jf}
//!
//! The features themselves can underflow in all elements, which makes o = 0/0. As in an online softmax, the largest
//! exponent so far is subtracted per row of the state and per query. It cancels in the quotient, and one term of each
//! sum is e^0 = 1.

use super::attention::Projections;
use super::running_max::running_max;
use super::State;
use crate::nn::Cx;
use crate::ops::{self, Weights};
use candle_core::{DType, Result, Tensor, D};

/// Largest exponent of a feature for which products and long sums stay far from overflow in f32.
const HIGH: f64 = 30.0;
/// Smallest exponent of the largest term of a sum for which all terms that matter are normal numbers in f32.
pub(super) const LOW: f64 = -40.0;
/// Finite stand-in for ln 0.
const LOG_ZERO: f64 = -1e30;

/// Logarithms of the features of queries and keys.
pub(super) struct LogFeatures {
    /// ln φ(q), `(batch, rows, heads, m)`.
    pub q: Tensor,
    /// ln φ(k), `(batch, seq_len, heads, m)`.
    pub k: Tensor,
}

impl LogFeatures {
    /// Whether φ itself can be used, since nothing that matters underflows or overflows. Always false on a GPU, where
    /// reading the extrema would synchronise.
    pub fn are_moderate(&self, cx: &Cx) -> Result<bool> {
        if !self.q.device().is_cpu() {
            return Ok(false);
        }
        let scalar = |x: Tensor| x.to_dtype(DType::F64)?.to_scalar::<f64>();
        let highest = scalar(self.q.max_all()?)?.max(scalar(self.k.max_all()?)?);
        let none_is_low = scalar(self.q.min_all()?)? + scalar(self.k.min_all()?)? >= LOW;
        if highest > HIGH || none_is_low {
            return Ok(highest <= HIGH);
        }
        // The sum of a query has at least the term of its own key.
        let own = (&self.q + select(&self.k, cx)?)?.max(D::Minus1)?;
        Ok(scalar(own.min_all()?)? >= LOW)
    }

    /// o `(batch, rows, d)` for values `(batch, seq_len, d)`, with the dropout of [`Projections::attend`].
    pub fn attend(&self, p: &Projections, v: &Tensor, cx: &Cx) -> Result<Tensor> {
        match cx.last_seen()? {
            Some(last) => self.attend_all(p, v, &last, cx),
            None if p.drops_output || !cx.is_training() || p.dropout() == 0.0 => {
                let o = self.sums(&with_ones(&split(v, p.n_heads)?)?, cx)?;
                let o = quotient(&o)?.flatten_from(2)?;
                match p.drops_output {
                    true => cx.dropout(&o, "attention", p.dropout()),
                    false => Ok(o),
                }
            }
            None => self.attend_dropping(p, v, cx),
        }
    }

    /// Σ_{j≤i} Σ_f e^{a_if + b_jf - c_i} x_j, `(batch, rows, heads, any)`, for x `(batch, seq_len, heads, any)`; c_i is
    /// the largest exponent.
    fn sums(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let keys = self.k.detach();
        let highest = running_max(&keys.zeros_like()?, &keys)?;
        let seq_len = highest.dim(1)?;
        let previous = Tensor::cat(&[&highest.narrow(1, 0, 1)?, &highest.narrow(1, 0, seq_len - 1)?], 1)?;
        let log_decays = (previous - &highest)?;
        let k = (&self.k - &highest)?.exp()?;
        let q = exp_from_max(&(&self.q + select(&highest, cx)?)?)?;
        let rows = cx.rows().map(|rows| &rows.positions);
        ops::gla(&q, &k, x, &log_decays, rows)
    }

    /// [`Self::attend`] with dropout of the weights, which are the sums for x = I.
    fn attend_dropping(&self, p: &Projections, v: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, heads, _) = self.k.dims4()?;
        let identity = Tensor::eye(seq_len, v.dtype(), v.device())?.reshape((1, seq_len, 1, ()))?;
        let identity = identity.broadcast_as((batch, seq_len, heads, seq_len))?;
        let weights = self.sums(&identity.contiguous()?, cx)?;
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        let weights = weights.transpose(1, 2)?.contiguous()?;
        let weights = cx.dropout(&weights, "attention", p.dropout())?;
        p.merge(&ops::matmul(&weights, &p.split(v)?)?)
    }

    /// Bidirectional [`Self::attend`] over tokens up to `last` `(batch)` of each sequence: the largest exponent of the
    /// whole sequence is subtracted from all keys.
    fn attend_all(&self, p: &Projections, v: &Tensor, last: &Tensor, cx: &Cx) -> Result<Tensor> {
        let seq_len = self.k.dim(1)?;
        let positions = Tensor::arange(0, seq_len as u32, last.device())?.unsqueeze(0)?;
        let seen = positions.broadcast_le(&last.unsqueeze(1)?)?;
        let log_zero = self.k.detach().affine(0.0, LOG_ZERO)?;
        let seen = seen.unsqueeze(2)?.unsqueeze(3)?.broadcast_as(self.k.shape())?;
        let keys = seen.where_cond(&self.k, &log_zero)?;
        let highest = keys.detach().max_keepdim(1)?;
        let k = keys.broadcast_sub(&highest)?.exp()?;
        let q = exp_from_max(&self.q.broadcast_add(&highest)?)?;
        let (q, k) = (q.flatten_from(2)?, k.flatten_from(2)?);
        p.attend([&q, &k, v], Weights::LinearNormalised, cx)
    }

    /// Initial state: sums of values and of ones, `(batch, heads, m, e + 1)`, and the largest exponent per row,
    /// `(batch, heads, m, 1)`.
    pub fn init(p: &Projections, batch: usize, width: usize) -> Result<State> {
        let values = p.zero_state(batch, width)?;
        let column = values.narrow(3, 0, 1)?;
        let log_zero = column.affine(0.0, LOG_ZERO)?;
        Ok(State::new(vec![Tensor::cat(&[&values, &column], 3)?, log_zero]))
    }

    /// Elements of [`Self::init`] per sequence.
    pub fn state_size(p: &Projections, width: usize) -> usize {
        p.state_size(width) + 2 * p.n_heads * width
    }

    /// o `(batch, 1, d)` of one token with the value v `(batch, 1, d)`; advances the state.
    pub fn step(&self, v: &Tensor, state: &mut State) -> Result<Tensor> {
        let [sums, highest] = &state.0[..] else {
            candle_core::bail!("a state of {} tensors, and not of 2", state.0.len());
        };
        let column = |x: &Tensor| x.squeeze(1)?.unsqueeze(3); // (batch, heads, m, 1)
        let (q, k) = (column(&self.q)?, column(&self.k)?);
        let now = highest.maximum(&k)?;
        let v = with_ones(&split(v, q.dim(1)?)?)?.transpose(1, 2)?; // (batch, heads, 1, e + 1)
        let kept = sums.broadcast_mul(&(highest - &now)?.exp()?)?;
        let kv = (k - &now)?.exp()?.broadcast_mul(&v)?;
        let sums = (kept + kv)?;
        let q = exp_from_max(&(q + &now)?.transpose(2, 3)?)?;
        let o = q.contiguous()?.matmul(&sums)?.transpose(1, 2)?;
        *state = State::new(vec![sums, now]);
        quotient(&o)?.flatten_from(2)
    }
}

/// `(batch, rows, heads · width)` to `(batch, rows, heads, width)`.
pub(super) fn split(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, rows, width) = x.dims3()?;
    x.reshape((batch, rows, heads, width / heads))
}

/// x `(batch, seq_len, heads, width)` at the positions that `cx` selects.
fn select(x: &Tensor, cx: &Cx) -> Result<Tensor> {
    split(&cx.select(&x.flatten_from(2)?)?, x.dim(2)?)
}

/// e^{x - max x} along the last axis.
fn exp_from_max(x: &Tensor) -> Result<Tensor> {
    x.broadcast_sub(&x.detach().max_keepdim(D::Minus1)?)?.exp()
}

/// v with a last column of ones, whose sum is the normaliser.
fn with_ones(v: &Tensor) -> Result<Tensor> {
    Tensor::cat(&[v, &v.narrow(D::Minus1, 0, 1)?.ones_like()?], D::Minus1)
}

/// Columns of o but the last, divided by the last.
fn quotient(o: &Tensor) -> Result<Tensor> {
    let values = o.dim(D::Minus1)? - 1;
    let sum = o.narrow(D::Minus1, values, 1)?;
    o.narrow(D::Minus1, 0, values)?.broadcast_div(&sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixers::MixerSpec;
    use crate::nn::{Params, Rows};
    use crate::recipes;
    use candle_core::{Device, Var};

    const HEADS: usize = 3;
    const LEN: usize = 11;
    /// Width of all values together, and features of a head.
    const WIDTHS: [usize; 2] = [12, 5];

    fn projections(dropout: f64) -> Projections {
        let settings = [("preset", "smoke"), ("mixer", "softmax"), ("d", "12")];
        let heads = [("n", "6"), ("heads", "3")];
        let settings = [&settings[..], &heads].concat();
        let mut model = recipes::run("mqar", &settings).unwrap().model;
        model.attn_dropout = dropout;
        let params = Params::seeded(1, DType::F64, &Device::Cpu);
        Projections::new(&MixerSpec::from(&model), &params).unwrap()
    }

    fn random(size: f64, shape: impl Into<candle_core::Shape>) -> Tensor {
        Tensor::randn(0.0, size, shape, &Device::Cpu).unwrap()
    }

    /// Logarithms of features of so much spread, and values.
    fn inputs(spread: f64) -> [Tensor; 3] {
        let logs = || random(spread, (2, LEN, HEADS, WIDTHS[1]));
        [logs(), logs(), random(1.0, (2, LEN, WIDTHS[0]))]
    }

    fn logs(q: &Tensor, k: &Tensor) -> LogFeatures {
        LogFeatures { q: q.clone(), k: k.clone() }
    }

    fn apart(a: &Tensor, b: &Tensor) -> f64 {
        let worst = (a - b).unwrap().abs().unwrap().max_all().unwrap();
        let worst = worst.to_dtype(DType::F64).unwrap().to_scalar().unwrap();
        assert!(f64::is_finite(worst), "{worst}");
        worst
    }

    /// Outputs and gradients, where features are numbers of a moderate size.
    #[test]
    fn exponents_give_what_the_features_give() {
        let times = Tensor::new(&[[0u32, 3, 10], [2, 5, 6]], &Device::Cpu).unwrap();
        let rows = Rows { positions: times };
        let lengths = Tensor::new(&[11u32, 4], &Device::Cpu).unwrap();
        for (cx, dropout, some) in [
            (Cx::eval(), 0.0, false),
            (Cx::eval(), 0.0, true),
            (Cx::train(1, 5), 0.4, false),
            (Cx::train(1, 5), 0.4, true),
            (Cx::eval().seeing_all(&lengths, LEN).unwrap(), 0.0, false),
        ] {
            let p = projections(dropout);
            let cx = cx.only(some.then_some(&rows));
            let vars = inputs(2.0).map(|x| Var::from_tensor(&x).unwrap());
            let [q, k, v] = vars.each_ref().map(|x| x.as_tensor());
            // Twice, since a graph is gone through once.
            let asked = || select(q, &cx).unwrap();
            let found = logs(&asked(), k).attend(&p, v, &cx).unwrap();
            let feature = |x: &Tensor| x.exp().unwrap().flatten_from(2).unwrap();
            let features = [&feature(&asked()), &feature(k), v];
            let wanted = p.attend(features, Weights::LinearNormalised, &cx);
            let wanted = wanted.unwrap();
            assert!(apart(&found, &wanted) < 1e-12);
            let along = random(1.0, found.shape());
            let grads = [found, wanted].map(|o| {
                let loss = (o * &along).unwrap().sum_all().unwrap();
                loss.backward().unwrap()
            });
            for var in &vars {
                let [found, wanted] = grads.each_ref().map(|g| g.get(var).unwrap());
                assert!(apart(found, wanted) < 1e-11);
            }
        }
    }

    /// The definition for one output, with the largest exponent of all pairs taken out.
    fn by_hand([q, k, v]: [&Tensor; 3], at: usize) -> Tensor {
        let q = q.narrow(1, at, 1).unwrap();
        let k = k.narrow(1, 0, at + 1).unwrap();
        let exponents = k.broadcast_add(&q).unwrap().transpose(1, 2).unwrap();
        let exponents = exponents.flatten_from(2).unwrap();
        let weights = candle_nn::ops::softmax(&exponents, D::Minus1).unwrap();
        let weights = weights.reshape((2, HEADS, at + 1, ())).unwrap();
        let weights = weights.sum_keepdim(3).unwrap();
        let v = split(&v.narrow(1, 0, at + 1).unwrap(), HEADS).unwrap();
        let o = weights.broadcast_mul(&v.transpose(1, 2).unwrap()).unwrap();
        o.sum(2).unwrap().flatten_from(1).unwrap()
    }

    /// Features from e^-3000 to e^3000 are numbers in no type.
    #[test]
    fn exponents_of_any_size_give_the_definition_at_once_and_step_by_step() {
        let p = projections(0.0);
        let x = inputs(1000.0);
        let [q, k, v] = &x;
        let o = logs(q, k).attend(&p, v, &Cx::eval()).unwrap();
        let mut state = LogFeatures::init(&p, 2, WIDTHS[1]).unwrap();
        for at in 0..LEN {
            let wanted = by_hand([q, k, v], at);
            let now = |x: &Tensor| x.narrow(1, at, 1).unwrap();
            let step = logs(&now(q), &now(k)).step(&now(v), &mut state).unwrap();
            for found in [step, now(&o)] {
                assert!(apart(&found.squeeze(1).unwrap(), &wanted) < 1e-12);
            }
        }
        assert_eq!(state.size(), LogFeatures::state_size(&p, WIDTHS[1]));
        let [q, k, v] = x.map(|x| x.to_dtype(DType::F32).unwrap());
        let single = logs(&q, &k).attend(&p, &v, &Cx::eval()).unwrap();
        let single = single.to_dtype(DType::F64).unwrap();
        assert!(apart(&single, &o) < 1e-2, "exponents of f32 have 7 digits");
    }

    #[test]
    fn a_later_key_of_any_size_changes_nothing_before_it() {
        let p = projections(0.0);
        let [q, k, v] = inputs(1000.0);
        let of = |k: &Tensor| logs(&q, k).attend(&p, &v, &Cx::eval()).unwrap();
        let larger = k.narrow(1, LEN - 1, 1).unwrap().affine(1.0, 1e5).unwrap();
        let first = |x: &Tensor| x.narrow(1, 0, LEN - 1).unwrap();
        let other = Tensor::cat(&[&first(&k), &larger], 1).unwrap();
        assert_eq!(apart(&first(&of(&k)), &first(&of(&other))), 0.0);
    }

    #[test]
    fn features_serve_where_no_sum_underflows() {
        let of = |query: f64, key: f64| {
            let logs = |x: f64| Tensor::full(x, (1, 2, 1, 3), &Device::Cpu).unwrap();
            logs_of(&logs(query), &logs(key))
        };
        fn logs_of(q: &Tensor, k: &Tensor) -> bool {
            logs(q, k).are_moderate(&Cx::eval()).unwrap()
        }
        assert!(of(0.0, 0.0) && of(-39.0, 0.0) && of(-60.0, 25.0));
        assert!(!of(-41.0, 0.0) && !of(31.0, 0.0) && !of(0.0, 31.0));
        assert!(!of(f64::NAN, 0.0));
        // A small feature next to a large one does not matter.
        let q = Tensor::new(&[[[[0.0, -90.0]]]], &Device::Cpu).unwrap();
        assert!(logs_of(&q, &q.zeros_like().unwrap()));
    }
}
