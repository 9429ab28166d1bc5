//! Gradients through time: how the loss of an example depends on the state that a layer hands to the next token.
//!
//! The model reads the example token by token. A zero is added to each state h_t before the next token, and the gradient
//! of the loss with respect to it is dL/dh_t over all paths that lead on from it: through the later states of the layer,
//! and through the layers above. Every mixer that decodes has one, with or without a finite system; the state of
//! attention is its cache.

use crate::error::Result;
use crate::ops;
use candle_core::{DType, Tensor, Var};

/// Gradients of the loss of one example with respect to the states of one layer.
#[derive(Clone, Debug)]
pub struct StateGradients {
    /// ‖dL/dh_t‖ for each token t but the last, where L is the mean loss of all answers.
    pub by_token: Vec<f64>,
    /// ‖dL_i/dh_{i-k}‖ for k = 1, 2, .., where L_i is the loss of the answer at token i, as a share of ‖dL_i/dh_{i-1}‖.
    /// Numerator and denominator are summed over the answers that have k tokens before them. Empty without answers at
    /// tokens, as in a classifier.
    pub by_lag: Vec<f64>,
}

impl StateGradients {
    /// Tokens over which half of the gradient is lost; infinite if less is lost at the longest lag. `None` without lags.
    pub fn half_life(&self) -> Option<f64> {
        let first = self.by_lag.iter().position(|share| *share < 0.5);
        (!self.by_lag.is_empty()).then(|| first.map_or(f64::INFINITY, |further| further as f64))
    }

    /// Largest ‖dL/dh_t‖.
    pub fn largest(&self) -> Option<f64> {
        self.by_token.iter().copied().reduce(f64::max)
    }

    /// Share of the gradient that is left at the longest lag.
    pub fn left(&self) -> Option<f64> {
        self.by_lag.last().copied()
    }
}

/// The zeros added to the states of each layer, by token.
pub(super) struct StateProbes(Vec<Vec<Vec<Var>>>);

impl StateProbes {
    pub fn new(layers: usize) -> Self {
        Self(vec![Vec::new(); layers])
    }

    /// Adds zeros to the `state` of a layer after its next token.
    pub fn add(&mut self, layer: usize, state: &mut [Tensor]) -> candle_core::Result<()> {
        let mut of_token = Vec::new();
        for tensor in state.iter_mut().filter(|tensor| tensor.dtype().is_float()) {
            let zero = Var::zeros(tensor.shape(), tensor.dtype(), tensor.device())?;
            *tensor = (&*tensor + zero.as_tensor())?;
            of_token.push(zero);
        }
        self.0[layer].push(of_token);
        Ok(())
    }

    /// ‖dL/dh_t‖ of each sequence, by layer and token.
    pub fn norms(&self, loss: &Tensor, sequences: usize) -> Result<Vec<Vec<Vec<f64>>>> {
        let grads = ops::backward(loss)?;
        let of_token = |zeros: &Vec<Var>| -> Result<Vec<f64>> {
            let mut squares = vec![0.0; sequences];
            for grad in zeros.iter().filter_map(|zero| grads.get(zero.as_tensor())) {
                if grad.elem_count() == 0 {
                    continue;
                }
                let rows = grad.reshape((sequences, ()))?.to_dtype(DType::F64)?;
                for (sum, more) in squares.iter_mut().zip(rows.sqr()?.sum(1)?.to_vec1::<f64>()?) {
                    *sum += more;
                }
            }
            Ok(squares.into_iter().map(f64::sqrt).collect())
        };
        self.0.iter().map(|tokens| tokens.iter().map(of_token).collect()).collect()
    }
}
