//! Timing of repeated work: CPU seconds on a CPU, synchronised wall-clock seconds on a GPU.

use crate::error::Result;
use candle_core::Device;
use rustix::time::{clock_gettime, ClockId};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Clock of the `seconds` of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// CPU seconds of all threads together; other programs on the machine have little effect.
    #[default]
    Cpu,
    /// Elapsed seconds between two moments at which the device is idle.
    Wall,
}

impl Clock {
    /// Runs `work` and returns its duration. With [`Self::Wall`], `device` is synchronised before and after.
    pub(super) fn time(self, device: &Device, work: &mut dyn FnMut() -> Result<()>) -> Result<Span> {
        let wait = || match self {
            Self::Cpu => Ok(()),
            Self::Wall => device.synchronize(),
        };
        wait()?;
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        work()?;
        wait()?;
        let wall = wall.elapsed().as_secs_f64();
        let seconds = match self {
            Self::Cpu => cpu_seconds() - cpu,
            Self::Wall => wall,
        };
        Ok(Span { seconds, wall })
    }
}

/// CPU seconds of this process so far.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

/// Duration of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Seconds by the clock.
    pub seconds: f64,
    /// Elapsed seconds.
    pub wall: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Repetitions {
    /// Calls before the timing starts.
    pub warm_up: usize,
    /// Timed rounds, each of one or more consecutive calls.
    pub rounds: usize,
    /// Minimum duration of a round, reached with more calls, so that its overhead is negligible.
    pub round_seconds: f64,
    /// Maximum number of calls in a round.
    pub most_calls: usize,
}

impl Repetitions {
    /// Returns `rounds` rounds of one call each, after two warm-up calls: the first touches fresh memory, the second
    /// finds it warm.
    pub fn single(rounds: usize) -> Self {
        Self { warm_up: 2, rounds, round_seconds: 0.0, most_calls: 1 }
    }

    /// Maximum total number of calls.
    pub fn calls(&self) -> usize {
        let doublings = std::iter::successors(Some(1), |calls| Some(2 * calls));
        let growing: usize = doublings.take_while(|&calls| calls < self.most_calls).sum();
        self.warm_up + growing + self.rounds * self.most_calls
    }

    /// Times repetitions of `work`, each round of them after `begin`, which is not timed. Returns its last result, and the
    /// seconds per call.
    pub fn time<T>(
        &self,
        clock: Clock,
        device: &Device,
        begin: &mut dyn FnMut() -> Result<()>,
        work: &mut dyn FnMut() -> Result<T>,
    ) -> Result<(T, Timing)> {
        let mut last = None;
        begin()?;
        for _ in 0..self.warm_up {
            last = Some(work()?);
        }
        let (mut calls, mut spans) = (1, Vec::new());
        while spans.len() < self.rounds {
            let mut result = None;
            begin()?;
            let span = clock.time(device, &mut || {
                for _ in 0..calls {
                    result = Some(work()?);
                }
                Ok(())
            })?;
            // The previous result is freed here, outside the timed region.
            last = result;
            if span.wall < self.round_seconds && calls < self.most_calls {
                let needed = (1.2 * self.round_seconds * calls as f64 / span.wall).ceil() as usize;
                calls = needed.clamp(2 * calls, 4 * calls).min(self.most_calls);
                continue;
            }
            spans.push(Span { seconds: span.seconds / calls as f64, wall: span.wall / calls as f64 });
        }
        let timing = Timing {
            clock,
            seconds: Spread::of(spans.iter().map(|span| span.seconds)),
            wall: Spread::of(spans.iter().map(|span| span.wall)),
        };
        Ok((last.expect("at least one round"), timing))
    }
}

/// Seconds per call over the rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub clock: Clock,
    /// Seconds by the clock.
    pub seconds: Spread,
    /// Elapsed seconds.
    pub wall: Spread,
}

impl Timing {
    /// Divides by the number of equal parts of which each call consisted.
    pub fn of_part(self, parts: usize) -> Self {
        Self { seconds: self.seconds.over(parts as f64), wall: self.wall.over(parts as f64), ..self }
    }
}

/// Median and range of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle number, or the mean of the two middle ones.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Returns the spread of at least one number.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self { median: (values[last / 2] + values[last.div_ceil(2)]) / 2.0, min: values[0], max: values[last] }
    }

    fn over(self, divisor: f64) -> Self {
        Self { median: self.median / divisor, min: self.min / divisor, max: self.max / divisor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const NAP: std::time::Duration = std::time::Duration::from_millis(1);

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| Spread::of(values.iter().copied()).median;
        assert_eq!(of(&[3.0]), 3.0);
        assert_eq!(of(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(of(&[4.0, 1.0, 9.0, 2.0]), 3.0);
    }

    /// Bounds are checked only from below: the process's other threads, such as other tests, count as well.
    #[test]
    fn work_costs_cpu_time_and_waiting_costs_wall_time() {
        let mut nap = || {
            std::thread::sleep(20 * NAP);
            Ok(())
        };
        let span = Clock::Cpu.time(&Device::Cpu, &mut nap).unwrap();
        assert!(span.wall >= 0.02, "{span:?}");
        let mut sum = || {
            std::hint::black_box((0..3_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
            Ok(())
        };
        let span = Clock::Cpu.time(&Device::Cpu, &mut sum).unwrap();
        assert!(span.seconds > 1e-4 && span.wall > 1e-4, "{span:?}");
    }

    #[test]
    fn short_work_is_repeated_until_a_round_is_long() {
        let schedule = Repetitions { warm_up: 2, rounds: 5, round_seconds: 0.02, most_calls: 1 << 14 };
        let mut calls = 0;
        let (_, timing) = schedule
            .time(Clock::Wall, &Device::Cpu, &mut || Ok(()), &mut || {
                calls += 1;
                std::thread::sleep(NAP);
                Ok(())
            })
            .unwrap();
        assert!(calls > 30, "{calls}");
        let seconds = timing.seconds;
        assert!(seconds.min >= 1e-3 && seconds.min <= seconds.median);
    }

    /// Rounds that are too short, and are repeated with more calls, begin anew, too.
    #[test]
    fn every_round_begins_anew() {
        let schedule = Repetitions { warm_up: 3, rounds: 4, round_seconds: f64::INFINITY, most_calls: 8 };
        let (calls, longest, begun) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let mut begin = || {
            calls.set(0);
            begun.set(begun.get() + 1);
            Ok(())
        };
        let mut work = || {
            calls.set(calls.get() + 1);
            longest.set(calls.get().max(longest.get()));
            Ok(())
        };
        schedule.time(Clock::Cpu, &Device::Cpu, &mut begin, &mut work).unwrap();
        assert_eq!(longest.get(), 8);
        assert!(begun.get() > 5, "{}", begun.get());
    }

    #[test]
    fn a_schedule_says_how_many_calls_it_can_need() {
        assert_eq!(Repetitions::single(3).calls(), 5);
        let schedule = Repetitions { warm_up: 4, rounds: 2, round_seconds: f64::INFINITY, most_calls: 20 };
        let mut calls = 0;
        let mut count = || {
            calls += 1;
            Ok(())
        };
        schedule.time(Clock::Cpu, &Device::Cpu, &mut || Ok(()), &mut count).unwrap();
        assert!(calls <= schedule.calls(), "{calls}");
    }
}
