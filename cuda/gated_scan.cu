// h_t = f_t h_{t-1} + s_t x_t for each channel, with the decay f and the input scale s computed
// from pre-activations in the same pass; returns all states, or those at selected times.
//
// Bound by memory bandwidth: 4 words per element forward (zf, zi, x; h), 8 backward (zf, zi, x, the
// state before, gh; three gradients), against 10 and more passes if gates were tensors. Gates are
// recomputed in the backward pass; states are read: they are the output or, if only some were
// selected, saved by the forward pass. Threads, pieces of time and loads in flight are those of
// linear_scan.cu; the gates of several steps are independent of each other and hide their latency.
#include "gates.cuh"
#include "scan.cuh"

// Steps whose loads are in flight, three and five words each.
constexpr int STEPS = 8, STEPS_BACK = 4;

// The null value of a time: after the last selected time, or before the first.
constexpr uint32_t NONE = 0xffffffffu;

#define SIZES uint32_t batch, uint32_t len, uint32_t width, uint32_t pieces, uint32_t steps

// The inputs; zf and zi are two rows of z.
template <class R, class T>
struct Inputs {
    Ptr<const T> z, x;
    Ptr<const float> parameter;
    float eps;
    uint32_t len, width;

    DEVICE R rule(Piece piece) const { return R::of(parameter, piece.channel, eps); }
    DEVICE float zf(Piece piece, uint32_t t) const { return to_float(z[piece.at(t, len, width, 2)]); }
    DEVICE float zi(Piece piece, uint32_t t) const {
        return to_float(z[piece.at(t, len, width, 2) + width]);
    }
    DEVICE float drive(Piece piece, uint32_t t) const {
        return to_float(x[piece.at(t, len, width, 1)]);
    }
};

struct Row {
    float zf, zi, x;
};
struct RowBack {
    float zf, zi, x, before, gh;
};
struct Pair {
    float zf, gh;
};

// The ascending selected times of a sequence; null for all times.
struct Wanted {
    Ptr<const uint32_t> times;
    uint32_t count;

    DEVICE bool all() const { return times == nullptr; }
    DEVICE uint32_t at(uint32_t row) const { return row < count ? uint32_t(times[row]) : NONE; }
    // The first row at time t or later.
    DEVICE uint32_t from(uint32_t t) const {
        uint32_t low = 0, high = count;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (at(middle) < t) low = middle + 1;
            else high = middle;
        }
        return low;
    }
};

DEVICE Wanted wanted_of(Ptr<const uint32_t> times, uint32_t rows, Piece piece) {
    if (times == nullptr) return {nullptr, 0};
    return {times + piece.sequence * rows, rows};
}

// `h`: all states, `picked`: those at `times`; either may be null.
template <class R, class T>
DEVICE void forward(Inputs<R, T> in, Ptr<const float> starts, Ptr<const uint32_t> times,
                    uint32_t rows, Ptr<T> h, Ptr<T> picked, SIZES) {
    Piece piece = piece_of_thread(len, width, pieces, steps);
    if (piece.sequence >= batch) return;
    Wanted wanted = wanted_of(times, rows, piece);
    R rule = in.rule(piece);
    uint32_t row = wanted.from(piece.from), due = wanted.at(row);
    // states after the last selected one are not needed
    if (!wanted.all()) piece.to = min(piece.to, wanted.at(rows - 1) + 1);
    float state = received<Real>(starts, piece, width).re;
    walk<STEPS>(
        piece.from, piece.to,
        [&](uint32_t t) { return Row{in.zf(piece, t), in.zi(piece, t), in.drive(piece, t)}; },
        [&](uint32_t t, Row now) {
            Gates gates = rule.gates(now.zf, now.zi);
            state = gates.f * state + gates.s * now.x;
            if (h != nullptr) h[piece.at(t, len, width, 1)] = from_float<T>(state);
#pragma unroll 1
            while (due == t) {
                picked[piece.at(row, rows, width, 1)] = from_float<T>(state);
                due = wanted.at(++row);
            }
        });
}

// The state at the end of each piece but the last.
template <class R, class T>
DEVICE void forward_lines(Inputs<R, T> in, Ptr<float> lines, SIZES) {
    Piece piece = piece_of_thread(len, width, pieces, steps);
    if (piece.sequence >= batch || piece.index + 1 == pieces) return;
    R rule = in.rule(piece);
    Line<Real> line = {{1.0f}, {0.0f}};
    walk<STEPS>(
        piece.from, piece.to,
        [&](uint32_t t) { return Row{in.zf(piece, t), in.zi(piece, t), in.drive(piece, t)}; },
        [&](uint32_t, Row now) {
            Gates gates = rule.gates(now.zf, now.zi);
            line = {{gates.f * line.product.re}, {gates.f * line.end.re + gates.s * now.x}};
        });
    line.store(lines, piece, width);
}

// The gradients that arrive at states, from the last to the first.
template <class T>
struct Arriving {
    Ptr<const T> gh;
    Wanted wanted;
    uint32_t rows, width, left, due;

    DEVICE Arriving(Ptr<const T> gh, Ptr<const uint32_t> times, uint32_t rows, uint32_t width, Piece piece)
        : gh(gh), wanted(wanted_of(times, rows, piece)), rows(rows), width(width), left(0), due(NONE) {
        if (wanted.all()) return;
        left = wanted.from(piece.to);
        due = left > 0 ? wanted.at(left - 1) : NONE;
    }
    // The part of the gradient that can be loaded ahead.
    DEVICE float ahead(Piece piece, uint32_t t, uint32_t len) const {
        return wanted.all() ? to_float(gh[piece.at(t, len, width, 1)]) : 0.0f;
    }
    // The remaining part of the gradient, for descending t.
    DEVICE float rest(Piece piece, uint32_t t) {
        float sum = 0.0f;
#pragma unroll 1
        while (due == t) {
            --left;
            sum += to_float(gh[piece.at(left, rows, width, 1)]);
            due = left > 0 ? wanted.at(left - 1) : NONE;
        }
        return sum;
    }
};

// `h`: all states. The gradient of the channel's coefficient is summed over each piece.
template <class R, class T>
DEVICE void backward(Inputs<R, T> in, Ptr<const T> h, Ptr<const T> gh, Ptr<const float> starts,
                     Ptr<const uint32_t> times, uint32_t rows, Ptr<T> gz, Ptr<T> gx,
                     Ptr<float> numbers, SIZES) {
    Piece piece = piece_of_thread(len, width, pieces, steps);
    if (piece.sequence >= batch) return;
    R rule = in.rule(piece);
    Arriving<T> arriving(gh, times, rows, width, piece);
    // states after the last selected one were never computed, and have no gradient
    uint32_t end = arriving.wanted.all() ? piece.to : min(piece.to, arriving.wanted.at(rows - 1) + 1);
    for (uint32_t t = max(end, piece.from); t < piece.to; ++t) {
        uint64_t at = piece.at(t, len, width, 2);
        gz[at] = from_float<T>(0.0f);
        gz[at + width] = from_float<T>(0.0f);
        gx[piece.at(t, len, width, 1)] = from_float<T>(0.0f);
    }
    float carry = received<Real>(starts, piece, width).re, sum = 0.0f;
    walk_back<STEPS_BACK>(
        piece.from, max(end, piece.from),
        [&](uint32_t t) {
            float before = 0.0f;
            if (t > 0) before = to_float(h[piece.at(t - 1, len, width, 1)]);
            return RowBack{in.zf(piece, t), in.zi(piece, t), in.drive(piece, t), before,
                           arriving.ahead(piece, t, len)};
        },
        [&](uint32_t t, RowBack now) {
            float g = now.gh + arriving.rest(piece, t) + carry;
            Gates gates = rule.gates(now.zf, now.zi);
            GateGrads grads = rule.back(now.zf, now.zi, gates, g * now.before, g * now.x);
            uint64_t at = piece.at(t, len, width, 2);
            gz[at] = from_float<T>(grads.zf);
            gz[at + width] = from_float<T>(grads.zi);
            gx[piece.at(t, len, width, 1)] = from_float<T>(g * gates.s);
            carry = g * gates.f;
            sum += grads.number;
        });
    if (R::LEARNT) numbers[piece.slot(width, 1)] = sum;
}

// The carry at the beginning of each piece but the first.
template <class R, class T>
DEVICE void backward_lines(Inputs<R, T> in, Ptr<const T> gh, Ptr<const uint32_t> times,
                           uint32_t rows, Ptr<float> lines, SIZES) {
    Piece piece = piece_of_thread(len, width, pieces, steps);
    if (piece.sequence >= batch || piece.index == 0) return;
    R rule = in.rule(piece);
    Arriving<T> arriving(gh, times, rows, width, piece);
    Line<Real> line = {{1.0f}, {0.0f}};
    walk_back<STEPS_BACK>(
        piece.from, piece.to,
        [&](uint32_t t) { return Pair{in.zf(piece, t), arriving.ahead(piece, t, len)}; },
        [&](uint32_t t, Pair now) {
            float f = rule.decay(now.zf), g = now.gh + arriving.rest(piece, t);
            line = {{f * line.product.re}, {f * (g + line.end.re)}};
        });
    line.store(lines, piece, width);
}

#define INPUTS(T) Global<const T> z, Global<const T> x, Global<const float> parameter, float eps

#define SCANS(name, R, io, T)                                                                     \
    KERNEL(name##_forward_##io, SCAN_THREADS, INPUTS(T), Global<const float> starts,              \
           Global<const uint32_t> times, uint32_t rows, Global<T> h, Global<T> picked, SIZES) {   \
        forward<R, T>({z, x, parameter, eps, len, width}, starts, times, rows, h, picked, batch,  \
                      len, width, pieces, steps);                                                 \
    }                                                                                             \
    KERNEL(name##_forward_lines_##io, SCAN_THREADS, INPUTS(T), Global<float> lines, SIZES) {      \
        forward_lines<R, T>({z, x, parameter, eps, len, width}, lines, batch, len, width, pieces, \
                            steps);                                                               \
    }                                                                                             \
    KERNEL(name##_backward_##io, SCAN_THREADS, INPUTS(T), Global<const T> h, Global<const T> gh,  \
           Global<const float> starts, Global<const uint32_t> times, uint32_t rows, Global<T> gz, \
           Global<T> gx, Global<float> numbers, SIZES) {                                          \
        backward<R, T>({z, x, parameter, eps, len, width}, h, gh, starts, times, rows, gz, gx,    \
                       numbers, batch, len, width, pieces, steps);                                \
    }                                                                                             \
    KERNEL(name##_backward_lines_##io, SCAN_THREADS, INPUTS(T), Global<const T> gh,               \
           Global<const uint32_t> times, uint32_t rows, Global<float> lines, SIZES) {             \
        backward_lines<R, T>({z, x, parameter, eps, len, width}, gh, times, rows, lines, batch,   \
                             len, width, pieces, steps);                                          \
    }

#define RULES(io, T)                       \
    SCANS(sigmoid, SigmoidGates, io, T)    \
    SCANS(reversed, ReversedGates, io, T)  \
    SCANS(rg_lru, RgLruGates, io, T)

RULES(f32, float)
RULES(bf16, bf16)

// Converts the gradients of the channels' coefficients to that of the parameter; one block, as
// alpha determines all coefficients.
KERNEL(reversed_learn, 256, Global<const float>, Global<const float> numbers, Global<float> grad,
       uint32_t width) {
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < width; i += 256) sum += numbers[i];
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) grad[0] = sum;
}

KERNEL(rg_lru_learn, 256, Global<const float> lambda, Global<const float> numbers,
       Global<float> grad, uint32_t width) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < width) grad[i] = -8.0f * sigmoid(lambda[i]) * numbers[i];
}
