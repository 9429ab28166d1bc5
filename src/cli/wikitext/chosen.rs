//! Selection of weights, and of the tokenizer that belongs to them.

use crate::cli::device::{use_threads, DeviceChoice};
use crate::cli::{weights, Global};
use crate::error::Result;
use crate::model::weights::Checkpoint;
use crate::tasks::wikitext::{TokenizerName, WikitextConfig};
use candle_core::Device;
use clap::Args;
use std::path::PathBuf;

/// Flags of everything that computes with trained weights.
#[derive(Args)]
pub(super) struct Chosen {
    /// File of weights, id of a run, or a pretrained model.
    ///
    /// MODEL is a file of weights, a run's folder or id, the folder of a Hugging Face model, or its name on the hub,
    /// OWNER/NAME or OWNER/NAME@REVISION, which is downloaded unless it is in the cache. Runs load their best weights
    /// if they have them, else their last.
    #[arg(long, value_name = "MODEL")]
    checkpoint: PathBuf,
    /// Tokenizer: bytes, gpt-neox, or a tokenizer.json [default: the model's].
    #[arg(long, value_name = "NAME|FILE")]
    tokenizer: Option<TokenizerName>,
    /// Folder of data.
    ///
    /// Default: the folder that `dsf data fetch` downloads to.
    #[arg(long, value_name = "DIR", env = "DSF_DATA", hide_env_values = true)]
    pub data_dir: Option<PathBuf>,
    /// Device: auto, cpu, cuda or cuda:1.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
}

impl Chosen {
    /// Opens the weights, and returns their text config with the requested tokenizer.
    pub fn open(&self, global: &Global) -> Result<(Checkpoint, WikitextConfig)> {
        let found = weights::open(&self.checkpoint, global)?;
        let mut text = found.text()?;
        if let Some(name) = &self.tokenizer {
            text.tokenizer = name.resolve()?.0;
        }
        Ok((found, text))
    }

    /// Opens the device and returns its name.
    pub fn device(&self, global: &Global) -> Result<(Device, String)> {
        use_threads(global.threads()?)?;
        self.device.open()
    }
}
