//! Named parameters: ordered by name, seeded by name, shared between training and evaluation.

use crate::rng::Stream;
use candle_core::{bail, DType, Device, Result, Shape, Tensor, Var};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Initial values of a parameter.
pub enum Init<'a> {
    /// The same number everywhere.
    Constant(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Uniform between two bounds.
    Uniform(f64, f64),
    /// A function of the flat index and the parameter's own stream.
    Each(&'a dyn Fn(usize, &mut Stream) -> f64),
}

impl Init<'_> {
    fn values(&self, n: usize, mut stream: Stream) -> Vec<f64> {
        match self {
            Init::Constant(c) => vec![*c; n],
            Init::Normal(std) => (0..n.div_ceil(2))
                .flat_map(|_| {
                    let (a, b) = stream.normals();
                    [a * std, b * std]
                })
                .take(n)
                .collect(),
            Init::Uniform(low, high) => (0..n)
                .map(|_| low + (high - low) * stream.uniform())
                .collect(),
            Init::Each(f) => (0..n).map(|i| f(i, &mut stream)).collect(),
        }
    }
}

/// Where values come from when a parameter is asked for the first time.
enum Source {
    /// Each parameter draws from a stream of its own name, so that adding one moves no other.
    Seed(u64),
    /// Values given by name; asking for any other is an error.
    Given(HashMap<String, Tensor>),
}

struct Shared {
    vars: RefCell<BTreeMap<String, Var>>,
    source: Source,
    dtype: DType,
    device: Device,
}

/// A scope in the tree of parameters. Asking creates; asking again returns the same variable.
#[derive(Clone)]
pub struct Params {
    shared: Rc<Shared>,
    prefix: String,
    tracked: bool,
    activations: DType,
}

impl Params {
    /// Parameters drawn from `seed`.
    pub fn seeded(seed: u64, dtype: DType, device: &Device) -> Self {
        Self::new(Source::Seed(seed), dtype, device)
    }

    /// Parameters with the given values, converted to `dtype`.
    pub fn given(values: HashMap<String, Tensor>, dtype: DType, device: &Device) -> Self {
        Self::new(Source::Given(values), dtype, device)
    }

    fn new(source: Source, dtype: DType, device: &Device) -> Self {
        let shared = Shared {
            vars: RefCell::default(),
            source,
            dtype,
            device: device.clone(),
        };
        Self {
            shared: Rc::new(shared),
            prefix: String::new(),
            tracked: true,
            activations: dtype,
        }
    }

    /// The same parameters for layers whose activations are of `dtype`.
    pub fn for_activations(self, dtype: DType) -> Self {
        Self {
            activations: dtype,
            ..self
        }
    }

    /// The type of activations in layers of these parameters; unless told otherwise, their own.
    pub fn activations(&self) -> DType {
        self.activations
    }

    /// The scope `name` below this one.
    pub fn scope(&self, name: impl std::fmt::Display) -> Self {
        Self {
            prefix: format!("{}{name}.", self.prefix),
            ..self.clone()
        }
    }

    /// The same variables without gradient: what is built from it records no graph.
    pub fn detached(&self) -> Self {
        Self {
            tracked: false,
            ..self.clone()
        }
    }

    /// The parameter `name` in this scope, created on first use.
    pub fn get(&self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<Tensor> {
        let (name, shape) = (format!("{}{name}", self.prefix), shape.into());
        let existing = self.shared.vars.borrow().get(&name).cloned();
        let var = match existing {
            Some(var) => var,
            None => self.create(&name, &shape, init)?,
        };
        if var.shape() != &shape {
            bail!(
                "parameter {name} has shape {:?}, asked for {shape:?}",
                var.shape()
            );
        }
        Ok(if self.tracked {
            var.as_tensor().clone()
        } else {
            var.as_detached_tensor()
        })
    }

    fn create(&self, name: &str, shape: &Shape, init: Init) -> Result<Var> {
        let Shared { dtype, device, .. } = &*self.shared;
        let tensor = match &self.shared.source {
            Source::Seed(seed) => {
                let stream = Stream::new(*seed, &format!("init/{name}"), 0);
                Tensor::from_vec(init.values(shape.elem_count(), stream), shape, device)?
            }
            Source::Given(values) => match values.get(name) {
                Some(value) => value.to_device(device)?,
                None => bail!("no value was given for parameter {name} of shape {shape:?}"),
            },
        };
        let var = Var::from_tensor(&tensor.to_dtype(*dtype)?)?;
        let mut vars = self.shared.vars.borrow_mut();
        vars.insert(name.to_owned(), var.clone());
        Ok(var)
    }

    /// All variables created so far, in the order of their names.
    pub fn vars(&self) -> Vec<(String, Var)> {
        let vars = self.shared.vars.borrow();
        vars.iter().map(|(n, v)| (n.clone(), v.clone())).collect()
    }

    /// Numbers in all variables.
    pub fn count(&self) -> usize {
        let vars = self.shared.vars.borrow();
        vars.values().map(|v| v.elem_count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(p: &Params, name: &str, init: Init) -> Vec<f32> {
        p.get(name, 5, init).unwrap().to_vec1().unwrap()
    }

    #[test]
    fn a_parameter_depends_on_its_name_and_not_on_who_came_before() {
        let a = Params::seeded(1, DType::F32, &Device::Cpu);
        let b = Params::seeded(1, DType::F32, &Device::Cpu);
        values(&b, "other", Init::Normal(1.0));
        let x = values(&a, "w", Init::Normal(1.0));
        assert_eq!(x, values(&b, "w", Init::Normal(1.0)));
        assert_ne!(x, values(&b, "other", Init::Normal(1.0)));
        assert_ne!(x, values(&b.scope("s"), "w", Init::Normal(1.0)));
    }

    #[test]
    fn detached_parameters_share_values_but_not_gradients() {
        let p = Params::seeded(1, DType::F32, &Device::Cpu);
        p.get("w", 5, Init::Constant(1.0)).unwrap();
        let d = p.detached().get("w", 5, Init::Constant(0.0)).unwrap();
        assert!(!d.track_op());
        p.vars()[0]
            .1
            .set(&Tensor::zeros(5, DType::F32, &Device::Cpu).unwrap())
            .unwrap();
        assert_eq!(d.to_vec1::<f32>().unwrap(), [0.0; 5]);
    }

    #[test]
    fn a_missing_or_misshapen_value_is_named() {
        let p = Params::given(HashMap::new(), DType::F32, &Device::Cpu);
        let e = p.scope("m").get("w", 5, Init::Constant(0.0)).unwrap_err();
        assert!(e.to_string().contains("parameter m.w"), "{e}");
        let p = Params::seeded(1, DType::F32, &Device::Cpu);
        p.get("w", 5, Init::Constant(0.0)).unwrap();
        let e = p.get("w", 6, Init::Constant(0.0)).unwrap_err();
        assert!(e.to_string().contains("parameter w"), "{e}");
    }
}
