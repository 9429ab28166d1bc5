//! Decoder of an auto-encoder (Poli et al. 2024): all tokens of a sequence from one vector.

use crate::nn::{linear, sinusoids, Cx, Norm, NormSpec, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Two layers of a norm, a linear map and GELU on the sum of an encoding and the embedding of a position, and a final norm.
pub(super) struct AutoEncoder {
    /// Norm, weight `(d, d)` and bias `(d)` of each layer.
    layers: [(Norm, Tensor, Tensor); 2],
    norm_f: Norm,
    /// Embeddings of positions, `(seq_len, d)`, in the dtype of the residual stream.
    positions: Tensor,
}

impl AutoEncoder {
    /// Creates the decoder of encodings of width `d`, for sequences of up to `seq_len` tokens; its weights start with standard
    /// deviation `std`.
    pub fn new(norm: NormSpec, [d, seq_len]: [usize; 2], std: f64, params: &Params) -> Result<Self> {
        let layer = |name: &str| -> Result<(Norm, Tensor, Tensor)> {
            let params = params.scope(name);
            Ok((Norm::new(norm, d, &params.scope("norm"))?, params.weight("w", (d, d), std)?, params.bias("b", d, d)?))
        };
        let norm_f = Norm::new(norm, d, &params.scope("norm_f"))?;
        let positions = sinusoids(0..seq_len, d, 1.0, norm_f.weight())?.to_dtype(params.activations())?;
        Ok(Self { layers: [layer("0")?, layer("1")?], norm_f, positions })
    }

    /// Vectors `(batch, rows, d)` of the positions that `cx` selects of sequences of `seq_len` tokens, of which the logits
    /// are read, from their `encodings` `(batch, 1, d)`.
    pub fn forward(&self, encodings: &Tensor, seq_len: usize, cx: &Cx) -> Result<Tensor> {
        let mut x = encodings.broadcast_add(&self.positions.narrow(0, 0, seq_len)?)?;
        for (norm, w, b) in &self.layers {
            x = ops::gelu(&linear(&norm.forward(&x)?, w, Some(b))?)?;
        }
        cx.select(&self.norm_f.forward(&x)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Io, LanguageModel};
    use crate::nn::{Cx, Params, Rows};
    use crate::recipes;
    use candle_core::{DType, Device, Tensor};

    fn numbers(x: &Tensor) -> Vec<f64> {
        x.flatten_all().unwrap().to_vec1().unwrap()
    }

    /// Every position is decoded from the last hidden vector, which depends on all tokens, and from its own embedding.
    #[test]
    fn all_positions_are_decoded_from_the_last() {
        let run = recipes::run("mad", &[("preset", "smoke"), ("skill", "compression"), ("mixer", "ssd")]).unwrap();
        assert!(run.model.auto_encoder);
        let params = Params::seeded(1, DType::F64, &Device::Cpu);
        let model = LanguageModel::new(&run.model, Io::of(&run.task).unwrap(), &params).unwrap();
        let of = |tokens: &[u32], rows: Option<&Rows>| {
            let tokens = Tensor::from_slice(tokens, (1, tokens.len()), &Device::Cpu).unwrap();
            model.hidden(&tokens, rows, &Cx::eval()).unwrap()
        };
        let tokens: Vec<u32> = (0..16).map(|i| i * 5 % 16).collect();
        let all = of(&tokens, None);
        assert_eq!(all.dims(), [1, 16, run.model.d_model]);
        let other: Vec<u32> =
            tokens.iter().enumerate().map(|(i, token)| if i == 3 { token + 1 } else { *token }).collect();
        let changed = of(&other, None);
        for position in 0..16 {
            let at = |x: &Tensor| numbers(&x.narrow(1, position, 1).unwrap());
            assert_ne!(at(&all), at(&changed), "position {position}");
        }
        // Positions differ from each other although their encoding is the same.
        assert_ne!(numbers(&all.narrow(1, 0, 1).unwrap()), numbers(&all.narrow(1, 1, 1).unwrap()));
        let rows = Rows { positions: Tensor::new(&[[2_u32, 9]], &Device::Cpu).unwrap() };
        let some = [2, 9].map(|position| numbers(&all.narrow(1, position, 1).unwrap())).concat();
        let apart = numbers(&of(&tokens, Some(&rows))).iter().zip(some).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-12, "{apart}");
        assert!(model.begin(1).unwrap().is_none(), "no token can be read alone");
        let decoder = params.vars().into_iter().filter(|(name, _)| name.starts_with("decoder.")).count();
        assert_eq!(decoder, 7, "two maps with biases and three gains");
    }
}
