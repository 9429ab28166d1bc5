//! `dsf data generate retrieval`: pairs of text in the place of papers that cannot be had.

use super::place::Place;
use crate::cli::{exit, print, Global};
use crate::error::{refuse, Result};
use crate::store::Staging;
use crate::tasks::lra::write_stand_in;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Below the data root.
const FOLDER: &str = "retrieval";
/// Of the files there.
const FIRST: &str = "new_aan_pairs.train.tsv";

#[derive(Args)]
pub(super) struct Arguments {
    /// Plain text in which an article begins at a line ` = Title = `, such as that of WikiText.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Training pairs.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    train_examples: usize,
    /// Validation pairs.
    #[arg(long, value_name = "N", default_value_t = 200)]
    val_examples: usize,
    /// Test pairs.
    #[arg(long, value_name = "N", default_value_t = 400)]
    test_examples: usize,
    #[command(flatten)]
    place: Place,
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    let sizes = [
        ("--train-examples", arguments.train_examples),
        ("--val-examples", arguments.val_examples),
        ("--test-examples", arguments.test_examples),
    ];
    if let Some((flag, size)) = sizes.iter().find(|(_, size)| *size > 10_000_000) {
        refuse!("{flag} must be at most 10000000, not {size}");
    }
    let place = &arguments.place;
    let root = place.root()?;
    let folder = root.join(FOLDER);
    if folder.join(FIRST).exists() && !place.force {
        refuse!(
            "{} is there already; --force replaces it, --data-dir DIR names another place",
            folder.display()
        );
    }
    let sizes = sizes.map(|(_, size)| size);
    let files = Staging::of(&folder)?;
    write_stand_in(&arguments.from, files.path(), sizes, place.data_seed)?;
    files.publish()?;
    let [train, val, test] = sizes;
    if global.json {
        let event = json!({
            "event": "data", "schema": 1, "dataset": "retrieval", "state": "generated",
            "path": folder, "examples": train + val + test,
        });
        print::line(&event.to_string())?;
        return Ok(exit::DONE);
    }
    let dir = place.flag();
    print::line(&format!(
        "retrieval: {} pairs written, {}; use them by `dsf lra --dataset retrieval{dir} \
         --train-examples {train} --val-examples {val} --test-examples {test}`; they stand in for \
         the task's papers, and what is learnt from them says nothing about those",
        train + val + test,
        folder.display()
    ))?;
    Ok(exit::DONE)
}
