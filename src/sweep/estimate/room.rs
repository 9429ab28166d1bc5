//! Checks that runs fit into memory, before anything is allocated, and the number of those that fit together.

use super::format::{bytes, counted};
use super::work::SizeCache;
use crate::config::RunConfig;
use crate::error::{refuse, Result};
use crate::store::memory_limit;

/// Returns an error if runs on the CPU need more memory than is available. The need is computed from their sizes;
/// nothing is allocated. `insist` is the flag that overrides the check, if there is one. The message names the largest
/// run and settings that make it smaller.
pub fn check_room(runs: &[RunConfig], insist: Option<&str>) -> Result<()> {
    match memory_limit() {
        Some(limit) => check(runs, limit.bytes as f64, limit.of, insist),
        None => Ok(()),
    }
}

/// Returns the number of `runs` to train in parallel on a CPU with `threads` threads: one per thread, as long as the
/// largest of them together need at most half of the memory. A second thread speeds up a step of a small model only a little.
pub fn parallel_runs(runs: &[RunConfig], threads: usize) -> Result<usize> {
    let room = memory_limit().map_or(f64::INFINITY, |limit| limit.bytes as f64 / 2.0);
    within(runs, threads, room)
}

fn within(runs: &[RunConfig], threads: usize, room: f64) -> Result<usize> {
    let mut sizes = SizeCache::default();
    let mut needs: Vec<f64> = runs.iter().map(|run| Ok(sizes.work(run)?.bytes)).collect::<Result<_>>()?;
    needs.sort_by(|a, b| b.total_cmp(a));
    let mut together = 0.0;
    let fitting = needs.iter().take(threads).take_while(|need| {
        together += **need;
        together <= room
    });
    Ok(fitting.count().max(1))
}

fn check(runs: &[RunConfig], room: f64, of: &str, insist: Option<&str>) -> Result<()> {
    let mut sizes = SizeCache::default();
    let mut largest: Option<(f64, &RunConfig)> = None;
    for run in runs {
        let needed = sizes.work(run)?.bytes;
        if largest.is_none_or(|(most, _)| needed > most) {
            largest = Some((needed, run));
        }
    }
    if let Some((needed, run)) = largest.filter(|(needed, _)| *needed > room) {
        let (model, train) = (&run.model, &run.train);
        let (needed, room) = (bytes(needed), bytes(room));
        let batch = train.micro_batch.unwrap_or(train.batch_size);
        let tokens = counted(run.task.read()?.sizes().seq_len, "token");
        let insist = insist.map_or(String::new(), |flag| format!(", or insist with {flag}"));
        refuse!(
            "{} with --d {}, --n {} and {batch} examples of {tokens} at a time needs about {needed} of memory, and {of} is \
             {room}: take shorter sequences, a smaller --d or --n, or a smaller --micro-batch{insist}",
            model.mixer,
            model.d_model,
            model.d_state
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;
    use crate::recipes;

    fn run(settings: &[(&str, &str)]) -> RunConfig {
        recipes::run("mqar", &[&[("preset", "smoke")], settings].concat()).unwrap()
    }

    #[test]
    fn a_model_far_beyond_memory_is_refused_without_being_built() {
        let runs = [run(&[]), run(&[("d", "65536")])];
        let checked = check(&runs, 32e9, "the machine's memory", Some("--allow-swap"));
        let at = checked.fails("refused");
        at.names(&["--d 65536", "32.0 GB", "--allow-swap"]);
    }

    /// These mixers have constant matrices of at least n by n, transitions or random features, that are no parameters.
    #[test]
    fn constants_far_beyond_memory_are_refused_without_being_made() {
        for mixer in ["s4", "lmu", "performer"] {
            let runs = [run(&[("mixer", mixer), ("n", "65536")])];
            assert!(check(&runs, 32e9, "the limit", None).is_err(), "{mixer}");
        }
    }

    #[test]
    fn a_batch_that_does_not_fit_is_refused_and_micro_batches_of_it_are_not() {
        let many = [("batch-size", "1000000"), ("train-examples", "1000000")];
        assert!(check(&[run(&many)], 1e9, "the limit", None).is_err());
        let parts = [&many[..], &[("micro-batch", "64")]].concat();
        check(&[run(&parts)], 1e9, "the limit", None).unwrap();
    }

    #[test]
    fn as_many_runs_are_parallel_as_threads_and_memory_allow() {
        let runs = vec![run(&[]); 5];
        let each = SizeCache::default().work(&runs[0]).unwrap().bytes;
        let parallel = |count: usize, threads, room| within(&runs[..count], threads, room).unwrap();
        assert_eq!(parallel(5, 4, f64::INFINITY), 4);
        assert_eq!(parallel(3, 4, f64::INFINITY), 3);
        assert_eq!(parallel(5, 4, 2.5 * each), 2);
        // One run is always trained: whether it fits is another check.
        assert_eq!([parallel(5, 4, 0.5 * each), parallel(0, 4, f64::INFINITY)], [1, 1]);
        // The largest count, wherever they are in the plan.
        let mixed = [run(&[]), run(&[("train-examples", "3000000")])];
        assert_eq!(within(&mixed, 2, 2.5 * each).unwrap(), 1);
    }

    #[test]
    fn every_mixer_is_sized_without_values() {
        for entry in crate::mixers::MIXERS {
            check(&[run(&[("mixer", entry.name)])], 1e9, "the limit", None).unwrap();
        }
    }
}
