//! Block-diagonal linear maps, stored as the rows of their blocks: `(out, in / blocks)`.

use candle_core::{Result, Tensor};

/// Fewest inputs of a block of xLSTM's maps to queries, keys and values.
const BLOCK: usize = 4;

/// Number of blocks of such a map: as many as divide both of its widths and have [`BLOCK`] inputs or more each.
pub(super) fn blocks(inputs: usize, outputs: usize) -> usize {
    let divides = |count: &usize| inputs.is_multiple_of(*count) && outputs.is_multiple_of(*count);
    (1..=inputs / BLOCK).rev().find(divides).unwrap_or(1)
}

/// The whole matrix `(out, inputs)` of a map with the rows `w`.
pub(super) fn dense(w: &Tensor, inputs: usize) -> Result<Tensor> {
    let (out, width) = w.dims2()?;
    let count = inputs / width;
    if count == 1 {
        return Ok(w.clone());
    }
    let rows = w.reshape((count, out / count, 1, width))?;
    let diagonal = Tensor::eye(count, w.dtype(), w.device())?.reshape((count, 1, count, 1))?;
    rows.broadcast_mul(&diagonal)?.reshape((out, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn blocks_lie_on_the_diagonal() {
        let w = Tensor::new(&[[1f64, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], &Device::Cpu).unwrap();
        let all = dense(&w, 4).unwrap().to_vec2::<f64>().unwrap();
        let expected = [[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 5.0, 6.0], [0.0, 0.0, 7.0, 8.0]];
        assert_eq!(all, expected);
        assert_eq!(dense(&w, 2).unwrap().to_vec2::<f64>().unwrap(), w.to_vec2::<f64>().unwrap());
    }

    #[test]
    fn a_map_between_equal_widths_has_blocks_of_four_where_four_divides_them() {
        assert_eq!(
            [blocks(128, 128), blocks(128, 32), blocks(128, 16), blocks(24, 6), blocks(6, 3)],
            [32, 32, 16, 6, 1]
        );
    }
}
