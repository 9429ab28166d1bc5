use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::DType;

fn case(x: &[usize], hidden: usize, out: usize) -> Case {
    let inner = x[x.len() - 1];
    Case::new(format!("{x:?}, {hidden}, {out}"))
        .normal("x", x)
        .normal("w1", &[hidden, inner])
        .factor()
        .normal("b1", &[hidden])
        .parameter()
        .uniform("w2", &[out, hidden], -0.2, 0.2)
        .factor()
        .normal("b2", &[out])
        .parameter()
}

/// Two different masks.
fn dropped() -> [Option<Dropout>; 2] {
    let what = |p: f64, index: u64| {
        let key = [3, 5];
        Some(Dropout { p, key, index })
    };
    [what(0.3, 1 << 40), what(0.2, 7)]
}

/// No mask, each mask alone, and both.
fn choices() -> [[Option<Dropout>; 2]; 4] {
    let [inside, behind] = dropped();
    [[None, None], [inside, None], [None, behind], [inside, behind]]
}

fn by(dropout: [Option<Dropout>; 2]) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
    move |ins| mlp(&ins[0], [&ins[1], &ins[2]], [&ins[3], &ins[4]], dropout)
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    by([None, None])(ins)
}

fn reference(dropout: [Option<Dropout>; 2]) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| {
        let masks = [Mask::new("test", dropout[0])?, Mask::new("test", dropout[1])?];
        reference::mlp(&ins[0], [&ins[1], &ins[2]], [&ins[3], &ins[4]], masks)
    }
}

#[test]
fn it_passes_the_suite() {
    let shapes: [&[usize]; 5] = [&[2, 3], &[4, 3], &[4], &[2, 5], &[2]];
    for dropout in choices() {
        let of_all = Suite {
            agree: &[case(&[1], 1, 2), case(&[7, 63, 16], 20, 5), case(&[2, 1000, 3], 12, 3)],
            differences: &[case(&[2, 3], 4, 2)],
            bits: &[case(&[3, 700, 8], 32, 8)],
            tracked: &[case(&[3, 2], 5, 2)],
            refused: &[(&shapes, "mlp: w2 has shape [2, 5], but w1 of shape [4, 3] asks for [2, 4]")],
        };
        check::suite(of_all, by(dropout), reference(dropout));
    }
    check::finite_differences(&case(&[5, 3], 4, 2), by(dropped()));
}

#[test]
fn kernels_equal_the_reference() {
    let cases = [case(&[3, 2], 5, 2), case(&[1], 1, 2), case(&[7, 63, 8], 20, 5), case(&[65, 16], 64, 16)];
    for dropout in choices() {
        check::kernels_agree(&cases, by(dropout), reference(dropout));
    }
}

/// The gradient of the second bias alone does not come from a product.
#[test]
fn products_round_to_tf32() {
    let of_products = [true, true, true, true, true, false];
    let case = case(&[40, 16], 64, 16);
    check::rounded_to_tf32(3, &case, &of_products, fused, reference([None, None]));
}

#[test]
fn a_result_is_masked_as_by_dropout_bit_for_bit() {
    let vars = case(&[300, 7], 9, 5).vars(DType::F32);
    let ins: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
    let [_, behind] = dropped();
    let bits = |x: Result<Tensor>| x.unwrap().to_vec2::<f32>().unwrap();
    let masked = crate::dropout(&fused(&ins).unwrap(), behind.unwrap());
    assert_eq!(bits(by([None, behind])(&ins)), bits(masked));
    let nothing = Dropout { p: 0.0, key: [1, 2], index: 3 };
    assert_eq!(bits(by([Some(nothing); 2])(&ins)), bits(fused(&ins)));
}

#[test]
fn a_wrong_probability_is_named() {
    let certain = Dropout { p: 1.0, key: [1, 2], index: 3 };
    let shapes: [&[usize]; 5] = [&[2, 3], &[4, 3], &[4], &[2, 4], &[2]];
    let message = "mlp: dropout of 1, needed is 0 <= p < 1";
    check::refuses(&shapes, by([None, Some(certain)]), message);
}

#[test]
fn kernels_index_large_tensors() {
    check::large(&case(&[1, 16, 64], 64, 64)).agrees(fused, reference([None, None]));
}
