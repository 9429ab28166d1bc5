//! Differentiable operations that candle lacks, one public function each.
//!
//! Every op has a `reference` made of ordinary candle ops, which is its definition, and a fused CPU
//! implementation with a backward pass written by hand. The fused one runs for f32 and f64 on the
//! CPU; anything else takes the reference. Results do not depend on the number of threads: work is
//! split at fixed places and partial sums are added in index order.

mod add_bias;
mod causal_attention;
mod causal_conv1d;
mod cross_entropy;
mod dropout;
mod float;
mod fused;
mod gated_readout;
mod gated_scan;
mod lanes;
mod layer_norm;
mod linear_scan;
mod mask;
mod matrix;
mod pointwise;
mod selective_scan;
mod shape;
mod strips;
mod time_steps;

#[cfg(test)]
mod check;

pub use add_bias::add_bias;
pub use causal_attention::{causal_attention, Weights};
pub use causal_conv1d::causal_conv1d;
pub use cross_entropy::cross_entropy;
pub use dropout::dropout;
pub use gated_readout::gated_readout;
pub use gated_scan::{gated_scan, Gates};
pub use layer_norm::layer_norm;
pub use linear_scan::{complex_scan, linear_scan};
pub use mask::Dropout;
pub use pointwise::{elu1, gelu, sigmoid, silu, softplus, tanh};
pub use selective_scan::selective_scan;
pub use time_steps::time_steps;
