//! Rows of sequences at given times, in ordinary tensor ops: a part of several references.

use candle_core::{Result, Tensor};

/// x\[b, rows\[b, r\]\] for `x` (B, L, ..) and `rows` (B, R) of u32; result (B, R, ..).
pub(crate) fn gather_rows(x: &Tensor, rows: &Tensor) -> Result<Tensor> {
    let picked = x.flatten(0, 1)?.index_select(&flat_rows(rows, x.dim(1)?)?, 0)?;
    picked.reshape([rows.dims(), &x.dims()[2..]].concat())
}

/// Indices of `rows` among the steps of all sequences, which have `len` steps each.
pub(crate) fn flat_rows(rows: &Tensor, len: usize) -> Result<Tensor> {
    let starts = (0..rows.dim(0)?).map(|b| (b * len) as u32);
    let starts = Tensor::from_iter(starts, rows.device())?.unsqueeze(1)?;
    rows.broadcast_add(&starts)?.flatten_all()
}
