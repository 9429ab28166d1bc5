//! The reference: a loop over time of ordinary tensor ops.

use candle_core::{Result, Tensor};

/// Real and imaginary parts on the third axis.
pub(super) fn complex_scan(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let part = |x: &Tensor, t: usize, i: usize| x.narrow(1, t, 1)?.narrow(2, i, 1);
    let mut re = part(x, 0, 0)?.zeros_like()?;
    let mut im = re.clone();
    let mut all = Vec::with_capacity(x.dim(1)?);
    for t in 0..x.dim(1)? {
        let (a_re, a_im) = (part(a, t, 0)?, part(a, t, 1)?);
        let turned_re = ((&a_re * &re)? - (&a_im * &im)?)?;
        let turned_im = ((&a_re * &im)? + (&a_im * &re)?)?;
        re = (turned_re + part(x, t, 0)?)?;
        im = (turned_im + part(x, t, 1)?)?;
        all.push(Tensor::cat(&[&re, &im], 2)?);
    }
    Tensor::cat(&all, 1)
}
