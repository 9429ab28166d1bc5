//! Small results, and the tables of the paper that they must give.

mod choice;
mod forms;

use super::*;
use crate::config::Protocol;
use crate::recipes::{presets_of, Wish};
use crate::store::samples::done;
use crate::store::RunResult;
use crate::tasks::lra::LraDataset;

fn wish(mixer: &str, dataset: LraDataset) -> Wish {
    Wish::of("lra", &[("mixer", mixer), ("dataset", dataset.name())])
}

/// After the last epoch, chosen on validation data, best.
fn result(config: &RunConfig, [last, selected, best]: [f64; 3]) -> RunResult {
    let selects = Row::planned(config).val_examples.is_some_and(|n| n > 0);
    RunResult {
        best_accuracy: Some(best),
        selected_accuracy: Some(selected).filter(|_| selects),
        val_accuracy: Some(selected).filter(|_| selects),
        majority: Some(0.175),
        ..done(last)
    }
}

fn row(wish: &Wish, accuracies: [f64; 3]) -> Row {
    let config = wish.run();
    Row::new(&config, &result(&config, accuracies))
}

/// A run that reached 0.5, 0.6 and 0.7.
fn usual(mixer: &str, dataset: LraDataset) -> Row {
    row(&wish(mixer, dataset), [0.5, 0.6, 0.7])
}

fn changed(dataset: LraDataset, change: impl FnOnce(&mut Wish)) -> Row {
    let mut wish = wish("softmax", dataset);
    change(&mut wish);
    row(&wish, [0.5, 0.6, 0.7])
}

fn asked(which: &'static Paper, rows: &[Row], asked: &Asked) -> Tables {
    accuracies(which, rows, None, &presets_of, asked).unwrap()
}

fn third(rows: &[Row]) -> Tables {
    asked(&LONG_RANGE_ARENA, rows, &Asked::default())
}

fn text(tables: &Tables) -> String {
    tables.render(Format::Text, false)
}
