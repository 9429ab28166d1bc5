//! What a measurement runs on, and what else runs there.

use super::floors::Rates;
use super::row::{Details, Report, Row};
use super::timer::{Clock, Schedule, Timing};
use crate::error::Result;
use crate::gpu;
use crate::ops::{self, Peaks};
use crate::store::{peak_memory_bytes, Provenance};
use candle_core::{DType, Device};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A device, and how work on it is timed.
pub struct Machine {
    /// The device.
    pub device: Device,
    /// Its name in results.
    pub name: String,
    /// Threads that the CPU computes with.
    pub threads: usize,
}

impl Machine {
    /// The CPU with `threads` threads.
    pub fn cpu(threads: usize) -> Self {
        Self {
            device: Device::Cpu,
            name: "cpu".to_owned(),
            threads,
        }
    }

    pub(super) fn is_cpu(&self) -> bool {
        matches!(self.device, Device::Cpu)
    }

    /// Repeats `work`, see [`Schedule::time`].
    pub(super) fn time<T>(
        &self,
        schedule: &Schedule,
        work: &mut dyn FnMut() -> Result<T>,
    ) -> Result<(T, Timing)> {
        let clock = match self.device {
            Device::Cpu => Clock::Cpu,
            _ => Clock::Wall,
        };
        schedule.time(clock, &self.device, work)
    }

    /// Notes in `row` the time that `floor` makes of this machine's rates, and, of a processor, what those are: measured now,
    /// under the clock and the load of the measurement beside them.
    pub(super) fn floor(
        &self,
        row: &mut Row,
        floor: impl FnOnce(&Rates) -> Result<Option<f64>>,
    ) -> Result<()> {
        if let Some(chip) = gpu::chip(&self.device)? {
            row.floor_seconds = floor(&Rates::from(chip))?;
            return Ok(());
        }
        // What the loops need is no memory of the case.
        row.peak_memory_bytes = peak_memory_bytes();
        static PEAKS: OnceLock<Peaks> = OnceLock::new();
        let peaks = *PEAKS.get_or_init(Peaks::measure);
        row.peak_flops = Some(peaks.flops);
        row.peak_lanes = Some(peaks.lanes);
        row.peak_exps = Some(peaks.exps);
        row.peak_bytes = Some(peaks.bytes);
        row.floor_seconds = floor(&Rates::from(peaks))?;
        Ok(())
    }

    /// Types of activations: the fused ops of the CPU know none of 16 bits.
    pub(super) fn types(&self) -> &'static [DType] {
        match self.device {
            Device::Cpu => &[DType::F32],
            _ => &[DType::F32, DType::BF16],
        }
    }

    /// How far apart, relatively, a peer's losses may be: a GPU adds in other orders.
    pub(super) fn peer_tolerance(&self) -> f64 {
        match self.device {
            Device::Cpu => 1e-5,
            _ => 1e-4,
        }
    }

    /// What `measure` finds in a process that measures nothing else.
    pub(super) fn report(
        &self,
        mut row: Row,
        measure: impl FnOnce(&mut Row) -> Result<Details>,
    ) -> Result<Report> {
        self.describe(&mut row);
        let details = measure(&mut row)?;
        row.route = ops::taken().to_owned();
        row.peak_memory_bytes = row.peak_memory_bytes.or_else(peak_memory_bytes);
        Ok(Report { row, details })
    }

    /// Notes in `row` where it is measured.
    pub(super) fn describe(&self, row: &mut Row) {
        let provenance = Provenance::collect(&self.name, self.threads);
        row.commit = provenance.commit();
        row.device.clone_from(&self.name);
        row.threads = self.threads;
        row.load_average = load_average();
        if self.is_cpu() {
            row.processor = provenance.cpu;
            row.instruction_set = crate::ops::Simd::current().name().to_owned();
        } else {
            row.processor = gpu_model(&self.name);
        }
    }
}

fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The model of the GPU called `cuda:N`, where the driver's files tell.
fn gpu_model(name: &str) -> String {
    let model = || {
        let index: usize = name.strip_prefix("cuda:")?.parse().ok()?;
        let folders = fs::read_dir("/proc/driver/nvidia/gpus").ok()?;
        let mut folders: Vec<PathBuf> = folders.flatten().map(|folder| folder.path()).collect();
        folders.sort();
        let text = fs::read_to_string(folders.get(index)?.join("information")).ok()?;
        let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
        Some(model.trim().to_owned())
    };
    model().unwrap_or_default()
}
