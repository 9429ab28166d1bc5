// Fourier transforms of real sequences for convolutions, in the registers of a block.
//
// N = 2 M real numbers x_n are the coefficients of a polynomial. A product of polynomials modulo z^N + 1 is a
// convolution whose end wraps around to its start with the opposite sign. Half of the roots of z^N = -1 satisfy z^M =
// i; the others are their conjugates, so that the values at the former determine a real polynomial. Modulo z^M - i it
// has the M coefficients x_n + i x_{n+M}. A sequence thus takes M complex numbers, shares its transform with no other
// sequence, and needs no step that separates real from imaginary parts.
//
// A level replaces a modulus z^2h - c^2 by z^h - c and z^h + c: all pairs (x, y) of coefficients h apart become
// (x + c y, x - c y), in six instructions. The inverse takes eight. A modulus z^h - e^(2 pi i turn) is called a node.
// Results stay where their pairs were and are never reordered, since a product of spectra has no need for an order. The
// factors c of two siblings differ by i. Of the 15 factors of four levels seven are read; another is the square of one.
//
// A block has C = 32 / F channels with M = 256 F coefficients each, and a thread has 16 coefficients, so that four
// levels need no exchange. Coefficient n = (16 a + b) F + f of channel c is number a of lane f C + c of warp b during
// the first four levels, and number b of that lane of warp a during the next four. During the last log2 F, a lane has F
// consecutive coefficients of each of 16 / F rows 16 a + b. Coefficients are exchanged through shared memory, real
// parts before imaginary parts: across the block after the first four levels, and within warps before the last ones.
#pragma once

#include "complex.cuh"

constexpr int THREADS = FFT_THREADS;
constexpr int EACH = FFT_EACH;                 // coefficients of a thread
constexpr int ROWS = EACH * EACH;              // nodes above the last levels
constexpr int STARTS = 1 + EACH + ROWS;        // nodes above the first, the next and the last levels
constexpr int FACTORS = 7;                     // that are stored for each of them
constexpr uint32_t OF_WARP = EACH * WARP + 6;  // numbers of a warp in shared memory, of which six keep rows apart
constexpr uint32_t SHARED_NUMBERS = EACH * OF_WARP, SHARED_FACTORS = FACTORS * STARTS;
static_assert(EACH == 16 && THREADS == EACH * WARP, "16 warps exchange 16 numbers a thread");

// A number of four bits, with its bits in reverse order.
DEVICE constexpr uint32_t reversed(uint32_t x) { return (x & 1) << 3 | (x & 2) << 1 | (x & 4) >> 1 | (x & 8) >> 3; }

// (x + c y, x - c y).
DEVICE void divide(Complex& x, Complex& y, Complex c) {
    Complex sum = {x.re + c.re * y.re - c.im * y.im, x.im + c.re * y.im + c.im * y.re};
    y = {2.0f * x.re - sum.re, 2.0f * x.im - sum.im};
    x = sum;
}

// Twice the pair that `divide` started from.
DEVICE void join(Complex& x, Complex& y, Complex c) {
    Complex apart = {x.re - y.re, x.im - y.im};
    x = x + y;
    y = apart * c.conjugate();
}

// The angle, in half turns, of factor `i` below a node: 1 on the second level, 2 and 3 on the third, 4 to 7 on the
// fourth.
DEVICE float half_turns(float turn, uint32_t i) {
    if (i == 1) return turn / 2.0f;
    if (i < 4) return (turn + float(i - 2)) / 4.0f;
    return (turn + float(i - 4)) / 8.0f;
}

// The levels below a node, whose coefficients are numbers `first` and following of z; INVERSE undoes them, up to a
// factor of two for each. `find` returns factors 1 to 7 of the node; that of the first level is the square of factor 1.
template <int LEVELS, bool INVERSE, class Find>
DEVICE void pass(Complex (&z)[EACH], int first, Find find) {
#pragma unroll
    for (int k = 0; k < LEVELS; ++k) {
        const int level = INVERSE ? LEVELS - 1 - k : k, half = 1 << (LEVELS - 1 - level);
        const int factors = level == 0 ? 1 : 1 << (level - 1);  // each for a pair of siblings, except the first
#pragma unroll
        for (int i = 0; i < 1 << LEVELS; ++i) {
            if (i >= factors) continue;
            Complex c = find(level == 0 ? 1 : factors + i);
            if (level == 0) c = c * c;
            const int q = level == 0 ? 0 : 2 * int(reversed(i) >> (5 - level));
#pragma unroll
            for (int pair = 0; pair < 1 << LEVELS; ++pair) {
                if (pair >= (level == 0 ? half : 2 * half)) continue;
                const int at = first + 2 * half * (q + pair / half) + pair % half;
                Complex turned = pair < half ? c : Complex{-c.im, c.re};
                if (INVERSE) join(z[at], z[at + half], turned);
                else divide(z[at], z[at + half], turned);
            }
        }
    }
}

// The transform of a block's channels. All threads of a block call its functions together.
struct Transform {
    Ptr<float> room;
    Ptr<Complex> roots;
    uint32_t levels;  // log2 F
    uint32_t warp, lane;

    // Modulo z^M - e^(2 pi i turn). A barrier must follow before it is used.
    DEVICE Transform(Ptr<float> room, Ptr<Complex> roots, uint32_t levels, float turn)
        : room(room), roots(roots), levels(levels), warp(threadIdx.x / WARP), lane(threadIdx.x % WARP) {
        for (uint32_t i = threadIdx.x; i < FACTORS * STARTS; i += THREADS) {
            uint32_t factor = i / STARTS + 1, start = i % STARTS;
            float of_start = turn;
            if (start > EACH) {
                if (levels == 0 || (factor > 1 && factor >= 1u << (levels - 1))) continue;
                uint32_t row = start - 1 - EACH;
                of_start = (turn + float(reversed(row % EACH) * EACH + reversed(row / EACH))) / float(ROWS);
            } else if (start > 0) {
                of_start = (turn + float(reversed(start - 1))) / float(EACH);
            }
            Complex root;
            sincospif(half_turns(of_start, factor), &root.im, &root.re);
            roots[i] = root;
        }
    }

    DEVICE uint32_t channels() const { return WARP >> levels; }
    DEVICE uint32_t channel() const { return lane % channels(); }
    // M.
    DEVICE uint32_t size() const { return uint32_t(ROWS) << levels; }
    // The index n of number `i` of a thread before the transform.
    DEVICE uint32_t index(uint32_t i) const { return ((i * EACH + warp) << levels) + lane / channels(); }

    DEVICE void forward(Complex (&z)[EACH]) const {
        all_levels<false>(z, 0);
        across(z);
        all_levels<false>(z, 1 + warp);
        if (levels == 1) last_levels<1, false>(z);
        if (levels == 2) last_levels<2, false>(z);
        if (levels == 3) last_levels<3, false>(z);
        if (levels == 4) last_levels<4, false>(z);
    }

    // Undoes `forward`, and multiplies by M.
    DEVICE void inverse(Complex (&z)[EACH]) const {
        if (levels == 1) last_levels<1, true>(z);
        if (levels == 2) last_levels<2, true>(z);
        if (levels == 3) last_levels<3, true>(z);
        if (levels == 4) last_levels<4, true>(z);
        all_levels<true>(z, 1 + warp);
        across(z);
        all_levels<true>(z, 0);
    }

    template <bool INVERSE>
    DEVICE void all_levels(Complex (&z)[EACH], uint32_t start) const {
        below<4, INVERSE>(z, 0, start);
    }

    template <int LEVELS, bool INVERSE>
    DEVICE void last_levels(Complex (&z)[EACH]) const {
        constexpr int NODES = EACH >> LEVELS;
        if (!INVERSE) within<LEVELS, false>(z);
#pragma unroll
        for (int q = 0; q < NODES; ++q) below<LEVELS, INVERSE>(z, q << LEVELS, 1 + EACH + row<LEVELS>(q << LEVELS));
        if (INVERSE) within<LEVELS, true>(z);
    }

    template <int LEVELS, bool INVERSE>
    DEVICE void below(Complex (&z)[EACH], int first, uint32_t start) const {
        pass<LEVELS, INVERSE>(z, first, [&](int i) -> Complex { return roots[(i - 1) * STARTS + start]; });
    }

    // The row of number `i` of a thread in the last levels.
    template <int LEVELS>
    DEVICE uint32_t row(int i) const {
        return warp * EACH + (lane >> (5 - LEVELS)) + ((i >> LEVELS) << LEVELS);
    }

    // Number i of warp j and number j of warp i change places.
    DEVICE void across(Complex (&z)[EACH]) const {
        uint32_t from = warp * WARP + lane, to = warp * OF_WARP + lane;
        auto put = [=](int i) { return from + i * OF_WARP; };
        auto take = [=](int i) { return to + i * WARP; };
        exchange(z, [] { __syncthreads(); }, put, take);
    }

    // Lane f C + c gives number f C + c of all 16 rows of its warp, and gets all numbers of channel c of its own 16 / F
    // rows; BACK undoes it. Bank conflicts are avoided as follows, with r a row modulo F: a row is moved by C (r / 4)
    // numbers, and its numbers change places, in groups of eight (16 if F is 2), by an exclusive or with r % 4. So
    // addresses differ from at most four that are computed by constants.
    template <int LEVELS, bool BACK>
    DEVICE void within(Complex (&z)[EACH]) const {
        constexpr uint32_t PLACES = 1 << LEVELS, CHANNELS = WARP >> LEVELS;
        constexpr uint32_t KINDS = PLACES < 4 ? PLACES : 4, GROUP = WARP / KINDS;
        uint32_t start = warp * OF_WARP, row = lane / CHANNELS, channel = lane % CHANNELS;
        uint32_t rows_at = start + row * WARP + row / KINDS * CHANNELS + channel, of_place[KINDS], of_rows[KINDS];
#pragma unroll
        for (uint32_t k = 0; k < KINDS; ++k) {
            of_place[k] = start + (lane ^ (k * GROUP));
            of_rows[k] = rows_at + (k ^ row % KINDS) * GROUP;
        }
        auto own = [&](uint32_t i) { return of_place[i % KINDS] + i * WARP + i % PLACES / KINDS * CHANNELS; };
        auto all = [&](uint32_t i) {
            uint32_t number = i % PLACES * CHANNELS;
            return of_rows[number / GROUP] + i / PLACES * PLACES * WARP + number % GROUP;
        };
        auto wait = [] { __syncwarp(); };
        if (BACK) exchange(z, wait, all, own);
        else exchange(z, wait, own, all);
    }

    template <class Wait, class Put, class Take>
    DEVICE void exchange(Complex (&z)[EACH], Wait wait, Put put, Take take) const {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            wait();
#pragma unroll
            for (int i = 0; i < EACH; ++i) room[put(i)] = part == 0 ? z[i].re : z[i].im;
            wait();
#pragma unroll
            for (int i = 0; i < EACH; ++i) (part == 0 ? z[i].re : z[i].im) = room[take(i)];
        }
    }
};
