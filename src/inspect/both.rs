//! A layer that reads its input in both directions as a non-causal system, Remark 1: y = (Φ_f + R Φ_b R) u, where Φ_f
//! and Φ_b are the lower triangular kernels (12) of both passes and R reverses the order of the tokens.

use super::measures::Measures;
use super::subject::{backwards, BothPasses, Seen};
use super::verify::{apart, rows, scale, tolerance, Errors};
use crate::error::Result;
use crate::nn::Cx;
use candle_core::{DType, Tensor};

/// The kernel of both directions, and its difference from the layer.
pub struct BothDirections {
    /// Name of the layer.
    pub name: String,
    /// The tokens i whose rows are computed, ascending.
    pub rows: Vec<usize>,
    /// Frobenius norms of the blocks ij of Φ_f + R Φ_b R without D_i for each row and all tokens j.
    pub norms: Vec<Vec<f64>>,
    /// Differences between the forms of the layer, if they were compared.
    pub errors: Option<Errors>,
}

impl BothDirections {
    /// The kernel of `passes`, for the system and the measures of the backward pass at the same rows from either end;
    /// `None` if the forward pass has no system.
    pub fn of(passes: &BothPasses, (seen, backward): (&Seen, &Measures), compared: bool) -> Result<Option<Self>> {
        let Ok(forward_seen) = passes.forward.system()? else {
            return Ok(None);
        };
        let both = [&forward_seen, seen];
        let at = &backward.rows;
        let forward = Measures::of_rows(&forward_seen, passes.forward.model.n_heads, at.clone())?;
        let (count, last) = (at.len(), backward.seq_len - 1);
        let row = |r: usize| -> Result<Vec<f64>> {
            let (own, other) = (&forward.norms[r], &backward.norms[count - 1 - r]);
            let earlier = &own[..own.len() - 1];
            let later = other.iter().rev().skip(1);
            let diagonal = match passes.forward.sees_all {
                true => own[at[r]],
                false => diagonal(both, [at[r], last - at[r]])?,
            };
            Ok(earlier.iter().copied().chain([diagonal]).chain(later.copied()).collect())
        };
        Ok(Some(Self {
            name: passes.name.clone(),
            rows: at.clone(),
            norms: (0..count).map(row).collect::<Result<_>>()?,
            errors: compared.then(|| errors(passes, both, [&forward, backward])).transpose()?,
        }))
    }
}

/// Norm of the block of a token on the diagonal, where the token has these positions in both passes. The sum of both
/// passes' blocks, or one beside the other where the passes have inputs of their own.
fn diagonal(both: [&Seen; 2], [own, other]: [usize; 2]) -> Result<f64> {
    let block = |seen: &Seen, at: usize| -> Result<Tensor> {
        let width = seen.input.dim(1)?;
        // The column of the constant input is not part of Φ.
        Ok(seen.system.state_block(at)?.narrow(1, 0, width)?.to_dtype(DType::F64)?)
    };
    let [a, b] = [block(both[0], own)?, block(both[1], other)?];
    let blocks = match both.iter().any(|seen| seen.around.is_some()) {
        true => Tensor::cat(&[a, b], 1)?,
        false => (a + b)?,
    };
    Ok(blocks.sqr()?.sum_all()?.to_scalar::<f64>()?.sqrt())
}

/// Compares the recurrences and the kernels of both passes with the layer's output.
fn errors(passes: &BothPasses, both: [&Seen; 2], [forward, backward]: [&Measures; 2]) -> Result<Errors> {
    let subject = &passes.forward;
    let whole =
        rows(&passes.mixer.forward(&subject.u.unsqueeze(0)?, &Cx::eval().seeing_all_of(&subject.u)?)?.squeeze(0)?)?;
    let [own, other] = both.map(|seen| seen.system.run(&seen.input));
    let recurrence = rows(&(own? + backwards(&other?)?)?)?;
    let sum = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
    let kernel: Vec<Vec<f64>> = forward.outputs.iter().zip(backward.outputs.iter().rev()).map(sum).collect();
    let at = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> { forward.rows.iter().map(|&i| rows[i].clone()).collect() };
    let scale = scale(&whole);
    Ok(Errors {
        recurrence: apart(&recurrence, &whole) / scale,
        kernel: apart(&kernel, &at(&whole)) / scale,
        steps: f64::NAN,
        between: apart(&at(&recurrence), &kernel) / scale,
        tolerance: tolerance(subject),
    })
}
