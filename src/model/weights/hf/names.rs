//! Parameter names of this program and of Hugging Face's GPT-NeoX, and the layout of its fused q, k and v.

use candle_core::{Result, Tensor};

/// This program's name and GPT-NeoX's, outside the layers.
pub(super) const OUTER: [(&str, &str); 4] = [
    ("embed.tok", EMBEDDING),
    ("norm_f.weight", "gpt_neox.final_layer_norm.weight"),
    ("norm_f.bias", "gpt_neox.final_layer_norm.bias"),
    ("head.weight", "embed_out.weight"),
];

/// Tensor by which a GPT-NeoX file is recognised.
pub(super) const EMBEDDING: &str = "gpt_neox.embed_in.weight";

/// This program's name and GPT-NeoX's, inside a layer.
const INNER: [(&str, &str); 10] = [
    ("norm1.weight", "input_layernorm.weight"),
    ("norm1.bias", "input_layernorm.bias"),
    ("norm2.weight", "post_attention_layernorm.weight"),
    ("norm2.bias", "post_attention_layernorm.bias"),
    ("mixer.wout", "attention.dense.weight"),
    ("mixer.bout", "attention.dense.bias"),
    ("mlp.w1", "mlp.dense_h_to_4h.weight"),
    ("mlp.b1", "mlp.dense_h_to_4h.bias"),
    ("mlp.w2", "mlp.dense_4h_to_h.weight"),
    ("mlp.b2", "mlp.dense_4h_to_h.bias"),
];

/// Three names of this program, and the one tensor of GPT-NeoX that holds all three.
const FUSED: [([&str; 3], &str); 2] = [
    (["mixer.wq", "mixer.wk", "mixer.wv"], "attention.query_key_value.weight"),
    (["mixer.bq", "mixer.bk", "mixer.bv"], "attention.query_key_value.bias"),
];

/// Pairs of names of a model with `n_layers` layers, for tensors that correspond one to one.
pub(super) fn unfused(n_layers: usize) -> impl Iterator<Item = (String, String)> {
    let around = OUTER.iter().map(|(o, t)| ((*o).to_owned(), (*t).to_owned()));
    let layers = (0..n_layers)
        .flat_map(|layer| INNER.map(|(ours, theirs)| (our_layer(layer, ours), their_layer(layer, theirs))));
    around.chain(layers)
}

/// Names of q, k and v, and of the tensor into which GPT-NeoX fuses them, for each layer.
pub(super) fn fused(n_layers: usize) -> impl Iterator<Item = ([String; 3], String)> {
    (0..n_layers).flat_map(|layer| {
        FUSED.map(|(ours, theirs)| {
            let ours = ours.map(|name| our_layer(layer, name));
            (ours, their_layer(layer, theirs))
        })
    })
}

fn our_layer(layer: usize, name: &str) -> String {
    format!("layers.{layer}.{name}")
}

fn their_layer(layer: usize, name: &str) -> String {
    format!("gpt_neox.layers.{layer}.{name}")
}

/// Whether `name` is a buffer of older files, whose values follow from the config.
pub(super) fn is_buffer(name: &str) -> bool {
    [".attention.bias", ".attention.masked_bias", ".inv_freq"].iter().any(|end| name.ends_with(end))
}

/// Splits a tensor `(3 d, ..)` into q, k and v `(d, ..)`. Its rows are grouped by head: first the head's rows of q,
/// then of k, then of v.
pub(super) fn split(fused: &Tensor, heads: usize) -> Result<[Tensor; 3]> {
    let (rows, rest) = (fused.dim(0)?, &fused.dims()[1..]);
    let by_head = fused.reshape([&[heads, 3, rows / heads / 3], rest].concat())?;
    let part =
        |i: usize| -> Result<Tensor> { by_head.narrow(1, i, 1)?.contiguous()?.reshape([&[rows / 3], rest].concat()) };
    Ok([part(0)?, part(1)?, part(2)?])
}

/// Inverse of [`split`].
pub(super) fn fuse(parts: [&Tensor; 3], heads: usize) -> Result<Tensor> {
    let (rows, rest) = (parts[0].dim(0)?, &parts[0].dims()[1..]);
    let by_head = |part: &Tensor| part.reshape([&[heads, rows / heads], rest].concat());
    let [q, k, v] = [by_head(parts[0])?, by_head(parts[1])?, by_head(parts[2])?];
    Tensor::stack(&[q, k, v], 1)?.reshape([&[3 * rows], rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn each_head_owns_its_q_then_its_k_then_its_v() {
        // Two heads of two rows; hundreds are the head, tens are q, k or v, and ones the row.
        let rows: Vec<f32> = [0., 1., 10., 11., 20., 21., 100., 101., 110., 111., 120., 121.].into();
        let fused = Tensor::from_vec(rows, 12, &Device::Cpu).unwrap();
        let parts = split(&fused, 2).unwrap();
        let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(values(&parts[0]), [0., 1., 100., 101.]);
        assert_eq!(values(&parts[1]), [10., 11., 110., 111.]);
        assert_eq!(values(&parts[2]), [20., 21., 120., 121.]);
        let [q, k, v] = &parts;
        assert_eq!(values(&fuse([q, k, v], 2).unwrap()), values(&fused));
        let matrix = fused.reshape((12, 1)).unwrap().broadcast_as((12, 5)).unwrap();
        let [q, k, v] = &split(&matrix, 2).unwrap();
        assert_eq!(q.dims(), [4, 5]);
        assert_eq!(values(&fuse([q, k, v], 2).unwrap()), values(&matrix));
    }

    #[test]
    fn what_older_files_carry_along_is_known() {
        assert!(is_buffer("gpt_neox.layers.3.attention.bias"));
        assert!(is_buffer("gpt_neox.layers.3.attention.masked_bias"));
        assert!(is_buffer("gpt_neox.layers.3.attention.rotary_emb.inv_freq"));
        assert!(!is_buffer("gpt_neox.layers.3.attention.dense.bias"));
    }
}
