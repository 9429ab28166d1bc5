//! Fourier transforms of real numbers, padded with zeros to a size whose transform is fast. rustfft chooses the
//! instruction set of the transforms itself (AVX with FMA, or NEON); `DSF_SIMD` does not affect it.

use crate::runtime::float::Float;
use dsf_fft::{Complex, ComplexToReal, RealToComplex, Transformed};
use std::sync::Arc;

/// The transform of real numbers and its inverse, planned for one size.
pub(crate) struct Fourier<F: Float> {
    to: Arc<dyn RealToComplex<F::Stored>>,
    from: Arc<dyn ComplexToReal<F::Stored>>,
}

/// The least size of at least `needed` numbers whose transform is fast: even, and of small factors.
pub fn fast_size(needed: usize) -> usize {
    let of = |odd: usize| odd * needed.div_ceil(odd).next_power_of_two().max(2);
    [1, 3, 5, 9].map(of).into_iter().fold(usize::MAX, usize::min)
}

/// A coefficient of a frequency.
pub(crate) type Coefficient<F> = Complex<<F as Float>::Stored>;

/// Coefficients of the frequencies from 0 to half the sampling rate.
pub(crate) type Spectrum<F> = Vec<Coefficient<F>>;

/// Memory of transforms.
pub(crate) struct Workspace<F: Float> {
    signal: Vec<F::Stored>,
    scratch: Spectrum<F>,
}

impl<F: Float> Fourier<F> {
    /// Transforms of `len` numbers.
    pub(crate) fn plan(len: usize) -> Self {
        let (to, from) = F::Stored::transforms(len);
        Self { to, from }
    }

    /// A spectrum of zeros.
    pub(crate) fn spectrum(&self) -> Spectrum<F> {
        self.to.make_output_vec()
    }

    pub(crate) fn workspace(&self) -> Workspace<F> {
        let scratch = self.to.get_scratch_len().max(self.from.get_scratch_len());
        Workspace { signal: self.to.make_input_vec(), scratch: vec![Complex::default(); scratch] }
    }

    /// The spectrum of `x`, followed by zeros.
    pub(crate) fn transform(&self, x: &[F], spectrum: &mut [Coefficient<F>], space: &mut Workspace<F>) {
        let Workspace { signal, scratch } = space;
        let (start, rest) = F::wrap_mut(signal).split_at_mut(x.len());
        start.copy_from_slice(x);
        rest.fill(F::zero());
        self.to.process_with_scratch(signal, spectrum, scratch).expect("buffers of the planned sizes");
    }

    /// Returns the first numbers of the signal with this spectrum, which is overwritten.
    pub(crate) fn invert(&self, spectrum: &mut [Coefficient<F>], to: &mut [F], space: &mut Workspace<F>) {
        let Workspace { signal, scratch } = space;
        // Zero already, unless something is not finite.
        for end in [0, spectrum.len() - 1] {
            spectrum[end].im = F::zero().peel();
        }
        self.from.process_with_scratch(spectrum, signal, scratch).expect("buffers of the planned sizes, and real ends");
        let scale = F::one() / F::of(signal.len() as f64);
        for (to, &x) in to.iter_mut().zip(F::wrap_slice(signal)) {
            *to = scale * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_size_is_even_and_at_most_a_third_too_large() {
        for needed in 1..5000 {
            let size = fast_size(needed);
            assert!(size.is_multiple_of(2) && size >= needed, "{needed}: {size}");
            assert!(needed < 8 || 3 * size <= 4 * needed, "{needed}: {size}");
        }
        assert_eq!([2047, 2049, 1087].map(fast_size), [2048, 2304, 1152]);
    }
}
