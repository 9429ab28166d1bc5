//! Job scripts for Slurm: an array in which every task trains a shard of the plan, and a report when all tasks have
//! ended.

use crate::error::{refuse, Error, Result};
use crate::recipes::{all_quoted, quoted};
use clap::Args;

/// Default number of tasks of an array.
const USUAL_SHARDS: usize = 16;
/// Seconds before the end of a task's time limit at which it writes its checkpoints.
const NOTICE: u32 = 120;
/// Time limit of the report, in minutes, for sites that require one.
const REPORT_TIME: &str = "30";

/// Resources requested from Slurm, whose own terms are passed on unchanged.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster (with --executor slurm or print)")]
pub struct Site {
    /// Number of tasks of the job array, each with one shard of the runs [default: one per run, at most 16].
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub shards: Option<usize>,
    /// Slurm partition.
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub partition: Option<String>,
    /// Time limit of a task: minutes, H:MM:SS or D-HH. Two minutes before the limit, the runs write checkpoints and the
    /// task requeues itself.
    #[arg(long, hide_short_help = true, value_name = "TIME")]
    pub time: Option<String>,
    /// Memory of a task, such as 8G.
    #[arg(long, hide_short_help = true, value_name = "SIZE")]
    pub mem: Option<String>,
    /// Number of GPUs of a task; needs --device cuda.
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub gpus: Option<usize>,
    /// Number of processors of a task, and of threads of its runs.
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub cpus: Option<usize>,
    /// Slurm account to charge.
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub account: Option<String>,
    /// Additional argument of sbatch, such as --sbatch-arg=--qos=long; may be given several times.
    #[arg(long, hide_short_help = true, value_name = "ARG", allow_hyphen_values = true)]
    pub sbatch_arg: Vec<String>,
}

/// Flags of a sweep that are not passed to its tasks; each takes a value.
const NOT_FOR_TASKS: [&str; 9] =
    ["--executor", "--shards", "--partition", "--time", "--mem", "--gpus", "--cpus", "--account", "--sbatch-arg"];

/// Output format of the submitting command, which is not passed to the tasks: their logs are for people.
const FORM: &str = "--json";

/// A sweep as a job array.
#[derive(Clone, Debug)]
pub struct Array {
    /// Job name.
    pub name: String,
    /// Number of tasks.
    pub shards: usize,
    /// Working directory of the command.
    pub directory: String,
    /// Folder for the logs of the tasks.
    pub logs: String,
    /// Path of this program.
    pub program: String,
    /// Arguments of `dsf sweep`.
    pub typed: Vec<String>,
    /// Arguments of `dsf report`.
    pub report: Vec<String>,
    /// Resources and other options for the site.
    pub site: Site,
}

/// Number of tasks for a plan with `to_do` remaining runs. Fails if `--shards` is 0, or exceeds `most`, the limit of
/// the site.
pub fn shards(site: &Site, to_do: usize, most: Option<usize>) -> Result<usize> {
    let most = most.unwrap_or(usize::MAX);
    let shards = site.shards.unwrap_or(to_do.min(USUAL_SHARDS).min(most));
    if shards == 0 {
        refuse!(flag "--shards" = 0, "must be 1 or more");
    }
    if shards > most {
        refuse!(flag "--shards" = shards, "this cluster takes arrays of {most} tasks at most (MaxArraySize); a task trains many runs");
    }
    Ok(shards)
}

/// Returns `typed` without the flags for the scheduler.
pub fn for_tasks(typed: &[String]) -> Vec<String> {
    let (mut kept, mut value) = (Vec::new(), false);
    for word in typed {
        if std::mem::take(&mut value) {
            continue;
        }
        let name = word.split('=').next().unwrap_or_default();
        match NOT_FOR_TASKS.contains(&name) {
            true => value = name == word,
            false if word == FORM => {}
            false => kept.push(word.clone()),
        }
    }
    kept
}

/// Parses `MaxArraySize` in the output of `scontrol show config`; indices of arrays are below it.
pub fn max_array_size(config: &str) -> Option<usize> {
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == "MaxArraySize").then(|| value.trim().parse().ok())?
    };
    config.lines().find_map(value)
}

impl Array {
    /// Returns the script of the tasks.
    pub fn script(&self) -> Result<String> {
        let site = &self.site;
        let mut lines = vec![
            self.directive("job-name", &self.name)?,
            self.directive("array", &format!("0-{}", self.shards - 1))?,
            "#SBATCH --requeue".to_owned(),
            "#SBATCH --open-mode=append".to_owned(),
            format!("#SBATCH --signal=B:USR1@{NOTICE}"),
            self.directive("output", &self.log("%A_%a.log"))?,
        ];
        let number = |n: Option<usize>| n.map(|n| n.to_string());
        lines.extend(self.requested([
            ("partition", site.partition.clone()),
            ("account", site.account.clone()),
            ("time", site.time.clone()),
            ("mem", site.mem.clone()),
            ("cpus-per-task", number(site.cpus)),
            ("gres", site.gpus.map(|n| format!("gpu:{n}"))),
        ])?);
        let directives = lines.join("\n");
        let directory = quoted(&self.directory);
        let threads = match site.cpus {
            Some(_) if !self.typed.iter().any(|word| word.starts_with("--threads")) => {
                " --threads \"$SLURM_CPUS_PER_TASK\""
            }
            _ => "",
        };
        let command = format!("{} sweep {}", quoted(&self.program), all_quoted(&self.typed));
        let command = command.trim_end();
        let shards = self.shards;
        Ok(format!(
            r#"#!/bin/bash
{directives}

# One shard of a sweep. Shortly before the time is up the runs are left behind checkpoints, and the task queues again;
# it does as well where Slurm takes its place away. What is done is never trained twice.
cd -- {directory} || exit
child= warned=
trap 'warned=1; [ -n "$child" ] && kill -TERM "$child" 2>/dev/null' USR1 USR2
trap '[ -n "$child" ] && kill -TERM "$child" 2>/dev/null' TERM
{command}{threads} --shard "$((SLURM_ARRAY_TASK_ID + 1))/{shards}" & child=$!
while :; do wait "$child"; code=$?; kill -0 "$child" 2>/dev/null || break; done
if [ "$code" -eq 75 ] && [ -n "$warned" ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && sleep 60
fi
# 69: this shard is done, others are not yet.
[ "$code" -eq 69 ] && code=0
exit "$code"
"#
        ))
    }

    /// Returns the script of the job that reports when all tasks have ended, whether they succeeded or failed.
    pub fn report_script(&self) -> Result<String> {
        let site = &self.site;
        let mut lines = vec![
            self.directive("job-name", &format!("{}-report", self.name))?,
            "#SBATCH --open-mode=append".to_owned(),
            self.directive("output", &self.log("report-%j.log"))?,
        ];
        let time = site.time.as_ref().map(|_| REPORT_TIME.to_owned());
        lines.extend(self.requested([
            ("partition", site.partition.clone()),
            ("account", site.account.clone()),
            ("time", time),
        ])?);
        let directives = lines.join("\n");
        let directory = quoted(&self.directory);
        let program = quoted(&self.program);
        let status = format!("{program} sweep status {}", all_quoted(&self.typed));
        let report = format!("{program} report {}", all_quoted(&self.report));
        let (status, report) = (status.trim_end(), report.trim_end());
        Ok(format!("#!/bin/bash\n{directives}\n\ncd -- {directory} || exit\n{status}\n{report}\n"))
    }

    /// Returns the path of the log file `name`. Percent signs of the folder are doubled, since Slurm would expand them.
    fn log(&self, name: &str) -> String {
        format!("{}/{name}", self.logs.replace('%', "%%"))
    }

    /// Directives for the `resources` that have a value, and the additional arguments of sbatch.
    fn requested<const N: usize>(&self, resources: [(&str, Option<String>); N]) -> Result<Vec<String>> {
        let given = resources.into_iter().filter_map(|(name, value)| Some(self.directive(name, &value?)));
        let others = self.site.sbatch_arg.iter().map(|argument| {
            one_line(argument)?;
            Ok(format!("#SBATCH {argument}"))
        });
        given.chain(others).collect()
    }

    fn directive(&self, name: &str, value: &str) -> Result<String> {
        one_line(value)?;
        let quote = if value.contains(char::is_whitespace) { "\"" } else { "" };
        Ok(format!("#SBATCH --{name}={quote}{value}{quote}"))
    }
}

/// Returns an error if `value` would end a directive.
fn one_line(value: &str) -> Result<()> {
    match value.chars().find(|c| c.is_control() || *c == '"') {
        None => Ok(()),
        Some(c) => Err(Error::usage(format!("`{value}` cannot stand in a job script: it holds {c:?}"))),
    }
}
