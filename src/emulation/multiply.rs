//! Matrix products in place of cuBLAS, as plain loops. Sums are in f64, since no f32 order of summation would match a
//! GPU's.

use super::computed;
use candle_core::DType;
use dsf_gpu::{Factors, Product, View};
use half::bf16;

/// Returns element `i` as f32.
fn read(view: View, i: usize) -> f32 {
    assert!(i < view.len(), "an element of the view");
    let address = view.address();
    // SAFETY: the memory behind the view holds that many elements of the type.
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

/// Returns element `i` of a factor, rounded as the product specifies.
fn factor(product: &Product, view: View, i: usize) -> f32 {
    let value = read(view, i);
    match view.dtype() == DType::F32 && product.factors == Factors::Tf32 {
        true => tf32(value),
        false => value,
    }
}

pub(super) fn run(product: Product, to: View) {
    let Product { batch, rows, inner, columns, left, right, .. } = product;
    for (index, i) in computed(batch).flat_map(|index| computed(rows).map(move |i| (index, i))) {
        let row = to.part((index * rows + i) * columns, columns);
        let mut sums = vec![0.0f64; columns];
        if product.add {
            sums.iter_mut().enumerate().for_each(|(j, sum)| *sum = read(row, j).into());
        }
        for k in computed(inner) {
            let at = if left.transposed { k * rows + i } else { i * inner + k };
            let value = f64::from(factor(&product, left.values, index * product.left_stride() + at));
            for (j, sum) in sums.iter_mut().enumerate() {
                let at = if right.transposed { j * inner + k } else { k * columns + j };
                *sum += value * f64::from(factor(&product, right.values, index * product.right_stride() + at));
            }
        }
        let sums: Vec<f32> = sums.into_iter().map(|x| x as f32).collect();
        write(row, &sums);
    }
}
