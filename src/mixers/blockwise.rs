//! Block-diagonal linear maps, stored as the rows of their blocks: `(out, in / blocks)`.

use crate::nn::{linears, Map};
use candle_core::{Result, Tensor, D};

/// Fewest inputs of a block of xLSTM's maps to queries, keys and values.
const BLOCK: usize = 4;

/// Number of blocks of such a map: as many as divide both of its widths and have [`BLOCK`] inputs or more each.
pub(super) fn blocks(inputs: usize, outputs: usize) -> usize {
    let divides = |count: &usize| inputs.is_multiple_of(*count) && outputs.is_multiple_of(*count);
    (1..=inputs / BLOCK).rev().find(divides).unwrap_or(1)
}

/// Block-diagonal maps of x `(.., inputs)` side by side, `(.., outputs)`, each from all inputs to as many outputs, for
/// the rows `w` `(outputs, inputs / blocks)` of all and the biases `b` `(outputs)`.
pub(super) fn maps(x: &Tensor, w: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (inputs, (outputs, width)) = (x.dim(D::Minus1)?, w.dims2()?);
    let (count, blocks) = (outputs / inputs, inputs / width);
    let mut outs: Vec<Vec<Tensor>> = vec![Vec::new(); count];
    for block in 0..blocks {
        let x = x.narrow(D::Minus1, block * width, width)?.contiguous()?;
        let rows = |map: usize| -> Result<[Tensor; 2]> {
            let first = map * inputs + block * width;
            Ok([w.narrow(0, first, width)?, b.narrow(0, first, width)?])
        };
        let rows: Vec<_> = (0..count).map(rows).collect::<Result<_>>()?;
        let of_block: Vec<Map> = rows.iter().map(|[w, b]| (w, Some(b))).collect();
        for (outs, out) in outs.iter_mut().zip(linears(&x, &of_block)?) {
            outs.push(out);
        }
    }
    Tensor::cat(&outs.concat(), D::Minus1)
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
    fn maps_of_blocks_are_those_of_the_whole_matrices() {
        let normal = |shape: &[usize]| Tensor::randn(0f64, 1.0, shape, &Device::Cpu).unwrap();
        let (x, w, b) = (normal(&[2, 3, 6]), normal(&[12, 2]), normal(&[12]));
        let whole = |first| {
            let rows = |t: &Tensor| t.narrow(0, first, 6).unwrap();
            let w = dense(&rows(&w).contiguous().unwrap(), 6).unwrap();
            crate::ops::linear(&x, &w, Some(&rows(&b))).unwrap()
        };
        let wanted = Tensor::cat(&[whole(0), whole(6)], 2).unwrap();
        let apart = (maps(&x, &w, &b).unwrap() - wanted).unwrap().abs().unwrap().max_all().unwrap();
        assert!(apart.to_scalar::<f64>().unwrap() < 1e-14);
    }

    #[test]
    fn a_map_between_equal_widths_has_blocks_of_four_where_four_divides_them() {
        assert_eq!(
            [blocks(128, 128), blocks(128, 32), blocks(128, 16), blocks(24, 6), blocks(6, 3)],
            [32, 32, 16, 6, 1]
        );
    }
}
