//! Sizes that no generated task can have, refused in a sentence that names the task and the flag.

use crate::error::{ensure, Result};

/// Beyond this the embedding table alone outgrows any device.
const MAX_VOCAB: usize = 1 << 24;

/// Tokens a split, 8 GiB of host memory.
const MAX_TOKENS: usize = 1 << 31;

/// A rule of sizes: whether it holds, and what is said where it does not.
pub(super) type Rule = (bool, String);

/// Refuses a run of `task` that breaks one of its own `rules`, by which `seq_len` is at least 1; a vocabulary beyond the
/// largest; and a training or test split of no or of too many examples.
pub(super) fn check(
    task: &str,
    rules: &[Rule],
    vocab_size: usize,
    seq_len: usize,
    examples: [usize; 2],
) -> Result<()> {
    for (holds, why) in rules {
        ensure!(*holds, "{task}: {why}");
    }
    ensure!(
        vocab_size <= MAX_VOCAB,
        "{task}: --vocab-size {vocab_size} is beyond the largest vocabulary. Give at most {MAX_VOCAB}"
    );
    let most = MAX_TOKENS / seq_len;
    for (flag, examples) in ["--train-examples", "--test-examples"]
        .into_iter()
        .zip(examples)
    {
        ensure!(
            examples > 0,
            "{task}: {flag} {examples} leaves an empty split. Give at least 1"
        );
        ensure!(
            examples <= most,
            "{task}: {flag} {examples} with --seq-len {seq_len}: a split holds at most {MAX_TOKENS} tokens. Give at \
             most {flag} {most}"
        );
    }
    Ok(())
}
