// The common code of linear and gated scans: the pieces of time that threads process, and the
// states that pass between pieces.
//
// A thread scans one channel of one sequence through one piece of time. A single piece needs no
// more. With several pieces, a first kernel computes each piece's affine map c -> product c + end;
// `join` composes these maps from piece to piece; and the scan of each piece starts from the
// resulting state.
#pragma once

#include "complex.cuh"
#include "walk.cuh"

// The number types of a scan. In tensors, the parts of a number are `stride` apart.
struct Real {
    static constexpr int PARTS = 1;
    float re;

    static DEVICE Real of(float re) { return {re}; }
    template <class T>
    static DEVICE Real load(Ptr<const T> p, uint64_t at, uint32_t) {
        return {to_float(p[at])};
    }
    template <class T>
    DEVICE void store(Ptr<T> p, uint64_t at, uint32_t) const {
        p[at] = from_float<T>(re);
    }
    DEVICE Real operator+(Real y) const { return {re + y.re}; }
    DEVICE Real operator*(Real y) const { return {re * y.re}; }
    DEVICE Real conjugate() const { return *this; }
};

// A channel of a sequence in a piece of time.
struct Piece {
    uint64_t sequence, row /* sequences times pieces, in order */;
    uint32_t channel, index, from, to;

    // The offset of element (sequence, t, part, channel) in (.., len, parts, width), for the first
    // part.
    DEVICE uint64_t at(uint32_t t, uint32_t len, uint32_t width, int parts) const {
        return (sequence * len + t) * parts * width + channel;
    }
    // The offset in an array with one number per piece, (batch, pieces, parts, width).
    DEVICE uint64_t slot(uint32_t width, int parts) const { return row * parts * width + channel; }
};

// The piece of this thread, possibly beyond the last sequence.
DEVICE Piece piece_of_thread(uint32_t len, uint32_t width, uint32_t pieces, uint32_t steps) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t row = i / width, index = row % pieces;
    uint32_t from = index * steps;
    return {row / pieces, row, i % width, index, from, min(from + steps, len)};
}

// The affine map of a piece; (batch, pieces, 2, parts, width).
template <class V>
struct Line {
    V product, end;

    static DEVICE Line load(Ptr<const float> lines, Piece piece, uint32_t width) {
        uint64_t at = piece.slot(width, 2 * V::PARTS);
        return {V::template load<float>(lines, at, width),
                V::template load<float>(lines, at + V::PARTS * width, width)};
    }
    DEVICE void store(Ptr<float> lines, Piece piece, uint32_t width) const {
        uint64_t at = piece.slot(width, 2 * V::PARTS);
        product.template store<float>(lines, at, width);
        end.template store<float>(lines, at + V::PARTS * width, width);
    }
};

// The state at which a piece starts, from (batch, pieces, parts, width); 0 for a single piece.
template <class V>
DEVICE V received(Ptr<const float> starts, Piece piece, uint32_t width) {
    if (starts == nullptr) return V::of(0.0f);
    return V::template load<float>(starts, piece.slot(width, V::PARTS), width);
}
