//! The number of pairs recalled over the size of the state.

use super::page::Page;
use super::{
    by_rate, ends, measured, number, percent, planned, result_file, runs, texts, thousands, without_skill, Row, SOLVED,
};
use crate::cli::World;
use std::collections::BTreeSet;

const FILE: &str = "frontier-small.csv";

pub fn frontier(page: &Page) {
    let rows = measured(FILE);
    page.beside(&rows).says(
        "(V = {vocab_size}, L = {seq_len}, d = {d}, {train_examples,} new examples in each of at most {epochs_max} \
         epochs, {lr#} rates, {seed#} seeds, `{protocol}`;",
        &[],
    );
    let pairs: BTreeSet<u32> = rows.iter().map(|run| run["kv_pairs"].parse().unwrap()).collect();
    page.says("{}, {} and {} pairs were tried", &pairs.iter().map(u32::to_string).collect::<Vec<_>>());
    assert_eq!(rows.len(), planned("frontier-small"));

    let report = World::new().dsf(&format!("report {} --figure frontier", result_file(FILE).display())).ok();
    let lines: Vec<Vec<&str>> = report.lines().map(|line| line.split_whitespace().collect()).collect();
    let beginning = |first: &str| lines.iter().find(|words| words.first() == Some(&first)).unwrap();
    let sizes = beginning("mixer").iter().rev().take(6).rev().map(thousands).collect::<Vec<_>>();
    page.says("| mixer | {} numbers | {} | {} | {} | {} | {} |", &sizes);
    let mixers = ["ssd", "delta-net", "s6", "mamba2", "gla", "linear", "lstm", "softmax"];
    for mixer in mixers {
        page.has_line(mixer, &beginning(mixer)[1..].iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    assert!(mixers.iter().all(|mixer| ["<2", "-"].contains(&beginning(mixer)[2])), "with some 512 numbers");
    assert!(["linear", "lstm"].iter().all(|mixer| beginning(mixer)[1..].iter().all(|half| ["<2", "-"].contains(half))));

    let smallest = |mixer: &str, pairs: &str| thousands(smallest_state(&rows, mixer, pairs));
    page.says(
        "SSD recalls all pairs that were tried with {} numbers and more, DeltaNet with {} and S6 with {}. Softmax \
         attention recalls them, too, with {} numbers,",
        &["ssd", "delta-net", "s6", "softmax"].map(|mixer| smallest(mixer, "8")),
    );
    page.says(
        "it recalls two pairs with {} numbers and four with {}.",
        &["2", "4"].map(|pairs| smallest("mamba2", pairs)),
    );
    let most = |mixer: &str| {
        let own = runs(&rows, &[("mixer", mixer), ("kv_pairs", "2")]).into_iter();
        percent(ends(own.map(|run| number(run, "accuracy")))[1])
    };
    page.says(
        "at most {} % of the answers are right, where positions alone answer {} %.",
        &[most("linear"), percent(without_skill(FILE, "k=2"))],
    );
    page.says(
        "whose state of {} numbers depends on its width alone, does not recall two pairs either (at most {} %).",
        &[runs(&rows, &[("mixer", "lstm")])[0]["state_size"].clone(), most("lstm")],
    );
    page.says("With some {} numbers no mixer recalls two pairs", &texts![512]);
    page.says("in {} runs for GPUs", &[thousands(planned("frontier"))]);
}

/// The least size of the state from which on, at the better rate, half of the seeds solve the task.
fn smallest_state(rows: &[Row], mixer: &str, pairs: &str) -> u32 {
    let own = runs(rows, &[("mixer", mixer), ("kv_pairs", pairs)]);
    let sizes: BTreeSet<u32> = own.iter().map(|run| run["state_size"].parse().unwrap()).collect();
    let recalls = |size: &&u32| {
        let at: Vec<&Row> = own.iter().copied().filter(|run| run["state_size"] == size.to_string()).collect();
        let solved = |seeds: &[f64]| seeds.iter().filter(|accuracy| **accuracy > SOLVED).count();
        by_rate(&at).iter().any(|(_, seeds)| 2 * solved(seeds) >= seeds.len())
    };
    *sizes.iter().rev().take_while(recalls).last().unwrap_or_else(|| panic!("{mixer}, {pairs} pairs"))
}
