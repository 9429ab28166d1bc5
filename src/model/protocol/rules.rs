//! Rules that numbers and options keep, whatever the task.

use super::Asked;
use crate::config::Protocol;
use crate::error::{self, Error, Result};
use crate::mixers::Entry;
use std::collections::BTreeMap;

/// The options of `entry` in `variant`, resolved: given, or the protocol's.
pub(super) fn options(
    entry: &Entry,
    variant: &str,
    given: &BTreeMap<String, String>,
    protocol: Protocol,
) -> Result<BTreeMap<String, String>> {
    for (name, value) in given {
        let Some(option) = entry.options.iter().find(|o| o.name == name) else {
            let known: Vec<&str> = entry.options.iter().map(|o| o.name).collect();
            if known.is_empty() {
                let mixer = entry.name;
                return Err(Error::usage(format!(
                    "--option {name}={value}: mixer `{mixer}` has no options"
                )));
            }
            return Err(error::unknown(
                &format!("option of {}", entry.name),
                name,
                known,
            ));
        };
        if !option.is_of(variant) {
            return Err(Error::usage(format!(
                "--option {name}={value}: variant `{variant}` of {} has no {name}; {} has it",
                entry.name,
                option.variants.join(", ")
            )));
        }
        if !(option.accepts)(value) {
            return Err(Error::usage(format!(
                "--option {name}={value}: not a value of {name}. {}: {}",
                option.name, option.help
            )));
        }
    }
    let resolved = entry.options.iter().filter_map(|o| {
        let default = (o.default)(protocol);
        let value = given.get(o.name).map_or(default, String::as_str);
        let recorded = o.is_of(variant) && !(o.implied && value == default);
        recorded.then(|| (o.name.to_owned(), value.to_owned()))
    });
    Ok(resolved.collect())
}

/// Steps of a state space model that start as small as in Mamba.
pub(super) const SMALL_STEPS: (&str, &str) = ("dt_init", "mamba");

/// `given`, and of `usual` what `entry` knows in `variant` and nobody gave.
pub(super) fn with_usual(
    entry: &Entry,
    variant: &str,
    given: &BTreeMap<String, String>,
    usual: &[(&str, &str)],
) -> BTreeMap<String, String> {
    let mut all = given.clone();
    for &(name, value) in usual {
        let mut known = entry.options.iter();
        if known.any(|option| option.name == name && option.is_of(variant)) {
            all.entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
    }
    all
}

/// Refuses numbers of model and training that no task allows; a number that was not asked for is none.
pub(super) fn check_numbers(asked: &Asked) -> Result<()> {
    within(&[
        ("--d", asked.d, 65_536),
        ("--n", asked.n, 65_536),
        ("--heads", asked.heads, 65_536),
        ("--layers", asked.layers, 1_000),
        ("--mlp-width", asked.mlp_width, 1 << 20),
        ("--epochs", asked.epochs, 1_000_000),
        ("--batch-size", asked.batch_size, 1_000_000),
        ("--micro-batch", asked.micro_batch, 1_000_000),
    ])?;
    positive("--lr", asked.lr.unwrap_or(1.0))?;
    check_decay(asked.weight_decay.unwrap_or(0.0))?;
    check_dropout("--dropout", asked.dropout)?;
    check_dropout("--attn-dropout", asked.attn_dropout)
}

/// Refuses the first size that was given and is not 1 to its most.
pub(super) fn within(sizes: &[(&str, Option<usize>, usize)]) -> Result<()> {
    for &(flag, size, most) in sizes {
        if let Some(size) = size.filter(|size| !(1..=most).contains(size)) {
            return Err(Error::usage(format!(
                "{flag} must be 1 to {most}, not {size}"
            )));
        }
    }
    Ok(())
}

pub(super) fn positive(flag: &str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{flag} must be a positive number, such as 2e-3, not {value}"
    )))
}

pub(super) fn check_decay(weight_decay: f64) -> Result<()> {
    if weight_decay.is_finite() && weight_decay >= 0.0 {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--weight-decay must be 0 or more, not {weight_decay}"
    )))
}

pub(super) fn check_dropout(flag: &str, p: Option<f64>) -> Result<()> {
    match p.filter(|p| !(0.0..1.0).contains(p)) {
        Some(p) => Err(Error::usage(format!("{flag} must be in [0, 1), not {p}"))),
        None => Ok(()),
    }
}
