//! The tasks of the Long Range Arena: labelled documents of bytes, from files or generated.

mod check;
mod examples;
pub mod generate;

pub use check::check;
pub use examples::{Examples, Splits};

use crate::config::{Generator, LraConfig};
use crate::error::{Error, Result};
use std::path::Path;

/// The splits of `config`, generated, or read from files under `data_dir` (see `dsf data fetch`).
pub fn load(config: &LraConfig, data_dir: Option<&Path>) -> Result<Splits> {
    check(config)?;
    if config.data == Generator::Native {
        return generate::splits(config);
    }
    let _ = data_dir;
    Err(Error::usage("no loader"))
}
