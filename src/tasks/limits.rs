//! Sizes that no generated task can have, refused in a sentence that names the task and the flag.

use crate::error::{Error, Result};

/// Beyond this the embedding table alone outgrows any device.
const MAX_VOCAB: usize = 1 << 24;

/// Tokens a split, 8 GiB of host memory.
const MAX_TOKENS: usize = 1 << 31;

/// Unless `rule` holds, refuses a run of `task` with the sentence that `broken` makes.
pub(super) fn require(task: &str, rule: bool, broken: impl FnOnce() -> String) -> Result<()> {
    rule.then_some(())
        .ok_or_else(|| Error::usage(format!("{task}: {}", broken())))
}

/// Refuses a vocabulary beyond the largest.
pub(super) fn check_vocabulary(task: &str, size: usize) -> Result<()> {
    require(task, size <= MAX_VOCAB, || {
        format!("--vocab-size {size} is beyond the largest vocabulary. Give at most {MAX_VOCAB}")
    })
}

/// Refuses splits of no or of too many examples; `examples` are those of training and test, and `seq_len`
/// is at least 1.
pub(super) fn check_splits(task: &str, examples: [usize; 2], seq_len: usize) -> Result<()> {
    let most = MAX_TOKENS / seq_len;
    for (flag, examples) in ["--train-examples", "--test-examples"]
        .into_iter()
        .zip(examples)
    {
        require(task, examples > 0, || {
            format!("{flag} {examples} leaves an empty split. Give at least 1")
        })?;
        require(task, examples <= most, || {
            format!(
                "{flag} {examples} with --seq-len {seq_len}: a split holds at most {MAX_TOKENS} tokens. \
                 Give at most {flag} {most}"
            )
        })?;
    }
    Ok(())
}
