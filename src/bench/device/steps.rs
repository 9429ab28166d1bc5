//! Training steps at the sizes of the paper's tasks, beside their floor and beside plain tensor ops.

use super::sizes::{of_the_paper, Size};
use super::time::{round, Seconds};
use super::{by_reference, DeviceBench, DeviceRow, Kind, Task};
use crate::bench::clock::spread;
use crate::bench::floors::{self, H200};
use crate::config::RunConfig;
use crate::error::Result;
use crate::mixers::MIXERS;
use crate::train::Trainer;
use candle_core::DType;

/// Steps before the clock starts.
pub(super) const WARM_UP: usize = 4;
const ROUNDS: usize = 5;
/// Most steps of a round, and how long it should be.
const MOST: usize = 20;
const ROUND: f64 = 0.25;
/// Steps that there are data for.
pub(super) const STEPS: usize = WARM_UP + 1 + ROUNDS * MOST;

/// What the other side is called that computes by the definitions of the ops.
const CANDLE: &str = "plain tensor ops";

pub(super) fn tasks(types: &'static [DType]) -> Vec<Task> {
    let sizes = of_the_paper();
    let mut tasks = Vec::new();
    for size in sizes {
        for entry in MIXERS {
            for &io in types {
                let row = DeviceRow::new(Kind::Step, size.case(entry.name), io);
                tasks.push(Task::new(row, move |row, bench| {
                    fused(row, size, entry.name, io, None, bench)
                }));
            }
        }
    }
    for size in [sizes[0], sizes[3]] {
        for entry in MIXERS {
            let mut row = DeviceRow::new(Kind::Step, size.case(entry.name), DType::F32);
            row.peer = CANDLE.to_owned();
            tasks.push(Task::new(row, move |row, bench| {
                fused(row, size, entry.name, DType::F32, None, bench)?;
                let config = size.config(entry.name, STEPS, DType::F32, None)?;
                let plain = by_reference(&mut || measure(&config, bench))?;
                row.beside(plain.seconds.median);
                Ok(())
            }));
        }
    }
    tasks
}

/// Times the steps of one of our models.
pub(super) fn fused(
    row: &mut DeviceRow,
    size: Size,
    mixer: &str,
    io: DType,
    dropout: Option<f64>,
    bench: &DeviceBench,
) -> Result<()> {
    let config = size.config(mixer, STEPS, io, dropout)?;
    let measured = measure(&config, bench)?;
    let floor = floors::step(&config, &H200, io.size_in_bytes() as f64);
    row.took(measured.seconds, floor);
    row.tokens_per_second = Some(size.tokens() / measured.seconds.median);
    row.loss = Some(measured.loss);
    Ok(())
}

struct Measured {
    seconds: Seconds,
    /// Of the last step.
    loss: f64,
}

fn measure(config: &RunConfig, bench: &DeviceBench) -> Result<Measured> {
    let (data, device) = (bench.data(&config.task)?, &bench.device);
    let mut trainer = Trainer::new(config, &data, device)?;
    let mut loss = f64::NAN;
    let mut step = || {
        loss = trainer.step()?;
        Ok(())
    };
    for _ in 0..WARM_UP {
        step()?;
    }
    let one = round(device, 1, &mut step)?;
    let steps = ((ROUND / one) as usize).clamp(1, MOST);
    let rounds = (0..ROUNDS).map(|_| round(device, steps, &mut step));
    let rounds = rounds.collect::<Result<Vec<f64>>>()?;
    Ok(Measured {
        seconds: spread(rounds),
        loss,
    })
}
