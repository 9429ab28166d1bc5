//! The rows of one chunk.

use super::chunk::Chunk;
use super::leaf;
use super::work::{clear, Work};
use crate::ops::float::Float;
use crate::ops::lanes::each;
use crate::ops::matrix::Matrix;
use multiversion::multiversion;

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(super) fn output<F: Float>(
    chunk: &Chunk<F>,
    before: &[Matrix<F>],
    work: &mut Work<F>,
    y: &mut [F],
) {
    if chunk.rows() == 0 {
        return;
    }
    work.load(chunk);
    for (i, part) in chunk.op.parts().enumerate() {
        chunk.drive(&part, &mut work.value, &mut work.decay);
        read_state(chunk, before.get(i), work);
        if chunk.decay.is_some() {
            read_chunk(chunk, work);
        } else {
            let width = chunk.op.width();
            work.y
                .add_product(0..chunk.rows(), &work.scores, &work.value, |top| {
                    (0..chunk.reach(top), 0..width)
                });
        }
        work.y.copy_into(y, chunk.op.channels, part);
    }
}

/// What the state before the chunk gives to each row.
#[inline(always)]
fn read_state<F: Float>(chunk: &Chunk<F>, state: Option<&Matrix<F>>, work: &mut Work<F>) {
    let Some(state) = state else {
        clear(&mut work.y, chunk.rows());
        return;
    };
    let (n, width) = (chunk.op.states, chunk.op.width());
    work.y
        .set_product(0..chunk.rows(), &work.c, state, |_| (0..n, 0..width));
    chunk.after(&work.decay, &(0..chunk.steps()), |r, g, product| {
        let y = work.y.at_mut(r, g);
        *y = each(|i| product[i] * y[i]);
    });
}

/// What the steps of the chunk give to each row.
#[inline(always)]
fn read_chunk<F: Float>(chunk: &Chunk<F>, work: &mut Work<F>) {
    let width = chunk.op.width();
    for span in chunk.spans() {
        let rows = chunk.rows_at(&span.right);
        if rows.is_empty() {
            continue;
        }
        let (left, value) = (&mut work.left, &work.value);
        chunk.before(&work.decay, &span.left, |s, g, product| {
            let value = value.at(s, g);
            *left.at_mut(s, g) = each(|i| product[i] * value[i]);
        });
        let bounds = |_| (span.left.clone(), 0..width);
        work.product
            .set_product(rows, &work.scores, &work.left, bounds);
        let (y, read) = (&mut work.y, &work.product);
        chunk.after(&work.decay, &span.right, |r, g, product| {
            let (y, read) = (y.at_mut(r, g), read.at(r, g));
            *y = each(|i| y[i] + product[i] * read[i]);
        });
    }
    for steps in chunk.leaves() {
        leaf::read(chunk, steps, work);
    }
}
