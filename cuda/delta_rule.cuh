// Common code of the kernels of the delta rule: inputs, and the walks by columns.
#pragma once

#include "matrix_state.cuh"

template <class T>
struct Rule : Inputs<T> {
    Ptr<const T> a, b;
};

constexpr int SHORT = 8;          // rows of a thread, for up to 256 of them
constexpr int TALL = 32;          // the same for up to 1024
constexpr int COLUMNS = 2;        // of a thread
constexpr uint32_t MAX_WARPS = 4; // of a block

// A block of columns of all rows. A team of threads, a power of two up to a warp, holds the rows of
// COLUMNS columns in registers: thread `member` holds rows (4 quads of team + member) * 4 and the three
// after each.
template <int ROWS>
struct Columns {
    static constexpr uint32_t STEPS = ROWS == SHORT ? 8 : 2; // events staged at once

    uint32_t team, member, depth; // threads, this one, and rows that all of them hold
    uint32_t width, first, mine;  // columns of the block, the first one, and the first of the thread
    Ptr<float> decays, a, b, k, q; // (STEPS, depth)
    Ptr<float> given;              // (STEPS, width)
    Ptr<float> results[2];         // (STEPS, width)
    float h[ROWS][COLUMNS];

    DEVICE void start(uint32_t threads) {
        team = threads;
        member = threadIdx.x % team;
        depth = team * ROWS;
        width = blockDim.x / team * COLUMNS;
        first = blockIdx.y * width;
        mine = threadIdx.x / team * COLUMNS;
        decays = part(0, depth);
        a = part(depth, depth);
        b = part(2 * depth, depth);
        k = part(3 * depth, depth);
        q = part(4 * depth, depth);
        given = part(5 * depth, width);
        results[0] = part(5 * depth + width, width);
        results[1] = part(5 * depth + 2 * width, width);
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) h[j][c] = 0.0f;
        }
    }
    // Shared memory for `count` numbers per staged event, after `before` numbers per event.
    static DEVICE Ptr<float> part(uint32_t before, uint32_t count) {
        return dynamic_shared<float>(before * STEPS * uint32_t(sizeof(float)), STEPS * count);
    }
    // Row j of the thread.
    DEVICE uint32_t row(int j) const { return (j / 4 * team + member) * 4 + j % 4; }

    // Stages the events from e0 on; `x` has a number for each column, of a query's row if of_rows.
    template <class T>
    DEVICE void stage(const Rule<T>& in, uint32_t e0, Ptr<const T> x, bool of_rows) {
        for (uint32_t n = threadIdx.x; n < STEPS * depth; n += blockDim.x) {
            uint32_t e = e0 + n / depth, i = n % depth, t = in.time(e);
            decays[n] = in.decay(t, i);
            a[n] = in.of_step(in.a, t, in.keys, i);
            b[n] = in.of_step(in.b, t, in.keys, i);
            k[n] = in.of_step(in.k, t, in.keys, i);
            q[n] = in.of_row(in.q, in.row(e), in.keys, i);
        }
        for (uint32_t n = threadIdx.x; n < STEPS * width; n += blockDim.x) {
            uint32_t e = e0 + n / width, column = first + n % width;
            float number = of_rows ? in.of_row(x, in.row(e), in.values, column)
                                   : in.of_step(x, in.time(e), in.values, column);
            given[n] = number;
        }
    }
    template <class T>
    DEVICE void keep(const Rule<T>& in, Ptr<float> kept, uint32_t span) const {
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                uint32_t i = row(j), column = first + mine + c;
                if (i < in.keys && column < in.values) kept[in.state(span, i, column)] = h[j][c];
            }
        }
    }
    // Sums over the rows of a team.
    DEVICE void team_sum(float (&x)[COLUMNS]) const {
        for (uint32_t mask = team / 2; mask > 0; mask /= 2) {
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) x[c] += shuffle_xor(x[c], mask);
        }
    }
    // Writes a result at staged event s.
    DEVICE void put(int result, uint32_t s, const float (&x)[COLUMNS]) const {
        if (member != 0) return;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) results[result][s * width + mine + c] = x[c];
    }
    // The first of this thread's four rows of a quad at staged event s.
    DEVICE uint32_t quad(uint32_t s, int index) const {
        return s * depth + (index * team + member) * 4;
    }

    // The state after staged event s, given that before it. Results: what the query reads, and the
    // projection of the state before.
    DEVICE void step(uint32_t s) {
        float projection[COLUMNS] = {}, read[COLUMNS] = {}, value[COLUMNS];
#pragma unroll
        for (int four = 0; four < ROWS / 4; ++four) {
            Four bs = load4(b + quad(s, four));
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) projection[c] += bs.v[j] * h[four * 4 + j][c];
            }
        }
        team_sum(projection);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) value[c] = given[s * width + mine + c];
#pragma unroll
        for (int four = 0; four < ROWS / 4; ++four) {
            uint32_t at = quad(s, four);
            Four ds = load4(decays + at), as = load4(a + at), ks = load4(k + at), qs = load4(q + at);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    float& state = h[four * 4 + j][c];
                    state = ds.v[j] * state + as.v[j] * projection[c] + ks.v[j] * value[c];
                    read[c] += qs.v[j] * state;
                }
            }
        }
        team_sum(read);
        put(0, s, read);
        put(1, s, projection);
    }
    // The gradient of the state before staged event s, given that after it. Results: the gradient of
    // the value, and that of the projection.
    DEVICE void step_back(uint32_t s) {
        float of_projection[COLUMNS] = {}, of_value[COLUMNS] = {}, read[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) read[c] = given[s * width + mine + c];
#pragma unroll
        for (int four = 0; four < ROWS / 4; ++four) {
            uint32_t at = quad(s, four);
            Four as = load4(a + at), ks = load4(k + at), qs = load4(q + at);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    float& of_state = h[four * 4 + j][c];
                    of_state += qs.v[j] * read[c];
                    of_projection[c] += as.v[j] * of_state;
                    of_value[c] += ks.v[j] * of_state;
                }
            }
        }
        team_sum(of_projection);
        team_sum(of_value);
        put(0, s, of_value);
        put(1, s, of_projection);
#pragma unroll
        for (int four = 0; four < ROWS / 4; ++four) {
            Four ds = load4(decays + quad(s, four)), bs = load4(b + quad(s, four));
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    float& of_state = h[four * 4 + j][c];
                    of_state = ds.v[j] * of_state + bs.v[j] * of_projection[c];
                }
            }
        }
    }
    // Writes the results of staged events, of `result` the rows of queries if of_rows.
    template <class T, class X>
    DEVICE void write(const Rule<T>& in, uint32_t e0, int result, Ptr<X> to, bool of_rows) const {
        if (to == nullptr) return;
        for (uint32_t n = threadIdx.x; n < STEPS * width; n += blockDim.x) {
            uint32_t e = e0 + n / width, column = first + n % width;
            uint32_t index = of_rows ? in.row(e) : in.time(e);
            if (index == NONE || column >= in.values) continue;
            float number = results[result][n];
            to[in.at(of_rows ? in.rows : in.len, index, in.values, column)] = from_float<X>(number);
        }
    }
};
