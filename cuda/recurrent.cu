// One step of recurrent networks whose gates read the previous output: the product of y with U, and the cell, in either
// direction. A launch is one step of all sequences, since every output depends on all of the step before.
//
// Bound by the latency of launches and of the loads of their tiles for narrow layers, and by shared memory for wide
// ones: a thread loads 8 floats of y and U for each 16 multiply-adds forward, 20 for 16 backward. A block has 32
// sequences and 16 channels with all their gates; a thread has four sequences of one channel, which share every element
// of U that it loads. Rows of shared memory are padded by four floats, so that the 16 channels of a warp read from all
// banks.
#include "pointwise.cuh"

constexpr int ROWS = RECURRENT_ROWS;      // sequences of a block
constexpr int CHANNELS = RECURRENT_CHANNELS;  // of a block
constexpr int EACH = 4;                   // sequences of a thread
constexpr int THREADS = RECURRENT_THREADS;
static_assert(THREADS == ROWS / EACH * CHANNELS);
constexpr int BLOCKS = 6;   // that fit on a multiprocessor
constexpr int DEPTH = 32;  // terms of the product that a block shares at one time
constexpr int PADDED = DEPTH + 4;
constexpr int GATES = 4, STATES = 3;  // at most; a cell with fewer ignores the others

struct OfGates {
    float v[GATES];
};
struct OfStates {
    float v[STATES];
};

// What a step keeps for the backward pass, y, and the states after it.
struct After {
    OfGates kept;
    float y;
    OfStates states;
};

// The gradients of W u, of U y, and of the states before a step.
struct Back {
    OfGates wu, uy;
    OfStates states;
};

template <class T>
DEVICE float rounded(float x) { return to_float(from_float<T>(x)); }

// Pre-activations, rounded as the backward pass will read them.
template <class T>
DEVICE OfGates sum(OfGates a, OfGates b) {
    OfGates all;
#pragma unroll
    for (int g = 0; g < GATES; ++g) all.v[g] = rounded<T>(a.v[g] + b.v[g]);
    return all;
}

DEVICE float through_sigmoid(float grad, float s) { return grad * Sigmoid::slope(s, s); }
DEVICE float through_tanh(float grad, float y) { return grad * Tanh::slope(y, y); }

// The cells, as in src/ops/recurrent/rules.rs; but y, which is the state of a GRU, is one of its states here, in f32.
// `step` has T for the type of what is kept.

template <int GATES_OF_CELL, int STATES_OF_CELL, bool GRADIENTS_APART = false>
struct Cell {
    static constexpr int OWN_GATES = GATES_OF_CELL, OWN_STATES = STATES_OF_CELL;
    static constexpr bool APART = GRADIENTS_APART;
    static DEVICE float initial(int) { return 0.0f; }
};

// y = F(a): a linear network with F = Identity, Elman's with Tanh.
template <class F>
struct OneGate : Cell<1, 0> {
    template <class T>
    static DEVICE After step(OfGates wu, OfGates uy, float, OfStates states) {
        OfGates kept = sum<T>(wu, uy);
        return {kept, F::value(kept.v[0]), states};
    }
    static DEVICE Back back(OfGates kept, OfGates, OfStates, OfStates, float gy, OfStates states) {
        float a = kept.v[0];
        OfGates g = {{gy * F::slope(a, F::value(a)), 0.0f, 0.0f, 0.0f}};
        return {g, g, states};
    }
};

struct Gru : Cell<3, 1, true> {
    template <class T>
    static DEVICE After step(OfGates wu, OfGates uy, float bias, OfStates states) {
        OfGates kept = sum<T>({{wu.v[0], wu.v[1], bias, 0.0f}}, uy);
        float n = tanhf(wu.v[2] + sigmoid(kept.v[0]) * kept.v[2]);
        float y = n + sigmoid(kept.v[1]) * (states.v[0] - n);
        return {kept, y, {{y, 0.0f, 0.0f}}};
    }
    static DEVICE Back back(OfGates kept, OfGates wu, OfStates before, OfStates, float gy, OfStates states) {
        float r = sigmoid(kept.v[0]), z = sigmoid(kept.v[1]), n = tanhf(wu.v[2] + r * kept.v[2]);
        float g = gy + states.v[0], gn = through_tanh(g - g * z, n);
        float gr = through_sigmoid(gn * kept.v[2], r), gz = through_sigmoid(g * (before.v[0] - n), z);
        return {{{gr, gz, gn, 0.0f}}, {{gr, gz, gn * r, 0.0f}}, {{g * z, 0.0f, 0.0f}}};
    }
};

struct Lstm : Cell<4, 1> {
    template <class T>
    static DEVICE After step(OfGates wu, OfGates uy, float, OfStates states) {
        OfGates kept = sum<T>(wu, uy);
        float x = sigmoid(kept.v[1]) * states.v[0] + sigmoid(kept.v[2]) * tanhf(kept.v[0]);
        return {kept, sigmoid(kept.v[3]) * tanhf(x), {{x, 0.0f, 0.0f}}};
    }
    static DEVICE Back back(OfGates kept, OfGates, OfStates before, OfStates after, float gy, OfStates states) {
        float z = tanhf(kept.v[0]), f = sigmoid(kept.v[1]), i = sigmoid(kept.v[2]), o = sigmoid(kept.v[3]);
        float y = tanhf(after.v[0]), gx = through_tanh(gy * o, y) + states.v[0];
        OfGates g = {{through_tanh(gx * i, z), through_sigmoid(gx * before.v[0], f), through_sigmoid(gx * z, i),
                      through_sigmoid(gy * y, o)}};
        return {g, g, {{gx * f, 0.0f, 0.0f}}};
    }
};

struct SLstm : Cell<4, 3> {
    static DEVICE float initial(int state) { return state == 2 ? -1e30f : 0.0f; }
    static DEVICE float log_f(OfGates kept, OfStates before) { return before.v[2] - softplus(-kept.v[1]); }
    template <class T>
    static DEVICE After step(OfGates wu, OfGates uy, float, OfStates states) {
        OfGates kept = sum<T>(wu, uy);
        float log_f = SLstm::log_f(kept, states), m = fmaxf(log_f, kept.v[2]);
        float f = exp2_fast(LOG2E * (log_f - m)), i = exp2_fast(LOG2E * (kept.v[2] - m));
        float c = f * states.v[0] + i * tanhf(kept.v[0]), n = f * states.v[1] + i;
        return {kept, sigmoid(kept.v[3]) * (c / n), {{c, n, m}}};
    }
    static DEVICE Back back(OfGates kept, OfGates, OfStates before, OfStates after, float gy, OfStates states) {
        float z = tanhf(kept.v[0]), o = sigmoid(kept.v[3]), m = after.v[2], n = after.v[1], ratio = after.v[0] / n;
        float f = exp2_fast(LOG2E * (log_f(kept, before) - m)), i = exp2_fast(LOG2E * (kept.v[2] - m));
        float gc = states.v[0] + gy * o / n, gn = states.v[1] - gy * o * ratio / n;
        float gf = gc * before.v[0] + gn * before.v[1], gi = gc * z + gn;
        OfGates g = {{through_tanh(gc * i, z), gf * f * sigmoid(-kept.v[1]), gi * i, through_sigmoid(gy * ratio, o)}};
        return {g, g, {{gc * f, gn * f, 0.0f}}};
    }
};

// The sizes of a launch, and what this thread has of it.
struct Place {
    uint32_t batch, len, width, t;

    DEVICE uint32_t lane() const { return threadIdx.x % CHANNELS; }
    DEVICE uint32_t first_row() const { return blockIdx.x * ROWS; }
    DEVICE uint32_t first_channel() const { return blockIdx.y * CHANNELS; }
    DEVICE uint32_t channel() const { return first_channel() + lane(); }
    DEVICE uint32_t row(int i) const { return first_row() + threadIdx.x / CHANNELS * EACH + i; }
    // The offset of vector `index` of `vectors`, in this channel, of sequence `row` at a time.
    DEVICE uint64_t at(uint32_t row, uint32_t time, uint32_t index, uint32_t vectors) const {
        return ((uint64_t(row) * len + time) * vectors + index) * width + channel();
    }
};

// Loads terms `first` to `first` + DEPTH of the rows `x` (batch, len, terms) at a time, zero outside.
template <class T>
DEVICE void share_rows(Ptr<float> to, Ptr<const T> x, Place at, uint32_t time, uint32_t first, uint32_t terms) {
    for (uint32_t i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
        uint32_t row = at.first_row() + i / DEPTH, term = first + i % DEPTH;
        float value = 0.0f;
        if (row < at.batch && term < terms) value = to_float(x[(uint64_t(row) * at.len + time) * terms + term]);
        to[i / DEPTH * PADDED + i % DEPTH] = value;
    }
}

// sums[i][g] += sum over the shared terms of row i times vector g of this thread's channel.
template <int VECTORS>
DEVICE void multiply(float (&sums)[EACH][VECTORS], Ptr<float> rows, Ptr<float> factors, Place at) {
    uint32_t row = threadIdx.x / CHANNELS * EACH;
    for (uint32_t term = 0; term < DEPTH; term += 4) {
        Four left[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) left[i] = load4(rows + ((row + i) * PADDED + term));
#pragma unroll
        for (int g = 0; g < VECTORS; ++g) {
            Four right = load4(factors + ((g * CHANNELS + at.lane()) * PADDED + term));
#pragma unroll
            for (int i = 0; i < EACH; ++i)
#pragma unroll
                for (int k = 0; k < 4; ++k) sums[i][g] += left[i].v[k] * right.v[k];
        }
    }
}

// The states of a sequence after the step at `time`, of all steps or of the only one that is kept; the initial ones
// before the first.
template <class C>
DEVICE OfStates states_at(Ptr<const float> states, Place at, uint32_t row, uint32_t time, bool is_first) {
    OfStates found = {{0.0f, 0.0f, 0.0f}};
#pragma unroll
    for (int i = 0; i < C::OWN_STATES; ++i) {
        found.v[i] = C::initial(i);
        if (!is_first) found.v[i] = states[at.at(row, time, i, C::OWN_STATES)];
    }
    return found;
}

template <class C, class T>
DEVICE OfGates gates_at(Ptr<const T> x, Place at, uint32_t row) {
    OfGates found = {{0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
    for (int g = 0; g < C::OWN_GATES; ++g) found.v[g] = to_float(x[at.at(row, at.t, g, C::OWN_GATES)]);
    return found;
}

template <class C, class T>
DEVICE void store_gates(Ptr<T> to, Place at, uint32_t row, OfGates x) {
#pragma unroll
    for (int g = 0; g < C::OWN_GATES; ++g) to[at.at(row, at.t, g, C::OWN_GATES)] = from_float<T>(x.v[g]);
}

// wu and kept: (batch, len, gates, d); states: (batch, len, states, d); u: (gates, d, d). `before` gets y_{t-1}. Without
// a backward pass `before` and `kept` are null, and `states` is (batch, states, d), of the last step.
template <class C, class T>
DEVICE void forward(Ptr<const T> wu, Ptr<const float> u, Ptr<const float> bias, Ptr<T> y, Ptr<T> before, Ptr<T> kept,
                    Ptr<float> states, Place at) {
    SHARED(float, rows, ROWS * PADDED);
    SHARED(float, factors, C::OWN_GATES * CHANNELS * PADDED);
    Ptr<const T> ys = y;
    Ptr<const float> known = states;
    float sums[EACH][C::OWN_GATES] = {};
    uint32_t width = at.width, terms = at.t > 0 ? width : 0;
    for (uint32_t first = 0; first < terms; first += DEPTH) {
        __syncthreads();
        share_rows<T>(rows, ys, at, at.t - 1, first, width);
        for (uint32_t i = threadIdx.x; i < C::OWN_GATES * CHANNELS * DEPTH; i += THREADS) {
            uint32_t vector = i / DEPTH, channel = at.first_channel() + vector % CHANNELS, term = first + i % DEPTH;
            float value = 0.0f;
            if (channel < width && term < width)
                value = u[(uint64_t(vector / CHANNELS) * width + channel) * width + term];
            factors[vector * PADDED + i % DEPTH] = value;
        }
        __syncthreads();
        multiply<C::OWN_GATES>(sums, rows, factors, at);
    }
    if (at.channel() >= width) return;
    float of_bias = 0.0f;
    if (bias != nullptr) of_bias = bias[at.channel()];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        uint32_t row = at.row(i);
        if (row >= at.batch) continue;
        OfGates uy = {{0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
        for (int g = 0; g < C::OWN_GATES; ++g) uy.v[g] = sums[i][g];
        Place of_states = at;
        if (kept == nullptr) of_states.len = 1;
        uint32_t now = kept == nullptr ? 0 : at.t, old = kept == nullptr ? 0 : at.t - 1;
        OfStates last = states_at<C>(known, of_states, row, old, at.t == 0);
        After next = C::template step<T>(gates_at<C, T>(wu, at, row), uy, of_bias, last);
        y[at.at(row, at.t, 0, 1)] = from_float<T>(next.y);
        if (before != nullptr) {
            T y_before = from_float<T>(0.0f);
            if (at.t > 0) y_before = ys[at.at(row, at.t - 1, 0, 1)];
            before[at.at(row, at.t, 0, 1)] = y_before;
        }
        if (kept != nullptr) store_gates<C, T>(kept, at, row, next.kept);
#pragma unroll
        for (int s = 0; s < C::OWN_STATES; ++s) states[of_states.at(row, now, s, C::OWN_STATES)] = next.states.v[s];
    }
}

// carry: (batch, states, d), the gradients of the states after step t, replaced by those of the states before it. guy:
// as gwu, for the gradient of U y where it is not that of W u.
template <class C, class T>
DEVICE void backward(Ptr<const T> wu, Ptr<const float> u, Ptr<const T> kept, Ptr<const float> states, Ptr<const T> gy,
                     Ptr<T> gwu, Ptr<T> guy, Ptr<float> carry, Place at) {
    SHARED(float, rows, ROWS * PADDED);
    SHARED(float, factors, CHANNELS * PADDED);
    Ptr<const T> later = C::APART ? guy : gwu;
    float sums[EACH][1] = {};
    uint32_t width = at.width, gates = C::OWN_GATES * width;
    bool is_last = at.t + 1 == at.len;
    uint32_t terms = is_last ? 0 : gates;
    for (uint32_t first = 0; first < terms; first += DEPTH) {
        __syncthreads();
        share_rows<T>(rows, later, at, at.t + 1, first, gates);
        for (uint32_t i = threadIdx.x; i < CHANNELS * DEPTH; i += THREADS) {
            uint32_t lane = i % CHANNELS, channel = at.first_channel() + lane, term = first + i / CHANNELS;
            float value = 0.0f;
            if (channel < width && term < gates) value = u[uint64_t(term) * width + channel];
            factors[lane * PADDED + i / CHANNELS] = value;
        }
        __syncthreads();
        multiply<1>(sums, rows, factors, at);
    }
    if (at.channel() >= width) return;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        uint32_t row = at.row(i);
        if (row >= at.batch) continue;
        float g = to_float(gy[at.at(row, at.t, 0, 1)]) + sums[i][0];
        OfStates grads = {{0.0f, 0.0f, 0.0f}};
#pragma unroll
        for (int s = 0; s < C::OWN_STATES; ++s)
            if (!is_last) grads.v[s] = carry[(uint64_t(row) * C::OWN_STATES + s) * width + at.channel()];
        OfStates old = states_at<C>(states, at, row, at.t - 1, at.t == 0);
        OfStates now = states_at<C>(states, at, row, at.t, false);
        OfGates inputs = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (C::APART) inputs = gates_at<C, T>(wu, at, row);
        Back back = C::back(gates_at<C, T>(kept, at, row), inputs, old, now, g, grads);
        store_gates<C, T>(gwu, at, row, back.wu);
        if (C::APART) store_gates<C, T>(guy, at, row, back.uy);
#pragma unroll
        for (int s = 0; s < C::OWN_STATES; ++s)
            carry[(uint64_t(row) * C::OWN_STATES + s) * width + at.channel()] = back.states.v[s];
    }
}

#define RECURRENT(name, C, io, T)                                                                                 \
    KERNEL_FITTING(name##_forward_##io, THREADS, BLOCKS, Global<const T> wu, Global<const float> u,               \
                   Global<const float> bias, Global<T> y, Global<T> before, Global<T> kept, Global<float> states, \
                   uint32_t batch, uint32_t len, uint32_t width, uint32_t t) {                                    \
        forward<C, T>(wu, u, bias, y, before, kept, states, {batch, len, width, t});                              \
    }                                                                                                             \
    KERNEL_FITTING(name##_backward_##io, THREADS, BLOCKS, Global<const T> wu, Global<const float> u,              \
                   Global<const T> kept, Global<const float> states, Global<const T> gy, Global<T> gwu,           \
                   Global<T> guy, Global<float> carry, uint32_t batch, uint32_t len, uint32_t width,              \
                   uint32_t t) {                                                                                  \
        backward<C, T>(wu, u, kept, states, gy, gwu, guy, carry, {batch, len, width, t});                         \
    }

#define CELLS(io, T)                              \
    RECURRENT(identity, OneGate<Identity>, io, T) \
    RECURRENT(tanh, OneGate<Tanh>, io, T)         \
    RECURRENT(gru, Gru, io, T)                    \
    RECURRENT(lstm, Lstm, io, T)                  \
    RECURRENT(slstm, SLstm, io, T)

CELLS(f32, float)
CELLS(bf16, bf16)
