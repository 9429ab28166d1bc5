//! The numbers of the guide on speed, of `results/README.md` and of the README are those of the published runs and
//! measurements.

mod cells;
mod figures;
mod files;
mod frontier;
mod mad;
mod page;
mod pages;
mod parts;
mod readme;
mod speed;
mod tasks;

use crate::cli::{judged, World};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const RESULTS: &str = "results/README.md";

/// Accuracy above which a run on recall counts as solved.
const SOLVED: f64 = 0.9;

/// Accuracy above which the runs of the paper stop.
const LEARNT: f64 = 0.99;

/// Bias of the step sizes of S6 and SSD in the released code.
const STEP_BIAS: f64 = 0.0;

/// Values as texts, for a page to be compared with.
macro_rules! texts {
    ($($value:expr),+ $(,)?) => { [$($value.to_string()),+] };
}
pub(crate) use texts;

/// A row of a summary or of a table of `dsf bench`, by column.
type Row = BTreeMap<String, String>;

fn result_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(name)
}

/// A page of the repository, read when the test runs: who corrects a number need not build anything.
fn text_of(page: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap()
}

fn measured(file: &str) -> Vec<Row> {
    let mut table = csv::Reader::from_path(result_file(file)).unwrap();
    table.deserialize().map(Result::unwrap).collect()
}

fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap()
}

/// The values of a column.
fn distinct<'a>(rows: &'a [Row], column: &str) -> BTreeSet<&'a str> {
    rows.iter().map(|row| &*row[column]).collect()
}

/// The value of a column that is the same in all rows.
fn one<'a>(rows: &'a [Row], column: &str) -> &'a str {
    let values: Vec<&str> = distinct(rows, column).into_iter().collect();
    let [value] = values[..] else { panic!("{column}: {values:?}") };
    value
}

/// Runs of a summary whose columns hold these values.
fn runs<'a>(rows: &'a [Row], wanted: &[(&str, &str)]) -> Vec<&'a Row> {
    let holds = |row: &&Row| wanted.iter().all(|(column, value)| row[*column] == *value);
    rows.iter().filter(holds).collect()
}

/// The only one of [`runs`].
fn only<'a>(rows: &'a [Row], wanted: &[(&str, &str)]) -> &'a Row {
    let found = runs(rows, wanted);
    assert_eq!(found.len(), 1, "{wanted:?}");
    found[0]
}

/// [`runs`] in the order of their seeds.
fn by_seed<'a>(rows: &'a [Row], wanted: &[(&str, &str)]) -> Vec<&'a Row> {
    let mut found = runs(rows, wanted);
    found.sort_by_key(|run| run["seed"].parse::<u64>().unwrap());
    found
}

/// Whether a learning rate, of which a page has three digits, is that of a run.
fn has_rate(run: &Row, rate: f64) -> bool {
    (number(run, "lr") / rate - 1.0).abs() < 0.01
}

/// The accuracies by learning rate.
fn by_rate(runs: &[&Row]) -> Vec<(f64, Vec<f64>)> {
    let mut rates: Vec<(f64, Vec<f64>)> = Vec::new();
    for run in runs {
        let (lr, accuracy) = (number(run, "lr"), number(run, "accuracy"));
        match rates.iter_mut().find(|(rate, _)| *rate == lr) {
            Some((_, accuracies)) => accuracies.push(accuracy),
            None => rates.push((lr, vec![accuracy])),
        }
    }
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    rates
}

/// The best rate, and the accuracies there.
fn best(runs: &[&Row]) -> (f64, Vec<f64>) {
    let rates = by_rate(runs).into_iter();
    let best = rates.max_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
    best.expect("there are such runs")
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The least and the largest of some numbers.
fn ends(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    values.into_iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| [low.min(value), high.max(value)])
}

/// Number of runs above an accuracy.
fn above(runs: &[&Row], level: f64) -> usize {
    runs.iter().filter(|run| number(run, "accuracy") > level).count()
}

/// `11 of 30`: the runs that are solved, and all.
fn solved(runs: &[&Row]) -> String {
    format!("{} of {}", above(runs, SOLVED), runs.len())
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// A percentage without decimals.
fn whole(share: f64) -> String {
    format!("{:.0}", 100.0 * share)
}

/// `84.2 ± 5.1`: mean and standard deviation over seeds, in percent.
fn deviation(values: &[f64]) -> String {
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    let std = (squares / (values.len() as f64 - 1.0)).sqrt();
    format!("{} ± {:.1}", percent(middle), 100.0 * std)
}

/// `84.2 ± 5.1 %`, at the best rate.
fn spread(runs: &[&Row]) -> String {
    deviation(&best(runs).1) + " %"
}

/// `96.5, 98.1 %`: the accuracies of runs in their order.
fn accuracies(runs: &[&Row]) -> String {
    let each = runs.iter().map(|run| percent(number(run, "accuracy")));
    format!("{} %", each.collect::<Vec<_>>().join(", "))
}

/// `96.5, 98.1 % at 0.003`: the accuracies of two seeds at the best rate.
fn two_seeds(runs: &[&Row]) -> String {
    let (rate, accuracies) = best(runs);
    assert_eq!(accuracies.len(), 2);
    format!("{}, {} % at {rate}", percent(accuracies[0]), percent(accuracies[1]))
}

/// `2.15e-3`: a learning rate.
fn rate(lr: f64) -> String {
    format!("{lr:.2e}").replace(".00", "")
}

/// `8,192`: a number with its thousands apart.
fn thousands(number: impl ToString) -> String {
    let digits = number.to_string();
    let parts = digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap());
    parts.collect::<Vec<_>>().join(",")
}

/// A small number in words.
fn words(number: usize) -> String {
    const WORDS: &str = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen \
                         sixteen seventeen eighteen";
    WORDS.split(' ').nth(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// `76 s` or `2 min 09 s`: the time that a run took.
fn duration(run: &Row) -> String {
    match number(run, "seconds").round() as u64 {
        short if short < 120 => format!("{short} s"),
        long => format!("{} min {:02} s", long / 60, long % 60),
    }
}

/// Number of ways to choose k of n.
fn choose(n: u64, k: u64) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

/// Two-sided p of Fisher's exact test, where `a` of `n` and `b` of `n` runs are solved.
fn fisher(n: u64, a: u64, b: u64) -> f64 {
    let table = |k: u64| choose(n, k) * choose(n, a + b - k) / choose(2 * n, a + b);
    let tables = ((a + b).saturating_sub(n)..=n.min(a + b)).map(table);
    tables.filter(|p| *p <= 1.000001 * table(a)).sum()
}

/// Initial steps of S6 and SSD in the released code: softplus of their bias.
fn released_step() -> f64 {
    STEP_BIAS.exp().ln_1p()
}

/// Accuracy without the skill that a task tests, as `dsf report` gives it for the runs of a summary in the first grid
/// whose title has `word`.
fn without_skill(file: &str, word: &str) -> f64 {
    let report = World::new().dsf(&format!("report {} --json", result_file(file).display())).object();
    let mut grids = report["panels"].as_array().unwrap().iter();
    let grid = grids.find(|grid| grid["title"].as_str().unwrap().contains(word)).unwrap();
    grid["without_recall"].as_f64().or(grid["without_skill"].as_f64()).unwrap()
}

/// Number of runs of an experiment of the project.
fn planned(experiment: &str) -> usize {
    let list = World::new().dsf("experiments").ok();
    let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&experiment)).unwrap()[1].parse().unwrap()
}

/// The judgement of `dsf report --claims` on a claim, as the pages print it.
struct Claim(Value);

impl Claim {
    fn of(files: &[&str], claim: &str, study: &str) -> Self {
        Self(judged(&World::new(), files, claim, study))
    }

    fn share(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap()
    }

    fn verdict(&self) -> &str {
        self.0["verdict"].as_str().unwrap()
    }

    fn solved(&self) -> String {
        self.0["solved"].as_str().unwrap().replace('/', " of ")
    }

    /// `+36.7`, in points.
    fn difference(&self) -> String {
        format!("{:+.1}", 100.0 * self.share("effect"))
    }

    /// `18.8 to 54.5`, in points.
    fn interval(&self) -> String {
        ["low", "high"].map(|end| percent(self.share(end))).join(" to ")
    }

    fn p(&self) -> String {
        p_value(self.share("p_inside").min(self.share("p_outside")))
    }

    fn log_rank(&self) -> String {
        p_value(self.share("log_rank_p"))
    }
}

/// A p value with two digits, or one below 0.01.
fn p_value(p: f64) -> String {
    match p {
        ..0.0001 => "< 0.0001".to_owned(),
        ..0.001 => format!("{p:.4}"),
        ..0.1 => format!("{p:.3}"),
        _ => format!("{p:.2}"),
    }
}
