//! Selection of weights, and of the tokenizer that belongs to them.

use crate::cli::device::{use_threads, DeviceChoice};
use crate::cli::{hub, Global};
use crate::error::{refuse, Result};
use crate::model::weights::Checkpoint;
use crate::store::Store;
use crate::tasks::wikitext::{TokenizerName, WikitextConfig};
use candle_core::Device;
use clap::Args;
use std::path::{Path, PathBuf};

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
        let found = open(&self.checkpoint, global)?;
        let mut text = found.text()?;
        if let Some(name) = &self.tokenizer {
            text.tokenizer = name.resolve()?.0;
        }
        Ok((found, text))
    }

    /// Opens the device and returns its name.
    pub fn device(&self, global: &Global) -> Result<(Device, String)> {
        use_threads(global.threads()?);
        self.device.open()
    }
}

/// Opens the weights at `path`, or those of the run with that id in the results folder.
pub(in crate::cli) fn open(path: &Path, global: &Global) -> Result<Checkpoint> {
    if path.exists() {
        return Checkpoint::open(path);
    }
    if let Some(folder) = hub::pretrained(path, global)? {
        return Checkpoint::open(&folder);
    }
    let run = path.to_str().filter(|name| is_id(name));
    let folder = |id: &str| -> Result<PathBuf> { Ok(Store::existing(&global.out)?.run_folder(id)) };
    match run.map(folder).transpose()? {
        Some(folder) if folder.is_dir() => Checkpoint::open(&folder),
        Some(_) => refuse!(
            flag "--checkpoint" = path.display(),
            "there is no such run in {}; --out names another results folder",
            global.out.display()
        ),
        None => refuse!(
            flag "--checkpoint" = path.display(),
            "there is no such file, folder or run; give what a run of `dsf wikitext` or `dsf wikitext import` left, a folder of Hugging Face, or OWNER/NAME of a model there"
        ),
    }
}

/// Whether `name` looks like a run id.
fn is_id(name: &str) -> bool {
    name.len() == 12 && name.bytes().all(|b| b.is_ascii_hexdigit())
}
