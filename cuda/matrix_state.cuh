// Common code of kernels with a matrix state, m x e numbers, for each sequence and head: the inputs by event.
//
// Without selected queries event t is step t with its query. With them, a step and a query are an event each, in the
// order of time (`events`); a query's event leaves the state unchanged.
#pragma once

#include "device.cuh"

constexpr uint32_t NONE = 0xffffffffu;
constexpr uint32_t SPAN = MATRIX_STATE_SPAN; // events between stored states

// The inputs. `events` (B, count): t for step t, len + r for query r; null if event t is step t with
// query t.
template <class T>
struct Inputs {
    Ptr<const T> q, k, v, g, go;
    Ptr<const uint32_t> events;
    uint32_t len, rows, heads, keys, values, decays, count;
    // The current sequence and head, and their index among those of all sequences.
    uint32_t index = 0, sequence = 0, head = 0;

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
    // The state before the first step is zero, so its decay has no effect.
    DEVICE float decay(uint32_t t, uint32_t i) const {
        if (t == NONE || i >= keys) return 1.0f;
        if (t == 0) return 0.0f;
        float log = to_float(g[at(len, t, decays, decays == 1 ? 0 : i)]);
        return exp2_fast(LOG2E * log);
    }
    // The offset of a stored state: (B s, spans, m, e).
    DEVICE uint64_t state(uint32_t span, uint32_t i, uint32_t column) const {
        uint64_t spans = (count + SPAN - 1) / SPAN;
        return ((uint64_t(index) * spans + span) * keys + i) * values + column;
    }
    DEVICE void start(uint32_t place) {
        index = place;
        sequence = place / heads;
        head = place % heads;
    }
};

#define SIZES                                                                                  \
    uint32_t len, uint32_t rows, uint32_t heads, uint32_t keys, uint32_t values, uint32_t decays, \
        uint32_t count
