#!/usr/bin/env bash
# Stands for nvcc where DSF_CUDA_QUICK is set. Nine tenths of the time go into optimising Candle's own kernels, most of which,
# those of quantised models, nothing here runs: these are compiled without. Ours are compiled as ever.
fast=()
case $PWD in
    */candle-kernels-*) fast=(--Ofast-compile=max) ;;
esac
exec "$DSF_NVCC" "${fast[@]}" "$@"
