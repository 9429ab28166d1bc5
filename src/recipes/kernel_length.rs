//! The length of the kernels that are made for one, which follows from the task where nobody sets it.

use crate::config::ModelConfig;
use crate::error::Result;
use crate::mixers::find;
use crate::mixers::kernel_length::{AUTO, L_MAX};
use std::collections::BTreeMap;

/// Makes kernels that depend on a length those of `seq_len` tokens where a model leaves it open: models that read inputs of several
/// lengths need one that is theirs.
pub(super) fn fix(model: &mut ModelConfig, seq_len: usize) -> Result<()> {
    for options in options_with_length(model)? {
        if options.get(L_MAX).is_none_or(|length| length == AUTO) {
            options.insert(L_MAX.to_owned(), seq_len.to_string());
        }
    }
    Ok(())
}

/// Undoes [`fix`], for a model that is changed and then completed again.
pub(super) fn reopen(model: &mut ModelConfig, seq_len: usize) -> Result<()> {
    for options in options_with_length(model)? {
        if options.get(L_MAX) == Some(&seq_len.to_string()) {
            options.insert(L_MAX.to_owned(), AUTO.to_owned());
        }
    }
    Ok(())
}

/// The options of each mixer of `model` that has such a length.
fn options_with_length(model: &mut ModelConfig) -> Result<Vec<&mut BTreeMap<String, String>>> {
    let depends = |mixer: &str| -> Result<bool> {
        let options = find(mixer)?.options.iter();
        Ok(options.map(|option| option.name).any(|name| name == L_MAX))
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
