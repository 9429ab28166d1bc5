// The kernel of a system whose matrix is diagonal plus low rank, by its transform at roots of unity (src/ops/dplr_kernel,
// whose cpu.rs has the formulas), and its gradients.
//
// Bound by arithmetic. For a channel with m states, a transform of F = period/2 + 1 roots takes 15 + 4 S^2 operations
// per state and root with S = rank + 1, backward 40 + 14 S^2. The inverse transform is a sum over the roots for each of
// the len taps, eight operations each: 4 len period a channel, which is more than the sums over states where len exceeds
// some four times m. A thread has one root or one tap; a rotation by the angle of its tap (its root) replaces all but
// every sixteenth sine.
#include "complex.cuh"

constexpr int THREADS = DPLR_KERNEL_THREADS;
constexpr int STATES = 16; // which a block shares at one time
constexpr int RUN = 16;    // rotations between two sines

DEVICE Complex operator-(Complex x, Complex y) { return {x.re - y.re, x.im - y.im}; }
DEVICE Complex scaled(Complex x, float by) { return {x.re * by, x.im * by}; }

// cos(θ/2) and 2 sin(θ/2).
struct Root {
    float cos, sin;

    DEVICE Root(uint32_t index, uint32_t period) {
        sincospif(float(index) / float(period), &sin, &cos);
        if (2 * index == period) cos = 0.0f;
        sin *= 2.0f;
    }
    DEVICE Complex half_turn() const { return {cos, 0.5f * sin}; }
};

// The parameters of all channels, in the order of the launch.
struct Inputs {
    Ptr<const float> l_re, l_im, p_re, p_im, b_re, b_im, c_re, c_im;
    uint32_t states;

    DEVICE Complex lambda(uint32_t c, uint32_t k) const { return at(l_re, l_im, c, k); }
    // Vector `i` on the left (c and conjugates of p) and on the right (b and p) of the inverse.
    DEVICE Complex left(int i, uint32_t c, uint32_t k) const {
        return i == 0 ? at(c_re, c_im, c, k) : at(p_re, p_im, (i - 1) * gridDim.x + c, k).conjugate();
    }
    DEVICE Complex right(int i, uint32_t c, uint32_t k) const {
        return i == 0 ? at(b_re, b_im, c, k) : at(p_re, p_im, (i - 1) * gridDim.x + c, k);
    }

    DEVICE Complex at(Ptr<const float> re, Ptr<const float> im, uint32_t row, uint32_t k) const {
        uint64_t place = uint64_t(row) * states + k;
        return {re[place], im[place]};
    }
};

// z E, cos E and E with E = 1 / ((z - cos λ)(z - cos conj λ)), z = 2i sin.
struct Resolvent {
    Complex of_z, of_cos, inverse;

    DEVICE Resolvent(Complex lambda, Root root) {
        float re = root.cos * lambda.re, im = root.cos * lambda.im;
        float real = (im - root.sin) * (im + root.sin) + re * re, imaginary = 2.0f * re * root.sin;
        float norm = 1.0f / (real * real + imaginary * imaginary);
        inverse = {real * norm, imaginary * norm};
        of_z = {-root.sin * inverse.im, root.sin * inverse.re};
        of_cos = scaled(inverse, root.cos);
    }
};

// The sums over states at a root, for each vector on the left and on the right.
template <int S>
struct Sums {
    Complex r[S][S];

    // By all threads of a block; those without a root compute that of ω = 1.
    DEVICE Sums(const Inputs& in, Root root) {
        SHARED(float, re, STATES);
        SHARED(float, im, STATES);
        SHARED(float, x, STATES* S* S);
        SHARED(float, y, STATES* S* S);
#pragma unroll
        for (int i = 0; i < S * S; ++i) r[i / S][i % S] = {0.0f, 0.0f};
        for (uint32_t first = 0; first < in.states; first += STATES) {
            uint32_t count = min(in.states - first, uint32_t(STATES));
            __syncthreads();
            if (threadIdx.x < count) {
                Complex lambda = in.lambda(blockIdx.x, first + threadIdx.x);
                re[threadIdx.x] = lambda.re;
                im[threadIdx.x] = lambda.im;
#pragma unroll
                for (int i = 0; i < S * S; ++i) {
                    Complex v = in.left(i / S, blockIdx.x, first + threadIdx.x) *
                                in.right(i % S, blockIdx.x, first + threadIdx.x);
                    x[threadIdx.x * S * S + i] = 2.0f * v.re;
                    y[threadIdx.x * S * S + i] = -2.0f * (v * lambda.conjugate()).re;
                }
            }
            __syncthreads();
            for (uint32_t k = 0; k < count; ++k) {
                Resolvent of({re[k], im[k]}, root);
#pragma unroll
                for (int i = 0; i < S * S; ++i)
                    r[i / S][i % S] =
                        r[i / S][i % S] + scaled(of.of_z, x[k * S * S + i]) + scaled(of.of_cos, y[k * S * S + i]);
            }
        }
    }
};

// The Woodbury identity: c (z - cos A)^-1 b, and the factors with which a change of the sums changes it by
// left_i dr_ij right_j.
template <int S>
struct Woodbury {
    Complex value, left[S], right[S];

    DEVICE Woodbury(Sums<S> sums, float cos) {
        Complex of_left[S][S], of_right[S][S];
#pragma unroll
        for (int last = S - 1; last > 0; --last) {
            Complex pivot = scaled(sums.r[last][last], cos) + Complex{1.0f, 0.0f};
            float norm = -cos / (pivot.re * pivot.re + pivot.im * pivot.im);
            Complex scale = scaled(pivot.conjugate(), norm);
#pragma unroll
            for (int i = 0; i < last; ++i) {
                of_left[last][i] = sums.r[i][last] * scale;
                of_right[last][i] = sums.r[last][i] * scale;
            }
#pragma unroll
            for (int i = 0; i < last; ++i)
#pragma unroll
                for (int j = 0; j < last; ++j)
                    sums.r[i][j] = sums.r[i][j] + sums.r[i][last] * of_right[last][j];
        }
        value = sums.r[0][0];
        left[0] = right[0] = {1.0f, 0.0f};
#pragma unroll
        for (int i = 1; i < S; ++i) {
            left[i] = right[i] = {0.0f, 0.0f};
#pragma unroll
            for (int j = 0; j < i; ++j) {
                left[i] = left[i] + of_left[i][j] * left[j];
                right[i] = right[i] + of_right[i][j] * right[j];
            }
        }
    }
};

// The sum over x of values[x] e^(i 2π x step / period), x below `count`.
template <class Load>
DEVICE Complex rotated_sum(uint32_t count, uint32_t step, uint32_t period, Load values) {
    Complex turn, phase = {1.0f, 0.0f}, sum = {0.0f, 0.0f};
    sincospif(2.0f * float(step) / float(period), &turn.im, &turn.re);
    uint32_t place = 0; // x step modulo the period
    for (uint32_t x = 0; x < count; ++x) {
        if (x % RUN == 0) sincospif(2.0f * float(place) / float(period), &phase.im, &phase.re);
        sum = sum + values(x) * phase;
        phase = phase * turn;
        place += step;
        if (place >= period) place -= period;
    }
    return sum;
}

// values: (d, 2, roots).
template <int S>
DEVICE void transfer(const Inputs& in, Ptr<float> values, uint32_t period) {
    uint32_t roots = period / 2 + 1, f = blockIdx.y * THREADS + threadIdx.x;
    Root root(f < roots ? f : 0, period);
    Sums<S> sums(in, root);
    if (f >= roots) return;
    Complex value = root.half_turn() * Woodbury<S>(sums, root.cos).value;
    value.store(values, uint64_t(blockIdx.x) * 2 * roots + f, roots);
}

// weights: (d, S, S, 2, roots), the gradients of the sums over states.
template <int S>
DEVICE void weigh(const Inputs& in, Ptr<const float> gy, Ptr<float> weights, uint32_t len, uint32_t period) {
    uint32_t roots = period / 2 + 1, f = blockIdx.y * THREADS + threadIdx.x;
    Root root(f < roots ? f : 0, period);
    Sums<S> sums(in, root);
    if (f >= roots) return;
    Ptr<const float> g = gy + uint64_t(blockIdx.x) * len;
    Complex of_value = rotated_sum(len, f, period, [&](uint32_t l) {
        float x = g[l];
        return Complex::of(x);
    });
    float both = f == 0 || 2 * f == period ? 1.0f : 2.0f;
    Woodbury<S> of(sums, root.cos);
    Complex turned = root.half_turn() * scaled(of_value, both / float(period));
#pragma unroll
    for (int i = 0; i < S * S; ++i) {
        Complex weight = turned * of.left[i / S] * of.right[i % S];
        weight.store(weights, (uint64_t(blockIdx.x) * S * S + i) * 2 * roots + f, roots);
    }
}

// A block has one state of one channel, and its threads share the roots.
template <int S>
DEVICE void slopes(const Inputs& in, Ptr<const float> weights, Ptr<float> gl_re, Ptr<float> gl_im, Ptr<float> gp_re,
                   Ptr<float> gp_im, Ptr<float> gb_re, Ptr<float> gb_im, Ptr<float> gc_re, Ptr<float> gc_im,
                   uint32_t period) {
    uint32_t roots = period / 2 + 1, c = blockIdx.x, k = blockIdx.y;
    Complex lambda = in.lambda(c, k), v[S * S];
    float of_x[S * S] = {}, of_y[S * S] = {}, square = 0.0f, cross = 0.0f;
#pragma unroll
    for (int i = 0; i < S * S; ++i) v[i] = in.left(i / S, c, k) * in.right(i % S, c, k);
    for (uint32_t f = threadIdx.x; f < roots; f += THREADS) {
        Root root(f, period);
        Resolvent of(lambda, root);
        Complex by_x = {0.0f, 0.0f}, by_y = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < S * S; ++i) {
            Complex weight = Complex::load(weights, (uint64_t(c) * S * S + i) * 2 * roots + f, roots);
            by_x = by_x + scaled(weight, 2.0f * v[i].re);
            by_y = by_y + scaled(weight, -2.0f * (v[i] * lambda.conjugate()).re);
            of_x[i] += (weight * of.of_z).re;
            of_y[i] += (weight * of.of_cos).re;
        }
        Complex of_denominator = (by_x * of.of_z + by_y * of.of_cos) * of.inverse;
        square += root.cos * root.cos * of_denominator.re;
        cross += root.cos * root.sin * of_denominator.im;
    }
#pragma unroll
    for (int i = 0; i < S * S; ++i) {
        of_x[i] = block_sum<THREADS>(of_x[i]);
        of_y[i] = block_sum<THREADS>(of_y[i]);
    }
    square = block_sum<THREADS>(square);
    cross = block_sum<THREADS>(cross);
    if (threadIdx.x != 0) return;
    Complex of_lambda = {-2.0f * (lambda.re * square + cross), -2.0f * lambda.im * square};
    Complex of_left[S] = {}, of_right[S] = {};
#pragma unroll
    for (int i = 0; i < S * S; ++i) {
        of_lambda = of_lambda - scaled(v[i], 2.0f * of_y[i]);
        Complex of_v = {2.0f * (of_x[i] - of_y[i] * lambda.re), 2.0f * of_y[i] * lambda.im};
        of_left[i / S] = of_left[i / S] + in.right(i % S, c, k) * of_v;
        of_right[i % S] = of_right[i % S] + in.left(i / S, c, k) * of_v;
    }
    uint64_t at = uint64_t(c) * in.states + k;
    gl_re[at] = of_lambda.re;
    gl_im[at] = of_lambda.im;
    gb_re[at] = of_right[0].re;
    gb_im[at] = -of_right[0].im;
    gc_re[at] = of_left[0].re;
    gc_im[at] = -of_left[0].im;
    // p is on the right, and its conjugate on the left.
#pragma unroll
    for (int i = 1; i < S; ++i) {
        uint64_t of_p = at + uint64_t(i - 1) * gridDim.x * in.states;
        gp_re[of_p] = of_right[i].re + of_left[i].re;
        gp_im[of_p] = of_left[i].im - of_right[i].im;
    }
}

// Tap l of a channel: the sum of the transform over all roots, of which half are stored.
KERNEL(dplr_kernel_inverse, THREADS, Global<const float> values, Global<float> y, uint32_t len, uint32_t period) {
    uint32_t roots = period / 2 + 1, l = blockIdx.y * THREADS + threadIdx.x;
    if (l >= len) return;
    uint64_t row = uint64_t(blockIdx.x) * 2 * roots;
    Complex sum = rotated_sum(roots, l, period, [&](uint32_t f) {
        Complex value = Complex::load(Ptr<const float>(values), row + f, roots);
        return scaled(value, f == 0 || 2 * f == period ? 1.0f : 2.0f);
    });
    y[uint64_t(blockIdx.x) * len + l] = sum.re / float(period);
}

#define INPUTS                                                                                              \
    Global<const float> l_re, Global<const float> l_im, Global<const float> p_re, Global<const float> p_im, \
        Global<const float> b_re, Global<const float> b_im, Global<const float> c_re, Global<const float> c_im
#define KERNELS(S)                                                                                               \
    KERNEL(dplr_kernel_transfer_##S, THREADS, INPUTS, Global<float> values, uint32_t states, uint32_t period) {   \
        transfer<S>({l_re, l_im, p_re, p_im, b_re, b_im, c_re, c_im, states}, values, period);                   \
    }                                                                                                            \
    KERNEL(dplr_kernel_weigh_##S, THREADS, INPUTS, Global<const float> gy, Global<float> weights,                \
           uint32_t states, uint32_t len, uint32_t period) {                                                     \
        weigh<S>({l_re, l_im, p_re, p_im, b_re, b_im, c_re, c_im, states}, gy, weights, len, period);            \
    }                                                                                                            \
    KERNEL(dplr_kernel_slopes_##S, THREADS, INPUTS, Global<const float> weights, Global<float> gl_re,            \
           Global<float> gl_im, Global<float> gp_re, Global<float> gp_im, Global<float> gb_re,                   \
           Global<float> gb_im, Global<float> gc_re, Global<float> gc_im, uint32_t states, uint32_t period) {    \
        slopes<S>({l_re, l_im, p_re, p_im, b_re, b_im, c_re, c_im, states}, weights, gl_re, gl_im, gp_re, gp_im, \
                  gb_re, gb_im, gc_re, gc_im, period);                                                           \
    }

KERNELS(2)
KERNELS(3)
