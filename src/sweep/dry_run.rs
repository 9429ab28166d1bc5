//! What a sweep would do, said before it does anything.

use super::estimate::{makespan, Cost};
use super::grid::Plan;
use super::local::Options;
use super::units::{bytes, counted, duration, grouped};
use crate::config::RunConfig;
use crate::error::Result;
use crate::store::{Row, Status, Store};
use std::path::Path;

/// A list is shown in full up to this many values.
const MOST_SHOWN: usize = 8;

/// How far the runs of a plan have come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Finished.
    pub done: usize,
    /// Failed.
    pub failed: usize,
    /// Begun, and continued from a checkpoint if there is one.
    pub begun: usize,
    /// What the sweep would train, in its order.
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

/// What is printed instead of running `plan`. `costs` are those of `standing.to_do`.
pub fn describe(
    plan: &Plan,
    standing: &Standing,
    costs: &[Cost],
    options: &Options,
    out: &Path,
) -> String {
    let mut lines = vec![format!("plan    {}", runs(plan, standing))];
    lines.extend(axes(plan).iter().map(|axis| format!("        {axis}")));
    if standing.to_do.is_empty() {
        lines.push("time    nothing is left to do".to_owned());
    } else {
        lines.push(format!("work    {}", work(standing)));
        lines.push(format!("time    {}", time(costs, options)));
        lines.push(format!("memory  {}", memory(costs, options)));
    }
    lines.push(format!("out     {}", out.display()));
    lines.join("\n") + "\n"
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

fn work(standing: &Standing) -> String {
    let rest = Plan {
        runs: standing.to_do.clone(),
        duplicates: 0,
    };
    let (steps, tokens) = (grouped(rest.steps()), grouped(rest.tokens()));
    format!("at most {steps} steps and {tokens} tokens")
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
        options.device
    )
}

fn memory(costs: &[Cost], options: &Options) -> String {
    let mut needs: Vec<f64> = costs.iter().map(|cost| cost.bytes).collect();
    needs.sort_by(|a, b| b.total_cmp(a));
    let largest = bytes(needs.first().copied().unwrap_or(0.0));
    let together = bytes(needs.iter().take(options.jobs.max(1)).sum());
    format!("about {largest} for the largest run, {together} for the largest at once")
}

/// What varies over the plan, and what everyone wants to know.
fn axes(plan: &Plan) -> Vec<String> {
    let rows: Vec<Row> = plan.runs.iter().map(Row::planned).collect();
    let shown = AXES.iter().filter_map(|axis| {
        let mut values: Vec<String> = Vec::new();
        for value in rows.iter().map(axis.of) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let told = !values.is_empty() && (axis.always || values.len() > 1);
        told.then(|| format!("{:<14}{}", axis.name, listed(&values)))
    });
    shown.collect()
}

fn listed(values: &[String]) -> String {
    match values {
        [first, second, .., last] if values.len() > MOST_SHOWN => {
            format!("{first}, {second}, .. {last} ({} values)", values.len())
        }
        _ => values.join(", "),
    }
}

struct Axis {
    name: &'static str,
    always: bool,
    of: fn(&Row) -> String,
}

const fn axis(name: &'static str, always: bool, of: fn(&Row) -> String) -> Axis {
    Axis { name, always, of }
}

static AXES: [Axis; 17] = [
    axis("mixer", true, |row| row.mixer.clone()),
    axis("variant", false, |row| row.variant.clone()),
    axis("protocol", true, |row| row.protocol.clone()),
    axis("d", true, |row| row.d.to_string()),
    axis("n", true, |row| row.n.to_string()),
    axis("heads", false, |row| row.heads.to_string()),
    axis("layers", false, |row| row.layers.to_string()),
    axis("L:k", true, |row| {
        format!("{}:{}", row.seq_len, row.kv_pairs)
    }),
    axis("V", true, |row| row.vocab_size.to_string()),
    axis("examples", true, |row| row.train_examples.to_string()),
    axis("data", false, |row| {
        format!("{} {}", row.data, row.data_seed)
    }),
    axis("lr", true, |row| row.lr.to_string()),
    axis("epochs", true, |row| row.epochs_max.to_string()),
    axis("batch", true, |row| row.batch_size.to_string()),
    axis("weight decay", false, |row| row.weight_decay.to_string()),
    axis("dropout", false, |row| row.embed_dropout.to_string()),
    axis("seed", true, |row| row.seed.to_string()),
];
