//! Convolutions as products of spectra.

use super::channel::{Channel, ChannelGradients, ConvolutionSums};
use crate::runtime::float::Float;
use crate::runtime::fourier::{Coefficient, Fourier, Spectrum, Workspace};
use dsf_fft::Complex;
use dsf_simd::simd;

/// Scratch memory of a thread, reused for one channel after another.
pub(super) struct FourierScratch<F: Float> {
    kernel: Spectrum<F>,
    u: Spectrum<F>,
    gy: Spectrum<F>,
    /// The spectrum of the kernel's gradient, summed over the batch.
    sum: Spectrum<F>,
    space: Workspace<F>,
}

impl<F: Float> ConvolutionSums<F> for Fourier<F> {
    type Memory = FourierScratch<F>;

    fn memory(&self) -> FourierScratch<F> {
        let spectrum = || self.spectrum();
        FourierScratch { kernel: spectrum(), u: spectrum(), gy: spectrum(), sum: spectrum(), space: self.workspace() }
    }

    fn forward(&self, memory: &mut FourierScratch<F>, channel: Channel<F>, y: &mut [F]) {
        let FourierScratch { kernel, u: spectrum, space, .. } = memory;
        self.transform(channel.kernel, kernel, space);
        let sequences = y.chunks_exact_mut(channel.len);
        for (y, u) in sequences.zip(channel.u.chunks_exact(channel.len)) {
            self.transform(u, spectrum, space);
            multiply::<F>(spectrum, kernel, F::one());
            self.invert(spectrum, y, space);
        }
    }

    fn backward(
        &self,
        memory: &mut FourierScratch<F>,
        channel: Channel<F>,
        gy: &[F],
        ChannelGradients { u: gu, kernel: gk }: ChannelGradients<F>,
    ) {
        let FourierScratch { kernel, u: spectrum, gy: slopes, sum, space } = memory;
        self.transform(channel.kernel, kernel, space);
        sum.fill(Complex::default());
        let mut gu = gu.map(|gu| gu.chunks_exact_mut(channel.len));
        let sequences = channel.u.chunks_exact(channel.len);
        for (u, gy) in sequences.zip(gy.chunks_exact(channel.len)) {
            self.transform(gy, slopes, space);
            if gk.is_some() {
                self.transform(u, spectrum, space);
                add_correlation::<F>(sum, spectrum, slopes);
            }
            if let Some(gu) = gu.as_mut().and_then(Iterator::next) {
                multiply::<F>(slopes, kernel, -F::one());
                self.invert(slopes, gu, space);
            }
        }
        if let Some(gk) = gk {
            self.invert(sum, gk, space);
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
