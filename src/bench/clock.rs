//! Time as a reader of a shared machine wants it: CPU seconds beside wall seconds.

use crate::error::Result;
use rustix::time::{clock_gettime, ClockId};
use serde::Serialize;
use std::time::Instant;

/// What one piece of work took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Seconds on processors, of all threads together.
    pub cpu: f64,
    /// Seconds on the clock.
    pub wall: f64,
}

/// Does `work` and says what it took.
pub(super) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Span)> {
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    let done = work()?;
    let span = Span {
        wall: wall.elapsed().as_secs_f64(),
        cpu: cpu_seconds() - cpu,
    };
    Ok((done, span))
}

/// CPU seconds of this process so far.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

/// Medians of repeated work, and how far it strayed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timing {
    /// Median CPU seconds, of all threads together.
    pub cpu_seconds: f64,
    /// Fewest CPU seconds.
    pub cpu_seconds_min: f64,
    /// Most CPU seconds.
    pub cpu_seconds_max: f64,
    /// Median wall seconds.
    pub wall_seconds: f64,
    /// Fewest wall seconds.
    pub wall_seconds_min: f64,
    /// Most wall seconds.
    pub wall_seconds_max: f64,
}

impl Timing {
    /// Sums up at least one repetition.
    pub(super) fn of(spans: &[Span]) -> Self {
        let cpu = spread(spans.iter().map(|s| s.cpu));
        let wall = spread(spans.iter().map(|s| s.wall));
        Self {
            cpu_seconds: cpu.median,
            cpu_seconds_min: cpu.min,
            cpu_seconds_max: cpu.max,
            wall_seconds: wall.median,
            wall_seconds_min: wall.min,
            wall_seconds_max: wall.max,
        }
    }
}

/// The middle and the ends of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// The spread of at least one number.
pub(super) fn spread(values: impl IntoIterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (first, last) = (0, values.len() - 1);
    Spread {
        median: (values[last / 2] + values[last.div_ceil(2)]) / 2.0,
        min: values[first],
        max: values[last],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| spread(values.iter().copied()).median;
        assert_eq!(of(&[3.0]), 3.0);
        assert_eq!(of(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(of(&[4.0, 1.0, 9.0, 2.0]), 3.0);
    }

    /// Only from below: the process's other threads, other tests among them, count as well.
    #[test]
    fn work_costs_cpu_time_and_waiting_costs_wall_time() {
        let nap = || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            Ok(())
        };
        let ((), span) = timed(nap).unwrap();
        assert!(span.wall >= 0.02, "{span:?}");
        let sum = || Ok((0..3_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
        let (_, span) = timed(sum).unwrap();
        assert!(span.cpu > 1e-4 && span.wall > 1e-4, "{span:?}");
    }
}
