// Expressions: elementwise functions and sums of rows, as a list of instructions.
//
// Bound by launches at the sizes for which they are made; the time of large tensors is unmeasured. A warp computes one
// row, or a few elements where no row is summed. Their values and gradients are in shared memory, and each lane reads and
// writes those of its own elements only.
#include "pointwise.cuh"

constexpr int WORDS = 3;  // of an instruction

// As in src/ops/expression: AFFINE is 13, ADD 14, ROW_SUM 19.
enum Operation : uint32_t {
    LOAD, COS, EXP, LOG, NEG, RECIP, SIGMOID, SILU, SIN, SOFTPLUS, SQR, SQRT, TANH, AFFINE, ADD, SUB, MUL, DIV,
    SILU_GATE, ROW_SUM, STORE
};
enum Reach : uint32_t { ALL, ROW, LAST };

struct Instruction {
    uint32_t operation, a, b, first, second;
};

DEVICE Instruction instruction(Ptr<const uint32_t> program, uint32_t i) {
    uint32_t word = program[WORDS * i], first = program[WORDS * i + 1], second = program[WORDS * i + 2];
    return {word & 0xff, word >> 8 & 0xff, word >> 16 & 0xff, first, second};
}

// The elements of a warp.
struct Part {
    uint64_t first;  // in the whole
    uint32_t count, lane, width;
    // Place of element e in a tensor.
    DEVICE uint64_t place(Instruction i, uint32_t e) const {
        return i.first == ALL ? first + e : i.first == ROW ? (first + e) / width : (first + e) % i.second;
    }
};

// sin x and cos x for |x| up to a million. sinf would need local memory for larger ones.
DEVICE void sine_and_cosine(float x, float* sine, float* cosine) {
    constexpr float HIGH = 3.14159274101f, LOW = -8.74227766e-8f, INVERSE = 0.318309886f;  // pi = HIGH + LOW
    float turns = rintf(x * INVERSE);
    float rest = fmaf(-turns, LOW, fmaf(-turns, HIGH, x));
    sincospif(rest * INVERSE, sine, cosine);
    if (int(turns) & 1) {
        *sine = -*sine;
        *cosine = -*cosine;
    }
}

DEVICE float sine(float x) {
    float s, c;
    sine_and_cosine(x, &s, &c);
    return s;
}

DEVICE float cosine(float x) {
    float s, c;
    sine_and_cosine(x, &s, &c);
    return c;
}

// A function of one or two numbers.
DEVICE float computed(Instruction i, float a, float b) {
    switch (i.operation) {
        case COS: return cosine(a);
        case EXP: return expf(a);
        case LOG: return logf(a);
        case NEG: return -a;
        case RECIP: return 1.0f / a;
        case SIGMOID: return sigmoid(a);
        case SILU: return Silu::value(a);
        case SIN: return sine(a);
        case SOFTPLUS: return softplus(a);
        case SQR: return a * a;
        case SQRT: return sqrtf(a);
        case TANH: return tanhf(a);
        case AFFINE: return __uint_as_float(i.first) * a + __uint_as_float(i.second);
        case ADD: return a + b;
        case SUB: return a - b;
        case MUL: return a * b;
        case SILU_GATE: return a * Silu::value(b);
        default: return a / b;
    }
}

// The derivatives of y by a and by b.
struct Slopes {
    float a, b;
};

DEVICE Slopes slopes(Instruction i, float a, float b, float y) {
    switch (i.operation) {
        case COS: return {-sine(a), 0.0f};
        case EXP: return {y, 0.0f};
        case LOG: return {1.0f / a, 0.0f};
        case NEG: return {-1.0f, 0.0f};
        case RECIP: return {-y * y, 0.0f};
        case SIGMOID: return {y * (1.0f - y), 0.0f};
        case SILU: return {Silu::slope(a, y), 0.0f};
        case SIN: return {cosine(a), 0.0f};
        case SOFTPLUS: return {sigmoid(a), 0.0f};
        case SQR: return {2.0f * a, 0.0f};
        case SQRT: return {0.5f / y, 0.0f};
        case TANH: return {1.0f - y * y, 0.0f};
        case AFFINE: return {__uint_as_float(i.first), 0.0f};
        case ADD: return {1.0f, 1.0f};
        case SUB: return {1.0f, -1.0f};
        case MUL: return {b, a};
        case SILU_GATE: return {Silu::value(b), a * Silu::slope(b, 0.0f)};
        default: return {1.0f / b, -y / b};
    }
}

DEVICE bool takes_two(Instruction i) { return i.operation >= ADD && i.operation <= SILU_GATE; }

// Writes all values of a part: value v of element e is values[v * span + e].
DEVICE void compute(Ptr<const uint32_t> program, const Table<const float, EXPRESSION_INPUTS>& fs,
                    const Table<const bf16, EXPRESSION_INPUTS>& hs, Ptr<float> values, uint32_t count, uint32_t span,
                    Part part) {
    for (uint32_t v = 0; v < count; ++v) {
        Instruction i = instruction(program, v);
        Ptr<float> to = values + v * span;
        if (i.operation == LOAD) {
            Ptr<const float> f = fs[i.a];
            Ptr<const bf16> h = hs[i.a];
            for (uint32_t e = part.lane; e < part.count; e += WARP) {
                uint64_t at = part.place(i, e);
                float x = f != nullptr ? to_float(f[at]) : to_float(h[at]);
                to[e] = x;
            }
            continue;
        }
        Ptr<float> as = values + i.a * span, bs = values + i.b * span;
        if (i.operation == ROW_SUM) {
            float sum = 0.0f;
            for (uint32_t e = part.lane; e < part.count; e += WARP) sum += as[e];
            sum = warp_sum(sum);
            for (uint32_t e = part.lane; e < part.count; e += WARP) to[e] = sum;
            continue;
        }
        for (uint32_t e = part.lane; e < part.count; e += WARP) {
            float a = as[e], b = 0.0f;
            if (takes_two(i)) b = bs[e];
            to[e] = computed(i, a, b);
        }
    }
}

DEVICE Part part_of_warp(uint32_t span, uint32_t width, uint32_t count) {
    uint64_t first = (uint64_t(blockIdx.x) * (blockDim.x / WARP) + threadIdx.x / WARP) * span;
    uint64_t rest = first < count ? count - first : 0;
    return {first, uint32_t(rest < span ? rest : span), threadIdx.x % WARP, width};
}

KERNEL_FITTING(expression_forward, 128, 8, Global<const uint32_t> program, INDEXED(const float, EXPRESSION_INPUTS) fs,
       INDEXED(const bf16, EXPRESSION_INPUTS) hs, INDEXED(float, EXPRESSION_OUTPUTS) fys,
       INDEXED(bf16, EXPRESSION_OUTPUTS) hys, uint32_t steps, uint32_t value_count, uint32_t span, uint32_t width,
       uint32_t count) {
    Part part = part_of_warp(span, width, count);
    if (part.count == 0) return;
    uint32_t each = value_count * span, start = threadIdx.x / WARP * each;
    Ptr<float> values = dynamic_shared<float>(start * 4, each);
    compute(program, fs, hs, values, value_count, span, part);
    for (uint32_t s = value_count; s < steps; ++s) {
        Instruction i = instruction(program, s);
        Ptr<float> f = fys[i.b];
        Ptr<bf16> h = hys[i.b];
        // A value of a row is the same in all its elements.
        uint32_t last = i.first == ROW ? 1 : part.count;
        for (uint32_t e = part.lane; e < last; e += WARP) {
            uint64_t at = part.place(i, e);
            float y = values[i.a * span + e];
            if (f != nullptr) f[at] = y;
            else h[at] = from_float<bf16>(y);
        }
    }
}

KERNEL_FITTING(expression_backward, 128, 8, Global<const uint32_t> program, INDEXED(const float, EXPRESSION_INPUTS) fs,
       INDEXED(const bf16, EXPRESSION_INPUTS) hs, INDEXED(const float, EXPRESSION_OUTPUTS) fgys,
       INDEXED(const bf16, EXPRESSION_OUTPUTS) hgys, INDEXED(float, EXPRESSION_INPUTS) fgs,
       INDEXED(bf16, EXPRESSION_INPUTS) hgs, uint32_t steps, uint32_t value_count, uint32_t span, uint32_t width,
       uint32_t count) {
    Part part = part_of_warp(span, width, count);
    if (part.count == 0) return;
    uint32_t each = value_count * span, start = threadIdx.x / WARP * 2 * each;
    Ptr<float> values = dynamic_shared<float>(start * 4, each);
    Ptr<float> grads = dynamic_shared<float>((start + each) * 4, each);
    compute(program, fs, hs, values, value_count, span, part);
    for (uint32_t v = 0; v < value_count; ++v)
        for (uint32_t e = part.lane; e < part.count; e += WARP) grads[v * span + e] = 0.0f;
    for (uint32_t s = value_count; s < steps; ++s) {
        Instruction i = instruction(program, s);
        Ptr<const float> f = fgys[i.b];
        Ptr<const bf16> h = hgys[i.b];
        if (f == nullptr && h == nullptr) continue;
        // The gradient of a row's value is the sum of those of its elements.
        uint32_t last = i.first == ROW ? 1 : part.count;
        for (uint32_t e = part.lane; e < last; e += WARP) {
            uint64_t at = part.place(i, e);
            float g = f != nullptr ? to_float(f[at]) : to_float(h[at]);
            grads[i.a * span + e] += g;
        }
    }
    for (uint32_t v = value_count; v-- > 0;) {
        Instruction i = instruction(program, v);
        Ptr<float> gs = grads + v * span;
        if (i.operation == LOAD) {
            Ptr<float> f = fgs[i.a];
            Ptr<bf16> h = hgs[i.a];
            if (f == nullptr && h == nullptr) continue;
            float sum = 0.0f;
            if (i.first == ROW) {
                for (uint32_t e = part.lane; e < part.count; e += WARP) sum += gs[e];
                sum = warp_sum(sum);
            }
            uint32_t last = i.first == ROW ? 1 : part.count;
            for (uint32_t e = part.lane; e < last; e += WARP) {
                uint64_t at = i.first == ROW ? part.place(i, e) : part.first + e;
                float g = gs[e];
                if (i.first == ROW) g = sum;
                if (f != nullptr) f[at] = g;
                else h[at] = from_float<bf16>(g);
            }
            continue;
        }
        Ptr<float> gas = grads + i.a * span, gbs = grads + i.b * span;
        if (i.operation == ROW_SUM) {
            float sum = 0.0f;
            for (uint32_t e = part.lane; e < part.count; e += WARP) sum += gs[e];
            sum = warp_sum(sum);
            for (uint32_t e = part.lane; e < part.count; e += WARP) gas[e] += sum;
            continue;
        }
        for (uint32_t e = part.lane; e < part.count; e += WARP) {
            float a = values[i.a * span + e], b = 0.0f, y = values[v * span + e], g = gs[e];
            if (takes_two(i)) b = values[i.b * span + e];
            Slopes slope = slopes(i, a, b, y);
            gas[e] += g * slope.a;
            if (takes_two(i)) gbs[e] += g * slope.b;
        }
    }
}
