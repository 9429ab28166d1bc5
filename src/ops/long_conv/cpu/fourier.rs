//! Convolutions as products of spectra.

use super::ConvolutionSums;
use crate::runtime::float::Float;
use crate::runtime::fourier::{Coefficient, Fourier, Spectrum, Workspace};
use dsf_fft::Complex;
use dsf_simd::simd;

/// Scratch memory of a thread, reused for one row after another.
pub(super) struct FourierScratch<F: Float> {
    u: Spectrum<F>,
    gy: Spectrum<F>,
    space: Workspace<F>,
}

/// The spectra of a kernel and, summed over the batch, of its gradient.
pub(super) struct KernelSpectrum<F: Float> {
    kernel: Spectrum<F>,
    sum: Spectrum<F>,
}

impl<F: Float> ConvolutionSums<F> for Fourier<F> {
    type Memory = FourierScratch<F>;
    type Channel = KernelSpectrum<F>;

    fn memory(&self) -> FourierScratch<F> {
        FourierScratch { u: self.spectrum(), gy: self.spectrum(), space: self.workspace() }
    }

    fn channel(&self) -> KernelSpectrum<F> {
        KernelSpectrum { kernel: self.spectrum(), sum: self.spectrum() }
    }

    fn begin(&self, memory: &mut FourierScratch<F>, channel: &mut KernelSpectrum<F>, kernel: &[F]) {
        self.transform(kernel, &mut channel.kernel, &mut memory.space);
        channel.sum.fill(Complex::default());
    }

    fn forward(&self, memory: &mut FourierScratch<F>, channel: &mut KernelSpectrum<F>, row: &mut [F]) {
        let FourierScratch { u: spectrum, space, .. } = memory;
        self.transform(row, spectrum, space);
        multiply::<F>(spectrum, &channel.kernel, F::one());
        self.invert(spectrum, row, space);
    }

    fn backward(
        &self,
        memory: &mut FourierScratch<F>,
        channel: &mut KernelSpectrum<F>,
        u: Option<&[F]>,
        gy: &mut [F],
        needs_u: bool,
    ) {
        let FourierScratch { u: spectrum, gy: slopes, space } = memory;
        self.transform(gy, slopes, space);
        if let Some(u) = u {
            self.transform(u, spectrum, space);
            add_correlation::<F>(&mut channel.sum, spectrum, slopes);
        }
        if needs_u {
            multiply::<F>(slopes, &channel.kernel, -F::one());
            self.invert(slopes, gy, space);
        }
    }

    fn finish(&self, memory: &mut FourierScratch<F>, channel: &mut KernelSpectrum<F>, gk: &mut [F]) {
        self.invert(&mut channel.sum, gk, &mut memory.space);
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
