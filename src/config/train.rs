//! Optimisation settings of a run.

use crate::gpu::Factors;
use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};

/// AdamW, its schedule, and the amount of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Learning-rate schedule.
    pub schedule: Schedule,
    /// Peak learning rate.
    pub lr: f64,
    /// Number of epochs over which `warmup-cosine` rises; 0 for no warm-up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warmup_epochs: usize,
    /// Maximum number of epochs; also the period of the cosine.
    pub epochs: usize,
    /// Number of examples per step. The last batch of an epoch may be short.
    pub batch_size: usize,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Precision of activations and matrix products; left out of the config's text if it is f32.
    #[serde(default, skip_serializing_if = "Precision::is_usual")]
    pub precision: Precision,
    /// Number of examples of a step whose activations are held at the same time; `None` for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<usize>,
    /// Parameters to which weight decay applies, if `adam` is `None`; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decay: Option<Decay>,
    /// Optimiser settings; `None` for the released ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adam: Option<AdamConfig>,
    /// Accuracy above which training ends after an epoch: on the validation split if there is one, else on the test
    /// split.
    pub stop_above: f64,
}

/// Number formats of the computation. Weights, moments, states and sums are f32 in all of them. The table in
/// `src/guide/speed.md` says what each means on a CPU and on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32 throughout, as in the released code.
    #[default]
    F32,
    /// f32, but the factors of products have the 11 bits of TF32 on a GPU, 16 bits on a CPU with AMX, and are not
    /// rounded on other CPUs.
    Tf32,
    /// Factors of products in bf16, and on a GPU also activations.
    Bf16,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Precision {
    /// Type of activations on a device.
    pub fn activations(self, device: &Device) -> DType {
        match self {
            Self::Bf16 if !device.is_cpu() => DType::BF16,
            Self::F32 | Self::Tf32 | Self::Bf16 => DType::F32,
        }
    }

    /// Name as typed.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }

    /// Floating-point format of the factors of f32 products.
    pub fn factors(&self) -> Factors {
        match self {
            Self::Tf32 => Factors::Tf32,
            Self::F32 => Factors::F32,
            Self::Bf16 => Factors::Bf16,
        }
    }

    /// Whether this is the default, f32.
    pub fn is_usual(&self) -> bool {
        *self == Self::F32
    }
}

/// AdamW settings. The released ones are betas 0.9 and 0.999, eps 1e-8, decay on all parameters and no clipping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamConfig {
    /// Decay rate of the mean of gradients.
    pub beta1: f64,
    /// Decay rate of the mean of their squares.
    pub beta2: f64,
    /// Constant added to the square root of the second moment.
    pub eps: f64,
    /// Largest norm of the gradients over all parameters, to which they are scaled down; `None` for no clipping.
    pub clip: Option<f64>,
    /// Parameters to which weight decay applies.
    pub decay: Decay,
}

/// Parameters to which weight decay applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// All parameters.
    All,
    /// Parameters with two axes or more: neither biases nor norms.
    Matrices,
    /// Linear maps and embeddings: no decays, step sizes or kernels of a mixer, and neither biases nor norms.
    Maps,
}

/// Learning-rate schedules. Those that can be typed are the schedules of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// lr (1 + cos(pi e / epochs)) / 2, constant inside epoch e.
    CosinePerEpoch,
    /// Linear from 0 over the first tenth of all steps, then constant; typed as `constant`.
    #[serde(alias = "constant")]
    WarmupConstant,
    /// Released schedule of the classifiers: in epoch e of E, with W = `warmup_epochs`, and a floor of 5e-6, (floor +
    /// (lr - floor) (1 + cos(pi e / E)) / 2) min(1, (e + 1) / W).
    WarmupCosine,
    /// Pythia's schedule: linear from 0 over the first tenth of all steps, then a cosine down to a tenth of the peak at
    /// the last step.
    Cosine,
    /// Same as `Cosine` with a linear descent.
    Linear,
}
