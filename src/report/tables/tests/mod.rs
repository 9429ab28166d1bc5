//! Small results, and the tables of the paper that they must give.

mod choice;
mod forms;

use super::*;
use crate::config::{LraDataset, Protocol};
use crate::model::protocol::{presets_of, Asked as Wish, Task};
use crate::store::samples::done;
use crate::store::RunResult;

fn wish(mixer: &str, dataset: LraDataset) -> Wish {
    Wish {
        mixer: Some(mixer.into()),
        dataset: Some(dataset),
        ..Wish::default()
    }
}

/// After the last epoch, chosen on validation data, best.
fn result(config: &RunConfig, [last, selected, best]: [f64; 3]) -> RunResult {
    let selects = Record::planned(config).count("val_examples") > 0;
    let mut result = done(last);
    let selected = Some(selected).filter(|_| selects);
    result.metrics = result
        .metrics
        .with("best_accuracy", best)
        .with("selected_accuracy", selected)
        .with("val_accuracy", selected)
        .with("majority", 0.175);
    result
}

fn row(wish: &Wish, accuracies: [f64; 3]) -> Record {
    let config = wish.resolve(Task::Lra).unwrap();
    Record::new(&config, &result(&config, accuracies))
}

/// A run that reached 0.5, 0.6 and 0.7.
fn usual(mixer: &str, dataset: LraDataset) -> Record {
    row(&wish(mixer, dataset), [0.5, 0.6, 0.7])
}

fn changed(dataset: LraDataset, change: impl FnOnce(&mut Wish)) -> Record {
    let mut wish = wish("softmax", dataset);
    change(&mut wish);
    row(&wish, [0.5, 0.6, 0.7])
}

fn asked(which: &'static Paper, rows: &[Record], asked: &Asked) -> Tables {
    accuracies(which, rows, None, &presets_of, asked).unwrap()
}

fn third(rows: &[Record]) -> Tables {
    asked(&LONG_RANGE_ARENA, rows, &Asked::default())
}

fn text(tables: &Tables) -> String {
    tables.render(Format::Text, false)
}
