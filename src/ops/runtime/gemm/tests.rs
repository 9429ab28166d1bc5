use super::*;
use crate::gpu::{with_factors, Factors};
use crate::runtime::rng::Rng;

/// Rows, inner size and columns: single numbers, odd sizes, more than a tile and more than a block in each.
const SIZES: [[usize; 3]; 6] = [[1, 1, 1], [4, 16, 16], [5, 17, 33], [129, 3, 70], [40, 513, 48], [161, 600, 50]];

fn normals(name: &str, count: usize) -> Vec<f32> {
    let mut rng = Rng::new(1, name, 0);
    (0..count).map(|_| rng.normals().0 as f32).collect()
}

/// The exact product of row-major matrices.
fn exact(a: &[f64], b: &[f64], [rows, inner, columns]: [usize; 3]) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..inner).map(|k| a[i * inner + k] * b[k * columns + j]).sum::<f64>();
    (0..rows * columns).map(|i| at(i / columns, i % columns)).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

fn to_bf16(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| half::bf16::from_f32(x).to_f64()).collect()
}

/// The largest error of a row by its norm.
fn error(got: &[f32], expected: &[f64], columns: usize) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let rows = got.chunks(columns).zip(expected.chunks(columns));
    let errors = rows.map(|(got, expected)| {
        let mut apart = got.iter().zip(expected).map(|(&got, expected)| f64::from(got) - expected);
        norm(&mut apart) / norm(&mut expected.iter().copied())
    });
    errors.fold(0.0, f64::max)
}

/// Calls `check` with the operands of a product and their layouts, and with the product of what `factor` makes of them.
fn in_every_layout(factor: fn(&[f32]) -> Vec<f64>, check: impl Fn([View<f32>; 2], &[f64], [usize; 3])) {
    for sizes @ [rows, inner, columns] in SIZES {
        let (a, b) = (normals("a", rows * inner), normals("b", inner * columns));
        let expected = exact(&factor(&a), &factor(&b), sizes);
        let turned = |x: &[f32], columns: usize| {
            let rows = x.len() / columns;
            (0..x.len()).map(|i| x[i % rows * columns + i / rows]).collect::<Vec<_>>()
        };
        let (at, bt) = (turned(&a, inner), turned(&b, columns));
        for a in [View::new(&a, inner), View::new(&at, rows).t()] {
            for b in [View::new(&b, columns), View::new(&bt, inner).t()] {
                check([a, b], &expected, sizes);
            }
        }
    }
}

#[test]
fn in_bf16_products_are_those_of_rounded_factors() {
    in_every_layout(to_bf16, |[a, b], expected, [rows, _, columns]| {
        with_factors(Factors::Bf16, || {
            let mut to = vec![f32::NAN; rows * columns];
            product(&mut to, columns, a, b, false);
            assert!(error(&to, expected, columns) < 1e-6);
            let twice: Vec<f64> = expected.iter().map(|x| 2.0 * x).collect();
            product_by(&mut to, columns, a, &Right::of(b), true);
            assert!(error(&to, &twice, columns) < 1e-6);
        });
    });
}

#[test]
fn in_tf32_products_have_at_least_its_bits() {
    in_every_layout(wide, |[a, b], expected, [rows, _, columns]| {
        let mut to = vec![f32::NAN; rows * columns];
        with_factors(Factors::Tf32, || product(&mut to, columns, a, b, false));
        assert!(error(&to, expected, columns) < 1.0 / 2048.0);
    });
}

#[test]
fn rounding_is_to_the_nearest_and_of_two_to_the_even() {
    let mut numbers: Vec<f32> = normals("rounded", 1000);
    numbers.extend([0.0, -0.0, 1.0, f32::MAX, f32::INFINITY, f32::NEG_INFINITY]);
    numbers.extend([0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0xbf80_7fff].map(f32::from_bits));
    for x in numbers {
        assert_eq!(x.to_bf16().to_bits(), half::bf16::from_f32(x).to_f32().to_bits(), "{x:e}");
    }
    assert!(f32::NAN.to_bf16().is_nan() && f32::from_bits(0xffff_ffff).to_bf16().is_nan());
}

#[cfg(target_arch = "x86_64")]
mod tiles {
    use super::super::amx::TileInstructions;
    use super::super::packed::{multiply, Packed, Terms};
    use super::super::unit::{Amx, Avx512Bf16, Unit};
    use super::*;

    /// A model of the instructions of AMX: each sum is the sum of the products of the first numbers of all pairs, plus
    /// that of the second ones.
    struct Model([[[u32; 16]; 16]; 8]);

    impl TileInstructions for Model {
        fn configured() -> Self {
            Self([[[u32::MAX; 16]; 16]; 8])
        }

        fn zero(&mut self, register: u8) {
            self.0[register as usize] = [[0; 16]; 16];
        }

        unsafe fn load(&mut self, register: u8, from: *const u32, distance: usize) {
            for (r, row) in self.0[register as usize].iter_mut().enumerate() {
                // SAFETY: the caller's.
                *row = unsafe { from.add(r * distance).cast::<[u32; 16]>().read_unaligned() };
            }
        }

        unsafe fn store(&mut self, register: u8, to: *mut u32, distance: usize) {
            for (r, row) in self.0[register as usize].iter().enumerate() {
                // SAFETY: the caller's.
                unsafe { to.add(r * distance).cast::<[u32; 16]>().write_unaligned(*row) };
            }
        }

        fn add_products(&mut self, sums: u8, left: u8, right: u8) {
            let [left, right] = [left, right].map(|register| self.0[register as usize]);
            let numbers = |pair: u32| [pair << 16, pair & 0xffff_0000].map(f32::from_bits);
            for (sums, left) in self.0[sums as usize].iter_mut().zip(left) {
                for (j, sum) in sums.iter_mut().enumerate() {
                    let mut parts = [0.0f32; 2];
                    for (left, right) in left.into_iter().zip(right) {
                        let (left, right) = (numbers(left), numbers(right[j]));
                        parts = [0, 1].map(|i| parts[i] + left[i] * right[i]);
                    }
                    *sum = (f32::from_bits(*sum) + (parts[0] + parts[1])).to_bits();
                }
            }
        }
    }

    /// The largest error of products on a unit, whose packing needs AVX512-BF16.
    fn on_unit<U: Unit>(terms: Terms, factor: fn(&[f32]) -> Vec<f64>, limit: f64) {
        if !Simd::available().any(|simd| simd == Simd::Avx512Bf16) {
            return;
        }
        in_every_layout(factor, |[a, b], expected, [rows, inner, columns]| {
            // Rows and columns around the result stay as they are.
            let width = columns + 3;
            let mut to = vec![7.0; (rows + 1) * width];
            let packed = Packed::of::<U>(b, terms);
            let whole = Part { depth: 0..inner, columns: 0..columns };
            for add in [false, true] {
                multiply::<U>(&mut to, width, a, &packed, terms, &whole, add);
            }
            let inside: Vec<f32> =
                to.chunks(width).take(rows).flat_map(|row| &row[..columns]).map(|x| x / 2.0).collect();
            assert!(error(&inside, expected, columns) < limit);
            assert!(to.chunks(width).all(|row| row[columns..] == [7.0; 3]));
            assert!(to[rows * width..].iter().all(|&x| x == 7.0));
        });
    }

    #[test]
    fn a_unit_multiplies_rounded_factors() {
        on_unit::<Avx512Bf16>(Terms::One, to_bf16, 1e-6);
        on_unit::<Amx<Model>>(Terms::One, to_bf16, 1e-6);
    }

    #[test]
    fn factors_of_two_terms_have_sixteen_bits() {
        on_unit::<Amx<Model>>(Terms::Two, wide, 2f64.powi(-16));
        on_unit::<Avx512Bf16>(Terms::Two, wide, 2f64.powi(-16));
    }

    #[test]
    fn a_part_of_a_product_leaves_the_rest() {
        fn check<U: Unit>() {
            let (a, b) = (normals("a", 40 * 600), normals("b", 600 * 64));
            let within = 290..540;
            // Zero beside the part, as the contract says.
            let a: Vec<f32> =
                a.iter().enumerate().map(|(i, &x)| if within.contains(&(i % 600)) { x } else { 0.0 }).collect();
            let expected = exact(&to_bf16(&a), &to_bf16(&b), [40, 600, 64]);
            let mut to = vec![7.0; 40 * 64];
            let part = Part { depth: within.clone(), columns: 16..48 };
            let packed = Packed::of::<U>(View::new(&b, 64), Terms::One);
            multiply::<U>(&mut to, 64, View::new(&a, 600), &packed, Terms::One, &part, false);
            let of = |x: usize| x % 64 >= 16 && x % 64 < 48;
            for (i, (&got, expected)) in to.iter().zip(expected).enumerate() {
                let apart = f64::from(got) - if of(i) { expected } else { 7.0 };
                assert!(apart.abs() < 1e-4, "{i}: {got} {expected}");
            }
        }
        if Simd::available().any(|simd| simd == Simd::Avx512Bf16) {
            check::<Avx512Bf16>();
            check::<Amx<Model>>();
        }
    }
}

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7) % 11) as f64 - 5.0).collect()
}

#[test]
fn products_are_sums_of_products_in_every_layout() {
    for (rows, inner, columns) in [(1, 1, 1), (4, 16, 16), (5, 17, 33), (129, 3, 70)] {
        let (a, b) = (numbers(rows * inner), numbers(inner * columns));
        let at: Vec<f64> = (0..inner * rows).map(|i| a[i % rows * inner + i / rows]).collect();
        let width = columns + 2;
        let mut to = vec![1.0; rows * width];
        let right = View::new(&b, columns);
        product(&mut to, width, View::new(&a, inner), right, false);
        product(&mut to, width, View::new(&at, rows).t(), right, true);
        for (i, j) in (0..rows).flat_map(|i| (0..width).map(move |j| (i, j))) {
            let sum = |j| (0..inner).map(move |k| k * columns + j);
            let expected = match j < columns {
                true => 2.0 * sum(j).enumerate().map(|(k, at)| a[i * inner + k] * b[at]).sum::<f64>(),
                false => 1.0,
            };
            assert_eq!(to[i * width + j], expected);
        }
    }
}

#[test]
#[should_panic = "inner sizes"]
fn sizes_that_do_not_meet_are_refused() {
    let (a, b) = (numbers(6), numbers(6));
    product(&mut [0.0; 9], 3, View::new(&a, 3), View::new(&b, 3), false);
}
