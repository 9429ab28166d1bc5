// Elementwise functions with exact derivatives, as in src/ops/pointwise/cpu.rs.
#pragma once

#include "device.cuh"

// ln(1 + e^x), with a small relative error also where the result is close to e^x.
DEVICE float softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(exp2_fast(-LOG2E * fabsf(x)));
}

struct Sigmoid {
    static DEVICE float value(float x) { return sigmoid(x); }
    static DEVICE float slope(float, float y) { return y * (1.0f - y); }
};

struct Softplus {
    static DEVICE float value(float x) { return softplus(x); }
    static DEVICE float slope(float x, float) { return sigmoid(x); }
};

// elu(x) + 1
struct Elu1 {
    static DEVICE float value(float x) { return x > 0.0f ? x + 1.0f : exp2_fast(LOG2E * x); }
    static DEVICE float slope(float x, float) { return x > 0.0f ? 1.0f : exp2_fast(LOG2E * x); }
};

// x (1 + erf(x / sqrt 2)) / 2
struct Gelu {
    static DEVICE float cdf(float x) { return 0.5f * (1.0f + erff(x * 0.70710678118654752f)); }
    static DEVICE float value(float x) { return x * cdf(x); }
    static DEVICE float slope(float x, float) {
        return cdf(x) + x * 0.39894228040143268f * exp2_fast(-0.5f * LOG2E * x * x);
    }
};

// x (1 + tanh(v)) / 2 = x sigmoid(2 v), v = sqrt(2 / pi) (x + 0.044715 x^3)
struct GeluTanh {
    static constexpr float SCALE = 1.59576912160573081f, CUBE = 0.044715f;
    static DEVICE float value(float x) { return x * sigmoid(SCALE * x * (1.0f + CUBE * x * x)); }
    static DEVICE float slope(float x, float) {
        float s = sigmoid(SCALE * x * (1.0f + CUBE * x * x));
        x = fminf(fmaxf(x, -1e3f), 1e3f);  // beyond, s (1 - s) is 0, and the cube would overflow
        return s + x * s * (1.0f - s) * SCALE * (1.0f + 3.0f * CUBE * x * x);
    }
};

struct Identity {
    static DEVICE float value(float x) { return x; }
    static DEVICE float slope(float, float) { return 1.0f; }
};

struct Silu {
    static DEVICE float value(float x) { return x * sigmoid(x); }
    static DEVICE float slope(float x, float) {
        float s = sigmoid(x);
        return s * (1.0f + x * (1.0f - s));
    }
};

// (e^x - 1) / x, 1 at 0
struct Phi1 {
    static DEVICE bool is_near(float x) { return fabsf(x) < 0.5f; }
    // The power series, to 8 terms: at |x| = 1/2 the next one is below the rounding error.
    static DEVICE float series(float x) {
        float sum = 1.0f / 40320.0f;
        sum = sum * x + 1.0f / 5040.0f;
        sum = sum * x + 1.0f / 720.0f;
        sum = sum * x + 1.0f / 120.0f;
        sum = sum * x + 1.0f / 24.0f;
        sum = sum * x + 1.0f / 6.0f;
        sum = sum * x + 0.5f;
        return sum * x + 1.0f;
    }
    static DEVICE float slope_series(float x) {
        float sum = 8.0f / 362880.0f;
        sum = sum * x + 7.0f / 40320.0f;
        sum = sum * x + 6.0f / 5040.0f;
        sum = sum * x + 5.0f / 720.0f;
        sum = sum * x + 4.0f / 120.0f;
        sum = sum * x + 3.0f / 24.0f;
        sum = sum * x + 2.0f / 6.0f;
        return sum * x + 0.5f;
    }
    static DEVICE float value(float x) {
        return is_near(x) ? series(x) : (exp2_fast(LOG2E * x) - 1.0f) / x;
    }
    static DEVICE float slope(float x, float) {
        return is_near(x) ? slope_series(x) : (exp2_fast(LOG2E * x) - value(x)) / x;
    }
};

struct Tanh {
    static DEVICE float value(float x) { return tanhf(x); }
    static DEVICE float slope(float, float y) { return 1.0f - y * y; }
};
