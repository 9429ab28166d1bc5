use super::*;
use crate::runtime::check::{self, Case};
use candle_core::{DType, Device, Var, D};
use dsf_emulation::{emulated, launches};

/// Rows of several heads: x (2, 5, 3, width), one number a row, and a weight for each column.
fn rows(width: usize) -> Case {
    let case = Case::new(format!("rows of {width}")).normal("x", &[2, 5, 3, width]).normal("row", &[2, 5, 3, 1]);
    case.uniform("weight", &[width], 0.5, 1.5).parameter()
}

/// Keys of length 1, times a gate of each row, and a norm: every kind of input, output and sum.
fn of_rows(ins: &[Tensor]) -> [Expression; 3] {
    let (x, row) = (Expression::of(&ins[0]), Expression::of(&ins[1]));
    let square = x.sqr().row_sum();
    let unit = x / (square.clone() + 1e-2).sqrt();
    let gated = &unit * &row.sigmoid();
    let scaled = unit * Expression::parameter(&ins[2]);
    [gated, scaled, square]
}

/// All values in one tensor.
fn beside(all: [Tensor; 3]) -> Result<Tensor> {
    Tensor::cat(&all, D::Minus1)
}

fn fused_rows(ins: &[Tensor]) -> Result<Tensor> {
    beside(tensors(of_rows(ins).each_ref())?)
}

fn chained_rows(ins: &[Tensor]) -> Result<Tensor> {
    let all = reference::tensors(&of_rows(ins).each_ref())?;
    beside(all.try_into().unwrap())
}

/// Every function, of positive numbers near 1 and of a parameter that lacks the first axes.
fn of_elements(ins: &[Tensor]) -> Expression {
    let (x, y) = (Expression::of(&ins[0]), Expression::parameter(&ins[1]));
    let sum = x.exp() + -y.log() - x.recip() * y.clone();
    let more = x.sqrt() / (x.sqr() + 1.0)
        + x.sigmoid() * 3.0
        + y.silu() * x.tanh()
        + x.affine(30.0, 0.0).sin() * y.affine(-40.0, 0.0).cos();
    ((sum + more * y).log_sigmoid().silu_gate(x)).affine(-0.5, 2.0)
}

fn elements(shape: &[usize], parameter: &[usize]) -> Case {
    let case = Case::new(format!("{shape:?} and {parameter:?}")).uniform("x", shape, 0.5, 2.0);
    case.uniform("y", parameter, 0.5, 2.0).parameter()
}

#[test]
fn kernels_equal_the_chain_of_ops() {
    check::kernels_agree(&[rows(4), rows(33), rows(64), rows(130)], fused_rows, chained_rows);
    let cases = [
        elements(&[7], &[7]),
        elements(&[3, 40], &[40]),
        elements(&[2, 5, 16], &[5, 16]),
        elements(&[2, 130, 3], &[1]),
        elements(&[2, 9], &[1, 9]),
    ];
    let fused = |ins: &[Tensor]| of_elements(ins).tensor();
    let chained = |ins: &[Tensor]| Ok(reference::tensors(&[&of_elements(ins)])?.remove(0));
    check::kernels_agree(&cases, fused, chained);
}

/// One launch forward, and one backward with a sum for the parameter that lacks the first axes.
#[test]
fn an_expression_is_one_kernel_in_each_direction() {
    let x = Var::rand(0.5f32, 2.0, (3, 40), &Device::Cpu).unwrap();
    let y = Var::rand(0.5f32, 2.0, 40, &Device::Cpu).unwrap();
    emulated(|| {
        let before = launches();
        let z = of_elements(&[x.as_tensor().clone(), y.as_tensor().clone()]).tensor().unwrap();
        assert_eq!(launches() - before, 1);
        crate::backward(&z.sum_all().unwrap()).unwrap();
        assert_eq!(launches() - before, 3);
    });
}

/// The chain computes what the kernels do not take, with the same values.
#[test]
fn other_shapes_take_the_chain() {
    let wide = Tensor::rand(-1f32, 1.0, (2, 3000), &Device::Cpu).unwrap();
    let middle = Tensor::rand(-1f32, 1.0, (2, 1, 5), &Device::Cpu).unwrap();
    let whole = Tensor::rand(-1f32, 1.0, (2, 4, 5), &Device::Cpu).unwrap();
    let many: Vec<_> = (0..10).map(|i| (&whole * f64::from(i)).unwrap()).collect();
    let sum = many.iter().map(Expression::of).reduce(|sum, x| sum + x).unwrap();
    let others = [
        (Expression::of(&wide).row_sum() + Expression::of(&wide), "a row too wide for shared memory"),
        (Expression::of(&whole) * Expression::of(&middle), "an axis in the middle"),
        (sum, "ten inputs"),
        (Expression::parameter(&wide).exp(), "parameters alone"),
    ];
    for (expression, why) in others {
        let expected = reference::tensors(&[&expression]).unwrap().remove(0);
        let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(values(&expression.tensor().unwrap()), values(&expected), "{why}, on the CPU");
        let got = emulated(|| {
            let before = launches();
            let got = expression.tensor().unwrap();
            assert_eq!(launches(), before, "{why}");
            got
        });
        let apart = (got - expected).unwrap().abs().unwrap().max_all().unwrap();
        assert_eq!(apart.to_scalar::<f32>().unwrap(), 0.0, "{why}");
    }
}

#[test]
fn on_the_cpu_an_expression_has_the_bits_of_its_chain() {
    for width in [2, 7, 31, 32, 33, 64, 130, 3000] {
        check::bits_of_reference(&rows(width), fused_rows, chained_rows);
        // One output may be unused.
        let two = |all: [Tensor; 3]| Tensor::cat(&all[..2], D::Minus1);
        let fused = |ins: &[Tensor]| two(tensors(of_rows(ins).each_ref())?);
        let chained = |ins: &[Tensor]| two(reference::tensors(&of_rows(ins).each_ref())?.try_into().unwrap());
        check::bits_of_reference(&rows(width), fused, chained);
    }
    let fused = |ins: &[Tensor]| of_elements(ins).tensor();
    let chained = |ins: &[Tensor]| Ok(reference::tensors(&[&of_elements(ins)])?.remove(0));
    let shapes: [[&[usize]; 2]; 8] = [
        [&[7], &[7]],
        [&[3, 40], &[40]],
        [&[70, 5, 16], &[5, 16]],
        [&[9, 700], &[700]],
        [&[2, 130, 33], &[1]],
        [&[2, 130, 1], &[1]],
        [&[2, 9], &[1, 9]],
        [&[1, 9], &[9]],
    ];
    for [shape, parameter] in shapes {
        check::bits_of_reference(&elements(shape, parameter), fused, chained);
    }
}

/// A parameter that is computed before it is repeated, twice, and numbers of rows that are.
#[test]
fn what_is_repeated_has_the_bits_of_the_chain() {
    let case = |shape: &[usize]| {
        let last = shape.len() - 1;
        let row = [&shape[..last], &[1]].concat();
        let case = Case::new(format!("{shape:?}")).normal("x", shape).normal("row", &row);
        case.uniform("head", &shape[1..], 0.5, 1.5).parameter().uniform("column", &shape[last..], 0.5, 1.5).parameter()
    };
    let of = |ins: &[Tensor]| {
        let (x, row) = (Expression::of(&ins[0]), Expression::of(&ins[1]));
        let head = (Expression::parameter(&ins[2]) * Expression::parameter(&ins[3])).exp();
        let open = row.sigmoid();
        let mean = (&x * &head).row_sum() * 0.25 - &open * &open;
        (x.clone() - mean) * open * head + x / (row.exp() + 1.0) * Expression::parameter(&ins[3])
    };
    let fused = |ins: &[Tensor]| of(ins).tensor();
    let chained = |ins: &[Tensor]| Ok(reference::tensors(&[&of(ins)])?.remove(0));
    for shape in [&[3, 4][..], &[40, 3, 16], &[5, 2, 64], &[2, 3000]] {
        check::bits_of_reference(&case(shape), fused, chained);
    }
    let small = case(&[3, 2, 4]);
    check::agree(std::slice::from_ref(&small), fused, chained);
    check::finite_differences(&small, fused);
    check::partial_tracking(&small, fused);
    check::same_bits(&case(&[300, 2, 64]), fused);
}

/// Parameters are cast to the type of the inputs, and values that are used twice are computed once.
#[test]
fn the_chain_computes_mixed_types() {
    let x = Var::rand(0.5f64, 2.0, (2, 3), &Device::Cpu).unwrap();
    let weight = Tensor::rand(0.5f32, 2.0, 3, &Device::Cpu).unwrap();
    let e = Expression::of(&x).exp();
    let z = (&e * &e * Expression::parameter(&weight)).tensor().unwrap();
    assert_eq!(z.dtype(), DType::F64);
    let e = x.exp().unwrap();
    let chain = (&e * &e).unwrap().broadcast_mul(&weight.to_dtype(DType::F64).unwrap()).unwrap();
    let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    assert_eq!(values(&z), values(&chain));
    let grad = |z: &Tensor| values(z.sum_all().unwrap().backward().unwrap().get(&x).unwrap());
    assert_eq!(grad(&z), grad(&chain));
    assert!((Expression::of(&x) + Expression::of(&Tensor::zeros(4, DType::F64, &Device::Cpu).unwrap()))
        .tensor()
        .is_err());
}

/// Expressions that the passes on the CPU refuse: many inputs, sums of a view, a constant.
#[test]
fn on_the_cpu_the_chain_computes_the_rest() {
    let x = Var::rand(-1f32, 1.0, (64, 100), &Device::Cpu).unwrap();
    let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let view = Expression::of(&x.t().unwrap()).row_sum();
    let chained = reference::tensors(&[&view]).unwrap().remove(0);
    assert_eq!(values(&view.tensor().unwrap()), values(&chained));
    let many: Vec<Var> = (0..10).map(|_| Var::rand(-1f32, 1.0, 5, &Device::Cpu).unwrap()).collect();
    let sum = many.iter().map(|x| Expression::of(x)).reduce(|sum, x| sum + x).unwrap();
    let grads = crate::backward(&sum.tensor().unwrap().sum_all().unwrap()).unwrap();
    assert!(many.iter().all(|x| values(grads.get(x).unwrap()) == [1.0; 5]));
    let constant = (Expression::of(&x) * 0.0 + 1.0).tensor().unwrap();
    assert!(crate::backward(&constant.sum_all().unwrap()).unwrap().get(&x).is_none());
}

/// A number of each head for each of its channels, along rows and alone.
#[test]
fn values_are_repeated() {
    let case = |shape: &[usize]| Case::new(format!("{shape:?}")).normal("x", shape).uniform("y", &[3], 0.5, 1.5);
    let of = |ins: &[Tensor]| -> Result<[Expression; 2]> {
        let (rows, heads) = ins[0].dims2()?;
        let x = Expression::of(&ins[0].reshape((rows, heads, 1))?).broadcast((rows, heads, 5));
        let y = (-Expression::of(&ins[1].reshape((heads, 1))?).exp()).broadcast((heads, 5));
        Ok([x, y])
    };
    let product = |x: Tensor, y: Tensor| x.broadcast_mul(&y);
    let fused = |ins: &[Tensor]| {
        let [x, y] = of(ins)?;
        product(x.tensor()?, y.tensor()?)
    };
    let chained = |ins: &[Tensor]| {
        let mut all = reference::tensors(&of(ins)?.each_ref())?.into_iter();
        product(all.next().unwrap(), all.next().unwrap())
    };
    check::kernels_agree(&[case(&[7, 3]), case(&[1, 3])], fused, chained);
    let x = Tensor::ones((2, 3), DType::F32, &Device::Cpu).unwrap();
    assert!(Expression::of(&x).broadcast((2, 4)).tensor().is_err());
    assert!(emulated(|| Expression::of(&x).broadcast((2, 4)).tensor()).is_err());
}

#[test]
fn kernels_index_large_tensors() {
    let product = |ins: &[Tensor]| Expression::of(&ins[0]).silu() * Expression::parameter(&ins[1]);
    let fused = |ins: &[Tensor]| product(ins).tensor();
    let chained = |ins: &[Tensor]| Ok(reference::tensors(&[&product(ins)])?.remove(0));
    check::large(&elements(&[1, 16, 64], &[64])).agrees(fused, chained);
}
