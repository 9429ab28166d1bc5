//! Verdicts on claims where the right one is known by construction.

use super::*;
use crate::ops::rng::Rng;
use crate::recipes;
use crate::report::claims::claims;
use crate::store::samples::{config, diverged, done, read, text_config};
use crate::tasks::lra::LraDataset;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A grid small enough to be made by the thousand.
const SIZES: [(usize, usize); 2] = [(64, 4), (128, 8)];
const WIDTHS: [usize; 2] = [64, 128];
const STATES: [usize; 2] = [32, 64];
const RATES: [f64; 2] = [1e-3, 1e-2];

/// One run of MQAR.
#[derive(Clone, Copy)]
struct Run {
    mixer: &'static str,
    size: (usize, usize),
    d: usize,
    n: usize,
    lr: f64,
    seed: usize,
}

/// Makes rows of MQAR without a config each, which a thousand folders would wait for.
struct Rows {
    row: Record,
    diverged: Record,
    rows: Vec<Record>,
}

impl Rows {
    /// In the paper's sizes, or with a hundredth of its examples.
    fn new(train_examples: usize) -> Self {
        let mut config = config();
        config.protocol = Protocol::Reference;
        config.task.set("train_examples", train_examples);
        Self {
            row: Record::new(&config, &done(0.5)),
            diverged: Record::new(&config, &diverged()),
            rows: Vec::new(),
        }
    }

    fn push(&mut self, run: Run, accuracy: Option<f64>) {
        let mut row = match accuracy {
            Some(_) => self.row.clone(),
            None => self.diverged.clone(),
        };
        row.set("run_id", format!("{:012x}", self.rows.len()).as_str());
        row.set("mixer", run.mixer);
        row.set("seq_len", run.size.0);
        row.set("kv_pairs", run.size.1);
        row.set("d", run.d);
        row.set("n", run.n);
        row.set("lr", run.lr);
        row.set("seed", run.seed);
        if let Some(accuracy) = accuracy {
            row.set("accuracy", accuracy);
        }
        self.rows.push(row);
    }

    /// Every cell of the small grid at both rates and `seeds`.
    fn grid(
        &mut self,
        mixer: &'static str,
        seeds: std::ops::Range<usize>,
        mut accuracy: impl FnMut(Run) -> Option<f64>,
    ) {
        for size in SIZES {
            for (d, n) in WIDTHS.into_iter().flat_map(|d| STATES.map(|n| (d, n))) {
                for (lr, seed) in RATES
                    .into_iter()
                    .flat_map(|lr| seeds.clone().map(move |s| (lr, s)))
                {
                    let run = Run {
                        mixer,
                        size,
                        d,
                        n,
                        lr,
                        seed,
                    };
                    self.push(run, accuracy(run));
                }
            }
        }
    }
}

/// The paper's preset of a row, whose d and n are open.
fn full(row: &Record) -> Vec<(&'static str, Record)> {
    // Made once: a simulation asks for thousands.
    static PLANNED: LazyLock<[Record; 2]> =
        LazyLock::new(|| [text_config(), config()].map(|config| Record::planned(&config)));
    let [of_text, of_recall] = &*PLANNED;
    let mut preset = match row.text("task") {
        "wikitext" => of_text.clone(),
        _ => of_recall.clone(),
    };
    for name in ["seq_len", "kv_pairs"] {
        preset.set(name, row.count(name));
    }
    preset.set("options", row.text("options"));
    if row.text("task") != "wikitext" {
        preset.set("d", 0usize);
        preset.set("n", 0usize);
    }
    vec![("paper", preset)]
}

fn judged(rows: &[Record]) -> Report {
    claims(rows, &full, &Asked::default()).unwrap()
}

/// The records of `claim` for programs, at the paper's sizes or at others.
fn records<'a>(
    report: &'a Report,
    level: &str,
    claim: &str,
) -> Vec<BTreeMap<&'a str, &'a serde_json::Value>> {
    let wanted = [("level", level), ("claim", claim), ("role", "claim")];
    let records = report.grids.iter().flat_map(|grid| &grid.records);
    let records = records.filter(|record| {
        let has =
            |(name, value): &(&str, &str)| record.iter().any(|(n, v)| n == name && v == value);
        wanted.iter().all(has)
    });
    let named = records.map(|record| {
        let pairs = record.iter().map(|(name, value)| (name.as_str(), value));
        pairs.collect()
    });
    named.collect()
}

fn verdict(report: &Report, level: &str, claim: &str) -> String {
    let records = records(report, level, claim);
    let verdict = records.first().map(|record| record["verdict"]);
    verdict.map_or(String::new(), |v| v.as_str().unwrap().to_owned())
}

fn noise(name: &str, seed: u64) -> impl FnMut() -> f64 {
    let mut stream = Rng::new(seed, name, 0);
    move || stream.normals().0
}

/// Normalized attention `effect` above linear attention in every cell, in a study of `seeds`.
fn compared(effect: f64, seeds: usize) -> Rows {
    let mut rows = Rows::new(1000);
    let mut noise = noise("compared", 1);
    for (mixer, above) in [("linear", 0.0), ("normalized", effect)] {
        rows.grid(mixer, 0..seeds, |_| Some(0.5 + above + 0.02 * noise()));
    }
    rows
}

const BEATS: &str = "normalized-beats-linear";

#[test]
fn a_true_effect_is_supported_its_reverse_is_not_and_none_is_undecided() {
    for (effect, wanted) in [
        (0.1, "supported"),
        (-0.1, "not supported"),
        (0.0, "undecided"),
    ] {
        let report = judged(&compared(effect, 4).rows);
        assert_eq!(verdict(&report, "reduced", BEATS), wanted, "{effect}");
        assert_eq!(verdict(&report, "paper", BEATS), "undecided");
        let found = &records(&report, "reduced", BEATS)[0];
        let [low, mean, high] = ["low", "effect", "high"].map(|name| found[name].as_f64().unwrap());
        assert!(low < mean && mean < high, "{found:?}");
        assert!((mean - effect).abs() < 0.02, "{found:?}");
        assert_eq!(
            (found["cells"].as_u64(), found["seeds"].as_u64()),
            (Some(8), Some(4))
        );
        assert_eq!(found["paired"], true);
    }
}

#[test]
fn too_few_seeds_decide_nothing_and_the_missing_ones_are_counted() {
    let report = judged(&compared(0.3, 2).rows);
    let found = &records(&report, "reduced", BEATS)[0];
    assert_eq!(found["verdict"], "undecided");
    // One seed more in 8 cells, of 2 mixers, at 2 rates.
    assert_eq!(found["runs_needed"].as_u64(), Some(32));
    let reason = found["reason"].as_str().unwrap();
    assert_eq!(reason, "a verdict needs 3 seeds, and there are 2");
    let command = found["command"].as_str().unwrap();
    assert_eq!(
        command,
        "dsf sweep --task mqar --preset paper --protocol reference --train-examples 1000 \
         --mixer normalized,linear --sizes 128:8,64:4 --d 64,128 --n 32,64 --lr 0.001,0.01 --seed 0,1,2"
    );
    assert!(
        text(&report).contains("undecided: needs 32 runs"),
        "{}",
        text(&report)
    );
}

#[test]
fn a_seed_that_diverged_at_every_rate_asks_for_a_lower_one() {
    let mut rows = compared(0.3, 3);
    rows.grid("s6", 0..3, |run| {
        (run.seed != 1 || run.d != 64).then_some(0.5)
    });
    rows.grid("ssd", 0..3, |_| Some(0.9));
    let report = judged(&rows.rows);
    let found = &records(&report, "reduced", "ssd-beats-s6")[0];
    assert_eq!(found["verdict"], "undecided");
    assert!(
        found["reason"].as_str().unwrap().contains("diverged"),
        "{found:?}"
    );
    assert!(
        found["command"]
            .as_str()
            .unwrap()
            .contains("--lr 0.001,0.01,2.50e-4"),
        "{found:?}"
    );
    // 8 cells, 2 mixers, 3 seeds at the lower rate; what diverged is not trained again.
    assert_eq!(found["runs_needed"].as_u64(), Some(48));
    assert_eq!(
        verdict(&report, "reduced", BEATS),
        "supported",
        "others stand"
    );
}

#[test]
fn a_rate_at_which_one_seed_diverged_is_not_taken_where_there_is_another() {
    let mut rows = compared(0.1, 3);
    for row in &mut rows.rows {
        let unstable = row.number("lr") == Some(1e-2) && row.count("seed") == 0;
        if row.text("mixer") == "normalized" && unstable {
            row.set("outcome", "diverged");
        }
    }
    assert_eq!(verdict(&judged(&rows.rows), "reduced", BEATS), "supported");
}

/// Who tries more rates finds more: only those that both tried count.
#[test]
fn mixers_are_compared_at_the_rates_that_both_tried() {
    let mut rows = compared(0.0, 4);
    let lucky: Vec<Record> = rows
        .rows
        .iter()
        .filter(|r| r.text("mixer") == "normalized")
        .cloned()
        .collect();
    for mut row in lucky {
        row.set("lr", 3e-3);
        row.set("accuracy", 0.9);
        row.set("run_id", format!("{}f", &row.run_id()[1..]).as_str());
        rows.rows.push(row);
    }
    assert_eq!(verdict(&judged(&rows.rows), "reduced", BEATS), "undecided");
}

#[test]
fn different_seeds_are_compared_without_pairing() {
    let mut rows = Rows::new(1000);
    let mut noise = noise("unpaired", 1);
    rows.grid("linear", 0..4, |_| Some(0.5 + 0.02 * noise()));
    rows.grid("normalized", 4..8, |_| Some(0.6 + 0.02 * noise()));
    let report = judged(&rows.rows);
    let found = &records(&report, "reduced", BEATS)[0];
    assert_eq!(
        (found["verdict"].as_str(), found["paired"].as_bool()),
        (Some("supported"), Some(false))
    );
}

#[test]
fn saturated_runs_say_nothing_about_who_is_better() {
    let mut rows = Rows::new(1000);
    rows.grid("linear", 0..5, |run| Some(0.991 + 1e-4 * run.seed as f64));
    rows.grid("normalized", 0..5, |run| {
        Some(0.998 - 1e-4 * run.seed as f64)
    });
    assert_eq!(verdict(&judged(&rows.rows), "reduced", BEATS), "undecided");
}

#[test]
fn a_claim_about_each_task_needs_all_and_one_contradicts() {
    let mut noise = noise("each", 1);
    let mut gates = |effects: [f64; 2]| {
        let mut rows = Rows::new(1000);
        rows.grid("qlstm", 0..4, |_| Some(0.4 + 0.01 * noise()));
        rows.grid("qlstm-reversed", 0..4, |run| {
            let effect = effects[usize::from(run.size.0 == 128)];
            Some(0.4 + effect + 0.01 * noise())
        });
        // They have no state expansion.
        rows.rows.retain(|row| row.count("n") == 32);
        verdict(&judged(&rows.rows), "reduced", "reversed-beats-plain")
    };
    assert_eq!(gates([0.1, 0.1]), "supported");
    assert_eq!(gates([0.1, 0.0]), "undecided");
    assert_eq!(gates([0.1, -0.1]), "not supported");
}

#[test]
fn a_trend_over_a_single_value_asks_for_another() {
    let mut rows = compared(0.3, 3);
    rows.grid("softmax", 0..3, |_| Some(0.9));
    rows.rows.retain(|row| row.count("n") == 32);
    let report = judged(&rows.rows);
    let found = &records(&report, "reduced", "linear-approaches-softmax")[0];
    assert_eq!(found["verdict"], "undecided");
    assert_eq!(found["reason"], "a trend over --n needs two of its values");
    // Of 2 sizes and 2 widths, 2 mixers at 2 rates with 3 seeds.
    assert_eq!(found["runs_needed"].as_u64(), Some(48));
    let command = found["command"].as_str().unwrap();
    assert!(command.contains(" --n 32,64 "), "{command}");
}

#[test]
fn slopes_are_taken_over_doublings_of_n() {
    let mut noise = noise("slopes", 1);
    let mut approaching = |closed: f64| {
        let mut rows = Rows::new(1000);
        rows.grid("softmax", 0..4, |_| Some(0.9 + 0.01 * noise()));
        rows.grid("linear", 0..4, |run| {
            let doublings = (run.n / 32).ilog2() as f64;
            Some(0.5 + closed * doublings + 0.01 * noise())
        });
        judged(&rows.rows)
    };
    let report = approaching(0.2);
    assert_eq!(
        verdict(&report, "reduced", "linear-approaches-softmax"),
        "supported"
    );
    let slope = records(&report, "reduced", "linear-approaches-softmax")[0]["effect"].as_f64();
    assert!((slope.unwrap() + 0.2).abs() < 0.02, "{slope:?}");
    assert_eq!(
        verdict(&report, "reduced", "larger-n-hurts-at-small-d"),
        "undecided"
    );
    let report = approaching(-0.2);
    assert_eq!(
        verdict(&report, "reduced", "linear-approaches-softmax"),
        "not supported"
    );
    assert_eq!(
        verdict(&report, "reduced", "larger-n-hurts-at-small-d"),
        "supported"
    );
}

/// A gap that shrinks and stays wide is a trend, and no convergence.
#[test]
fn to_reach_softmax_is_to_be_within_the_margin_at_the_largest_n() {
    let mut noise = noise("reach", 1);
    let mut at = |last: f64| {
        let mut rows = Rows::new(1000);
        rows.grid("softmax", 0..4, |_| Some(0.9 + 0.01 * noise()));
        rows.grid("linear", 0..4, |run| {
            let accuracy = if run.n == 64 { last } else { 0.5 };
            Some(accuracy + 0.01 * noise())
        });
        let report = judged(&rows.rows);
        ["linear-approaches-softmax", "linear-reaches-softmax"]
            .map(|claim| verdict(&report, "reduced", claim))
    };
    assert_eq!(at(0.55), ["supported", "not supported"]);
    assert_eq!(at(0.89), ["supported", "supported"]);
}

#[test]
fn one_value_of_n_is_no_limit() {
    let mut rows = Rows::new(1000);
    let mut noise = noise("limit", 1);
    rows.grid("softmax", 0..4, |_| Some(0.9 + 0.01 * noise()));
    rows.grid("linear", 0..4, |_| Some(0.5 + 0.01 * noise()));
    rows.rows.retain(|row| row.count("n") == 32);
    let report = judged(&rows.rows);
    let found = &records(&report, "reduced", "linear-reaches-softmax")[0];
    assert_eq!(found["verdict"], "undecided");
    assert_eq!(found["reason"], "a trend over --n needs two of its values");
}

#[test]
fn a_fall_with_n_counts_where_the_task_is_largest_and_d_smallest() {
    let mut noise = noise("falls", 1);
    let mut falls_at = |length: usize, d: usize| {
        let mut rows = Rows::new(1000);
        rows.grid("normalized", 0..4, |run| {
            let falls = run.n == 64 && (run.size.0, run.d) == (length, d);
            Some(if falls { 0.3 } else { 0.5 } + 0.01 * noise())
        });
        let report = judged(&rows.rows);
        let claim = "larger-n-hurts-at-small-d";
        let found = &records(&report, "reduced", claim)[0];
        assert_eq!(found["cells"].as_u64(), Some(2), "two values of n");
        verdict(&report, "reduced", claim)
    };
    assert_eq!(falls_at(128, 64), "supported");
    assert_eq!(falls_at(64, 64), "undecided");
    assert_eq!(falls_at(128, 128), "undecided");
}

#[test]
fn on_par_is_a_matter_of_the_margin() {
    let mut noise = noise("par", 1);
    let mut at = |apart: f64, spread: f64| {
        let mut rows = Rows::new(1000);
        rows.grid("s6", 0..4, |_| Some(0.5 + spread * noise()));
        rows.grid("normalized", 0..4, |_| Some(0.5 + apart + spread * noise()));
        verdict(&judged(&rows.rows), "reduced", "normalized-on-par-with-s6")
    };
    assert_eq!(at(0.02, 0.01), "supported");
    assert_eq!(at(0.1, 0.01), "not supported");
    assert_eq!(at(0.0, 0.4), "undecided");
}

/// Table 1 of three seeds.
fn perplexities(normalized: f64) -> Report {
    let mut rows = Vec::new();
    let mut noise = noise("gap", 1);
    for (mixer, ppl) in [
        ("linear", 17.42),
        ("normalized", normalized),
        ("softmax", 13.15),
    ] {
        for seed in 0..3 {
            let mut config = text_config();
            (config.model.mixer, config.seed) = (mixer.to_owned(), seed);
            rows.push(Record::new(&config, &read(ppl + 0.02 * noise())));
        }
    }
    judged(&rows)
}

#[test]
fn the_share_of_a_gap_is_judged_at_the_papers_sizes_where_its_cell_is_whole() {
    assert_eq!(
        verdict(&perplexities(16.43), "paper", "gap-in-perplexity"),
        "supported"
    );
    assert_eq!(
        verdict(&perplexities(15.0), "paper", "gap-in-perplexity"),
        "not supported"
    );
    assert_eq!(
        verdict(&perplexities(16.43), "reduced", "gap-in-perplexity"),
        ""
    );
}

#[test]
fn a_part_of_the_papers_grid_is_no_verdict_at_the_papers_sizes() {
    let mut rows = compared(0.2, 3);
    rows.rows
        .iter_mut()
        .for_each(|row| row.set("train_examples", 100_000usize));
    let report = judged(&rows.rows);
    let found = &records(&report, "paper", BEATS)[0];
    assert_eq!(found["verdict"], "undecided");
    // 64 cells, 2 mixers, 4 rates, 3 seeds, of which 8 cells have two rates.
    assert_eq!(
        found["runs_needed"].as_u64(),
        Some(64 * 2 * 4 * 3 - 8 * 2 * 2 * 3)
    );
    assert_eq!(verdict(&report, "reduced", BEATS), "supported");
    assert!(text(&report).contains("supported at these sizes"));
}

/// An RNN has no state expansion, whose one value no preset fixes.
#[test]
fn the_whole_grid_of_a_claim_is_judged_at_the_papers_sizes_alone() {
    let mut rows = Rows::new(100_000);
    let mut noise = noise("gates", 1);
    for (mixer, above) in [("qlstm", 0.0), ("qlstm-reversed", 0.1)] {
        for size in [(64, 4), (128, 8), (256, 16)] {
            for (d, seed) in [64, 128, 256, 512]
                .into_iter()
                .flat_map(|d| (0..3).map(move |s| (d, s)))
            {
                let run = Run {
                    mixer,
                    size,
                    d,
                    n: 1,
                    lr: 1e-3,
                    seed,
                };
                rows.push(run, Some(0.5 + above + 0.01 * noise()));
            }
        }
    }
    let report = judged(&rows.rows);
    assert_eq!(
        verdict(&report, "paper", "reversed-beats-plain"),
        "supported"
    );
    assert_eq!(verdict(&report, "reduced", "reversed-beats-plain"), "");
}

/// Three attentions on the arena with three seeds, as released but for the examples of what can be generated.
fn attentions_on_the_arena(data: &str) -> Report {
    let mut rows = Vec::new();
    let mut noise = noise("arena", 1);
    let accuracies = [("softmax", 0.5), ("linear", 0.4), ("normalized", 0.6)];
    let places = LraDataset::ALL.into_iter();
    for (dataset, (mixer, accuracy)) in places.flat_map(|d| accuracies.map(|of| (d, of))) {
        let own = match dataset {
            LraDataset::Listops | LraDataset::Pathfinder => data,
            _ => "files",
        };
        let named = [("mixer", mixer), ("dataset", dataset.name()), ("data", own)];
        let mut config = recipes::run("lra", &named).unwrap();
        if own == "files" {
            config.task.set("source_digest", "5c7e0d1f2a3b");
        }
        for seed in 0..3 {
            config.seed = seed;
            let accuracy = accuracy + 0.01 * noise();
            let mut result = done(accuracy);
            result.metrics = result
                .metrics
                .with("val_accuracy", accuracy)
                .with("selected_accuracy", accuracy);
            rows.push(Record::new(&config, &result));
        }
    }
    claims(&rows, &recipes::presets_of, &Asked::default()).unwrap()
}

#[test]
fn generated_examples_of_the_arena_are_never_at_the_papers_sizes() {
    let claim = "normalized-is-best-attention";
    let released = attentions_on_the_arena("files");
    assert_eq!(verdict(&released, "paper", claim), "supported");
    assert_eq!(verdict(&released, "reduced", claim), "");

    let generated = attentions_on_the_arena("native");
    let found = &records(&generated, "paper", claim)[0];
    assert_eq!(found["verdict"], "undecided");
    // Two tasks, three mixers, three seeds.
    assert_eq!(found["runs_needed"].as_u64(), Some(2 * 3 * 3));
    let command = found["command"].as_str().unwrap();
    assert!(command.contains(" --data files "), "{command}");
    let studies = records(&generated, "reduced", claim);
    let named = |study: &&BTreeMap<_, &serde_json::Value>| {
        let study = study["study"].as_str().unwrap();
        study == "protocol reference, preset paper, data=native"
    };
    let own = studies.iter().find(named).unwrap();
    assert_eq!(own["cells"].as_u64(), Some(2), "ListOps and Pathfinder");
}

#[test]
fn a_claim_judged_on_two_sources_of_examples_says_which_line_is_which() {
    let mut rows = compared(0.2, 3);
    let mut numpys = compared(0.2, 3);
    for row in &mut numpys.rows {
        row.set("data", "numpy");
        row.set("run_id", format!("{}b", &row.run_id()[1..]).as_str());
    }
    rows.rows.extend(numpys.rows);
    rows.rows
        .iter_mut()
        .for_each(|row| row.set("train_examples", 100_000usize));
    let report = judged(&rows.rows);
    let lines = report.grids[0].lines.iter();
    let of_claim = lines.filter(|line| line.name == BEATS);
    let under: Vec<String> = of_claim
        .map(|line| match &line.cells[0].content {
            Content::Text(text) => text.clone(),
            _ => String::new(),
        })
        .collect();
    assert_eq!(under, ["reference", "reference, data=numpy"]);
    let text = text(&report);
    assert!(
        text.contains("normalized-beats-linear, data=numpy (Figures 2 and 7)"),
        "{text}"
    );
}

#[test]
fn protocols_and_sizes_are_never_put_together() {
    let (mut rows, mut other) = (compared(0.2, 3), compared(0.2, 3));
    for row in &mut other.rows {
        row.set("protocol", "paper");
        row.set("run_id", format!("{}e", &row.run_id()[1..]).as_str());
    }
    rows.rows.extend(other.rows);
    let mut third = compared(-0.2, 3);
    for row in &mut third.rows {
        row.set("train_examples", 500usize);
        row.set("run_id", format!("{}d", &row.run_id()[1..]).as_str());
    }
    rows.rows.extend(third.rows);
    let report = judged(&rows.rows);
    let verdicts: Vec<&str> = records(&report, "reduced", BEATS)
        .iter()
        .map(|record| record["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(
        verdicts,
        ["supported", "supported", "not supported"],
        "{}",
        text(&report)
    );
}

#[test]
fn what_else_differs_between_mixers_and_what_is_left_out_is_said() {
    let mut rows = compared(0.2, 3);
    for row in &mut rows.rows {
        if row.text("mixer") == "linear" {
            row.set("state_mixer", "none");
        }
    }
    let heads: Vec<Record> = rows
        .rows
        .iter()
        .filter(|r| r.text("mixer") == "linear")
        .cloned()
        .collect();
    for mut row in heads {
        row.set("heads", 4usize);
        row.set("run_id", format!("{}c", &row.run_id()[1..]).as_str());
        rows.rows.push(row);
    }
    let text = text(&judged(&rows.rows));
    assert!(text.contains("differ in: state_mixer mlp / none"), "{text}");
    assert!(text.contains("left out: linear with heads=4"), "{text}");
}

/// How the accuracies of a simulated study are spread.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// Normally.
    Even,
    /// Some seeds learn, some do not, as is common on MQAR.
    Peaks,
    /// Each cell with a spread of its own.
    Uneven,
    /// About what training ends at.
    Saturated,
}

impl Spread {
    fn draw(self, run: Run, noise: &mut impl FnMut() -> f64) -> f64 {
        let value = match self {
            Self::Even => 0.5 + 0.1 * noise(),
            Self::Peaks if noise() > 0.0 => 0.95 + 0.01 * noise(),
            Self::Peaks => 0.3 + 0.01 * noise(),
            Self::Uneven => 0.5 + 0.3 * noise() * (run.n * run.d) as f64 / (64.0 * 128.0),
            Self::Saturated => 0.98 + 0.01 * noise(),
        };
        value.clamp(0.0, 1.0)
    }
}

/// A thousand studies of 3 to 6 seeds in which no mixer is better than another and nothing depends on n.
#[test]
fn without_a_true_effect_a_claim_is_supported_in_at_most_one_of_twenty_studies() {
    let spreads = [
        Spread::Even,
        Spread::Peaks,
        Spread::Uneven,
        Spread::Saturated,
    ];
    let mut supported: BTreeMap<String, usize> = BTreeMap::new();
    let mut of_spread: BTreeMap<String, usize> = BTreeMap::new();
    for study in 0..1000u64 {
        let spread = spreads[study as usize % 4];
        let seeds = 3 + (study as usize / 4) % 4;
        let mut noise = noise("null", study);
        let mut rows = Rows::new(1000);
        for mixer in [
            "softmax",
            "linear",
            "normalized",
            "s6",
            "ssd",
            "qlstm",
            "qlstm-reversed",
        ] {
            // Every other study has other seeds for some mixers.
            let first = match study % 2 == 0 && ["linear", "s6"].contains(&mixer) {
                true => 10,
                false => 0,
            };
            rows.grid(mixer, first..first + seeds, |run| {
                Some(spread.draw(run, &mut noise))
            });
        }
        // One width is enough, and half the time.
        rows.rows.retain(|row| row.count("d") == WIDTHS[0]);
        let report = judged(&rows.rows);
        for claim in [
            "linear-approaches-softmax",
            BEATS,
            "ssd-beats-s6",
            "larger-n-hurts-at-small-d",
            "reversed-beats-plain",
        ] {
            let verdict = verdict(&report, "reduced", claim);
            assert!(!verdict.is_empty(), "{claim}");
            *supported.entry(claim.into()).or_default() += usize::from(verdict == "supported");
            let key = format!("{claim} {spread:?} {verdict}");
            *of_spread.entry(key).or_default() += 1;
        }
    }
    println!("supported: {supported:?}\n{of_spread:#?}");
    for (claim, count) in supported {
        assert!(count <= 50, "{claim}: {count} of 1000");
    }
}

/// The same at the bound of a claim that wants a number to be within one: a difference of exactly the margin.
#[test]
fn at_the_margin_on_par_is_supported_in_at_most_one_of_twenty_studies() {
    let mut supported = 0;
    for study in 0..1000u64 {
        let mut noise = noise("margin", study);
        let seeds = 3 + (study as usize) % 4;
        let mut rows = Rows::new(1000);
        rows.grid("s6", 0..seeds, |_| Some(0.5 + 0.03 * noise()));
        rows.grid("normalized", 0..seeds, |_| Some(0.55 + 0.03 * noise()));
        rows.rows.retain(|row| row.number("lr") == Some(1e-3));
        let verdict = verdict(&judged(&rows.rows), "reduced", "normalized-on-par-with-s6");
        supported += usize::from(verdict == "supported");
    }
    assert!(supported <= 50, "{supported} of 1000");
}

#[test]
fn every_format_has_every_verdict() {
    let report = judged(&compared(0.2, 3).rows);
    for format in FORMATS.iter().filter(|format| format.is_text()) {
        let text = drawn(&report, format.name);
        for claim in crate::report::CLAIMS.iter() {
            assert!(text.contains(claim.name), "{}: {}", format.name, claim.name);
        }
        assert!(text.contains("supported"), "{text}");
    }
    let mut csv = csv::Reader::from_reader(drawn(&report, "csv").into_bytes().leak() as &[u8]);
    let columns = csv.headers().unwrap().len();
    assert!(csv.records().all(|record| record.unwrap().len() == columns));
    assert!(json(&report)["studies"][0]["cells"][0]["claim"].is_string());
}
