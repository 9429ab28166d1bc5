//! Running maximum of decayed exponents, the stabiliser of exponential gates and features.

use candle_core::{Result, Tensor};

/// m_t = max(m_{t-1} + d_t, x_t), m_{-1} = -∞, along the second axis; without gradient.
///
/// `d`, `x`: `(batch, seq_len, any)`, with d ≤ 0. Callers divide by e^m what they multiply by it again, so that
/// rounding of m cancels.
pub(super) fn running_max(d: &Tensor, x: &Tensor) -> Result<Tensor> {
    running_max_with_gradient(&d.detach(), &x.detach())
}

/// [`running_max`] with its gradient, for a caller in whose output m does not cancel.
pub(super) fn running_max_with_gradient(d: &Tensor, x: &Tensor) -> Result<Tensor> {
    let (mut d, mut m) = (d.clone(), x.clone());
    let (seq_len, mut reach) = (m.dim(1)?, 1);
    // Parallel prefix by doubling: after each round, m_t covers the last `reach` steps. The first `reach` rows are
    // complete and compared with values at most as large.
    while reach < seq_len {
        let earlier = |x: &Tensor| {
            let (first, moved) = (x.narrow(1, 0, reach)?, x.narrow(1, 0, seq_len - reach)?);
            Tensor::cat(&[&first, &moved], 1)
        };
        m = m.maximum(&(earlier(&m)? + &d)?)?;
        d = (earlier(&d)? + &d)?;
        reach *= 2;
    }
    Ok(m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn it_is_the_largest_of_what_is_left_of_every_step() {
        let (seq_len, device) = (37, Device::Cpu);
        let d = Tensor::rand(-1f64, 0.0, (2, seq_len, 3), &device).unwrap();
        let x = Tensor::randn(0f64, 5.0, (2, seq_len, 3), &device).unwrap();
        let m = running_max(&d, &x).unwrap().to_vec3::<f64>().unwrap();
        let (d, x) = (d.to_vec3::<f64>().unwrap(), x.to_vec3::<f64>().unwrap());
        for b in 0..2 {
            for c in 0..3 {
                let mut wanted = f64::NEG_INFINITY;
                for t in 0..seq_len {
                    wanted = (wanted + d[b][t][c]).max(x[b][t][c]);
                    assert!((m[b][t][c] - wanted).abs() < 1e-12);
                }
            }
        }
    }
}
