// Ops with a matrix state, m x e numbers for each sequence and head: the inputs by event, and the tiles of a span.
//
// Without selected queries event t is step t with its query. With them, a step and a query are an event each, in the
// order of time (`events`); a query's event leaves the state unchanged.
#pragma once

#include "mma.cuh"

constexpr uint32_t NONE = 0xffffffffu;
constexpr uint32_t SPAN = MATRIX_STATE_SPAN;        // events between stored states
constexpr uint32_t THREADS = MATRIX_STATE_THREADS;  // of a block
constexpr uint32_t WARPS = THREADS / WARP;
static_assert(SPAN == 16, "the events of a span are the rows of a product of the tensor cores");

// Products with states and sums over the events of a span are nearly as exact as in f32, at every precision.
using Exact = Tf32x3;

// The inputs. `events` (B, count): t for step t, len + r for query r; null if event t is step t with
// query t. Without a rank-one part, a and b are null.
template <class T>
struct Inputs {
    Ptr<const T> q, k, v, g, a, b;
    Ptr<const uint32_t> events;
    uint32_t len, rows, heads, keys, values, decays, count;
    // The current sequence and head, and their index among those of all sequences.
    uint32_t index = 0, sequence = 0, head = 0;

    DEVICE void start(uint32_t place) {
        index = place;
        sequence = place / heads;
        head = place % heads;
    }
    DEVICE uint32_t event(uint32_t e) const {
        uint32_t found = events[uint64_t(sequence) * count + e];
        return found;
    }
    // The time of the step of an event.
    DEVICE uint32_t time(uint32_t e) const {
        if (e >= count) return NONE;
        if (events == nullptr) return e;
        uint32_t found = event(e);
        return found < len ? found : NONE;
    }
    // The row of the query of an event.
    DEVICE uint32_t row(uint32_t e) const {
        if (e >= count) return NONE;
        if (events == nullptr) return e;
        uint32_t found = event(e);
        return found < len ? NONE : found - len;
    }
    // The offset of an element of (B, `length`, s, width).
    DEVICE uint64_t at(uint32_t length, uint32_t row, uint32_t width, uint32_t i) const {
        return ((uint64_t(sequence) * length + row) * heads + head) * width + i;
    }
    // An element of a step, and one of a query; 0 outside.
    template <class X>
    DEVICE float of_step(Ptr<const X> x, uint32_t t, uint32_t width, uint32_t i) const {
        if (t == NONE || i >= width) return 0.0f;
        return to_float(x[at(len, t, width, i)]);
    }
    template <class X>
    DEVICE float of_row(Ptr<const X> x, uint32_t r, uint32_t width, uint32_t i) const {
        if (r == NONE || i >= width) return 0.0f;
        return to_float(x[at(rows, r, width, i)]);
    }
    // An element of a or b. The state before the first step is zero, so that step's have no effect; nor has its decay.
    DEVICE float of_rank(Ptr<const T> x, uint32_t t, uint32_t i) const {
        return t == 0 ? 0.0f : of_step(x, t, keys, i);
    }
    DEVICE float decay(uint32_t t, uint32_t i) const {
        if (t == NONE || i >= keys) return 1.0f;
        if (t == 0) return 0.0f;
        float log = to_float(g[at(len, t, decays, decays == 1 ? 0 : i)]);
        return exp2_fast(LOG2E * log);
    }
    DEVICE uint32_t spans() const { return (count + SPAN - 1) / SPAN; }
    // The index of a span among those of all sequences and heads.
    DEVICE uint64_t place(uint32_t span) const { return uint64_t(index) * spans() + span; }
    // The offset of a stored state: (B s, spans, m, e).
    DEVICE uint64_t state(uint32_t span, uint32_t i, uint32_t column) const {
        return (place(span) * keys + i) * values + column;
    }
    // m, up to a multiple of the rows of a product.
    DEVICE uint32_t padded() const { return (keys + 15) / 16 * 16; }
};

// A span as products of matrices; RANK tells whether the transition has a rank-one part. With M = [[T, X], [E, Z]] and
// the decayed rows of matrix_state_factors.cuh:
//
//   [P; O] = [W; Y] S + [X; Z] V,     S' = F S + A~^T P + K~^T V      forward
//   [R; gv] = [W'; Y'] G + [E, Z]^T go,   G' = F G + B~^T R + Q~^T go     backward
//
// Without a rank-one part M is Z, and the rows of P and R are missing.
template <bool RANK>
struct Sides {
    static constexpr uint32_t ROWS = RANK ? 2 * SPAN : SPAN;  // of both sides, and of M
    static constexpr uint32_t LAST = ROWS - SPAN;             // the first row of Y, K~, Z

    // Whether a row is one of P or R.
    static DEVICE bool projects(uint32_t row) {
        if constexpr (RANK) return row < SPAN;
        return false;
    }
};

// Both sides of all spans: (B s, spans, ROWS, padded m) twice, F (B s, spans, padded m), M (B s, spans, ROWS, ROWS).
struct Factors {
    Ptr<float> reads, writes, whole, mixing;
};

#define STEPS_OF(T)                                                                            \
    Global<const T> q, Global<const T> k, Global<const T> v, Global<const T> g,                \
        Global<const T> a, Global<const T> b, Global<const uint32_t> events
#define SIZES                                                                                  \
    uint32_t len, uint32_t rows, uint32_t heads, uint32_t keys, uint32_t values, uint32_t decays, \
        uint32_t count
#define INPUTS(T) Inputs<T> in{q, k, v, g, a, b, events, len, rows, heads, keys, values, decays, count}
