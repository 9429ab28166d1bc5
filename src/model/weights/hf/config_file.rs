//! Typed access to the keys of a `config.json`.

use crate::config::Activation;
use crate::error::{Error, Result};
use serde_json::{json, Value};

/// Parsed file and its name for errors.
pub(super) struct ConfigFile<'a> {
    pub json: Value,
    pub place: &'a str,
}

/// Rotary positions of a config.
pub(super) struct Rope {
    /// Base of the wavelengths.
    pub base: f64,
    /// Number of rotated channels of each head.
    pub dims: usize,
}

impl ConfigFile<'_> {
    /// Parses the text of a `config.json`.
    pub fn parse<'a>(text: &str, place: &'a str) -> Result<ConfigFile<'a>> {
        let json =
            serde_json::from_str(text).map_err(|e| Error::data(place, format!("not the config of a model: {e}")))?;
        Ok(ConfigFile { json, place })
    }

    pub fn refused(&self, why: &str) -> Error {
        Error::data(self.place, why)
    }

    /// Value of `key`; `None` if it is missing or null.
    pub fn given(&self, key: &str) -> Option<&Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    /// Size from 1 to 2^24.
    pub fn size(&self, key: &str) -> Result<usize> {
        let size = self.given(key).and_then(Value::as_u64).filter(|n| (1..=1 << 24).contains(n));
        let size = size.and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| match self.given(key) {
            None => self.refused(&format!("`{key}` is missing")),
            Some(value) => self.refused(&format!("`{key}` is {value}, not a whole number from 1 to {}", 1 << 24)),
        })
    }

    /// Same as [`Self::size`], or `default` if the key is missing or null.
    pub fn size_or(&self, key: &str, default: usize) -> Result<usize> {
        self.given(key).map_or(Ok(default), |_| self.size(key))
    }

    /// Positive number, or `default` if the key is missing or null.
    pub fn real_or(&self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.given(key) else {
            return Ok(default);
        };
        let number = value.as_f64().filter(|x| x.is_finite() && *x > 0.0);
        number.ok_or_else(|| self.refused(&format!("`{key}` is {value}, not a number above 0")))
    }

    /// Whether head and embedding share one table, for [`BlockConfig`](crate::config::BlockConfig), which leaves out that a
    /// model of text has two; `default` if the file does not say it.
    pub fn tied(&self, default: bool) -> Result<Option<bool>> {
        Ok(self.truth_or("tie_word_embeddings", default)?.then_some(true))
    }

    /// Truth value, or `default` if the key is missing or null.
    pub fn truth_or(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.given(key) else {
            return Ok(default);
        };
        value.as_bool().ok_or_else(|| self.refused(&format!("`{key}` is {value}, not true or false")))
    }

    /// Fails if `key` is present with a value other than `wanted`.
    pub fn only(&self, key: &str, wanted: &Value) -> Result<()> {
        self.only_in(&self.json, key, wanted)
    }

    pub fn only_in(&self, object: &Value, key: &str, wanted: &Value) -> Result<()> {
        let same = |found: &Value| match (found.as_f64(), wanted.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs(),
            _ => found == wanted,
        };
        match object.get(key) {
            None => Ok(()),
            Some(found) if same(found) || (found.is_null() && wanted == &json!(false)) => Ok(()),
            Some(found) => Err(self.refused(&format!("`{key}` is {found}, but dsf supports only {wanted}"))),
        }
    }

    /// Activation called `key`, which is `default` if it is missing.
    pub fn activation(&self, key: &str, default: &str) -> Result<Activation> {
        let name = self.given(key).map_or(Some(default), Value::as_str);
        match name {
            Some("gelu") => Ok(Activation::Gelu),
            Some("gelu_new" | "gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some("linear") => Ok(Activation::Identity),
            _ => Err(self.refused(&format!(
                "`{key}` is {}, but dsf supports only gelu, gelu_new, gelu_pytorch_tanh, silu and linear",
                self.json[key]
            ))),
        }
    }

    /// Width of a head; fails unless `heads` divide `width`.
    pub fn head_width(&self, width: usize, heads: usize) -> Result<usize> {
        if width.is_multiple_of(heads) {
            return Ok(width / heads);
        }
        Err(self.refused(&format!("{heads} heads do not divide a width of {width}")))
    }

    /// Rotary positions in heads of width `head`, of which `share` channels rotate unless the file says otherwise.
    pub fn rope(&self, head: usize, share: f64) -> Result<Rope> {
        let rope = &self.json["rope_parameters"];
        self.only("rope_scaling", &json!(false))?;
        self.only_in(rope, "rope_type", &json!("default"))?;
        let first = |values: &[&Value]| values.iter().find_map(|value| value.as_f64());
        let factor = "partial_rotary_factor";
        let share = first(&[&rope[factor], &self.json[factor], &self.json["rotary_pct"]]).unwrap_or(share);
        let base = first(&[&rope["rope_theta"], &self.json["rope_theta"], &self.json["rotary_emb_base"]]);
        let dims = (share * head as f64) as usize;
        if !dims.is_multiple_of(2) || dims > head {
            return Err(self.refused(&format!("it has {dims} rotary channels in heads of width {head}")));
        }
        Ok(Rope { base: base.unwrap_or(BASE), dims })
    }
}

/// Base of the wavelengths of rotary positions that every model has unless it says otherwise.
pub(super) const BASE: f64 = 10_000.0;

/// Name of `activation` in a `config.json`.
pub(super) fn activation_name(activation: Option<Activation>) -> &'static str {
    match activation {
        None | Some(Activation::Gelu) => "gelu",
        Some(Activation::GeluTanh) => "gelu_pytorch_tanh",
        Some(Activation::Silu) => "silu",
        Some(Activation::Identity) => "linear",
    }
}

/// Returns a `partial_rotary_factor` from which `transformers`, which rounds down, computes `dims` rotary channels out
/// of `width`.
pub(super) fn rotary_share(dims: usize, width: usize) -> f64 {
    let (dims, width) = (dims as f64, width as f64);
    let share = dims / width;
    if (share * width).trunc() == dims {
        share
    } else {
        (dims + 0.5) / width
    }
}
