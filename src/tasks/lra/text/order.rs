//! Which reviews come first where not all of them are used.

use super::Review;
use crate::ops::rng::Stream;

/// Of the held-out reviews; the official files stand for themselves.
const SEED: u64 = 42;

/// All indices in an order whose every beginning and every end has the labels in the shares of
/// the whole, to within one example. `file` tells the orders of two files apart.
pub(super) fn stratified(reviews: &[Review], file: u64) -> Vec<usize> {
    let mut order = Vec::with_capacity(reviews.len());
    for label in 0..2_u8 {
        let own = (0..reviews.len()).filter(|i| reviews[*i].label == label);
        let mut own: Vec<usize> = own.collect();
        let index = 2 * file + u64::from(label);
        Stream::new(SEED, "lra/text/split", index).shuffle(&mut own);
        // The k-th of n stands at (2k + 1) / 2n of the way, whatever its label.
        let n = own.len();
        let placed = own.into_iter().enumerate();
        order.extend(placed.map(|(k, i)| ((2 * k + 1) as f64 / n as f64, label, i)));
    }
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, _, i)| i).collect()
}
