#!/usr/bin/env bash
# Runs cargo with the feature `cuda` and everything that its build needs: `cuda/cargo.sh build`, `... clippy`.
# The binary is target/cuda/dsf-cuda, and starts without CUDA. It shares most of its dependencies with the default build,
# in target/release, where they are compiled once.
#   COMPUTE_CAP=75          GPUs from Turing on; the default, 80, is Ampere and has bf16
#   DSF_CUDA_ARCHS=80,90    our kernels for these GPUs only, for faster builds
#   DSF_CUDA_PROFILE=dist-cuda    the profile of a release, which is smaller and takes longer to build
#   DSF_CUDA_QUICK=1        a binary for the mock driver: it and Candle's kernels are compiled without
#                           optimisation, and the project's packages by clippy, whose warnings are errors
set -euo pipefail
cd "$(dirname "$0")/.."

root=$(bash cuda/toolkit.sh where)
command -v g++ >/dev/null || { echo "error: nvcc needs g++; install a C++ compiler" >&2; exit 1; }
release=$("$root/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\),.*/\1 \2/p')
read -r major minor <<<"$release"

target=$PWD/target/cuda
links=$target/links
mkdir -p "$links"
# The libraries of the driver and of CUDA are opened at run time (see rustc.sh), so nothing refers to them. The linker
# flags that name them still need a file each, which may be empty.
for name in cuda cublas cublasLt curand nvrtc; do
    [ -e "$links/lib$name.a" ] || ar rc "$links/lib$name.a"
done
# The runtime that Candle's compiled kernels call is linked statically.
runtime=$(find -L "$root/lib64" "$root/lib" "$root"/targets/*/lib "$root"/lib/*-linux-gnu \
    -maxdepth 1 -name libcudart_static.a -print -quit 2>/dev/null || true)
[ -n "$runtime" ] || { echo "error: $root has no libcudart_static.a; install the CUDA runtime's development files" >&2; exit 1; }
ln -sfn "$runtime" "$links/libcudart.a"

export CUDA_HOME=$root DSF_NVCC=$root/bin/nvcc NVCC=$target/nvcc-$major.$minor PATH=$root/bin:$PATH
settings=() profile=${DSF_CUDA_PROFILE:-release}
if [ -n "${DSF_CUDA_QUICK:-}" ]; then
    # Without -q, since grep would close the pipe early, and the write error of the compiler would count as failure.
    if "$DSF_NVCC" --help | grep -- --Ofast-compile >/dev/null; then NVCC+=-quick; fi
    for package in candle-core candle-nn cudarc dsf dsf-gpu dsf-ops; do
        settings+=(--config "profile.release.package.$package.opt-level=0")
    done
    # Clippy also compiles what it checks, without optimisation, so that one pass does both.
    export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings
else
    # Code that the default build does not share only launches kernels, and is compiled for size, which is as fast.
    if [ "$profile" = release ]; then
        settings+=(--config "profile.release.package.candle-core.codegen-units=1")
        for package in candle-core candle-nn cudarc dsf; do
            settings+=(--config "profile.release.package.$package.opt-level='s'")
        done
    fi
    # From 1.90 on, rustc uses the linker lld on this system, which can merge identical functions: see rustc.sh.
    minor_of_rustc=$(rustc -V | cut -d. -f2)
    case $(uname -sm) in "Linux x86_64") [ "$minor_of_rustc" -lt 90 ] || export DSF_CUDA_FOLD=1 ;; esac
fi
# The name lets cargo distinguish compiler versions, and quick builds from complete ones.
ln -sfn "$PWD/cuda/nvcc.sh" "$NVCC"
export CUDA_COMPUTE_CAP=${COMPUTE_CAP:-80}
export DSF_CUDA_VERSION=$((major * 1000 + minor * 10))
# Later versions use the bindings of the latest version that cudarc supports.
export CUDARC_CUDA_VERSION=$((DSF_CUDA_VERSION < 13040 ? DSF_CUDA_VERSION : 13040))
export CUDAFORGE_THREADS=${CUDAFORGE_THREADS:-$(nproc)} # number of compilers at a time, for Candle's kernels
export RUSTC_WRAPPER=$PWD/cuda/rustc.sh DSF_CUDA_OUT=$target
export DSF_CUDA_RPATH=$PWD/.cuda/libraries/lib:$root/lib64 # additional folders in which the binary looks for them
unset CUDA_PATH CUDA_ROOT CUDA_TOOLKIT_ROOT_DIR
command=$1
shift
if [ "$command" = build ]; then
    # Cargo writes both binaries to one path. The binary of the default build is restored, since a sweep may be using it.
    plain=$PWD/target/$profile/dsf
    kept=$target/dsf-without
    rm -f "$kept"
    [ ! -e "$plain" ] || ln "$plain" "$kept"
    trap '[ "$kept" -ef "$plain" ] || [ ! -e "$kept" ] || mv -f "$kept" "$plain"; rm -f "$kept"' EXIT
    cargo "${settings[@]}" build --profile "$profile" --locked --features cuda "$@"
    # Where nothing was to be built, cargo has linked the same file again.
    [ ! "$plain" -ef "$target/dsf-cuda" ] || rm -f "$plain"
    [ ! -e "$plain" ] || mv -f "$plain" "$target/dsf-cuda"
else
    exec cargo "${settings[@]}" "$command" --profile "$profile" --locked --features cuda "$@"
fi
