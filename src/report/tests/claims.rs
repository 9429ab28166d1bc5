//! Verdicts on simulated runs, where the right verdict is known by construction.

use super::*;
use crate::ops::rng::Rng;
use crate::recipes;
use crate::report::claims::claims;
use crate::store::samples::{config, diverged, done, read, text_config};
use crate::store::Column;
use crate::tasks::lra::LraDataset;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A grid small enough to be generated thousands of times.
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

/// Builds rows of MQAR without a config for each, which would be too slow for a thousand simulated studies.
struct Rows {
    row: Record,
    diverged: Record,
    rows: Vec<Record>,
}

impl Rows {
    /// Rows at the paper's sizes, or with other numbers of examples.
    fn new(train_examples: usize) -> Self {
        let mut config = config();
        config.protocol = Protocol::Reference;
        config.task.set("train_examples", train_examples);
        Self { row: Record::new(&config, &done(0.5)), diverged: Record::new(&config, &diverged()), rows: Vec::new() }
    }

    fn push(&mut self, run: Run, accuracy: Option<f64>) {
        let mut row = match accuracy {
            Some(_) => self.row.clone(),
            None => self.diverged.clone(),
        };
        row.set(Column::RUN_ID, format!("{:012x}", self.rows.len()).as_str());
        row.set(Column::MIXER, run.mixer);
        row.set(Column::SEQ_LEN, run.size.0);
        row.set(Column::KV_PAIRS, run.size.1);
        row.set(Column::D, run.d);
        row.set(Column::N, run.n);
        row.set(Column::LR, run.lr);
        row.set(Column::SEED, run.seed);
        if let Some(accuracy) = accuracy {
            row.set(Column::ACCURACY, accuracy);
        }
        self.rows.push(row);
    }

    /// Adds every cell of the small grid at both rates and `seeds`.
    fn grid(
        &mut self,
        mixer: &'static str,
        seeds: std::ops::Range<usize>,
        mut accuracy: impl FnMut(Run) -> Option<f64>,
    ) {
        for size in SIZES {
            for (d, n) in WIDTHS.into_iter().flat_map(|d| STATES.map(|n| (d, n))) {
                for (lr, seed) in RATES.into_iter().flat_map(|lr| seeds.clone().map(move |s| (lr, s))) {
                    let run = Run { mixer, size, d, n, lr, seed };
                    self.push(run, accuracy(run));
                }
            }
        }
    }
}

/// The paper's preset of a row, which leaves d and n open.
fn full(row: &Record) -> Vec<(&'static str, Record)> {
    // Built once, since a simulation calls this thousands of times.
    static PLANNED: LazyLock<[Record; 2]> =
        LazyLock::new(|| [text_config(), config()].map(|config| Record::planned(&config)));
    let [of_text, of_recall] = &*PLANNED;
    let mut preset = match row.text(Column::TASK) {
        "wikitext" => of_text.clone(),
        _ => of_recall.clone(),
    };
    for column in [Column::SEQ_LEN, Column::KV_PAIRS] {
        preset.set(column, row.count(column));
    }
    preset.set(Column::OPTIONS, row.text(Column::OPTIONS));
    if row.text(Column::TASK) != "wikitext" {
        preset.set(Column::D, 0usize);
        preset.set(Column::N, 0usize);
    }
    vec![("paper", preset)]
}

fn judged(rows: &[Record]) -> Report {
    claims(rows, &full, &ReportOptions::default()).unwrap()
}

/// The records of `claim`, at the paper's sizes or at others.
fn records<'a>(report: &'a Report, level: &str, claim: &str) -> Vec<BTreeMap<&'a str, &'a serde_json::Value>> {
    let wanted = [("level", level), ("claim", claim), ("role", "claim")];
    let records = report.grids.iter().flat_map(|grid| &grid.records).filter(|record| {
        let has = |(name, value): &(&str, &str)| record.iter().any(|(n, v)| n == name && v == value);
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

/// Accuracies of runs that each solve their task with probability `share`.
fn by_chance(share: f64, seed: u64) -> impl FnMut(Run) -> Option<f64> {
    let mut stream = Rng::new(seed, "solved", 0);
    move |_| Some(if stream.uniform() < share { SOLVED } else { MISSED })
}

const SOLVED: f64 = 0.97;
const MISSED: f64 = 0.45;

fn ended(solved: bool) -> Option<f64> {
    Some(if solved { SOLVED } else { MISSED })
}

/// A study of `seeds` seeds in which normalized and linear attention solve these shares of their runs.
fn compared([normalized, linear]: [f64; 2], seeds: usize) -> Rows {
    let mut rows = Rows::new(1000);
    rows.grid("linear", 0..seeds, by_chance(linear, 1));
    rows.grid("normalized", 0..seeds, by_chance(normalized, 2));
    rows
}

const BEATS: &str = "normalized-beats-linear";

#[test]
fn a_true_effect_is_supported_its_reverse_is_not_and_none_is_undecided() {
    for (shares, wanted) in [([0.7, 0.3], "supported"), ([0.3, 0.7], "not supported"), ([0.5, 0.5], "undecided")] {
        let report = judged(&compared(shares, 4).rows);
        assert_eq!(verdict(&report, "reduced", BEATS), wanted, "{shares:?}");
        assert_eq!(verdict(&report, "paper", BEATS), "undecided");
        let found = &records(&report, "reduced", BEATS)[0];
        let [low, mean, high] = ["low", "effect", "high"].map(|name| found[name].as_f64().unwrap());
        assert!(low < mean && mean < high, "{found:?}");
        assert!((mean - (shares[0] - shares[1])).abs() < 0.2, "{found:?}");
        assert_eq!((found["cells"].as_u64(), found["seeds"].as_u64()), (Some(8), Some(4)));
        assert_eq!(found["unit"], "share of runs");
        // Two mixers, 8 cells, 2 rates, 4 seeds.
        let solved = found["solved"].as_str().unwrap();
        assert_eq!(solved.matches("/64").count(), 2, "{solved}");
    }
}

#[test]
fn too_few_seeds_decide_nothing_and_the_missing_ones_are_counted() {
    let report = judged(&compared([0.8, 0.2], 2).rows);
    let found = &records(&report, "reduced", BEATS)[0];
    assert_eq!(found["verdict"], "undecided");
    // One more seed in 8 cells, for 2 mixers at 2 rates.
    assert_eq!(found["runs_needed"].as_u64(), Some(32));
    let reason = found["reason"].as_str().unwrap();
    assert_eq!(reason, "a verdict needs 3 seeds, and there are 2");
    let command = found["command"].as_str().unwrap();
    assert_eq!(
        command,
        "dsf sweep --task mqar --preset paper --protocol reference --train-examples 1000 \
         --mixer normalized,linear --sizes 128:8,64:4 --d 64,128 --n 32,64 --lr 0.001,0.01 --seed 0,1,2"
    );
    shows!("too-few-seeds", text(&report));
}

/// For perplexities, a mean over the remaining seeds would overstate the mixer.
#[test]
fn a_seed_that_diverged_at_every_rate_asks_for_a_lower_one() {
    let mut rows = Vec::new();
    for (mixer, seed) in
        ["linear", "normalized", "softmax"].into_iter().flat_map(|mixer| (0..3).map(move |seed| (mixer, seed)))
    {
        let mut config = text_config();
        (config.model.mixer, config.seed) = (mixer.to_owned(), seed);
        rows.push(match (mixer, seed) {
            ("linear", 1) => Record::new(&config, &diverged()),
            _ => Record::new(&config, &read(16.0)),
        });
    }
    let report = judged(&rows);
    let found = &records(&report, "paper", "gap-in-perplexity")[0];
    assert_eq!(found["verdict"], "undecided");
    let said = ["reason", "command"].map(|name| (name, found[name].as_str().unwrap()));
    shows!("diverged-at-every-rate", sections(said));
}

#[test]
fn a_run_that_diverged_has_not_solved_its_task() {
    let mut rows = compared([0.8, 0.2], 4);
    rows.grid("ssd", 0..4, |_| ended(true));
    rows.grid("s6", 0..4, |run| (run.seed > 2).then_some(SOLVED));
    let report = judged(&rows.rows);
    let found = &records(&report, "reduced", "ssd-beats-s6")[0];
    assert_eq!(found["verdict"], "supported");
    assert_eq!(found["solved"], "64/64, 16/64");
}

/// A mixer with more rates finds better ones, so only the rates that both tried count.
#[test]
fn mixers_are_compared_at_the_rates_that_both_tried() {
    let mut rows = compared([0.5, 0.5], 4);
    let lucky: Vec<Record> = rows.rows.iter().filter(|r| r.text(Column::MIXER) == "normalized").cloned().collect();
    for mut row in lucky {
        row.set(Column::LR, 3e-3);
        row.set(Column::ACCURACY, SOLVED);
        row.set(Column::RUN_ID, format!("{}f", &row.run_id()[1..]).as_str());
        rows.rows.push(row);
    }
    assert_eq!(verdict(&judged(&rows.rows), "reduced", BEATS), "undecided");
}

#[test]
fn saturated_runs_say_nothing_about_who_is_better() {
    let mut rows = Rows::new(1000);
    rows.grid("linear", 0..5, |run| Some(0.991 + 1e-4 * run.seed as f64));
    rows.grid("normalized", 0..5, |run| Some(0.998 - 1e-4 * run.seed as f64));
    assert_eq!(verdict(&judged(&rows.rows), "reduced", BEATS), "undecided");
}

#[test]
fn a_claim_about_each_task_needs_all_and_one_contradicts() {
    let gates = |[plain, reversed]: [bool; 2]| {
        let mut rows = Rows::new(1000);
        rows.grid("qlstm", 0..4, |run| ended(run.size.0 == 128 && plain));
        rows.grid("qlstm-reversed", 0..4, |run| ended(run.size.0 == 64 || reversed));
        // qLSTMs have no state expansion.
        rows.rows.retain(|row| row.count(Column::N) == 32);
        verdict(&judged(&rows.rows), "reduced", "reversed-beats-plain")
    };
    assert_eq!(gates([false, true]), "supported");
    assert_eq!(gates([false, false]), "undecided");
    assert_eq!(gates([true, false]), "not supported");
}

#[test]
fn a_trend_over_a_single_value_asks_for_another() {
    let mut rows = compared([0.8, 0.2], 3);
    rows.grid("softmax", 0..3, |_| ended(true));
    rows.rows.retain(|row| row.count(Column::N) == 32);
    let report = judged(&rows.rows);
    let found = &records(&report, "reduced", "linear-approaches-softmax")[0];
    assert_eq!(found["verdict"], "undecided");
    assert_eq!(found["reason"], "a trend over --n needs two of its values");
    // 2 sizes and 2 widths, 2 mixers at 2 rates with 3 seeds.
    assert_eq!(found["runs_needed"].as_u64(), Some(48));
    let command = found["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    assert!(words.windows(2).any(|pair| pair == ["--n", "32,64"]), "{command}");
}

#[test]
fn slopes_are_taken_over_doublings_of_n() {
    let approaching = |at: usize| {
        let mut rows = Rows::new(1000);
        rows.grid("softmax", 0..4, |_| ended(true));
        rows.grid("linear", 0..4, |run| ended(run.n == at));
        judged(&rows.rows)
    };
    let verdicts = |report: &Report| {
        ["linear-approaches-softmax", "larger-n-hurts-at-small-d"].map(|claim| verdict(report, "reduced", claim))
    };
    let report = approaching(64);
    assert_eq!(verdicts(&report), ["supported", "undecided"]);
    let found = &records(&report, "reduced", "linear-approaches-softmax")[0];
    assert_eq!(found["effect"].as_f64(), Some(-1.0));
    assert_eq!(found["unit"], "share of runs a doubling");
    assert_eq!(verdicts(&approaching(32)), ["not supported", "supported"]);
}

/// A gap that shrinks but stays wide is a trend, not convergence.
#[test]
fn to_reach_softmax_is_to_be_within_the_margin_at_the_largest_n() {
    let at = |last: fn(usize) -> bool| {
        let mut rows = Rows::new(1000);
        rows.grid("softmax", 0..12, |_| ended(true));
        rows.grid("linear", 0..12, |run| ended(run.n == 64 && last(run.seed)));
        let report = judged(&rows.rows);
        ["linear-approaches-softmax", "linear-reaches-softmax"].map(|claim| verdict(&report, "reduced", claim))
    };
    assert_eq!(at(|seed| seed % 2 == 0), ["supported", "not supported"]);
    assert_eq!(at(|_| true), ["supported", "supported"]);
}

#[test]
fn one_value_of_n_is_no_limit() {
    let mut rows = Rows::new(1000);
    rows.grid("softmax", 0..4, |_| ended(true));
    rows.grid("linear", 0..4, |_| ended(false));
    rows.rows.retain(|row| row.count(Column::N) == 32);
    let report = judged(&rows.rows);
    let found = &records(&report, "reduced", "linear-reaches-softmax")[0];
    assert_eq!(found["verdict"], "undecided");
    assert_eq!(found["reason"], "a trend over --n needs two of its values");
}

#[test]
fn a_fall_with_n_counts_where_the_task_is_largest_and_d_smallest() {
    let falls_at = |length: usize, d: usize| {
        let mut rows = Rows::new(1000);
        rows.grid("normalized", 0..4, |run| {
            let falls = run.n == 64 && (run.size.0, run.d) == (length, d);
            ended(!falls)
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
fn a_fall_with_n_at_the_largest_d_contradicts_that_none_is_there() {
    let falls_at = |d: usize| {
        let mut rows = Rows::new(1000);
        for mixer in ["softmax", "linear", "normalized", "s6", "ssd"] {
            rows.grid(mixer, 0..12, |run| ended((run.n, run.d) != (64, d)));
        }
        verdict(&judged(&rows.rows), "reduced", "larger-n-is-safe-at-large-d")
    };
    assert_eq!(falls_at(64), "supported");
    assert_eq!(falls_at(128), "not supported");
}

/// The cells of Figure 2 have n = 128 on the largest task.
#[test]
fn a_gap_in_other_cells_is_compared_with_the_gap_in_those_of_figure_2() {
    let verdict_of = |is_wide: fn(bool) -> bool| {
        let mut rows = Rows::new(1000);
        for (mixer, solves) in [("normalized", true), ("linear", false)] {
            for (size, n) in [((64, 4), 128), ((512, 64), 64), ((512, 64), 128)] {
                for seed in 0..16 {
                    let of_figure_2 = (size, n) == ((512, 64), 128);
                    let solved = solves && (is_wide(of_figure_2) || seed % 2 == 0);
                    rows.push(Run { mixer, size, d: 64, n, lr: 1e-3, seed }, ended(solved));
                }
            }
        }
        let report = judged(&rows.rows);
        verdict(&report, "reduced", "gap-grows-beyond-figure-2")
    };
    assert_eq!(verdict_of(|of_figure_2| !of_figure_2), "supported");
    assert_eq!(verdict_of(|of_figure_2| of_figure_2), "not supported");
    assert_eq!(verdict_of(|_| true), "undecided");
}

/// The released SSD has one decay a channel, too.
#[test]
fn decays_are_compared_in_the_variants_of_the_text_alone() {
    let of = |variant: &str| {
        let mut rows = Rows::new(1000);
        rows.grid("s6", 0..8, |_| ended(true));
        rows.grid("ssd", 0..8, |_| ended(true));
        rows.rows.iter_mut().for_each(|row| row.set(Column::VARIANT, variant));
        verdict(&judged(&rows.rows), "reduced", "one-decay-is-enough")
    };
    assert_eq!(of("paper"), "supported");
    assert_eq!(of("reference"), "");
}

#[test]
fn heads_are_compared_though_they_are_a_setting_of_the_mixer() {
    let mut rows = Rows::new(1000);
    for mixer in ["softmax", "linear", "normalized"] {
        for heads in [1usize, 2, 4] {
            let before = rows.rows.len();
            rows.grid(mixer, 0..4, |run| ended(heads > run.seed));
            rows.rows[before..].iter_mut().for_each(|row| row.set(Column::HEADS, heads));
        }
    }
    let report = judged(&rows.rows);
    let found = &records(&report, "reduced", "heads-help-by-little")[0];
    // From one seed of four to all four in two doublings.
    assert!((found["effect"].as_f64().unwrap() - 0.375).abs() < 1e-9, "{found:?}");
    assert_eq!(found["verdict"], "not supported", "by much");
}

#[test]
fn the_best_rate_is_below_each_other() {
    let at = |best: f64| {
        let mut rows = Vec::new();
        let mut noise = noise("rates", 1);
        for mixer in ["linear", "normalized", "softmax"] {
            for (lr, seed) in [3e-4, 1e-3, 3e-3, 1e-2].into_iter().flat_map(|lr| (0..3).map(move |seed| (lr, seed))) {
                let mut config = text_config();
                (config.model.mixer, config.seed) = (mixer.to_owned(), seed);
                let ppl = 15.0 + (lr / best).log10().abs();
                let mut row = Record::new(&config, &read(ppl + 0.005 * noise()));
                row.set(Column::LR, lr);
                row.set(Column::RUN_ID, format!("{:012x}", rows.len()).as_str());
                rows.push(row);
            }
        }
        verdict(&judged(&rows), "paper", "best-rate-on-text")
    };
    assert_eq!(at(3e-3), "supported");
    assert_eq!(at(1e-3), "not supported");
}

#[test]
fn on_par_is_a_matter_of_the_margin() {
    let at = |[s6, normalized]: [f64; 2]| {
        let mut rows = Rows::new(1000);
        rows.grid("s6", 0..4, by_chance(s6, 3));
        rows.grid("normalized", 0..4, by_chance(normalized, 4));
        verdict(&judged(&rows.rows), "reduced", "normalized-on-par-with-s6")
    };
    assert_eq!(at([0.99, 0.99]), "supported");
    assert_eq!(at([0.1, 0.6]), "not supported");
    assert_eq!(at([0.5, 0.5]), "undecided");
}

/// Most seeds must end above the bound at the best of their rates; five of five are not enough to show that.
#[test]
fn a_level_needs_as_many_seeds_as_its_exact_interval() {
    let perfect = |seeds: usize| {
        let mut rows = Rows::new(1000);
        rows.grid("softmax", 0..seeds, |run| Some(if run.lr < 5e-3 { 0.995 } else { MISSED }));
        let report = judged(&rows.rows);
        let found = &records(&report, "reduced", "softmax-is-perfect")[0];
        assert_eq!(found["effect"].as_f64(), Some(1.0));
        (verdict(&report, "reduced", "softmax-is-perfect"), found["runs_needed"].as_u64())
    };
    // 17 seeds in 8 cells at 2 rates, 5 of which have been run.
    assert_eq!(perfect(5), ("undecided".to_owned(), Some(12 * 8 * 2)));
    // The correction includes the trend over n, which is judged as well.
    assert_eq!(perfect(20).0, "supported");
}

/// A setting other than the preset's makes a separate study, together with the other mixers at their presets.
#[test]
fn a_mixer_with_another_start_is_judged_by_itself() {
    let mut rows = Rows::new(1000);
    rows.grid("ssd", 0..4, |_| ended(true));
    rows.grid("s6", 0..4, |_| ended(false));
    let mut started = Rows::new(1000);
    started.grid("s6", 0..4, |_| ended(true));
    for row in &mut started.rows {
        row.set(Column::HEADS, 4usize);
        row.set(Column::RUN_ID, format!("{}b", &row.run_id()[1..]).as_str());
    }
    rows.rows.extend(started.rows);
    let report = judged(&rows.rows);
    let found = records(&report, "reduced", "ssd-beats-s6");
    let found: Vec<(bool, &str)> = found
        .iter()
        .map(|record| {
            let own = record["study"].as_str().unwrap().ends_with(", heads=4");
            (own, record["verdict"].as_str().unwrap())
        })
        .collect();
    assert_eq!(found, [(false, "supported"), (true, "undecided")]);
}

/// The smallest of several p-values is multiplied by the number of claims.
#[test]
fn all_claims_share_one_error() {
    let mut rows = Rows::new(1000);
    // One cell with 8 runs, where all against half of them would give p = 0.05 alone.
    let few =
        |row: &Record| row.count(Column::SEQ_LEN) == 64 && row.count(Column::D) == 64 && row.count(Column::N) == 32;
    rows.grid("ssd", 0..4, |_| ended(true));
    rows.grid("s6", 0..4, |run| ended(run.seed < 2));
    rows.rows.retain(few);
    let alone = |rows: &Rows| {
        let report = judged(&rows.rows);
        let found = &records(&report, "reduced", "ssd-beats-s6")[0];
        ["p_inside", "p_of_claim"].map(|name| found[name].as_f64().unwrap())
    };
    let [level, corrected] = alone(&rows);
    // larger-n-hurts has one value of n, and therefore no number.
    assert_eq!(level, corrected);
    for gates in ["qlstm", "qlstm-reversed"] {
        rows.grid(gates, 0..4, |_| ended(true));
    }
    rows.rows.retain(few);
    let [same, corrected] = alone(&rows);
    assert_eq!(same, level);
    assert!((corrected - 2.0 * level).abs() < 1e-12, "{level} {corrected}");
}

/// Table 1 with three seeds.
fn perplexities(normalized: f64) -> Report {
    let mut rows = Vec::new();
    let mut noise = noise("gap", 1);
    for (mixer, ppl) in [("linear", 17.42), ("normalized", normalized), ("softmax", 13.15)] {
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
    assert_eq!(verdict(&perplexities(16.43), "paper", "gap-in-perplexity"), "supported");
    assert_eq!(verdict(&perplexities(15.0), "paper", "gap-in-perplexity"), "not supported");
    assert_eq!(verdict(&perplexities(16.43), "reduced", "gap-in-perplexity"), "");
}

#[test]
fn a_part_of_the_papers_grid_is_no_verdict_at_the_papers_sizes() {
    let mut rows = compared([0.9, 0.1], 3);
    rows.rows.iter_mut().for_each(|row| row.set(Column::TRAIN_EXAMPLES, 100_000usize));
    let report = judged(&rows.rows);
    let found = &records(&report, "paper", BEATS)[0];
    assert_eq!(found["verdict"], "undecided");
    // 64 cells, 2 mixers, 4 rates, 3 seeds, where 8 cells have two rates done.
    assert_eq!(found["runs_needed"].as_u64(), Some(64 * 2 * 4 * 3 - 8 * 2 * 2 * 3));
    assert_eq!(verdict(&report, "reduced", BEATS), "supported");
    shows!("part-of-the-papers-grid", text(&report));
}

/// An RNN has no state expansion; its single value of n is fixed by no preset.
#[test]
fn the_whole_grid_of_a_claim_is_judged_at_the_papers_sizes_alone() {
    let mut rows = Rows::new(100_000);
    for (mixer, solves) in [("qlstm", false), ("qlstm-reversed", true)] {
        for size in [(64, 4), (128, 8), (256, 16)] {
            for (d, seed) in [64, 128, 256, 512].into_iter().flat_map(|d| (0..3).map(move |s| (d, s))) {
                let run = Run { mixer, size, d, n: 1, lr: 1e-3, seed };
                rows.push(run, ended(solves));
            }
        }
    }
    let report = judged(&rows.rows);
    assert_eq!(verdict(&report, "paper", "reversed-beats-plain"), "supported");
    assert_eq!(verdict(&report, "reduced", "reversed-beats-plain"), "");
}

/// Three attentions on the Long Range Arena with three seeds, as released except for the source of the examples.
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
            result.metrics =
                result.metrics.with(Column::VAL_ACCURACY, accuracy).with(Column::SELECTED_ACCURACY, accuracy);
            rows.push(Record::new(&config, &result));
        }
    }
    claims(&rows, &recipes::presets_of, &ReportOptions::default()).unwrap()
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
    let words: Vec<&str> = command.split(' ').collect();
    assert!(words.windows(2).any(|pair| pair == ["--data", "files"]), "{command}");
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
    let mut rows = compared([0.9, 0.1], 3);
    let mut numpys = compared([0.9, 0.1], 3);
    for row in &mut numpys.rows {
        row.set(Column::DATA, "numpy");
        row.set(Column::RUN_ID, format!("{}b", &row.run_id()[1..]).as_str());
    }
    rows.rows.extend(numpys.rows);
    rows.rows.iter_mut().for_each(|row| row.set(Column::TRAIN_EXAMPLES, 100_000usize));
    let options = ReportOptions { claims: vec![BEATS.to_owned()], ..ReportOptions::default() };
    let report = claims(&rows.rows, &full, &options).unwrap();
    let at_paper = |grid: &&Grid| grid.title == "undecided at the paper's sizes";
    let lines = &report.grids.iter().find(at_paper).unwrap().lines;
    assert!(lines.iter().all(|line| line.name() == BEATS));
    let under: Vec<String> = lines
        .iter()
        .map(|line| match &line.cells[0].content {
            Content::Text(text) => text.clone(),
            _ => String::new(),
        })
        .collect();
    assert_eq!(under, ["reference", "reference, data=numpy"]);
    shows!("two-sources-of-examples", text(&report));
}

#[test]
fn protocols_and_sizes_are_never_put_together() {
    let (mut rows, mut other) = (compared([0.9, 0.1], 3), compared([0.9, 0.1], 3));
    for row in &mut other.rows {
        row.set(Column::PROTOCOL, "paper");
        row.set(Column::RUN_ID, format!("{}e", &row.run_id()[1..]).as_str());
    }
    rows.rows.extend(other.rows);
    let mut third = compared([0.1, 0.9], 3);
    for row in &mut third.rows {
        row.set(Column::TRAIN_EXAMPLES, 500usize);
        row.set(Column::RUN_ID, format!("{}d", &row.run_id()[1..]).as_str());
    }
    rows.rows.extend(third.rows);
    let report = judged(&rows.rows);
    let mut verdicts: Vec<&str> =
        records(&report, "reduced", BEATS).iter().map(|record| record["verdict"].as_str().unwrap()).collect();
    verdicts.sort_unstable();
    assert_eq!(verdicts, ["not supported", "supported", "supported"], "{}", text(&report));
}

#[test]
fn what_else_differs_between_mixers_is_said() {
    let mut rows = compared([0.9, 0.1], 3);
    for row in &mut rows.rows {
        if row.text(Column::MIXER) == "linear" {
            row.set(Column::STATE_MIXER, "none");
        }
    }
    let heads: Vec<Record> = rows.rows.iter().filter(|r| r.text(Column::MIXER) == "linear").cloned().collect();
    for mut row in heads {
        row.set(Column::HEADS, 4usize);
        row.set(Column::RUN_ID, format!("{}c", &row.run_id()[1..]).as_str());
        rows.rows.push(row);
    }
    shows!("what-else-differs", text(&judged(&rows.rows)));
}

/// Probability that a run of a simulated study solves its task, independent of its mixer and its n.
#[derive(Clone, Copy, Debug)]
enum Chance {
    Even,
    /// Depends on the rate.
    OfRate,
    /// Depends on task and rate.
    OfTask,
    /// Close to one.
    Saturated,
}

impl Chance {
    fn of(self, run: Run) -> f64 {
        match self {
            Self::Even => 0.5,
            Self::OfRate => {
                if run.lr < 5e-3 {
                    0.8
                } else {
                    0.1
                }
            }
            Self::OfTask => 0.3 + 0.4 * f64::from(u8::from(run.size.0 == 64)) - 20.0 * run.lr,
            Self::Saturated => 0.97,
        }
    }
}

/// Studies of 3 to 6 seeds in which all mixers are equal and nothing depends on n.
#[test]
fn without_a_true_effect_a_claim_is_supported_in_at_most_one_of_twenty_studies() {
    let chances = [Chance::Even, Chance::OfRate, Chance::OfTask, Chance::Saturated];
    let names =
        ["linear-approaches-softmax", BEATS, "ssd-beats-s6", "larger-n-hurts-at-small-d", "reversed-beats-plain"];
    let mut supported: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_chance: BTreeMap<String, usize> = BTreeMap::new();
    let (mut any, studies) = (0, 400u64);
    for study in 0..studies {
        let chance = chances[study as usize % 4];
        let seeds = 3 + (study as usize / 4) % 4;
        let mut stream = Rng::new(study, "null", 0);
        let mut rows = Rows::new(1000);
        for mixer in ["softmax", "linear", "normalized", "s6", "ssd", "qlstm", "qlstm-reversed"] {
            rows.grid(mixer, 0..seeds, |run| ended(stream.uniform() < chance.of(run)));
        }
        // One width is enough, and halves the time.
        rows.rows.retain(|row| row.count(Column::D) == WIDTHS[0]);
        let report = judged(&rows.rows);
        let mut false_ones = 0;
        for claim in names {
            let verdict = verdict(&report, "reduced", claim);
            assert!(!verdict.is_empty(), "{claim}");
            let is = usize::from(verdict == "supported");
            *supported.entry(claim).or_default() += is;
            false_ones += is;
            *of_chance.entry(format!("{claim} {chance:?} {verdict}")).or_default() += 1;
        }
        any += u64::from(false_ones > 0);
    }
    println!("supported: {supported:?}, any: {any}\n{of_chance:#?}");
    assert!(20 * any <= studies, "{any} of {studies}");
}

/// Studies at the bound of an equivalence claim: the true difference is exactly the margin.
#[test]
fn at_the_margin_on_par_is_supported_in_at_most_one_of_twenty_studies() {
    let (mut supported, studies) = (0, 400u64);
    for study in 0..studies {
        let seeds = 3 + (study as usize) % 4;
        let mut rows = Rows::new(1000);
        let mut stream = Rng::new(study, "margin", 0);
        for (mixer, share) in [("s6", 0.85), ("normalized", 0.95)] {
            rows.grid(mixer, 0..seeds, |_| ended(stream.uniform() < share));
        }
        let verdict = verdict(&judged(&rows.rows), "reduced", "normalized-on-par-with-s6");
        supported += u64::from(verdict == "supported");
    }
    println!("{supported} of {studies}");
    assert!(20 * supported <= studies, "{supported} of {studies}");
}

#[test]
fn every_format_has_every_verdict() {
    let report = judged(&compared([0.9, 0.1], 3).rows);
    for format in FORMATS.iter().filter(|format| format.is_text()) {
        let text = drawn(&report, format.name);
        for claim in crate::report::CLAIMS.iter() {
            // A picture has only the captions of decided claims, and no table.
            let is_said = format.name != "svg" || claim.name == BEATS;
            assert!(!is_said || text.contains(claim.name), "{}: {}", format.name, claim.name);
        }
    }
    shows!("markdown", drawn(&report, "markdown"));
    shows!("words-of-the-picture", words(&drawn(&report, "svg")));
    let mut csv = csv::Reader::from_reader(drawn(&report, "csv").into_bytes().leak() as &[u8]);
    let columns = csv.headers().unwrap().len();
    assert!(csv.records().all(|record| record.unwrap().len() == columns));
    assert!(json(&report)["studies"][0]["cells"][0]["claim"].is_string());
}
