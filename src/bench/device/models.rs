//! Whole models: a few training steps on the device beside the same on the CPU, from the same seed.

use super::sizes::SMALL;
use super::steps::Form;
use super::{DeviceBench, DeviceRow, Kind, Task};
use crate::error::Result;
use crate::mixers::MIXERS;
use crate::tasks;
use crate::train::Trainer;
use candle_core::{DType, Device};

/// The first ones are launched in any form, the later ones replayed where they are recorded.
const STEPS: usize = 4;

pub(super) fn tasks(bench: &DeviceBench) -> Vec<Task> {
    let mut tasks = Vec::new();
    for &form in bench.forms() {
        for entry in MIXERS {
            for &io in bench.types() {
                let case = format!("{} {}", SMALL.case(entry.name), form.name());
                let row = DeviceRow::new(Kind::Model, case, io);
                tasks.push(Task::new(row, move |row, bench| {
                    check(row, entry.name, io, form, &bench.device)
                }));
            }
        }
    }
    tasks
}

fn check(row: &mut DeviceRow, mixer: &str, io: DType, form: Form, device: &Device) -> Result<()> {
    let expected = losses(mixer, DType::F32, Form::Launched, &Device::Cpu)?;
    let got = losses(mixer, io, form, device)?;
    let pairs = got.iter().zip(&expected);
    let apart = pairs.map(|(x, y)| (x - y).abs() / y.abs());
    let worst = apart.fold(0.0, |most, d| if most >= d { most } else { d });
    row.loss = got.last().copied();
    row.apart(worst, tolerance(io));
    Ok(())
}

fn tolerance(io: DType) -> f64 {
    match io {
        DType::BF16 => 2e-2,
        _ => 1e-4,
    }
}

fn losses(mixer: &str, io: DType, form: Form, device: &Device) -> Result<Vec<f64>> {
    let config = SMALL.config(mixer, STEPS, io, None)?;
    let data = tasks::load(&config.task, None)?;
    let mut trainer = Trainer::new(&config, &data, device)?;
    form.prepare(&mut trainer);
    (0..STEPS).map(|_| trainer.step()).collect()
}
