//! Length of convolution kernels that are parametrised for one length. By default it follows from the task.

use crate::config::ModelConfig;
use crate::error::Result;
use crate::mixers::find;
use crate::mixers::kernel_length::{AUTO, L_MAX};
use std::collections::BTreeMap;

/// Sets kernel lengths that the model leaves open to `seq_len`. Models that read inputs of several lengths need an
/// explicit kernel length.
pub(super) fn fix(model: &mut ModelConfig, seq_len: usize) -> Result<()> {
    for options in options_with_length(model)? {
        if options.get(L_MAX).is_none_or(|length| length == AUTO) {
            options.insert(L_MAX.to_owned(), seq_len.to_string());
        }
    }
    Ok(())
}

/// Reverts [`fix`], for a model that will be changed and completed again.
pub(super) fn reopen(model: &mut ModelConfig, seq_len: usize) -> Result<()> {
    for options in options_with_length(model)? {
        if options.get(L_MAX) == Some(&seq_len.to_string()) {
            options.insert(L_MAX.to_owned(), AUTO.to_owned());
        }
    }
    Ok(())
}

/// Options of each mixer of `model` that has a kernel length.
fn options_with_length(model: &mut ModelConfig) -> Result<Vec<&mut BTreeMap<String, String>>> {
    let depends = |mixer: &str| -> Result<bool> {
        Ok(find(mixer)?.options.iter().map(|option| option.name).any(|name| name == L_MAX))
    };
    let mut found = Vec::new();
    if depends(&model.mixer)? {
        found.push(&mut model.options);
    }
    if let Some(hybrid) = &mut model.hybrid {
        if depends(&hybrid.mixer)? {
            found.push(&mut hybrid.options);
        }
    }
    Ok(found)
}
