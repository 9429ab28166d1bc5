use super::*;
use crate::gpu::{factors, with_factors, Factors};

/// Small integers, which are exact in bf16, and so are their products' sums in f32.
fn numbers<F: Float>(rows: usize, columns: usize) -> Vec<F> {
    (0..rows * columns).map(|i| F::of(((i * 7) % 11) as f64 - 5.0)).collect()
}

/// Returns a matrix with the given contiguous rows.
fn matrix<F: Float>(x: &[F], columns: usize) -> Matrix<F> {
    let mut matrix = Matrix::zeros(x.len() / columns, columns);
    matrix.set_rows(x, columns, 0..columns);
    matrix
}

/// The transpose of contiguous rows.
fn transposed<F: Float>(x: &[F], columns: usize) -> Matrix<F> {
    let mut matrix = Matrix::zeros(columns.next_multiple_of(LANES), x.len() / columns);
    matrix.set_transpose(x, columns, columns);
    matrix
}

fn entry<F: Float>(a: &[F], b: &[F], (inner, columns): (usize, usize), i: usize, j: usize) -> f64 {
    (0..inner).map(|k| (a[i * inner + k] * b[k * columns + j]).to_f64()).sum()
}

/// Runs a check in f64, and in f32 with each kind of factors.
fn in_every_type(in_f64: fn(), in_f32: fn()) {
    in_f64();
    for factors in [Factors::F32, Factors::Tf32, Factors::Bf16] {
        with_factors(factors, in_f32);
    }
}

#[test]
fn products_are_sums_of_products() {
    fn check<F: Float>() {
        for (rows, inner, columns) in [(1, 1, 1), (4, 16, 16), (5, 17, 33), (9, 3, 70), (50, 300, 40)] {
            let (a, b) = (numbers::<F>(rows, inner), numbers::<F>(inner, columns));
            let right = matrix(&b, columns);
            let mut product = Matrix::zeros(rows, columns);
            let left = matrix(&a, inner);
            product.set_product(0..rows, &left, &right, |_| (0..inner, 0..columns));
            let mut again = Matrix::zeros(rows, columns);
            let left = transposed(&a, inner);
            again.add_transposed_product(0..rows, &left, &right, |_| 0..inner);
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                let expected = entry(&a, &b, (inner, columns), i, j);
                assert_eq!(product.row(i)[j].to_f64(), expected);
                assert_eq!(again.row(i)[j].to_f64(), expected);
            }
        }
    }
    in_every_type(check::<f64>, check::<f32>);
}

#[test]
fn a_product_of_a_part_leaves_the_rest() {
    fn check<F: Float>() {
        let (a, b) = (numbers::<F>(9, 20), numbers::<F>(20, 40));
        let (left, right) = (matrix(&a, 20), matrix(&b, 40));
        let mut product = Matrix::zeros(9, 40);
        product.set_product(5..7, &left, &right, |_| (0..20, 16..32));
        product.add_product(5..7, &left, &right, |_| (0..20, 16..32));
        for (i, j) in (0..9).flat_map(|i| (0..40).map(move |j| (i, j))) {
            let inside = (5..7).contains(&i) && (16..32).contains(&j);
            let expected = if inside { 2.0 } else { 0.0 };
            assert_eq!(product.row(i)[j].to_f64(), expected * entry(&a, &b, (20, 40), i, j), "{i}, {j}");
        }
    }
    in_every_type(check::<f64>, check::<f32>);
}

#[test]
fn panels_use_their_own_parts() {
    fn check<F: Float>() {
        // Row i of the left operand has i + 1 numbers, and zeros after them.
        let causal = |i: usize, k: usize, x: F| if k <= i { x } else { F::zero() };
        let (a, b) = (numbers::<F>(70, 70), numbers::<F>(70, 20));
        let a: Vec<F> = a.iter().enumerate().map(|(at, &x)| causal(at / 70, at % 70, x)).collect();
        let (left, right) = (matrix(&a, 70), matrix(&b, 20));
        let mut product = Matrix::zeros(70, 20);
        let reach = |top: usize| (top + PANEL).min(70);
        product.set_product(0..70, &left, &right, |top| (0..reach(top), 0..20));
        let mut back = Matrix::zeros(70, 20);
        back.add_transposed_product(0..70, &left, &product, |first| first..70);
        for (i, j) in (0..70).flat_map(|i| (0..20).map(move |j| (i, j))) {
            assert_eq!(product.row(i)[j].to_f64(), entry(&a, &b, (70, 20), i, j));
            let rounded =
                |k: usize| if factors() == Factors::Bf16 { product.row(k)[j].to_bf16() } else { product.row(k)[j] };
            let expected: f64 = (0..70).map(|k| (a[k * 70 + i] * rounded(k)).to_f64()).sum();
            assert!((back.row(i)[j].to_f64() - expected).abs() < 1e-2, "{i}, {j}");
        }
    }
    in_every_type(check::<f64>, check::<f32>);
}
