//! The choice of the kernel.

#[cfg(target_arch = "x86_64")]
use super::packed::Terms;
#[cfg(target_arch = "x86_64")]
use super::unit::{repeated, Amx, Avx512Bf16};
use crate::gpu::{factors, Factors};
use crate::runtime::float::Float;
use crate::runtime::simd::Simd;
use candle_core::{DType, WithDType};

/// The way in which products are computed: this thread's [`Factors`] and the current instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// By the crate.
    Plain,
    /// By the crate, on operands rounded to bf16.
    Rounded,
    /// By AVX512-BF16.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    /// By AMX, with factors of this many terms.
    #[cfg(target_arch = "x86_64")]
    Amx(Terms),
}

impl Method {
    pub(super) fn current<F: Float>() -> Self {
        if F::Stored::DTYPE != DType::F32 {
            return Self::Plain;
        }
        match (factors(), Simd::current()) {
            #[cfg(target_arch = "x86_64")]
            (Factors::Bf16, Simd::Avx512Bf16) => Self::Avx512Bf16,
            #[cfg(target_arch = "x86_64")]
            (Factors::Bf16, Simd::Amx) => Self::Amx(Terms::One),
            #[cfg(target_arch = "x86_64")]
            (Factors::Tf32, Simd::Amx) => Self::Amx(Terms::Two),
            (Factors::Bf16, _) => Self::Rounded,
            (Factors::F32 | Factors::Tf32, _) => Self::Plain,
        }
    }
}

/// Whether products are those of operands rounded to bf16 before.
pub(crate) fn rounds<F: Float>() -> bool {
    Method::current::<F>() == Method::Rounded
}

/// Whether a unit multiplies, so that products of small matrices are [`SmallProduct`]s.
#[cfg(target_arch = "x86_64")]
pub(crate) fn on_unit<F: Float>() -> bool {
    !matches!(Method::current::<F>(), Method::Plain | Method::Rounded)
}

/// A short loop of the current unit for bf16 on operands in the nearest cache, and the multiplications and additions of
/// a call; `None` without a unit.
pub(crate) fn bf16_loop() -> Option<(f64, Box<dyn FnMut()>)> {
    match Simd::current() {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512Bf16 => Some(repeated::<Avx512Bf16>()),
        #[cfg(target_arch = "x86_64")]
        Simd::Amx => Some(repeated::<Amx>()),
        _ => None,
    }
}
