//! Printed results of language models.

use crate::config::RunConfig;
use crate::store::{Column, EpochRow, Metrics, Weights};
use crate::sweep::estimate::{counted, duration};
use std::path::Path;

/// Number of distinct words in WikiText-2. A higher perplexity per word is worse than a uniform guess, and is not
/// printed: bits per byte are more informative for it. Byte models begin there.
const MOST_WORDS: f64 = 33_278.0;

/// Perplexities of the three splits after an epoch.
pub(super) fn of_epoch(row: &EpochRow) -> [f64; 3] {
    let val_loss = row.val_loss.unwrap_or(f64::NAN);
    [row.train_loss, val_loss, row.test_loss].map(f64::exp)
}

/// Formats the perplexities after an epoch.
pub(super) fn epoch(row: &EpochRow) -> String {
    let [train, val, test] = of_epoch(row);
    format!("train ppl {train:>8.2}  validation ppl {val:>8.2}  test ppl {test:>8.2}")
}

/// Describes the result of a run.
pub(super) fn sentence(config: &RunConfig, task: &str, metrics: &Metrics) -> String {
    let shown = |column: Column| shown(metrics.get(column));
    let selected = metrics.count(Column::SELECTED_EPOCH).map_or(String::new(), |epoch| {
        let ppl = shown(Column::SELECTED_TEST_PPL);
        format!(" ({ppl} where validation was best, after epoch {epoch})")
    });
    let bits = shown(Column::TEST_BITS_PER_BYTE);
    let words = match metrics.get(Column::TEST_WORD_PPL) {
        Some(ppl) if ppl <= MOST_WORDS => {
            format!(", which is {ppl:.2} a word and {bits} bits a byte")
        }
        Some(_) => format!(", which is {bits} bits a byte"),
        None => String::new(),
    };
    format!(
        "{} on {task} after {} ({}): perplexity {} on the training text, {} on the validation and {} on the test \
         text{selected}{words}; knowing no more than how common each token is scores {}.",
        config.model.mixers(),
        counted(metrics.count(Column::EPOCHS_RUN).unwrap_or(0), "epoch"),
        duration(metrics.get(Column::SECONDS).unwrap_or(0.0)),
        shown(Column::TRAIN_PPL),
        shown(Column::VAL_PPL),
        shown(Column::TEST_PPL),
        shown(Column::UNIGRAM_PPL),
    )
}

/// Returns commands for the weights in the `folder` of a run; `None` if no weights were kept.
pub(super) fn weights(folder: &Path) -> Option<String> {
    let kept = [(Weights::Best, "the best by validation"), (Weights::Last, "the last")];
    let kept: Vec<String> = kept
        .into_iter()
        .filter(|(which, _)| folder.join(which.file()).exists())
        .map(|(which, what)| format!("{} ({what})", which.file()))
        .collect();
    let folder = folder.display();
    (!kept.is_empty()).then(|| {
        format!(
            "weights: {} there; try\n         dsf wikitext eval --checkpoint {folder}\n         \
             dsf wikitext generate --checkpoint {folder} --prompt \"The \"",
            kept.join(" and ")
        )
    })
}

fn shown(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perplexity_per_word_is_told_where_it_means_something() {
        let told = |ppl: f64| {
            let metrics = Metrics::default().with(Column::TEST_WORD_PPL, ppl).with(Column::TEST_BITS_PER_BYTE, 2.5);
            sentence(&crate::store::samples::text_config(), "a text", &metrics)
        };
        assert!(told(68.5).contains(", which is 68.50 a word and 2.50 bits a byte;"));
        let many = told(62_825.77);
        assert!(many.contains(", which is 2.50 bits a byte;"), "{many}");
        assert!(!many.contains("a word"), "{many}");
    }

    #[test]
    fn weights_are_told_of_where_they_were_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(weights(dir.path()), None);
        std::fs::write(dir.path().join("best.safetensors"), b"").unwrap();
        let said = weights(dir.path()).unwrap();
        assert!(said.contains("best.safetensors") && !said.contains("the last"), "{said}");
        std::fs::write(dir.path().join("weights.safetensors"), b"").unwrap();
        let said = weights(dir.path()).unwrap();
        let folder = dir.path().display();
        assert!(said.contains("weights.safetensors (the last)"), "{said}");
        assert!(said.contains(&format!("eval --checkpoint {folder}")), "{said}");
    }
}
