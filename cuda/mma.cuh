// Products of small matrices by the tensor cores: C (M x N of a warp) += A (M x K) B (K x N).
//
// The rounding of factors is a type: Tf32x3 (each f32 as a sum of two tf32, three products: nearly
// f32), Tf32 or Bf16; sums are f32. A kernel NAME_f32 multiplies by the first, NAME_tf32, on the same
// tensors, by the second and NAME_bf16 by the third. Factors come from views, usually of shared memory: Rows (row
// major) or Columns (its transpose). Free of bank conflicts are, for f32: A in Rows and B in
// Columns with a leading dimension of 4 more than a multiple of 32 (PAD_ALONG), A in Columns and B
// in Rows with 8 more (PAD_ACROSS); for bf16: A in Rows and B in Columns with 8 more than a
// multiple of 64.
//
// Without tensor cores (compute capability 7.5, emulation) the lanes exchange the same registers,
// so that a wrong layout of fragments gives wrong products there as well.
#pragma once

#include "mma_instructions.cuh"
#include "walk.cuh"

constexpr uint32_t PAD_ALONG = 4;
constexpr uint32_t PAD_ACROSS = 8;

// A matrix whose element (i, j) is at p[i * stride + j].
template <class T>
struct Rows {
    Ptr<T> p;
    uint32_t stride;
    DEVICE float at(uint32_t i, uint32_t j) const {
        T x = p[i * stride + j];
        return to_float(x);
    }
    // (i, j) and (i, j + 1) as bf16, j even
    DEVICE uint32_t along(uint32_t i, uint32_t j) const { return pair_at(p + (i * stride + j)); }
    // (i, j) and (i + 1, j)
    DEVICE uint32_t down(uint32_t i, uint32_t j) const { return pair(at(i, j), at(i + 1, j)); }
};

// A matrix whose element (i, j) is at p[j * stride + i].
template <class T>
struct Columns {
    Ptr<T> p;
    uint32_t stride;
    DEVICE float at(uint32_t i, uint32_t j) const {
        T x = p[j * stride + i];
        return to_float(x);
    }
    DEVICE uint32_t along(uint32_t i, uint32_t j) const { return pair(at(i, j), at(i, j + 1)); }
    DEVICE uint32_t down(uint32_t i, uint32_t j) const { return pair_at(p + (j * stride + i)); }
};

// A matrix of f32 in global memory whose element (i, j) is at p[i * down + j * along].
struct Strided {
    Ptr<const float> p;
    uint32_t down, along;
};

// Whether a view is a matrix of bf16 in memory, whose fragments are loaded by one instruction. Such views lie in shared
// memory, with rows at multiples of 16 bytes.
template <class View>
struct Stored {
    static constexpr bool BF16 = false, BY_COLUMNS = false;
};
template <>
struct Stored<Rows<bf16>> {
    static constexpr bool BF16 = TENSOR_CORES, BY_COLUMNS = false;
};
template <>
struct Stored<Columns<bf16>> {
    static constexpr bool BF16 = TENSOR_CORES, BY_COLUMNS = true;
};

// A view whose elements f(i, j) are computed when they are read.
template <class F>
struct Computed {
    F f;
    DEVICE float at(uint32_t i, uint32_t j) const { return f(i, j); }
    DEVICE uint32_t along(uint32_t i, uint32_t j) const { return pair(f(i, j), f(i, j + 1)); }
    DEVICE uint32_t down(uint32_t i, uint32_t j) const { return pair(f(i, j), f(i + 1, j)); }
};
template <class F>
DEVICE Computed<F> computed(F f) { return {f}; }

struct Tf32 {
    static constexpr int K = 8;
    template <int COUNT>
    struct Fragment {
        uint32_t of[COUNT];
        DEVICE void set(int i, float x) { of[i] = tf32(x); }
    };
    static DEVICE void multiply(float (&c)[4], const Fragment<4>& a, const Fragment<2>& b) {
        mma(c, a.of, b.of);
    }
};

struct Tf32x3 {
    static constexpr int K = 8;
    template <int COUNT>
    struct Fragment {
#if SPLIT
        uint32_t high[COUNT], low[COUNT];
        // Without the rounding instruction, which takes three: of `low`, the tensor cores read the bits of a tf32; a
        // NaN need not survive in `high`, since it does in `low`.
        DEVICE void set(int i, float x) {
            high[i] = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
            low[i] = __float_as_uint(x - __uint_as_float(high[i]));
        }
#else
        uint32_t high[COUNT];
        DEVICE void set(int i, float x) { high[i] = __float_as_uint(x); }
#endif
    };
    // The small products are added first. Tensor cores cut each sum towards zero, by up to a last bit of the largest part:
    // the products of a step are summed by themselves, and added to the total with rounding, so that errors of the total
    // do not grow with K.
    static DEVICE void multiply(float (&c)[4], const Fragment<4>& a, const Fragment<2>& b) {
#if SPLIT
        float step[4] = {};
        mma(step, a.low, b.high);
        mma(step, a.high, b.low);
        mma(step, a.high, b.high);
#pragma unroll
        for (int i = 0; i < 4; ++i) c[i] += step[i];
#else
        mma(c, a.high, b.high);
#endif
    }
};

struct Bf16 {
    static constexpr int K = 16;
    template <int COUNT>
    struct Fragment {
        uint32_t of[COUNT];
    };
    static DEVICE void multiply(float (&c)[4], const Fragment<4>& a, const Fragment<2>& b) {
        mma_bf16(c, a.of, b.of);
    }
};

// This lane's fragment of A from (row, k) on.
template <class P, class View>
DEVICE typename P::template Fragment<4> left_fragment(const View& a, uint32_t row, uint32_t k) {
    typename P::template Fragment<4> to;
#if TENSOR_CORES
    if constexpr (P::K == 16 && Stored<View>::BF16) {
        constexpr bool BY_COLUMNS = Stored<View>::BY_COLUMNS;
        uint32_t lane = threadIdx.x % WARP, i = row + lane / 8 % 2 * 8, j = k + lane / 16 * 8;
        (BY_COLUMNS ? j : i) += lane % 8;
        load_matrices<4, BY_COLUMNS>(to.of, a.p + (BY_COLUMNS ? j * a.stride + i : i * a.stride + j));
        return to;
    }
#endif
    uint32_t g = row + lane_group(), q = lane_quad();
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        uint32_t r = g + i % 2 * 8;
        if constexpr (P::K == 8)
            to.set(i, a.at(r, k + q + i / 2 * 4));
        else
            to.of[i] = a.along(r, k + 2 * q + i / 2 * 8);
    }
    return to;
}

// This lane's fragment of B from (k, column) on.
template <class P, class View>
DEVICE typename P::template Fragment<2> right_fragment(const View& b, uint32_t k, uint32_t column) {
    typename P::template Fragment<2> to;
#if TENSOR_CORES
    if constexpr (P::K == 16 && Stored<View>::BF16) {
        constexpr bool BY_COLUMNS = Stored<View>::BY_COLUMNS;
        uint32_t lane = threadIdx.x % WARP, i = k + lane / 8 % 2 * 8, j = column;
        (BY_COLUMNS ? j : i) += lane % 8;
        load_matrices<2, !BY_COLUMNS>(to.of, b.p + (BY_COLUMNS ? j * b.stride + i : i * b.stride + j));
        return to;
    }
#endif
    uint32_t g = column + lane_group(), q = lane_quad();
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        if constexpr (P::K == 8)
            to.set(i, b.at(k + q + i * 4, g));
        else
            to.of[i] = b.down(k + 2 * q + i * 8, g);
    }
    return to;
}

// The same in the order of k in which WarpTile::as_left() takes its sums, in tf32: 2 q and 2 q + 1 instead of q and q + 4.
template <class P, class View>
DEVICE typename P::template Fragment<2> right_fragment_of_pairs(const View& b, uint32_t k, uint32_t column) {
    if constexpr (P::K == 8) {
        typename P::template Fragment<2> to;
        uint32_t g = column + lane_group(), first = k + 2 * lane_quad();
        to.set(0, b.at(first, g));
        to.set(1, b.at(first + 1, g));
        return to;
    } else {
        return right_fragment<P>(b, k, column);
    }
}

// The accumulators of a warp.
template <int M, int N>
struct WarpTile {
    static_assert(M % 16 == 0 && N % 8 == 0, "a tile consists of 16 x 8");
    static constexpr int COLUMNS = N;
    float sum[M / 16][N / 8][4];

    DEVICE void clear() {
#pragma unroll
        for (int i = 0; i < M / 16; ++i)
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
    }

    // Multiplies each column by f(column).
    template <class F>
    DEVICE void scale_columns(F f) {
        uint32_t q = lane_quad();
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float factor = f(8 * j + 2 * q + e);
#pragma unroll
                for (int i = 0; i < M / 16; ++i) {
                    sum[i][j][e] *= factor;
                    sum[i][j][e + 2] *= factor;
                }
            }
    }

    // to(column, sum over the rows of f(row, column) times this); all lanes call it, one a column
    // stores.
    template <class F, class To>
    DEVICE void dot_columns(F f, To to) const {
        uint32_t g = lane_group(), q = lane_quad();
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                uint32_t column = 8 * j + 2 * q + e;
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < M / 16; ++i) {
                    dot += f(16 * i + g, column) * sum[i][j][e];
                    dot += f(16 * i + g + 8, column) * sum[i][j][e + 2];
                }
#pragma unroll
                for (int mask = 4; mask < WARP; mask *= 2) dot += shuffle_xor(dot, mask);
                if (g == 0) to(column, dot);
            }
    }

    // Adds A (rows from `row`, k from `first` to `end`) B (columns from `column`); the range of k
    // is a multiple of 16, or of 8 for products of tf32. Called by all lanes of the warp.
    template <class P, class A, class B>
    DEVICE void add_product(const A& a, uint32_t row, const B& b, uint32_t column, uint32_t first,
                            uint32_t end) {
#pragma unroll 1  // else constant ranges are unrolled whole and registers do not suffice
        for (uint32_t k = first; k < end; k += P::K) {
            typename P::template Fragment<4> left[M / 16];
#pragma unroll
            for (int i = 0; i < M / 16; ++i) left[i] = left_fragment<P>(a, row + 16 * i, k);
#pragma unroll
            for (int j = 0; j < N / 8; ++j) {
                auto right = right_fragment<P>(b, k, column + 8 * j);
#pragma unroll
                for (int i = 0; i < M / 16; ++i) P::multiply(sum[i][j], left[i], right);
            }
        }
    }

    // The same for a matrix A in global memory and P of tf32: the fragments of A of the next STEPS steps are in flight.
    template <class P, int STEPS, class B>
    DEVICE void add_product_ahead(const Strided& a, uint32_t row, const B& b, uint32_t column, uint32_t end) {
        static_assert(M == 16 && P::K == 8, "one tile of rows, of tf32");
        struct Loaded {
            float x[4];
        };
        Ptr<const float> upper = a.p + (uint64_t(row + lane_group()) * a.down + lane_quad() * a.along);
        Ptr<const float> lower = upper + uint64_t(8 * a.down);
        walk<STEPS>(
            0, end / P::K,
            [&](uint32_t step) {
                uint32_t at = step * P::K * a.along, next = at + 4 * a.along;
                Loaded to = {{upper[at], lower[at], upper[next], lower[next]}};
                return to;
            },
            [&](uint32_t step, const Loaded& of) {
                typename P::template Fragment<4> left;
#pragma unroll
                for (int i = 0; i < 4; ++i) left.set(i, of.x[i]);
#pragma unroll
                for (int j = 0; j < N / 8; ++j)
                    P::multiply(sum[0][j], left, right_fragment<P>(b, step * P::K, column + 8 * j));
            });
    }

    // This lane's fragment of A from column k on, where A are these sums; its order of k is that of
    // right_fragment_of_pairs(). No exchange between lanes; k is a constant after unrolling.
    template <class P>
    DEVICE typename P::template Fragment<4> as_left(uint32_t k) const {
        static_assert(M == 16, "one tile of rows");
        typename P::template Fragment<4> to;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (P::K == 8)
                to.set(i, sum[0][k / 8][i % 2 * 2 + i / 2]);
            else
                to.of[i] = pair(sum[0][k / 8 + i / 2][i % 2 * 2], sum[0][k / 8 + i / 2][i % 2 * 2 + 1]);
        }
        return to;
    }

    // f(row, column, sum) for each sum that this lane holds; rows and columns of the tile.
    template <class F>
    DEVICE void each(F f) {
        uint32_t g = lane_group(), q = lane_quad();
#pragma unroll
        for (int i = 0; i < M / 16; ++i)
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    f(16 * i + g + e / 2 * 8, 8 * j + 2 * q + e % 2, sum[i][j][e]);
    }
};
