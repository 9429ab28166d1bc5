//! Foundations of the ops: their place in Candle's graph, numbers and memory of the CPU, the division of work into
//! tasks and kernels, and computations that several ops share.

pub(crate) mod autograd;
pub(crate) mod chunked;
pub(crate) mod convert;
pub(crate) mod distance;
pub(crate) mod float;
pub(crate) mod fourier;
pub(crate) mod gemm;
pub(crate) mod lanes;
pub(crate) mod maps;
pub(crate) mod mask;
pub(crate) mod matrix;
pub(crate) mod matrix_state;
pub(crate) mod parallel;
pub(crate) mod peaks;
pub mod rng;
pub(crate) mod route;
pub(crate) mod rows;
pub(crate) mod shape;
pub mod simd;
pub(crate) mod strips;
pub(crate) mod sums;
pub(crate) mod tile;
pub(crate) mod transpose;
pub(crate) mod tuned;
pub(crate) mod zeros;

#[cfg(test)]
pub(crate) mod check;
