//! Parts of a plan for machines that know nothing of each other but a number each.

use super::estimate;
use super::grid::Plan;
use crate::config::RunConfig;
use crate::error::{refuse, Error, Result};
use std::fmt;

/// One of several parts of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 0.
    index: usize,
    /// How many there are.
    count: usize,
}

/// Environment variables by which a scheduler tells a task of an array which one it is; empty where it has none.
struct Scheduler {
    name: &'static str,
    /// The number of the task.
    index: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
    step: &'static str,
}

#[rustfmt::skip]
static SCHEDULERS: [Scheduler; 6] = [
    Scheduler { name: "Slurm", index: "SLURM_ARRAY_TASK_ID", first: "SLURM_ARRAY_TASK_MIN",
                last: "SLURM_ARRAY_TASK_MAX", count: "SLURM_ARRAY_TASK_COUNT", step: "SLURM_ARRAY_TASK_STEP" },
    Scheduler { name: "PBS", index: "PBS_ARRAY_INDEX", first: "", last: "", count: "", step: "" },
    Scheduler { name: "Torque", index: "PBS_ARRAYID", first: "", last: "", count: "", step: "" },
    Scheduler { name: "LSF", index: "LSB_JOBINDEX", first: "", last: "LSB_JOBINDEX_END", count: "",
                step: "LSB_JOBINDEX_STEP" },
    Scheduler { name: "Grid Engine", index: "SGE_TASK_ID", first: "SGE_TASK_FIRST", last: "SGE_TASK_LAST", count: "",
                step: "SGE_TASK_STEPSIZE" },
    Scheduler { name: "Kubernetes", index: "JOB_COMPLETION_INDEX", first: "", last: "", count: "", step: "" },
];

const MOST: usize = 100_000;

impl Shard {
    /// Part `index` of `count`, from 1.
    fn new(index: usize, count: usize, text: &str) -> Result<Self> {
        if !(1..=MOST).contains(&count) || !(1..=count).contains(&index) {
            refuse!("--shard {text}: no such part; write 1/8 to 8/8, of at most {MOST} parts");
        }
        let index = index - 1;
        Ok(Self { index, count })
    }

    /// `2/8` is the second of eight parts; `auto` what the scheduler around this process says in its environment, which
    /// `variable` gives; `auto/8` the same where it does not say how many tasks there are.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let wrong = || {
            Error::usage(format!(
                "--shard {text}: not i/N, such as 2/8, auto or auto/8"
            ))
        };
        let (index, count) = match text.split_once('/') {
            Some((index, count)) => (index, Some(count.parse().map_err(|_| wrong())?)),
            None if text == "auto" => (text, None),
            None => return Err(wrong()),
        };
        match (index, count) {
            ("auto", count) => Self::told(text, count, variable),
            (index, Some(count)) => Self::new(index.parse().map_err(|_| wrong())?, count, text),
            (_, None) => Err(wrong()),
        }
    }

    fn told(
        text: &str,
        count: Option<usize>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        // A job that is no array has `undefined` there, or nothing.
        let number = |name: &str| -> Option<usize> { variable(name)?.trim().parse().ok() };
        let mut found = SCHEDULERS.iter();
        let Some((scheduler, index)) = found.find_map(|s| Some((s, number(s.index)?))) else {
            let names = SCHEDULERS.each_ref().map(|s| s.index).join(", ");
            refuse!("--shard {text}: this is no task of an array, which would set one of {names}; write 1/8");
        };
        let step = number(scheduler.step).unwrap_or(1).max(1);
        let first = number(scheduler.first);
        let of_last = || {
            Some(
                (number(scheduler.last)? + 1)
                    .saturating_sub(first.unwrap_or(1))
                    .div_ceil(step),
            )
        };
        let Some(count) = count.or_else(|| number(scheduler.count)).or_else(of_last) else {
            let name = scheduler.name;
            refuse!("--shard {text}: {name} does not say how many tasks there are; write auto/N");
        };
        // Tasks that follow each other have different remainders, wherever they begin.
        let position = match (first, scheduler.last) {
            (Some(first), _) => index.saturating_sub(first) / step,
            (None, "") => index,
            (None, _) => index.saturating_sub(1) / step,
        };
        if count == 0 {
            refuse!("--shard {text}: no such part; write auto/8");
        }
        Self::new(position % count + 1, count, text)
    }

    /// The runs of `plan` that are this part's, and those of the other parts.
    ///
    /// The dearest run is dealt first, each to the next part in turn, so that parts take about as long as each other
    /// and every one begins with its longest run. Work is counted from sizes, so that every machine comes to the same.
    pub fn split(self, plan: &Plan) -> Result<(Plan, Vec<RunConfig>)> {
        let work = estimate::work(&plan.runs)?;
        let mut order: Vec<(f64, String, &RunConfig)> = { work.iter().zip(&plan.runs) }
            .map(|(work, run)| (*work, run.id(), run))
            .collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (dealt, (_, _, run)) in order.into_iter().enumerate() {
            match dealt % self.count == self.index {
                true => own.push(run.clone()),
                false => others.push(run.clone()),
            }
        }
        let own = Plan {
            runs: own,
            ..plan.clone()
        };
        Ok((own, others))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::flags;
    use super::*;
    use std::collections::BTreeSet;

    fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Shard> {
        let variable = |name: &str| {
            let mut found = environment.iter();
            let found = found.find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Shard::parse(text, &variable)
    }

    fn plan() -> Plan {
        let flags = flags("--preset smoke --mixer ssd,softmax,s6 --d 8,16,32 --seeds 3");
        Plan::of(crate::recipes::task("mqar").unwrap(), &flags).unwrap()
    }

    #[test]
    fn every_run_is_in_one_part_and_parts_are_alike() {
        let plan = plan();
        let total: f64 = estimate::work(&plan.runs).unwrap().iter().sum();
        for count in [1, 2, 4, 7] {
            let mut seen = BTreeSet::new();
            for index in 1..=count {
                let shard = parse(&format!("{index}/{count}"), &[]).unwrap();
                let (own, others) = shard.split(&plan).unwrap();
                assert_eq!(own.runs.len() + others.len(), 27);
                let work = estimate::work(&own.runs).unwrap();
                assert!(work.is_sorted_by(|a, b| a >= b), "the dearest first");
                let share = work.iter().sum::<f64>() / total * f64::from(count);
                assert!((0.5..1.5).contains(&share), "{index}/{count}: {share}");
                assert!(own.runs.iter().all(|run| seen.insert(run.id())));
            }
            assert_eq!(seen.len(), 27);
        }
    }

    #[test]
    fn the_split_does_not_depend_on_the_order_of_the_plan() {
        let (plan, mut other) = (plan(), plan());
        other.runs.reverse();
        let shard = parse("2/5", &[]).unwrap();
        assert_eq!(
            shard.split(&plan).unwrap().0.runs,
            shard.split(&other).unwrap().0.runs
        );
    }

    #[test]
    fn every_scheduler_tells_a_task_which_part_is_its_own() {
        for (text, environment, said) in [
            (
                "auto",
                &[
                    ("SLURM_ARRAY_TASK_ID", "5"),
                    ("SLURM_ARRAY_TASK_MIN", "4"),
                    ("SLURM_ARRAY_TASK_COUNT", "8"),
                ][..],
                "2/8",
            ),
            ("auto/4", &[("PBS_ARRAY_INDEX", "4")], "1/4"),
            ("auto/4", &[("PBS_ARRAYID", "3")], "4/4"),
            (
                "auto",
                &[("LSB_JOBINDEX", "3"), ("LSB_JOBINDEX_END", "10")],
                "3/10",
            ),
            (
                "auto",
                &[
                    ("SGE_TASK_ID", "7"),
                    ("SGE_TASK_FIRST", "1"),
                    ("SGE_TASK_LAST", "9"),
                    ("SGE_TASK_STEPSIZE", "2"),
                ],
                "4/5",
            ),
            ("auto/3", &[("JOB_COMPLETION_INDEX", "2")], "3/3"),
        ] {
            assert_eq!(parse(text, environment).unwrap().to_string(), said);
        }
    }

    #[test]
    fn what_is_no_part_is_refused_with_what_would_be_one() {
        let told = [("SGE_TASK_ID", "undefined")];
        for (text, environment, said) in [
            ("0/8", &[][..], "write 1/8 to 8/8"),
            ("9/8", &[], "write 1/8 to 8/8"),
            ("1/0", &[], "write 1/8 to 8/8"),
            ("two/8", &[], "not i/N"),
            ("8", &[], "not i/N"),
            ("auto", &told, "no task of an array"),
            ("auto", &[("JOB_COMPLETION_INDEX", "2")], "write auto/N"),
            ("auto/0", &[("JOB_COMPLETION_INDEX", "2")], "no such part"),
        ] {
            let message = parse(text, environment).unwrap_err().to_string();
            assert!(message.contains(said), "{text}: {message}");
        }
    }
}
