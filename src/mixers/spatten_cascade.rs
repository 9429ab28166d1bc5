//! The cascade of SpAtten (Wang, Zhang & Han 2021): a token or head that a layer drops is dropped in all later ones. It
//! acts at inference, token by token. For token i, a layer keeps a share of the tokens and of the heads that the layer
//! before it kept: those of the largest [`Importance`], which sums attention weights and magnitudes of outputs over the
//! layers before and over the queries up to i. Token i itself is always kept. The first 15 % of the layers keep all
//! tokens and the first 30 % all heads; after them the share falls linearly to that of the option in the last layer.
//!
//! Two further parts act within a layer. Local value pruning leaves out the values of the smallest weights, head by head.
//! Progressive quantization computes the weights from the leading bits of queries and keys, and from all bits where no
//! weight reaches a threshold.
//!
//! The paper prunes the tokens of a whole text at once (BERT) or of those generated so far (GPT-2), and quantizes with one
//! scale a tensor; sums up to token i and a scale for each vector keep this mixer causal.

use super::attention::Projections;
use super::rotary::RotaryPositions;
use super::{Carried, Importance, Mixer, MixerSpec, Recurrent, State};
use crate::nn::{Cx, Params};
use crate::ops::Weights;
use candle_core::{bail, DType, Device, Result, Tensor, D};

/// Share of the layers, from the first on, that keep all tokens, and the one that keep all heads.
const UNPRUNED: [f64; 2] = [0.15, 0.3];

/// Reason why there is no system, as the end of a sentence.
pub(super) const WITHOUT_SYSTEM: &str =
    "its weights are a softmax (Lemma 1), and pruning selects tokens by a top-k, which is not linear";

/// Number of `count` items that are kept.
pub(super) fn kept(share: f64, count: usize) -> usize {
    (share * count as f64).ceil() as usize
}

/// Indices of the `count` largest of `scores`, ascending; of equal numbers the first ones. By quick select, in linear
/// time on average, as in the paper's hardware.
pub(super) fn top_k(scores: &[f64], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..scores.len() as u32).collect();
    let order = |&a: &u32, &b: &u32| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b));
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable();
    ids
}

/// Number of leading bits, and of all bits, of an option `LEADING+FURTHER`.
pub(super) fn bits(value: &str) -> Option<[i32; 2]> {
    let (leading, further) = value.split_once('+')?;
    let [leading, further] = [leading.parse().ok()?, further.parse().ok()?];
    // f32 holds all integers of 24 bits.
    ((2..=12).contains(&leading) && (1..=12).contains(&further)).then_some([leading, leading + further])
}

pub(super) struct Cascade {
    projections: Projections,
    keep_tokens: f64,
    keep_heads: f64,
    keep_values: f64,
    /// Leading and all bits of queries, keys and values, and the weight below which all are read.
    bits: Option<([i32; 2], f64)>,
}

/// Share that layer `layer` of `layers` keeps, where the first `unpruned` of the layers keep all and the last keeps
/// `last`.
fn share(last: f64, unpruned: f64, layer: usize, layers: usize) -> f64 {
    let front = (unpruned * layers as f64).ceil() as usize;
    if layer < front {
        return 1.0;
    }
    last + (1.0 - last) * (layers - 1 - layer) as f64 / (layers - front) as f64
}

impl Cascade {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let number = |name, default| spec.parsed(name).unwrap_or(default);
        let of_layer = |last, unpruned| share(last, unpruned, spec.layer, spec.n_layers);
        Ok(Self {
            projections: Projections::new(spec, params)?,
            keep_tokens: of_layer(number("keep_tokens", 0.5), UNPRUNED[0]),
            keep_heads: of_layer(number("keep_heads", 0.75), UNPRUNED[1]),
            keep_values: number("keep_values", 1.0),
            bits: spec.option("bits").and_then(bits).map(|bits| (bits, number("threshold", 0.1))),
        })
    }

    /// The importance of all tokens up to each of `rows` positions from `first` on, and of all heads, in front of the
    /// first layer.
    fn untouched(&self, [batch, first, rows]: [usize; 3], like: &Tensor) -> Result<Importance> {
        let keys = first + rows;
        let of_row = |row: usize| (0..keys).map(move |key| if key <= first + row { 0.0 } else { f64::NEG_INFINITY });
        let tokens: Vec<f64> = (0..rows).flat_map(of_row).collect();
        let tokens = Tensor::from_vec(tokens, (1, rows, keys), like.device())?.to_dtype(like.dtype())?;
        let heads = (batch, rows, self.projections.n_heads);
        Ok(Importance {
            tokens: tokens.broadcast_as((batch, rows, keys))?.contiguous()?,
            heads: Tensor::zeros(heads, like.dtype(), like.device())?,
        })
    }

    /// `importance` with -∞ for what this layer drops, for queries from position `first` on.
    fn select(&self, importance: &Importance, first: usize) -> Result<Importance> {
        let tokens = |row: usize| (kept(self.keep_tokens, first + row + 1), Some(first + row));
        let heads = |_| (kept(self.keep_heads, self.projections.n_heads), None);
        Ok(Importance {
            tokens: match self.keep_tokens < 1.0 {
                true => largest(&importance.tokens, tokens)?,
                false => importance.tokens.clone(),
            },
            heads: match self.keep_heads < 1.0 {
                true => largest(&importance.heads, heads)?,
                false => importance.heads.clone(),
            },
        })
    }

    /// Attention weights `(1, heads, rows, keys)` of the kept tokens.
    fn weights(&self, [q, k]: [&Tensor; 2], kept: &Tensor) -> Result<Tensor> {
        let scale = (k.dim(D::Minus1)? as f64).powf(-0.5);
        // Added to the scores: -∞ for a dropped token, and else 0.
        let mask = kept.eq(f64::NEG_INFINITY)?.where_cond(kept, &kept.zeros_like()?)?;
        let mask = mask.to_dtype(q.dtype())?.unsqueeze(1)?;
        let of = |q: &Tensor, k: &Tensor| -> Result<Tensor> {
            let scores = (q.matmul(&k.t()?.contiguous()?)? * scale)?;
            candle_nn::ops::softmax(&scores.broadcast_add(&mask)?, D::Minus1)
        };
        let Some(([leading, all], threshold)) = self.bits else {
            return of(q, k);
        };
        let coarse = of(&quantized(q, leading, all)?, &quantized(k, leading, all)?)?;
        let fine = of(&quantized(q, all, all)?, &quantized(k, all, all)?)?;
        let sure = coarse.max_keepdim(D::Minus1)?.ge(threshold)?;
        sure.broadcast_as(coarse.shape())?.where_cond(&coarse, &fine)
    }

    /// `weights` with zeros in place of the smallest ones of each row, as a share of the tokens that the layer keeps.
    fn with_local_pruning(&self, weights: Tensor, kept_tokens: &Tensor) -> Result<Tensor> {
        if self.keep_values >= 1.0 {
            return Ok(weights);
        }
        let (_, heads, rows, keys) = weights.dims4()?;
        let counts: Vec<Vec<f64>> = kept_tokens.squeeze(0)?.to_dtype(DType::F64)?.to_vec2()?;
        let counts: Vec<usize> = counts.iter().map(|row| row.iter().filter(|x| x.is_finite()).count()).collect();
        let of_row = |row: usize| (kept(self.keep_values, counts[row % rows]), None);
        let largest = largest(&weights.detach().reshape((1, heads * rows, keys))?, of_row)?;
        let dropped = largest.reshape(weights.shape())?.eq(f64::NEG_INFINITY)?;
        dropped.where_cond(&weights.zeros_like()?, &weights)
    }

    /// o `(1, heads, rows, e)` of queries from position `first` on, all of one sequence. `importance` is that of the
    /// layers before, and becomes that up to this one; `own` are this layer's sums over the queries before, `(1, first)`
    /// and `(1, heads)`.
    fn attend(
        &self,
        [q, k, v]: [&Tensor; 3],
        first: usize,
        importance: &mut Importance,
        own: &mut [Tensor; 2],
    ) -> Result<Tensor> {
        let kept = self.select(importance, first)?;
        let used = kept.heads.ne(f64::NEG_INFINITY)?.to_dtype(q.dtype())?; // (1, rows, heads)
        let used = used.transpose(1, 2)?.unsqueeze(3)?;
        let weights = self.weights([q, k], &kept.tokens)?.broadcast_mul(&used)?;
        let v = match self.bits {
            Some(([_, all], _)) => quantized(v, all, all)?,
            None => v.clone(),
        };
        let o = self.with_local_pruning(weights.clone(), &kept.tokens)?.matmul(&v.contiguous()?)?;

        let added = |x: Tensor, own: &Tensor, before: &Tensor| -> Result<[Tensor; 2]> {
            let sums = sums_so_far(&x, own)?;
            let last = sums.narrow(1, sums.dim(1)? - 1, 1)?.squeeze(1)?.contiguous()?;
            Ok([(before + sums)?, last])
        };
        let magnitudes = o.abs()?.sum(D::Minus1)?.transpose(1, 2)?.contiguous()?;
        [importance.tokens, own[0]] = added(weights.sum(1)?, &own[0], &kept.tokens)?;
        [importance.heads, own[1]] = added(magnitudes, &own[1], &kept.heads)?;
        Ok(o)
    }

    /// Outputs o `(batch, heads, rows, e)` of all queries from position `first` on, for q, k and v of all tokens so far
    /// and this layer's sums over the queries before, which are advanced.
    fn attend_each(
        &self,
        qkv: [&Tensor; 3],
        first: usize,
        carried: &mut Carried,
        own: [&mut Tensor; 2],
    ) -> Result<Tensor> {
        let (batch, _, rows, _) = qkv[0].dims4()?;
        let before = match carried.importance.take() {
            Some(importance) => importance,
            None => self.untouched([batch, first, rows], own[0])?,
        };
        let (mut outputs, mut after, mut sums) = (Vec::new(), [Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        // A sequence at a time, since the weights of all would not fit.
        for b in 0..batch {
            let of = |x: &Tensor| x.narrow(0, b, 1)?.contiguous();
            let [q, k, v] = [of(qkv[0])?, of(qkv[1])?, of(qkv[2])?];
            let mut importance = Importance { tokens: of(&before.tokens)?, heads: of(&before.heads)? };
            let mut own = [of(own[0])?, of(own[1])?];
            outputs.push(self.attend([&q, &k, &v], first, &mut importance, &mut own)?);
            after[0].push(importance.tokens);
            after[1].push(importance.heads);
            let [tokens, heads] = own;
            sums[0].push(tokens);
            sums[1].push(heads);
        }
        carried.importance = Some(Importance { tokens: Tensor::cat(&after[0], 0)?, heads: Tensor::cat(&after[1], 0)? });
        [*own[0], *own[1]] = [Tensor::cat(&sums[0], 0)?, Tensor::cat(&sums[1], 0)?];
        Tensor::cat(&outputs, 0)
    }

    /// This layer's sums before the first token: `(batch, 0)` for tokens, `(batch, heads)` for heads.
    fn no_sums(&self, batch: usize) -> Result<[Tensor; 2]> {
        let like = self.projections.like();
        let zeros = |width| Tensor::zeros((batch, width), exact(like.dtype()), like.device());
        Ok([zeros(0)?, zeros(self.projections.n_heads)?])
    }

    /// o `(batch, heads, seq_len, e)` at inference, and the state after x.
    fn pruned(&self, x: &Tensor, carried: &mut Carried) -> Result<(Tensor, State)> {
        let [q, k, v] = self.projections.heads(x, &RotaryPositions::Sequence(&Cx::eval()))?;
        let [mut tokens, mut heads] = self.no_sums(x.dim(0)?)?;
        let o = self.attend_each([&q, &k, &v], 0, carried, [&mut tokens, &mut heads])?;
        Ok((o, State::new(vec![k, v, tokens, heads])))
    }
}

/// x `(batch, rows, width)` with -∞ in place of all but the largest numbers of each row that are not: `of_row` gives
/// their count for row b · rows + r, and one that is always among them.
fn largest(x: &Tensor, of_row: impl Fn(usize) -> (usize, Option<usize>)) -> Result<Tensor> {
    let mut rows: Vec<Vec<f64>> = x.flatten_to(1)?.to_dtype(DType::F64)?.to_vec2()?;
    for (r, row) in rows.iter_mut().enumerate() {
        let (count, always) = of_row(r);
        let mut order = row.clone();
        if let Some(always) = always {
            order[always] = f64::INFINITY;
        }
        let mut dropped = vec![true; row.len()];
        top_k(&order, count).into_iter().for_each(|id| dropped[id as usize] = false);
        row.iter_mut().zip(dropped).filter(|(_, dropped)| *dropped).for_each(|(x, _)| *x = f64::NEG_INFINITY);
    }
    let whole = Tensor::from_vec(rows.concat(), x.shape(), x.device())?;
    whole.to_dtype(x.dtype())
}

/// Sums of the rows of x `(1, rows, width)` up to each of them, in front of which the sums are `before` `(1, width)` or
/// narrower.
fn sums_so_far(x: &Tensor, before: &Tensor) -> Result<Tensor> {
    let on_host = |x: &Tensor| x.detach().to_device(&Device::Cpu)?.to_dtype(DType::F64);
    let rows: Vec<Vec<f64>> = on_host(&x.squeeze(0)?)?.to_vec2()?;
    // Before the first query there are no sums, and a GPU has no tensors without elements.
    let mut sums: Vec<f64> = match before.elem_count() {
        0 => Vec::new(),
        _ => on_host(&before.flatten_all()?)?.to_vec1()?,
    };
    sums.resize(x.dim(2)?, 0.0);
    let mut so_far: Vec<f64> = Vec::with_capacity(x.elem_count());
    for row in &rows {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        so_far.extend(&sums);
    }
    Tensor::from_vec(so_far, x.shape(), x.device())?.to_dtype(before.dtype())
}

/// Type of sums and of integers for numbers of `dtype`, since bf16 has too few bits for them.
fn exact(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// x in `all` bits of two's complement, of which the `leading` ones are read; the largest magnitude of each vector is
/// the largest integer.
fn quantized(x: &Tensor, leading: i32, all: i32) -> Result<Tensor> {
    let dtype = x.dtype();
    let x = x.detach().to_dtype(exact(dtype))?;
    let step = (x.abs()?.max_keepdim(D::Minus1)? / f64::from((1u32 << (all - 1)) - 1))?;
    let step = step.maximum(1e-30)?;
    let unread = f64::from(1u32 << (all - leading));
    let integers = (x.broadcast_div(&step)?.round()? / unread)?.floor()?;
    (integers * unread)?.broadcast_mul(&step)?.to_dtype(dtype)
}

impl Mixer for Cascade {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        self.forward_with(x, &mut Carried::default(), cx)
    }

    fn forward_with(&self, x: &Tensor, carried: &mut Carried, cx: &Cx) -> Result<Tensor> {
        if cx.is_training() {
            let [q, k, v] = self.projections.qkv(x, &RotaryPositions::Sequence(cx))?;
            let o = self.projections.attend([&q, &k, &v], Weights::Softmax, cx)?;
            return self.projections.output(&o);
        }
        let (o, _) = self.pruned(x, carried)?;
        self.projections.output(&cx.select(&self.projections.merge(&o)?)?)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        let Projections { n_heads, head_features, head_dim, .. } = self.projections;
        seq_len * (n_heads * (head_features + head_dim) + 1) + n_heads
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        WITHOUT_SYSTEM
    }
}

impl Recurrent for Cascade {
    /// Keys and values of all tokens, and the sums of importance in this layer.
    fn init(&self, batch: usize) -> Result<State> {
        let Projections { n_heads, head_features, head_dim, .. } = self.projections;
        let like = self.projections.like();
        let none = |width| Tensor::zeros((batch, n_heads, 0, width), like.dtype(), like.device());
        let [tokens, heads] = self.no_sums(batch)?;
        Ok(State::new(vec![none(head_features)?, none(head_dim)?, tokens, heads]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        self.step_with(x_t, at, state, &mut Carried::default())
    }

    fn step_with(&self, x_t: &Tensor, at: usize, state: &mut State, carried: &mut Carried) -> Result<Tensor> {
        let [q, k, v] = self.projections.heads(&x_t.unsqueeze(1)?, &RotaryPositions::Token(at))?;
        let [keys, values, tokens, heads] = &mut state.0[..] else {
            bail!("spatten: a state of {} tensors, and not of 4", state.0.len());
        };
        (*keys, *values) = (Tensor::cat(&[&*keys, &k], 2)?, Tensor::cat(&[&*values, &v], 2)?);
        let o = self.attend_each([&q, keys, values], at, carried, [tokens, heads])?;
        self.projections.output_step(&o)
    }

    fn read(&self, x: &Tensor) -> Result<(Tensor, State)> {
        self.read_with(x, &mut Carried::default())
    }

    fn read_with(&self, x: &Tensor, carried: &mut Carried) -> Result<(Tensor, State)> {
        let (o, state) = self.pruned(x, carried)?;
        Ok((self.projections.output(&self.projections.merge(&o)?)?, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixers::find;
    use candle_core::{Device, Var};
    use std::collections::BTreeMap;

    const LAYERS: usize = 4;

    /// Layers of one mixer each, with four heads of two features and parameters of their own.
    fn layers(options: &[(&str, &str)]) -> Vec<Box<dyn Mixer>> {
        let options: BTreeMap<String, String> =
            options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let model = crate::config::ModelConfig {
            options,
            d_state: 8,
            n_heads: 4,
            ..crate::config::ModelConfig::bare("spatten", "cascade", [12, LAYERS])
        };
        let params = Params::seeded(3, DType::F64, &Device::Cpu);
        let spec = MixerSpec { input_std: 0.6, ..MixerSpec::from(&model) };
        let of_layer = |layer| find("spatten").unwrap().build(spec.in_layer(layer), &params.scope(layer)).unwrap();
        (0..LAYERS).map(of_layer).collect()
    }

    fn input(batch: usize, seq_len: usize) -> Tensor {
        let rng = &mut crate::ops::rng::Rng::new(8, "input", 0);
        let values: Vec<f64> = (0..batch * seq_len * 12).map(|_| rng.normals().0).collect();
        Tensor::from_vec(values, (batch, seq_len, 12), &Device::Cpu).unwrap()
    }

    fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).unwrap().abs().unwrap().max_all().unwrap().to_scalar().unwrap()
    }

    fn values(x: &Tensor) -> Vec<f64> {
        x.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
    }

    const SETTINGS: [&[(&str, &str)]; 3] = [
        &[],
        &[("keep_tokens", "0.3"), ("keep_heads", "0.25"), ("keep_values", "0.6")],
        &[("keep_tokens", "0.6"), ("bits", "4+6"), ("threshold", "0.4")],
    ];

    #[test]
    fn layers_by_tokens_are_layers_by_sequences() {
        let (batch, seq_len, first) = (2, 19, 11);
        let x = input(batch, seq_len);
        for options in SETTINGS {
            let layers = layers(options);
            let through = |x: &Tensor, run: &mut dyn FnMut(usize, &dyn Mixer, &Tensor, &mut Carried) -> Tensor| {
                let mut carried = Carried::default();
                let step = |x: Tensor, (l, mixer): (usize, &dyn Mixer)| (&x + run(l, mixer, &x, &mut carried)).unwrap();
                layers.iter().map(AsRef::as_ref).enumerate().fold(x.clone(), step)
            };
            let whole = through(&x, &mut |_, mixer, x, carried| mixer.forward_with(x, carried, &Cx::eval()).unwrap());
            let mut states = Vec::new();
            let read = through(&x.narrow(1, 0, first).unwrap(), &mut |_, mixer, x, carried| {
                let (y, state) = mixer.recurrent().unwrap().read_with(x, carried).unwrap();
                states.push(state);
                y
            });
            assert!(largest_difference(&read, &whole.narrow(1, 0, first).unwrap()) < 1e-12, "{options:?}");
            for at in first..seq_len {
                let x_t = x.narrow(1, at, 1).unwrap().squeeze(1).unwrap();
                let y_t = through(&x_t, &mut |layer, mixer, x, carried| {
                    mixer.recurrent().unwrap().step_with(x, at, &mut states[layer], carried).unwrap()
                });
                let wanted = whole.narrow(1, at, 1).unwrap().squeeze(1).unwrap();
                assert!(largest_difference(&y_t, &wanted) < 1e-12, "{options:?}, token {at}");
            }
        }
    }

    /// A later layer keeps as many tokens as its share says, all of them among those of the layer before, and the token
    /// itself; and so it does with heads.
    #[test]
    fn what_a_layer_drops_stays_dropped() {
        let (x, layers) = (input(1, 20), layers(&[("keep_tokens", "0.3"), ("keep_heads", "0.5")]));
        let mut carried = Carried::default();
        let (mut kept_tokens, mut kept_heads) = (vec![true; 400], vec![true; 80]);
        for (layer, mixer) in layers.iter().enumerate() {
            mixer.forward_with(&x, &mut carried, &Cx::eval()).unwrap();
            let importance = carried.importance.as_ref().unwrap();
            let finite = |x: &Tensor| values(x).iter().map(|x| x.is_finite()).collect::<Vec<bool>>();
            let [tokens, heads] = [finite(&importance.tokens), finite(&importance.heads)];
            let subset = |now: &[bool], before: &[bool]| now.iter().zip(before).all(|(now, before)| !now || *before);
            assert!(subset(&tokens, &kept_tokens) && subset(&heads, &kept_heads), "layer {layer}");
            for i in 0..20 {
                let keep = [1.0, 0.3 + 0.7 * 2.0 / 3.0, 0.3 + 0.7 / 3.0, 0.3][layer];
                let row = &tokens[i * 20..(i + 1) * 20];
                assert_eq!(row.iter().filter(|kept| **kept).count(), (keep * (i + 1) as f64).ceil() as usize);
                assert!(row[i] && row[i + 1..].iter().all(|kept| !kept), "layer {layer}, token {i}");
                let heads = heads[i * 4..(i + 1) * 4].iter().filter(|kept| **kept).count();
                assert_eq!(heads, [4, 4, 3, 2][layer], "layer {layer}, token {i}");
            }
            (kept_tokens, kept_heads) = (tokens, heads);
        }
    }

    #[test]
    fn shares_fall_over_the_layers_after_the_first() {
        let shares = |unpruned, layers| (0..layers).map(|l| share(0.4, unpruned, l, layers)).collect::<Vec<_>>();
        assert_eq!(shares(0.15, 1), [1.0]);
        assert_eq!(shares(0.15, 2), [1.0, 0.4]);
        let twelve = shares(0.3, 12);
        assert_eq!(twelve[..4], [1.0; 4]);
        assert!((twelve[4] - 0.925).abs() < 1e-12 && (twelve[11] - 0.4).abs() < 1e-12);
    }

    #[test]
    fn bits_are_those_of_twos_complement() {
        let x = Tensor::new(&[[7.0f64, -7.0, 3.4, -1.0], [0.0; 4]], &Device::Cpu).unwrap();
        let var = Var::from_tensor(&x).unwrap();
        assert_eq!(values(&quantized(&var, 4, 4).unwrap())[..4], [7.0, -7.0, 3.0, -1.0]);
        // 0111, 1001, 0011 and 1111 without their last two bits.
        assert_eq!(values(&quantized(&var, 2, 4).unwrap()), [4.0, -8.0, 0.0, -4.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!([bits("8+4"), bits("2+1")], [Some([8, 12]), Some([2, 3])]);
        assert_eq!(["1+4", "8", "8+0", "8+13", "13+1", "a+b"].map(bits), [None; 6]);
    }
}
