//! What the presets would have made of a run, for reports that say how it differs.

use super::{Asked, Preset, Task};
use crate::config::{Precision, Protocol};
use crate::error::Result;
use crate::store::Row;
use crate::tasks::lra::LraDataset;
use crate::tasks::wikitext::Corpus;
use crate::tasks::Generator;
use clap::ValueEnum;

/// The paper's whole runs first.
const PRESETS: [Preset; 3] = [Preset::Full, Preset::Quick, Preset::Smoke];

/// The runs that the presets make of the task, mixer and protocol of `row`, by name, each as a row. In MQAR
/// the size of the task is that of `row`, and d and n are 0: the paper has many. Empty for a mixer
/// or a dataset that this version does not know.
pub fn presets_of(row: &Row) -> Vec<(&'static str, Row)> {
    let of = |preset: Preset| Some((preset.name(), planned(row, preset).ok()??));
    PRESETS.into_iter().filter_map(of).collect()
}

impl Preset {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Smoke => "smoke",
        }
    }
}

fn planned(row: &Row, preset: Preset) -> Result<Option<Row>> {
    let task = Task::find(&row.task)?;
    let asked = Asked {
        preset: Some(preset),
        mixer: Some(row.mixer.clone()),
        protocol: Protocol::from_str(&row.protocol, false).ok(),
        ..Asked::default()
    };
    if asked.protocol.is_none() {
        return Ok(None);
    }
    match task {
        Task::Mqar => of_recall(row, asked).map(Some),
        Task::Lra => of_arena(row, asked),
        Task::Wikitext => of_text(row, asked),
    }
}

fn of_recall(row: &Row, asked: Asked) -> Result<Row> {
    let asked = Asked {
        d: Some(row.d),
        n: Some(row.n),
        seq_len: Some(row.seq_len),
        kv_pairs: Some(row.kv_pairs),
        ..asked
    };
    let planned = Row::planned(&asked.resolve(Task::Mqar)?);
    Ok(Row {
        d: 0,
        n: 0,
        ..planned
    })
}

fn of_arena(row: &Row, asked: Asked) -> Result<Option<Row>> {
    let dataset = LraDataset::from_str(&row.dataset, false);
    let data = Generator::from_str(&row.data, false);
    let (Ok(dataset), Ok(data)) = (dataset, data) else {
        return Ok(None);
    };
    let asked = Asked {
        dataset: Some(dataset),
        data: Some(data),
        ..asked
    };
    Ok(Some(Row::planned(&asked.resolve(Task::Lra)?)))
}

/// The corpus is that of `row`, and so are the numbers computed with, which the device chooses.
fn of_text(row: &Row, asked: Asked) -> Result<Option<Row>> {
    let corpus = Corpus::from_str(&row.dataset, false);
    let precision = Precision::from_str(&row.precision, false);
    let (Ok(corpus), Ok(precision)) = (corpus, precision) else {
        return Ok(None);
    };
    let asked = Asked {
        corpus: Some(corpus),
        precision: Some(precision),
        ..asked
    };
    Ok(Some(Row::planned(&asked.resolve(Task::Wikitext)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: Asked, task: Task) -> Row {
        Row::planned(&line.resolve(task).unwrap())
    }

    #[test]
    fn a_preset_taken_as_it_is_is_found_again() {
        for (i, preset) in PRESETS.into_iter().enumerate() {
            for dataset in [LraDataset::Text, LraDataset::Image] {
                let asked = Asked {
                    preset: Some(preset),
                    dataset: Some(dataset),
                    mixer: Some("mamba".into()),
                    ..Asked::default()
                };
                let row = row(asked, Task::Lra);
                assert_eq!(presets_of(&row)[i], (preset.name(), row));
            }
        }
    }

    #[test]
    fn a_preset_of_text_keeps_corpus_and_precision() {
        let asked = Asked {
            corpus: Some(Corpus::Wikitext2),
            mixer: Some("linear".into()),
            gpu: true,
            ..Asked::default()
        };
        let row = row(asked, Task::Wikitext);
        let presets = presets_of(&row);
        assert_eq!(presets[1], ("quick", row));
        let full = &presets[0].1;
        assert_eq!((full.d, full.seq_len, full.vocab_size), (512, 1024, 50_304));
        assert_eq!((&*full.dataset, &*full.precision), ("wikitext-2", "bf16"));
    }

    #[test]
    fn d_and_n_of_recall_are_left_open() {
        let row = row(Asked::default(), Task::Mqar);
        let (_, full) = presets_of(&row).remove(0);
        assert_eq!((full.d, full.n, full.vocab_size), (0, 0, 8192));
        assert_eq!(full.seq_len, row.seq_len);
    }

    #[test]
    fn what_this_version_does_not_know_has_no_preset() {
        let known = row(Asked::default(), Task::Lra);
        assert_eq!(presets_of(&known).len(), 3);
        let unknown: [fn(&mut Row); 5] = [
            |r| r.mixer = "telepathy".into(),
            |r| r.dataset = "path-x".into(),
            |r| r.protocol = "mine".into(),
            |r| r.data = "dreamt".into(),
            |r| r.task = "go".into(),
        ];
        for change in unknown {
            let mut row = known.clone();
            change(&mut row);
            assert_eq!(presets_of(&row), []);
        }
    }
}
