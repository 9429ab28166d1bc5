//! Runs on one text in one setting, a line a mixer.

use super::super::difference::{listed, Difference};
use super::super::{Filter, Metric};
use super::gap::Gap;
use super::line::Line;
use super::setting::Setting;
use super::PAPER;
use crate::store::Row;
use crate::tasks::wikitext::Corpus;
use std::collections::{BTreeMap, BTreeSet};

/// Mixers and their perplexities.
pub(super) struct Table {
    pub corpus: String,
    pub tokenizer: String,
    pub precision: String,
    /// Which preset its runs are compared with; empty where none is known.
    pub preset: &'static str,
    /// What all its runs have otherwise than the preset.
    pub settings: Vec<Difference>,
    /// Why the paper's numbers are not in it; empty where they are.
    pub elsewhere: Vec<String>,
    pub lines: Vec<Line>,
    /// Test perplexity of token frequencies alone.
    pub unigram: Option<f64>,
}

/// All tables of `settings`: those beside the paper's numbers first, then by corpus and by how much they
/// differ from their presets.
pub(super) fn tables(settings: &[Setting], by: Metric, filter: &Filter) -> Vec<Table> {
    let mut groups: BTreeMap<_, Vec<&Setting>> = BTreeMap::new();
    for setting in settings {
        let row = setting.row;
        let corpus = Corpus::ALL.iter().position(|c| c.name() == row.dataset);
        let of_text = (corpus.is_none(), corpus, &row.dataset, &row.tokenizer);
        let of_runs = (setting.preset, &row.protocol, &row.precision);
        let differences = (setting.of_table.len(), &setting.of_table);
        let away = !setting.elsewhere().is_empty();
        let key = (away, of_text, differences, of_runs);
        groups.entry(key).or_default().push(setting);
    }
    let table = |group: &Vec<&Setting>| Table::of(group, by, filter);
    groups.values().map(table).collect()
}

impl Table {
    fn of(group: &[&Setting], by: Metric, filter: &Filter) -> Self {
        let first = group[0];
        let elsewhere = first.elsewhere();
        let lines = mixers(group, filter, elsewhere.is_empty());
        let lines = lines.iter().flat_map(|mixer| lines_of(group, mixer, by));
        Self {
            corpus: first.row.dataset.clone(),
            tokenizer: first.row.tokenizer.clone(),
            precision: first.row.precision.clone(),
            preset: first.preset,
            settings: first.of_table.clone(),
            elsewhere,
            lines: lines.collect(),
            unigram: group.iter().find_map(|setting| setting.row.unigram_ppl),
        }
    }

    /// Whether the paper's numbers are in it.
    pub fn beside(&self) -> bool {
        self.elsewhere.is_empty()
    }

    /// What its runs have in common.
    pub fn title(&self) -> String {
        let mut parts = vec![self.corpus.clone(), format!("tokenizer {}", self.tokenizer)];
        if !self.preset.is_empty() {
            parts.push(format!("preset {}", self.preset));
        }
        parts.push(self.precision.clone());
        parts.extend(self.settings.iter().map(Difference::to_string));
        parts.join(", ")
    }

    /// The share of the gap that normalisation closes: of the first setting that all three attentions have,
    /// since only like lines are compared.
    pub fn gap(&self, metric: Metric) -> Gap {
        let three = self.attentions();
        Gap::of(three.map(|line| Some(line?.score(metric)?.mean)))
    }

    /// The share that the paper's numbers close.
    pub fn paper_gap(&self) -> Gap {
        Gap::of(PAPER.map(|(_, printed)| Some(printed).filter(|_| self.beside())))
    }

    /// Linear, normalized and softmax attention in one setting.
    pub fn attentions(&self) -> [Option<&Line>; 3] {
        let of = |differences: &[Difference]| {
            PAPER.map(|(mixer, _)| {
                let mut lines = self.lines.iter().filter(|line| line.mixer == mixer);
                lines.find(|line| line.differences == differences)
            })
        };
        let linear = self.lines.iter().filter(|line| line.mixer == PAPER[0].0);
        let mut settings = linear.map(|line| of(&line.differences));
        let whole = settings.find(|three| three.iter().all(Option::is_some));
        whole.unwrap_or_else(|| of(&[]))
    }
}

/// Those of the paper beside its numbers or where there are runs of them, and any others by name.
fn mixers<'a>(group: &[&'a Setting], filter: &Filter, beside: bool) -> Vec<&'a str> {
    let run: BTreeSet<&str> = group.iter().map(|s| s.row.mixer.as_str()).collect();
    let wanted = |name: &str| filter.mixers.is_empty() || filter.mixers.iter().any(|m| m == name);
    let printed = PAPER.iter().map(|(mixer, _)| *mixer);
    let mut mixers: Vec<&str> = printed
        .filter(|name| run.contains(name) || (beside && wanted(name)))
        .collect();
    let others = run.into_iter().filter(|name| !is_printed(name));
    mixers.extend(others);
    mixers
}

fn is_printed(name: &str) -> bool {
    PAPER.iter().any(|(mixer, _)| *mixer == name)
}

/// A line a setting of `mixer`: the preset's first, then by how much and in what they differ.
fn lines_of(group: &[&Setting], mixer: &str, by: Metric) -> Vec<Line> {
    let mut settings: BTreeMap<_, (&[Difference], Vec<&Row>)> = BTreeMap::new();
    for setting in group.iter().filter(|s| s.row.mixer == mixer) {
        let key = (setting.of_line.len(), listed(&setting.of_line));
        let (_, rows) = settings.entry(key).or_insert((&setting.of_line, vec![]));
        rows.push(setting.row);
    }
    if settings.is_empty() {
        return vec![Line::of(mixer, &[], &[], by)];
    }
    let lines = settings.values();
    lines
        .map(|(differences, rows)| Line::of(mixer, differences, rows, by))
        .collect()
}
