//! `--device`: where tensors live, and how many threads compute.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "device/no_cuda.rs"]
mod cuda;

use crate::error::{self, Error, Result};
use candle_core::Device;
use std::str::FromStr;

/// What `--device` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Auto,
    Cpu,
    Cuda(usize),
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.split_once(':') {
            None if text == "auto" => Self::Auto,
            None if text == "cpu" => Self::Cpu,
            None if text == "cuda" => Self::Cuda(0),
            Some(("cuda", ordinal)) => Self::Cuda(ordinal.parse().map_err(|_| {
                Error::usage(format!("`{ordinal}` is no device number; write cuda:0"))
            })?),
            _ => {
                return Err(error::unknown(
                    "device",
                    text,
                    ["auto", "cpu", "cuda", "cuda:1"],
                ))
            }
        })
    }
}

impl Choice {
    /// The device and its name in results. `auto` is the first GPU, if this build can use one and the
    /// machine has one.
    pub fn open(self) -> Result<(Device, String)> {
        match self {
            Self::Cpu => Ok((Device::Cpu, "cpu".to_owned())),
            Self::Auto if cuda::has_gpu() => open_cuda(0),
            Self::Auto => Self::Cpu.open(),
            Self::Cuda(ordinal) => open_cuda(ordinal),
        }
    }
}

/// A GPU that has passed every check, so that nothing below meets a missing library.
fn open_cuda(ordinal: usize) -> Result<(Device, String)> {
    cuda::check(ordinal).map_err(|why| Error::usage(format!("--device cuda: {why}")))?;
    Ok((crate::gpu::open(ordinal)?, format!("cuda:{ordinal}")))
}

/// Fixes the number of threads before the pools read it, once, at their first use.
///
/// Products and our own ops share rayon's pool. Candle's second pool, for elementwise ops, spins at
/// a barrier: beside any other load its threads wait for each other's time slices, and a step took
/// up to twenty times as long. It gets one thread.
pub(super) fn use_threads(n: usize) {
    std::env::set_var("RAYON_NUM_THREADS", n.to_string());
    std::env::set_var("CANDLE_NUM_THREADS", "1");
}
