//! Whole models: three training steps on the device beside three on the CPU, from the same seed.

use super::sizes::SMALL;
use super::{DeviceRow, Kind, Task};
use crate::error::Result;
use crate::mixers::MIXERS;
use crate::tasks;
use crate::train::Trainer;
use candle_core::{DType, Device};

const STEPS: usize = 3;

pub(super) fn tasks(types: &'static [DType]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for entry in MIXERS {
        for &io in types {
            let row = DeviceRow::new(Kind::Model, SMALL.case(entry.name), io);
            tasks.push(Task::new(row, move |row, bench| {
                let expected = losses(entry.name, DType::F32, &Device::Cpu)?;
                let got = losses(entry.name, io, &bench.device)?;
                let apart = got
                    .iter()
                    .zip(&expected)
                    .map(|(x, y)| (x - y).abs() / y.abs());
                let worst = apart.fold(0.0, |most, d| if most >= d { most } else { d });
                row.loss = got.last().copied();
                row.apart(worst, tolerance(io));
                Ok(())
            }));
        }
    }
    tasks
}

fn tolerance(io: DType) -> f64 {
    match io {
        DType::BF16 => 2e-2,
        _ => 1e-4,
    }
}

fn losses(mixer: &str, io: DType, device: &Device) -> Result<Vec<f64>> {
    let config = SMALL.config(mixer, STEPS, io, None)?;
    let data = tasks::load(&config.task)?;
    let mut trainer = Trainer::new(&config, &data, device)?;
    (0..STEPS).map(|_| trainer.step()).collect()
}
