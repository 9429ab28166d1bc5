//! Differentiable operations that Candle lacks, one public function each.
//!
//! Every op is a folder of the same five parts: `mod` has the public function, the checks of its inputs and the record
//! for autograd; `reference`, made of ordinary tensor ops, is its definition; `cpu` and `cuda` are fused
//! implementations with a hand-written backward pass, for f32 and f64 on the CPU, and for f32 and bf16 on a GPU;
//! `tests` compares them. Code that ops share is in `runtime`. Results do not depend on the number of threads: work is
//! divided at fixed places and partial sums are added in index order.

mod runtime;

mod adamw;
mod cascade;
mod causal_attention;
mod causal_conv1d;
mod channels;
mod complex_scan;
mod cross_entropy;
mod delta_rule;
mod dplr_kernel;
mod dropout;
mod embedding;
mod expression;
mod gated_readout;
mod gated_scan;
mod gla;
mod glu;
mod layer_norm;
mod linear;
mod linear_scan;
mod long_conv;
mod matmul;
mod mlp;
mod pointwise;
mod pool;
mod recurrent;
mod residual;
mod rms_norm;
mod rotary;
mod select_rows;
mod selective_scan;
mod shift;
mod split;
mod ssd;
mod time_steps;
mod vandermonde;

#[cfg(test)]
mod tests;

use dsf_gpu as gpu;

pub use adamw::{AdamWKernels, AdamWRates, AdamWSettings, AdamWSlot};
pub use cascade::cascade;
pub use causal_attention::{
    attention_at, causal_attention, heads_apart, heads_beside, patterned_attention, Pattern, Weights,
};
pub use causal_conv1d::causal_conv1d;
pub use channels::{add_scaled, scale_heads, softplus_biased};
pub use complex_scan::complex_scan;
pub use cross_entropy::{cross_entropy, cross_entropy_of_logits, Classified};
pub use delta_rule::delta_rule;
pub use dplr_kernel::dplr_kernel;
pub use dropout::dropout;
pub use embedding::embedding;
pub use expression::{tensors, Expression};
pub use gated_readout::{gated_readout, silu_gate};
pub use gated_scan::{gated_scan, Gates};
pub use gla::gla;
pub use glu::{glu, Glu};
pub use layer_norm::{add_layer_norm, layer_norm};
pub use linear::{linear, linears};
pub use linear_scan::linear_scan;
pub use long_conv::long_conv;
pub use matmul::matmul;
pub use mlp::mlp;
pub use pointwise::{elu1, gelu, gelu_tanh, phi1, sigmoid, silu, softplus, tanh};
pub use pool::{pool, Pool};
pub use recurrent::{recurrent, RecurrentCell};
pub use residual::residual;
pub use rms_norm::rms_norm;
pub use rotary::rotary;
pub use runtime::autograd::{backward, reshape};
pub use runtime::distance::Distance;
pub use runtime::fourier::fast_size;
pub use runtime::mask::Dropout;
pub use runtime::peaks::Peaks;
pub use runtime::route::{prefer, taken, with_pairs, Pairs, Route};
pub use runtime::simd::Simd;
pub use runtime::{rng, simd};
pub use select_rows::select_rows;
pub use selective_scan::{discretised_scan, selective_scan, StepRule};
pub use shift::shift;
pub use split::{join, split};
pub use ssd::ssd;
pub use time_steps::time_steps;
pub use vandermonde::vandermonde;
