use super::*;
use crate::runtime::check::{self, Case, Suite};

/// Systems with a rank and a size, of which the slowest modes lose `decay` of their values per step.
fn case([rank, width, states]: [usize; 3], decay: f64) -> Case {
    let shape = [width, states];
    let case = Case::new(format!("rank {rank}, {shape:?}, decay {decay}"));
    let case = case.uniform("Re λ", &shape, -3.0 * decay, -decay).parameter().uniform("Im λ", &shape, -3.0, 3.0);
    let case = case.parameter().uniform("Re p", &[rank, width, states], -0.5, 0.5).parameter();
    let case = case.uniform("Im p", &[rank, width, states], -0.5, 0.5).parameter().normal("Re b", &shape).parameter();
    let case = case.normal("Im b", &shape).parameter().normal("Re c", &shape).parameter();
    case.normal("Im c", &shape).parameter()
}

fn fused(sizes: [usize; 2]) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |x| dplr_kernel([&x[0], &x[1]], [&x[2], &x[3]], [&x[4], &x[5]], [&x[6], &x[7]], sizes)
}

fn reference(sizes: [usize; 2]) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |x| reference::dplr_kernel([&x[0], &x[1]], [&x[2], &x[3]], [&x[4], &x[5]], [&x[6], &x[7]], sizes)
}

/// Periods around the number of roots in a group of lanes.
#[test]
fn it_passes_the_suite() {
    let shape: &[usize] = &[2, 3];
    let (of_p, other): (&[usize], &[usize]) = (&[1, 2, 3], &[2, 4]);
    for sizes in [[1, 2], [17, 18], [30, 30], [31, 32], [33, 64], [100, 144]] {
        let of_sizes = Suite {
            agree: &[case([1, 1, 1], 0.3), case([1, 3, 4], 0.1), case([2, 2, 5], 0.1)],
            differences: &[],
            bits: if sizes[0] == 100 { &[case([1, 9, 7], 0.1), case([2, 9, 3], 0.1)] } else { &[] },
            tracked: if sizes[0] == 17 { &[case([1, 2, 2], 0.3)] } else { &[] },
            refused: &[
                (&[shape, other, of_p, of_p, shape, shape, shape, shape], "dplr_kernel: Im Λ has shape [2, 4]"),
                (
                    &[shape, shape, of_p, &[2, 2, 3], shape, shape, shape, shape],
                    "dplr_kernel: Im p has shape [2, 2, 3]",
                ),
                (&[shape, shape, &[3, 2, 3], &[3, 2, 3], shape, shape, shape, shape], "p has rank 3, at most 2"),
            ],
        };
        check::suite(of_sizes, fused(sizes), reference(sizes));
    }
    check::finite_differences(&case([1, 2, 3], 0.3), fused([5, 6]));
    check::finite_differences(&case([2, 1, 3], 0.3), fused([40, 40]));
    check::refuses(
        &[shape, shape, of_p, of_p, shape, shape, shape, shape],
        fused([4, 5]),
        "a period of 5 must be even",
    );
}

#[test]
fn kernels_equal_the_reference() {
    for sizes in [[1, 2], [17, 18], [130, 144], [260, 288]] {
        // Modes that have decayed long before the last tap leave gradients of which most terms cancel.
        let decay = f64::min(0.3, 10.0 / sizes[1] as f64);
        let cases = [[1, 1, 1], [1, 2, 40], [2, 2, 5]].map(|of| case(of, decay));
        check::kernels_agree(&cases, fused(sizes), reference(sizes));
    }
}

/// With c = C (I - Ā^M), y is C Ā^l B̄ of the bilinear rule.
#[test]
fn one_real_state_decays() {
    const SIZES: [usize; 2] = [20, 24];
    let one = |x: f64| Tensor::new(&[[x]], &candle_core::Device::Cpu).unwrap();
    let (rate, zero) = (-0.3, one(0.0));
    let p = one(0.2).unsqueeze(0).unwrap();
    let none = zero.unsqueeze(0).unwrap();
    // A pair of equal real states: rate - 2 (0.2)² on their sum, the only part that is written and read.
    let rate_of_sum = rate - 2.0 * 0.2 * 0.2;
    let decay = (1.0 + rate_of_sum / 2.0) / (1.0 - rate_of_sum / 2.0);
    let c = 1.0 - f64::powi(decay, SIZES[1] as i32);
    let y = dplr_kernel([&one(rate), &zero], [&p, &none], [&one(1.0), &zero], [&one(c), &zero], SIZES).unwrap();
    for (l, y) in y.flatten_all().unwrap().to_vec1::<f64>().unwrap().into_iter().enumerate() {
        let wanted = 2.0 * decay.powi(l as i32) / (1.0 - rate_of_sum / 2.0);
        assert!((y - wanted).abs() < 1e-12, "{l}: {y} and {wanted}");
    }
}
