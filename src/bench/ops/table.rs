//! Table of ops: name, inputs, call, and arithmetic.

use super::{input, parameter, Fill, InputSpec, Op, ShapeSet};
use crate::bench::floors::{self, OpShape, OpWork, Passes};
use crate::config::Pool;
use crate::ops::{self, Dropout, Gates, Glu, RecurrentCell, Weights};
use candle_core::{Result, Tensor};

/// Every op, in the order of the listing.
#[rustfmt::skip]
pub(super) static OPS: &[Op] = &[
    // Ops along sequences.
    Op { name: "selective_scan", early: true, sizes: ShapeSet::DecayedStates, floor: floors::selective_scan, below: WALKS,
        about: "u, delta (B, L, d), a (d, n), b, c (B, L, n); elements B L d n",
        inputs: |s| scan(s, parameter([s.width, s.states], Fill::Harmonics)),
        run: |x, _| ops::selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], None), ..STATES },
    Op { name: "ssd", early: true, about: "u, delta (B, L, d), a (d), b, c (B, L, n); elements B L d n",
        inputs: |s| scan(s, parameter([s.width], Fill::Uniform(-1.5, -0.5))),
        run: |x, _| ops::ssd(&x[0], &x[1], &x[2], &x[3], &x[4], None), ..STATES },
    Op { name: "gla", early: true, about: "q, k, g (B, L, s, n/s), v (B, L, s, d/s); elements B L d n / s", heads: true,
        inputs: matrix_state,
        run: |x, _| ops::gla(&x[0], &x[1], &x[2], &x[3], None),
        elements: |e| e.elements() / e.heads as f64, floor: floors::gla, below: WALKS, ..STATES },
    Op { name: "delta_rule", early: true, about: "the same, with a, b (B, L, s, n/s); elements B L d n / s", heads: true,
        inputs: |s| {
            let keys = s.states / s.heads;
            let most = (keys as f64).powf(-0.5); // so that products of transitions do not grow
            let side = input([s.batch, s.len, s.heads, keys], Fill::Uniform(-most, most));
            [matrix_state(s), vec![side.clone(), side]].concat()
        },
        run: |x, _| ops::delta_rule(&x[0], &x[1], &x[2], &x[4], &x[5], &x[3], None),
        elements: |e| e.elements() / e.heads as f64, floor: floors::delta_rule, below: WALKS, ..STATES },
    Op { name: "linear_scan", about: "a and x (B, L, d); elements B L d",
        inputs: |s| vec![input(s.sequence(s.width), Fill::Uniform(0.0, 1.0)), x(s)],
        run: |x, _| ops::linear_scan(&x[0], &x[1]), floor: floors::linear_scan, ..SEQUENCE },
    Op { name: "causal_attention", early: true, about: "q, k (B, s, L, n/s), v (B, s, L, d/s); elements B L (L + 1) / 2",
        run: |x, _| attention(x, Weights::Softmax),
        elements: |e| e.tokens() * (e.len as f64 + 1.0) / 2.0, floor: floors::softmax, ..ATTENTION },
    Op { name: "causal_attention_linear", early: true, about: "the same, scores divided by their sum; elements B L d n",
        run: |x, _| attention(x, Weights::LinearNormalised), ..ATTENTION },
    Op { name: "causal_attention_plain", about: "the same, scores unnormalised; elements B L d n",
        run: |x, _| attention(x, Weights::Plain), ..ATTENTION },
    Op { name: "causal_conv1d", about: "x (B, L, d), four taps; elements B L d",
        inputs: |s| {
            let taps = |dims: &[usize]| parameter(dims, Fill::Uniform(-0.5, 0.5));
            vec![x(s), taps(&[s.width, 4]), taps(&[s.width])]
        },
        run: |x, _| ops::causal_conv1d(&x[0], &x[1], Some(&x[2])), ..SEQUENCE },
    Op { name: "long_conv", about: "u (B, L, d), a kernel (d, L); elements B L d",
        inputs: |s| vec![x(s), parameter([s.width, s.len], Fill::Normal((s.len as f64).powf(-0.5)))],
        run: |x, _| ops::long_conv(&x[0], &x[1]), floor: floors::long_conv,
        below: "its transforms are those of a library, in registers of 8 numbers and without the instructions of AVX-512, and \
                each sequence of a channel is read into a row and back, which the floor does not count", ..SEQUENCE },
    Op { name: "vandermonde", about: "a, w (d, n) complex, powers below L; elements d n L",
        inputs: |s| {
            let part = |fill| parameter([s.width, s.states], fill);
            let (states, weights) = (part(Fill::Uniform(-0.7, 0.7)), part(Fill::Normal(1.0)));
            // Only the length of the last one matters: the number of powers.
            let taps = input([s.len], Fill::Classes(1));
            vec![states.clone(), states, weights.clone(), weights, taps]
        },
        run: |x, _| ops::vandermonde([&x[0], &x[1]], [&x[2], &x[3]], x[4].dim(0)?),
        elements: |e| e.elements() / e.batch as f64, floor: floors::vandermonde,
        below: "each run of powers begins with one in f64, which the floor does not count, and few channels are few tasks",
        ..STATES },
    Op { name: "dplr_kernel", about: "lambda, p, b, c (d, n) complex, powers below L; elements d n L",
        inputs: |s| {
            let part = |fill| parameter([s.width, s.states], fill);
            let small = || parameter([1, s.width, s.states], Fill::Normal(0.1));
            let lambda = [part(Fill::Uniform(-0.7, -0.1)), part(Fill::Uniform(-1.0, 1.0))];
            let vectors = [0; 4].map(|_| part(Fill::Normal(1.0)));
            let taps = input([s.len], Fill::Classes(1));
            [&lambda[..], &[small(), small()], &vectors, &[taps]].concat()
        },
        run: |x, _| {
            let len = x[8].dim(0)?;
            let [lambda, p, b, c] = [0, 2, 4, 6].map(|i| [&x[i], &x[i + 1]]);
            ops::dplr_kernel(lambda, p, b, c, [len, len.next_multiple_of(2)])
        },
        elements: |e| e.elements() / e.batch as f64, floor: floors::dplr_kernel,
        below: "a transform a channel and the gradients' sums over roots are not counted, and few channels are few tasks",
        ..STATES },
    Op { name: "cascade", about: "sections a, b, w (d, n), their response below L; elements d n L",
        inputs: |s| {
            let part = |fill| parameter([s.width, s.states], fill);
            let sections = [part(Fill::Uniform(0.5, 0.9)), part(Fill::Uniform(0.0, 0.1)), part(Fill::Normal(1.0))];
            [sections.to_vec(), vec![input([s.len], Fill::Classes(1))]].concat()
        },
        run: |x, _| ops::cascade(&x[0], &x[1], &x[2], x[3].dim(0)?),
        elements: |e| e.elements() / e.batch as f64, floor: floors::cascade,
        below: "a section waits for the one before it, and few channels are few tasks", ..STATES },
    Op { name: "complex_scan", about: "a and x (B, L, 2, d), real before imaginary; elements B L d",
        inputs: |s| {
            let numbers = |fill| input([s.batch, s.len, 2, s.width], fill);
            vec![numbers(Fill::Uniform(-0.6, 0.6)), numbers(Fill::Normal(1.0))]
        },
        run: |x, _| ops::complex_scan(&x[0], &x[1]),
        floor: |e| Passes::moves(2.0 * e.channels(), 3.0, 8.0), ..SEQUENCE },
    Op { name: "gated_scan", early: true, about: "gates (B, L, 2 d) of a qLSTM, x (B, L, d); elements B L d",
        run: |x, _| ops::gated_scan(&x[0], &x[1], &Gates::Sigmoid, None), ..GATED },
    Op { name: "gated_scan_reversed", about: "the same with the reversed gate and its alpha; elements B L d",
        inputs: |s| gated(s, Some(parameter([1], Fill::Uniform(0.5, 1.5)))),
        run: |x, _| ops::gated_scan(&x[0], &x[1], &Gates::Reversed { alpha: x[2].clone() }, None), ..GATED },
    Op { name: "gated_scan_rg_lru", about: "the same with the gates of an RG-LRU; elements B L d",
        inputs: |s| gated(s, Some(parameter([s.width], Fill::Uniform(-6.0, -2.0)))),
        run: |x, _| {
            let gates = Gates::RgLru { lambda: x[2].clone(), eps: 1e-6 };
            ops::gated_scan(&x[0], &x[1], &gates, None)
        }, ..GATED },
    Op { name: "recurrent_elman", about: "gates (B, L, d) of a recurrent network, its map (d, d); elements B L d d",
        run: |x, _| ops::recurrent(&x[0], &x[1], &RecurrentCell::Elman), ..RECURRENT },
    Op { name: "recurrent_gru", about: "the same with the three gates of a GRU and a bias; elements B L d d",
        inputs: |s| [recurrent(s, 3), vec![bias(s.width)]].concat(),
        run: |x, _| ops::recurrent(&x[0], &x[1], &RecurrentCell::Gru { bias: x[2].clone() }),
        floor: |e| floors::recurrent(e, 3), ..RECURRENT },
    Op { name: "recurrent_lstm", about: "the same with the four gates of an LSTM; elements B L d d",
        inputs: |s| recurrent(s, 4),
        run: |x, _| ops::recurrent(&x[0], &x[1], &RecurrentCell::Lstm), floor: |e| floors::recurrent(e, 4), ..RECURRENT },
    Op { name: "recurrent_slstm", about: "the same with the four gates of an sLSTM; elements B L d d",
        inputs: |s| recurrent(s, 4),
        run: |x, _| ops::recurrent(&x[0], &x[1], &RecurrentCell::SLstm), floor: |e| floors::recurrent(e, 4), ..RECURRENT },
    Op { name: "time_steps", about: "x (B, L, d) split into L tensors and stacked again; elements B L d",
        run: |x, _| Tensor::stack(&ops::time_steps(&x[0])?, 1),
        floor: |e| Passes::moves(e.channels(), 4.0, 8.0), ..POINTWISE },
    Op { name: "select_rows", about: "x (B, L, d), one row of sixteen; elements B L d",
        inputs: |s| vec![x(s), input([s.batch, s.len.div_ceil(16)], Fill::Classes(s.len))],
        run: |x, _| ops::select_rows(&x[0], &x[1]),
        // The gradient of all other rows is zero, which must be written as well.
        floor: |e| {
            let few = e.channels() / 16.0;
            Passes { forward: OpWork::words(2.0 * few), both: OpWork::words(3.0 * few + e.channels()) }
        }, ..SEQUENCE },
    Op { name: "pool_mean", run: |x, _| ops::pool(&x[0], Some(&x[1]), Pool::Mean), ..POOL },
    Op { name: "pool_last", run: |x, _| ops::pool(&x[0], Some(&x[1]), Pool::Last),
        floor: |e| Passes::moves(e.channels(), 2.0 / e.len as f64, 1.0), ..POOL },
    Op { name: "pool_max", run: |x, _| ops::pool(&x[0], Some(&x[1]), Pool::Max), ..POOL },
    // Ops on rows of d numbers.
    Op { name: "layer_norm", about: "x (B, L, d), over d; elements B L d",
        inputs: |s| vec![x(s), gain(s), bias(s.width)],
        run: |x, _| ops::layer_norm(&x[0], &x[1], &x[2], 1e-5), ..ROWS },
    Op { name: "linear", early: true, about: "x (B, L, d), to n features with a bias; elements B L d n",
        sizes: ShapeSet::Square, states: true,
        inputs: |s| vec![x(s), weight(s.states, s.width, 0.02), bias(s.states)],
        run: |x, _| ops::linear(&x[0], &x[1], Some(&x[2])), elements: OpShape::elements,
        floor: |e| Passes::dense(2.0 * e.elements(), e.tokens() * (e.width + e.states) as f64), below: PRODUCTS, ..POINTWISE },
    Op { name: "dropout", about: "x (B, L, d), p = 0.1; elements B L d",
        run: |x, _| ops::dropout(&x[0], DROPPED), below: DRAWS,
        floor: |e| Passes::moves(e.channels(), 2.0, 4.0), ..ROWS },
    Op { name: "cross_entropy", early: true, about: "hidden (B L, d), a head of n classes; elements B L n",
        sizes: ShapeSet::Labels, states: true,
        inputs: |s| {
            let rows = s.batch * s.len;
            let hidden = input([rows, s.width], Fill::Normal(1.0));
            vec![hidden, weight(s.states, s.width, 0.02), input([rows], Fill::Classes(s.states))]
        },
        run: |x, _| Ok(ops::cross_entropy(&x[0], &x[1], &x[2])?.loss),
        elements: |e| e.tokens() * e.states as f64,
        floor: |e| Passes::dense(2.0 * e.elements(), e.channels() + (e.states * e.width) as f64), below: PRODUCTS, ..POINTWISE },
    Op { name: "sigmoid", run: |x, _| ops::sigmoid(&x[0]), ..POINTWISE },
    Op { name: "softplus", run: |x, _| ops::softplus(&x[0]), ..POINTWISE },
    Op { name: "elu1", run: |x, _| ops::elu1(&x[0]), ..POINTWISE },
    Op { name: "gelu", run: |x, _| ops::gelu(&x[0]), ..POINTWISE },
    Op { name: "gelu_tanh", run: |x, _| ops::gelu_tanh(&x[0]), ..POINTWISE },
    Op { name: "silu", run: |x, _| ops::silu(&x[0]), ..POINTWISE },
    Op { name: "tanh", run: |x, _| ops::tanh(&x[0]), ..POINTWISE },
    Op { name: "add_layer_norm", early: true, about: "x, y (B, L, d), their sum and its norm; elements B L d",
        inputs: |s| vec![x(s), x(s), gain(s), bias(s.width)],
        run: |x, _| Ok(ops::add_layer_norm(&x[0], &x[1], &x[2], &x[3], 1e-5)?.1),
        floor: |e| Passes::moves(e.channels(), 4.0, 9.0), ..ROWS },
    Op { name: "mlp", early: true, run: |x, _| ops::mlp(&x[0], [&x[1], &x[2]], [&x[3], &x[4]], [None; 2]), ..MLP },
    Op { name: "mlp_dropped", about: "mlp with dropout, p = 0.1, of hidden and output; elements B L d n",
        run: |x, _| {
            let masks = [3, 4].map(|index| Some(Dropout { index, ..DROPPED }));
            ops::mlp(&x[0], [&x[1], &x[2]], [&x[3], &x[4]], masks)
        }, ..MLP },
    Op { name: "embedding", about: "tokens (B, L), a table of n rows of d; elements B L d",
        sizes: ShapeSet::Tokens, states: true,
        inputs: |s| vec![input([s.batch, s.len], Fill::Classes(s.states)), weight(s.states, s.width, 0.02)],
        run: |x, io| ops::embedding(&x[0], &x[1], None, None, io),
        floor: |e| Passes::moves(e.channels(), 2.0, 4.0), ..POINTWISE },
    Op { name: "softplus_biased", about: "x (B, L, 1), a bias a channel; elements B L d",
        inputs: |s| vec![input(s.sequence(1), Fill::Normal(1.0)), bias(s.width)],
        run: |x, _| ops::softplus_biased(&x[0], &x[1]),
        floor: |e| Passes::moves(e.channels(), 1.0, 2.0), ..ROWS },
    Op { name: "add_scaled", about: "x, y (B, L, d), a scale a channel; elements B L d",
        inputs: |s| vec![x(s), x(s), bias(s.width)],
        run: |x, _| ops::add_scaled(&x[0], &x[1], &x[2]),
        floor: |e| Passes::moves(e.channels(), 3.0, 6.0), ..ROWS },
    Op { name: "scale_heads", about: "x (B, L, d), a scale for each head of it; elements B L d", heads: true,
        inputs: |s| vec![x(s), input(s.sequence(s.heads), Fill::Uniform(0.5, 1.5))],
        run: |x, _| ops::scale_heads(&x[0], &x[1]), ..ROWS },
    Op { name: "rotary", about: "x (B, L, d), rotary in a quarter of each 64 channels; elements B L d",
        run: |x, _| {
            let width = x[0].dim(2)?;
            let heads = if width % 64 == 0 { width / 64 } else { 1 };
            ops::rotary(&x[0], heads, (width / heads / 8).max(1) * 2, 10_000.0, None)
        }, ..ROWS },
    Op { name: "gated_readout", about: "h, g and an output gate (B, L, d); elements B L d",
        inputs: |s| vec![x(s); 3],
        run: |x, _| ops::gated_readout(&x[0], &x[1], Some(&x[2])),
        floor: |e| Passes::moves(e.channels(), 4.0, 11.0), ..ROWS },
    Op { name: "silu_gate", about: "h and its gate (B, L, d); elements B L d",
        inputs: |s| vec![x(s); 2],
        run: |x, _| ops::silu_gate(&x[0], &x[1]),
        floor: |e| Passes::moves(e.channels(), 3.0, 8.0), ..ROWS },
    Op { name: "rms_norm", about: "x (B, L, d), over d; elements B L d",
        inputs: |s| vec![x(s), gain(s)],
        run: |x, _| ops::rms_norm(&x[0], &x[1], 0.0), ..ROWS },
    Op { name: "glu_sigmoid", run: |x, _| ops::glu(&x[0], Glu::Sigmoid), ..GLU },
    Op { name: "glu_gelu", run: |x, _| ops::glu(&x[0], Glu::Gelu), ..GLU },
    Op { name: "glu_gelu_tanh", run: |x, _| ops::glu(&x[0], Glu::GeluTanh), ..GLU },
    Op { name: "glu_silu", run: |x, _| ops::glu(&x[0], Glu::Silu), ..GLU },
    Op { name: "glu_bilinear", run: |x, _| ops::glu(&x[0], Glu::Bilinear), ..GLU },
    Op { name: "residual", about: "scale x + branch, all (B, L, d), p = 0.1; elements B L d",
        inputs: |s| vec![x(s), x(s), parameter([1], Fill::Uniform(0.5, 1.5))],
        run: |x, _| ops::residual(&x[0], &x[1], Some(DROPPED), Some(&x[2])), below: DRAWS,
        floor: |e| Passes::moves(e.channels(), 3.0, 7.0), ..ROWS },
];

/// An elementwise function. Forward reads and writes one number; backward reads input and gradient, and writes the
/// input's gradient.
const POINTWISE: Op = Op {
    name: "",
    about: "x (B, L, d); elements B L d",
    early: false,
    states: false,
    heads: false,
    inputs: |s| vec![x(s)],
    sizes: ShapeSet::Numbers,
    run: |x, _| Ok(x[0].clone()),
    elements: OpShape::channels,
    floor: |e| Passes::moves(e.channels(), 2.0, 5.0),
    below: MOVES,
};

/// Reason for ops that only move memory.
const MOVES: &str = "the floor counts each number that is read or written once, and no arithmetic: outputs are zeroed before \
                     they are written, a line of the cache is read before it is written, and a gradient of ones begins the \
                     backward pass";

/// Reason for dropout.
const DRAWS: &str =
    "the floor counts memory alone, and every number of a mask is drawn by ten rounds of a counter, forward and \
                     again backward";

/// Reason for chunked products.
const CHUNKS: &str =
    "between its products, which are of 64 rows and less, it copies, transposes and weighs what they read, which \
                      the floor does not count";

/// Reason for large products.
const PRODUCTS: &str = "its products have few columns, for each of which the kernel copies what it reads";

/// Reason for scans over a matrix state.
const WALKS: &str =
    "most instructions for an entry of the state are multiplications, for which a core has half of its pipes; \
                     the floor counts them as if as many additions went beside them";

const SEQUENCE: Op = Op { sizes: ShapeSet::Sequences, ..POINTWISE };

const ROWS: Op = Op { sizes: ShapeSet::Rows, ..POINTWISE };

const STATES: Op = Op {
    sizes: ShapeSet::States,
    states: true,
    elements: OpShape::elements,
    floor: floors::chunked,
    below: CHUNKS,
    ..POINTWISE
};

/// Queries and keys are positive, so that no sum of scores is close to zero.
const ATTENTION: Op = Op {
    heads: true,
    inputs: |s| {
        let keys = input(s.split(s.states), Fill::Uniform(0.05, 0.5));
        let values = input(s.split(s.width), Fill::Normal(1.0));
        vec![keys.clone(), keys, values]
    },
    ..STATES
};

/// Half of a sequence is pooled on average; its gradient is written everywhere.
const POOL: Op = Op {
    about: "x (B, L, d) up to lengths evenly below L; elements B L d",
    inputs: |s| vec![x(s), input([s.batch], Fill::Lengths(s.len))],
    floor: |e| Passes::moves(e.channels(), 0.5, 1.5),
    ..SEQUENCE
};

/// Decay and input scale of every channel come from gates, which are read in addition to the input.
const GATED: Op = Op {
    below:
        "the floor counts memory alone, and each gate takes an exponential and a division, forward and again backward",
    inputs: |s| gated(s, None),
    floor: |e| Passes::moves(e.channels(), 4.0, 12.0),
    ..SEQUENCE
};

/// A recurrent network of width d.
const RECURRENT: Op = Op {
    sizes: ShapeSet::Square,
    inputs: |s| recurrent(s, 1),
    elements: |e| e.channels() * e.width as f64,
    floor: |e| floors::recurrent(e, 1),
    below: "each step is a product of few rows, and a pass over the gates, that wait for the step before",
    ..POINTWISE
};

/// Two linear maps with an activation function between them.
const MLP: Op = Op {
    sizes: ShapeSet::Wide,
    about: "x (B, L, d) through n hidden features; elements B L d n",
    states: true,
    inputs: |s| {
        let (up, down) = (weight(s.states, s.width, 0.1), weight(s.width, s.states, 0.1));
        vec![x(s), up, bias(s.states), down, bias(s.width)]
    },
    elements: OpShape::elements,
    floor: |e| Passes::dense(4.0 * e.elements(), 2.0 * e.channels()),
    below: PRODUCTS,
    ..POINTWISE
};

/// Forward reads two numbers per number written; backward reads three and writes two.
const GLU: Op = Op {
    about: "x (B, L, 2 d), a function of one half times the other; elements B L d",
    inputs: |s| vec![input(s.sequence(2 * s.width), Fill::Normal(1.0))],
    floor: |e| Passes::moves(e.channels(), 3.0, 8.0),
    ..ROWS
};

/// Dropout of a tenth of the elements.
const DROPPED: Dropout = Dropout { p: 0.1, key: [1, 2], index: 3 };

fn x(s: &OpShape) -> InputSpec {
    input(s.sequence(s.width), Fill::Normal(1.0))
}

fn gain(s: &OpShape) -> InputSpec {
    parameter([s.width], Fill::Uniform(0.5, 1.5))
}

fn bias(width: usize) -> InputSpec {
    parameter([width], Fill::Normal(1.0))
}

fn weight(rows: usize, columns: usize, std: f64) -> InputSpec {
    parameter([rows, columns], Fill::Normal(std))
}

fn recurrent(s: &OpShape, gates: usize) -> Vec<InputSpec> {
    let all = gates * s.width;
    vec![input(s.sequence(all), Fill::Normal(1.0)), weight(all, s.width, (s.width as f64).powf(-0.5))]
}

fn gated(s: &OpShape, parameter: Option<InputSpec>) -> Vec<InputSpec> {
    let gates = input(s.sequence(2 * s.width), Fill::Normal(1.0));
    [gates, x(s)].into_iter().chain(parameter).collect()
}

fn scan(s: &OpShape, decays: InputSpec) -> Vec<InputSpec> {
    let spread = Fill::Normal((s.states as f64).powf(-0.5));
    let states = input(s.sequence(s.states), spread);
    // Range of Mamba's initial step sizes. No decay underflows, which would slow some implementations down.
    let steps = input(s.sequence(s.width), Fill::Uniform(0.001, 0.1));
    vec![x(s), steps, decays, states.clone(), states]
}

/// Returns q, k, v and g for a matrix state per head.
fn matrix_state(s: &OpShape) -> Vec<InputSpec> {
    let part = |width: usize, fill| input([s.batch, s.len, s.heads, width / s.heads], fill);
    let keys = part(s.states, Fill::Normal((s.states as f64).powf(-0.5)));
    let decays = part(s.states, Fill::Uniform(-0.1, -0.001));
    vec![keys.clone(), keys, part(s.width, Fill::Normal(1.0)), decays]
}

fn attention(x: &[Tensor], weights: Weights) -> Result<Tensor> {
    let [q, k, v] = [&x[0], &x[1], &x[2]];
    ops::causal_attention([q, k, v], q.dim(1)?, None, weights, None)
}
