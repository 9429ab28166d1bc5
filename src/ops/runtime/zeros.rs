//! Vectors of zeros, or copies, in which ops write their results. Large ones are filled by all threads, since filling
//! them on one thread takes a tenth of a step.

#![allow(unsafe_code)]

use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use std::mem::MaybeUninit;

/// Numbers that a task fills; smaller vectors are filled by the calling thread.
const CHUNK: usize = 1 << 17;

/// Returns `count` zeros.
pub(crate) fn zeros<F: Float>(count: usize) -> Vec<F> {
    if count <= CHUNK {
        return vec![F::zero(); count];
    }
    let mut x = Vec::with_capacity(count);
    let parts = x.spare_capacity_mut()[..count].chunks_mut(CHUNK);
    parts.in_parallel(|part| part.fill(MaybeUninit::new(F::zero())));
    // SAFETY: the capacity is at least `count`, and the parts, which cover it, have been written.
    unsafe { x.set_len(count) };
    x
}

/// Returns a copy of `from`, for an op that changes it in place.
pub(crate) fn copied<F: Float>(from: &[F]) -> Vec<F> {
    if from.len() <= CHUNK {
        return from.to_vec();
    }
    let mut x = Vec::with_capacity(from.len());
    let parts = x.spare_capacity_mut()[..from.len()].chunks_mut(CHUNK);
    parts.zip(from.chunks(CHUNK)).in_parallel(|(part, from)| {
        for (to, &from) in part.iter_mut().zip(from) {
            to.write(from);
        }
    });
    // SAFETY: the capacity is at least `from.len()`, and the parts, which cover it, have been written.
    unsafe { x.set_len(from.len()) };
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_zero_in_one_chunk_and_in_several() {
        for count in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1] {
            let x: Vec<f32> = zeros(count);
            assert_eq!(x.len(), count);
            assert!(x.iter().all(|&x| x.to_bits() == 0), "{count}");
        }
    }

    #[test]
    fn a_copy_has_every_number_in_one_chunk_and_in_several() {
        for count in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1] {
            let x: Vec<f32> = (0..count).map(|i| i as f32).collect();
            assert!(copied(&x) == x, "{count}");
        }
    }
}
