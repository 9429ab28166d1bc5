//! What the name of a layout stands for: every released network is one kind of block, described here.
//!
//! | layout | norm | order | behind the mixer | feed-forward half | dropout | released as |
//! |---|---|---|---|---|---|---|
//! | `transformer` | layer | pre | | MLP, or the identity | branches | GPT-2; attention and RNNs on MQAR |
//! | `mamba` | layer | pre | | | branches | state space models on MQAR |
//! | `shared` | layer, one for both halves | pre | | MLP | branches | attention on LRA |
//! | `prenorm` | layer | pre | GELU, GLU | | branches | state space models on LRA |
//! | `postnorm` | layer | post | GELU, GLU | | branches | the same |
//! | `hawk` | RMS | pre | | gated MLP | sums | Hawk on LRA |
//! | `parallel` | layer | parallel | | MLP | branches | Pythia |

use crate::config::{Layout, ModelConfig, StateMixer};
use crate::nn::{NormKind, Scheme};

/// One block on the residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BlockSpec {
    pub norm: NormKind,
    pub order: Order,
    /// Whether both norms of a block are one set of weights.
    pub shared_norm: bool,
    pub behind_mixer: BehindMixer,
    /// The second half, if there is one.
    pub feed_forward: Option<FeedForward>,
    /// Hidden width of the feed-forward half.
    pub mlp_width: usize,
    /// Whether the residual beside the mixer is scaled by a learnt λ, 1 at first.
    pub learnt_skip: bool,
    pub dropout_on: DropoutOn,
    /// Probability of dropout.
    pub dropout: f64,
}

/// Where the norms stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// x + f(norm(x)), for each half after the other.
    Pre,
    /// norm(x + f(x)), for each half after the other.
    Post,
    /// x + mixer(norm1(x)) + feed_forward(norm2(x)).
    Parallel,
}

/// Position-wise maps of the mixer's output before it is added to the residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BehindMixer {
    Nothing,
    /// GELU and dropout.
    Gelu,
    /// GELU, dropout, a linear map to 2d, and one half of it times the sigmoid of the other.
    GeluGlu,
}

/// The second half of a block, position by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedForward {
    /// The normed residual is added once more, as the released code does without a state mixer.
    Identity,
    /// W2 gelu(W1 x + b1) + b2.
    Mlp,
    /// W2 (gelu(a) ⊙ b), where [a; b] = W1 x.
    GatedMlp,
}

/// What dropout acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropoutOn {
    /// What is added to the residual, and the hidden layer of an MLP.
    Branches,
    /// The residual stream itself, behind each addition.
    Sums,
}

/// The blocks of a network and what differs around them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BodySpec {
    pub block: BlockSpec,
    /// Whether a norm follows the last block.
    pub final_norm: bool,
    /// How linear maps inside the blocks of a classifier start.
    pub classifier_init: Scheme,
    /// Hidden width of the head that compares two documents; `None` is that of the feed-forward half.
    pub match_width: Option<usize>,
}

impl BodySpec {
    /// The network that `model` names.
    pub fn of(model: &ModelConfig) -> Self {
        let classifier = model.classifier.as_ref();
        let width = classifier.map(|c| c.mlp_width);
        let width = width.or(model.language.as_ref().map(|l| l.mlp_width));
        let plain = BlockSpec {
            norm: NormKind::Layer,
            order: Order::Pre,
            shared_norm: false,
            behind_mixer: BehindMixer::Nothing,
            feed_forward: None,
            mlp_width: width.unwrap_or(4 * model.d_model),
            learnt_skip: classifier.is_some_and(|c| c.lambda_skip),
            dropout_on: DropoutOn::Branches,
            dropout: classifier.map_or(0.0, |c| c.dropout),
        };
        let feed_forward = match model.state_mixer {
            StateMixer::Mlp => Some(FeedForward::Mlp),
            _ => Some(FeedForward::Identity),
        };
        let behind_mixer = match model.state_mixer {
            StateMixer::Glu => BehindMixer::GeluGlu,
            _ => BehindMixer::Gelu,
        };
        let body = |block: BlockSpec| Self {
            block,
            final_norm: true,
            classifier_init: Scheme::Torch,
            match_width: None,
        };
        match model.layout {
            Layout::Mamba => body(plain),
            Layout::Transformer => body(BlockSpec {
                feed_forward,
                ..plain
            }),
            Layout::Shared => body(BlockSpec {
                feed_forward,
                shared_norm: true,
                ..plain
            }),
            Layout::Parallel => body(BlockSpec {
                feed_forward,
                order: Order::Parallel,
                ..plain
            }),
            Layout::Prenorm => Self {
                final_norm: false,
                ..body(BlockSpec {
                    behind_mixer,
                    ..plain
                })
            },
            Layout::Postnorm => Self {
                final_norm: false,
                ..body(BlockSpec {
                    behind_mixer,
                    order: Order::Post,
                    ..plain
                })
            },
            Layout::Hawk => Self {
                final_norm: false,
                classifier_init: Scheme::FanIn,
                match_width: Some(512),
                ..body(BlockSpec {
                    norm: NormKind::Rms,
                    feed_forward: Some(FeedForward::GatedMlp),
                    // The released block has no λ.
                    learnt_skip: false,
                    dropout_on: DropoutOn::Sums,
                    ..plain
                })
            },
        }
    }
}
