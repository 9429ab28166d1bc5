use super::*;
use candle_core::{Device, TensorId, Var};

/// Seven inputs of one element, two outputs: their sum and their product.
struct SumAndProduct;

impl Op for SumAndProduct {
    const NAME: &'static str = "sum_and_product";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![Shape::from(1), Shape::from(1)]
    }
}

impl CpuOp for SumAndProduct {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let sum = ins.iter().fold(F::zero(), |sum, x| sum + x[0]);
        let product = ins.iter().fold(F::one(), |product, x| product * x[0]);
        vec![vec![sum], vec![product]]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let of_sum = call.outs[0].map_or(F::zero(), |out| out.grad[0]);
        let of_product = |x: F| call.outs[1].map_or(F::zero(), |out| out.grad[0] * out.value[0] / x);
        call.ins.iter().map(|x| vec![of_sum + of_product(x[0])]).collect()
    }
}

impl CudaOp for SumAndProduct {
    fn forward(&self, _: Launch) -> Result<Vec<Buffer>> {
        unreachable!("these tests stay on the CPU")
    }

    fn backward(&self, _: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        unreachable!("these tests stay on the CPU")
    }
}

fn variables() -> Vec<Var> {
    (1..=7).map(|i| Var::new(&[f64::from(i)], &Device::Cpu).unwrap()).collect()
}

fn run(ins: &[Tensor]) -> (Tensor, Tensor) {
    let ins: Vec<&Tensor> = ins.iter().collect();
    let mut outs = apply(SumAndProduct, &ins).unwrap().into_iter();
    (outs.next().unwrap(), outs.next().unwrap())
}

fn number(x: &Tensor) -> f64 {
    x.squeeze(0).unwrap().to_scalar().unwrap()
}

#[test]
fn gradients_of_several_outputs_add_up() {
    let vars = variables();
    let ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let (sum, product) = run(&ins);
    assert_eq!((number(&sum), number(&product)), (28.0, 5040.0));
    type Loss = fn(Tensor, Tensor) -> Tensor;
    let expect = |loss: Loss, expected: &dyn Fn(f64) -> f64| {
        let (sum, product) = run(&ins);
        let grads = loss(sum, product).backward().unwrap();
        for (i, var) in (1..=7).zip(&vars) {
            assert_eq!(number(grads.get(var).unwrap()), expected(f64::from(i)), "input {i}");
        }
    };
    expect(|sum, _| sum, &|_| 1.0);
    expect(|_, product| product, &|x| 5040.0 / x);
    let both: Loss = |sum, product| (sum * 2.0).unwrap().add(&product).unwrap();
    expect(both, &|x| 2.0 + 5040.0 / x);
}

#[test]
fn one_tensor_may_be_several_inputs_and_used_elsewhere() {
    let x = Var::new(&[2.0], &Device::Cpu).unwrap();
    let doubled = (x.as_tensor() * 1.0).unwrap();
    let (sum, product) = run(&vec![doubled.clone(); 7]);
    let loss = ((sum + product).unwrap() + doubled).unwrap();
    let grads = loss.backward().unwrap();
    assert_eq!(number(grads.get(&x).unwrap()), 7.0 + 7.0 * 64.0 + 1.0);
}

#[test]
fn more_than_nine_inputs_are_refused() {
    let x = Var::new(&[2.0], &Device::Cpu).unwrap();
    let error = apply(SumAndProduct, &[x.as_tensor(); 10]).unwrap_err();
    assert!(error.to_string().contains("10 inputs"), "{error}");
}

#[test]
fn gradients_pass_between_fused_ops_and_candles_own() {
    let x = Var::new(&[2.0], &Device::Cpu).unwrap();
    let (six, _) = run(&vec![x.as_tensor().clone(); 6]); // 6x
    let (sum, product) = run(&[six.clone(), six.clone(), x.as_tensor().clone()]); // 13x and 36x^3
    let loss = ((sum * product).unwrap() + six.sqr().unwrap()).unwrap(); // 468x^4 + 36x^2
    let grads = loss.backward().unwrap();
    let expected = 468.0 * 4.0 * 8.0 + 36.0 * 4.0;
    assert_eq!(number(grads.get(&x).unwrap()), expected);
    let again = loss.backward().unwrap_err();
    assert!(again.to_string().contains("runs once"), "{again}");
}

#[test]
fn nothing_is_kept_when_the_outputs_are_gone() {
    let x = Var::new(&[2.0], &Device::Cpu).unwrap();
    let (sum, product) = run(&[x.as_tensor().clone()]);
    let (second, _) = run(&[sum.clone(), product.clone()]);
    assert!(
        <Vec<f64> as Values>::registry().of(&sum).is_some()
            && <Vec<f64> as Values>::registry().of(x.as_tensor()).is_none()
    );
    let weak = Arc::downgrade(&<Vec<f64> as Values>::registry().of(&second).unwrap().sink);
    let first = Arc::downgrade(&<Vec<f64> as Values>::registry().of(&sum).unwrap().sink);
    drop((sum, product));
    assert!(first.upgrade().is_some(), "the second still needs it");
    drop(second);
    assert!(weak.upgrade().is_none() && first.upgrade().is_none());
}

/// On an emulated GPU, an output in another shape is the same output for fused ops, and an ordinary tensor for Candle's.
/// The alias goes with the output.
#[test]
fn a_reshaped_output_passes_gradients_to_its_op() {
    use dsf_emulation::{emulated, launches};
    let x = Var::rand(-1f32, 1.0, (4, 6), &Device::Cpu).unwrap();
    let loss = |by_candle: bool| -> Result<(Tensor, TensorId)> {
        let flat = reshape(&crate::silu(&x)?, 24)?;
        let again = reshape(&flat, (2, 12))?;
        let y = crate::sigmoid(&again)?;
        let sum = if by_candle { (y.flatten_all()? * &flat)?.sum_all()? } else { y.sum_all()? };
        Ok((sum, again.id()))
    };
    for by_candle in [false, true] {
        let grad = |grads: candle_core::backprop::GradStore| {
            grads.get(&x).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        let expected = grad(loss(by_candle).unwrap().0.backward().unwrap());
        let (got, alias) = emulated(|| {
            let (loss, alias) = loss(by_candle).unwrap();
            let before = launches();
            let got = grad(backward(&loss).unwrap());
            // One for each op, and one that adds the second gradient.
            assert_eq!(launches() - before, 2 + usize::from(by_candle));
            (got, alias)
        });
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
        assert!(!<Buffer as Values>::registry().knows(alias));
    }
}
