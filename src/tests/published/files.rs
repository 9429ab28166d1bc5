//! The table of files in `results/README.md`, and the builds that made them.

use super::page::Page;
use super::{distinct, ends, measured, number, only, planned, text_of, texts, thousands, words, Row, RESULTS};

/// Texts of the table of files on the runs of a summary.
const FILES: [(&str, &str); 26] = [
    (
        "mqar-small.csv",
        "{mixer#} mixers at {lr#} learning rates, at a size that anyone can repeat: V = {vocab_size}, L = {seq_len}, \
         {kv_pairs} pairs, {train_examples,} examples, d = {d}, n = {n>}",
    ),
    (
        "mqar-quick.csv",
        "`dsf mqar`: V = {vocab_size}, L = {seq_len}, {kv_pairs} pairs, {train_examples,} examples, d = {d}, n = \
         {n>}, rate {lr}, seed {seed}; {runs} runs",
    ),
    ("figure1-small.csv", "softmax and linear attention over n, {lr#} rates, {seed#} seeds, {runs} runs"),
    ("figure2-small.csv", "the paper's {mixer#} mixers over d, {lr#} rates, {seed#} seeds, {runs} runs"),
    ("figure2-small-matched.csv", "with the same block, d = {d}, {runs} runs"),
    ("figure2-small-steps.csv", "S6 and SSD, both with Mamba's initial step sizes, {runs} runs"),
    ("figure3-small.csv", "the plain and the reversed qLSTM over d, {lr#} rates, {seed#} seeds, {runs} runs"),
    ("frontier-small.csv", "with states of {state_size<} to {} numbers; {lr#} rates, {seed#} seeds, {runs} runs"),
    ("survey.csv", "with all {seed#} seeds of the survey: {runs} runs"),
    (
        "mad-small.csv",
        "the {dataset#} tasks of MAD at small sizes, all {} mixers, {lr#} rates, {seed#} seed, {runs} runs",
    ),
    ("mad-small-seed124.csv", "{mixer#} mixers of the same study with a second seed, {runs} runs"),
    (
        "state-tracking-small.csv",
        "trained at {seq_len} tokens and tested at {test_seq_len}, by {mixer#} mixers, DeltaNet with and without \
         negative eigenvalues, {seed#} seeds, {runs} runs",
    ),
    (
        "copying-small.csv",
        "trained on {} tokens and tested on {}, {form#} forms, {mixer#} mixers, with sinusoidal positions and \
         without, {runs} runs",
    ),
    ("h3-table1.csv", "Table 1 of Fu et al. (2023) at its size, {mixer#} mixers, {runs} runs"),
    (
        "hybrids-small.csv",
        "MQAR at L = {seq_len} with {kv_pairs} pairs by {mixer#} mixers with and without layers of attention or \
         windows, {lr#} rates, {seed#} seeds, {runs} runs",
    ),
    ("heads-small.csv", "attention with {heads<} to {heads>} heads, {lr#} rates, {seed#} seeds, {runs} runs"),
    (
        "states-small.csv",
        "with {} to {} states per channel, two rates, two seeds; SSD with one decay and with one per channel, {lr#} \
         rates, {seed#} seeds; {runs} runs",
    ),
    (
        "hippo-small.csv",
        "copies of {copy_tokens} tokens in sequences of {seq_len<} to {seq_len>}, {seed#} seeds, {runs} runs",
    ),
    (
        "recall-parts-small.csv",
        "on MQAR (V = {vocab_size}, L = {seq_len}, {kv_pairs} pairs, d = {d}, n = {n}) with new examples in every \
         epoch, {lr#} rates, {seed#} seeds, {runs} runs",
    ),
    (
        "mqar-paper-cell.csv",
        "V = {vocab_size}, L = {seq_len}, {kv_pairs} pairs, {train_examples,} examples, d = n = {d}, rate {lr}",
    ),
    (
        "figure7-cell.csv",
        "L = {seq_len}, {kv_pairs} pairs, V = {vocab_size}, {train_examples,} examples, d = n = {d}, the paper's \
         {mixer#} mixers and {lr#} rates, {seed#} seed, {runs} runs",
    ),
    (
        "figure7-init.csv",
        "d = n = {d}, {lr#} of the paper's four rates, {seed#} seeds; {runs} of {} runs, of {} in the experiment",
    ),
    ("mqar-gpu-cell.csv", "the same cell with {seed#} seeds of softmax and SSD on an H100"),
    (
        "lra-small.csv",
        "on generated ListOps (L up to {}) and Pathfinder (paths of {} paddles, fewer than the paper's), on {} IMDB \
         reviews and {} CIFAR pictures",
    ),
    (
        "lra-listops.csv",
        "on generated ListOps ({train_examples,} examples, L up to {seq_len}) at {lr#} rates, {epochs_max} epochs, \
         two threads",
    ),
    (
        "wikitext-small.csv",
        "by the byte ({} windows of {seq_len}) and by GPT-NeoX's tokenizer ({}; {} windows of each other split)",
    ),
];

/// Values of the text of a file in [`FILES`].
fn values_of(file: &str, rows: &[Row]) -> Vec<String> {
    let of = |dataset: &str, column: &str| only(rows, &[("dataset", dataset)])[column].clone();
    let largest = |column| thousands(ends(rows.iter().map(|row| number(row, column)))[1]);
    match file {
        "mad-small.csv" => texts![distinct(rows, "mixer").len()].to_vec(),
        // A string and its copy make up L.
        "copying-small.csv" => {
            ["seq_len", "test_seq_len"].map(|column| (number(&rows[0], column) / 2.0).to_string()).to_vec()
        }
        "states-small.csv" => {
            let counts =
                rows.iter().filter(|row| row["mixer"] != "ssd").map(|row| row["options"].replace("states=", ""));
            ends(counts.map(|count| count.parse().unwrap_or(1.0))).map(|count| count.to_string()).to_vec()
        }
        "figure7-init.csv" => {
            let grid: usize = ["options", "lr", "seed"].iter().map(|column| distinct(rows, column).len()).product();
            texts![grid, planned("figure7-init")].to_vec()
        }
        "frontier-small.csv" => vec![largest("state_size")],
        "lra-small.csv" => vec![
            of("listops", "seq_len"),
            of("pathfinder", "contour_length"),
            of("text", "train_examples"),
            of("image", "train_examples"),
        ],
        "wikitext-small.csv" => {
            let least = ends(rows.iter().map(|row| number(row, "train_examples")))[0];
            vec![largest("train_examples"), thousands(least), largest("test_examples")]
        }
        _ => Vec::new(),
    }
}

#[test]
fn every_number_in_the_table_of_files_is_that_of_the_file() {
    let text = text_of(RESULTS);
    let known = |line: &&str| FILES.iter().any(|(file, _)| line.starts_with(&format!("| `{file}`")));
    let described = text.lines().filter(known).map(|line| line.split('|').nth(2).unwrap());
    let page = Page::new(&described.collect::<Vec<_>>().join("\n"));
    for (file, text) in FILES {
        let rows = measured(file);
        page.beside(&rows).says(text, &values_of(file, &rows));
    }
    page.assert_all_compared();
}

#[test]
fn the_builds_that_made_a_file_are_counted() {
    let page = Page::new(&text_of(RESULTS));
    let [survey, mad, copying, tracking] =
        ["survey.csv", "mad-small.csv", "copying-small.csv", "state-tracking-small.csv"].map(measured);
    let of = |rows: &[Row], commit: &str| -> Vec<Row> {
        rows.iter().filter(|row| row["git_commit"].starts_with(commit)).cloned().collect()
    };
    page.beside(&survey).says(
        "`survey.csv` comes from {git_commit#} builds ({} of its rows from 3317e17),",
        &texts![of(&survey, "3317e17").len()],
    );
    let [on_a_gpu, first] = ["a4270a4", "1aa20b3"].map(|commit| distinct(&of(&mad, commit), "mixer").len());
    let others = distinct(&mad, "mixer").len() - on_a_gpu - first;
    page.beside(&mad).says(
        "`mad-small.csv` comes from {git_commit#}: {} mixers from a4270a4 on an H100, {} from 1aa20b3 and {} from two \
         others on a CPU;",
        &texts![on_a_gpu, words(first), words(others)],
    );
    page.beside(&copying)
        .says("`copying-small.csv`, `state-tracking-small.csv` and `bench-gpu.csv` come from {git_commit#} each:", &[]);
    assert_eq!(distinct(&tracking, "git_commit").len(), 2);
    let groups = |commit| distinct(&of(&tracking, commit), "group").into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!([groups("a4270a4"), groups("2be22b1")], ["s3 z2", "s5 z5"]);
}
