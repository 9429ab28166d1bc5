//! Products of small matrices by `cuda/mma.cuh`, against plain loops.

use super::*;
use candle_core::{Device, Tensor};

/// Sizes of a product, all different and larger than one fragment.
const M: usize = 32;
const N: usize = 24;
const K: usize = 48;

/// Storage and rounding of factors.
#[derive(Clone, Copy)]
struct Factors {
    element: &'static str,
    products: &'static str,
    a: &'static str,
    b: &'static str,
}

impl Factors {
    fn all() -> impl Iterator<Item = Self> {
        let views = [("Rows", "Rows"), ("Rows", "Columns"), ("Columns", "Rows"), ("Columns", "Columns")];
        views.into_iter().flat_map(|(a, b)| {
            let elements = ["float", "bf16"].into_iter();
            elements.flat_map(move |element| {
                let products = ["Tf32x3", "Tf32", "Bf16"].into_iter();
                products.map(move |products| Self { element, products, a, b })
            })
        })
    }

    fn kernel(&self) -> String {
        let Self { element, products, a, b } = self;
        format!("planted_{element}_{products}_{a}_{b}")
    }
}

/// Returns the kernels for all factors, in one text.
fn kernels() -> String {
    Factors::all().map(|factors| kernel(&factors)).collect()
}

/// Returns a kernel for C = A B by one warp, with factors in shared memory.
fn kernel(factors: &Factors) -> String {
    let name = factors.kernel();
    let Factors { element, products, a, b } = factors;
    let stride = |view: &str, along: usize, across: usize| match view {
        "Rows" => along + 8,
        _ => across + 8,
    };
    let (a_stride, b_stride) = (stride(a, K, M), stride(b, N, K));
    let at = |view: &str, stride: usize| match view {
        "Rows" => format!("i * {stride} + j"),
        _ => format!("j * {stride} + i"),
    };
    let (a_at, b_at) = (at(a, a_stride), at(b, b_stride));
    format!(
        "
#include \"mma.cuh\"
        KERNEL({name}, 32, Global<const float> x, Global<const float> y, Global<float> to) {{
            SHARED({element}, a, 64 * 64);
            SHARED({element}, b, 64 * 64);
            for (int e = threadIdx.x; e < {M} * {K}; e += 32) {{
                int i = e / {K}, j = e % {K};
                a[{a_at}] = from_float<{element}>(x[e]);
            }}
            for (int e = threadIdx.x; e < {K} * {N}; e += 32) {{
                int i = e / {N}, j = e % {N};
                b[{b_at}] = from_float<{element}>(y[e]);
            }}
            __syncwarp();
            WarpTile<{M}, {N}> c;
            c.clear();
            {a}<{element}> left = {{a, {a_stride}}};
            {b}<{element}> right = {{b, {b_stride}}};
            c.add_product<{products}>(left, 0, right, 0, 0, {K});
            c.each([&](uint32_t i, uint32_t j, float sum) {{ to[i * {N} + j] = sum; }});
        }}"
    )
}

fn factor(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = dsf_ops::rng::Rng::new(seed, "mma", 0);
    (0..count).map(|_| rng.normals().0 as f32).collect()
}

fn product(gpu: &Gpu, factors: &Factors, a: &[f32], b: &[f32]) -> Vec<f32> {
    let upload = |values: &[f32]| {
        let buffer = gpu.alloc(DType::F32, values.len()).unwrap();
        multiply::write(buffer.view(), values);
        buffer
    };
    let (a, b) = (upload(a), upload(b));
    let mut to = gpu.alloc(DType::F32, M * N).unwrap();
    let planted = Kernel::new("planted", factors.kernel());
    let args = [(&a).into(), (&b).into(), (&mut to).into()];
    gpu.launch(planted, Grid::of(1, 32), &args).unwrap();
    to.into_tensor(M * N).unwrap().to_vec1().unwrap()
}

/// Returns the largest error, for factors rounded by `round`.
fn error(of: &[f32], a: &[f32], b: &[f32], round: impl Fn(f32) -> f32) -> f64 {
    let exact = |i: usize, j: usize| -> f64 {
        let term = |k: usize| f64::from(round(a[i * K + k])) * f64::from(round(b[k * N + j]));
        (0..K).map(term).sum()
    };
    let apart = |e: usize| (f64::from(of[e]) - exact(e / N, e % N)).abs();
    (0..M * N).map(apart).fold(0.0, |m, d| if m >= d { m } else { d })
}

/// Rounds to ten fractional bits, ties away from zero.
fn tf32(x: f32) -> f32 {
    f32::from_bits((x.to_bits() + 0x1000) & !0x1fff)
}

#[test]
fn products_are_those_of_the_rounded_factors() {
    let (_folder, gpu) = gpu_with(&kernels());
    let (a, b) = (factor(M * K, 1), factor(K * N, 2));
    for factors in Factors::all() {
        let stored = |x: f32| match factors.element {
            "bf16" => bf16::from_f32(x).to_f32(),
            _ => x,
        };
        let c = product(&gpu, &factors, &a, &b);
        let apart = error(&c, &a, &b, |x| match factors.products {
            "Tf32x3" => stored(x),
            "Tf32" => tf32(stored(x)),
            _ => bf16::from_f32(stored(x)).to_f32(),
        });
        assert!(apart < 3e-5, "{}: {apart:e}", factors.kernel());
        if (factors.element, factors.products) == ("float", "Tf32") {
            let lost = error(&c, &a, &b, |x| x);
            assert!(lost > 1e-3, "a product of tf32 is off by {lost:e} only");
        }
    }
}

#[test]
fn what_was_not_written_is_nan_in_products() {
    let factors = Factors { element: "float", products: "Tf32x3", a: "Rows", b: "Rows" };
    let text = kernel(&factors).replace("a[i * 56 + j] =", "if (e > 0) a[i * 56 + j] =");
    let (_folder, gpu) = gpu_with(&text);
    let ones = Tensor::ones(M * K, DType::F32, &Device::Cpu).unwrap();
    let (storage, layout) = ones.storage_and_layout();
    let x = gpu.view(&storage, layout).unwrap();
    let mut to = gpu.alloc(DType::F32, M * N).unwrap();
    let planted = Kernel::new("planted", factors.kernel());
    let args = [x.into(), x.into(), (&mut to).into()];
    gpu.launch(planted, Grid::of(1, 32), &args).unwrap();
    let c: Vec<f32> = to.into_tensor(M * N).unwrap().to_vec1().unwrap();
    assert!(c[..N].iter().all(|c| c.is_nan()) && c[N..].iter().all(|&c| c == K as f32));
}
