//! The instruction set of the ops, chosen in one place.
//!
//! The processor's best instruction set is used unless `DSF_SIMD` names a lower one. It decides which version of every
//! function under [`#[simd]`](dsf_simd::simd) runs, and which kernel of matrix products.

use std::env;
use std::fmt;
use std::sync::OnceLock;

/// The environment variable that names an instruction set.
pub const VARIABLE: &str = "DSF_SIMD";

/// An instruction set; ordered from the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Simd {
    /// Baseline of the architecture: SSE2 on x86-64, NEON on 64-bit ARM.
    Baseline,
    /// AVX2 and FMA: vectors of 8 f32, 16 registers.
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL, which is x86-64-v4: vectors of 16 f32, 32 registers.
    Avx512,
}

impl Simd {
    const ALL: [Self; 3] = [Self::Baseline, Self::Avx2, Self::Avx512];

    /// Name in `DSF_SIMD` and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline if cfg!(target_arch = "aarch64") => "neon",
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Returns the instruction sets that this processor supports, the lowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|simd| simd.is_available())
    }

    /// Whether it has a fused multiply-add.
    #[inline(always)]
    pub(crate) fn fuses(self) -> bool {
        cfg!(target_arch = "aarch64") || self >= Self::Avx2
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(&self) -> bool {
        let avx2 = || {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("movbe")
                && is_x86_feature_detected!("popcnt")
        };
        let avx512 = || {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
        };
        match self {
            Self::Baseline => true,
            Self::Avx2 => avx2(),
            Self::Avx512 => avx2() && avx512(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_available(&self) -> bool {
        *self == Self::Baseline
    }

    /// Returns the instruction set of this process's ops.
    ///
    /// # Panics
    ///
    /// Panics if `DSF_SIMD` names one that the processor lacks; call [`Self::chosen`] first.
    #[inline]
    pub fn current() -> Self {
        static CURRENT: OnceLock<Simd> = OnceLock::new();
        *CURRENT.get_or_init(|| Self::chosen().unwrap_or_else(|why| panic!("{VARIABLE}: {why}")))
    }

    /// Returns the instruction set that `DSF_SIMD` names, or the best of the processor.
    ///
    /// # Errors
    ///
    /// The reason, if it names no instruction set or one that this processor lacks.
    pub fn chosen() -> Result<Self, String> {
        Self::of(env::var(VARIABLE).ok().as_deref())
    }

    /// Returns [`Self::chosen`] for a value of the variable.
    fn of(value: Option<&str>) -> Result<Self, String> {
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return Ok(Self::available().max().unwrap_or(Self::Baseline));
        };
        let found = Self::available().find(|simd| simd.name() == value);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::available().map(Self::name).collect();
            let names = names.join(", ");
            match Self::ALL.iter().any(|simd| simd.name() == value) {
                true => format!("this processor has {names} only"),
                false => format!("no instruction set; this processor has {names}"),
            }
        })
    }
}

impl fmt::Display for Simd {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_taken_unless_another_is_named() {
        let best = Simd::available().max().unwrap();
        assert_eq!(Simd::of(None), Ok(best));
        assert_eq!(Simd::of(Some("")), Ok(best));
        for simd in Simd::available() {
            assert_eq!(Simd::of(Some(simd.name())), Ok(simd));
        }
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is() {
        let why = Simd::of(Some("avx3")).unwrap_err();
        assert!(why.contains(Simd::Baseline.name()), "{why}");
    }
}
