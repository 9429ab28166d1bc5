//! `dsf sweep --executor slurm|print`: the plan as a job array.

use super::arguments::{Executor, SelectedRuns, Typed};
use crate::cli::{exit, print, Global};
use crate::error::{ensure, refuse, Error, Result};
use crate::files::write_atomic;
use crate::recipes::{all_quoted, quoted};
use crate::store::Store;
use crate::sweep::slurm::{self, Array, Site};
use crate::sweep::PlanStatus;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) fn main(typed: &Typed, asked: &SelectedRuns, global: &Global) -> Result<u8> {
    let device = typed.device;
    device.serves(&typed.training)?;
    ensure!(
        asked.shard.is_none(),
        flag "--shard", "each task of the array is given its own: leave it out with --executor, or say --shards N");
    if let Some(e) = &asked.unidentified {
        print::message(&format!("note: the tasks need files that are not here, and count as to be done: {e}"));
    }
    let site = &typed.site;
    if site.gpus.is_some_and(|gpus| gpus > 0) && !device.is_gpu() {
        refuse!(flag "--gpus", "asks for GPUs that the runs would not use: add --device cuda");
    }
    // The results folder may not exist yet.
    let store = global.out.exists().then(|| Store::existing(&global.out)).transpose()?;
    let to_do = PlanStatus::of(&asked.plan.runs, store.as_ref(), typed.retry_failed)?.to_do.len();
    if to_do == 0 {
        let text = "nothing is left to do: every run is done, or failed before";
        global.emit(&json!({ "event": "submitted", "schema": 1, "tasks": 0 }), text)?;
        return Ok(exit::DONE);
    }
    if typed.executor == Executor::Print {
        let array = array(typed, slurm::shards(site, to_do, None)?, global)?;
        let (tasks, report) = (array.script()?, array.report_script()?);
        if global.json {
            print::line(json!({ "event": "scripts", "schema": 1, "array": tasks, "report": report }))?;
        } else {
            print::result(&format!("{tasks}\n# Its report, a job that waits for the array:\n\n{report}"))?;
        }
        return Ok(exit::DONE);
    }
    submit(typed, site, to_do, global)
}

fn array(typed: &Typed, shards: usize, global: &Global) -> Result<Array> {
    let directory = std::env::current_dir().map_err(Error::io("read", "the current folder"))?;
    let out = directory.join(&global.out);
    let program = std::env::current_exe().map_err(Error::io("find", "this program's own file"))?;
    let words: Vec<String> = { std::env::args_os().skip(1) }.map(|word| text(&word)).collect::<Result<_>>()?;
    let stems: Vec<String> = { &typed.experiment }
        .iter()
        .filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    let mut report = Vec::new();
    for file in &typed.experiment {
        report.extend(["--experiment".to_owned(), text(file.as_os_str())?]);
    }
    report.push(text(out.as_os_str())?);
    Ok(Array {
        name: if stems.is_empty() { "dsf-sweep".to_owned() } else { format!("dsf-{}", stems.join("-")) },
        shards,
        logs: text(logs(&out).as_os_str())?,
        directory: text(directory.as_os_str())?,
        program: text(program.as_os_str())?,
        typed: slurm::for_tasks(&after_sweep(&words)),
        report,
        site: typed.site.clone(),
    })
}

/// Global flags with a value, which may come before the name of a command.
const BEFORE: [&str; 5] = ["-o", "--out", "--threads", "--ops", "--color"];

/// Returns `words` without the command's name, with the words before it moved to the end.
fn after_sweep(words: &[String]) -> Vec<String> {
    let is_value = |at: usize| at > 0 && BEFORE.contains(&words[at - 1].as_str());
    let name = (0..words.len()).find(|at| words[*at] == "sweep" && !is_value(*at)).unwrap_or(0);
    let after = words.get(name + 1..).unwrap_or_default();
    [after, &words[..name]].concat()
}

fn logs(out: &Path) -> PathBuf {
    out.join("slurm")
}

fn text(word: &std::ffi::OsStr) -> Result<String> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        let word = word.display();
        Error::usage(format!("{word} is not UTF-8, and cannot stand in a job script"))
    })
}

fn submit(typed: &Typed, site: &Site, to_do: usize, global: &Global) -> Result<u8> {
    let config = call("scontrol", &["show", "config"])?;
    let shards = slurm::shards(site, to_do, slurm::max_array_size(&config))?;
    let array = array(typed, shards, global)?;
    Store::open(&global.out)?;
    let folder = logs(&global.out);
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    let [tasks, report] = ["array.sh", "report.sh"].map(|name| folder.join(name));
    write_atomic(&tasks, array.script()?.as_bytes())?;
    write_atomic(&report, array.report_script()?.as_bytes())?;
    let (tasks, report) = (text(tasks.as_os_str())?, text(report.as_os_str())?);
    call("sbatch", &["--test-only", &tasks])?;
    let job = id(&call("sbatch", &["--parsable", &tasks])?);
    let after = format!("--dependency=afterany:{job}");
    let reports = id(&call("sbatch", &["--parsable", &after, &report])?);
    let watch = format!("dsf sweep watch {}", all_quoted(&array.typed));
    let (watch, out) = (watch.trim_end(), quoted(&array.logs));
    let event = json!({ "event": "submitted", "schema": 1, "job": job, "report": reports, "tasks": shards,
                        "runs": to_do, "logs": array.logs });
    let text = format!(
        "job {job}: {to_do} runs in {shards} tasks; job {reports} reports when they have ended\n\
         watch:   {watch}    or    squeue -j {job}\n\
         cancel:  scancel {job} {reports}\n\
         again:   the same command submits what is missing then\n\
         logs:    {out}"
    );
    global.emit(&event, &text)?;
    Ok(exit::DONE)
}

/// Parses the number of a job, which on a federation of clusters is followed by a cluster's name.
fn id(said: &str) -> String {
    said.trim().split(';').next().unwrap_or_default().to_owned()
}

/// Runs one of Slurm's commands and returns its output.
fn call(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| {
        let reason = format!(
            "cannot start {program}: {e}; this needs the commands of Slurm on this machine, and --executor print shows the \
             scripts without them"
        );
        Error::flag_value("--executor", "slurm", reason)
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let (line, said) = (arguments.join(" "), said.trim());
        refuse!("Slurm refuses `{program} {line}`: {said}");
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_before_the_name_of_the_command_go_behind_the_others() {
        for (typed, behind) in [
            ("sweep a.toml --out sweep", "a.toml --out sweep"),
            ("--out sweep -q sweep --d 64", "--d 64 --out sweep -q"),
            ("sweep", ""),
        ] {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            assert_eq!(after_sweep(&words).join(" "), behind);
        }
    }

    #[test]
    fn a_job_of_a_federation_is_its_number() {
        assert_eq!((id("12\n"), id("12;north\n")), ("12".into(), "12".into()));
    }
}
