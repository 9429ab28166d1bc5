#!/usr/bin/env bash
# Stands between cargo and nvcc (NVCC); DSF_NVCC is the compiler. Candle's kernels for quantised models and mixtures of
# experts, nine tenths of the time that all of its kernels take, become empty: nothing here runs them, and a program
# that calls one does not link, or does not find it. Called as nvcc-VERSION, or as nvcc-VERSION-quick: see cargo.sh.
arguments=("$@")
case $PWD in
    */candle-kernels-*)
        for i in "${!arguments[@]}"; do
            case ${arguments[i]} in
                *src/moe/*.cu | *src/mmq_gguf/*.cu | *src/mmvq_gguf.cu | *src/quantized.cu)
                    mkdir -p "$DSF_CUDA_OUT/empty"
                    arguments[i]=$DSF_CUDA_OUT/empty/${arguments[i]##*/}
                    : > "${arguments[i]}" ;;
            esac
        done
        # Those that are left, without optimisation, for a binary that is linked and not used.
        case $0 in *-quick) arguments=(--Ofast-compile=max "${arguments[@]}") ;; esac
        ;;
esac
exec "$DSF_NVCC" "${arguments[@]}"
