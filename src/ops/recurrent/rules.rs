//! One step of each cell in one channel, with its derivatives. Each function computes what the [reference](super::reference)
//! computes, in the same order, so that its results have the same bits.

use crate::pointwise::{Pointwise, Sigmoid, Softplus, Tanh};
use crate::runtime::float::Float;

/// Largest numbers of gates, and of states beside y; a cell with fewer ignores the others.
pub(super) const MOST_GATES: usize = 4;
pub(super) const MOST_STATES: usize = 3;

/// One number per gate.
pub(super) type OfGates<F> = [F; MOST_GATES];
/// One number per state beside y.
pub(super) type OfStates<F> = [F; MOST_STATES];

/// Inputs of a step.
#[derive(Clone, Copy)]
pub(super) struct Before<F> {
    pub(super) wu: OfGates<F>,
    pub(super) uy: OfGates<F>,
    pub(super) bias: F,
    /// y_{t-1}.
    pub(super) y: F,
    pub(super) states: OfStates<F>,
}

/// Results of a step.
#[derive(Clone, Copy)]
pub(super) struct After<F> {
    /// Pre-activations that the backward pass needs.
    pub(super) kept: OfGates<F>,
    pub(super) y: F,
    pub(super) states: OfStates<F>,
}

/// Values that the derivatives of a step depend on.
#[derive(Clone, Copy)]
pub(super) struct Passed<F> {
    pub(super) kept: OfGates<F>,
    pub(super) wu: OfGates<F>,
    /// y_{t-1}.
    pub(super) y: F,
    /// The states before the step, and after it.
    pub(super) before: OfStates<F>,
    pub(super) after: OfStates<F>,
}

/// Gradients of the inputs of a step; that of y without its path through U.
#[derive(Clone, Copy)]
pub(super) struct StepGrads<F> {
    pub(super) wu: OfGates<F>,
    pub(super) uy: OfGates<F>,
    pub(super) y: F,
    pub(super) states: OfStates<F>,
}

pub(super) trait CellRule: Send + Sync + 'static {
    /// The part of its kernels' names.
    const KERNELS: &'static str;
    const GATES: usize;
    /// Initial values of y and the states.
    const INITIAL: &'static [f64];
    /// True if the gradients of W u and U y differ.
    const APART: bool = false;
    /// True if y_{t-1} enters a step beside U y_{t-1}.
    const DIRECT: bool = false;

    /// Number of states beside y.
    const STATES: usize = Self::INITIAL.len() - 1;
    /// Number of states that kernels keep in f32 beside y, which has the type of the activations.
    const STATES_OF_KERNELS: usize = Self::STATES;

    fn step<F: Float>(before: Before<F>) -> After<F>;

    /// The gradients of the inputs, given those of y and of the states after the step.
    fn back<F: Float>(passed: Passed<F>, gy: F, states: OfStates<F>) -> StepGrads<F>;
}

#[inline(always)]
fn add<F: Float>(wu: OfGates<F>, uy: OfGates<F>) -> OfGates<F> {
    [wu[0] + uy[0], wu[1] + uy[1], wu[2] + uy[2], wu[3] + uy[3]]
}

/// The gradient of x, given that of σ(x) and its value.
#[inline(always)]
fn through_sigmoid<F: Float>(grad: F, s: F) -> F {
    grad * Sigmoid::slope(s, s)
}

#[inline(always)]
fn through_tanh<F: Float>(grad: F, y: F) -> F {
    grad * Tanh::slope(y, y)
}

/// One gate: y = P(a).
pub(super) struct OneGate<P>(pub(super) P);

impl<P: Pointwise> CellRule for OneGate<P> {
    const KERNELS: &'static str = P::NAME;
    const GATES: usize = 1;
    const INITIAL: &'static [f64] = &[0.0];

    #[inline(always)]
    fn step<F: Float>(before: Before<F>) -> After<F> {
        let kept = add(before.wu, before.uy);
        After { kept, y: P::value(kept[0]), states: before.states }
    }

    #[inline(always)]
    fn back<F: Float>(passed: Passed<F>, gy: F, states: OfStates<F>) -> StepGrads<F> {
        let a = passed.kept[0];
        let of_gates = [gy * P::slope(a, P::value(a)), F::zero(), F::zero(), F::zero()];
        StepGrads { wu: of_gates, uy: of_gates, y: F::zero(), states }
    }
}

/// Gates r, z, n.
pub(super) struct Gru;

impl CellRule for Gru {
    const KERNELS: &'static str = "gru";
    const GATES: usize = 3;
    const INITIAL: &'static [f64] = &[0.0];
    const APART: bool = true;
    const DIRECT: bool = true;
    /// y is the state.
    const STATES_OF_KERNELS: usize = 1;

    /// Keeps the pre-activations of r and z, and U_n y + c.
    #[inline(always)]
    fn step<F: Float>(before: Before<F>) -> After<F> {
        let Before { wu, uy, bias, y, states } = before;
        let kept = [wu[0] + uy[0], wu[1] + uy[1], uy[2] + bias, F::zero()];
        let n = (wu[2] + Sigmoid::value(kept[0]) * kept[2]).tanh();
        After { kept, y: n + Sigmoid::value(kept[1]) * (y - n), states }
    }

    #[inline(always)]
    fn back<F: Float>(passed: Passed<F>, gy: F, states: OfStates<F>) -> StepGrads<F> {
        let Passed { kept, wu, y, .. } = passed;
        let (r, z) = (Sigmoid::value(kept[0]), Sigmoid::value(kept[1]));
        let n = (wu[2] + r * kept[2]).tanh();
        let of_difference = gy * z;
        let gn = through_tanh(gy - of_difference, n);
        let (gr, gz) = (through_sigmoid(gn * kept[2], r), through_sigmoid(gy * (y - n), z));
        let zero = F::zero();
        StepGrads { wu: [gr, gz, gn, zero], uy: [gr, gz, gn * r, zero], y: of_difference, states }
    }
}

/// Gates z, f, i, o; state x.
pub(super) struct Lstm;

impl CellRule for Lstm {
    const KERNELS: &'static str = "lstm";
    const GATES: usize = 4;
    const INITIAL: &'static [f64] = &[0.0; 2];

    #[inline(always)]
    fn step<F: Float>(before: Before<F>) -> After<F> {
        let kept = add(before.wu, before.uy);
        let f_x = Sigmoid::value(kept[1]) * before.states[0];
        let x = f_x + Sigmoid::value(kept[2]) * kept[0].tanh();
        After { kept, y: Sigmoid::value(kept[3]) * x.tanh(), states: [x, F::zero(), F::zero()] }
    }

    #[inline(always)]
    fn back<F: Float>(passed: Passed<F>, gy: F, states: OfStates<F>) -> StepGrads<F> {
        let [z, f, i, o] = passed.kept;
        let (z, f, i, o) = (z.tanh(), Sigmoid::value(f), Sigmoid::value(i), Sigmoid::value(o));
        let y = passed.after[0].tanh();
        let gx = through_tanh(gy * o, y) + states[0];
        let of_gates = [
            through_tanh(gx * i, z),
            through_sigmoid(gx * passed.before[0], f),
            through_sigmoid(gx * z, i),
            through_sigmoid(gy * y, o),
        ];
        StepGrads { wu: of_gates, uy: of_gates, y: F::zero(), states: [gx * f, F::zero(), F::zero()] }
    }
}

/// Gates z, f, i, o; states c, n, m.
pub(super) struct SLstm;

impl SLstm {
    /// ln f + m_{t-1}, for the pre-activations and m_{t-1}.
    #[inline(always)]
    fn log_f<F: Float>(kept: OfGates<F>, m: F) -> F {
        -Softplus::value(-kept[1]) + m
    }
}

impl CellRule for SLstm {
    const KERNELS: &'static str = "slstm";
    const GATES: usize = 4;
    /// A finite number stands for m = ln 0.
    const INITIAL: &'static [f64] = &[0.0, 0.0, 0.0, -1e30];

    #[inline(always)]
    fn step<F: Float>(before: Before<F>) -> After<F> {
        let kept = add(before.wu, before.uy);
        let [c, n, m] = before.states;
        let log_f = Self::log_f(kept, m);
        let m = log_f.at_least(kept[2]);
        let (f, i) = ((log_f - m).exp_of_std(), (kept[2] - m).exp_of_std());
        let c = c * f + i * kept[0].tanh();
        let n = n * f + i;
        After { kept, y: Sigmoid::value(kept[3]) * (c / n), states: [c, n, m] }
    }

    #[inline(always)]
    fn back<F: Float>(passed: Passed<F>, gy: F, states: OfStates<F>) -> StepGrads<F> {
        let Passed { kept, before, after: [c, n, m], .. } = passed;
        let (z, o) = (kept[0].tanh(), Sigmoid::value(kept[3]));
        let (f, i) = ((Self::log_f(kept, before[2]) - m).exp_of_std(), (kept[2] - m).exp_of_std());
        let of_ratio = gy * o;
        let gc = states[0] + of_ratio / n;
        let gn = states[1] - of_ratio * c / (n * n);
        let (gf, gi) = (gc * before[0] + gn * before[1], gc * z + gn);
        let of_gates =
            [through_tanh(gc * i, z), gf * f * Sigmoid::value(-kept[1]), gi * i, through_sigmoid(gy * (c / n), o)];
        StepGrads { wu: of_gates, uy: of_gates, y: F::zero(), states: [gc * f, gn * f, F::zero()] }
    }
}
