//! Matrix products in place of cuBLAS, as plain loops. Sums are in f64, since no f32 order of summation would match a
//! GPU's.

use candle_core::DType;
use dsf_gpu::{Factors, Product, View};
use half::bf16;

/// Returns the elements as f32.
fn read(view: View) -> Vec<f32> {
    let address = view.address();
    let count = view.len();
    // SAFETY: the memory behind the view holds that many elements of the type.
    unsafe {
        match view.dtype() {
            DType::F32 => std::slice::from_raw_parts(address as *const f32, count).to_vec(),
            _ => std::slice::from_raw_parts(address as *const bf16, count).iter().map(|x| x.to_f32()).collect(),
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

/// Returns the elements of a factor, rounded as the product specifies.
fn factor(product: &Product, view: View) -> Vec<f32> {
    let mut values = read(view);
    if view.dtype() == DType::F32 && product.factors == Factors::Tf32 {
        values.iter_mut().for_each(|x| *x = tf32(*x));
    }
    values
}

pub(super) fn run(product: Product, to: View) {
    let left = factor(&product, product.left.values);
    let right = factor(&product, product.right.values);
    let mut sums: Vec<f64> = match product.add {
        true => read(to).into_iter().map(f64::from).collect(),
        false => vec![0.0; to.len()],
    };
    let Product { rows, inner, columns, .. } = product;
    for (index, sums) in sums.chunks_exact_mut(rows * columns).enumerate() {
        let left = &left[index * product.left_stride()..];
        let right = &right[index * product.right_stride()..];
        for i in 0..rows {
            let sums = &mut sums[i * columns..][..columns];
            for k in 0..inner {
                let factor = f64::from(match product.left.transposed {
                    true => left[k * rows + i],
                    false => left[i * inner + k],
                });
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum += factor
                        * f64::from(match product.right.transposed {
                            true => right[j * inner + k],
                            false => right[k * columns + j],
                        });
                }
            }
        }
    }
    let sums: Vec<f32> = sums.into_iter().map(|x| x as f32).collect();
    write(to, &sums);
}
