// h_t = a_t h_{t-1} + x_t for each channel, real or complex.
//
// Bound by memory bandwidth: 3 words per element forward, 5 backward. A scan needs loads in flight:
// with 64 to 128 bytes per thread, 32,768 channels have 2 to 4 MB in flight, about what an H200
// needs. Fewer channels process pieces of time in two passes (scan.cuh), which read inputs twice: 5
// and 7 words, the second time from the cache up to some 20 MB.
#include "scan.cuh"

template <class V>
struct Two {
    V a, x;
};
template <class V>
struct Three {
    V a, gh, before;
};

// Steps whose loads are in flight.
template <class V, class T>
constexpr int STEPS = 32 / sizeof(T) / V::PARTS;

#define SIZES uint32_t batch, uint32_t len, uint32_t width, uint32_t pieces, uint32_t steps

template <class V, class T>
DEVICE void forward(Ptr<const T> a, Ptr<const T> x, Ptr<const float> starts, Ptr<T> h, SIZES) {
    Piece piece = piece_of_thread(len, width, pieces, steps);
    if (piece.sequence >= batch) return;
    V state = received<V>(starts, piece, width);
    walk<STEPS<V, T>>(
        piece.from, piece.to,
        [&](uint32_t t) {
            uint64_t at = piece.at(t, len, width, V::PARTS);
            return Two<V>{V::template load<T>(a, at, width), V::template load<T>(x, at, width)};
        },
        [&](uint32_t t, Two<V> now) {
            state = now.x + now.a * state;
            state.template store<T>(h, piece.at(t, len, width, V::PARTS), width);
        });
}

// The state at the end of each piece but the last.
template <class V, class T>
DEVICE void forward_lines(Ptr<const T> a, Ptr<const T> x, Ptr<float> lines, SIZES) {
    Piece piece = piece_of_thread(len, width, pieces, steps);
    if (piece.sequence >= batch || piece.index + 1 == pieces) return;
    Line<V> line = {V::of(1.0f), V::of(0.0f)};
    walk<STEPS<V, T>>(
        piece.from, piece.to,
        [&](uint32_t t) {
            uint64_t at = piece.at(t, len, width, V::PARTS);
            return Two<V>{V::template load<T>(a, at, width), V::template load<T>(x, at, width)};
        },
        [&](uint32_t, Two<V> now) { line = {now.a * line.product, now.x + now.a * line.end}; });
    line.store(lines, piece, width);
}

// The adjoint: carry = conj(a_t) gx_t passes from step t to the previous one, with gx_t = gh_t +
// carry.
template <class V, class T>
DEVICE void backward(Ptr<const T> a, Ptr<const T> h, Ptr<const T> gh, Ptr<const float> starts,
                     Ptr<T> ga, Ptr<T> gx, SIZES) {
    Piece piece = piece_of_thread(len, width, pieces, steps);
    if (piece.sequence >= batch) return;
    V carry = received<V>(starts, piece, width);
    walk_back<STEPS<V, T> / 2>(
        piece.from, piece.to,
        [&](uint32_t t) {
            uint64_t at = piece.at(t, len, width, V::PARTS);
            V before = V::of(0.0f);
            if (t > 0) before = V::template load<T>(h, at - V::PARTS * width, width);
            return Three<V>{V::template load<T>(a, at, width), V::template load<T>(gh, at, width),
                            before};
        },
        [&](uint32_t t, Three<V> now) {
            uint64_t at = piece.at(t, len, width, V::PARTS);
            V g = now.gh + carry;
            g.template store<T>(gx, at, width);
            (now.before.conjugate() * g).template store<T>(ga, at, width);
            carry = now.a.conjugate() * g;
        });
}

// The carry at the beginning of each piece but the first.
template <class V, class T>
DEVICE void backward_lines(Ptr<const T> a, Ptr<const T> gh, Ptr<float> lines, SIZES) {
    Piece piece = piece_of_thread(len, width, pieces, steps);
    if (piece.sequence >= batch || piece.index == 0) return;
    Line<V> line = {V::of(1.0f), V::of(0.0f)};
    walk_back<STEPS<V, T>>(
        piece.from, piece.to,
        [&](uint32_t t) {
            uint64_t at = piece.at(t, len, width, V::PARTS);
            return Two<V>{V::template load<T>(a, at, width), V::template load<T>(gh, at, width)};
        },
        [&](uint32_t, Two<V> now) {
            V a = now.a.conjugate();
            line = {a * line.product, a * (now.x + line.end)};
        });
    line.store(lines, piece, width);
}

// The state at which each piece starts, from the first piece on or, if `back`, from the last.
template <class V>
DEVICE void join(Ptr<const float> lines, Ptr<float> starts, uint32_t batch, uint32_t width,
                 uint32_t pieces, uint32_t back) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t sequence = i / width;
    if (sequence >= batch) return;
    Piece piece = {sequence, 0, i % width, 0, 0, 0};
    auto turn = [&](uint32_t index) {
        piece.row = sequence * pieces + (back ? pieces - 1 - index : index);
    };
    V state = V::of(0.0f);
    walk<4>(
        0, pieces - 1,
        [&](uint32_t index) {
            turn(index);
            return Line<V>::load(lines, piece, width);
        },
        [&](uint32_t index, Line<V> now) {
            turn(index);
            state.template store<float>(starts, piece.slot(width, V::PARTS), width);
            state = now.end + now.product * state;
        });
    turn(pieces - 1);
    state.template store<float>(starts, piece.slot(width, V::PARTS), width);
}

#define SCANS(name, V, io, T)                                                                     \
    KERNEL(name##_forward_##io, SCAN_THREADS, Global<const T> a, Global<const T> x,               \
           Global<const float> starts, Global<T> h, SIZES) {                                      \
        forward<V, T>(a, x, starts, h, batch, len, width, pieces, steps);                         \
    }                                                                                             \
    KERNEL(name##_forward_lines_##io, SCAN_THREADS, Global<const T> a, Global<const T> x,         \
           Global<float> lines, SIZES) {                                                          \
        forward_lines<V, T>(a, x, lines, batch, len, width, pieces, steps);                       \
    }                                                                                             \
    KERNEL(name##_backward_##io, SCAN_THREADS, Global<const T> a, Global<const T> h,              \
           Global<const T> gh, Global<const float> starts, Global<T> ga, Global<T> gx, SIZES) {   \
        backward<V, T>(a, h, gh, starts, ga, gx, batch, len, width, pieces, steps);               \
    }                                                                                             \
    KERNEL(name##_backward_lines_##io, SCAN_THREADS, Global<const T> a, Global<const T> gh,       \
           Global<float> lines, SIZES) {                                                          \
        backward_lines<V, T>(a, gh, lines, batch, len, width, pieces, steps);                     \
    }

SCANS(linear_scan, Real, f32, float)
SCANS(linear_scan, Real, bf16, bf16)
SCANS(complex_scan, Complex, f32, float)
SCANS(complex_scan, Complex, bf16, bf16)

#define JOIN(name, V)                                                                        \
    KERNEL(name##_join, SCAN_THREADS, Global<const float> lines, Global<float> starts,       \
           uint32_t batch, uint32_t width, uint32_t pieces, uint32_t back) {                 \
        join<V>(lines, starts, batch, width, pieces, back);                                  \
    }

JOIN(linear_scan, Real)
JOIN(complex_scan, Complex)
