use super::cpu::ROWS;
use super::*;
use crate::runtime::check::{self, Case, Suite};
use crate::{gelu, gelu_tanh, sigmoid, silu};
use candle_core::{DType, D};

fn case(shape: &[usize]) -> Case {
    Case::new(format!("{shape:?}")).uniform("x", shape, -3.0, 3.0)
}

fn by(kind: Glu) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
    move |ins| glu(&ins[0], kind)
}

fn reference(kind: Glu) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| reference::glu(&ins[0], kind)
}

const ALL: [Glu; 5] = [Glu::Sigmoid, Glu::Gelu, Glu::GeluTanh, Glu::Silu, Glu::Bilinear];

#[test]
fn it_passes_the_suite() {
    let shapes: [&[usize]; 5] = [&[2], &[7, 4], &[2, 63, 32], &[65, 130], &[1, 1000, 6]];
    for kind in ALL {
        let of_all = Suite {
            agree: &shapes.map(case),
            differences: &[case(&[3, 6])],
            bits: &[case(&[3, 2 * ROWS + 5, 6])],
            tracked: &[case(&[3, 4])],
            refused: &[
                (&[&[2, 3]], "glu: x of shape [2, 3] has an odd last axis"),
                (&[&[2, 0]], "needed is a last axis"),
            ],
        };
        check::suite(of_all, by(kind), reference(kind));
    }
}

#[test]
fn kernels_equal_the_reference() {
    // halves that are multiples of four and others; a partial last group
    let shapes: [&[usize]; 5] = [&[3, 2], &[7, 16], &[2, 33, 40], &[5, 6], &[1, 65, 2]];
    for kind in ALL {
        check::kernels_agree(&shapes.map(case), by(kind), reference(kind));
    }
}

#[test]
fn it_is_the_product_of_its_parts_bit_for_bit() {
    let var = &case(&[65, 40]).vars(DType::F32)[0];
    let halves = var.chunk(2, D::Minus1).unwrap();
    let first = |f: fn(&Tensor) -> Result<Tensor>| f(&halves[0]).unwrap() * &halves[1];
    let identity = |x: &Tensor| Ok(x.clone());
    let parts =
        [&halves[0] * sigmoid(&halves[1]).unwrap(), first(gelu), first(gelu_tanh), first(silu), first(identity)];
    for (kind, parts) in ALL.into_iter().zip(parts) {
        let [got, parts] = [glu(var, kind), parts].map(|x| x.unwrap().to_vec2::<f32>());
        assert_eq!(got.unwrap(), parts.unwrap());
    }
}

#[test]
fn kernels_index_large_tensors() {
    check::large(&case(&[1, 16, 64])).beyond_32_bits().agrees(by(Glu::Silu), reference(Glu::Silu));
}
