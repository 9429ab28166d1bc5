//! Checks of ops with a matrix state for each sequence and head, whose inputs are q, k, v, those of the transition, and
//! the logarithms g of decays.

use super::{agree, kernels_agree, large, refuses, some_times, suite, Case, Refused, Suite};
use crate::runtime::distance::numbers;
use candle_core::{DType, Device, Result, Tensor};

/// B, L, s, m, e, and the decays of a head.
pub(crate) type CheckSizes = [usize; 6];

/// Sizes around the tiles and widths of the kernels, and numbers of events around their spans.
pub(crate) const TILES: [CheckSizes; 12] = [
    [2, 5, 2, 3, 2, 3],
    [3, 1, 1, 1, 1, 1],
    [1, 8, 2, 9, 5, 1],
    [1, 17, 1, 16, 32, 16],
    [2, 25, 2, 17, 33, 17],
    [1, 9, 1, 130, 3, 130],
    [1, 10, 1, 256, 34, 1],
    [1, 33, 1, 8, 257, 8],
    [2, 16, 1, 33, 65, 1],
    [1, 19, 1, 300, 9, 300],
    [1, 18, 1, 300, 33, 1],
    [1, 3, 2, 1000, 3, 1],
];

/// An op with a matrix state.
pub(crate) struct MatrixOp {
    /// Adds the inputs of the transition, of the given shape and within a bound.
    pub(crate) transition: fn(Case, &[usize], f64) -> Case,
    /// The op, with queries at given times or at all.
    pub(crate) fused: fn(&[Tensor], Option<&Tensor>) -> Result<Tensor>,
    pub(crate) reference: fn(&[Tensor], Option<&Tensor>) -> Result<Tensor>,
}

impl MatrixOp {
    /// Inputs whose transitions neither grow nor vanish, with a query at every step.
    pub(crate) fn case(&self, sizes: CheckSizes) -> Case {
        self.case_of_rows(sizes, sizes[1])
    }

    fn case_of_rows(&self, [batch, len, heads, keys, values, decays]: CheckSizes, rows: usize) -> Case {
        let name = format!("{batch} x {len} x {heads}, {keys} by {values}, {decays} decays, {rows} rows");
        let case = Case::new(name)
            .normal("q", &[batch, rows, heads, keys])
            .normal("k", &[batch, len, heads, keys])
            .normal("v", &[batch, len, heads, values]);
        let case = (self.transition)(case, &[batch, len, heads, keys], (keys as f64).powf(-0.5));
        case.uniform("g", &[batch, len, heads, decays], -1.5, 0.0)
    }

    /// Inputs with queries at [`some_times`].
    fn case_of_some(&self, sizes: CheckSizes) -> Case {
        self.case_of_rows(sizes, 4)
    }

    /// Decays of 1, some that underflow, and all between.
    fn extreme(&self, decays: usize) -> Case {
        let [batch, len, heads, keys, values] = [1, 70, 2, 8, 3];
        let logs = [0.0, -1e-30, -1e-3, -50.0, -87.5, -0.5, -300.0, -1e4];
        let g: Vec<f64> = (0..len * heads * decays).map(|i| logs[(i * 5 + i / 7) % 8]).collect();
        let case = Case::new("extreme")
            .normal("q", &[batch, len, heads, keys])
            .normal("k", &[batch, len, heads, keys])
            .normal("v", &[batch, len, heads, values]);
        let case = (self.transition)(case, &[batch, len, heads, keys], 0.3);
        case.values(&g, &[batch, len, heads, decays])
    }

    /// Checks the indices of kernels in large tensors, with a decay for each key and one for all. The saved states have
    /// several times 2^32 elements.
    pub(crate) fn indices_hold(&self) {
        for decays in [1, 32] {
            let case = self.case([1, 40, 1, 32, 32, decays]);
            large(&case).agrees(|ins| self.fused(ins), |ins| self.reference(ins));
        }
    }

    /// Kernels refuse keys that are too wide, and name the op.
    pub(crate) fn kernels_refuse_wide_keys(&self, name: &str) {
        let vars = self.case([1, 2, 1, 1025, 2, 1]).vars(DType::F32);
        let ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
        let error = dsf_emulation::emulated(|| self.fused(&ins)).unwrap_err();
        let message = format!("{name}: keys of 1025 features, kernels take up to 1024");
        assert!(error.to_string().contains(&message), "{error}");
    }

    fn fused(&self, ins: &[Tensor]) -> Result<Tensor> {
        (self.fused)(ins, None)
    }

    fn reference(&self, ins: &[Tensor]) -> Result<Tensor> {
        (self.reference)(ins, None)
    }

    fn fused_at_some(&self, ins: &[Tensor]) -> Result<Tensor> {
        (self.fused)(ins, Some(&times_of(ins)?))
    }

    fn reference_at_some(&self, ins: &[Tensor]) -> Result<Tensor> {
        (self.reference)(ins, Some(&times_of(ins)?))
    }

    /// The suite, for queries at all times and at some.
    pub(crate) fn suite(&self, sizes: &[CheckSizes], refused: &[Refused]) {
        let tiny = [1, 2].map(|decays| [2, 4, 2, 2, 3, decays]);
        let special = [self.case([1, 700, 2, 5, 6, 5]), self.extreme(1), self.extreme(8)];
        let whole = Suite {
            agree: &sizes.iter().map(|&sizes| self.case(sizes)).chain(special).collect::<Vec<_>>(),
            differences: &tiny.map(|sizes| self.case(sizes)),
            bits: &[self.case([1, 70, 1, 20, 60, 20]), self.case([9, 30, 3, 5, 4, 1])],
            tracked: &[sizes[0], sizes[1], [1, 3, 1, 2, 40, 1]].map(|sizes| self.case(sizes)),
            refused,
        };
        suite(whole, |ins| self.fused(ins), |ins| self.reference(ins));
        let some = Suite {
            agree: &sizes.iter().map(|&sizes| self.case_of_some(sizes)).collect::<Vec<_>>(),
            differences: &tiny.map(|sizes| self.case_of_some(sizes)),
            bits: &[],
            tracked: &[],
            refused: &[],
        };
        suite(some, |ins| self.fused_at_some(ins), |ins| self.reference_at_some(ins));
    }

    /// Checks many queries at one time and none at the end.
    pub(crate) fn crowded_queries_agree(&self) {
        let mut times = vec![0u32; 50];
        times.extend([40; 30]);
        let rows = Tensor::from_vec(times, (1, 80), &Device::Cpu).unwrap();
        let case = self.case_of_rows([1, 90, 2, 6, 5, 6], 80);
        agree(&[case], |ins| (self.fused)(ins, Some(&rows)), |ins| (self.reference)(ins, Some(&rows)));
    }

    pub(crate) fn kernels_agree(&self, sizes: &[CheckSizes]) {
        let cases: Vec<Case> = sizes.iter().map(|&sizes| self.case(sizes)).collect();
        kernels_agree(&cases, |ins| self.fused(ins), |ins| self.reference(ins));
    }

    pub(crate) fn kernels_agree_at_some_times(&self, sizes: &[CheckSizes]) {
        for &sizes in sizes {
            let case = self.case_of_some(sizes);
            kernels_agree(&[case], |ins| self.fused_at_some(ins), |ins| self.reference_at_some(ins));
        }
    }

    pub(crate) fn kernels_take_extreme_decays(&self) {
        kernels_agree(&[self.extreme(8)], |ins| self.fused(ins), |ins| self.reference(ins));
    }

    /// Checks that the transition of the first step has no effect, and a gradient of zero.
    pub(crate) fn first_transition_has_no_effect(&self) {
        let vars = self.case([2, 6, 2, 3, 4, 3]).vars(DType::F32);
        let ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
        let grads = self.fused(&ins).unwrap().backward().unwrap();
        let mut other = ins.clone();
        for input in 3..ins.len() {
            let of_first = grads.get(&ins[input]).unwrap().narrow(1, 0, 1).unwrap();
            assert!(numbers(&of_first).unwrap().iter().all(|&x| x == 0.0), "input {input}");
            let first = (of_first.zeros_like().unwrap() + 1e4).unwrap();
            let later = ins[input].narrow(1, 1, 5).unwrap();
            other[input] = Tensor::cat(&[first, later], 1).unwrap();
        }
        let [got, expected] = [&other, &ins].map(|ins| numbers(&self.fused(ins).unwrap()).unwrap());
        assert_eq!(got, expected);
    }

    /// Checks that times which do not ascend, are too late or too few are refused. In `shapes` are two sequences of
    /// five steps with two queries each.
    pub(crate) fn wrong_times_are_refused(&self, shapes: &[&[usize]]) {
        let rows = |times: &[[u32; 2]; 2]| Tensor::new(times, &Device::Cpu).unwrap();
        let refused = |rows: &Tensor, message| refuses(shapes, |ins| (self.fused)(ins, Some(rows)), message);
        refused(&rows(&[[0, 1], [1, 0]]), "must ascend");
        refused(&rows(&[[0, 1], [1, 5]]), "position 5, but k has 5 steps");
        let one = rows(&[[0, 1], [0, 1]]).narrow(0, 0, 1).unwrap();
        refused(&one, "positions has shape [1, 2], but k asks for [2, 2]");
    }
}

/// Times of queries for the inputs of an op.
fn times_of(ins: &[Tensor]) -> Result<Tensor> {
    let (batch, len, _, _) = ins[1].dims4()?;
    Ok(some_times(batch, len))
}
