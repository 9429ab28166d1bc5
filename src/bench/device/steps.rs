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
const WARM_UP: usize = 4;
const ROUNDS: usize = 5;
/// Most steps of a round, and how long it should be.
const MOST: usize = 20;
const ROUND: f64 = 0.25;
/// Steps that there are data for.
const STEPS: usize = WARM_UP + 1 + ROUNDS * MOST;

/// What the other side is called that computes by the definitions of the ops.
const PLAIN: &str = "plain tensor ops";

/// How a step reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Op by op.
    Launched,
    /// Recorded once and replayed, which only a GPU can.
    Recorded,
}

impl Form {
    pub fn name(self) -> &'static str {
        match self {
            Self::Launched => "launched",
            Self::Recorded => "recorded",
        }
    }

    pub fn prepare(self, trainer: &mut Trainer) {
        if self == Self::Recorded {
            trainer.record_steps();
        }
    }
}

pub(super) fn tasks(bench: &DeviceBench) -> Vec<Task> {
    let (forms, types) = (bench.forms(), bench.types());
    let sizes = of_the_paper();
    let ends = [sizes[0], sizes[3]];
    let mut tasks = Vec::new();
    let mut add = |size: Size, io: DType, form: Form, peer: &str| {
        for entry in MIXERS {
            let case = format!("{} {}", size.case(entry.name), form.name());
            let mut row = DeviceRow::new(Kind::Step, case, io);
            row.peer = peer.to_owned();
            let of = Steps {
                size,
                mixer: entry.name,
                io,
                form,
                dropout: None,
            };
            tasks.push(Task::new(row, move |row, bench| {
                of.time(row, bench)?;
                if !row.peer.is_empty() {
                    let plain = by_reference(&mut || of.measure(Form::Launched, bench))?;
                    row.beside(plain.seconds.median);
                }
                Ok(())
            }));
        }
    };
    let best = bench.best_form();
    for size in sizes {
        for &io in types {
            add(size, io, best, "");
        }
    }
    for size in ends {
        for &form in forms.iter().filter(|&&form| form != best) {
            add(size, DType::F32, form, "");
        }
        add(size, DType::F32, best, PLAIN);
    }
    tasks
}

/// Steps of one of our models.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub size: Size,
    pub mixer: &'static str,
    pub io: DType,
    pub form: Form,
    /// Another dropout than the protocol's.
    pub dropout: Option<f64>,
}

struct Measured {
    seconds: Seconds,
    /// Of the last step.
    loss: f64,
}

impl Steps {
    /// Times them.
    pub fn time(&self, row: &mut DeviceRow, bench: &DeviceBench) -> Result<()> {
        let measured = self.measure(self.form, bench)?;
        let floor = floors::step(&self.config(STEPS)?, &H200, self.io.size_in_bytes() as f64);
        row.took(measured.seconds, floor);
        row.tokens_per_second = Some(self.size.tokens() / measured.seconds.median);
        row.loss = Some(measured.loss);
        Ok(())
    }

    /// The run that so many steps are made of.
    pub fn config(&self, steps: usize) -> Result<RunConfig> {
        self.size.config(self.mixer, steps, self.io, self.dropout)
    }

    fn measure(&self, form: Form, bench: &DeviceBench) -> Result<Measured> {
        let (config, device) = (self.config(STEPS)?, &bench.device);
        let data = bench.data(&config.task)?;
        let mut trainer = Trainer::new(&config, &data, device)?;
        form.prepare(&mut trainer);
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
}
