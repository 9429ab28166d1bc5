//! Eigenvalues of symmetric matrices, and the effective rank of a matrix from its Gram matrix.

/// Sweeps of Jacobi's method; a matrix of 64 rows converges after about ten.
const SWEEPS: usize = 40;

/// Effective rank e^H (Roy & Vetterli 2007) of a matrix of R rows with the Gram matrix `gram`, `(R, R)`. H is the
/// entropy of the singular values as shares of their sum.
pub fn effective_rank(gram: Vec<Vec<f64>>) -> f64 {
    let singular: Vec<f64> = eigenvalues(gram).into_iter().map(|value| value.max(0.0).sqrt()).collect();
    let sum: f64 = singular.iter().sum();
    if sum <= 0.0 || !sum.is_finite() {
        return f64::NAN;
    }
    let entropy: f64 = singular.iter().map(|value| value / sum).filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
    entropy.exp()
}

/// Bisection steps for an eigenvalue.
const HALVINGS: usize = 100;

/// Eigenvalues of diag(d) + a bᵀ, ascending, if no a_k b_k is above 0 (or none below). The matrix is then similar to a
/// symmetric one, diag(d) ∓ z zᵀ with z_k² = |a_k b_k|, whose eigenvalues lie between the d's (Golub 1973).
pub fn beside_rank_one(d: &[f64], a: &[f64], b: &[f64]) -> Vec<f64> {
    let sign = if a.iter().zip(b).any(|(a, b)| a * b > 0.0) { 1.0 } else { -1.0 };
    // Uses -diag(d) + z zᵀ instead of diag(d) - z zᵀ, so that all eigenvalues move upwards.
    let weights = a.iter().zip(b).map(|(a, b)| (a * b).abs());
    let mut poles: Vec<(f64, f64)> = d.iter().map(|d| sign * d).zip(weights).collect();
    poles.sort_by(|x, y| x.0.total_cmp(&y.0));
    let total: f64 = poles.iter().map(|(_, weight)| weight).sum();
    let mut values = Vec::with_capacity(d.len());
    for (k, (low, _)) in poles.iter().enumerate() {
        let above = poles.get(k + 1).map_or(low + total, |next| next.0);
        let (mut low, mut high) = (*low, above);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            // 1 + Σ w/(d - μ) increases between two poles, and is 0 at the eigenvalue.
            let terms = poles.iter().map(|(pole, weight)| weight / (pole - middle));
            match 1.0 + terms.sum::<f64>() < 0.0 {
                true => low = middle,
                false => high = middle,
            }
        }
        values.push(sign * 0.5 * (low + high));
    }
    values.sort_by(f64::total_cmp);
    values
}

/// Eigenvalues by Jacobi's rotations.
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
            let row = |i: usize| (0..3).map(|j| if i == j { scale[i] } else { 0.0 }).collect();
            (0..3).map(row).collect::<Vec<Vec<f64>>>()
        };
        assert!((effective_rank(gram([4.0; 3])) - 3.0).abs() < 1e-12);
        assert!((effective_rank(gram([9.0, 0.0, 0.0])) - 1.0).abs() < 1e-12);
        let ones = vec![vec![2.0; 4]; 4];
        assert!((effective_rank(ones) - 1.0).abs() < 1e-6);
        assert!(effective_rank(vec![vec![0.0]]).is_nan());
    }

    #[test]
    fn eigenvalues_of_diagonal_plus_rank_one_equal_those_of_the_dense_matrix() {
        // The third entry has no share in the rank-one term, and the last two are equal.
        let d = [0.9, 0.2, 0.5, -0.3, 0.7, 0.7];
        let b = [0.5, -0.4, 0.0, 1.0, 0.3, 0.2];
        for sign in [-1.0, 1.0] {
            let a: Vec<f64> = b.iter().map(|b| sign * 0.8 * b).collect();
            let line = |i: usize| {
                let own = |j: usize| if i == j { d[i] } else { 0.0 };
                (0..6).map(|j| own(j) + a[i] * b[j]).collect()
            };
            let mut wanted = eigenvalues((0..6).map(line).collect());
            wanted.sort_by(f64::total_cmp);
            let found = beside_rank_one(&d, &a, &b);
            let apart = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f64::max) < 1e-12, "{found:?} {wanted:?}");
        }
    }

    #[test]
    fn eigenvalues_of_a_full_matrix_have_its_trace_and_square() {
        let a = vec![vec![4.0, 1.0, -2.0], vec![1.0, 2.0, 0.5], vec![-2.0, 0.5, 3.0]];
        let squared: f64 = a.iter().flatten().map(|x| x * x).sum();
        let values = eigenvalues(a);
        assert!((values.iter().sum::<f64>() - 9.0).abs() < 1e-12);
        let found: f64 = values.iter().map(|x| x * x).sum();
        assert!((found - squared).abs() < 1e-10, "{values:?}");
    }
}
