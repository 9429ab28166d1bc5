//! The instruction set of the ops, chosen in one place.
//!
//! The processor's best instruction set is used unless `DSF_SIMD` names a lower one. It decides which version of every
//! function under [`#[simd]`](dsf_simd::simd) runs, and which kernel of matrix products.

use crate::gpu::Factors;
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
    /// AVX-512 with AVX512-BF16, for products of bf16; everything else is that of AVX-512.
    Avx512Bf16,
    /// AVX512-BF16 and AMX with AMX-BF16, for products of bf16; everything else is that of AVX-512.
    Amx,
}

impl Simd {
    const ALL: [Self; 5] = [Self::Baseline, Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::Amx];

    /// Name in `DSF_SIMD` and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline if cfg!(target_arch = "aarch64") => "neon",
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::Amx => "amx",
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
        let avx512_bf16 = || avx512() && is_x86_feature_detected!("avx512bf16");
        match self {
            Self::Baseline => true,
            Self::Avx2 => avx2(),
            Self::Avx512 => avx2() && avx512(),
            Self::Avx512Bf16 => avx2() && avx512_bf16(),
            Self::Amx => avx2() && avx512_bf16() && has_amx(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_available(&self) -> bool {
        *self == Self::Baseline
    }

    /// Returns the instruction set on which the bits of a run depend: in f32, the units for bf16 are not used.
    pub fn of_factors(factors: Factors) -> Self {
        match factors {
            Factors::F32 => Self::current().min(Self::Avx512),
            Factors::Tf32 if Self::current() < Self::Amx => Self::current().min(Self::Avx512),
            Factors::Tf32 | Factors::Bf16 => Self::current(),
        }
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

/// Whether the processor has AMX with AMX-BF16, and the system lets this process use its tiles, for which it asks once.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn has_amx() -> bool {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// Bits of leaf 7 (AMX-BF16, AMX-TILE), of leaf 1 (XSAVE by the system), and of the register of saved states.
    const UNITS: u32 = 1 << 22 | 1 << 24;
    const XSAVE: u32 = 1 << 27;
    const TILES: u32 = 1 << 17 | 1 << 18;
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & UNITS == UNITS && __cpuid(1).ecx & XSAVE != 0;
        if !has || !cfg!(target_os = "linux") {
            return false;
        }
        let saved: u32;
        // SAFETY: the system saves states of its processes, so the register can be read.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") saved, out("edx") _, options(nomem, nostack, preserves_flags))
        };
        saved & TILES == TILES && linux_permits_tiles()
    })
}

/// Asks Linux for the permission to use tiles, which holds for all threads of the process.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn linux_permits_tiles() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const TILE_DATA: usize = 18;
    let answer: usize;
    // SAFETY: the call reads no memory of the process. It returns an error on systems that do not know it.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") ARCH_PRCTL => answer, in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA, out("rcx") _, out("r11") _, options(nostack));
    }
    answer == 0
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
