//! The number of pairs recalled over the size of the state.

use super::page::Page;
use super::{ends, measured, number, percent, planned, result_file, runs, texts, thousands, without_skill};
use crate::cli::World;

const FILE: &str = "frontier-small.csv";

pub fn frontier(page: &Page) {
    let rows = measured(FILE);
    page.beside(&rows).says(
        "(V = {vocab_size}, L = {seq_len}, d = {d}, {train_examples,} new examples in each of at most {epochs_max} \
         epochs, {lr#} rates, {seed#} seeds, `{protocol}`;",
        &[],
    );
    let mut pairs: Vec<u32> = rows.iter().map(|run| run["kv_pairs"].parse().unwrap()).collect();
    pairs.sort_unstable();
    pairs.dedup();
    page.says("{}, {} and {} pairs were tried", &pairs.iter().map(u32::to_string).collect::<Vec<_>>());

    let report = World::new().dsf(&format!("report {} --figure frontier", result_file(FILE).display())).ok();
    let lines: Vec<Vec<&str>> = report.lines().map(|line| line.split_whitespace().collect()).collect();
    let beginning = |first: &str| lines.iter().find(|words| words.first() == Some(&first)).unwrap();
    let sizes = beginning("mixer").iter().rev().take(4).rev().map(thousands).collect::<Vec<_>>();
    page.says("| mixer | {} numbers | {} | {} | {} |", &sizes);
    let mixers = ["ssd", "s6", "gla", "linear"];
    for mixer in mixers {
        page.has_line(mixer, &beginning(mixer)[1..].iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    assert!(mixers.iter().all(|mixer| beginning(mixer)[1] == "<2" && runs(&rows, &[("mixer", mixer)]).len() == 48));
    assert!(beginning("linear")[1..].iter().all(|half| *half == "<2"));

    let linear = runs(&rows, &[("mixer", "linear"), ("kv_pairs", "2")]).into_iter();
    page.says(
        "at most {} % of the answers are right, where positions alone answer {} %.",
        &[percent(ends(linear.map(|run| number(run, "accuracy")))[1]), percent(without_skill(FILE, "k=2"))],
    );
    let all = planned("frontier-small");
    page.says("{} of the {} runs are left", &texts![all - rows.len(), all]);
}
