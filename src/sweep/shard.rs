//! Shards: disjoint parts of a plan for machines that only know their own number.

use super::estimate;
use super::grid::Plan;
use crate::config::RunConfig;
use crate::error::{refuse, Error, Result};
use std::fmt;

/// One of several parts of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index, from 0.
    index: usize,
    /// Number of parts.
    count: usize,
}

/// Environment variables in which a scheduler describes a task of a job array.
struct Scheduler {
    name: &'static str,
    /// Variable of the task's number.
    index: &'static str,
    /// Smallest possible number of a task.
    least: usize,
    /// Variables of the range of tasks, if the scheduler has them.
    others: Option<Others>,
}

/// Environment variables of the range of tasks of an array.
struct Others {
    first: &'static str,
    last: &'static str,
    step: &'static str,
    /// Variable of the number of tasks; empty if arrays are always ranges, never lists.
    count: &'static str,
}

// LSF gives the last task, but neither the first nor whether the array is a list.
#[rustfmt::skip]
static SCHEDULERS: [Scheduler; 6] = [
    Scheduler { name: "Slurm", index: "SLURM_ARRAY_TASK_ID", least: 0, others: Some(Others {
        first: "SLURM_ARRAY_TASK_MIN", last: "SLURM_ARRAY_TASK_MAX", step: "SLURM_ARRAY_TASK_STEP",
        count: "SLURM_ARRAY_TASK_COUNT" }) },
    Scheduler { name: "PBS", index: "PBS_ARRAY_INDEX", least: 0, others: None },
    Scheduler { name: "Torque", index: "PBS_ARRAYID", least: 0, others: None },
    Scheduler { name: "LSF", index: "LSB_JOBINDEX", least: 1, others: None },
    Scheduler { name: "Grid Engine", index: "SGE_TASK_ID", least: 1, others: Some(Others {
        first: "SGE_TASK_FIRST", last: "SGE_TASK_LAST", step: "SGE_TASK_STEPSIZE", count: "" }) },
    Scheduler { name: "Kubernetes", index: "JOB_COMPLETION_INDEX", least: 0, others: None },
];

/// Reads a non-negative integer from the environment.
type ReadNumber<'a> = &'a dyn Fn(&str) -> Option<usize>;

/// Tasks of an array, from the variables of its scheduler.
#[derive(Clone, Copy)]
struct Range {
    first: usize,
    last: usize,
    step: usize,
    count: usize,
}

impl Range {
    fn from_variables(others: &Others, number: ReadNumber) -> Option<Self> {
        let (first, last) = (number(others.first)?, number(others.last)?);
        let span = last.checked_sub(first)?;
        let step = number(others.step).unwrap_or(1).max(1);
        let count = match others.count {
            "" => span / step + 1,
            name => number(name)?,
        };
        // Grid Engine may give the end as it was typed, which need not be a task.
        let last = match others.count {
            "" => first + (count - 1) * step,
            _ => last,
        };
        // Two tasks are a range, whatever the distance between them.
        let step = match count {
            2 => (last - first).max(1),
            _ => step,
        };
        Some(Self { first, last, step, count })
    }

    /// Whether its tasks follow each other in equal steps, with `index` among them.
    fn is_whole(self, index: usize) -> bool {
        let steps = (self.last - self.first) / self.step;
        (self.first..=self.last).contains(&index)
            && (index - self.first).is_multiple_of(self.step)
            && (self.last - self.first).is_multiple_of(self.step)
            && self.count == steps + 1
    }
}

const MOST: usize = 100_000;

impl Shard {
    /// Returns part `index` of `count`, counted from 1.
    fn new(index: usize, count: usize, text: &str) -> Result<Self> {
        if !(1..=MOST).contains(&count) || !(1..=count).contains(&index) {
            refuse!(flag "--shard" = text, "no such part; write 1/8 to 8/8, of at most {MOST} parts");
        }
        let index = index - 1;
        Ok(Self { index, count })
    }

    /// Parses `2/8`, the second of eight parts; `auto`, the part given by the scheduler's environment variables, which
    /// `variable` reads; or `auto/8`, the part of eight that belongs to this task's number, whatever the other tasks
    /// are.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let wrong = || Error::flag_value("--shard", text, "not i/N, such as 2/8, auto or auto/8");
        let (index, count) = match text.split_once('/') {
            Some((index, count)) => (index, Some(count.parse().map_err(|_| wrong())?)),
            None if text == "auto" => (text, None),
            None => return Err(wrong()),
        };
        match (index, count) {
            ("auto", count) => Self::from_scheduler(text, count, variable),
            (index, Some(count)) => Self::new(index.parse().map_err(|_| wrong())?, count, text),
            (_, None) => Err(wrong()),
        }
    }

    fn from_scheduler(text: &str, count: Option<usize>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        // Outside an array, the variable is `undefined`, an invalid number, or unset.
        let number = |name: &str| -> Option<usize> { variable(name)?.trim().parse().ok() };
        let index = |s: &Scheduler| number(s.index).filter(|index| *index >= s.least);
        let Some((scheduler, index)) = SCHEDULERS.iter().find_map(|s| Some((s, index(s)?))) else {
            let names = SCHEDULERS.each_ref().map(|s| s.index).join(", ");
            refuse!(flag "--shard" = text, "this is no task of an array, which would set one of {names}; write 1/8");
        };
        let others = scheduler.others.as_ref();
        let range = others.and_then(|others| Range::from_variables(others, &number));
        let (position, count) = match count {
            Some(0) => refuse!(flag "--shard" = text, "no such part; write auto/8"),
            Some(count) => (scheduler.of_number(text, index, count, range)?, count),
            None => scheduler.of_range(text, index, range)?,
        };
        Self::new(position + 1, count, text)
    }

    /// Returns the runs of `plan` in this part, and those in the other parts.
    ///
    /// Runs are dealt to the parts in turn, the most expensive first, so that all parts take about the same time and
    /// begin with their longest run. Work is computed from sizes, so every machine gets the same split.
    pub fn split(self, plan: &Plan) -> Result<(Plan, Vec<RunConfig>)> {
        let work = estimate::work(&plan.runs)?;
        let mut order: Vec<(f64, String, &RunConfig)> =
            { work.iter().zip(&plan.runs) }.map(|(work, run)| (*work, run.id(), run)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (dealt, (_, _, run)) in order.into_iter().enumerate() {
            if dealt % self.count == self.index {
                own.push(run.clone())
            } else {
                others.push(run.clone())
            }
        }
        let own = Plan { runs: own, ..plan.clone() };
        Ok((own, others))
    }
}

impl Scheduler {
    /// Returns the part of the task `index`, from 0, and the number of parts, if every task of the array is one part.
    fn of_range(&self, text: &str, index: usize, range: Option<Range>) -> Result<(usize, usize)> {
        let (name, variable) = (self.name, self.index);
        let Some(range) = range else {
            refuse!(flag "--shard" = text, "{name} does not say which tasks there are; write auto/N for tasks numbered 1 to N");
        };
        if !range.is_whole(index) {
            let Range { first, last, count, .. } = range;
            refuse!(flag "--shard" = text, "the {count} tasks from {first} to {last} are no range, and {name} does not say which numbers they have; write auto/N, where N is the number of parts and each task takes that of its own number, or i/N, such as --shard ${variable}/N");
        }
        // The same part as with auto/N: a task that is submitted again keeps its part.
        let turns = (index - self.least) / range.step;
        Ok((turns % range.count, range.count))
    }

    /// Returns the part of `count`, from 0, for the task number `index`, whatever tasks were submitted: consecutive
    /// tasks have different remainders, wherever they begin.
    fn of_number(&self, text: &str, index: usize, count: usize, range: Option<Range>) -> Result<usize> {
        let (name, variable) = (self.name, self.index);
        let apart = match range {
            Some(range) => range.last - range.first < count || range.step == 1 && range.is_whole(index),
            // Numbered from 0 or from 1; otherwise it is unknown whether tasks are consecutive.
            None => index <= count,
        };
        if !apart {
            refuse!(flag "--shard" = text, "as far as {name} says, two tasks of this array may have one part; number them 1 to {count}, or write i/{count}, with an i that is made of ${variable}");
        }
        Ok((index - self.least) % count)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;
    use crate::recipes::testing::flags;
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
        assert_eq!(shard.split(&plan).unwrap().0.runs, shard.split(&other).unwrap().0.runs);
    }

    #[test]
    fn every_scheduler_tells_a_task_which_part_is_its_own() {
        for (text, environment, said) in [
            ("auto", slurm("5", "4", "11", "8", "1"), "6/8"),
            ("auto/4", vec![("PBS_ARRAY_INDEX", "4")], "1/4"),
            ("auto/4", vec![("PBS_ARRAYID", "3")], "4/4"),
            ("auto/10", vec![("LSB_JOBINDEX", "3"), ("LSB_JOBINDEX_END", "10")], "3/10"),
            ("auto", grid_engine("7", "1", "9", "2"), "4/5"),
            ("auto", grid_engine("7", "1", "10", "2"), "4/5"),
            ("auto/9", grid_engine("7", "7", "7", "undefined"), "7/9"),
            ("auto/3", vec![("JOB_COMPLETION_INDEX", "2")], "3/3"),
        ] {
            assert_eq!(parse(text, &environment).unwrap().to_string(), said);
        }
    }

    type Environment = Vec<(&'static str, &'static str)>;

    fn slurm(
        index: &'static str,
        first: &'static str,
        last: &'static str,
        count: &'static str,
        step: &'static str,
    ) -> Environment {
        vec![
            ("SLURM_ARRAY_TASK_ID", index),
            ("SLURM_ARRAY_TASK_MIN", first),
            ("SLURM_ARRAY_TASK_MAX", last),
            ("SLURM_ARRAY_TASK_COUNT", count),
            ("SLURM_ARRAY_TASK_STEP", step),
        ]
    }

    fn grid_engine(index: &'static str, first: &'static str, last: &'static str, step: &'static str) -> Environment {
        vec![("SGE_TASK_ID", index), ("SGE_TASK_FIRST", first), ("SGE_TASK_LAST", last), ("SGE_TASK_STEPSIZE", step)]
    }

    /// Returns the parts taken by the tasks of a Slurm array, or the first error.
    fn parts(text: &str, tasks: &[usize], step: usize) -> Result<Vec<String>> {
        let told = |n: usize| -> &'static str { n.to_string().leak() };
        let (first, last) = (told(tasks[0]), told(*tasks.last().unwrap()));
        let (count, step) = (told(tasks.len()), told(step));
        let part = |task: &usize| {
            let part = parse(text, &slurm(told(*task), first, last, count, step))?;
            Ok(part.to_string())
        };
        tasks.iter().map(part).collect()
    }

    #[test]
    fn every_part_belongs_to_one_task_of_a_range_with_or_without_steps() {
        for (tasks, step) in [
            ((0..8).collect::<Vec<_>>(), 1),
            ((1..=8).collect(), 1),
            ((5..8).collect(), 1),
            ((0..=12).step_by(3).collect(), 3),
            ((2..=9).step_by(7).collect(), 7),
            (vec![7], 1),
            // One of two tasks is the first and the other the last.
            (vec![5, 9], 1),
        ] {
            let found = parts("auto", &tasks, step).unwrap();
            let all: BTreeSet<String> = (1..=tasks.len()).map(|part| format!("{part}/{}", tasks.len())).collect();
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), all, "{tasks:?}");
        }
    }

    #[test]
    fn a_list_of_tasks_with_gaps_is_refused_with_what_to_type() {
        for (tasks, step) in [
            (vec![1, 7, 9], 1),
            (vec![0, 1, 5, 6], 1),
            (vec![0, 1, 5, 6], 0),
            // Some versions give the step of the first two.
            (vec![0, 3, 6, 7], 3),
            (vec![0, 2, 4], 1),
        ] {
            let at = parts("auto", &tasks, step).refuses("--shard");
            let (count, last) = (tasks.len(), tasks[tasks.len() - 1]);
            let said = format!("{count} tasks from {} to {last}", tasks[0]);
            at.gives("auto").names(&[&said, "auto/N", "--shard $SLURM_ARRAY_TASK_ID/N"]);
        }
        // A number that is none of the tasks, or an array of which not all is told.
        let outside = parse("auto", &grid_engine("8", "1", "9", "2"));
        outside.refuses("--shard").names(&["from 1 to 9"]);
        let mut untold = slurm("5", "4", "11", "8", "1");
        untold.retain(|(name, _)| !name.ends_with("COUNT"));
        let untold = parse("auto", &untold).refuses("--shard");
        untold.names(&["Slurm", "auto/N"]);
    }

    #[test]
    fn a_task_that_is_submitted_again_has_the_part_that_it_had() {
        for all in [(0..10).collect::<Vec<usize>>(), (1..=10).collect(), (4..14).collect()] {
            let whole = parts("auto", &all, 1).unwrap();
            assert_eq!(parts("auto/10", &all, 1).unwrap(), whole);
            for again in [&[1, 7, 9][..], &[0, 1, 5, 6], &[5, 6], &[9]] {
                let tasks: Vec<usize> = again.iter().map(|i| all[*i]).collect();
                let had: Vec<String> = again.iter().map(|i| whole[*i].clone()).collect();
                assert_eq!(parts("auto/10", &tasks, 1).unwrap(), had, "{tasks:?}");
            }
        }
    }

    #[test]
    fn tasks_that_could_share_one_of_the_parts_asked_for_are_refused() {
        for (tasks, step) in [(vec![1, 7, 9], 1), (vec![0, 2, 4, 6, 8], 2)] {
            let at = parts("auto/5", &tasks, step).refuses("--shard");
            at.gives("auto/5").names(&["1 to 5", "i/5"]);
        }
        for variable in ["PBS_ARRAY_INDEX", "PBS_ARRAYID", "JOB_COMPLETION_INDEX"] {
            let at = parse("auto/5", &[(variable, "9")]).refuses("--shard");
            at.names(&["i/5", &format!("${variable}")]);
        }
        // More tasks than parts, with every part taken.
        let found = parts("auto/2", &[3, 4, 5], 1).unwrap();
        assert_eq!(found, ["2/2", "1/2", "2/2"]);
    }

    #[test]
    fn what_is_no_part_is_refused_with_what_would_be_one() {
        let told = [("SGE_TASK_ID", "undefined")];
        for (text, environment, remedy) in [
            ("0/8", &[][..], "1/8"),
            ("9/8", &[], "1/8"),
            ("1/0", &[], "1/8"),
            ("two/8", &[], "i/N"),
            ("8", &[], "i/N"),
            ("auto", &told, "LSB_JOBINDEX"),
            ("auto/8", &[("LSB_JOBINDEX", "0")], "SGE_TASK_ID"),
            ("auto", &[("JOB_COMPLETION_INDEX", "2")], "auto/N"),
            ("auto", &[("LSB_JOBINDEX", "2")], "auto/N"),
            ("auto/0", &[("JOB_COMPLETION_INDEX", "2")], "auto/8"),
        ] {
            let at = parse(text, environment).refuses("--shard");
            at.gives(text).names(&[remedy]);
        }
    }
}
