//! Reference: the inverses of the diagonal matrices at all roots, the low-rank terms one after another, and the inverse
//! transform as a product with its matrix.

use super::half_angle;
use candle_core::{Result, Tensor};
use std::f64::consts::TAU;

/// Real and imaginary part.
type ComplexTensor = [Tensor; 2];

fn times(x: &ComplexTensor, y: &ComplexTensor) -> Result<ComplexTensor> {
    let product = |a: usize, b: usize| x[a].broadcast_mul(&y[b]);
    Ok([(product(0, 0)? - product(1, 1)?)?, (product(0, 1)? + product(1, 0)?)?])
}

fn recip([re, im]: &ComplexTensor) -> Result<ComplexTensor> {
    let norm = (re.sqr()? + im.sqr()?)?;
    Ok([(re / &norm)?, (im / &norm)?.neg()?])
}

/// Numbers of the states, and of their conjugates, `(d, 2m)`.
fn with_conjugates(re: &Tensor, im: &Tensor) -> Result<ComplexTensor> {
    Ok([Tensor::cat(&[re, re], 1)?, Tensor::cat(&[im, &im.neg()?], 1)?])
}

/// Allocates 2 d m numbers for each root.
pub(super) fn dplr_kernel(
    lambda: [&Tensor; 2],
    p: [&Tensor; 2],
    b: [&Tensor; 2],
    c: [&Tensor; 2],
    [len, period]: [usize; 2],
) -> Result<Tensor> {
    let roots = period / 2 + 1;
    let like = lambda[0];
    let row = |of: &dyn Fn(usize) -> f64, count: usize| -> Result<Tensor> {
        let numbers: Vec<f64> = (0..count).map(of).collect();
        Tensor::from_vec(numbers, count, like.device())?.to_dtype(like.dtype())
    };
    let cos = row(&|f| half_angle(f, period)[0], roots)?;
    let sin = row(&|f| half_angle(f, period)[1], roots)?;
    let lambda = with_conjugates(lambda[0], lambda[1])?;
    // 2i sin - cos λ, (d, 2m, roots)
    let at_roots = |x: &Tensor| x.unsqueeze(2)?.broadcast_mul(&cos)?.neg();
    let pole = recip(&[at_roots(&lambda[0])?, at_roots(&lambda[1])?.broadcast_add(&(&sin * 2.0)?)?])?;
    let (mut left, mut right) = (vec![with_conjugates(c[0], c[1])?], vec![with_conjugates(b[0], b[1])?]);
    for i in 0..p[0].dim(0)? {
        let of_rank = with_conjugates(&p[0].get(i)?, &p[1].get(i)?)?;
        left.push([of_rank[0].clone(), of_rank[1].neg()?]);
        right.push(of_rank);
    }
    let mut sums = Vec::new();
    for left in &left {
        let of_left = |right: &ComplexTensor| -> Result<ComplexTensor> {
            let weight = times(left, right)?;
            let terms = times(&[weight[0].unsqueeze(2)?, weight[1].unsqueeze(2)?], &pole)?;
            Ok([terms[0].sum(1)?, terms[1].sum(1)?]) // (d, roots)
        };
        sums.push(right.iter().map(of_left).collect::<Result<Vec<_>>>()?);
    }
    for last in (1..left.len()).rev() {
        let cos_sum = |part: usize| sums[last][last][part].broadcast_mul(&cos);
        let factor = recip(&[(cos_sum(0)? + 1.0)?, cos_sum(1)?])?;
        let factor = [factor[0].broadcast_mul(&cos)?, factor[1].broadcast_mul(&cos)?];
        for i in 0..last {
            for j in 0..last {
                let less = times(&times(&sums[i][last], &factor)?, &sums[last][j])?;
                let [re, im] = &sums[i][j];
                sums[i][j] = [(re - &less[0])?, (im - &less[1])?];
            }
        }
    }
    // Each root but 1 and -1 stands for its conjugate as well.
    let both = |f: usize| if f == 0 || f == period / 2 { 1.0 } else { 2.0 } / period as f64;
    let turned = |turn: fn(f64) -> f64| {
        let entry = |at: usize| {
            let (f, l) = (at / len, at % len);
            // (l + 1/2) θ, of which whole turns are left out first.
            let twice = f as u64 * (2 * l as u64 + 1) % (2 * period as u64);
            both(f) * turn(TAU * twice as f64 / (2 * period) as f64)
        };
        row(&entry, roots * len)?.reshape((roots, len))
    };
    let [re, im] = &sums[0][0];
    re.matmul(&turned(f64::cos)?)? - im.matmul(&turned(f64::sin)?)?
}
