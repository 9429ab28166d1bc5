//! `--device`: where tensors live, and how many threads compute.

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
    /// The device and its name in results.
    pub fn open(self) -> Result<(Device, String)> {
        match self {
            Self::Auto | Self::Cpu => Ok((Device::Cpu, "cpu".to_owned())),
            Self::Cuda(_) => Err(Error::usage(
                "this build of dsf has no CUDA support; use --device cpu",
            )),
        }
    }
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
