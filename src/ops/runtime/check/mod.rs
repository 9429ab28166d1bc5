//! The checks that every op must pass, on the CPU and by its kernels: values and gradients equal to
//! those of its reference, finite differences, the same bits on any number of threads, and
//! gradients for every subset of tracked inputs.

mod kernels;
mod large;
pub(crate) mod matrix_state;

use crate::gpu::{with_factors, Factors};
use crate::runtime::distance::{numbers, Distance};
use crate::runtime::rng::Rng;
use candle_core::{DType, Device, Result, Tensor, Var};
pub(crate) use kernels::{kernels_agree, kernels_agree_to, rounded_to_tf32};
pub(crate) use large::large;

/// Named random inputs in f64.
#[derive(Clone)]
pub(crate) struct Case {
    name: String,
    inputs: Vec<Tensor>,
    /// The inputs that are parameters: they stay f32 beside bf16 activations.
    parameters: Vec<usize>,
    /// The parameters that products round to the type of the activations.
    factors: Vec<usize>,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), inputs: Vec::new(), parameters: Vec::new(), factors: Vec::new() }
    }

    /// Adds an input of standard normals.
    pub(crate) fn normal(self, name: &str, shape: &[usize]) -> Self {
        self.filled(name, shape, |rng| rng.normals().0)
    }

    /// Adds an input of uniform numbers.
    pub(crate) fn uniform(self, name: &str, shape: &[usize], low: f64, high: f64) -> Self {
        self.filled(name, shape, |rng| low + (high - low) * rng.uniform())
    }

    /// Marks the last input as a parameter of a model, which is f32 whatever the type of the
    /// activations.
    pub(crate) fn parameter(mut self) -> Self {
        self.parameters.push(self.inputs.len() - 1);
        self
    }

    /// Marks the last input as a parameter that the op rounds to the type of the activations, as a factor of a product.
    pub(crate) fn factor(mut self) -> Self {
        self.factors.push(self.inputs.len() - 1);
        self.parameter()
    }

    /// Returns the case with its activations, and parameters that are rounded with them, rounded to `dtype`.
    fn rounded_to(&self, dtype: DType) -> Self {
        let mut case = Self { inputs: Vec::new(), ..self.clone() };
        for (i, x) in self.inputs.iter().enumerate() {
            let rounded = match self.factors.contains(&i) {
                true => x.to_dtype(dtype),
                false => x.to_dtype(self.dtype_of(i, dtype)),
            };
            let rounded = rounded.unwrap();
            case.inputs.push(rounded.to_dtype(DType::F64).unwrap());
        }
        case
    }

    fn dtype_of(&self, input: usize, activations: DType) -> DType {
        match activations {
            DType::BF16 if self.parameters.contains(&input) => DType::F32,
            dtype => dtype,
        }
    }

    /// Adds given numbers.
    pub(crate) fn values(mut self, values: &[f64], shape: &[usize]) -> Self {
        self.inputs.push(Tensor::from_slice(values, shape, &Device::Cpu).unwrap());
        self
    }

    fn filled(self, name: &str, shape: &[usize], draw: impl Fn(&mut Rng) -> f64) -> Self {
        let mut rng = Rng::new(1, &format!("{}/{name}", self.name), 0);
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| draw(&mut rng)).collect();
        self.values(&values, shape)
    }

    /// The inputs as variables of type `dtype`.
    pub(crate) fn vars(&self, dtype: DType) -> Vec<Var> {
        let var = |(i, x): (usize, &Tensor)| Var::from_tensor(&x.to_dtype(self.dtype_of(i, dtype)).unwrap()).unwrap();
        self.inputs.iter().enumerate().map(var).collect()
    }
}

/// A fixed random cotangent, so that every output element has a different weight. Its values are
/// exact in every type, bf16 included.
fn cotangent(like: &Tensor) -> Tensor {
    let mut rng = Rng::new(2, "cotangent", 0);
    let mut draw = || half::bf16::from_f64(rng.normals().0).to_f64();
    let values: Vec<f64> = (0..like.elem_count()).map(|_| draw()).collect();
    let cotangent = Tensor::from_vec(values, like.shape(), &Device::Cpu).unwrap();
    cotangent.to_dtype(like.dtype()).unwrap()
}

/// The op under test, as a trait object, so that the checks are compiled once instead of for every test.
type CheckedOp<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

/// The output, then the gradient of <output, cotangent> for each input.
fn run(vars: &[Var], op: CheckedOp) -> Vec<Tensor> {
    let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let out = op(&tensors).unwrap();
    let grads = (&out * cotangent(&out)).unwrap().sum_all().unwrap().backward().unwrap();
    let grad = |v: &Var| grads.get(v).expect("a gradient for every input").clone();
    std::iter::once(out.detach()).chain(vars.iter().map(grad)).collect()
}

fn flat(x: &Tensor) -> Vec<f64> {
    numbers(x).unwrap()
}

/// Cases of the checks that every op must pass on the CPU.
#[derive(Clone, Copy)]
pub(crate) struct Suite<'a> {
    /// For [`agree`].
    pub(crate) agree: &'a [Case],
    /// For [`finite_differences`]: small ones.
    pub(crate) differences: &'a [Case],
    /// For [`same_bits`]: large enough for several tasks.
    pub(crate) bits: &'a [Case],
    /// For [`partial_tracking`].
    pub(crate) tracked: &'a [Case],
    /// For [`refuses`]: shapes, and a part of the message.
    pub(crate) refused: &'a [Refused<'a>],
}

/// Shapes of inputs that an op refuses, and a part of its message.
pub(crate) type Refused<'a> = (&'a [&'a [usize]], &'a str);

/// Runs the checks that every op must pass on the CPU.
pub(crate) fn suite(
    of: Suite,
    fused: impl Fn(&[Tensor]) -> Result<Tensor> + Sync,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    agree(of.agree, &fused, reference);
    of.differences.iter().for_each(|case| finite_differences(case, &fused));
    of.bits.iter().for_each(|case| same_bits(case, &fused));
    of.tracked.iter().for_each(|case| partial_tracking(case, &fused));
    of.refused.iter().for_each(|(shapes, message)| refuses(shapes, &fused, message));
}

/// Checks that output and gradients of `fused` and `reference` agree: in f64, in f32, and in f32 with rounded factors of
/// products. Only matrix products round, so that other ops stay as exact as in f32.
pub(crate) fn agree(
    cases: &[Case],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    for case in cases {
        let expected = run(&case.vars(DType::F64), &reference);
        for dtype in [DType::F64, DType::F32] {
            let got = run(&case.vars(dtype), &fused);
            let what = format!("{} in {dtype:?}", case.name);
            compare(&what, &got, &expected, Distance::limit(dtype));
        }
        // Factors are rounded by up to 1/512, in up to four products one behind another, and terms of a row may cancel.
        let in_bf16 = Distance { of_rows: 4e-2, of_scale: 5e-3 };
        let in_tf32 = Distance { of_rows: in_bf16.of_rows / 8.0, of_scale: in_bf16.of_scale / 8.0 };
        for (factors, limit) in [(Factors::Bf16, in_bf16), (Factors::Tf32, in_tf32)] {
            let got = with_factors(factors, || run(&case.vars(DType::F32), &fused));
            compare(&format!("{} with factors in {factors:?}", case.name), &got, &expected, limit);
        }
    }
}

fn compare(what: &str, got: &[Tensor], expected: &[Tensor], limit: Distance) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let apart = Distance::new(got, expected).unwrap();
        let (most, limit) = apart.worse(limit);
        assert!(most <= limit, "{what}, {}: {apart:?}, limit {limit:e}", part(i));
    }
}

fn part(i: usize) -> String {
    match i {
        0 => "output".into(),
        i => format!("gradient of input {}", i - 1),
    }
}

/// Checks the gradients of `op` against central differences of its output.
pub(crate) fn finite_differences(case: &Case, op: impl Fn(&[Tensor]) -> Result<Tensor>) {
    slopes_agree(case, &op);
}

fn slopes_agree(case: &Case, op: CheckedOp) {
    const STEP: f64 = 1e-5;
    let value = |inputs: &[Tensor]| {
        let out = op(inputs).unwrap();
        let dot = (&out * cotangent(&out)).unwrap().sum_all().unwrap();
        dot.to_scalar::<f64>().unwrap()
    };
    let grads = run(&case.vars(DType::F64), op);
    for (i, input) in case.inputs.iter().enumerate() {
        let (values, grad) = (flat(input), flat(&grads[i + 1]));
        for e in 0..values.len() {
            let at = |shift: f64| {
                let mut values = values.clone();
                values[e] += shift;
                let mut inputs = case.inputs.clone();
                inputs[i] = Tensor::from_vec(values, input.shape(), &Device::Cpu).unwrap();
                value(&inputs)
            };
            let slope = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let apart = (slope - grad[e]).abs() / slope.abs().max(1.0);
            let (name, grad) = (&case.name, grad[e]);
            assert!(apart < 1e-8, "{name}, input {i}, element {e}: {slope} by differences, {grad} by the op");
        }
    }
}

/// Checks that output and gradients have the same bits with one thread, with two, and when
/// repeated.
pub(crate) fn same_bits(case: &Case, op: impl Fn(&[Tensor]) -> Result<Tensor> + Sync) {
    let bits = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| bits(case, DType::F32, &op))
    };
    let one = bits(1);
    assert_eq!(one, bits(2), "{}: two threads", case.name);
    assert_eq!(one, bits(1), "{}: repeated", case.name);
}

/// Checks that output and gradients of `fused` have the bits of those of `reference`, in f32 and in f64.
pub(crate) fn bits_of_reference(
    case: &Case,
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    for dtype in [DType::F32, DType::F64] {
        assert_eq!(bits(case, dtype, &fused), bits(case, dtype, &reference), "{} in {dtype:?}", case.name);
    }
}

/// The bits of the output and of all gradients.
fn bits(case: &Case, dtype: DType, op: CheckedOp) -> Vec<Vec<u64>> {
    let results = run(&case.vars(dtype), op);
    results.iter().map(|x| flat(x).into_iter().map(f64::to_bits).collect()).collect()
}

/// Checks that the gradients of every subset of tracked inputs equal those of the fully tracked
/// run, also when the tracked inputs are non-contiguous results of other ops.
pub(crate) fn partial_tracking(case: &Case, op: impl Fn(&[Tensor]) -> Result<Tensor>) {
    partial_tracking_in(DType::F64, case, &op);
}

fn partial_tracking_in(dtype: DType, case: &Case, op: CheckedOp) {
    let vars = case.vars(dtype);
    let all = run(&vars, op);
    for subset in 1u32..1 << vars.len() {
        let tracked = |i: usize| subset >> i & 1 == 1;
        let input = |(i, v): (usize, &Var)| match tracked(i) {
            true => strided(v.as_tensor()).unwrap(),
            false => v.as_detached_tensor(),
        };
        let out = op(&vars.iter().enumerate().map(input).collect::<Vec<_>>()).unwrap();
        let grads = (&out * cotangent(&out)).unwrap().backward().unwrap();
        for (i, var) in vars.iter().enumerate() {
            match grads.get(var) {
                Some(grad) => assert_eq!(flat(grad), flat(&all[i + 1]), "{}: subset {subset:b}", case.name),
                None => assert!(!tracked(i), "{}: subset {subset:b}: no gradient for input {i}", case.name),
            }
        }
    }
    let untracked: Vec<_> = vars.iter().map(Var::as_detached_tensor).collect();
    assert!(!op(&untracked).unwrap().track_op(), "untracked inputs make an untracked output");
}

/// A tensor with the same values, other strides and an offset.
fn strided(x: &Tensor) -> Result<Tensor> {
    let last = x.rank() - 1;
    let doubled = Tensor::cat(&[x, x], last)?;
    let turned = doubled.transpose(0, last)?.contiguous()?.transpose(0, last)?;
    turned.narrow(last, x.dim(last)?, x.dim(last)?)
}

/// Four times of each sequence, with a repetition.
pub(crate) fn some_times(batch: usize, len: usize) -> Tensor {
    let of = |b: usize| {
        let late = (len / 2).max(len - 1 - b % len.min(2));
        [len / 3, len / 2, len / 2, late]
    };
    let times = (0..batch).flat_map(of).map(|t| t as u32);
    Tensor::from_iter(times, &Device::Cpu).unwrap().reshape((batch, 4)).unwrap()
}

/// Checks that inputs of these shapes are an error whose message contains `message`.
pub(crate) fn refuses(shapes: &[&[usize]], op: impl Fn(&[Tensor]) -> Result<Tensor>, message: &str) {
    let zeros = |shape: &&[usize]| Tensor::zeros(*shape, DType::F32, &Device::Cpu).unwrap();
    let inputs: Vec<Tensor> = shapes.iter().map(zeros).collect();
    let error = op(&inputs).expect_err("these shapes do not fit").to_string();
    assert!(error.contains(message), "{error}");
}
