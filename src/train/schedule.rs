//! Learning-rate schedules.

use crate::config::{Schedule, TrainConfig};
use std::f64::consts::PI;

/// Limit of the learning rate of the released cosine schedule of the classifiers; the last epoch is slightly above it.
const FLOOR: f64 = 5e-6;

/// Final share of the peak rate in Pythia's schedule.
const LEAST_SHARE: f64 = 0.1;

/// Learning rate of optimiser step `step`, counted from 0 over the whole run.
pub fn learning_rate(config: &TrainConfig, step: usize, steps_per_epoch: usize) -> f64 {
    match config.schedule {
        Schedule::CosinePerEpoch => {
            let done = (step / steps_per_epoch) as f64 / config.epochs as f64;
            config.lr * (1.0 + (PI * done).cos()) / 2.0
        }
        Schedule::WarmupCosine => {
            let epoch = (step / steps_per_epoch) as f64;
            let cosine = (1.0 + (PI * epoch / config.epochs as f64).cos()) / 2.0;
            let rate = FLOOR + (config.lr - FLOOR) * cosine;
            rate * ((epoch + 1.0) / config.warmup_epochs.max(1) as f64).min(1.0)
        }
        Schedule::WarmupConstant => config.lr * warmup_share(config, step, steps_per_epoch),
        Schedule::Cosine | Schedule::Linear => {
            let all = config.epochs * steps_per_epoch;
            let warmup = all.div_ceil(10);
            // 0 at the end of the warm-up, 1 at the last step.
            let progress = (step + 1).saturating_sub(warmup) as f64 / (all - warmup).max(1) as f64;
            let left = match config.schedule {
                Schedule::Linear => 1.0 - progress,
                _ => (1.0 + (PI * progress).cos()) / 2.0,
            };
            let share = LEAST_SHARE + (1.0 - LEAST_SHARE) * left;
            config.lr * share * warmup_share(config, step, steps_per_epoch)
        }
    }
}

/// Share of a linear warm-up over the first tenth of all steps that is complete at step `step`, at most 1.
fn warmup_share(config: &TrainConfig, step: usize, steps_per_epoch: usize) -> f64 {
    let warmup = (config.epochs * steps_per_epoch).div_ceil(10);
    ((step + 1) as f64 / warmup as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Precision;

    fn config(schedule: Schedule) -> TrainConfig {
        TrainConfig {
            schedule,
            lr: 0.01,
            warmup_epochs: 0,
            epochs: 4,
            batch_size: 8,
            weight_decay: 0.1,
            precision: Precision::F32,
            micro_batch: None,
            decay: None,
            adam: None,
            stop_above: 0.99,
        }
    }

    #[test]
    fn the_cosine_moves_once_an_epoch_and_starts_at_the_peak() {
        let rate = |s| learning_rate(&config(Schedule::CosinePerEpoch), s, 5);
        assert_eq!((rate(0), rate(4)), (0.01, 0.01));
        assert!((rate(5) - 0.01 * (1.0 + (PI / 4.0).cos()) / 2.0).abs() < 1e-15);
        assert!((rate(10) - 0.005).abs() < 1e-15);
    }

    #[test]
    fn the_classifiers_cosine_ends_at_a_floor_and_rises_epoch_by_epoch() {
        let rate = |warmup_epochs: usize, step: usize| {
            let config = TrainConfig { warmup_epochs, ..config(Schedule::WarmupCosine) };
            learning_rate(&config, step, 5)
        };
        let at = |epoch: f64| 5e-6 + (0.01 - 5e-6) * (1.0 + (PI * epoch / 4.0).cos()) / 2.0;
        for (epoch, share) in [(0, 0.5), (1, 1.0), (2, 1.0), (3, 1.0)] {
            for step in [0, 4] {
                let expected = at(epoch as f64) * share;
                assert!((rate(2, 5 * epoch + step) - expected).abs() < 1e-15);
            }
        }
        assert_eq!(rate(0, 0), 0.01);
    }

    #[test]
    fn pythias_schedules_rise_over_a_tenth_and_end_at_a_tenth_of_the_peak() {
        for schedule in [Schedule::Cosine, Schedule::Linear] {
            let rate = |step| learning_rate(&config(schedule), step, 25);
            assert!((rate(4) - 0.005).abs() < 1e-15);
            assert_eq!(rate(9), 0.01);
            assert!((rate(54) - 0.0055).abs() < 1e-12, "half the way: half the height");
            assert!((rate(99) - 0.001).abs() < 1e-15);
            assert!((10..99).all(|step| rate(step) > rate(step + 1)));
        }
        let quarter = |schedule| learning_rate(&config(schedule), 29, 25);
        assert!(quarter(Schedule::Cosine) > quarter(Schedule::Linear));
    }

    #[test]
    fn the_warm_up_is_a_tenth_of_all_steps() {
        let rate = |s| learning_rate(&config(Schedule::WarmupConstant), s, 25);
        assert!((rate(0) - 0.001).abs() < 1e-15);
        assert!((rate(4) - 0.005).abs() < 1e-15);
        assert_eq!((rate(9), rate(99)), (0.01, 0.01));
    }
}
