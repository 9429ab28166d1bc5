//! Time on a device that works on while the program goes on.

use crate::bench::clock::{spread, Spread};
use crate::error::Result;
use candle_core::Device;
use std::time::Instant;

/// Seconds of one call.
pub(super) type Seconds = Spread;

/// Calls before the clock starts.
const WARM_UP: usize = 2;
/// Rounds, each between two moments at which the device has nothing left to do.
const ROUNDS: usize = 5;
/// A round lasts this long at least, so that its ends do not count.
const ROUND: f64 = 0.02;
/// Most calls of a round.
const MOST: usize = 1 << 14;

/// Seconds of a call of `work`, over several rounds of calls in a row.
pub(super) fn time(device: &Device, work: &mut dyn FnMut() -> Result<()>) -> Result<Seconds> {
    for _ in 0..WARM_UP {
        work()?;
    }
    let mut calls = 1;
    let mut first = round(device, calls, work)?;
    while first * (calls as f64) < ROUND && calls < MOST {
        // Four times at most: the first call may have been slow for reasons of its own.
        let needed = (1.2 * ROUND / first).ceil() as usize;
        calls = needed.clamp(calls + 1, 4 * calls).min(MOST);
        first = round(device, calls, work)?;
    }
    let mut rounds = vec![first];
    while rounds.len() < ROUNDS {
        rounds.push(round(device, calls, work)?);
    }
    Ok(spread(rounds))
}

/// Seconds a call of `calls` in a row.
pub(super) fn round(
    device: &Device,
    calls: usize,
    work: &mut dyn FnMut() -> Result<()>,
) -> Result<f64> {
    device.synchronize()?;
    let start = Instant::now();
    for _ in 0..calls {
        work()?;
    }
    device.synchronize()?;
    Ok(start.elapsed().as_secs_f64() / calls as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_is_repeated_until_a_round_is_long() {
        let mut calls = 0;
        let seconds = time(&Device::Cpu, &mut || {
            calls += 1;
            std::thread::sleep(std::time::Duration::from_millis(1));
            Ok(())
        });
        let seconds = seconds.unwrap();
        assert!(calls > 30, "{calls}");
        assert!(seconds.min >= 1e-3 && seconds.min <= seconds.median);
    }
}
