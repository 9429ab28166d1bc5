// Complex numbers. In tensors, their parts are `stride` apart.
#pragma once

#include "device.cuh"

struct alignas(8) Complex {
    static constexpr int PARTS = 2;
    float re, im;

    static DEVICE Complex of(float re) { return {re, 0.0f}; }
    template <class T>
    static DEVICE Complex load(Ptr<const T> p, uint64_t at, uint32_t stride) {
        return {to_float(p[at]), to_float(p[at + stride])};
    }
    template <class T>
    DEVICE void store(Ptr<T> p, uint64_t at, uint32_t stride) const {
        p[at] = from_float<T>(re);
        p[at + stride] = from_float<T>(im);
    }
    DEVICE Complex operator+(Complex y) const { return {re + y.re, im + y.im}; }
    DEVICE Complex operator*(Complex y) const {
        return {re * y.re - im * y.im, re * y.im + im * y.re};
    }
    DEVICE Complex conjugate() const { return {re, -im}; }
};
