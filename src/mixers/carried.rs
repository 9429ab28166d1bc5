//! Tensors that the layers of a network hand on beside its residual stream.

use candle_core::Tensor;

/// Tensors from earlier layers; the second axis of each is the token. Most mixers read and set none.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// Values of the first layer, `(batch, seq_len, d)`, which later ones mix with their own (RWKV-7).
    pub first_values: Option<Tensor>,
    /// Importance of tokens and heads (SpAtten).
    pub importance: Option<Importance>,
}

/// Sums over the layers so far and the tokens up to each token i; -∞ for a token or head that one of these layers has
/// dropped for token i, and for tokens after it.
#[derive(Clone, Debug)]
pub struct Importance {
    /// Attention weights of each token over all heads, `(batch, seq_len, seq_len)`.
    pub tokens: Tensor,
    /// Magnitude of the output of each head, `(batch, seq_len, heads)`.
    pub heads: Tensor,
}
