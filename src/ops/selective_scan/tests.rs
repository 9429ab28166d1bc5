use super::*;
use crate::ops::check::{self, Case};
use candle_core::Device;

fn case(batch: usize, len: usize, channels: usize, states: usize, decays: usize) -> Case {
    Case::new(format!(
        "{batch} x {len} x {channels}, {states} states, {decays} decays"
    ))
    .normal("u", &[batch, len, channels])
    .uniform("delta", &[batch, len, channels], 0.0, 1.5)
    .uniform("a", &[channels, decays], -2.0, 0.0)
    .normal("b", &[batch, len, states])
    .normal("c", &[batch, len, states])
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    selective_scan(&ins[0], &ins[1], &ins[2], &ins[3], &ins[4])
}

fn reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::selective_scan(&ins[0], &ins[1], &ins[2], &ins[3], &ins[4])
}

#[test]
fn fused_equals_reference_at_all_lengths() {
    let lengths = [(7, 1), (1, 2), (7, 63), (2, 64), (1, 65), (1, 1000)];
    let own = lengths.map(|(batch, len)| case(batch, len, 3, 4, 4));
    let shared = lengths.map(|(batch, len)| case(batch, len, 3, 4, 1));
    check::agree(&own, fused, reference);
    check::agree(&shared, fused, reference);
}

#[test]
fn fused_equals_reference_at_all_state_sizes() {
    let own = [1, 4, 16, 100, 256].map(|states| case(2, 19, 17, states, states));
    let shared = [1, 4, 16, 100, 256].map(|states| case(2, 19, 33, states, 1));
    check::agree(&own, fused, reference);
    check::agree(&shared, fused, reference);
}

#[test]
fn gradients_are_finite_differences() {
    check::finite_differences(&case(2, 3, 2, 2, 2), fused);
    check::finite_differences(&case(2, 3, 2, 2, 1), fused);
}

#[test]
fn bits_do_not_depend_on_threads() {
    check::same_bits(&case(7, 35, 20, 5, 5), fused);
    check::same_bits(&case(7, 35, 20, 5, 1), fused);
}

#[test]
fn every_subset_of_inputs_can_be_tracked() {
    check::partial_tracking(&case(2, 5, 3, 2, 2), fused);
}

#[test]
fn wrong_shapes_are_named() {
    let refused = |shapes: [&[usize]; 5], message| check::refuses(&shapes, fused, message);
    let (x, a, b) = (&[2, 5, 3][..], &[3, 4][..], &[2, 5, 4][..]);
    refused(
        [x, &[2, 5, 4], a, b, b],
        "selective_scan: delta has shape [2, 5, 4], but u of shape [2, 5, 3]",
    );
    refused(
        [x, x, &[3, 2], b, b],
        "selective_scan: a has shape [3, 2], but b of shape [2, 5, 4]",
    );
    refused(
        [x, x, a, b, &[2, 5, 5]],
        "selective_scan: c has shape [2, 5, 5], but b of shape [2, 5, 4]",
    );
    refused(
        [x, x, &[3], b, b],
        "selective_scan: a has shape [3], needed are 2 axes",
    );
}

/// With a decay of e^{-300} the state is the last drive alone.
#[test]
fn a_decay_that_underflows_forgets_exactly() {
    let tensor = |values: &[f32], shape: &[usize]| {
        let values: Vec<f32> = values.to_vec();
        candle_core::Var::from_vec(values, shape, &Device::Cpu).unwrap()
    };
    let u = tensor(&[1.0, 2.0, 3.0], &[1, 3, 1]);
    let delta = tensor(&[1.0; 3], &[1, 3, 1]);
    let a = tensor(&[-300.0], &[1, 1]);
    let ones = tensor(&[1.0; 3], &[1, 3, 1]);
    let y = selective_scan(&u, &delta, &a, &ones, &ones).unwrap();
    assert_eq!(
        y.flatten_all().unwrap().to_vec1::<f32>().unwrap(),
        [1.0, 2.0, 3.0]
    );
    let grads = y.backward().unwrap();
    for (var, expected) in [
        (&u, vec![1.0f32; 3]),
        (&delta, vec![1.0, 2.0, 3.0]),
        (&a, vec![0.0]),
    ] {
        let grad = grads.get(var).unwrap().flatten_all().unwrap();
        assert_eq!(grad.to_vec1::<f32>().unwrap(), expected);
    }
}

/// Not a test of anything: prints state elements per second of forward and backward.
/// `RAYON_NUM_THREADS=1 cargo test --release --lib ops::selective_scan::tests::speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    for (batch, len, channels, states, decays) in [
        (32, 64, 64, 64, 64),
        (32, 64, 64, 64, 1),
        (32, 256, 128, 16, 16),
    ] {
        let case = case(batch, len, channels, states, decays);
        check::speed(&case, fused, batch * len * channels * states);
    }
}
