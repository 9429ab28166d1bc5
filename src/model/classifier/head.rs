//! From pooled vectors to classes, for one document and for two.

use crate::config::{self, ClassifierConfig, Dual, Layout, ModelConfig};
use crate::nn::{linear, Params};
use crate::tasks::Sizes;
use candle_core::{Result, Tensor};

/// m of MATCH beside Hawk, whose config has no such width of its own.
const HAWK_MATCH: usize = 512;

/// Linear maps with a ReLU between each two of them.
pub(super) struct Layers(Vec<[Tensor; 2]>);

impl Layers {
    fn new(widths: &[usize], params: &Params) -> Result<Self> {
        let pairs = widths.windows(2).enumerate().map(|(i, pair)| {
            let (name, fan_in) = (i + 1, pair[0]);
            Ok([
                params.weight(&format!("w{name}"), (pair[1], fan_in), 1.0)?,
                params.bias(&format!("b{name}"), pair[1], fan_in)?,
            ])
        });
        Ok(Self(pairs.collect::<Result<_>>()?))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (i, [w, b]) in self.0.iter().enumerate() {
            if i > 0 {
                x = x.relu()?;
            }
            x = linear(&x, w, Some(b))?;
        }
        Ok(x)
    }
}

/// What becomes of pooled vectors.
pub(super) enum Head {
    /// One document: d to C, perhaps through m.
    One(Layers),
    /// MATCH on what the head makes of each of two documents.
    Logits { each: Layers, both: Layers },
    /// MATCH on both pooled vectors.
    Features(Layers),
}

impl Head {
    pub fn new(
        model: &ModelConfig,
        config: &ClassifierConfig,
        sizes: &Sizes,
        params: &Params,
    ) -> Result<Self> {
        let (d, m, classes) = (model.d_model, config.mlp_width, sizes.classes);
        let each = || match config.head {
            config::Head::Mlp => Layers::new(&[d, m, classes], &params.scope("head")),
            config::Head::Linear => Layers::new(&[d, classes], &params.scope("head")),
        };
        let both = |width: usize| {
            let m = match model.layout {
                Layout::Hawk => HAWK_MATCH,
                _ => m,
            };
            let widths = [sizes.documents * width, m, (m / 2).max(1), classes];
            Layers::new(&widths, &params.scope("match"))
        };
        Ok(match (sizes.documents, config.dual) {
            (1, _) => Self::One(each()?),
            (_, Dual::Logits) => Self::Logits {
                each: each()?,
                both: both(classes)?,
            },
            (_, Dual::Features) => Self::Features(both(d)?),
        })
    }

    /// `pooled` `(documents · batch, d)`, all first documents and then all second ones, to
    /// `(batch, classes)`.
    pub fn forward(&self, pooled: &Tensor) -> Result<Tensor> {
        let pairs = |x: &Tensor| Tensor::cat(&x.chunk(2, 0)?, 1);
        match self {
            Self::One(each) => each.forward(pooled),
            Self::Logits { each, both } => both.forward(&pairs(&each.forward(pooled)?)?),
            Self::Features(both) => both.forward(&pairs(pooled)?),
        }
    }
}
