//! Output of `dsf sweep --dry-run`: the forecast of a sweep.

use super::cost::{costs, makespan, Cost};
use super::format::{bytes, counted, duration, grouped};
use crate::config::{Listed, Omitted, RunConfig, Setting, SETTINGS};
use crate::error::Result;
use crate::store::{Column, Field, Record, Store};
use crate::sweep::{Options, Plan, PlanStatus};
use candle_core::Device;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum length of a list of values that is shown in full.
const MOST_SHOWN: usize = 8;

/// Forecast of a plan in a results folder.
pub struct Forecast<'a> {
    plan: &'a Plan,
    standing: PlanStatus,
    /// Costs of the runs to be done, if they were measured.
    costs: Option<Vec<Cost>>,
    options: &'a Options,
    out: &'a Path,
}

/// Returns the forecast of `plan` in the results folder `out`, which is not created.
pub fn dry_run<'a>(plan: &'a Plan, out: &'a Path, options: &'a Options, device: &Device) -> Result<Forecast<'a>> {
    let store = out.exists().then(|| Store::existing(out)).transpose()?;
    let standing = PlanStatus::of(&plan.runs, store.as_ref(), options.retry_failed)?;
    let costs = Some(costs(&standing.to_do, device)?);
    Ok(Forecast { plan, standing, costs, options, out })
}

impl Forecast<'_> {
    /// Returns the text for people.
    pub fn text(&self) -> Result<String> {
        let costs = self.costs.as_deref().unwrap_or_default();
        describe(self.plan, &self.standing, costs, self.options, self.out)
    }

    /// Returns the event for programs.
    pub fn event(&self) -> Result<Value> {
        let (standing, options) = (&self.standing, self.options);
        let rest = standing.plan();
        let axes = axes(self.plan).into_iter();
        let settings: Map<String, Value> = axes.map(|axis| (axis.name.to_owned(), json!(axis.values))).collect();
        let ids: Vec<String> = standing.to_do.iter().map(RunConfig::id).collect();
        let costs = self.costs.as_deref();
        let [all, once] = [|cost: &Cost| cost.seconds, |cost: &Cost| cost.epoch_seconds]
            .map(|of| costs.map(|costs| makespan(costs.iter().map(of), options.jobs)));
        let most = costs.map(|costs| memory(costs, options));
        Ok(json!({
            "event": "plan", "schema": 1, "runs": self.plan.runs.len(), "done": standing.done,
            "failed": standing.failed, "begun": standing.begun, "to_do": ids, "duplicates": self.plan.duplicates,
            "settings": settings, "steps": rest.steps()?, "tokens": rest.tokens()?, "seconds": all,
            "seconds_of_one_epoch_each": once, "bytes_of_largest": most.map(|most| most[0]),
            "bytes_at_once": most.map(|most| most[1]), "jobs": options.jobs, "threads": options.threads,
            "devices": options.devices, "notes": self.plan.notes, "out": self.out,
        }))
    }
}

/// Returns the event that announces `plan`, without costs, for programs.
pub fn announced(plan: &Plan, store: &Store, options: &Options, out: &Path) -> Result<Value> {
    let standing = PlanStatus::of(&plan.runs, Some(store), options.retry_failed)?;
    Forecast { plan, standing, costs: None, options, out }.event()
}

/// Summarises `plan` in one line: the number of runs and the settings that vary.
pub fn headline(plan: &Plan) -> String {
    let varied: Vec<String> = axes(plan)
        .into_iter()
        .filter(|axis| axis.values.len() > 1)
        .map(|axis| format!("{} {}", axis.name, axis.listed()))
        .collect();
    let runs = counted(plan.runs.len(), "run");
    if varied.is_empty() {
        return runs;
    }
    format!("{runs}: {}", varied.join("; "))
}

/// Returns the text for `plan`; `costs` belong to `standing.to_do`.
pub(super) fn describe(
    plan: &Plan,
    standing: &PlanStatus,
    costs: &[Cost],
    options: &Options,
    out: &Path,
) -> Result<String> {
    let mut lines = vec![format!("plan    {}", runs(plan, standing))];
    let shown = axes(plan).into_iter().filter(PlannedValues::shown);
    lines.extend(shown.map(|axis| format!("        {:<13} {}", axis.name, axis.listed())));
    if standing.to_do.is_empty() {
        lines.push("time    nothing is left to do".to_owned());
    } else {
        lines.push(format!("work    {}", work(standing)?));
        lines.push(format!("time    {}", time(costs, options)));
        let [largest, together] = memory(costs, options).map(bytes);
        lines.push(format!("memory  about {largest} for the largest run, {together} for the largest at once"));
    }
    lines.push(format!("out     {}", out.display()));
    Ok(lines.join("\n") + "\n")
}

fn runs(plan: &Plan, standing: &PlanStatus) -> String {
    let mut said = format!(
        "{}: {} done, {} failed, {} to do",
        counted(plan.runs.len(), "run"),
        grouped(standing.done as u64),
        grouped(standing.failed as u64),
        grouped(standing.to_do.len() as u64)
    );
    if standing.begun > 0 {
        said += &format!(" ({} of them begun)", grouped(standing.begun as u64));
    }
    if plan.duplicates > 0 {
        said += &format!("; {} left out", counted(plan.duplicates, "duplicate"));
    }
    said
}

fn work(standing: &PlanStatus) -> Result<String> {
    let rest = standing.plan();
    let (steps, tokens) = (grouped(rest.steps()?), grouped(rest.tokens()?));
    Ok(format!("at most {steps} steps and {tokens} tokens"))
}

fn time(costs: &[Cost], options: &Options) -> String {
    let all = duration(makespan(costs.iter().map(|c| c.seconds), options.jobs));
    let once = duration(makespan(costs.iter().map(|c| c.epoch_seconds), options.jobs));
    let jobs = counted(options.jobs, "job");
    let threads = counted(options.threads, "thread");
    format!(
        "at most about {all} on {} with {jobs} of {threads}, less where a run learns sooner; \
         {once} for one epoch each",
        options.devices.join(", ")
    )
}

/// Bytes of the largest run, and of the largest runs that are trained in parallel.
fn memory(costs: &[Cost], options: &Options) -> [f64; 2] {
    let mut needs: Vec<f64> = costs.iter().map(|cost| cost.bytes).collect();
    needs.sort_by(|a, b| b.total_cmp(a));
    let together = needs.iter().take(options.jobs.max(1)).sum();
    [needs.first().copied().unwrap_or(0.0), together]
}

/// Values of a setting over a plan.
struct PlannedValues {
    name: &'static str,
    /// Whether it is shown even if it does not vary.
    always: bool,
    values: Vec<String>,
}

impl PlannedValues {
    fn shown(&self) -> bool {
        self.values.len() > usize::from(!self.always)
    }

    fn listed(&self) -> String {
        match &self.values[..] {
            [first, second, .., last] if self.values.len() > MOST_SHOWN => {
                format!("{first}, {second}, .. {last} ({} values)", self.values.len())
            }
            values => values.join(", "),
        }
    }
}

/// Returns the settings of a non-empty plan, in the order of `--help`.
fn axes(plan: &Plan) -> Vec<PlannedValues> {
    let rows: Vec<Record> = plan.runs.iter().map(Record::planned).collect();
    let mut axes: Vec<PlannedValues> = Vec::new();
    for setting in SETTINGS.typed().filter(|setting| setting.listed != Listed::Chosen || is_chosen(setting, &rows)) {
        let of = |row: &Record| point(setting, row).filter(|(_, value)| !value.is_empty());
        let neutral = match setting.omitted {
            Omitted::Neutral(value) if rows.iter().any(|row| of(row).is_some()) => Some((setting.name, value)),
            _ => None,
        };
        for row in &rows {
            let neutral = || neutral.map(|(name, value)| (name, value.to_owned()));
            let Some((name, value)) = of(row).or_else(neutral) else { continue };
            match axes.iter_mut().find(|axis| axis.name == name) {
                Some(axis) if axis.values.contains(&value) => {}
                Some(axis) => axis.values.push(value),
                None => axes.push(PlannedValues {
                    name,
                    always: matches!(setting.listed, Listed::Always(_) | Listed::AlwaysOr(..) | Listed::AlwaysWith(..)),
                    values: vec![value],
                }),
            }
        }
    }
    axes
}

/// Whether `rows` differ in a setting by choice, and not only where task, data set, protocol or mixer differ.
fn is_chosen(setting: &Setting, rows: &[Record]) -> bool {
    let Some(column) = setting.column().and_then(|name| Column::find(&name)) else { return false };
    let mut known: BTreeMap<[&str; 4], &Field> = BTreeMap::new();
    rows.iter().any(|row| {
        let followed = [Column::TASK, Column::DATASET, Column::PROTOCOL, Column::MIXER].map(|column| row.text(column));
        let found = row.get(column);
        *known.entry(followed).or_insert(found) != found
    })
}

/// Returns the name of a setting in the list and its value in a run; empty if the run's task has no such setting.
fn point(setting: &'static Setting, row: &Record) -> Option<(&'static str, String)> {
    // Formats `0` and not `0.0`.
    let value = |setting: &Setting| {
        let column = Column::find(&setting.column()?)?;
        Some(row.number(column).map_or_else(|| row.get(column).to_string(), |number| number.to_string()))
    };
    let of = |name: &str| value(SETTINGS.find(name)?);
    Some(match setting.listed {
        Listed::Within => return None,
        Listed::Varied | Listed::Chosen => (setting.name, value(setting)?),
        Listed::As(other) => (setting.name, of(other)?),
        Listed::Always(name) => (name, value(setting)?),
        Listed::AlwaysOr(name, zero) => match value(setting)? {
            value if value == "0" => (name, zero.to_owned()),
            value => (name, value),
        },
        Listed::AlwaysWith(name, other, both) => match of(other).filter(|other| !["", "0"].contains(&other.as_str())) {
            Some(other) => (both, format!("{}:{other}", value(setting)?)),
            None => (name, value(setting)?),
        },
    })
}
