// The common code of the selective scan's kernels: sizes and reads of inputs.
#pragma once

#include "device.cuh"

// Steps between saved states.
constexpr uint32_t SPAN = SELECTIVE_SCAN_SPAN;

// The inputs. `rows` (B, L): for each time 1 + the row of c and y at that time, 0 for times without
// a row; null if row t is at time t.
template <class T>
struct Inputs {
    Ptr<const T> u, delta, b, c, gy;
    Ptr<const float> a;
    Ptr<const uint32_t> rows;
    uint32_t len, channels, states, row_count, sequence;

    // The place of an element of (B, L, width).
    DEVICE uint64_t at(uint32_t t, uint32_t i, uint32_t width) const {
        return (uint64_t(sequence) * len + t) * width + i;
    }
    // The element at a place, or 0 for one that does not exist.
    DEVICE float some(Ptr<const T> x, uint64_t place, bool exists) const { return exists ? to_float(x[place]) : 0.0f; }
    // An element of (B, L, width); 0 outside.
    DEVICE float step(Ptr<const T> x, uint32_t t, uint32_t i, uint32_t width) const {
        if (t >= len || i >= width) return 0.0f;
        return to_float(x[at(t, i, width)]);
    }
    // 1 + the row at time t, or 0.
    DEVICE uint32_t row_at(uint32_t t) const {
        if (t >= len) return 0;
        if (rows == nullptr) return t + 1;
        uint32_t row = rows[uint64_t(sequence) * len + t];
        return row;
    }
    // An element of (B, R, width) at a time with a row; 0 at other times.
    DEVICE float read_out(Ptr<const T> x, uint32_t t, uint32_t i, uint32_t width) const {
        uint32_t row = row_at(t);
        if (row == 0 || i >= width) return 0.0f;
        return to_float(x[(uint64_t(sequence) * row_count + row - 1) * width + i]);
    }
    // `read_out` of an element whose place is `place` if all times have a row.
    DEVICE float read_out(Ptr<const T> x, uint32_t t, uint32_t i, uint32_t width, uint64_t place, bool exists) const {
        return rows == nullptr ? some(x, place, exists) : read_out(x, t, i, width);
    }
    // The rate for powers of 2; 0 outside, which leaves a state unchanged.
    DEVICE float exponent(uint32_t channel, uint32_t k) const {
        if (channel >= channels || k >= states) return 0.0f;
        float rate = a[uint64_t(channel) * states + k];
        return rate * LOG2E;
    }
    // The offset of a state at the `index`-th of `count` times: (B, count, n, d).
    DEVICE uint64_t state(uint32_t index, uint32_t count, uint32_t k, uint32_t channel) const {
        return ((uint64_t(sequence) * count + index) * states + k) * channels + channel;
    }
    DEVICE bool inside(uint32_t k, uint32_t channel) const { return k < states && channel < channels; }
};
