//! Sizes that a mixer can be built with, and the sentences that refuse others.

use super::Entry;
use crate::config::{LanguageConfig, ModelConfig, Rotary};
use crate::error::{self, Error};

impl Entry {
    /// Refuses sizes that this mixer cannot be built with.
    pub fn check_sizes(&self, model: &ModelConfig) -> error::Result<()> {
        self.check_expand(model)?;
        self.check_heads(model)?;
        self.check_rotary(model)
    }

    fn check_heads(&self, model: &ModelConfig) -> error::Result<()> {
        let (d, n, s) = (model.d_model, model.d_state, model.n_heads);
        if s == 1 {
            return Ok(());
        }
        if !self.heads {
            return Err(Error::usage(format!(
                "mixer `{}` has no heads: --heads must be 1, not {s}",
                self.name
            )));
        }
        for (flag, size) in [("--d", d), ("--n", n)] {
            if size % s != 0 && (flag == "--d" || self.expands) {
                return Err(Error::usage(format!(
                    "--heads {s} does not divide {flag} {size}: each head takes an equal share"
                )));
            }
        }
        Ok(())
    }

    /// Heads are known to share the queries equally.
    fn check_rotary(&self, model: &ModelConfig) -> error::Result<()> {
        let turned = |l: &&LanguageConfig| l.rotary != Rotary::None;
        let Some(language) = model.language.as_ref().filter(turned) else {
            return Ok(());
        };
        if !self.rotary {
            return Err(Error::usage(format!(
                "mixer `{}` has no queries and keys that positions could turn: --rotary must be none",
                self.name
            )));
        }
        let (n, s, dims) = (model.d_state, model.n_heads, language.rotary_dims);
        if dims >= 2 && dims % 2 == 0 && dims <= n / s {
            return Ok(());
        }
        Err(Error::usage(format!(
            "--rotary turns an even number of channels, not {dims} of the {} that --n {n} and --heads {s} \
             give each head",
            n / s
        )))
    }

    fn check_expand(&self, model: &ModelConfig) -> error::Result<()> {
        let Some(expand) = model.expand else {
            return Ok(());
        };
        if !self.widens || model.variant != self.variants[0] {
            return Err(Error::usage(format!(
                "--expand {expand}: mixer `{}`, variant `{}`, has no inner width; leave --expand out",
                self.name, model.variant
            )));
        }
        // A width that is not a number is no width either.
        if expand.is_finite() && expand <= MOST_EXPAND && inner_width(model) >= 1 {
            return Ok(());
        }
        Err(Error::usage(format!(
            "--expand must be at most {MOST_EXPAND} and make of --d {} an inner width of at least 1, \
             not {expand}",
            model.d_model
        )))
    }
}

/// Largest inner width over d.
const MOST_EXPAND: f64 = 64.0;

/// Inner width E of the mixers that widen, rounded down: 2d unless told otherwise.
pub(super) fn inner_width(model: &ModelConfig) -> usize {
    (model.expand.unwrap_or(2.0) * model.d_model as f64) as usize
}
