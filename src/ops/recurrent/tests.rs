use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::{DType, Var};
use dsf_emulation::emulated;

type Make = fn(&[Tensor]) -> RecurrentCell;

const CELLS: [(&str, Make); 5] = [
    ("elman", |_| RecurrentCell::Elman),
    ("gru", |ins| RecurrentCell::Gru { bias: ins[2].clone() }),
    ("lstm", |_| RecurrentCell::Lstm),
    ("slstm", |_| RecurrentCell::SLstm),
    ("linear", |_| RecurrentCell::Linear),
];

/// Gates of each cell.
const GATES: [usize; 5] = [1, 3, 4, 4, 1];

fn case(cell: usize, batch: usize, len: usize, width: usize) -> Case {
    let gates = GATES[cell];
    let edge = (width as f64).powf(-0.5);
    let case = Case::new(format!("{}, {batch} x {len} x {width}", CELLS[cell].0))
        .normal("wu", &[batch, len, gates * width])
        .uniform("u", &[gates * width, width], -edge, edge)
        .parameter();
    match cell {
        1 => case.uniform("bias", &[width], -0.5, 0.5).parameter(),
        _ => case,
    }
}

fn fused(cell: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| recurrent(&ins[0], &ins[1], &CELLS[cell].1(ins))
}

fn by_reference(cell: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| reference::recurrent(&ins[0], &ins[1], &CELLS[cell].1(ins))
}

#[test]
fn it_passes_the_suite() {
    for (cell, gates) in GATES.into_iter().enumerate() {
        let sizes = [(1, 1, 1), (3, 7, 5), (33, 4, 16), (2, 40, 70)];
        let suite = Suite {
            agree: &sizes.map(|(batch, len, width)| case(cell, batch, len, width)),
            differences: &[case(cell, 2, 4, 3)],
            bits: &[case(cell, 70, 9, 80)],
            tracked: &[case(cell, 2, 5, 3)],
            refused: &[
                (&[&[2, 3, gates * 4 + 1], &[gates * 4, 4], &[4]], "asks for [2, 3,"),
                (&[&[2, 3, gates * 4], &[gates * 4 + 1, 4], &[4]], "u has shape"),
            ],
        };
        check::suite(suite, fused(cell), by_reference(cell));
    }
    check::refuses(&[&[2, 3, 12], &[12, 4], &[5]], fused(1), "bias has shape [5]");
}

/// Runs from before the op keep their digits.
#[test]
fn the_bits_are_those_of_separate_ops() {
    for (cell, (name, _)) in CELLS.iter().enumerate() {
        for (batch, len, width) in [(1, 5, 16), (33, 6, 20), (64, 9, 64), (64, 4, 128), (600, 3, 80)] {
            let case = case(cell, batch, len, width);
            let run = |op: &dyn Fn(&[Tensor]) -> Result<Tensor>| {
                let vars = case.vars(DType::F32);
                let ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
                let y = op(&ins).unwrap();
                // A later use of y, so that its gradient has several terms.
                let loss = (y.sqr().unwrap() * 0.3).unwrap().sum_all().unwrap();
                let grads = crate::backward(&loss).unwrap();
                let of = |v: &Var| grads.get(v).unwrap().clone();
                let all: Vec<Tensor> = std::iter::once(y).chain(vars.iter().map(of)).collect();
                let bits = |x: &Tensor| {
                    let x = x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                    // Sums that start with zero have no negative zero.
                    x.into_iter().map(|x| (x + 0.0).to_bits()).collect::<Vec<_>>()
                };
                all.iter().map(bits).collect::<Vec<_>>()
            };
            let (ours, theirs) = (run(&fused(cell)), run(&by_reference(cell)));
            for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                let differ = ours.iter().zip(theirs).filter(|(a, b)| a != b).count();
                assert_eq!(differ, 0, "{name}, {batch} x {len} x {width}, result {i} of {}", ours.len());
            }
        }
    }
}

#[test]
fn kernels_equal_the_reference() {
    for cell in 0..CELLS.len() {
        let cases = [(1, 1, 1), (3, 5, 5), (33, 3, 17), (2, 4, 40)];
        let cases = cases.map(|(batch, len, width)| case(cell, batch, len, width));
        check::kernels_agree(&cases, fused(cell), by_reference(cell));
    }
}

/// An evaluation keeps one step, and has the outputs of a pass that keeps all.
#[test]
fn an_untracked_pass_has_the_same_outputs() {
    for (cell, (name, _)) in CELLS.iter().enumerate() {
        let case = case(cell, 20, 6, 18);
        let outputs = |tracked: bool| {
            let vars = case.vars(DType::F32);
            let of = |v: &Var| if tracked { v.as_tensor().clone() } else { v.as_detached_tensor() };
            let y = fused(cell)(&vars.iter().map(of).collect::<Vec<_>>()).unwrap();
            assert_eq!(y.track_op(), tracked);
            y.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        assert_eq!(outputs(true), outputs(false), "{name}");
        emulated(|| assert_eq!(outputs(true), outputs(false), "{name} by kernels"));
    }
}

/// A state that moves by less than the last place of bf16 in each step still arrives.
#[test]
fn slow_states_are_kept_in_f32_by_kernels() {
    let (len, slow) = (400, -6.0f32); // z or f is 1 - 1/404
    for (cell, pre_activations) in [(1, [0.0, -slow, 2.0].as_slice()), (2, &[2.0, -slow, slow, 8.0])] {
        let wu: Vec<f32> = pre_activations.iter().copied().cycle().take(len * pre_activations.len()).collect();
        let device = candle_core::Device::Cpu;
        let last = |dtype: DType| {
            let wu = Tensor::from_slice(&wu, (1, len, pre_activations.len()), &device).unwrap();
            let u = Tensor::zeros((pre_activations.len(), 1), DType::F32, &device).unwrap();
            let ins = [wu.to_dtype(dtype).unwrap(), u, Tensor::zeros(1, DType::F32, &device).unwrap()];
            let y = emulated(|| fused(cell)(&ins).unwrap());
            y.narrow(1, len - 1, 1)
                .unwrap()
                .flatten_all()
                .unwrap()
                .to_dtype(DType::F32)
                .unwrap()
                .to_vec1::<f32>()
                .unwrap()[0]
        };
        let (exact, rounded) = (last(DType::F32), last(DType::BF16));
        assert!((exact - rounded).abs() < 4e-3, "{}: {rounded} in bf16, {exact} in f32", CELLS[cell].0);
    }
}

/// Saturated gates, and an exponential gate whose exponents differ by hundreds.
#[test]
fn large_inputs_give_no_nan() {
    let finite = || {
        let (len, ends) = (12, [-300.0f32, -80.0, 0.0, 80.0, 300.0]);
        for (name, make) in CELLS {
            let cell = make(&[0, 1, 2].map(|_| Tensor::zeros(1, DType::F32, &candle_core::Device::Cpu).unwrap()));
            let values: Vec<f32> = (0..len * cell.gates()).map(|i| ends[i * 7 % 5]).collect();
            let var =
                |values: &[f32], shape: &[usize]| Var::from_slice(values, shape, &candle_core::Device::Cpu).unwrap();
            let (wu, u) = (var(&values, &[1, len, cell.gates()]), var(&vec![0.5; cell.gates()], &[cell.gates(), 1]));
            let y = recurrent(wu.as_tensor(), u.as_tensor(), &cell).unwrap();
            let grads = y.backward().unwrap();
            for x in [Some(&y), grads.get(&wu), grads.get(&u)] {
                let x = x.unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert!(x.iter().all(|x| x.is_finite()), "{name}: {x:?}");
            }
        }
    };
    finite();
    emulated(finite);
}

#[test]
fn kernels_index_large_tensors() {
    // an Elman network and an LSTM
    for cell in [0, 2] {
        check::large(&case(cell, 1, 4, 64)).agrees(fused(cell), by_reference(cell));
    }
}
