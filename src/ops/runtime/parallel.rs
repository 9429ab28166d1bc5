//! Loops over tasks on the threads of the pool. They are compiled once instead of for every loop: a parallel iterator
//! of rayon instantiates some ten functions for each type of item.

use crate::gpu;
use rayon::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs the items of any iterator as tasks.
pub(crate) trait InParallel: Iterator + Sized
where
    Self::Item: Send,
{
    /// Calls `work` with every item, in any order.
    fn in_parallel(self, work: impl Fn(Self::Item) + Sync) {
        self.in_parallel_with(|| (), |(), item| work(item));
    }

    /// [`Self::in_parallel`] with scratch memory, which each thread creates once.
    fn in_parallel_with<S: Send>(self, scratch: impl Fn() -> S + Sync, work: impl Fn(&mut S, Self::Item) + Sync) {
        let tasks: Vec<_> = self.map(|item| Mutex::new(Some(item))).collect();
        let unused = Mutex::new(Vec::new());
        run(tasks.len(), &|i| {
            let mut held = lock(&unused).pop().unwrap_or_else(&scratch);
            let item = lock(&tasks[i]).take();
            work(&mut held, item.expect("a task runs once"));
            lock(&unused).push(held);
        });
    }

    /// Returns the results of `work` for every item, in the order of the items.
    fn map_in_parallel<R: Send>(self, work: impl Fn(Self::Item) -> R + Sync) -> Vec<R> {
        self.map_in_parallel_with(|| (), |(), item| work(item))
    }

    /// [`Self::map_in_parallel`] with scratch memory, as in [`Self::in_parallel_with`].
    fn map_in_parallel_with<S: Send, R: Send>(
        self,
        scratch: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, Self::Item) -> R + Sync,
    ) -> Vec<R> {
        let items: Vec<_> = self.collect();
        let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
        let tasks = items.into_iter().zip(&mut results);
        tasks.in_parallel_with(scratch, |scratch, (item, result)| {
            *result = Some(work(scratch, item));
        });
        let results = results.into_iter();
        results.map(|made| made.expect("every task has run")).collect()
    }
}

impl<I: Iterator> InParallel for I where I::Item: Send {}

/// Locks a mutex. A panic under the lock leaves no half-written state, so poisoning is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs tasks, whose products have the factors of the calling thread's.
#[inline(never)]
fn run(tasks: usize, work: &(dyn Fn(usize) + Sync)) {
    if tasks < 2 || rayon::current_num_threads() < 2 {
        // Waking another thread would cost time and gain nothing.
        return (0..tasks).for_each(work);
    }
    let factors = gpu::factors();
    (0..tasks).into_par_iter().for_each(|i| gpu::with_factors(factors, || work(i)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_and_results_keep_their_order() {
        let mut numbers = vec![0u64; 1000];
        numbers.chunks_mut(7).enumerate().in_parallel(|(i, chunk)| chunk.iter_mut().for_each(|x| *x += i as u64));
        let expected: Vec<u64> = (0..1000).map(|i| i / 7).collect();
        assert_eq!(numbers, expected);
        let squares = (0..100u64).map_in_parallel(|i| i * i);
        assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
    }
}
