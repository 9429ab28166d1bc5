// The kernels of an op with a matrix state, NAME_factors, NAME_walk_COLUMNS and NAME_gradients. All take the inputs first and
// their sizes last.
#pragma once

#include "matrix_state_factors.cuh"
#include "matrix_state_gradients.cuh"
#include "matrix_state_walk.cuh"

#define MATRIX_STATE_WALK(name, io, T, RANK, N)                                                \
    KERNEL_FITTING(name##_walk_##N##_##io, THREADS, 4, STEPS_OF(T), Global<const T> go,        \
                   Global<float> reads, Global<float> writes, Global<float> whole,             \
                   Global<float> mixing, Global<float> kept, Global<float> projections,        \
                   Global<T> o, uint32_t back, SIZES) {                                        \
        INPUTS(T);                                                                             \
        walk_spans<T, RANK, N>(in, back != 0 ? go : v, {reads, writes, whole, mixing}, kept,   \
                               {projections, o}, back != 0);                                   \
    }

#define MATRIX_STATE(name, io, T, RANK)                                                        \
    KERNEL_FITTING(name##_factors_##io, THREADS, 4, STEPS_OF(T), Global<float> reads,          \
                   Global<float> writes, Global<float> whole, Global<float> mixing,            \
                   uint32_t back, SIZES) {                                                     \
        INPUTS(T);                                                                             \
        factors<T, RANK>(in, {reads, writes, whole, mixing}, back != 0);                       \
    }                                                                                          \
    MATRIX_STATE_WALK(name, io, T, RANK, 8)                                                    \
    MATRIX_STATE_WALK(name, io, T, RANK, 16)                                                   \
    MATRIX_STATE_WALK(name, io, T, RANK, 32)                                                   \
    KERNEL_FITTING(name##_gradients_##io, THREADS, 3, STEPS_OF(T), Global<const T> go,         \
                   Global<const float> before, Global<const float> after,                      \
                   Global<const float> projections, Global<const float> of_projections,        \
                   Global<T> gq, Global<T> gk, Global<T> ga, Global<T> gb, Global<float> gg,   \
                   SIZES) {                                                                    \
        INPUTS(T);                                                                             \
        gradients<T, RANK>(in, go, {before, after, projections, of_projections},               \
                           {gq, gk, ga, gb, gg});                                              \
    }
