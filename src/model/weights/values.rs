//! Weights by name: in memory, or in files of which each is read when it is asked for.

use crate::nn::GivenValues;
use candle_core::{Result, Tensor};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::rc::Rc;

/// Weights of a model by this program's names.
#[derive(Clone, Debug)]
pub struct WeightValues(Rc<dyn WeightSource>);

/// Place that weights come from.
pub trait WeightSource: GivenValues + Debug {
    /// Number of elements of each weight.
    fn sizes(&self) -> BTreeMap<String, usize>;

    /// Whether weights stay in their files until they are asked for.
    fn is_mapped(&self) -> bool;
}

impl WeightSource for HashMap<String, Tensor> {
    fn sizes(&self) -> BTreeMap<String, usize> {
        self.iter().map(|(name, value)| (name.clone(), value.elem_count())).collect()
    }

    fn is_mapped(&self) -> bool {
        false
    }
}

impl WeightValues {
    /// Weights of `source`.
    pub fn of(source: impl WeightSource + 'static) -> Self {
        Self(Rc::new(source))
    }

    /// Number of elements of each weight.
    pub fn sizes(&self) -> BTreeMap<String, usize> {
        self.0.sizes()
    }

    /// Whether weights stay in their files until they are asked for.
    pub fn is_mapped(&self) -> bool {
        self.0.is_mapped()
    }

    /// All weights.
    pub fn all(&self) -> Result<BTreeMap<String, Tensor>> {
        let read = |name: String| match self.value(&name)? {
            Some(value) => Ok((name, value)),
            None => candle_core::bail!("weight {name} is gone"),
        };
        self.sizes().into_keys().map(read).collect()
    }
}

impl From<HashMap<String, Tensor>> for WeightValues {
    fn from(values: HashMap<String, Tensor>) -> Self {
        Self::of(values)
    }
}

impl GivenValues for WeightValues {
    fn value(&self, name: &str) -> Result<Option<Tensor>> {
        self.0.value(name)
    }
}
