//! Records: one run as one row of a summary, with values by column.

use super::column::Column;
use super::column::{Absent, ColumnKind, ColumnSpec, Field, Role};
use super::metrics::Metric;
use super::schema::{COLUMNS, SCHEMA};
use super::{Outcome, RunResult, RunStatus};
use crate::config::RunConfig;
use crate::tasks;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Value of the column `data_seed`, in reports, for a run whose own seed generates its examples.
const OWN_SEED: &str = "seed";

/// Prefix of the source digest, followed by the run id, for runs whose files are unknown.
const UNKNOWN_FILES: &str = "unknown:";

/// Settings and result of a run, one value per column of [`COLUMNS`].
///
/// Two records are equal if all their values are, regardless of their sources.
#[derive(Clone, Debug)]
pub struct Record {
    fields: Box<[Field]>,
    source: Option<RecordSource>,
}

/// File and line from which a record was read.
#[derive(Clone, Debug)]
pub struct RecordSource {
    /// The file.
    pub file: Arc<str>,
    /// Line number, for a summary.
    pub line: Option<u64>,
}

impl fmt::Display for RecordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        self.line.map_or(Ok(()), |line| write!(f, ", line {line}"))
    }
}

/// Meaning of an absent value: the column's index, a condition on another column, and the value.
type Meant = (usize, Option<(usize, Vec<Field>)>, Field);

static MEANT: LazyLock<Vec<Meant>> = LazyLock::new(|| {
    let parsed = |column: &ColumnSpec, text: &str| {
        let field = column.kind.parse(text);
        field.unwrap_or_else(|why| unreachable!("{}: {why}", column.name))
    };
    let meant = |(i, column): (usize, &ColumnSpec)| match column.absent {
        Absent::Required | Absent::Empty => None,
        Absent::Is(value) => Some((i, None, parsed(column, value))),
        Absent::Where(other, holds, value) => {
            let other = Column::find(other)?.place();
            let holds = holds.iter().map(|text| parsed(&COLUMNS[other], text)).collect();
            Some((i, Some((other, holds)), parsed(column, value)))
        }
    };
    COLUMNS.iter().enumerate().filter_map(meant).collect()
});

/// Settings that every row of a summary must have. Texts may be empty, and failed runs have no metrics.
static NEEDED: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let needed = |column: &ColumnSpec| {
        let text = column.kind == ColumnKind::Word && column.role != Role::Id;
        column.absent == Absent::Required && !(text || Metric::find(column.name).is_some())
    };
    let places = 0..COLUMNS.len();
    places.filter(|i| needed(&COLUMNS[*i])).collect()
});

impl Default for Record {
    fn default() -> Self {
        Self { fields: vec![Field::Absent; COLUMNS.len()].into(), source: None }
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

impl Record {
    /// Returns the record of a finished run.
    pub fn new(config: &RunConfig, result: &RunResult) -> Self {
        let mut record = Self::planned(config);
        let origin = &result.provenance;
        let commit = origin.commit();
        for (column, text) in [
            (Column::STATUS, result.status.name()),
            (Column::OUTCOME, result.outcome.map_or("", Outcome::name)),
            (Column::REASON, &result.reason),
            (Column::CAUSE, result.failure().map_or("", |failure| failure.cause.name())),
            (Column::DEVICE, &origin.device),
            (Column::HOST, &origin.host),
            (Column::CPU, &origin.cpu),
            (Column::SIMD, &origin.simd),
            (Column::VERSION, &origin.version),
            (Column::GIT_COMMIT, &commit),
            (Column::STARTED, &result.started),
            (Column::ENDED, &result.ended),
            (Column::OPS, &result.ops),
            (Column::DATA_DIGEST, &result.data_digest),
        ] {
            record.set(column, text);
        }
        record.set(Column::THREADS, origin.threads);
        record.set(Column::MICRO_BATCH_USED, result.micro_batch_used);
        for (metric, value) in result.metrics.iter() {
            record.set(metric.column, value.clone());
        }
        record.name_files();
        record
    }

    /// Returns the record of a run without a result: only its settings, taken from the serialised config.
    pub fn planned(config: &RunConfig) -> Self {
        let document = serde_json::to_value(config).expect("a run config is plain data");
        let mut record = Self::default();
        for (field, column) in record.fields.iter_mut().zip(COLUMNS.iter()) {
            *field = column.of_config(&document);
        }
        record.set(Column::SCHEMA, u64::from(SCHEMA));
        record.set(Column::RUN_ID, config.id().as_str());
        record.complete();
        record
    }

    pub(super) fn read(fields: Vec<Field>, source: RecordSource) -> Self {
        let mut record = Self { fields: fields.into(), source: Some(source) };
        record.complete();
        record.name_files();
        record
    }

    pub(super) fn read_from(self, file: &str) -> Self {
        let (file, line) = (file.into(), None);
        Self { source: Some(RecordSource { file, line }), ..self }
    }

    /// Distinguishes the data of runs on files by earlier versions, whose configs do not name the files: by the digest
    /// of the examples, or by the run's own id if there is none, since nothing is known about them.
    fn name_files(&mut self) {
        let text = self.get(Column::TOKENIZER) != &Field::Absent && self.text(Column::DATASET) != "sample";
        let on_files = text || self.text(Column::DATA) == "files";
        if !on_files || *self.get(Column::SOURCE_DIGEST) != Field::Absent {
            return;
        }
        let named = match (self.text(Column::DATA_DIGEST), self.run_id()) {
            ("", id) => format!("{UNKNOWN_FILES}{id}"),
            (examples, _) => format!("examples:{examples}"),
        };
        self.set(Column::SOURCE_DIGEST, named.as_str());
    }

    /// Whether the files that the run was trained on are unknown.
    pub fn is_of_unknown_files(&self) -> bool {
        self.text(Column::SOURCE_DIGEST).starts_with(UNKNOWN_FILES)
    }

    /// Whether the examples' seed equals the run's seed under a protocol that does not fix the data: either the run's
    /// seed generated the examples, or a user set both to the same number.
    pub fn may_draw_own_data(&self) -> bool {
        let fixed = ["", "reference"].contains(&self.text(Column::PROTOCOL));
        let generated =
            tasks::find(self.text(Column::TASK)).is_ok_and(|t| t.fields.contains(&Column::DATA_SEED.name()));
        let from_files = self.text(Column::DATA) == "files";
        let (data, own) = (self.get(Column::DATA_SEED), self.get(Column::SEED));
        !fixed && generated && !from_files && data == own
    }

    /// Marks the examples as generated by the run's own seed, so that such runs with other seeds share its cell.
    pub fn set_own_data(&mut self) {
        self.set(Column::DATA_SEED, OWN_SEED);
    }

    /// Replaces absent values by their meanings.
    fn complete(&mut self) {
        for (i, condition, value) in MEANT.iter() {
            let meant = match condition {
                None => true,
                Some((other, any)) if any.is_empty() => self.fields[*other] != Field::Absent,
                Some((other, texts)) => texts.contains(&self.fields[*other]),
            };
            if meant && self.fields[*i] == Field::Absent {
                self.fields[*i] = value.clone();
            }
        }
    }

    /// Returns the value of a column.
    pub fn get(&self, column: Column) -> &Field {
        &self.fields[column.place()]
    }

    /// Sets the value of a column.
    pub fn set(&mut self, column: Column, value: impl Into<Field>) {
        self.fields[column.place()] = value.into();
    }

    /// Returns the value at an index of [`COLUMNS`].
    pub fn at(&self, place: usize) -> &Field {
        &self.fields[place]
    }

    /// Returns a text; empty if there is none.
    pub fn text(&self, column: Column) -> &str {
        self.get(column).text()
    }

    /// Returns a number, if there is one.
    pub fn number(&self, column: Column) -> Option<f64> {
        self.get(column).number()
    }

    /// Returns a non-negative integer; 0 if there is none.
    pub fn count(&self, column: Column) -> usize {
        match self.get(column) {
            Field::Count(count) => *count as usize,
            _ => 0,
        }
    }

    /// Run id: twelve hex digits.
    pub fn run_id(&self) -> &str {
        self.text(Column::RUN_ID)
    }

    /// Status of the run; `None` if it is only planned.
    pub fn status(&self) -> Option<RunStatus> {
        RunStatus::ALL.into_iter().find(|status| status.name() == self.text(Column::STATUS))
    }

    /// Outcome of the training.
    pub fn outcome(&self) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.name() == self.text(Column::OUTCOME))
    }

    /// Iterates over the columns of one role and their values, in order.
    pub fn values(&self, role: Role) -> impl Iterator<Item = (&'static ColumnSpec, &Field)> {
        let columns = COLUMNS.iter().zip(&self.fields);
        columns.filter(move |(column, _)| column.role == role)
    }

    /// Source of the record, if it was read from a file.
    pub fn source(&self) -> Option<&RecordSource> {
        self.source.as_ref()
    }

    /// Returns a required column that has no value.
    pub(super) fn lacks(&self) -> Option<&'static ColumnSpec> {
        let mut needed = NEEDED.iter();
        let lacking = needed.find(|place| self.fields[**place] == Field::Absent);
        lacking.map(|place| &COLUMNS[*place])
    }
}

impl AsRef<Self> for Record {
    fn as_ref(&self) -> &Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{config, done, read, record, text_config};
    use super::*;
    use crate::config::{InitialWeights, Precision};
    use serde_json::Value;

    /// If a record omitted a setting, two different trainings would share a cell.
    #[test]
    fn every_setting_of_a_config_shows_in_its_record() {
        let mut text = text_config();
        text.task.set("eos_between_articles", true);
        text.task.set("train_examples", 9);
        text.task.set("test_examples", 5);
        text.from = Some(InitialWeights { name: "llama".to_owned(), digest: "0123456789ab".to_owned() });
        text.model.n_positions = Some(4096);
        for (config, fields) in [(config(), 25), (text, 38)] {
            let whole = serde_json::to_value(&config).unwrap();
            let paths = leaves(&whole, String::new());
            assert!(paths.len() > fields, "{paths:?}");
            for path in paths.iter().filter(|p| *p != "/format") {
                let mut changed = Record::planned(&changed_at(&whole, path));
                changed.set(Column::RUN_ID, config.id().as_str());
                assert_ne!(changed, Record::planned(&config), "{path} does not show");
            }
        }
    }

    #[test]
    fn a_run_on_the_whole_text_has_no_number_of_windows() {
        let record = Record::planned(&text_config());
        let windows = [Column::TRAIN_EXAMPLES, Column::TEST_EXAMPLES].map(|column| record.get(column).clone());
        assert_eq!(windows, [Field::Count(0), Field::Count(0)]);
        assert_eq!(record.text(Column::DATASET), "wikitext-103-raw");
        assert_eq!(record.count(Column::MLP_WIDTH), 2048);
    }

    #[test]
    fn perplexities_show_in_a_record_and_a_run_without_any_has_none() {
        let record = Record::new(&text_config(), &read(16.0));
        for (column, ppl) in [
            (Column::TRAIN_PPL, 16.0),
            (Column::TRAIN_PPL_EVAL, 12.0),
            (Column::VAL_PPL, 32.0),
            (Column::BEST_VAL_PPL, 20.0),
            (Column::TEST_PPL, 40.0),
            (Column::SELECTED_TEST_PPL, 24.0),
            (Column::VAL_WORD_PPL, 64.0),
            (Column::TEST_WORD_PPL, 80.0),
            (Column::VAL_BITS_PER_BYTE, 1.0),
            (Column::TEST_BITS_PER_BYTE, 1.25),
            (Column::UNIGRAM_PPL, 1100.0),
            (Column::TRAIN_TOKENS, 119_000_000.0),
        ] {
            assert_eq!(record.number(column), Some(ppl), "{}", column.name());
        }
        let recall = crate::store::samples::record(0.5);
        assert_eq!((recall.number(Column::TRAIN_PPL), recall.number(Column::TRAIN_TOKENS)), (None, None));
    }

    #[test]
    fn no_clipping_is_a_norm_of_zero_and_the_released_optimiser_says_nothing() {
        let clip = |config: &RunConfig| Record::planned(config).number(Column::CLIP);
        let mut config = text_config();
        assert_eq!(clip(&config), Some(1.0));
        config.train.adam.as_mut().unwrap().clip = None;
        assert_eq!(clip(&config), Some(0.0));
        config.train.adam = None;
        assert_eq!(clip(&config), None);
    }

    #[test]
    fn the_precision_shows_in_a_record_and_only_a_lower_one_in_the_name_of_a_run() {
        let mut lower = config();
        lower.train.precision = Precision::Bf16;
        assert_eq!(Record::planned(&lower).text(Column::PRECISION), "bf16");
        assert_eq!(Record::planned(&config()).text(Column::PRECISION), "f32");
        assert_ne!(lower.id(), config().id());
        assert!(!config().canonical().contains("precision"));
        assert_eq!(RunConfig::parse(&lower.canonical(), "here").unwrap(), lower);
    }

    #[test]
    fn metrics_and_provenance_of_a_result_are_in_its_record() {
        let found = record(0.5);
        assert_eq!(found, Record::new(&config(), &done(0.5)));
        assert_eq!((found.number(Column::ACCURACY), found.count(Column::STEPS)), (Some(0.5), 12_544));
        assert_eq!((found.text(Column::HOST), found.count(Column::THREADS)), ("laptop", 2));
        assert_eq!(found.status(), Some(RunStatus::Done));
        assert_eq!(found.outcome(), Some(Outcome::Finished));
    }

    fn leaves(value: &Value, path: String) -> Vec<String> {
        match value {
            Value::Object(fields) => fields
                .iter()
                .flat_map(|(name, field)| leaves(field, format!("{path}/{name}")))
                .filter(|leaf| leaf != "/task/name") // there is only one task
                .collect(),
            _ => vec![path],
        }
    }

    /// At least two values of every enum in a config.
    const OTHERS: [&str; 14] = [
        "paper",
        "matched",
        "numpy",
        "mamba",
        "none",
        "warmup-constant",
        "cosine",
        "sample",
        "bytes",
        "post",
        "hf",
        "all",
        "bf16",
        "matrices",
    ];

    fn changed_at(whole: &Value, path: &str) -> RunConfig {
        let candidates: Vec<Value> = match whole.pointer(path).unwrap() {
            Value::Bool(b) => vec![(!b).into()],
            Value::Number(n) if n.is_f64() => vec![(n.as_f64().unwrap() + 0.5).into()],
            Value::Number(n) => vec![(n.as_u64().unwrap() + 1).into()],
            Value::String(held) => OTHERS.into_iter().filter(|other| other != held).map(Value::from).collect(),
            held => panic!("{path} holds {held}"),
        };
        let parsed = candidates.into_iter().find_map(|candidate| {
            let mut changed = whole.clone();
            *changed.pointer_mut(path).unwrap() = candidate;
            serde_json::from_value(changed).ok()
        });
        parsed.unwrap_or_else(|| panic!("no other value known for {path}"))
    }
}
