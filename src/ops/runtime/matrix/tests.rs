use super::*;

fn numbers(rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns).map(|i| ((i * 7) % 11) as f64 - 5.0).collect()
}

/// Returns a matrix with the given contiguous rows.
fn matrix(x: &[f64], columns: usize) -> Matrix<f64> {
    let mut matrix = Matrix::zeros(x.len() / columns, columns);
    matrix.set_rows(x, columns, 0..columns);
    matrix
}

/// The transpose of contiguous rows.
fn transposed(x: &[f64], columns: usize) -> Matrix<f64> {
    let mut matrix = Matrix::zeros(columns.next_multiple_of(LANES), x.len() / columns);
    matrix.set_transpose(x, columns, columns);
    matrix
}

fn entry(a: &[f64], b: &[f64], (inner, columns): (usize, usize), i: usize, j: usize) -> f64 {
    (0..inner).map(|k| a[i * inner + k] * b[k * columns + j]).sum()
}

#[test]
fn products_are_sums_of_products() {
    for (rows, inner, columns) in [(1, 1, 1), (4, 16, 16), (5, 17, 33), (9, 3, 70)] {
        let (a, b) = (numbers(rows, inner), numbers(inner, columns));
        let right = matrix(&b, columns);
        let mut product = Matrix::zeros(rows, columns);
        let left = matrix(&a, inner);
        product.set_product(0..rows, &left, &right, |_| (0..inner, 0..columns));
        let mut again = Matrix::zeros(rows, columns);
        let left = transposed(&a, inner);
        again.add_transposed_product(0..rows, &left, &right, |_| 0..inner);
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            let expected = entry(&a, &b, (inner, columns), i, j);
            assert_eq!(product.row(i)[j], expected);
            assert_eq!(again.row(i)[j], expected);
        }
    }
}

#[test]
fn a_product_of_a_part_leaves_the_rest() {
    let (a, b) = (numbers(9, 20), numbers(20, 40));
    let (left, right) = (matrix(&a, 20), matrix(&b, 40));
    let mut product = Matrix::zeros(9, 40);
    product.set_product(5..7, &left, &right, |_| (0..20, 16..32));
    product.add_product(5..7, &left, &right, |_| (0..20, 16..32));
    for (i, j) in (0..9).flat_map(|i| (0..40).map(move |j| (i, j))) {
        let inside = (5..7).contains(&i) && (16..32).contains(&j);
        let expected = if inside { 2.0 } else { 0.0 };
        assert_eq!(product.row(i)[j], expected * entry(&a, &b, (20, 40), i, j), "{i}, {j}");
    }
}
