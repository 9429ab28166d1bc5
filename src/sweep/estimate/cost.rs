//! Time and memory of runs: a few real steps on this machine, scaled by the work of a run.

use super::format::{bytes, counted, duration};
use super::work::{RunWork, SizeCache};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::tasks::{ExampleSizes, Splits};
use crate::train::{Event, Trainer};
use candle_core::Device;
use std::collections::BTreeMap;

/// Work of a timed step in flops: a few tenths of a second on two cores.
const PROBE: f64 = 2e10;
/// Number of steps of a probe. The first touches its memory for the first time; the fastest of the others counts, since
/// disturbances only make a step slower.
const STEPS: usize = 3;

/// Time and memory of a run that does not stop early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Seconds of one epoch including its evaluation.
    pub epoch_seconds: f64,
    /// Seconds of all epochs.
    pub seconds: f64,
    /// Peak memory in bytes.
    pub bytes: f64,
}

/// Returns the costs of `runs`, in their order, on `device` with the threads of this process.
///
/// For every mixer, the smallest and the largest run make three steps with a small batch; the seconds per flop of other
/// runs are interpolated.
pub fn costs(runs: &[RunConfig], device: &Device) -> Result<Vec<Cost>> {
    let mut cache = SizeCache::default();
    let works: Vec<RunWork> = runs.iter().map(|run| cache.work(run)).collect::<Result<_>>()?;
    measured(runs, &works, device)
}

fn measured(runs: &[RunConfig], works: &[RunWork], device: &Device) -> Result<Vec<Cost>> {
    let mut kinds: BTreeMap<(&str, &str, Option<String>), Vec<usize>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        let model = &run.model;
        let hybrid = model.hybrid.as_ref().map(|hybrid| hybrid.to_string());
        let kind = (model.mixer.as_str(), model.variant.as_str(), hybrid);
        kinds.entry(kind).or_default().push(index);
    }
    let mut costs = vec![None; runs.len()];
    for indices in kinds.values() {
        let model = CostModel::measure(runs, works, indices, device)?;
        for &index in indices {
            costs[index] = Some(model.cost(&runs[index], &works[index]));
        }
    }
    Ok(costs.into_iter().flatten().collect())
}

/// Describes the cost of one run in a sentence; `task` holds the sizes of its task.
pub fn sentence(run: &RunConfig, task: &ExampleSizes, device: &Device) -> Result<String> {
    let work = RunWork::new(run, task, SizeCache::default().sizes(run, task)?)?;
    let costs = measured(std::slice::from_ref(run), &[work], device)?;
    let said = costs.iter().map(|cost| {
        let (epoch, all) = (duration(cost.epoch_seconds), duration(cost.seconds));
        let epochs = counted(run.train.epochs, "epoch");
        let memory = bytes(cost.bytes);
        let time = if run.train.stop_above < 1.0 {
            format!("at most about {all} for {epochs}, less if it learns sooner")
        } else {
            format!("about {all} for {epochs}")
        };
        format!("estimate: {epoch} an epoch, {time}; about {memory} of memory")
    });
    Ok(said.collect())
}

/// Seconds that `jobs` workers need if each takes the next run as soon as it is free.
pub(super) fn makespan(seconds: impl IntoIterator<Item = f64>, jobs: usize) -> f64 {
    let mut busy_until = vec![0.0; jobs.max(1)];
    for seconds in seconds {
        busy_until.sort_by(f64::total_cmp);
        busy_until[0] += seconds;
    }
    busy_until.into_iter().fold(0.0, f64::max)
}

/// Seconds per flop of one mixer, for its smallest and its largest example.
pub(super) struct CostModel {
    pub small: Probe,
    pub large: Probe,
}

/// A timed step.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    /// Work of an example in flops.
    pub example: f64,
    pub seconds_per_flop: f64,
}

impl CostModel {
    fn measure(runs: &[RunConfig], works: &[RunWork], indices: &[usize], device: &Device) -> Result<Self> {
        let mut by_size = indices.to_vec();
        by_size.sort_by(|&a, &b| works[a].example.total_cmp(&works[b].example));
        let probe = |index: usize| Probe::measure(&runs[index], &works[index], device);
        let (first, last) = (by_size[0], by_size[by_size.len() - 1]);
        let small = probe(first)?;
        let large = if works[first].example == works[last].example { small } else { probe(last)? };
        Ok(Self { small, large })
    }

    pub fn cost(&self, run: &RunConfig, work: &RunWork) -> Cost {
        let Self { small, large } = self;
        let span = (large.example / small.example).ln();
        let position = if span > 0.0 { (work.example / small.example).ln() / span } else { 0.0 };
        let slope = large.seconds_per_flop - small.seconds_per_flop;
        let epoch_seconds = (small.seconds_per_flop + position * slope) * work.epoch;
        Cost { epoch_seconds, seconds: run.train.epochs as f64 * epoch_seconds, bytes: work.bytes }
    }
}

impl Probe {
    /// Trains a few steps of `run`, with the smallest batch that is long enough to time.
    fn measure(run: &RunConfig, work: &RunWork, device: &Device) -> Result<Self> {
        let fair = (PROBE / work.example) as usize;
        let batch = fair.clamp(1, run.train.batch_size);
        let mut run = run.clone();
        run.train.batch_size = batch;
        let objective = run.task.entry()?.objective;
        let data = Splits::placeholder(objective, &run.task.sizes()?, STEPS * batch);
        let mut trainer = Trainer::new(&run, &data, device)?;
        let (mut before, mut fastest) = (0.0, f64::INFINITY);
        let mut timed = |trainer: &Trainer, event: Event| {
            let step = trainer.seconds() - before;
            before = trainer.seconds();
            if trainer.progress().step > 1 {
                fastest = step.min(fastest);
            }
            match event {
                Event::Step { .. } if trainer.progress().step < STEPS => Ok(()),
                _ => Err(Error::Stopped),
            }
        };
        match trainer.run(&mut timed) {
            Ok(_) | Err(Error::Stopped) => {}
            Err(e) => return Err(e),
        }
        // If the first loss is not finite there is no step to time, and the run ends at once.
        let seconds = if fastest.is_finite() { fastest } else { 0.0 };
        Ok(Self { example: work.example, seconds_per_flop: seconds / work.step(batch) })
    }
}
