//! The optimisation of a run.

use crate::gpu::Factors;
use serde::{Deserialize, Serialize};

/// AdamW, and how much of what it sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// How the rate moves.
    pub schedule: Schedule,
    /// Peak learning rate.
    pub lr: f64,
    /// Epochs over which `warmup-cosine` rises; 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warmup_epochs: usize,
    /// Epochs at most; also the period of the cosine.
    pub epochs: usize,
    /// Examples a step; the last batch of an epoch may be short.
    pub batch_size: usize,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Of activations and products; the text of a config leaves out the usual one.
    #[serde(default, skip_serializing_if = "Precision::is_usual")]
    pub precision: Precision,
    /// Examples of a step whose activations exist at one time; `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<usize>,
    /// The optimiser where it is not the released one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adam: Option<AdamConfig>,
    /// Training ends after the epoch whose accuracy exceeds this: on the validation split where there is one, else on the test split.
    pub stop_above: f64,
}

/// Numbers that a model computes with. Weights, moments, states and sums are f32 in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32 throughout, as in the released code.
    #[default]
    F32,
    /// f32, but dense products round their factors to 11 bits; on a GPU only.
    Tf32,
    /// Activations and factors of products in bf16; on a GPU only.
    Bf16,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Precision {
    /// As it is typed.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }

    /// What products of f32 make of their factors.
    pub fn factors(&self) -> Factors {
        match self {
            Self::Tf32 => Factors::Tf32,
            Self::F32 | Self::Bf16 => Factors::F32,
        }
    }

    /// Whether it goes without saying.
    pub fn is_usual(&self) -> bool {
        *self == Self::F32
    }
}

/// AdamW where it is not the released one: betas 0.9 and 0.999, eps 1e-8, decay on everything, no clipping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamConfig {
    /// Of the mean of gradients.
    pub beta1: f64,
    /// Of the mean of their squares.
    pub beta2: f64,
    /// Added to the root of that.
    pub eps: f64,
    /// Gradients are scaled down to this norm over all parameters; `None` leaves them.
    pub clip: Option<f64>,
    /// What decays.
    pub decay: Decay,
}

/// Which parameters decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Every one.
    All,
    /// Those of two axes or more: neither biases nor norms.
    Matrices,
}

/// Learning-rate schedules. Those that can be typed are the schedules of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// lr (1 + cos(pi e / epochs)) / 2, constant inside epoch e.
    CosinePerEpoch,
    /// Linear from 0 over the first tenth of all steps, then constant.
    WarmupConstant,
    /// The released schedule of the classifiers: in epoch e of E, with W = `warmup_epochs`, and a floor
    /// of 5e-6, (floor + (lr - floor) (1 + cos(pi e / E)) / 2) min(1, (e + 1) / W).
    WarmupCosine,
    /// Linear from 0 over the first tenth of all steps, then a cosine down to a tenth of the peak at the
    /// last one: Pythia's.
    Cosine,
    /// The same with a straight line down.
    Linear,
}
