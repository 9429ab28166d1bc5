// Kernels on a CPU: the names of device.cuh for an ordinary C++ compiler. For tests only.
//
// Every CUDA thread is a fiber; the fibers of a block run in turn until each waits at a barrier or
// has ended. Every access to tensors and shared memory goes through Checked<T>, which refuses
// accesses out of bounds, and reports a race if no barrier orders two accesses to one element of
// which one is a write.
#pragma once

#include "checked.hpp"
#include "launch.hpp"

#include <cmath>

#define DEVICE inline

#define threadIdx (emulation::here().thread)
#define blockIdx (emulation::here().block)
#define blockDim (emulation::here().threads)
#define gridDim (emulation::here().blocks)

#define KERNEL(name, most, ...)                                                   \
    static void name(__VA_ARGS__);                                                \
    static const emulation::Registered name##_registered(#name, most, emulation::Entry<&name>()); \
    static void name(__VA_ARGS__)

#define KERNEL_FITTING(name, most, blocks, ...) KERNEL(name, most, __VA_ARGS__)

#define SHARED(T, name, count)  \
    static const char name##_tag = 0; \
    emulation::Checked<T> name = emulation::shared<T>(&name##_tag, count)

using emulation::bf16;

template <class T>
using Ptr = emulation::Checked<T>;
template <class T>
using Global = emulation::Checked<T>;
template <class T, int N>
using Table = emulation::Table<T, N>;
#define INDEXED(...) Table<__VA_ARGS__>

template <class T>
Ptr<T> dynamic_shared(uint32_t offset, uint32_t count) {
    return emulation::dynamic_part<T>(offset, count);
}

inline void __syncthreads() { emulation::barrier(); }
inline void __syncwarp() { emulation::warp_barrier(); }

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return x.wide(); }
template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) { return x; }
template <>
inline bf16 from_float<bf16>(float x) { return bf16::of(x); }

template <class T>
T shuffled(T x, int source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to eight bytes");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof(T));
    bits = emulation::exchange(bits, source);
    memcpy(&x, &bits, sizeof(T));
    return x;
}

inline int lane_of_thread() { return int(emulation::here().thread.x % 32); }

template <class T>
T shuffle(T x, int lane) { return shuffled(x, lane & 31); }
template <class T>
T shuffle_xor(T x, int mask) { return shuffled(x, lane_of_thread() ^ mask); }
// A lane that would read beyond the warp keeps its own value.
template <class T>
T shuffle_up(T x, int by) { return shuffled(x, lane_of_thread() < by ? lane_of_thread() : lane_of_thread() - by); }
template <class T>
T shuffle_down(T x, int by) { return shuffled(x, lane_of_thread() + by > 31 ? lane_of_thread() : lane_of_thread() + by); }

template <int N>
struct Given {
    uint32_t mine[N];
};
template <int N>
struct Lanes {
    const uint32_t (*all)[emulation::WORDS];
    uint32_t get(int i, int lane) const { return all[lane & 31][i]; }
};
template <int N>
Lanes<N> trade(Given<N> given) { return {emulation::exchange_words(given.mine, N)}; }

inline uint32_t pair(bf16 low, bf16 high) { return uint32_t(high.bits) << 16 | low.bits; }
inline uint32_t pair(float low, float high) { return pair(bf16::of(low), bf16::of(high)); }
template <class T>
uint32_t pair_at(Ptr<T> p) {
    p.aligned(2);
    std::remove_const_t<T> low = p[0], high = p[1];
    return pair(low, high);
}

inline float exp2_fast(float x) {
    float y = exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline void sincospif(float x, float* sin, float* cos) {
    *sin = float(::sin(M_PI * x));
    *cos = float(::cos(M_PI * x));
}
inline float __expf(float x) { return exp2_fast(1.4426950408889634f * x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline uint32_t __umulhi(uint32_t x, uint32_t y) { return uint32_t((uint64_t(x) * y) >> 32); }
inline uint32_t __float_as_uint(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
inline float __uint_as_float(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
template <class T>
T min(T x, T y) { return y < x ? y : x; }
template <class T>
T max(T x, T y) { return x < y ? y : x; }

template <class T>
struct Packed {
    uint32_t word[sizeof(T)];
};
template <class T>
Packed<std::remove_const_t<T>> load_packed(Ptr<T> p) {
    p.aligned(4);
    std::remove_const_t<T> x[4] = {p[0], p[1], p[2], p[3]};
    Packed<std::remove_const_t<T>> y;
    memcpy(y.word, x, sizeof x);
    return y;
}
template <class T>
void store_packed(Ptr<T> p, Packed<T> x) {
    p.aligned(4);
    T y[4];
    memcpy(y, x.word, sizeof y);
    for (int i = 0; i < 4; ++i) p[i] = y[i];
}

struct Four {
    float v[4];
};

template <class T>
bool aligned4(Ptr<T> p) { return uintptr_t(p.address()) % (4 * sizeof(T)) == 0; }
template <class T>
Four load4(Ptr<T> p) {
    p.aligned(4);
    return {to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}
template <class T>
void store4(Ptr<T> p, Four x) {
    p.aligned(4);
    for (int i = 0; i < 4; ++i) p[i] = from_float<T>(x.v[i]);
}
