//! `--device`: device of the tensors, and number of threads.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;

use crate::error::{self, ensure, refuse, Error, Result};
use crate::gpu;
use crate::sweep::Training;
use candle_core::Device;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceChoice {
    Auto,
    Cpu,
    /// The GPU with this number; without one the first GPU, or all where several can be used.
    Cuda(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.split_once(':') {
            None if text == "auto" => Self::Auto,
            None if text == "cpu" => Self::Cpu,
            None if text == "cuda" => Self::Cuda(None),
            Some(("cuda", ordinal)) => Self::Cuda(Some(
                ordinal.parse().map_err(|_| Error::usage(format!("`{ordinal}` is no device number; write cuda:0")))?,
            )),
            _ => return Err(error::unknown("device", text, ["auto", "cpu", "cuda", "cuda:1"])),
        })
    }
}

impl DeviceChoice {
    /// Opens the device and returns its name in results. `auto` selects the first GPU, if this build supports GPUs and
    /// the machine has one.
    pub fn open(self) -> Result<(Device, String)> {
        let name = self.name()?;
        let device = self.ordinal().map_or(Ok(Device::Cpu), gpu::open)?;
        Ok((device, name))
    }

    /// Returns the name that [`Self::open`] would return, after the same checks, without allocating memory on a GPU.
    pub fn name(self) -> Result<String> {
        match self.ordinal() {
            Some(ordinal) => check(ordinal),
            None => Ok("cpu".to_owned()),
        }
    }

    /// Returns the names of the selected GPUs; at least one.
    pub fn gpus(self) -> Result<Vec<String>> {
        match self {
            Self::Cuda(Some(ordinal)) => Ok(vec![check(ordinal)?]),
            Self::Cuda(None) => {
                let first = check(0)?;
                let others = (1..cuda::gpus()).map(check);
                std::iter::once(Ok(first)).chain(others).collect()
            }
            Self::Auto | Self::Cpu => {
                refuse!(flag "--per-gpu", "shares GPUs: add --device cuda (all of them) or, say, cuda:1")
            }
        }
    }

    /// Whether a GPU is selected.
    pub fn is_gpu(self) -> bool {
        self.ordinal().is_some()
    }

    /// Returns an error if the device does not know the training flags.
    pub fn serves(self, training: &Training) -> Result<()> {
        if self.is_gpu() {
            return Ok(());
        }
        let advice = "is about the steps of a GPU: add --device cuda, or leave it out";
        ensure!(!training.cuda_graph, flag "--cuda-graph", "{advice}");
        ensure!(!training.no_cuda_graph, flag "--no-cuda-graph", "{advice}");
        Ok(())
    }

    fn ordinal(self) -> Option<usize> {
        match self {
            Self::Auto => (cuda::gpus() > 0).then_some(0),
            Self::Cpu => None,
            Self::Cuda(ordinal) => Some(ordinal.unwrap_or(0)),
        }
    }
}

/// Returns the name of a GPU after all checks, so that no library is missing later.
fn check(ordinal: usize) -> Result<String> {
    cuda::check(ordinal).map_err(|why| Error::flag_value("--device", "cuda", why))?;
    Ok(format!("cuda:{ordinal}"))
}

/// Sets the number of threads. The calling thread is one of them: if it only waited, each op would have to wake all the
/// others. Fails if the system starts no further thread.
pub(super) fn use_threads(n: usize) -> Result<()> {
    use_other_threads(n);
    if n == 1 {
        return Ok(());
    }
    let built = rayon::ThreadPoolBuilder::new().num_threads(n).use_current_thread().build_global();
    // If a pool exists already, the error has no source.
    match built.as_ref().err().and_then(std::error::Error::source) {
        Some(why) => Err(Error::flag_value("--threads", n, format!("the system starts no further thread: {why}"))),
        None => Ok(()),
    }
}

/// [`use_threads`] where the calling thread does not compute. Thread pools read the numbers once, at their first use.
///
/// Products and our own ops share rayon's pool. Candle's second pool, for elementwise ops, spins at a barrier: under
/// any other load its threads wait for each other's time slices, and a step took up to twenty times as long. It gets
/// one thread.
pub(super) fn use_other_threads(n: usize) {
    std::env::set_var("RAYON_NUM_THREADS", n.to_string());
    std::env::set_var("CANDLE_NUM_THREADS", "1");
}
