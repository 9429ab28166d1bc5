//! Fourier transforms of real numbers. The algorithms of rustfft are generic over the number type and are compiled in
//! the crate that instantiates them: here they are compiled once, instead of again with the ops and their tests.

use realfft::RealFftPlanner;
pub use realfft::{num_complex::Complex, ComplexToReal, FftNum, RealToComplex};
use std::sync::Arc;

/// A Fourier transform of real numbers and its inverse.
pub type Transforms<F> = (Arc<dyn RealToComplex<F>>, Arc<dyn ComplexToReal<F>>);

/// A number type whose transforms are compiled here.
pub trait Transformed: FftNum {
    /// Returns the transform of `len` numbers, and its inverse.
    fn transforms(len: usize) -> Transforms<Self>;
}

macro_rules! transformed {
    ($($number:ty)+) => {$(
        impl Transformed for $number {
            fn transforms(len: usize) -> Transforms<Self> {
                let mut planner = RealFftPlanner::new();
                (planner.plan_fft_forward(len), planner.plan_fft_inverse(len))
            }
        }
    )+};
}

transformed!(f32 f64);
