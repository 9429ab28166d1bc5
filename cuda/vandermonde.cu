// The kernel of a diagonal system: y_l of a channel = Re sum over its states of w a^l, and its gradients.
//
// Bound by arithmetic: eight operations for each state and tap, and one word written per tap. A thread has a run of
// sixteen consecutive taps. The first power of each state's run is a product, in f64, of the squares a, a^2, a^4 and so
// on, which the block shares; the following powers are multiplied by a in f32. For the gradients a block has one state
// of one channel, and its threads have equal runs of the taps.
#include "complex.cuh"

constexpr int THREADS = VANDERMONDE_THREADS;
constexpr int RUN = VANDERMONDE_RUN;     // taps of a thread
constexpr int STATES = 16;  // whose squares a block shares at one time
constexpr int SQUARES = 32; // exponents have as many bits

struct Wide {
    double re, im;

    DEVICE Wide operator*(Wide x) const { return {re * x.re - im * x.im, re * x.im + im * x.re}; }
};

// a, a^2, a^4 and so on, as many as `most` has bits.
DEVICE void square(Ptr<double> re, Ptr<double> im, Wide a, uint32_t most) {
    for (int i = 0; most != 0; ++i, most /= 2) {
        re[i] = a.re;
        im[i] = a.im;
        a = a * a;
    }
}

// w a^exponent.
DEVICE Complex power(Wide w, Ptr<double> re, Ptr<double> im, uint32_t exponent) {
    for (int i = 0; exponent != 0; ++i, exponent /= 2)
        if (exponent % 2 == 1) w = w * Wide{re[i], im[i]};
    return {float(w.re), float(w.im)};
}

DEVICE void kernel(Ptr<const float> a_re, Ptr<const float> a_im, Ptr<const float> w_re, Ptr<const float> w_im,
                   Ptr<float> y, uint32_t states, uint32_t len) {
    SHARED(double, re, STATES* SQUARES);
    SHARED(double, im, STATES* SQUARES);
    uint64_t row = uint64_t(blockIdx.x) * states;
    uint32_t start = (blockIdx.y * THREADS + threadIdx.x) * RUN;
    float sums[RUN] = {};
    for (uint32_t first = 0; first < states; first += STATES) {
        uint32_t count = min(states - first, uint32_t(STATES));
        __syncthreads();
        if (threadIdx.x < count) {
            uint64_t at = row + first + threadIdx.x;
            uint32_t base = threadIdx.x * SQUARES;
            square(re + base, im + base, {a_re[at], a_im[at]}, len);
        }
        __syncthreads();
        if (start >= len) continue;
        for (uint32_t k = 0; k < count; ++k) {
            uint64_t at = row + first + k;
            Complex a = {a_re[at], a_im[at]};
            Complex term = power({w_re[at], w_im[at]}, re + k * SQUARES, im + k * SQUARES, start);
#pragma unroll
            for (int i = 0; i < RUN; ++i) {
                sums[i] += term.re;
                term = term * a;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < RUN; ++i)
        if (start + i < len) y[uint64_t(blockIdx.x) * len + start + i] = sums[i];
}

// With S = sum of g_l a^l and T = sum of l g_l a^(l-1), the gradient of w is the conjugate of S, and that of a the
// conjugate of w T.
DEVICE void backward(Ptr<const float> a_re, Ptr<const float> a_im, Ptr<const float> w_re, Ptr<const float> w_im,
                     Ptr<const float> gy, Ptr<float> ga_re, Ptr<float> ga_im, Ptr<float> gw_re, Ptr<float> gw_im,
                     uint32_t states, uint32_t len) {
    SHARED(double, re, SQUARES);
    SHARED(double, im, SQUARES);
    uint64_t at = uint64_t(blockIdx.x) * states + blockIdx.y;
    Complex a = {a_re[at], a_im[at]};
    if (threadIdx.x == 0) square(re, im, {a.re, a.im}, len);
    __syncthreads();
    uint32_t each = (len + THREADS - 1) / THREADS, first = threadIdx.x * each, last = min(first + each, len);
    Ptr<const float> g = gy + uint64_t(blockIdx.x) * len;
    Complex s = {0.0f, 0.0f}, t = {0.0f, 0.0f};
    if (first < len) {
        Complex term = power({1.0, 0.0}, re, im, first);
        for (uint32_t l = first; l < last; ++l) {
            s.re += g[l] * term.re;
            s.im += g[l] * term.im;
            if (l + 1 < len) {
                float slope = float(l + 1) * g[l + 1];
                t.re += slope * term.re;
                t.im += slope * term.im;
            }
            term = term * a;
        }
    }
    s = {block_sum<THREADS>(s.re), block_sum<THREADS>(s.im)};
    t = {block_sum<THREADS>(t.re), block_sum<THREADS>(t.im)};
    if (threadIdx.x != 0) return;
    Complex ga = (Complex{w_re[at], w_im[at]} * t).conjugate(), gw = s.conjugate();
    ga_re[at] = ga.re;
    ga_im[at] = ga.im;
    gw_re[at] = gw.re;
    gw_im[at] = gw.im;
}

KERNEL(vandermonde_f32, THREADS, Global<const float> a_re, Global<const float> a_im, Global<const float> w_re,
       Global<const float> w_im, Global<float> y, uint32_t states, uint32_t len) {
    kernel(a_re, a_im, w_re, w_im, y, states, len);
}
KERNEL(vandermonde_backward_f32, THREADS, Global<const float> a_re, Global<const float> a_im,
       Global<const float> w_re, Global<const float> w_im, Global<const float> gy, Global<float> ga_re,
       Global<float> ga_im, Global<float> gw_re, Global<float> gw_im, uint32_t states, uint32_t len) {
    backward(a_re, a_im, w_re, w_im, gy, ga_re, ga_im, gw_re, gw_im, states, len);
}
