use super::patterns::patterns;
use super::*;

/// Queries at one time, after a cache with room for more steps.
const SIZES: [Sizes; 4] = [[2, 3, 1, 9, 4, 5], [1, 2, 4, 40, 17, 3], [1, 1, 2, 1200, 3, 20], [1, 2, 70, 600, 16, 33]];

fn times(at: usize, x: &[Tensor]) -> Tensor {
    Tensor::full(at as u32, (x[0].dims()[0], x[0].dims()[2]), &Device::Cpu).unwrap()
}

fn at_once(at: usize, x: &[Tensor], pattern: &Pattern) -> Result<Tensor> {
    attention_at(at, [&x[0], &x[1], &x[2]], pattern)
}

fn plainly(at: usize, x: &[Tensor], pattern: &Pattern) -> Result<Tensor> {
    let op = checked(x, Some(&times(at, x)), Weights::Softmax, None)?;
    reference::causal_attention([&x[0], &x[1], &x[2]], &op.within(&x[0], pattern)?)
}

#[test]
fn queries_at_one_time_equal_the_reference_for_every_pattern() {
    for sizes in SIZES {
        let len = sizes[3];
        for at in [0, len / 2, len - 1] {
            for pattern in patterns(len).into_iter().chain([Pattern::default()]) {
                check::agree(&[case(sizes)], |x| at_once(at, x, &pattern), |x| plainly(at, x, &pattern));
            }
        }
    }
}

#[test]
fn queries_at_one_time_equal_the_reference_with_a_bias() {
    for distances in [1, 6, 1200] {
        let case = biases::biased([1, 2, 3, 1100, 5, 4], distances);
        let pattern = |x: &[Tensor]| biases::pattern(x, None);
        check::agree(&[case], |x| at_once(900, x, &pattern(x)), |x| plainly(900, x, &pattern(x)));
    }
}

#[test]
fn bits_of_queries_at_one_time_do_not_depend_on_threads() {
    check::same_bits(&case([1, 2, 3, 1500, 5, 4]), |x| at_once(1400, x, &Pattern::default()));
}

/// Rows of a cache that are not written yet may hold anything.
#[test]
fn rows_after_the_time_are_not_read() {
    let x: Vec<Tensor> = case([1, 2, 1, 700, 4, 4]).vars(DType::F32).iter().map(|x| x.as_detached_tensor()).collect();
    let nan = |x: &Tensor| {
        let behind = Tensor::full(f32::NAN, (1, 2, 100, 4), &Device::Cpu).unwrap();
        Tensor::cat(&[&x.narrow(2, 0, 600).unwrap(), &behind], 2).unwrap()
    };
    let [whole, unwritten] = [[x[1].clone(), x[2].clone()], [nan(&x[1]), nan(&x[2])]].map(|[k, v]| {
        let y = at_once(599, &[x[0].clone(), k, v], &Pattern::default()).unwrap();
        y.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    });
    assert_eq!(whole, unwritten);
    assert!(whole.iter().all(|y| y.is_finite()));
}
