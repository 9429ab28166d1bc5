//! Layouts of the released networks. All of them are variants of one kind of block, described here.
//!
//! | layout | norm | order | after the mixer | feed-forward half | dropout | released as |
//! |---|---|---|---|---|---|---|
//! | `transformer` | layer | pre | | MLP, or the identity | branches | GPT-2; attention and RNNs on MQAR |
//! | `mamba` | layer | pre | | | branches | state space models on MQAR |
//! | `shared` | layer, one for both halves | pre | | MLP | branches | attention on LRA |
//! | `prenorm` | layer | pre | GELU, GLU | | branches | state space models on LRA |
//! | `postnorm` | layer | post | GELU, GLU | | branches | the same |
//! | `hawk` | RMS | pre | | gated MLP | sums | Hawk on LRA |
//! | `parallel` | layer | parallel | | MLP | branches | Pythia |

use crate::config::{Activation, Layout, ModelConfig, NormKind, StateMixer};
use crate::nn::{NormSpec, Scheme};

/// Description of one block on the residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BlockSpec {
    pub norm: NormSpec,
    pub order: Order,
    /// Whether both halves of a block share one norm.
    pub shared_norm: bool,
    pub after_mixer: AfterMixer,
    /// Second half of the block, if there is one.
    pub feed_forward: Option<FeedForward>,
    /// Hidden width of the feed-forward half.
    pub mlp_width: usize,
    /// Activation of the feed-forward half.
    pub activation: Activation,
    /// Whether its maps have biases; `None` for the default of its kind.
    pub bias: Option<bool>,
    /// Whether the residual around the mixer is scaled by a learned λ, initially 1.
    pub learnt_skip: bool,
    pub dropout_on: DropoutOn,
    /// Dropout probability.
    pub dropout: f64,
}

/// Order of norm, branch and addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// x + f(norm(x)), for one half after the other.
    Pre,
    /// norm(x + f(x)), for one half after the other.
    Post,
    /// x + mixer(norm1(x)) + feed_forward(norm2(x)).
    Parallel,
}

/// Position-wise maps of the mixer's output before it is added to the residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterMixer {
    Nothing,
    /// GELU and dropout.
    Gelu,
    /// GELU, dropout, a linear map to 2d, and a gated linear unit: one half times the sigmoid of the other.
    GeluGlu,
}

/// Second half of a block, position-wise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedForward {
    /// Identity: the normed residual is added once more, as the released code does without a state mixer.
    Identity,
    /// W2 gelu(W1 x + b1) + b2.
    Mlp,
    /// W2 (gelu(a) ⊙ b), where [a; b] = W1 x.
    GatedMlp,
    /// Channel mixing of RWKV-4.
    ChannelMix,
    /// Channel mixing of RWKV-7.
    ShiftedMlp,
}

/// Tensors to which dropout applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropoutOn {
    /// Branches before they are added to the residual, and the hidden layer of an MLP.
    Branches,
    /// The residual stream itself, after each addition.
    Sums,
}

/// Description of the blocks of a network and of the parts around them that differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BodySpec {
    pub block: BlockSpec,
    /// Whether a norm follows the last block.
    pub final_norm: bool,
    /// Initialisation of the linear maps inside the blocks of a classifier.
    pub classifier_init: Scheme,
    /// Hidden width of the head that compares two documents; `None` for the width of the feed-forward half.
    pub match_width: Option<usize>,
}

/// Number of weights in the matrices of one block outside its mixer. Each takes part in one multiply-add per token.
pub fn weights_beside_mixer(model: &ModelConfig) -> usize {
    let (block, d) = (BodySpec::of(model).block, model.d_model);
    let after = match block.after_mixer {
        AfterMixer::Nothing | AfterMixer::Gelu => 0,
        AfterMixer::GeluGlu => 2 * d * d,
    };
    after
        + match block.feed_forward {
            None | Some(FeedForward::Identity) => 0,
            Some(FeedForward::Mlp | FeedForward::ShiftedMlp) => 2 * d * block.mlp_width,
            Some(FeedForward::GatedMlp) => 3 * d * block.mlp_width,
            Some(FeedForward::ChannelMix) => 2 * d * block.mlp_width + d * d,
        }
}

impl BlockSpec {
    /// The same block in a layer whose input `transformers` has halved `times` times. A norm of x / 2^t with ε is the
    /// norm of x with 4^t ε.
    pub fn halved(self, times: usize) -> Self {
        let norm = NormSpec { eps: self.norm.eps * 4f64.powi(times as i32), ..self.norm };
        Self { norm, ..self }
    }
}

impl BodySpec {
    /// Description of the network with the layout of `model`.
    pub fn of(model: &ModelConfig) -> Self {
        let classifier = model.classifier.as_ref();
        let language = model.language.as_ref();
        let width = classifier.map(|c| c.mlp_width).or(language.map(|l| l.mlp_width)).or(model.mlp_width);
        let half = match model.state_mixer {
            StateMixer::Mlp => Some(FeedForward::Mlp),
            StateMixer::GatedMlp => Some(FeedForward::GatedMlp),
            StateMixer::ChannelMix => Some(FeedForward::ChannelMix),
            StateMixer::ShiftedMlp => Some(FeedForward::ShiftedMlp),
            _ => Some(FeedForward::Identity),
        };
        let gelu = match model.state_mixer {
            StateMixer::Glu => AfterMixer::GeluGlu,
            _ => AfterMixer::Gelu,
        };
        let mut block = BlockSpec {
            norm: NormSpec::of(NormKind::Layer),
            order: Order::Pre,
            shared_norm: false,
            after_mixer: AfterMixer::Nothing,
            feed_forward: None,
            mlp_width: width.unwrap_or(4 * model.d_model),
            activation: model.block.activation.unwrap_or(Activation::Gelu),
            bias: model.block.bias,
            learnt_skip: classifier.is_some_and(|c| c.lambda_skip),
            dropout_on: DropoutOn::Branches,
            dropout: classifier.map_or(0.0, |c| c.dropout),
        };
        match model.layout {
            Layout::Mamba => {}
            Layout::Transformer => block.feed_forward = half,
            Layout::Shared => (block.feed_forward, block.shared_norm) = (half, true),
            Layout::Parallel => {
                (block.feed_forward, block.order) = (half, Order::Parallel);
                block.learnt_skip = false;
            }
            Layout::Prenorm => block.after_mixer = gelu,
            Layout::Postnorm => (block.after_mixer, block.order) = (gelu, Order::Post),
            Layout::Hawk => {
                (block.norm, block.dropout_on) = (NormSpec::of(NormKind::Rms), DropoutOn::Sums);
                block.feed_forward = Some(FeedForward::GatedMlp);
                block.learnt_skip = false; // the released block has no λ
            }
        }
        if let Some(kind) = model.block.norm {
            block.norm = NormSpec::of(kind);
        }
        if let Some(eps) = model.block.eps {
            block.norm.eps = eps;
        }
        let hawk = model.layout == Layout::Hawk;
        let unnormed = [Layout::Prenorm, Layout::Postnorm, Layout::Hawk];
        Self {
            block,
            // An auto-encoder's decoder begins with a norm.
            final_norm: !unnormed.contains(&model.layout) && !model.auto_encoder,
            classifier_init: if hawk { Scheme::FanIn } else { Scheme::Torch },
            match_width: hawk.then_some(512),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::weights_beside_mixer;
    use crate::model::{Classifier, Io, LanguageModel};
    use crate::nn::Params;
    use crate::recipes;
    use candle_core::{DType, Device};

    /// The count equals the number of built weights for every layout that a recipe trains, biases aside.
    #[test]
    fn the_maps_beside_a_mixer_are_counted_as_they_are_built() {
        let lra = |mixer| vec![("preset", "quick"), ("dataset", "image"), ("mixer", mixer)];
        let mut layouts = Vec::new();
        for (task, settings) in [
            ("mqar", vec![("preset", "quick"), ("mixer", "softmax")]),
            ("mqar", vec![("preset", "quick"), ("mixer", "normalized")]),
            ("mqar", vec![("preset", "quick"), ("mixer", "s6")]),
            ("lra", lra("softmax")),
            ("lra", lra("mamba")),
            ("lra", lra("ssd")),
            ("lra", lra("rg-lru")),
            ("wikitext", vec![("preset", "quick")]),
        ] {
            let run = recipes::run(task, &settings).unwrap();
            let (model, sizes) = (&run.model, run.task.sizes().unwrap());
            let params = Params::seeded(0, DType::F32, &Device::Cpu);
            match model.classifier {
                Some(_) => drop(Classifier::new(model, &sizes, &params).unwrap()),
                None => drop(LanguageModel::new(model, Io::from(&sizes), &params).unwrap()),
            }
            let vars = params.vars().into_iter();
            let built = vars.filter(|(name, var)| {
                let beside = name.contains("0.mlp.") || name.contains("0.glu.");
                beside && name.starts_with("layers.") && var.rank() == 2
            });
            let built: usize = built.map(|(_, var)| var.elem_count()).sum();
            assert_eq!(weights_beside_mixer(model), built, "{settings:?}");
            layouts.push(model.layout);
        }
        layouts.dedup();
        assert!(layouts.len() > 4, "{layouts:?}");
    }
}
