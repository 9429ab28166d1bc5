//! Matrix products in place of cuBLAS, as plain loops. Sums are in f64, since no f32 order of summation would match a
//! GPU's.

use super::computed;
use candle_core::DType;
use dsf_gpu::{Factors, Matrix, Product, View};
use half::bf16;

/// Returns element `i` as f32.
fn read(view: View, i: usize) -> f32 {
    assert!(i < view.len(), "an element of the view");
    let address = view.address();
    // SAFETY: the memory that the view points to holds that many elements of the type.
    unsafe {
        match view.dtype() {
            DType::F32 => *(address as *const f32).add(i),
            _ => (*(address as *const bf16).add(i)).to_f32(),
        }
    }
}

pub(super) fn write(to: View, values: &[f32]) {
    let address = to.address();
    // SAFETY: as above, and nothing else refers to the result.
    unsafe {
        match to.dtype() {
            DType::F32 => std::slice::from_raw_parts_mut(address as *mut f32, values.len()).copy_from_slice(values),
            _ => std::slice::from_raw_parts_mut(address as *mut bf16, values.len())
                .iter_mut()
                .zip(values)
                .for_each(|(to, &value)| *to = bf16::from_f32(value)),
        }
    }
}

/// Rounds x to 11 bits, ties away from zero, as factors of TF32.
pub fn tf32(x: f32) -> f32 {
    match x.is_nan() {
        true => x,
        false => f32::from_bits(x.to_bits().wrapping_add(0x1000) & !0x1fff),
    }
}

/// Returns the computed rows and columns of a factor's matrix from element `first` on, row by row, rounded as the product
/// specifies.
fn factor(product: &Product, matrix: Matrix, first: usize, [rows, columns]: [usize; 2]) -> Vec<f32> {
    let view = matrix.values;
    let rounds = view.dtype() == DType::F32 && product.factors == Factors::Tf32;
    let element = |(i, j): (usize, usize)| {
        let at = if matrix.transposed { j * rows + i } else { i * columns + j };
        let value = read(view, first + at);
        if rounds {
            tf32(value)
        } else {
            value
        }
    };
    computed(rows).flat_map(|i| computed(columns).map(move |j| (i, j))).map(element).collect()
}

pub(super) fn run(product: Product, to: View) {
    let Product { batch, rows, inner, columns, .. } = product;
    let depth = computed(inner).len();
    for index in computed(batch) {
        let left = factor(&product, product.left, index * product.left_stride(), [rows, inner]);
        let right = factor(&product, product.right, index * product.right_stride(), [inner, columns]);
        for (place, i) in computed(rows).enumerate() {
            let row = to.part((index * rows + i) * columns, columns);
            let mut sums: Vec<f64> = match product.add {
                true => (0..columns).map(|j| read(row, j).into()).collect(),
                false => vec![0.0; columns],
            };
            for (factor, right) in left[place * depth..][..depth].iter().zip(right.chunks_exact(columns)) {
                for (sum, value) in sums.iter_mut().zip(right) {
                    *sum += f64::from(*factor) * f64::from(*value);
                }
            }
            let sums: Vec<f32> = sums.into_iter().map(|x| x as f32).collect();
            write(row, &sums);
        }
    }
}
