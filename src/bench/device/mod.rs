//! A GPU, or any device: whether it computes what the CPU computes, and how fast, in one call.
//!
//! What there is to do is a list of [tasks](Task), each of which fills a row: everything about
//! correctness first, then single ops, then training steps, then the same beside PyTorch. A task that
//! fails is a row that says why, and the rest goes on.

mod check;
mod models;
mod peers;
mod predicted;
mod row;
mod sizes;
mod steps;
mod time;
mod timings;

pub use row::{DeviceRow, Kind};
use steps::Form;

use crate::config::TaskConfig;
use crate::error::Result;
use crate::ops::{prefer, Route};
use crate::store::Provenance;
use crate::tasks;
use candle_core::{DType, Device};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What is measured and on what.
pub struct DeviceBench {
    /// The device.
    pub device: Device,
    /// Its name in results.
    pub name: String,
    /// Only what contains this in its [title](DeviceRow::title).
    pub only: String,
    /// No measurement is begun after this.
    pub time: Duration,
    /// A Python with torch, and the folder of the peers' scripts.
    pub python: Option<(PathBuf, PathBuf)>,
    data: RefCell<Option<(TaskConfig, Data)>>,
}

/// Examples to train on and to test with.
type Data = Rc<tasks::Splits>;

/// One measurement still to be made: a row that knows what it is about, and what fills it.
struct Task {
    row: DeviceRow,
    work: Work,
}

type Work = Box<dyn Fn(&mut DeviceRow, &DeviceBench) -> Result<()>>;

impl Task {
    fn new(
        row: DeviceRow,
        work: impl Fn(&mut DeviceRow, &DeviceBench) -> Result<()> + 'static,
    ) -> Self {
        let work = Box::new(work);
        Self { row, work }
    }
}

impl DeviceBench {
    /// Everything there is to measure on `device`, called `name`.
    pub fn new(device: Device, name: String) -> Self {
        Self {
            device,
            name,
            only: String::new(),
            time: Duration::MAX,
            python: None,
            data: RefCell::default(),
        }
    }

    /// Measures until nothing is left or the time is over. `begun` hears of every measurement's
    /// beginning, `done` of its row; an error of `done` ends it all. Returned are the titles of what
    /// was left out.
    ///
    /// Ops take their fused form, whatever was preferred before, and will do so afterwards.
    pub fn run(
        &self,
        begun: &mut dyn FnMut(&str),
        done: &mut dyn FnMut(DeviceRow) -> Result<()>,
    ) -> Result<Vec<String>> {
        prefer(Route::Fused);
        let (start, mut left_out) = (Instant::now(), Vec::new());
        for Task { row, work } in self.tasks() {
            let title = row.title();
            if start.elapsed() >= self.time {
                left_out.push(title);
                continue;
            }
            begun(&title);
            done(self.fill(row, &work))?;
        }
        Ok(left_out)
    }

    /// How many measurements there are.
    pub fn count(&self) -> usize {
        self.tasks().len()
    }

    fn fill(&self, mut row: DeviceRow, work: &Work) -> DeviceRow {
        let provenance = Provenance::collect(&self.name, 1);
        (row.device, row.commit) = (self.name.clone(), provenance.commit());
        row.model = match &self.device {
            Device::Cpu => provenance.cpu,
            _ => gpu_model(&self.name),
        };
        if let Err(e) = work(&mut row, self) {
            row.passed = row.passed.and(Some(false));
            row.note = e.to_string();
        }
        row
    }

    /// The data of a task; many models in a row are trained on the same.
    fn data(&self, task: &TaskConfig) -> Result<Data> {
        let mut held = self.data.borrow_mut();
        if let Some((_, data)) = held.as_ref().filter(|(of, _)| of == task) {
            return Ok(data.clone());
        }
        let data = Rc::new(tasks::load(task, None)?);
        *held = Some((task.clone(), data.clone()));
        Ok(data)
    }

    fn tasks(&self) -> Vec<Task> {
        let mut tasks = check::tasks(self.types());
        tasks.extend(models::tasks(self));
        tasks.extend(timings::tasks(self.types()));
        tasks.extend(steps::tasks(self));
        if self.python.is_some() {
            tasks.extend(peers::tasks(self));
        }
        tasks.retain(|task| task.row.title().contains(&self.only));
        tasks
    }

    /// Types of activations: the fused ops of the CPU know no narrower one.
    fn types(&self) -> &'static [DType] {
        match self.device {
            Device::Cpu => &[DType::F32],
            _ => &[DType::F32, DType::BF16],
        }
    }

    /// The forms that steps can take here.
    fn forms(&self) -> &'static [Form] {
        match self.device {
            Device::Cpu => &[Form::Launched],
            _ => &[Form::Launched, Form::Recorded],
        }
    }

    /// The form that runs take.
    fn best_form(&self) -> Form {
        self.forms()[self.forms().len() - 1]
    }
}

/// Does `work` by ordinary tensor ops alone.
fn by_reference<T>(work: &mut dyn FnMut() -> Result<T>) -> Result<T> {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            prefer(Route::Fused);
        }
    }
    let _restore = Restore;
    prefer(Route::Reference);
    work()
}

/// The model of the GPU called `cuda:N`, where the driver's files tell.
fn gpu_model(name: &str) -> String {
    let index: usize = match name.strip_prefix("cuda:").map(str::parse) {
        Some(Ok(index)) => index,
        _ => return String::new(),
    };
    let Ok(folders) = std::fs::read_dir("/proc/driver/nvidia/gpus") else {
        return String::new();
    };
    let mut folders: Vec<PathBuf> = folders.flatten().map(|folder| folder.path()).collect();
    folders.sort();
    let text = folders.get(index).map(|f| f.join("information"));
    let text = text.and_then(|file| std::fs::read_to_string(file).ok());
    let text = text.unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("Model:"));
    model.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests;
