use super::*;
use crate::runtime::autograd::backward;
use crate::runtime::check::{self, Case, Suite};
use candle_core::{DType, Device, Var, D};
use dsf_emulation::{emulated, launches};

fn case(x: &[usize], outs: [usize; 2]) -> Case {
    let inner = x[x.len() - 1];
    Case::new(format!("{x:?} to {outs:?}"))
        .normal("x", x)
        .normal("w1", &[outs[0], inner])
        .factor()
        .normal("w2", &[outs[1], inner])
        .factor()
        .normal("b1", &[outs[0]])
        .parameter()
        .normal("b2", &[outs[1]])
        .parameter()
}

fn side_by_side(maps: Vec<Tensor>) -> Result<Tensor> {
    Tensor::cat(&maps, maps[0].rank() - 1)
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    let [x, w1, w2, b1, b2] = ins else { unreachable!("five inputs") };
    side_by_side(linears(x, &[(w1, Some(b1)), (w2, Some(b2))])?)
}

fn by_reference(ins: &[Tensor]) -> Result<Tensor> {
    let one = |map: usize| reference::linear(&ins[0], &ins[1 + map], Some(&ins[3 + map]));
    side_by_side(vec![one(0)?, one(1)?])
}

#[test]
fn it_passes_the_suite() {
    let of_all = Suite {
        agree: &[
            case(&[1], [1, 2]),
            case(&[7, 63, 16], [5, 64]),
            case(&[2, 1000, 33], [17, 1]),
            case(&[9000, 4], [3, 8]),
        ],
        differences: &[case(&[2, 2, 3], [2, 4])],
        bits: &[case(&[3, 700, 20], [24, 8])],
        tracked: &[case(&[3, 5], [2, 7])],
        refused: &[(
            &[&[2, 3], &[4, 2], &[4, 3], &[4], &[4]],
            "linear: w has shape [4, 2], but x of shape [2, 3] asks for [4, 3]",
        )],
    };
    check::suite(of_all, fused, by_reference);
}

#[test]
fn kernels_equal_the_reference() {
    let cases = [case(&[3, 5], [2, 7]), case(&[1], [1, 2]), case(&[7, 63, 16], [5, 64]), case(&[1100, 8], [4, 12])];
    check::kernels_agree(&cases, fused, by_reference);
    let bare = |ins: &[Tensor]| linear(&ins[0], &ins[1], None);
    let case = Case::new("bare").normal("x", &[3, 5, 4]);
    let case = case.normal("w", &[6, 4]).factor();
    check::kernels_agree(&[case], bare, |ins| reference::linear(&ins[0], &ins[1], None));
}

#[test]
fn products_round_to_tf32_and_biases_do_not() {
    let of_products = [true, true, true, true, false, false];
    let case = case(&[7, 20, 16], [9, 24]);
    check::rounded_to_tf32(1, &case, &of_products, fused, by_reference);
}

#[test]
fn four_maps_go_together() {
    let case = Case::new("four").normal("x", &[5, 8]);
    let case = [3, 8, 1, 12].iter().fold(case, |case, &out| {
        let case = case.normal(&format!("w{out}"), &[out, 8]).factor();
        case.normal(&format!("b{out}"), &[out]).parameter()
    });
    let maps = |ins: &[Tensor]| [1, 3, 5, 7].map(|i| (ins[i].clone(), ins[i + 1].clone()));
    let fused = |ins: &[Tensor]| {
        let maps = maps(ins);
        let maps = maps.each_ref().map(|(w, b)| (w, Some(b)));
        side_by_side(linears(&ins[0], &maps)?)
    };
    let by_reference = |ins: &[Tensor]| {
        let maps = maps(ins);
        let outs = maps.iter().map(|(w, b)| reference::linear(&ins[0], w, Some(b)));
        side_by_side(outs.collect::<Result<_>>()?)
    };
    check::kernels_agree(&[case], fused, by_reference);
}

#[test]
fn maps_of_one_input_share_their_products() {
    let launched = |dtype: DType, biased: bool, out: [usize; 3]| {
        let of = |shape: &[usize], dtype| {
            let x = Tensor::ones(shape, dtype, &Device::Cpu).unwrap();
            Var::from_tensor(&x).unwrap()
        };
        let x = of(&[6, 8], dtype);
        let maps = out.map(|out| (of(&[out, 8], DType::F32), of(&[out], DType::F32)));
        let maps: Vec<_> = maps.iter().map(|(w, b)| (w.as_tensor(), biased.then_some(b.as_tensor()))).collect();
        emulated(|| {
            let start = launches();
            let outs = linears(&x, &maps).unwrap();
            let there = launches();
            let loss = side_by_side(outs).unwrap().sum_all().unwrap();
            let grads = backward(&loss).unwrap();
            assert!(maps.iter().all(|(w, _)| grads.get(w).unwrap().dims() == w.dims()));
            [there - start, launches() - there]
        })
    };
    for dtype in [DType::F32, DType::BF16] {
        for out in [[4, 8, 4], [3, 1, 5]] {
            // Joined weights, their product, split rows; joined gradients, two products, sums for biases.
            assert_eq!(launched(dtype, true, out), [3, 4]);
            assert_eq!(launched(dtype, false, out), [4, 3]);
        }
    }
}

/// bf16 holds only even numbers above 256: 256 + 1 would remain 256, however often it is added.
#[test]
fn gradients_of_several_maps_are_rounded_once() {
    let x = Var::ones((1, 1), DType::BF16, &Device::Cpu).unwrap();
    let weight = |w: f32| Tensor::full(w, (1, 1), &Device::Cpu).unwrap();
    let weights = [256.0, 1.0, 1.0, 2.0].map(weight);
    let maps: Vec<_> = weights.iter().map(|w| (w, None)).collect();
    let gx = emulated(|| {
        let sum = side_by_side(linears(&x, &maps).unwrap()).unwrap().sum_all().unwrap();
        sum.backward().unwrap().get(&x).unwrap().clone()
    });
    let gx = gx.to_dtype(DType::F32).unwrap().flatten_all().unwrap();
    assert_eq!(gx.to_vec1::<f32>().unwrap(), [260.0]);
}

#[test]
fn a_map_without_bias_is_a_product() {
    let bare = |ins: &[Tensor]| linear(&ins[0], &ins[1], None);
    let case = Case::new("bare").normal("x", &[3, 5, 4]).normal("w", &[6, 4]);
    check::agree(&[case], bare, |ins| reference::linear(&ins[0], &ins[1], None));
}

#[test]
fn a_map_that_the_loss_does_not_use_gets_no_gradient() {
    let first = |ins: &[Tensor]| {
        let maps = [(&ins[1], Some(&ins[3])), (&ins[2], Some(&ins[4]))];
        Ok(linears(&ins[0], &maps)?.remove(0))
    };
    check::finite_differences(&case(&[2, 3], [2, 4]), first);
    // Zeros take the place of the missing gradient, one by one and four at a time.
    check::kernels_agree(&[case(&[2, 3], [2, 4]), case(&[3, 4], [8, 4])], first, |ins| {
        // candle gives a gradient only to tensors that take part, so the factor is tiny instead of zero
        let [one, other] = [0, 1].map(|map| reference::linear(&ins[0], &ins[1 + map], Some(&ins[3 + map])));
        one?.broadcast_add(&(other?.sum_keepdim(D::Minus1)? * 1e-30)?)
    });
}

#[test]
fn kernels_index_large_tensors() {
    let case = Case::new("bare").normal("x", &[1, 16, 64]).normal("w", &[64, 64]).factor();
    let case = case.normal("b", &[64]).parameter();
    let fused = |ins: &[Tensor]| linear(&ins[0], &ins[1], Some(&ins[2]));
    check::large(&case).agrees(fused, |ins| reference::linear(&ins[0], &ins[1], Some(&ins[2])));
}
