//! The text of `dsf sweep --dry-run`: what a sweep would do.

use super::cost::{costs, makespan, Cost};
use super::format::{bytes, counted, duration, grouped};
use crate::config::RunConfig;
use crate::error::Result;
use crate::store::{Record, Status, Store};
use crate::sweep::{Options, Plan};
use candle_core::Device;
use std::collections::HashSet;
use std::path::Path;

/// A list of values is shown in full up to this length.
const MOST_SHOWN: usize = 8;

/// What `plan` would do in the results folder `out`, which is not made if it is not there.
pub fn dry_run(plan: &Plan, out: &Path, options: &Options, device: &Device) -> Result<String> {
    let store = out.exists().then(|| Store::existing(out)).transpose()?;
    let standing = Standing::of(plan, store.as_ref(), options.retry_failed)?;
    let costs = costs(&standing.to_do, device)?;
    describe(plan, &standing, &costs, options, out)
}

/// `plan` in one line: how many runs, and of what.
pub fn headline(plan: &Plan) -> String {
    let varied = axes(plan).into_iter().filter(|axis| axis.values.len() > 1);
    let varied: Vec<String> = varied
        .map(|axis| format!("{} {}", axis.name, axis.listed()))
        .collect();
    let runs = counted(plan.runs.len(), "run");
    if varied.is_empty() {
        return runs;
    }
    format!("{runs}: {}", varied.join("; "))
}

/// How many runs of a plan have which status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Standing {
    /// Finished.
    pub done: usize,
    /// Failed.
    pub failed: usize,
    /// Begun: continued from a checkpoint if there is one.
    pub begun: usize,
    /// The runs that the sweep would train, in its order.
    pub to_do: Vec<RunConfig>,
}

impl Standing {
    /// Looks up every run of `plan`; without a store nothing was ever begun.
    pub fn of(plan: &Plan, store: Option<&Store>, retry_failed: bool) -> Result<Self> {
        let mut standing = Self::default();
        for run in &plan.runs {
            let status = match store {
                Some(store) => store.status(&run.id())?,
                None => Status::Missing,
            };
            match status {
                Status::Done => standing.done += 1,
                Status::Failed => standing.failed += 1,
                Status::Started => standing.begun += 1,
                Status::Missing => {}
            }
            let wanted = match status {
                Status::Done => false,
                Status::Failed => retry_failed,
                Status::Started | Status::Missing => true,
            };
            if wanted {
                standing.to_do.push(run.clone());
            }
        }
        Ok(standing)
    }
}

/// The text for `plan`; `costs` are those of `standing.to_do`.
pub(super) fn describe(
    plan: &Plan,
    standing: &Standing,
    costs: &[Cost],
    options: &Options,
    out: &Path,
) -> Result<String> {
    let mut lines = vec![format!("plan    {}", runs(plan, standing))];
    let shown = axes(plan).into_iter().filter(Axis::shown);
    lines.extend(shown.map(|axis| format!("        {:<14}{}", axis.name, axis.listed())));
    if standing.to_do.is_empty() {
        lines.push("time    nothing is left to do".to_owned());
    } else {
        lines.push(format!("work    {}", work(standing)?));
        lines.push(format!("time    {}", time(costs, options)));
        lines.push(format!("memory  {}", memory(costs, options)));
    }
    lines.push(format!("out     {}", out.display()));
    Ok(lines.join("\n") + "\n")
}

fn runs(plan: &Plan, standing: &Standing) -> String {
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

fn work(standing: &Standing) -> Result<String> {
    let rest = Plan {
        runs: standing.to_do.clone(),
        ..Plan::default()
    };
    let (steps, tokens) = (grouped(rest.steps()?), grouped(rest.tokens()?));
    Ok(format!("at most {steps} steps and {tokens} tokens"))
}

fn time(costs: &[Cost], options: &Options) -> String {
    let all = duration(makespan(costs.iter().map(|c| c.seconds), options.jobs));
    let once = duration(makespan(
        costs.iter().map(|c| c.epoch_seconds),
        options.jobs,
    ));
    let jobs = counted(options.jobs, "job");
    let threads = counted(options.threads, "thread");
    format!(
        "at most about {all} on {} with {jobs} of {threads}, less where a run learns sooner; \
         {once} for one epoch each",
        options.devices.join(", ")
    )
}

fn memory(costs: &[Cost], options: &Options) -> String {
    let mut needs: Vec<f64> = costs.iter().map(|cost| cost.bytes).collect();
    needs.sort_by(|a, b| b.total_cmp(a));
    let largest = bytes(needs.first().copied().unwrap_or(0.0));
    let together = bytes(needs.iter().take(options.jobs.max(1)).sum());
    format!("about {largest} for the largest run, {together} for the largest at once")
}

/// The values of a setting over a plan.
struct Axis {
    name: &'static str,
    /// Whether it is shown even if it never varies.
    always: bool,
    values: Vec<String>,
}

impl Axis {
    fn shown(&self) -> bool {
        self.values.len() > usize::from(!self.always)
    }

    fn listed(&self) -> String {
        match &self.values[..] {
            [first, second, .., last] if self.values.len() > MOST_SHOWN => {
                format!(
                    "{first}, {second}, .. {last} ({} values)",
                    self.values.len()
                )
            }
            values => values.join(", "),
        }
    }
}

/// The settings of a plan that has any run.
fn axes(plan: &Plan) -> Vec<Axis> {
    let rows: Vec<Record> = plan.runs.iter().map(Record::planned).collect();
    let axes = AXES.iter().map(|&(name, always, value_of)| {
        let mut seen = HashSet::new();
        let mut values: Vec<String> = rows.iter().map(value_of).collect();
        values.retain(|value| !value.is_empty() && seen.insert(value.clone()));
        Axis {
            name,
            always,
            values,
        }
    });
    axes.collect()
}

/// A number as a person writes it: `0` and not `0.0`.
fn number(row: &Record, name: &str) -> String {
    let number = row.number(name);
    number.map_or(String::new(), |number| number.to_string())
}

type ValueOf = fn(&Record) -> String;

/// Name, whether it is always shown, and its value in a run: empty where its task has no such setting.
static AXES: [(&str, bool, ValueOf); 25] = [
    ("dataset", true, |row| row.get("dataset").to_string()),
    ("mixer", true, |row| row.get("mixer").to_string()),
    ("variant", false, |row| row.get("variant").to_string()),
    ("protocol", true, |row| row.get("protocol").to_string()),
    ("d", true, |row| row.get("d").to_string()),
    ("n", true, |row| row.get("n").to_string()),
    ("heads", false, |row| row.get("heads").to_string()),
    ("layers", false, |row| row.get("layers").to_string()),
    ("L:k", true, |row| match row.count("kv_pairs") {
        0 => String::new(),
        pairs => format!("{}:{pairs}", row.get("seq_len")),
    }),
    ("L", true, |row| match row.count("kv_pairs") {
        0 => row.get("seq_len").to_string(),
        _ => String::new(),
    }),
    ("V", true, |row| row.get("vocab_size").to_string()),
    ("examples", true, |row| match row.count("train_examples") {
        0 => "all".to_owned(), // of a text, whose length is known once it is read
        count => count.to_string(),
    }),
    ("data", false, |row| {
        format!("{} {}", row.get("data"), row.get("data_seed"))
    }),
    ("lr", true, |row| number(row, "lr")),
    ("epochs", true, |row| row.get("epochs_max").to_string()),
    ("batch", true, |row| row.get("batch_size").to_string()),
    ("weight decay", false, |row| number(row, "weight_decay")),
    ("precision", false, |row| row.get("precision").to_string()),
    ("dropout", false, |row| number(row, "embed_dropout")),
    ("input", false, |row| row.get("input").to_string()),
    ("pool", false, |row| row.get("pool").to_string()),
    ("mask", false, |row| row.get("mask").to_string()),
    ("dual", false, |row| row.get("dual").to_string()),
    ("loss", false, |row| row.get("loss").to_string()),
    ("seed", true, |row| row.get("seed").to_string()),
];
