//! Symmetric matrices: eigenvalues, and the effective rank of what they are the products of.

/// Sweeps of Jacobi's method; a matrix of 64 rows is done after about ten.
const SWEEPS: usize = 40;

/// The effective rank e^H (Roy & Vetterli 2007), H being the entropy of the singular values as shares of their sum, of a
/// matrix whose rows have the inner products `gram`, R rows of R.
pub fn effective_rank(gram: Vec<Vec<f64>>) -> f64 {
    let values = eigenvalues(gram).into_iter();
    let singular: Vec<f64> = values.map(|value| value.max(0.0).sqrt()).collect();
    let sum: f64 = singular.iter().sum();
    if sum <= 0.0 || !sum.is_finite() {
        return f64::NAN;
    }
    let shares = singular.iter().map(|value| value / sum);
    let entropy: f64 = shares.filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
    entropy.exp()
}

/// By Jacobi's rotations.
fn eigenvalues(mut a: Vec<Vec<f64>>) -> Vec<f64> {
    let size = a.len();
    let trace: f64 = (0..size).map(|i| a[i][i].abs()).sum();
    for _ in 0..SWEEPS {
        let mut off = 0.0;
        for p in 0..size {
            for q in p + 1..size {
                off += a[p][q].abs();
                rotate(&mut a, p, q);
            }
        }
        if off <= 1e-14 * trace {
            break;
        }
    }
    (0..size).map(|i| a[i][i]).collect()
}

/// Makes the entry at (p, q) zero.
fn rotate(a: &mut [Vec<f64>], p: usize, q: usize) {
    if a[p][q] == 0.0 {
        return;
    }
    let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    let tangent = theta.signum() / (theta.abs() + theta.hypot(1.0));
    let cosine = tangent.hypot(1.0).recip();
    let sine = tangent * cosine;
    for row in a.iter_mut() {
        let (x, y) = (row[p], row[q]);
        row[p] = cosine * x - sine * y;
        row[q] = sine * x + cosine * y;
    }
    let (above, below) = a.split_at_mut(q);
    for (x, y) in above[p].iter_mut().zip(&mut below[0]) {
        (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_of_equal_directions_is_their_number_and_of_one_it_is_one() {
        let gram = |scale: [f64; 3]| {
            let row = |i: usize| {
                (0..3)
                    .map(|j| if i == j { scale[i] } else { 0.0 })
                    .collect()
            };
            (0..3).map(row).collect::<Vec<Vec<f64>>>()
        };
        assert!((effective_rank(gram([4.0; 3])) - 3.0).abs() < 1e-12);
        assert!((effective_rank(gram([9.0, 0.0, 0.0])) - 1.0).abs() < 1e-12);
        let ones = vec![vec![2.0; 4]; 4];
        assert!((effective_rank(ones) - 1.0).abs() < 1e-6);
        assert!(effective_rank(vec![vec![0.0]]).is_nan());
    }

    #[test]
    fn eigenvalues_of_a_full_matrix_have_its_trace_and_square() {
        let a = vec![
            vec![4.0, 1.0, -2.0],
            vec![1.0, 2.0, 0.5],
            vec![-2.0, 0.5, 3.0],
        ];
        let squared: f64 = a.iter().flatten().map(|x| x * x).sum();
        let values = eigenvalues(a);
        assert!((values.iter().sum::<f64>() - 9.0).abs() < 1e-12);
        let found: f64 = values.iter().map(|x| x * x).sum();
        assert!((found - squared).abs() < 1e-10, "{values:?}");
    }
}
