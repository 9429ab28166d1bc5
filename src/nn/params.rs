//! Named parameters: ordered by name, seeded by name, shared between training and evaluation.

use crate::ops::rng::Rng;
use candle_core::{bail, DType, Device, Result, Shape, Tensor, Var};
use rayon::prelude::*;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Initial values of a parameter.
pub enum Init<'a> {
    /// The same value everywhere.
    Constant(f64),
    /// Normal distribution with mean 0 and this standard deviation.
    Normal(f64),
    /// Uniform distribution between two bounds.
    Uniform(f64, f64),
    /// Function of the flat index and the parameter's own random stream.
    Each(&'a dyn Fn(usize, &mut Rng) -> f64),
}

impl Init<'_> {
    /// Distribution in words. Of values computed for each element, the range of the first [`FEW`].
    fn law(&self, n: usize, rng: Rng) -> String {
        match self {
            Init::Constant(c) => format!("{c}"),
            Init::Normal(std) => format!("normal, standard deviation {}", rounded(*std)),
            Init::Uniform(low, high) => format!("uniform from {} to {}", rounded(*low), rounded(*high)),
            Init::Each(_) => {
                let values = self.values(n.min(FEW), rng);
                let low = values.iter().copied().fold(f64::INFINITY, f64::min);
                let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                format!("from {} to {}", rounded(low), rounded(high))
            }
        }
    }

    fn values(&self, n: usize, mut rng: Rng) -> Vec<f64> {
        match self {
            Init::Constant(c) => vec![*c; n],
            Init::Normal(std) => in_chunks(n, &rng, |rng, pair| {
                let (a, b) = rng.normals();
                pair.copy_from_slice(&[a * std, b * std][..pair.len()]);
            }),
            Init::Uniform(low, high) => in_chunks(n, &rng, |rng, pair| {
                pair.fill_with(|| low + (high - low) * rng.uniform());
            }),
            Init::Each(f) => (0..n).map(|i| f(i, &mut rng)).collect(),
        }
    }
}

/// Returns `n` numbers that `draw` fills in pairs, each from four words of the stream, drawn on all threads.
fn in_chunks(n: usize, rng: &Rng, draw: impl Fn(&mut Rng, &mut [f64]) + Sync) -> Vec<f64> {
    const PAIRS: usize = 1 << 12;
    let mut values = vec![0.0; n];
    values.par_chunks_mut(2 * PAIRS).enumerate().for_each(|(i, chunk)| {
        let mut rng = rng.from_word(4 * i * PAIRS);
        chunk.chunks_mut(2).for_each(|pair| draw(&mut rng, pair));
    });
    values
}

/// Standard deviation of the weights of GPT-2 and of the released language model.
pub const GPT_STD: f64 = 0.02;

/// Initialisation of linear maps. All other parameters have an initialisation of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Normal weights with a standard deviation given by the caller, zero biases: the released language model.
    #[default]
    Gpt,
    /// Weights and biases uniform in ± fan_in^-1/2: PyTorch's default.
    Torch,
    /// Same as `Torch`, but weights to which the caller gives another standard deviation than [`GPT_STD`] are scaled by
    /// the ratio of the two, and biases start at 0: Mamba, whose maps to the residual stream are divided by the root of
    /// their number.
    Mamba,
    /// Normal weights with standard deviation fan_in^-1/2, zero biases: the released Hawk.
    FanIn,
    /// Same as `Gpt`, for standard deviations of Nguyen and Salazar: Pythia and xLSTM.
    Small,
}

impl Scheme {
    /// Code that the scheme was taken from.
    fn origin(self) -> &'static str {
        match self {
            Self::Gpt => "GPT-2",
            Self::Torch => "default of PyTorch",
            Self::Mamba => "code of Mamba",
            Self::FanIn => "released Hawk",
            Self::Small => "Nguyen & Salazar 2019",
        }
    }
}

/// Elements of which [`Init::law`] computes the range.
const FEW: usize = 4096;

/// Number to three significant digits.
fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

/// Initial values of a parameter, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialValues {
    /// Shape of the parameter.
    pub shape: Vec<usize>,
    /// Distribution of the values.
    pub law: String,
    /// Code, paper or weights that the values were taken from.
    pub origin: Cow<'static, str>,
}

impl InitialValues {
    /// Replaces the drawn values by those of the weights called `name`.
    pub fn replace_by(&mut self, name: &str) {
        (self.law, self.origin) = ("trained".to_owned(), format!("weights of {name}").into());
    }
}

/// Values by name.
pub trait GivenValues {
    /// Value called `name`; `None` if there is none. Fails if it cannot be read.
    fn value(&self, name: &str) -> Result<Option<Tensor>>;
}

impl GivenValues for HashMap<String, Tensor> {
    fn value(&self, name: &str) -> Result<Option<Tensor>> {
        Ok(self.get(name).cloned())
    }
}

/// Source of the values of a parameter when it is first requested.
enum ValueSource {
    /// Random values, drawn for each parameter from a stream of its own name, so that adding a parameter does not
    /// change the others.
    Seed(u64),
    /// Values given by name; a request for any other name is an error.
    Given(Box<dyn GivenValues>),
    /// No values: a parameter is a single zero, broadcast to its shape.
    Nowhere,
}

struct Shared {
    vars: RefCell<BTreeMap<String, Var>>,
    /// Number of elements of each parameter.
    sizes: RefCell<BTreeMap<String, usize>>,
    /// Initial values of each parameter, if they are described.
    initial: Option<RefCell<BTreeMap<String, InitialValues>>>,
    /// Names of linear maps and embeddings.
    maps: RefCell<BTreeSet<String>>,
    /// Number of elements of each constant.
    constants: RefCell<BTreeMap<String, usize>>,
    source: ValueSource,
    dtype: DType,
    device: Device,
}

/// Scope in the tree of parameters. The first request for a name creates the variable; later ones return it.
#[derive(Clone)]
pub struct Params {
    shared: Rc<Shared>,
    prefix: String,
    /// Scope of parameters that several layers share.
    root: String,
    tracked: bool,
    activations: DType,
    scheme: Scheme,
    /// Code or paper that values outside any scheme were taken from.
    origin: &'static str,
}

impl Params {
    /// Parameters drawn from `seed`.
    pub fn seeded(seed: u64, dtype: DType, device: &Device) -> Self {
        Self::new(ValueSource::Seed(seed), dtype, device)
    }

    /// Parameters with the given values, converted to `dtype`. Each is read when it is first requested.
    pub fn given(values: impl GivenValues + 'static, dtype: DType, device: &Device) -> Self {
        Self::new(ValueSource::Given(Box::new(values)), dtype, device)
    }

    /// Parameters that take no memory, used to count those of a model of any size. Their values are meaningless, and
    /// [`Self::vars`] is empty.
    pub fn without_values(dtype: DType) -> Self {
        Self::new(ValueSource::Nowhere, dtype, &Device::Cpu)
    }

    /// Same as [`Self::without_values`], with a description of the initial values of each parameter.
    pub fn described(dtype: DType) -> Self {
        let params = Self::without_values(dtype);
        let shared = Rc::into_inner(params.shared).expect("no other parameters share it yet");
        Self { shared: Rc::new(Shared { initial: Some(RefCell::default()), ..shared }), ..params }
    }

    fn new(source: ValueSource, dtype: DType, device: &Device) -> Self {
        let shared = Shared {
            vars: RefCell::default(),
            sizes: RefCell::default(),
            initial: None,
            maps: RefCell::default(),
            constants: RefCell::default(),
            source,
            dtype,
            device: device.clone(),
        };
        Self {
            shared: Rc::new(shared),
            prefix: String::new(),
            root: String::new(),
            tracked: true,
            activations: dtype,
            scheme: Scheme::default(),
            origin: "the model around the mixer",
        }
    }

    /// Same parameters for layers whose activations have dtype `dtype`.
    pub fn for_activations(self, dtype: DType) -> Self {
        Self { activations: dtype, ..self }
    }

    /// Dtype of the parameters.
    pub fn dtype(&self) -> DType {
        self.shared.dtype
    }

    /// Dtype of activations in layers of these parameters; that of the parameters unless set.
    pub fn activations(&self) -> DType {
        self.activations
    }

    /// Same parameters with linear maps initialised by `scheme`.
    pub fn with_scheme(self, scheme: Scheme) -> Self {
        Self { scheme, ..self }
    }

    /// Same parameters, where `origin` is the code or paper that initial values outside any scheme were taken from.
    pub fn with_origin(self, origin: &'static str) -> Self {
        Self { origin, ..self }
    }

    /// Weight `name` `(out, in)` of a linear map; `std` is its standard deviation under [`Scheme::Gpt`], see also
    /// [`Scheme::Mamba`].
    pub fn weight(&self, name: &str, (out, fan_in): (usize, usize), std: f64) -> Result<Tensor> {
        let edge = (fan_in as f64).powf(-0.5);
        let init = match self.scheme {
            Scheme::Gpt | Scheme::Small => Init::Normal(std),
            Scheme::Torch => Init::Uniform(-edge, edge),
            Scheme::Mamba => Init::Uniform(-edge * std / GPT_STD, edge * std / GPT_STD),
            Scheme::FanIn => Init::Normal(edge),
        };
        let of_scheme = self.clone().with_origin(self.scheme.origin());
        of_scheme.map(name, (out, fan_in), init)
    }

    /// Matrix `name` of a linear map, or a table of embeddings, with initial values that no scheme changes.
    pub fn map(&self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<Tensor> {
        self.shared.maps.borrow_mut().insert(format!("{}{name}", self.prefix));
        self.get(name, shape, init)
    }

    /// Whether the parameter called `name`, with its scopes, is a linear map or a table of embeddings.
    pub fn is_map(&self, name: &str) -> bool {
        self.shared.maps.borrow().contains(name)
    }

    /// Bias `name` `(out)` of a linear map with `fan_in` inputs.
    pub fn bias(&self, name: &str, out: usize, fan_in: usize) -> Result<Tensor> {
        let edge = (fan_in as f64).powf(-0.5);
        let init = match self.scheme {
            Scheme::Torch => Init::Uniform(-edge, edge),
            Scheme::Gpt | Scheme::Mamba | Scheme::FanIn | Scheme::Small => Init::Constant(0.0),
        };
        let of_scheme = self.clone().with_origin(self.scheme.origin());
        of_scheme.get(name, out, init)
    }

    /// Scope `name` below this one.
    pub fn scope(&self, name: impl std::fmt::Display) -> Self {
        Self { prefix: format!("{}{name}.", self.prefix), ..self.clone() }
    }

    /// Scope `name` below this one, whose [root](Self::root) is `name` below that of this one.
    pub fn apart(&self, name: &str) -> Self {
        Self { root: format!("{}{name}.", self.root), ..self.scope(name) }
    }

    /// Scope around all others, for parameters that several layers share.
    pub fn root(&self) -> Self {
        Self { prefix: self.root.clone(), ..self.clone() }
    }

    /// Same variables without gradients: layers built from them record no graph.
    pub fn detached(&self) -> Self {
        Self { tracked: false, ..self.clone() }
    }

    /// Parameter `name` in this scope, created on first use.
    pub fn get(&self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<Tensor> {
        let (name, shape) = (format!("{}{name}", self.prefix), shape.into());
        self.shared.sizes.borrow_mut().insert(name.clone(), shape.elem_count());
        if let Some(described) = &self.shared.initial {
            // One stream for all, so that parameters of the same law are described alike.
            let law = init.law(shape.elem_count(), Rng::new(0, "initial values", 0));
            let initial = InitialValues { shape: shape.dims().to_vec(), law, origin: self.origin.into() };
            described.borrow_mut().insert(name.clone(), initial);
        }
        if !self.has_values() {
            let Shared { dtype, device, .. } = &*self.shared;
            return Tensor::zeros((), *dtype, device)?.broadcast_as(shape);
        }
        let existing = self.shared.vars.borrow().get(&name).cloned();
        let var = match existing {
            Some(var) => var,
            None => self.create(&name, &shape, init)?,
        };
        if var.shape() != &shape {
            bail!("parameter {name} has shape {:?}, but {shape:?} was requested", var.shape());
        }
        Ok(if self.tracked { var.as_tensor().clone() } else { var.as_detached_tensor() })
    }

    /// Constant tensor that is drawn once and not trained, in the dtype of the parameters. Its values depend only on
    /// its full name, are the same in every run, and are saved in no file. Given values hold it as `const.NAME`.
    pub fn constant(&self, name: &str, shape: impl Into<Shape>, draw: impl FnOnce(Rng) -> Vec<f64>) -> Result<Tensor> {
        let shape = shape.into();
        let Shared { dtype, device, .. } = &*self.shared;
        self.count_constant(name, shape.elem_count());
        if !self.has_values() {
            return Tensor::zeros((), *dtype, device)?.broadcast_as(shape);
        }
        let value = match self.given_constant(name)? {
            Some(value) if value.shape() == &shape => value.to_device(device)?,
            Some(value) => bail!("constant {name} has shape {:?}, but {shape:?} was requested", value.shape()),
            None => {
                let numbers = draw(self.constant_rng(name));
                Tensor::from_vec(numbers, shape, device)?
            }
        };
        value.to_dtype(*dtype)
    }

    /// Counts `numbers` elements that a model computes itself and holds in addition to its parameters.
    pub fn count_constant(&self, name: &str, numbers: usize) {
        let name = format!("{}{name}", self.prefix);
        self.shared.constants.borrow_mut().insert(name, numbers);
    }

    /// Whether parameters have values. A model without them is built only to be counted.
    pub fn has_values(&self) -> bool {
        !matches!(self.shared.source, ValueSource::Nowhere)
    }

    /// Value of [`Self::constant`] among given values.
    pub fn given_constant(&self, name: &str) -> Result<Option<Tensor>> {
        match &self.shared.source {
            ValueSource::Given(values) => values.value(&format!("const.{}{name}", self.prefix)),
            ValueSource::Nowhere | ValueSource::Seed(_) => Ok(None),
        }
    }

    /// Random stream from which [`Self::constant`] draws.
    pub fn constant_rng(&self, name: &str) -> Rng {
        Rng::new(0, &format!("constant/{}{name}", self.prefix), 0)
    }

    /// Device of the parameters.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    fn create(&self, name: &str, shape: &Shape, init: Init) -> Result<Var> {
        let Shared { dtype, device, .. } = &*self.shared;
        let tensor = match &self.shared.source {
            ValueSource::Seed(seed) => {
                let rng = Rng::new(*seed, &format!("init/{name}"), 0);
                Tensor::from_vec(init.values(shape.elem_count(), rng), shape, device)?
            }
            ValueSource::Given(values) => match values.value(name)? {
                Some(value) => value.to_device(device)?,
                None => bail!("no value was given for parameter {name} of shape {shape:?}"),
            },
            ValueSource::Nowhere => bail!("parameter {name} has no values"),
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

    /// Number of elements of each parameter created so far, by name.
    pub fn sizes(&self) -> BTreeMap<String, usize> {
        self.shared.sizes.borrow().clone()
    }

    /// Number of elements of all parameters created so far.
    pub fn count(&self) -> usize {
        self.shared.sizes.borrow().values().sum()
    }

    /// Initial values of all parameters created so far, by name; none unless they are [described](Self::described).
    pub fn initial(&self) -> BTreeMap<String, InitialValues> {
        self.shared.initial.as_ref().map(|initial| initial.borrow().clone()).unwrap_or_default()
    }

    /// Number of elements of all constants created so far.
    pub fn constants(&self) -> usize {
        self.shared.constants.borrow().values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(p: &Params, name: &str, init: Init) -> Vec<f32> {
        p.get(name, 5, init).unwrap().to_vec1().unwrap()
    }

    #[test]
    fn a_parameter_depends_on_its_name_and_not_on_earlier_parameters() {
        let a = Params::seeded(1, DType::F32, &Device::Cpu);
        let b = Params::seeded(1, DType::F32, &Device::Cpu);
        values(&b, "other", Init::Normal(1.0));
        let x = values(&a, "w", Init::Normal(1.0));
        assert_eq!(x, values(&b, "w", Init::Normal(1.0)));
        assert_ne!(x, values(&b, "other", Init::Normal(1.0)));
        assert_ne!(x, values(&b.scope("s"), "w", Init::Normal(1.0)));
    }

    #[test]
    fn linear_maps_start_by_the_scheme_and_nothing_else_does() {
        let of = |scheme| {
            let p = Params::seeded(1, DType::F64, &Device::Cpu).with_scheme(scheme);
            let p = p.scope("s").detached();
            let w = p.weight("w", (100, 64), 0.02).unwrap();
            let b = p.bias("b", 100, 64).unwrap();
            let other = p.get("other", 5, Init::Normal(1.0)).unwrap();
            let flat = |x: Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
            (flat(w), flat(b), flat(other))
        };
        let largest = |x: &[f64]| x.iter().fold(0f64, |m, x| m.max(x.abs()));
        let spread = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
        let (w, b, other) = of(Scheme::Gpt);
        assert!((spread(&w) - 0.02).abs() < 1e-3 && b == [0.0; 100]);
        let (torch, bias, same) = of(Scheme::Torch);
        for x in [&torch, &bias] {
            assert!(largest(x) <= 0.125 && largest(x) > 0.12);
            assert!((spread(x) - 0.125 / 3f64.sqrt()).abs() < 1e-2);
        }
        assert_eq!(same, other);
        let (fan_in, bias, same) = of(Scheme::FanIn);
        assert!((spread(&fan_in) - 0.125).abs() < 5e-3 && bias == [0.0; 100]);
        assert_eq!(same, other);
        let given = Params::seeded(1, DType::F64, &Device::Cpu).scope("s");
        let given = given.get("w", (100, 64), Init::Normal(0.02)).unwrap();
        let given = given.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(given, w, "the usual scheme changes no bit");
    }

    #[test]
    fn detached_parameters_share_values_but_not_gradients() {
        let p = Params::seeded(1, DType::F32, &Device::Cpu);
        p.get("w", 5, Init::Constant(1.0)).unwrap();
        let d = p.detached().get("w", 5, Init::Constant(0.0)).unwrap();
        assert!(!d.track_op());
        p.vars()[0].1.set(&Tensor::zeros(5, DType::F32, &Device::Cpu).unwrap()).unwrap();
        assert_eq!(d.to_vec1::<f32>().unwrap(), [0.0; 5]);
    }

    #[test]
    fn parameters_without_values_are_counted_and_take_no_memory() {
        let p = Params::without_values(DType::F32);
        let huge = p.get("w", (1 << 20, 1 << 20), Init::Normal(1.0)).unwrap();
        assert_eq!(huge.dims(), [1 << 20, 1 << 20]);
        p.get("b", 3, Init::Constant(0.0)).unwrap();
        p.get("b", 3, Init::Constant(0.0)).unwrap();
        assert_eq!(p.count(), (1 << 40) + 3);
        assert!(p.vars().is_empty());
        let never = |_: Rng| unreachable!("nothing is drawn");
        p.constant("c", (1 << 20, 1 << 20), never).unwrap();
        p.count_constant("d", 7);
        assert_eq!(p.constants(), (1 << 40) + 7);
        assert_eq!(p.count(), (1 << 40) + 3);
    }

    #[test]
    fn initial_values_are_those_of_one_stream_whatever_the_chunks() {
        let stream = Rng::new(1, "init/w", 0);
        for n in [1_usize, 2, 8191, 8192, 20_001] {
            let mut rng = stream.clone();
            let normals: Vec<f64> = (0..n.div_ceil(2)).flat_map(|_| <[f64; 2]>::from(rng.normals())).take(n).collect();
            assert_eq!(Init::Normal(1.0).values(n, stream.clone()), normals);
            let mut rng = stream.clone();
            let uniforms: Vec<f64> = (0..n).map(|_| 3.0 * rng.uniform() - 1.0).collect();
            let got = Init::Uniform(-1.0, 2.0).values(n, stream.clone());
            assert!(got.iter().zip(&uniforms).all(|(got, expected)| (got - expected).abs() < 1e-12));
        }
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
