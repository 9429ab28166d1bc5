//! Convolutions as products of spectra. rustfft chooses the instruction set of the transforms itself (AVX with FMA, or
//! NEON); `DSF_SIMD` does not affect it.

use super::channel::{Channel, ChannelGradients, ConvolutionSums};
use crate::runtime::float::Float;
use dsf_fft::{Complex, ComplexToReal, RealToComplex, Transformed};
use dsf_simd::simd;
use std::sync::Arc;

/// The transform of real numbers and its inverse, planned for one size.
pub(super) struct Fourier<F: Float> {
    to: Arc<dyn RealToComplex<F::Stored>>,
    from: Arc<dyn ComplexToReal<F::Stored>>,
}

/// The least size of at least `needed` numbers whose transform is fast: even, and of small factors.
pub(super) fn fast_size(needed: usize) -> usize {
    let of = |odd: usize| odd * needed.div_ceil(odd).next_power_of_two().max(2);
    [1, 3, 5, 9].map(of).into_iter().fold(usize::MAX, usize::min)
}

/// A coefficient of a frequency.
type Coefficient<F> = Complex<<F as Float>::Stored>;

/// Coefficients of the frequencies from 0 to half the sampling rate.
type Spectrum<F> = Vec<Coefficient<F>>;

/// Scratch memory of a thread, reused for one channel after another.
pub(super) struct FourierScratch<F: Float> {
    signal: Vec<F::Stored>,
    kernel: Spectrum<F>,
    u: Spectrum<F>,
    gy: Spectrum<F>,
    /// The spectrum of the kernel's gradient, summed over the batch.
    sum: Spectrum<F>,
    scratch: Spectrum<F>,
}

impl<F: Float> Fourier<F> {
    /// Transforms of `len` numbers.
    pub(super) fn plan(len: usize) -> Self {
        let (to, from) = F::Stored::transforms(len);
        Self { to, from }
    }

    /// The spectrum of `x`, followed by zeros.
    fn transform(
        &self,
        x: &[F],
        spectrum: &mut [Coefficient<F>],
        signal: &mut [F::Stored],
        scratch: &mut [Coefficient<F>],
    ) {
        let (start, rest) = F::wrap_mut(signal).split_at_mut(x.len());
        start.copy_from_slice(x);
        rest.fill(F::zero());
        self.to.process_with_scratch(signal, spectrum, scratch).expect("buffers of the planned sizes");
    }

    /// Returns the first numbers of the signal with this spectrum, which is overwritten.
    fn invert(
        &self,
        spectrum: &mut [Coefficient<F>],
        to: &mut [F],
        signal: &mut [F::Stored],
        scratch: &mut [Coefficient<F>],
    ) {
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

impl<F: Float> ConvolutionSums<F> for Fourier<F> {
    type Memory = FourierScratch<F>;

    fn memory(&self) -> FourierScratch<F> {
        let spectrum = || self.to.make_output_vec();
        let scratch = self.to.get_scratch_len().max(self.from.get_scratch_len());
        FourierScratch {
            signal: self.to.make_input_vec(),
            kernel: spectrum(),
            u: spectrum(),
            gy: spectrum(),
            sum: spectrum(),
            scratch: vec![Complex::default(); scratch],
        }
    }

    fn forward(&self, memory: &mut FourierScratch<F>, channel: Channel<F>, y: &mut [F]) {
        let FourierScratch { signal, kernel, u: spectrum, scratch, .. } = memory;
        self.transform(channel.kernel, kernel, signal, scratch);
        let sequences = y.chunks_exact_mut(channel.len);
        for (y, u) in sequences.zip(channel.u.chunks_exact(channel.len)) {
            self.transform(u, spectrum, signal, scratch);
            multiply::<F>(spectrum, kernel, F::one());
            self.invert(spectrum, y, signal, scratch);
        }
    }

    fn backward(
        &self,
        memory: &mut FourierScratch<F>,
        channel: Channel<F>,
        gy: &[F],
        ChannelGradients { u: gu, kernel: gk }: ChannelGradients<F>,
    ) {
        let FourierScratch { signal, kernel, u: spectrum, gy: slopes, sum, scratch } = memory;
        self.transform(channel.kernel, kernel, signal, scratch);
        sum.fill(Complex::default());
        let mut gu = gu.map(|gu| gu.chunks_exact_mut(channel.len));
        let sequences = channel.u.chunks_exact(channel.len);
        for (u, gy) in sequences.zip(gy.chunks_exact(channel.len)) {
            self.transform(gy, slopes, signal, scratch);
            if gk.is_some() {
                self.transform(u, spectrum, signal, scratch);
                add_correlation::<F>(sum, spectrum, slopes);
            }
            if let Some(gu) = gu.as_mut().and_then(Iterator::next) {
                multiply::<F>(slopes, kernel, -F::one());
                self.invert(slopes, gu, signal, scratch);
            }
        }
        if let Some(gk) = gk {
            self.invert(sum, gk, signal, scratch);
        }
    }
}

/// `x` times `by`, whose imaginary parts are multiplied by `sign`.
#[simd]
fn multiply<F: Float>(x: &mut [Coefficient<F>], by: &[Coefficient<F>], sign: F) {
    for (x, by) in x.iter_mut().zip(by) {
        let [re, im] = parts::<F>(x);
        let [by, turn] = parts::<F>(by);
        let turn = sign * turn;
        x.re = re.fma(by, -im * turn).peel();
        x.im = im.fma(by, re * turn).peel();
    }
}

/// `sum` += conj(`x`) `y`.
#[simd]
fn add_correlation<F: Float>(sum: &mut [Coefficient<F>], x: &[Coefficient<F>], y: &[Coefficient<F>]) {
    for ((sum, x), y) in sum.iter_mut().zip(x).zip(y) {
        let ([re, im], [x_re, x_im], [y_re, y_im]) = (parts::<F>(sum), parts::<F>(x), parts::<F>(y));
        sum.re = x_re.fma(y_re, x_im.fma(y_im, re)).peel();
        sum.im = x_re.fma(y_im, (-x_im).fma(y_re, im)).peel();
    }
}

/// The real and the imaginary part.
#[inline(always)]
fn parts<F: Float>(x: &Coefficient<F>) -> [F; 2] {
    [F::wrap(x.re), F::wrap(x.im)]
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
