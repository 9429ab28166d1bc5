//! Length of convolution kernels that are parametrised for one length. By default it follows from the task.

use crate::config::ModelConfig;
use crate::error::Result;
use crate::mixers::find;
use crate::mixers::kernel_length::{AUTO, L_MAX};
use std::collections::BTreeMap;

/// Sets kernel lengths that the model leaves open to `seq_len`, unless its inputs have `one_length`: then only those on
/// which parameters depend.
pub(super) fn fix(model: &mut ModelConfig, seq_len: usize, one_length: bool) -> Result<()> {
    for options in options_with_length(model, one_length)? {
        if options.get(L_MAX).is_none_or(|length| length == AUTO) {
            options.insert(L_MAX.to_owned(), seq_len.to_string());
        }
    }
    Ok(())
}

/// Reverts [`fix`], for a model that will be changed and completed again.
pub(super) fn reopen(model: &mut ModelConfig, seq_len: usize, one_length: bool) -> Result<()> {
    for options in options_with_length(model, one_length)? {
        if options.get(L_MAX) == Some(&seq_len.to_string()) {
            options.insert(L_MAX.to_owned(), AUTO.to_owned());
        }
    }
    Ok(())
}

/// Options of each mixer of `model` that has a kernel length to be set.
fn options_with_length(model: &mut ModelConfig, one_length: bool) -> Result<Vec<&mut BTreeMap<String, String>>> {
    let depends = |mixer: &str, variant: &str| -> Result<bool> {
        let mut options = find(mixer)?.options.iter();
        Ok(options.any(|option| option.name == L_MAX && option.is_of(variant) && (option.of_task || !one_length)))
    };
    let mut found = Vec::new();
    if depends(&model.mixer, &model.variant)? {
        found.push(&mut model.options);
    }
    if let Some(hybrid) = &mut model.hybrid {
        if depends(&hybrid.mixer, &hybrid.variant)? {
            found.push(&mut hybrid.options);
        }
    }
    Ok(found)
}
