//! Machine of a measurement, and its load.

use super::floors::PeakRates;
use super::row::{Details, Measurement, MeasurementReport};
use super::timer::{Clock, Repetitions, Timing};
use crate::error::Result;
use crate::gpu::{self, Factors};
use crate::ops::{self, Peaks, Simd};
use crate::store::{peak_memory_bytes, Provenance};
use candle_core::{DType, Device};
use std::fs;
use std::sync::OnceLock;

/// A device, and the way in which work on it is timed.
pub struct Machine {
    /// The device.
    pub device: Device,
    /// Name in results.
    pub name: String,
    /// Number of CPU threads.
    pub threads: usize,
}

impl Machine {
    /// Returns the CPU with `threads` threads.
    pub fn cpu(threads: usize) -> Self {
        Self { device: Device::Cpu, name: "cpu".to_owned(), threads }
    }

    pub(super) fn is_cpu(&self) -> bool {
        matches!(self.device, Device::Cpu)
    }

    /// Times repetitions of `work`.
    pub(super) fn time<T>(&self, schedule: &Repetitions, work: &mut dyn FnMut() -> Result<T>) -> Result<(T, Timing)> {
        self.time_after(schedule, &mut || Ok(()), work)
    }

    /// Times repetitions of `work`, each round of them after `begin`, see [`Repetitions::time`].
    pub(super) fn time_after<T>(
        &self,
        schedule: &Repetitions,
        begin: &mut dyn FnMut() -> Result<()>,
        work: &mut dyn FnMut() -> Result<T>,
    ) -> Result<(T, Timing)> {
        schedule.time(if self.is_cpu() { Clock::Cpu } else { Clock::Wall }, &self.device, begin, work)
    }

    /// Records in `row` the time that `floor` derives from this machine's rates, with products of such factors. On a CPU these are measured now, under
    /// the clock and load of the measurement, and recorded as well.
    pub(super) fn floor(
        &self,
        row: &mut Measurement,
        factors: Factors,
        floor: impl FnOnce(&PeakRates) -> Result<Option<f64>>,
    ) -> Result<()> {
        if let Some(chip) = gpu::chip(&self.device)? {
            row.floor_seconds = floor(&PeakRates::from(chip))?;
            return Ok(());
        }
        // Memory must be recorded before the loops allocate any.
        row.peak_memory_bytes = peak_memory_bytes();
        static PEAKS: OnceLock<Peaks> = OnceLock::new();
        let peaks = *PEAKS.get_or_init(Peaks::measure);
        row.instruction_set = Simd::of_factors(factors).name().to_owned();
        row.peak_flops = Some(peaks.products(factors));
        row.peak_lanes = Some(peaks.lanes);
        row.peak_exps = Some(peaks.exps);
        row.peak_bytes = Some(peaks.bytes);
        row.floor_seconds = floor(&PeakRates::of_core(peaks, factors))?;
        Ok(())
    }

    /// Types of activations. The fused ops of the CPU have no 16-bit types.
    pub(super) fn types(&self) -> &'static [DType] {
        if self.is_cpu() {
            &[DType::F32]
        } else {
            &[DType::F32, DType::BF16]
        }
    }

    /// Largest relative difference of a peer's losses in a precision; a GPU sums in other orders.
    pub(super) fn peer_tolerance(&self, precision: &str) -> f64 {
        match precision {
            "f32" if self.is_cpu() => 1e-5,
            "f32" => 1e-4,
            _ => 2e-3,
        }
    }

    /// Returns the report of `measure`, in a process that measures nothing else.
    pub(super) fn report(
        &self,
        mut row: Measurement,
        measure: impl FnOnce(&mut Measurement) -> Result<Details>,
    ) -> Result<MeasurementReport> {
        self.describe(&mut row);
        let details = measure(&mut row)?;
        row.route = ops::taken().to_owned();
        row.peak_memory_bytes = row.peak_memory_bytes.or_else(peak_memory_bytes);
        Ok(MeasurementReport { row, details })
    }

    pub(super) fn describe(&self, row: &mut Measurement) {
        let provenance = Provenance::collect(&self.name, self.threads);
        row.commit = provenance.commit();
        row.device.clone_from(&self.name);
        row.threads = self.threads;
        row.load_average = load_average();
        if self.is_cpu() {
            row.processor = provenance.cpu;
            row.instruction_set = Simd::of_factors(Factors::F32).name().to_owned();
        } else {
            row.processor = gpu::name(&self.device).ok().flatten().unwrap_or_default();
        }
    }
}

fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
