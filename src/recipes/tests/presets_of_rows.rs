//! Matching of result rows to presets.

use super::*;
use crate::store::Column;

fn row(task: &str, settings: Settings) -> Record {
    Record::planned(&run(task, settings).unwrap())
}

#[test]
fn a_preset_taken_as_it_is_is_found_again() {
    for (i, preset) in PRESETS.iter().enumerate() {
        for dataset in ["text", "image"] {
            let named = [("preset", preset.name), ("dataset", dataset), ("mixer", "mamba")];
            let row = row("lra", &named);
            assert_eq!(presets_of(&row)[i], (preset.name, row));
        }
    }
}

#[test]
fn a_preset_of_text_keeps_corpus_and_precision() {
    let named = [("corpus", "wikitext-2"), ("mixer", "linear"), ("precision", "bf16")];
    let row = row("wikitext", &named);
    let presets = presets_of(&row);
    assert_eq!(presets[1], ("quick", row));
    let full = &presets[0].1;
    let sizes = [Column::D, Column::SEQ_LEN, Column::VOCAB_SIZE].map(|column| full.count(column));
    assert_eq!(sizes, [512, 1024, 50_304]);
    let kept = [Column::DATASET, Column::PRECISION].map(|column| full.text(column));
    assert_eq!(kept, ["wikitext-2", "bf16"]);
}

#[test]
fn d_and_n_of_recall_are_left_open() {
    let row = row("mqar", &[]);
    let (_, full) = presets_of(&row).remove(0);
    let sizes = [Column::D, Column::N, Column::VOCAB_SIZE].map(|column| full.count(column));
    assert_eq!(sizes, [0, 0, 8192]);
    assert_eq!(full.get(Column::SEQ_LEN), row.get(Column::SEQ_LEN));
}

#[test]
fn what_this_version_does_not_know_has_no_preset() {
    let known = row("lra", &[]);
    assert_eq!(presets_of(&known).len(), 3);
    let unknown: [fn(&mut Record); 5] = [
        |r| r.set(Column::MIXER, "telepathy"),
        |r| r.set(Column::DATASET, "sudoku"),
        |r| r.set(Column::PROTOCOL, "mine"),
        |r| r.set(Column::DATA, "dreamt"),
        |r| r.set(Column::TASK, "go"),
    ];
    for change in unknown {
        let mut row = known.clone();
        change(&mut row);
        assert_eq!(presets_of(&row), []);
    }
}
